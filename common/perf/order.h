/* Records waiting for their turn: a heap by (time, arrival). Equal times keep input order. */
#ifndef SP_PERF_ORDER_H
#define SP_PERF_ORDER_H

#include "perf/chunk.h"

struct order_item {
	uint64_t time_ns, seq;
	const uint8_t *raw;
	struct sp_chunk *chunk; /* held by the item */
	uint64_t pos;           /* in the input */
	uint32_t size;
};

struct sp_order {
	struct order_item *v; /* owned; a binary heap, earliest first */
	size_t n, cap;
	uint64_t next_seq;
	uint64_t bytes;  /* of the waiting records */
	size_t n_chunks; /* chunks that they keep alive */
};

void sp_order_deinit(struct sp_order *o); /* releases what still waits */
/* Add a record, holding its chunk; false when memory ends. */
bool sp_order_push(struct sp_order *o, uint64_t time_ns, const uint8_t *raw, uint32_t size,
		   uint64_t pos, struct sp_chunk *chunk);
/* Take the earliest (o->n > 0); its reference to the chunk goes to the caller. */
struct order_item sp_order_pop(struct sp_order *o);

#endif
