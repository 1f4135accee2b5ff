#define _GNU_SOURCE
#include <linux/perf_event.h>

#include "rings.h"
#include "session.h"

/* Who was born while we attach: their events come by inheritance. */
static void note_births(struct cap_session *s, const struct cap_ring *r)
{
	for (size_t i = r->at; i < r->n; i++) {
		const struct cap_entry *en = &r->queue[i];
		if (en->type != PERF_RECORD_FORK || en->size < 64)
			continue;
		uint32_t tid = (uint32_t)cap_ring_u64(r, en->pos + 16);
		if (sp_map64_get(&s->forked, tid) != SP_NOT_FOUND)
			continue;
		struct cap_birth *b = SP_PUSH(&s->births, &s->n_births, &s->cap_births);
		if (!b)
			continue;
		b->ptid = (int32_t)(cap_ring_u64(r, en->pos + 16) >> 32);
		b->time_ns = en->time_ns;
		sp_map64_put(&s->forked, tid, (uint32_t)s->n_births - 1);
	}
}

/* Command lines of execs that are new in a ring, while the processes live. */
static void note_execs(struct cap_session *s, const struct cap_ring *r, size_t n_new)
{
	for (size_t i = r->n - n_new; i < r->n; i++) {
		const struct cap_entry *en = &r->queue[i];
		if (en->type == PERF_RECORD_COMM && en->size >= 24 &&
		    (cap_ring_u64(r, en->pos) >> 32 & PERF_RECORD_MISC_COMM_EXEC))
			cap_cmdlines_read(&s->emit.cmdlines, (int32_t)cap_ring_u64(r, en->pos + 8),
					  en->time_ns);
	}
}

static size_t index_of(const struct cap_session *s, uint32_t cpu)
{
	size_t at = cpu < s->n_cpus ? cpu : s->n_cpus - 1;
	while (at > 0 && s->kernel.cpus[at] > cpu)
		at--;
	return at;
}

/* Before the programs' ring is looked at. */
static void look_at_programs(struct cap_session *s, uint64_t now)
{
	cap_bpf_looking(s->bpf);
	for (size_t i = 0; i < s->n_cpus; i++) {
		uint64_t lost = cap_bpf_lost(s->bpf, s->kernel.cpus[i]);
		if (lost > s->bpf_lost[i])
			cap_emit_lost(&s->emit, i, s->round_ns, now, lost - s->bpf_lost[i]);
		s->bpf_lost[i] = lost;
	}
}

static void emit_one(struct cap_session *s, size_t ring)
{
	struct cap_ring *r = &s->rings[ring];
	const struct cap_entry *en = &r->queue[r->at++];
	if (en->type == CAP_BPF_RECORD) {
		cap_emit_bpf(&s->emit, r, en, index_of(s, cap_bpf_cpu(r, en)));
		return;
	}
	if (r->at < r->n)
		cap_ring_expect(r, &r->queue[r->at]);
	cap_emit_record(&s->emit, r, en, r->index);
}

int cap_session_drain(struct cap_session *s, bool all, struct sp_err *err)
{
	uint64_t now = cap_now_ns();
	uint64_t fill = 0;
	int found = cap_execs_read(&s->execs, &s->emit.cmdlines, err);
	if (found < 0)
		return found;
	if (s->bpf)
		look_at_programs(s, now);
	for (size_t i = 0; i < s->n_rings; i++) {
		struct cap_ring *r = &s->rings[i];
		int rc = cap_ring_scan(r, err);
		if (rc < 0)
			return rc;
		found += rc;
		uint64_t used = cap_ring_used(r) * CAP_FILL_FULL / r->size;
		fill = used > fill ? used : fill;
		note_execs(s, r, (size_t)rc);
		if (s->attaching)
			note_births(s, r);
	}
	/* A record that was not committed when a ring was scanned carries a time from just before:
	 * what is older than the scan before this one is complete. Under pressure: than 1 ms. */
	uint64_t limit = all ? UINT64_MAX : fill > CAP_FILL_FULL / 2 ? now - 1000000 : s->round_ns;
	s->round_ns = now;
	s->fill = (uint32_t)fill;
	cap_output_patience(s->out, fill > CAP_FILL_FULL / 2 ? 0 : now + s->interval_ns / 4);
	size_t at;
	while ((at = cap_rings_next(s->rings, s->n_rings, limit)) < s->n_rings) {
		emit_one(s, at);
		cap_emit_round(&s->emit, s->rings, false);
	}
	cap_cmdlines_expire(&s->emit.cmdlines, limit);
	cap_embed_pump(&s->embed, CAP_PUMP_BYTES);
	cap_emit_round(&s->emit, s->rings, all);
	cap_output_push(s->out); /* it lay in the rings */
	for (size_t i = 0; i < s->n_rings; i++)
		cap_ring_release(&s->rings[i]);
	return found;
}
