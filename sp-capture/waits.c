#include "waits.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpf/record.h"
#include "emit.h"
#include "events.h"

#define WAIT_PAYLOAD (48u + SPB_COMM) /* perf/ext.h, WAIT */

static void part_free(struct cap_waits *w, struct cap_wait_part *p)
{
	w->bytes -= p->cap;
	free(p->data);
	*p = (struct cap_wait_part){0};
}

static void slot_clear(struct cap_waits *w, struct cap_wait_slot *slot)
{
	part_free(w, &slot->stack);
	for (size_t i = 0; i < slot->n; i++)
		part_free(w, &slot->pending[i]);
	free(slot->pending);
	*slot = (struct cap_wait_slot){0};
}

void cap_waits_deinit(struct cap_waits *w)
{
	for (size_t i = 0; i < w->n; i++)
		slot_clear(w, &w->slots[i]);
	free(w->slots);
	sp_map64_deinit(&w->by_tid);
	*w = (struct cap_waits){0};
}

static struct cap_wait_slot *find(struct cap_waits *w, int32_t tid)
{
	uint32_t at = sp_map64_get(&w->by_tid, (uint32_t)tid);
	return at < w->n && w->slots[at].tid == tid ? &w->slots[at] : NULL;
}

struct cap_wait_slot *cap_waits_slot(struct cap_waits *w, int32_t tid)
{
	struct cap_wait_slot *slot = find(w, tid);
	if (slot)
		return slot;
	size_t at = w->first_free;
	while (at < w->n && w->slots[at].tid)
		at++;
	w->first_free = at;
	if ((at == w->n && !SP_PUSH(&w->slots, &w->n, &w->cap)) ||
	    !sp_map64_put(&w->by_tid, (uint32_t)tid, (uint32_t)at))
		return NULL;
	w->slots[at] = (struct cap_wait_slot){.tid = tid};
	return &w->slots[at];
}

/* The head of a record, and room for the rest of it; NULL when there is none. */
static uint8_t *part_begin(struct cap_waits *w, struct cap_wait_part *p, const struct spb_sample *s,
			   size_t n)
{
	size_t size = sizeof *s + n;
	if (size > p->cap) {
		if (w->bytes + size - p->cap > CAP_WAITS_BYTES)
			return NULL;
		uint8_t *data = realloc(p->data, size);
		if (!data)
			return NULL;
		w->bytes += size - p->cap;
		p->data = data;
		p->cap = size;
	}
	memcpy(p->data, s, sizeof *s);
	p->size = size;
	return p->data + sizeof *s;
}

/* A copy of a record; false when there is no room for more. */
static bool keep(struct cap_waits *w, struct cap_wait_part *p, const struct spb_sample *s,
		 const uint8_t *rest, size_t n)
{
	uint8_t *to = part_begin(w, p, s, n);
	if (to && n)
		memcpy(to, rest, n);
	return to != NULL;
}

uint8_t *cap_waits_room(struct cap_waits *w, struct cap_wait_slot *slot,
			const struct spb_sample *head)
{
	slot->stack.size = 0;
	return part_begin(w, &slot->stack, head, head->n_kernel * 8 + head->stack_bytes);
}

void cap_waits_begin(struct cap_wait_slot *slot, uint64_t out_ns)
{
	struct spb_sample head;
	if (slot->stack.size)
		memcpy(&head, slot->stack.data, sizeof head);
	if (!slot->stack.size || head.time_ns <= slot->in_ns) {
		slot->stack.size = 0;
		return;
	}
	head.id = out_ns;
	memcpy(slot->stack.data, &head, sizeof head);
}

/* time_ns: of its sample. */
static void tell_wait(struct cap_emit *e, const struct spb_sample *wait, uint64_t time_ns)
{
	uint8_t b[WAIT_PAYLOAD] = {0};
	sp_put64(b, time_ns);
	sp_put32(b + 8, wait->pid);
	sp_put32(b + 12, wait->tid);
	sp_put64(b + 16, wait->period);
	sp_put32(b + 24, wait->state);
	sp_put32(b + 28, wait->waker_pid);
	sp_put32(b + 32, wait->waker_tid);
	if (wait->waker_tid)
		memcpy(b + 40, wait->waker_comm, SPB_COMM);
	sp_put64(b + 40 + SPB_COMM, wait->time_ns);
	cap_emit_ext(e, SP_EXT_WAIT, b, sizeof b);
}

