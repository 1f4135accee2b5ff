/* When the kernel held back the sampling of which event: its THROTTLE and UNTHROTTLE records, as
 * periods in the stream. An event is a thread's on one CPU, so several of a CPU may be held back at
 * once: those of threads that wait for the CPU stay so until they have it again. */
#ifndef CAP_THROTTLES_H
#define CAP_THROTTLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cap_throttles {
	struct cap_throttled {
		uint64_t stream_id, from_ns;
		uint32_t cpu;
		int32_t tid;
	} * now;           /* owned: one for each event that is held back */
	size_t n, cap;
	uint64_t total_ns; /* of all periods that are over */
};

struct cap_emit;
struct cap_entry;
struct cap_ring;

void cap_throttles_deinit(struct cap_throttles *t);
/* A THROTTLE or UNTHROTTLE record. */
void cap_throttles_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en);
/* Of events without a ring, which have no such records: the kernel's limit is below their rate now,
 * or it is not; all CPUs alike. */
void cap_throttles_limit(struct cap_emit *e, const uint32_t *cpus, size_t n, bool is_below,
			 uint64_t time_ns);
/* A thread's events are no more. */
void cap_throttles_ended(struct cap_emit *e, int32_t tid, uint64_t time_ns);
/* The recording is over: so are the periods. */
void cap_throttles_end(struct cap_emit *e, uint64_t time_ns);

#endif
