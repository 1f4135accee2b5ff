/* Where each thread's stack ends, so that only its used part is copied. Asked once a thread: the
 * answer is the end of the mapping that holds its sp, for a main thread the kernel's start_stack.
 * glibc keeps a thread's own data at the top of its stack (2.3 KB with glibc 2.36, nptl's
 * allocate_stack): where that is found, the stack ends below it. */
#ifndef CAP_STACKS_H
#define CAP_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct cap_stack_slot {
	int32_t tid, pid; /* tid 0 = free */
	uint64_t lo, hi;  /* sp in [lo, hi) ends at hi; hi 0 = not known */
	uint64_t asked_ns;
	bool look_at_top; /* nobody has looked for the thread's own data yet */
};

struct cap_stacks {
	struct cap_stack_slot *slots; /* owned; open addressing, at most half full */
	uint32_t n, mask;
	struct sp_buf text; /* the maps read last */
	int32_t text_pid;
	uint64_t text_ns;
	uint64_t n_reads;
};

void cap_stacks_deinit(struct cap_stacks *s);

/* The end of the stack that sp of (pid, tid) lies in, 0 when unknown. now_ns: the sample's time. */
uint64_t cap_stacks_end(struct cap_stacks *s, int32_t pid, int32_t tid, uint64_t sp,
			uint64_t now_ns);

/* The thread whose stack's top is to be looked at, or NULL; asked after cap_stacks_end. Its bytes
 * are given once: the last n below hi. */
struct cap_stack_slot *cap_stacks_top(struct cap_stacks *s, int32_t tid);
#define CAP_STACK_TOP 4096u
void cap_stack_top_set(struct cap_stack_slot *slot, const uint8_t *bytes, size_t n);

void cap_stacks_forget(struct cap_stacks *s, int32_t tid);         /* it ended */
void cap_stacks_forget_process(struct cap_stacks *s, int32_t pid); /* it called exec */

/* --- the pure part --- */

/* The mapping of maps text that holds sp: true, its limits (lo reaches down to the mapping before,
 * for a main stack that grows) and whether it is [stack]. */
bool cap_stack_in_maps(const char *text, size_t len, uint64_t sp, uint64_t *lo, uint64_t *hi,
		       bool *is_main);

/* Where glibc's struct pthread begins in the n bytes below hi, 0 when it is not there: it points to
 * itself at its offsets 0 and 16 (tcbhead_t: tcb, dtv, self; x86-64). */
uint64_t cap_stack_tcb(const uint8_t *bytes, size_t n, uint64_t hi);

/* Stack bytes to keep: those copied, not past the end of the stack. */
static inline uint64_t cap_stack_used(uint64_t copied, uint64_t sp, uint64_t end)
{
	return end > sp && end - sp < copied ? end - sp : copied;
}

#endif
