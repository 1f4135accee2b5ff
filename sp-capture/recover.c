#include "recover.h"

#include <stdlib.h>

#include "tasks.h"

#define AGAIN_NS UINT64_C(250000000)

size_t cap_recover_reap_some(struct cap_session *s, size_t from, size_t n)
{
	size_t i = from < s->emit.procs.n ? from : 0;
	for (; i < s->emit.procs.n && n; i++) {
		struct cap_proc *q = s->emit.procs.procs[i];
		if (!q)
			continue;
		n--;
		if (sp_process_exists(q->pid))
			continue;
		if (s->emit.on_exit)
			s->emit.on_exit(s->emit.arg, q, s->emit.now_ns);
		cap_procs_remove(&s->emit.procs, q->pid);
	}
	return i;
}

void cap_recover_reap(struct cap_session *s)
{
	cap_recover_reap_some(s, 0, s->emit.procs.n);
}

void cap_recover_maps(struct cap_session *s)
{
	for (size_t i = 0; i < s->emit.procs.n; i++)
		if (s->emit.procs.procs[i])
			cap_emit_maps(&s->emit, s->emit.procs.procs[i], s->emit.now_ns, NULL);
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

void cap_recover(struct cap_session *s, bool forced)
{
	uint64_t now = cap_now_ns();
	if (!s->emit.lost_side_band || (!forced && now - s->recovered_ns < s->recover_gap_ns))
		return;
	s->recovered_ns = now;
	s->emit.lost_side_band = false;
	sp_count(&s->emit.counters, SP_C_lifecycle_gaps, 1);
	if (s->o->follow)
		find_descendants(s);
	for (size_t i = 0; i < s->emit.procs.n; i++)
		if (s->emit.procs.procs[i])
			cap_emit_missed_exec(&s->emit, s->emit.procs.procs[i], s->emit.now_ns);
	cap_recover_maps(s);
	cap_recover_reap(s);
	/* With thousands of processes this takes a while: a tenth of the time at most. */
	uint64_t gap = (cap_now_ns() - now) * 10;
	s->recover_gap_ns = gap > AGAIN_NS ? gap : AGAIN_NS;
}
