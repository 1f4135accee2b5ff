/* The rings of all CPUs: their size, and the merge of what they hold. */
#ifndef CAP_RINGS_H
#define CAP_RINGS_H

#include "events.h"
#include "ring.h"

#define CAP_RING_MAX (UINT64_C(64) << 20) /* per CPU, by default */

/* Bytes that one sample reserves in a ring: the whole stack size, whatever is used of it. */
uint64_t cap_sample_bytes(uint32_t stack_bytes);

/* Bytes of 250 ms on one CPU. */
uint64_t cap_ring_need(uint64_t sample_bytes, uint64_t rate_hz);

/* A power of two of at least a page: 250 ms of the rate, at most CAP_RING_MAX; or what the user
 * asked for, rounded down. */
size_t cap_ring_size(uint64_t asked, uint64_t rate_hz, uint32_t stack_bytes, size_t page_bytes);

/* At how many bytes a ring wakes its reader: half of it. The loop looks more often than that while
 * records come, and a wakeup costs the target. */
uint32_t cap_ring_mark(size_t data_bytes);

/* Map n rings, one on every CPU, then the next on every CPU; all of one size; smaller ones while
 * the kernel refuses the memory. *data_bytes: what was wanted, then what it is. */
int cap_rings_map(struct cap_ring *rings, size_t n, struct cap_sampler *s, size_t *data_bytes,
		  uint32_t stack_bytes, struct sp_err *err);

/* One more, for a CPU that came later. */
int cap_rings_map_one(struct cap_ring *ring, struct cap_sampler *s, uint32_t cpu, size_t data_bytes,
		      struct sp_err *err);

/* The RLIMIT_MEMLOCK in KiB with which n rings of that size fit, whatever else the user records. */
size_t cap_rings_lock_kb(const struct cap_kernel *k, size_t n, size_t data_bytes);

/* Say that the kernel gave less than was wanted for n rings, and what helps. */
void cap_rings_say_smaller(const struct cap_kernel *k, size_t n, size_t data_bytes, size_t wanted);

/* The ring whose oldest waiting record is the oldest of all and not after limit_ns; n when none.
 * Equal times: the lower index. */
size_t cap_rings_next(const struct cap_ring *rings, size_t n, uint64_t limit_ns);

#endif
