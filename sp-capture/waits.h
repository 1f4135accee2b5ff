/* Times off the CPU: a wait and the stack that it was spent in come as two records of the BPF
 * programs (bpf/off_cpu.h), in either order, or are made of perf's (switches.h); here they are
 * joined, by thread. */
#ifndef CAP_WAITS_H
#define CAP_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/table.h"

struct cap_emit;
struct spb_sample;

#define CAP_WAITS_BYTES ((size_t)128 << 20) /* of stacks and waits that are held */
#define CAP_WAITS_PENDING 256u              /* of one thread */

struct cap_wait_part {
	uint8_t *data; /* owned: struct spb_sample, then the chain or the stack */
	size_t cap, size;
};

struct cap_wait_slot {
	int32_t tid; /* 0 = free */
	struct cap_wait_part stack;
	struct cap_wait_part *pending; /* owned; waits whose stack is to come, oldest first */
	size_t n, cap;
	/* Of perf's switches: the last one back, and the last one away. */
	uint64_t in_ns, out_ns; /* out_ns 0: it is on a CPU, or that is not known */
	int32_t pid;
	uint32_t state;
};

#define CAP_WAITS_ENDED 64u
#define CAP_MAX_WAITS 20000u /* recorded per second and CPU */

/* Waits that made no sample, and how others were found. */
struct cap_waits_counts {
	uint64_t n_short, short_ns; /* shorter than the least */
	uint64_t n_over, over_ns;   /* beyond CAP_MAX_WAITS */
	uint64_t n_untold; /* ended by a switch that sched_switch did not tell, found after */
	uint64_t n_missed, missed_ns; /* the same, but when is not known; up to the next switch */
};

struct cap_waits {
	bool stacks_after;
	struct sp_map64 by_tid;
	struct cap_wait_slot *slots; /* owned */
	size_t n, cap, bytes;
	size_t first_free; /* no slot below it is free */
	uint64_t n_bare; /* waits without a user stack */
	/* The rest is for perf's switches. */
	uint64_t min_ns, max_per_s, since_ns; /* waits that began before do not count */
	uint64_t asleep_ns;                   /* when those began that were found asleep */
	uint64_t lost_ns;                     /* the last time that records were lost */
	uint64_t sched_from, sched_to;        /* the scheduler's code; 0, 0: not known */
	uint64_t window;                      /* of the rate's limit, and how many were in it */
	uint64_t n_window;
	int32_t ended[CAP_WAITS_ENDED]; /* threads, the last ones */
	size_t n_ended;
	struct cap_waits_counts counts;
};

void cap_waits_deinit(struct cap_waits *w);

/* One record each, in the ring's order; rest: what follows it. */
void cap_waits_end(struct cap_emit *e, const struct spb_sample *s, const uint8_t *chain,
		   size_t cpu_index);
void cap_waits_stack(struct cap_emit *e, const struct spb_sample *s, const uint8_t *rest,
		     size_t cpu_index);

/* The slot of a thread, made if there is none; NULL: no memory. */
struct cap_wait_slot *cap_waits_slot(struct cap_waits *w, int32_t tid);
/* Room for the stack of a wait to come (its kernel chain first), after its head; NULL: there is
 * none, and no stack. */
uint8_t *cap_waits_room(struct cap_waits *w, struct cap_wait_slot *slot,
			const struct spb_sample *head);
/* The stack is that of the wait that begins now, or it is of one before and goes. */
void cap_waits_begin(struct cap_wait_slot *slot, uint64_t out_ns);

/* A thread has ended, or all have: what still waits for its stack goes without. */
void cap_waits_forget(struct cap_emit *e, int32_t tid);
void cap_waits_flush(struct cap_emit *e);

#endif
