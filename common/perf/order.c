#include "perf/order.h"

#include <stdlib.h>

#include "base/buf.h"

/* Runs that are looked at before a new one is begun. Input in no order has as many runs as records,
 * and is sorted as in any heap. */
#define RUNS_TRIED 8u

#define EMPTY (UINT32_C(1) << 31) /* in tails: of an empty run, and the next one of these + 1 */

static inline bool before(const struct order_head *a, const struct order_head *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->seq < b->seq;
}

static void sift_up(struct sp_order *o, struct order_head head)
{
	size_t i = o->n_heads++;
	while (i && before(&head, &o->heads[(i - 1) / 2])) {
		o->heads[i] = o->heads[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	o->heads[i] = head;
}

/* From the top, which is free. */
static void sift_down(struct sp_order *o, struct order_head head)
{
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= o->n_heads)
			break;
		if (child + 1 < o->n_heads && before(&o->heads[child + 1], &o->heads[child]))
			child++;
		if (!before(&o->heads[child], &head))
			break;
		o->heads[i] = o->heads[child];
		i = child;
	}
	o->heads[i] = head;
}

/* The run that a record of this time goes on with, or an empty one. */
static uint32_t run_for(struct sp_order *o, uint64_t time_ns)
{
	uint32_t n = (uint32_t)o->n_runs, run = o->run;
	for (uint32_t i = 0; i < RUNS_TRIED && i < n; i++, run = run ? run - 1 : n - 1)
		if (!(o->tails[run] & EMPTY) && o->items[o->tails[run]].time_ns <= time_ns)
			return run;
	if (!o->empty_run) {
		o->tails[o->n_runs] = EMPTY;
		return (uint32_t)o->n_runs++;
	}
	run = o->empty_run - 1;
	o->empty_run = o->tails[run] & ~EMPTY;
	o->tails[run] = EMPTY;
	return run;
}

bool sp_order_push(struct sp_order *o, const struct order_item *item)
{
	struct sp_chunk *chunk = item->chunk;
	if (!sp_grow(&o->items, &o->cap_items, o->n_items + 1, sizeof *o->items) ||
	    !sp_grow(&o->heads, &o->cap_heads, o->n_heads + 1, sizeof *o->heads) ||
	    !sp_grow(&o->tails, &o->cap_runs, o->n_runs + 1, sizeof *o->tails))
		return false;
	uint32_t i = o->free_item ? o->free_item - 1 : (uint32_t)o->n_items++;
	if (o->free_item)
		o->free_item = o->items[i].next;
	o->items[i] = *item;
	o->items[i].seq = o->next_seq++;
	o->items[i].next = 0;
	if (chunk->n_queued++ == 0) {
		sp_chunk_hold(chunk);
		o->n_chunks++;
	}
	o->bytes += item->size;
	o->n++;
	o->run = run_for(o, item->time_ns);
	uint32_t *tail = &o->tails[o->run];
	if (*tail & EMPTY)
		sift_up(o, (struct order_head){item->time_ns, o->items[i].seq, i, o->run});
	else
		o->items[*tail].next = i + 1;
	*tail = i;
	return true;
}

struct order_item sp_order_pop(struct sp_order *o)
{
	const struct order_head head = o->heads[0];
	const struct order_item top = o->items[head.item];
	o->items[head.item].next = o->free_item;
	o->free_item = head.item + 1;
	if (top.next) {
		const struct order_item *next = &o->items[top.next - 1];
		sift_down(o, (struct order_head){next->time_ns, next->seq, top.next - 1, head.run});
	} else {
		o->tails[head.run] = EMPTY | o->empty_run;
		o->empty_run = head.run + 1;
		if (--o->n_heads)
			sift_down(o, o->heads[o->n_heads]);
	}
	if (--o->n) {
		/* The next one in time lies elsewhere, and was touched too long ago to be in a
		 * cache: its head, where the sample's fields are, and its end, where a stack's used
		 * size is. */
		const struct order_item *next = &o->items[o->heads[0].item];
		if (!next->is_late) {
			__builtin_prefetch(next->raw);
			__builtin_prefetch(next->raw + 64);
			__builtin_prefetch(next->raw + next->size - 1);
		}
	}
	o->bytes -= top.size;
	if (--top.chunk->n_queued == 0)
		o->n_chunks--;
	return top;
}

void sp_order_deinit(struct sp_order *o)
{
	while (o->n) {
		struct sp_chunk *c = sp_order_pop(o).chunk;
		if (!c->n_queued)
			sp_chunk_release(c);
	}
	free(o->items);
	free(o->heads);
	free(o->tails);
	*o = (struct sp_order){0};
}