/* The sample of a wait; from: the record of its stack, or NULL; rest: what follows in that. */
static void emit(struct cap_emit *e, const struct spb_sample *wait, const uint8_t *chain,
		 const struct spb_sample *from, const uint8_t *rest, size_t cpu_index)
{
	struct spb_sample s = *wait;
	s.flags = 0;
	s.stack_bytes = 0;
	if (from) {
		s.flags = (__u16)(from->flags & ~SPB_IN_KERNEL);
		s.stack_bytes = from->stack_bytes;
		memcpy(s.regs, from->regs, sizeof s.regs);
		s.ip = from->ip;
		if (from->n_kernel) { /* both are of one moment */
			s.n_kernel = from->n_kernel;
			chain = rest;
			rest += (size_t)s.n_kernel * 8;
		}
	} else {
		e->waits.n_bare++;
	}
	if (s.n_kernel) {
		s.flags |= SPB_IN_KERNEL;
		memcpy(&s.ip, chain, 8);
	}
	/* One that was held back is not to break the order; the record beside it has its own time. */
	if (s.time_ns < e->now_ns)
		s.time_ns = e->now_ns;
	tell_wait(e, wait, s.time_ns);
	cap_emit_parts(e, &s, chain, rest, CAP_OFF_ID, cpu_index);
}

static void emit_pending(struct cap_emit *e, struct cap_wait_slot *slot,
			 const struct spb_sample *from, const uint8_t *stack, size_t cpu_index)
{
	for (size_t i = 0; i < slot->n; i++) {
		struct spb_sample wait;
		memcpy(&wait, slot->pending[i].data, sizeof wait);
		/* Its own stack was lost when this one is for later waits only. */
		bool mine = from && wait.time_ns >= from->period;
		emit(e, &wait, slot->pending[i].data + sizeof wait, mine ? from : NULL, stack,
		     cpu_index);
		part_free(&e->waits, &slot->pending[i]);
	}
	slot->n = 0;
}

void cap_waits_end(struct cap_emit *e, const struct spb_sample *s, const uint8_t *chain,
		   size_t cpu_index)
{
	struct cap_waits *w = &e->waits;
	struct cap_wait_slot *slot = cap_waits_slot(w, (int32_t)s->tid);
	if (slot && w->stacks_after && !(s->flags & SPB_LATE)) {
		struct cap_wait_part part = {0};
		if (slot->n == CAP_WAITS_PENDING)
			emit_pending(e, slot, NULL, NULL, cpu_index);
		struct cap_wait_part *p = keep(w, &part, s, chain, s->n_kernel * 8)
						  ? SP_PUSH(&slot->pending, &slot->n, &slot->cap)
						  : NULL;
		if (p) {
			*p = part;
			return;
		}
		part_free(w, &part);
	}
	struct spb_sample from;
	bool has = slot && slot->stack.size;
	if (has)
		memcpy(&from, slot->stack.data, sizeof from);
	has = has && from.id == s->id;
	emit(e, s, chain, has ? &from : NULL, has ? slot->stack.data + sizeof from : NULL,
	     cpu_index);
}

void cap_waits_stack(struct cap_emit *e, const struct spb_sample *s, const uint8_t *rest,
		     size_t cpu_index)
{
	struct cap_waits *w = &e->waits;
	struct cap_wait_slot *slot = cap_waits_slot(w, (int32_t)s->tid);
	/* One with an id is of a wait that has not ended. */
	if (slot && w->stacks_after && !s->id)
		emit_pending(e, slot, s, rest, cpu_index);
	else if (slot && !keep(w, &slot->stack, s, rest, s->n_kernel * 8 + s->stack_bytes))
		slot->stack.size = 0;
}

void cap_waits_forget(struct cap_emit *e, int32_t tid)
{
	struct cap_wait_slot *slot = find(&e->waits, tid);
	if (!slot)
		return;
	emit_pending(e, slot, NULL, NULL, 0);
	slot_clear(&e->waits, slot);
	size_t at = (size_t)(slot - e->waits.slots);
	if (at < e->waits.first_free)
		e->waits.first_free = at;
}

void cap_waits_flush(struct cap_emit *e)
{
	for (size_t i = 0; i < e->waits.n; i++)
		emit_pending(e, &e->waits.slots[i], NULL, NULL, 0);
}
