/* Frames of a thread's last walk, kept because the outer ones seldom change: where a new walk comes
 * to a frame whose registers are those of a kept one, the words that the kept steps read are
 * compared with the new copy of the stack, all at once where a walk waits for one after another,
 * and as far as they agree the frames are taken over.
 *
 * Exact: a step is a function of the mappings, the frame's registers and the words that it reads.
 * The mappings are the same snapshot, registers and words are compared. A step that depends on
 * anything else is not kept. */
#ifndef SP_UNWIND_MEMO_H
#define SP_UNWIND_MEMO_H

#include <stdint.h>

#define UW_MEMO_FRAMES 128u /* of a walk, the outermost ones */
#define UW_MEMO_THREADS 16u /* of a worker, by the last bits of their numbers */

/* How a frame's step to its caller was done. */
enum uw_edge {
	UW_EDGE_NONE,    /* not to be repeated: it ended, or depended on something else */
	UW_EDGE_RULE,    /* by a rule */
	UW_EDGE_POINTER, /* by the frame pointer */
	UW_EDGE_CODE,    /* by what the code does with sp */
	UW_EDGE_CALLEE,  /* found in the light of its callee: repeated only behind the same one */
};

/* A frame that no signal interrupted. */
struct uw_memo_frame {
	uint64_t pc, sp, fp;
	/* Where the words that led to the caller were: from its sp, in units of 8. */
	int16_t ra_slot, fp_slot; /* fp: UW_SLOT_KEEP: none was read */
	uint8_t edge;             /* enum uw_edge */
};

struct uw_memo {
	uint64_t space, thread; /* whose it is; 0: nobody's */
	uint64_t ra_mask;       /* of its walks */
	uint64_t met_sp;        /* sp of the frame where the last walk met kept ones */
	uint32_t start;         /* frames[start …] are kept; the last one is the outermost */
	struct uw_memo_frame frames[UW_MEMO_FRAMES];
};

#endif
