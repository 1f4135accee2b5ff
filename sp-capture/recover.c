#include "recover.h"

#include <stdlib.h>

#include "tasks.h"

#define AGAIN_NS UINT64_C(250000000)
#define DRAIN_NS UINT64_C(5000000)
#define SLICE_NS UINT64_C(10000000)

void cap_recover_keep_up(struct cap_session *s, uint64_t *drained_ns)
{
	uint64_t now = cap_now_ns();
	if (now - *drained_ns < DRAIN_NS)
		return;
	*drained_ns = now;
	cap_session_drain(s, false, NULL); /* an error comes again in the loop */
}

/* A process that has mappings, or NULL. */
static struct cap_proc *user_process(const struct cap_session *s, size_t at)
{
	struct cap_proc *q = s->emit.procs.procs[at];
	return q && q->scope != CAP_KERNEL ? q : NULL;
}

size_t cap_recover_reap_some(struct cap_session *s, size_t from, size_t n)
{
	size_t i = from < s->emit.procs.n ? from : 0;
	for (; i < s->emit.procs.n && n; i++) {
		struct cap_proc *q = s->emit.procs.procs[i];
		if (!q)
			continue;
		n--;
		if (!sp_process_exists(q->pid))
			cap_emit_gone(&s->emit, q);
	}
	return i;
}

void cap_recover_reap(struct cap_session *s)
{
	cap_recover_reap_some(s, 0, s->emit.procs.n);
}

static void find_descendants(struct cap_session *s)
{
	for (size_t i = 0; i < s->n_roots; i++) {
		struct sp_process_edge *found = NULL;
		size_t n = 0;
		if (!s->roots[i].gone)
			sp_process_descendants(s->roots[i].pid, &found, &n, NULL);
		for (size_t j = 0; j < n; j++)
			if (!cap_procs_find(&s->emit.procs, found[j].child))
				cap_emit_meet(&s->emit, found[j].child, s->emit.now_ns);
		free(found);
	}
}

/* One process: an exec that was not seen, its mappings, the names of its threads, its end. */
static void recover_process(struct cap_session *s, struct cap_proc *q, uint64_t sure_ns)
{
	cap_emit_missed_exec(&s->emit, q, sure_ns, s->emit.now_ns);
	int found = cap_emit_maps(&s->emit, q, s->emit.now_ns, NULL);
	/* A zombie's maps are empty. */
	if (cap_emit_names(&s->emit, q->pid, s->emit.now_ns) < 0 && found <= 0 &&
	    !sp_process_exists(q->pid))
		cap_emit_gone(&s->emit, q);
}

void cap_recover_all(struct cap_session *s, uint64_t sure_ns)
{
	uint64_t drained_ns = cap_now_ns();
	if (s->o->follow && !s->o->all)
		find_descendants(s);
	for (size_t i = 0; i < s->emit.procs.n; i++) {
		struct cap_proc *q = user_process(s, i);
		if (q)
			recover_process(s, q, sure_ns);
		cap_recover_keep_up(s, &drained_ns);
	}
}

/* With thousands of processes this takes longer than the rings hold out: a slice at a time, and a
 * tenth of the time at most. */
void cap_recover(struct cap_session *s, bool forced)
{
	struct cap_recovery *r = &s->recovery;
	uint64_t begin = cap_now_ns();
	if (!r->running) {
		if (!s->emit.lost_side_band || (!forced && begin < r->not_before_ns))
			return;
		if (forced && s->o->all)
			return; /* samples whose mapping is not known make their process be read */
		*r = (struct cap_recovery){.running = true, .sure_ns = s->emit.sure_ns};
		s->emit.lost_side_band = false;
		sp_count(&s->emit.counters, SP_C_lifecycle_gaps, 1);
		if (s->o->follow && !s->o->all)
			find_descendants(s);
	}
	uint64_t now = begin;
	while (r->at < s->emit.procs.n && (forced || now - begin < SLICE_NS)) {
		struct cap_proc *q = user_process(s, r->at++);
		if (q)
			recover_process(s, q, r->sure_ns);
		now = cap_now_ns();
	}
	r->spent_ns += now - begin;
	if (r->at < s->emit.procs.n)
		return;
	uint64_t gap = r->spent_ns * 10;
	r->not_before_ns = now + (gap > AGAIN_NS ? gap : AGAIN_NS);
	r->running = false;
}
