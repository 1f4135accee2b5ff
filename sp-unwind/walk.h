/* Unwinding one copied stack. The seam between the pipeline (which knows streams, processes and
 * files) and the engine (which knows CFI, rules and registers).
 *
 * Cost: 10-15 ns a frame with warm rules; a rule miss interprets one FDE. Nothing is allocated per
 * sample. */
#ifndef SP_UNWIND_WALK_H
#define SP_UNWIND_WALK_H

#include "base/counters.h"
#include "base/err.h"
#include "elf/elf_file.h"

/* The CFI of one file: immutable after creation, shared by all workers, keyed in their rule caches
 * by its id, so that the same file at other addresses and in other processes hits the same rules.
 */
struct uw_module;

/* Takes elf and debug (a separate debug file with .debug_frame, or NULL) over: both must be
 * malloc'ed, and are closed and freed with the module. No table is built when the .eh_frame_hdr is
 * sound. Never fails for lack of CFI: such a module just has none. */
int uw_module_new(struct uw_module **out, struct sp_elf *elf, struct sp_elf *debug,
		  struct sp_err *err);
/* The same, but what is not needed to find addresses in it waits until a rule is asked for: then,
 * in whichever thread, elf's section headers are read, if they are not yet, and find_debug(elf,
 * ctx) gives the debug file or NULL. Most files of a process never get there. */
typedef struct sp_elf *uw_find_debug(const struct sp_elf *elf, const void *ctx);
int uw_module_new_later(struct uw_module **out, struct sp_elf *elf, uw_find_debug *find_debug,
			const void *ctx, struct sp_err *err);
void uw_module_free(struct uw_module *m);
/* Its sections: see above. */
const struct sp_elf *uw_module_elf(const struct uw_module *m);
uint32_t uw_module_id(const struct uw_module *m); /* unique in this process, from 1 */

#define UW_MAP_ANON 1u /* code without a file: JIT, trampolines */
#define UW_MAP_KERNEL 2u
#define UW_MAP_NOFILE 4u /* a file that could not be opened or was refused; a memfd is ANON too */

struct uw_map {
	uint64_t start, end;            /* AVMA */
	uint64_t bias;                  /* AVMA - SVMA (wrapping) */
	const struct uw_module *module; /* NULL: none */
	uint32_t flags;
	uint32_t tag; /* the pipeline's own, e.g. to count stops per file */
};

/* Neighbouring maps, which spaces may share. */
struct uw_maps {
	const struct uw_map *v; /* sorted by start, disjoint */
	uint32_t n;             /* at least 1 */
};

struct uw_space {
	const struct uw_maps *parts; /* in order of address */
	uint32_t n;                  /* of parts */
	uint64_t id;     /* of these maps, never used again; 0: walks in it share nothing */
	bool has_python; /* a python or libpython is mapped: its perf trampolines may be */
	bool has_jvm;    /* a libjvm: HotSpot's compiled code may be */
};

enum uw_stop {
	UW_END,      /* the root: undefined return address, entry stub, fp 0 … */
	UW_NO_REGS,  /* no user registers, or a 32-bit task */
	UW_BAD_REGS, /* pc, sp or fp missing */
	UW_NO_STACK, /* no stack bytes */
	UW_STACK_EXHAUSTED,
	UW_NO_MODULE,
	UW_NO_CFI,
	UW_GUESSED, /* the root, but by one of two ways of which none is sure */
	UW_BAD_CFA,   /* rule not recoverable */
	UW_LOOP,      /* did not advance */
	UW_BACKWARDS, /* CFA below sp */
	UW_NULL_RETURN,
	UW_OVERFLOW,
	UW_DEPTH,
	UW_N_STOPS
};

#define UW_MAX_FRAMES 2048

struct uw_sample {
	uint16_t machine;    /* EM_X86_64 or EM_AARCH64 */
	uint64_t regs_mask;  /* attr.sample_regs_user: bits are perf's register numbers */
	const uint8_t *regs; /* popcount(regs_mask) unaligned u64s, or NULL */
	uint64_t regs_abi;
	const uint8_t *stack; /* from sp upwards */
	uint64_t stack_bytes;
	/* Unless 0: only so many of its bytes are at `stack`, and all of them in a file. */
	uint64_t stack_here;
	int stack_fd;
	uint64_t stack_foff;
	const struct uw_space *space;
	uint64_t
		thread; /* tells threads apart, from 1: walks of one may share outer frames; or 0 */
};

struct uw_stack {
	uint32_t n;
	enum uw_stop stop;
	const struct uw_map *stop_map; /* where it stopped, or NULL */
	/* Looked-up addresses, leaf first: the pc for the first and for interrupted frames, return
	 * address - 1 for all others (stream.md, chain=site). */
	uint64_t addrs[UW_MAX_FRAMES];
	uint64_t return_addrs[UW_MAX_FRAMES]; /* as found, before the call-site rule */
};

/* One per worker: the rule cache and counters. */
struct uw_walker;
struct uw_walker *uw_walker_new(void); /* NULL when memory ends */
void uw_walker_free(struct uw_walker *w);
/* Have its memory in place, where there are threads: the first write to a page that was only read
 * before interrupts all their CPUs. ~50 us. */
void uw_walker_warm(struct uw_walker *w);
void uw_walk(struct uw_walker *w, const struct uw_sample *s, struct uw_stack *out);
/* Ask memory for what uw_walk will read of a sample, and wait for none of it but its registers: to
 * be called before the walk of the sample in front. */
void uw_walk_ahead(const struct uw_walker *w, const struct uw_sample *s);
/* rule_hits, rule_misses, reused_frames, frame_pointer_frames, scanned_frames, frames. */
const struct sp_counters *uw_walker_counters(const struct uw_walker *w);

/* --dump-cfi: print all rows of a file (design.md, section 4) to a stdio stream. */
struct _IO_FILE;
int uw_dump_cfi(const struct uw_module *m, struct _IO_FILE *out, struct sp_err *err);

#endif
