#include "reuse.h"

#define N UW_MEMO_FRAMES

/* Where the return address stands that led from a kept frame to the next: an offset in a copy that
 * begins at sp. */
static uint64_t ra_at(const struct uw_memo_frame *f, uint64_t sp)
{
	return f[1].sp + (uint64_t)(f->ra_slot * INT64_C(8)) - sp;
}

static unsigned memo_of(const struct uw_sample *s)
{
	return s->thread % UW_MEMO_THREADS;
}

void uw_reuse_begin(struct uw_reuse *u, const struct uw_walk *k)
{
	const struct uw_sample *s = k->s;
	*u = (struct uw_reuse){0};
	if (!s->thread || !s->space->id)
		return;
	struct uw_memo *m = &k->w->memos[memo_of(s)];
	if (m->thread != s->thread || m->space != s->space->id || m->ra_mask != k->ra_mask) {
		m->thread = s->thread;
		m->space = s->space->id;
		m->ra_mask = k->ra_mask;
		m->met_sp = UINT64_MAX;
		m->start = N;
	}
	u->memo = m;
	u->at = m->start;
}

void uw_reuse_take(struct uw_reuse *u, struct uw_walk *k)
{
	struct uw_stack *out = k->out;
	uint32_t i = u->at, n = out->n;
	const struct uw_memo_frame *f = &u->memo->frames[i];
	uint64_t ra, fp, *counts = k->w->counters.v;
	if (!u->met)
		u->memo->met_sp = f->sp;
	u->met = true;
	for (; f->edge != UW_EDGE_NONE && n < UW_MAX_FRAMES; i++, f++) {
		if (!uw_stack_u64(k, k->stack_avma + ra_at(f, k->stack_avma), &ra) ||
		    (ra & k->ra_mask) != f[1].pc)
			break;
		if (f->fp_slot != UW_SLOT_KEEP &&
		    (!uw_stack_u64(k, f[1].sp + (uint64_t)(f->fp_slot * INT64_C(8)), &fp) ||
		     fp != f[1].fp))
			break;
		out->addrs[n] = f->pc - 1;
		out->return_addrs[n++] = f->pc;
		counts[SP_C_frame_pointer_frames] += f->edge == UW_EDGE_POINTER;
		counts[SP_C_scanned_frames] +=
			f->edge == UW_EDGE_CALLEE || f->edge == UW_EDGE_CODE;
	}
	if (n == out->n)
		return;
	if (u->to)
		uw_reuse_unfold(u, k->w);
	u->from = u->at;
	u->to = u->at = i;
	counts[SP_C_reused_frames] += n - out->n;
	k->callee = uw_map_find(k->w, k->s->space, out->addrs[n - 1]);
	out->n = n;
	k->pc = k->lr = f->pc;
	k->sp = f->sp;
	k->fp = f->fp;
}

void uw_reuse_unfold(struct uw_reuse *u, struct uw_walker *w)
{
	uint32_t n = u->to - u->from;
	memcpy(&w->fresh[u->n_fresh], &u->memo->frames[u->from], n * sizeof *w->fresh);
	u->n_fresh += n;
	u->from = u->to = 0;
}

void uw_reuse_end(struct uw_reuse *u, struct uw_walker *w)
{
	struct uw_memo *m = u->memo;
	if (!m)
		return;
	uint32_t end = N;
	if (uw_reuse_all(u))
		end = u->from; /* the outer frames stay where they are */
	else if (u->to)
		uw_reuse_unfold(u, w);
	uint32_t kept = u->n_fresh < end ? u->n_fresh : end;
	memcpy(&m->frames[end - kept], &w->fresh[u->n_fresh - kept], kept * sizeof *m->frames);
	m->start = end - kept;
	m->frames[N - 1].edge = UW_EDGE_NONE; /* its caller is not kept */
}

/* Bytes that a thread without kept frames is thought to need. */
#define FIRST_BYTES 2048u

void uw_walk_ahead(const struct uw_walker *w, const struct uw_sample *s)
{
	const struct uw_arch *a = uw_arch_find(s->machine);
	uint64_t sp, n = s->stack_here ? s->stack_here : s->stack_bytes, first = FIRST_BYTES;
	if (!s->stack || !a->n_regs || !uw_sample_reg(s, a->perf[a->sp], &sp))
		return;
	const struct uw_memo *m = &w->memos[memo_of(s)];
	bool known = s->thread && s->space && m->thread == s->thread && m->space == s->space->id;
	for (uint32_t i = known ? m->start : N; i < N; i++) {
		const struct uw_memo_frame *f = &m->frames[i];
		if (f->sp < m->met_sp || f->edge == UW_EDGE_NONE)
			continue;
		uint64_t at = ra_at(f, sp);
		if (at < n)
			__builtin_prefetch(s->stack + at, 0, 2);
	}
	if (known && m->met_sp - sp < first)
		first = m->met_sp - sp;
	if (first > n)
		first = n;
	for (uint64_t at = 0; at < first; at += 64)
		__builtin_prefetch(s->stack + at, 0, 2);
}
