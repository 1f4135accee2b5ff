/* What our own wait records tell of times off the CPU (perf/ext.h, WAIT), until the samples come
 * that they are about: both in the order of time, the records up to a round earlier. */
#ifndef SPOOL_WAITS_H
#define SPOOL_WAITS_H

#include "base/cursor.h"
#include "intern.h"

#define SPOOL_WAITS_MAX (1u << 19) /* that are kept; the oldest give way */
#define SPOOL_COMM_BYTES 16u       /* a thread's name, TASK_COMM_LEN of the kernel */

struct spool_wait {
	uint64_t time_ns, end_ns; /* of its sample, and its own; 0 = not told */
	int32_t pid, tid;
	uint32_t state;
	int32_t waker_pid, waker_tid;
	char waker_comm[SPOOL_COMM_BYTES]; /* without NUL when it is that long; "" = not told */
};

struct spool_waits {
	struct spool_wait *v; /* owned; from first to n, in the order of their coming */
	size_t first, n, cap;
};

void spool_waits_deinit(struct spool_waits *w);

/* A record's payload. False when memory ends; one that is too short is dropped. */
bool spool_waits_add(struct spool_waits *w, struct sp_cursor c);

/* The writer's wait of a sample, and when it ended; untouched when nothing was told of it. */
int spool_waits_join(struct spool_waits *w, struct spool_intern *in, const struct sp_record *rec,
		     struct sp_spool_wsample *out, struct sp_err *err);

#endif
