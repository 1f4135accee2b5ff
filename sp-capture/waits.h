/* Times off the CPU: a wait and the stack that it was spent in come as two records of the BPF
 * programs (bpf/off_cpu.h), in either order; here they are joined, by thread. */
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
};

struct cap_waits {
	bool stacks_after;
	struct sp_map64 by_tid;
	struct cap_wait_slot *slots; /* owned */
	size_t n, cap, bytes;
	size_t first_free; /* no slot below it is free */
	uint64_t n_bare; /* waits without a user stack */
};

void cap_waits_deinit(struct cap_waits *w);

/* One record each, in the ring's order. */
void cap_waits_end(struct cap_emit *e, const struct spb_sample *s, const uint8_t *chain,
		   size_t cpu_index);
void cap_waits_stack(struct cap_emit *e, const struct spb_sample *s, const uint8_t *stack,
		     size_t cpu_index);

/* A thread has ended, or all have: what still waits for its stack goes without. */
void cap_waits_forget(struct cap_emit *e, int32_t tid);
void cap_waits_flush(struct cap_emit *e);

#endif
