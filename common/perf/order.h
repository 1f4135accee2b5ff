/* Records waiting for their turn, by (time, arrival): equal times keep input order. They come in a
 * few runs that ascend, one per CPU and round; what is sorted is the runs' heads. */
#ifndef SP_PERF_ORDER_H
#define SP_PERF_ORDER_H

#include "perf/chunk.h"

struct order_item {
	uint64_t time_ns, seq;
	const uint8_t *raw;
	struct sp_chunk *chunk;
	uint64_t pos; /* in the input */
	const struct sp_event *event;
	uint16_t size, whole; /* whole: before it was trimmed */
	uint32_t next; /* of the same run, or of the free ones; an index + 1 */
	int32_t pid;   /* of one that is late, whose bytes are not asked for here again */
	uint16_t misc;
	bool is_late;
};

/* The first of a run's items, and where its last one stands. */
struct order_head {
	uint64_t time_ns, seq;
	uint32_t item, run;
};

struct sp_order {
	struct order_item *items; /* owned */
	struct order_head *heads; /* owned; a binary heap, earliest first */
	uint32_t *tails;          /* owned; of each run the index of its last item */
	size_t n;                 /* records that wait */
	size_t n_items, cap_items, n_heads, cap_heads, n_runs, cap_runs;
	uint32_t free_item, empty_run; /* the first ones; an index + 1 */
	uint32_t run;                  /* of the last record that came */
	uint64_t next_seq;
	uint64_t bytes;  /* of the waiting records */
	size_t n_chunks; /* chunks that they keep alive */
};

void sp_order_deinit(struct sp_order *o); /* releases what still waits */
/* Add a record, of which all but seq and next is told; its chunk is held, once for all records that
 * wait in it: counting each would make every record wait for what was written before, for other
 * threads too. False when memory ends. ~10 ns. */
bool sp_order_push(struct sp_order *o, const struct order_item *item);
/* Take the earliest (o->n > 0). When it was its chunk's last one (n_queued is 0) the reference goes
 * to the caller. */
struct order_item sp_order_pop(struct sp_order *o);
/* The earliest one's time (o->n > 0). */
static inline uint64_t sp_order_first_ns(const struct sp_order *o)
{
	return o->heads[0].time_ns;
}

#endif
