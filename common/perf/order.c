#include "perf/order.h"

#include <stdlib.h>

#include "base/buf.h"

static inline bool before(const struct order_item *a, const struct order_item *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->seq < b->seq;
}

bool sp_order_push(struct sp_order *o, uint64_t time_ns, const uint8_t *raw, uint32_t size,
		   uint64_t pos, struct sp_chunk *chunk)
{
	if (!sp_grow(&o->v, &o->cap, o->n + 1, sizeof *o->v))
		return false;
	struct order_item item = {.time_ns = time_ns,
				  .seq = o->next_seq++,
				  .raw = raw,
				  .chunk = chunk,
				  .pos = pos,
				  .size = size};
	sp_chunk_hold(chunk);
	if (chunk->n_queued++ == 0)
		o->n_chunks++;
	o->bytes += size;
	size_t i = o->n++;
	while (i && before(&item, &o->v[(i - 1) / 2])) {
		o->v[i] = o->v[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	o->v[i] = item;
	return true;
}

struct order_item sp_order_pop(struct sp_order *o)
{
	struct order_item top = o->v[0], last = o->v[--o->n];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= o->n)
			break;
		if (child + 1 < o->n && before(&o->v[child + 1], &o->v[child]))
			child++;
		if (!before(&o->v[child], &last))
			break;
		o->v[i] = o->v[child];
		i = child;
	}
	if (o->n) {
		/* The next one in time lies elsewhere, and was touched too long ago to be in a
		 * cache: its head, where the sample's fields are, and its end, where a stack's used
		 * size is. */
		const struct order_item *next;
		o->v[i] = last;
		next = &o->v[0];
		__builtin_prefetch(next->raw);
		__builtin_prefetch(next->raw + 64);
		__builtin_prefetch(next->raw + next->size - 1);
	}
	o->bytes -= top.size;
	if (--top.chunk->n_queued == 0)
		o->n_chunks--;
	return top;
}

void sp_order_deinit(struct sp_order *o)
{
	for (size_t i = 0; i < o->n; i++) {
		o->v[i].chunk->n_queued--;
		sp_chunk_release(o->v[i].chunk);
	}
	free(o->v);
	*o = (struct sp_order){0};
}
