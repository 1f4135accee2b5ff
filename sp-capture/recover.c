#include "recover.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cli.h"
#include "tasks.h"

#define AGAIN_NS UINT64_C(250000000)
#define DRAIN_NS UINT64_C(5000000)
#define SLICE_NS UINT64_C(10000000)
#define MOST_PATIENCE_NS UINT64_C(16000000000)

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

/* Whether all that an ended process did has left the rings: what waits there is of a process that
 * is known. */
static bool is_told(const struct cap_session *s, struct cap_proc *q)
{
	if (!q->ended_ns)
		q->ended_ns = cap_now_ns();
	return q->ended_ns <= s->told_ns;
}

size_t cap_recover_reap_some(struct cap_session *s, size_t from, size_t n)
{
	size_t i = from < s->emit.procs.n ? from : 0;
	for (; i < s->emit.procs.n && n; i++) {
		struct cap_proc *q = s->emit.procs.procs[i];
		if (!q)
			continue;
		n--;
		if (sp_process_exists(q->pid))
			q->ended_ns = 0;
		else if (is_told(s, q))
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

static void say_denied(struct cap_proc *q, const struct sp_err *why)
{
	if (!q->is_denied)
		sp_warn("%s; what is known of its mappings stays, and they are tried again (a "
			"process that is not dumpable any more is root's to read)",
			why->msg);
	q->is_denied = true;
}

/* One process: an exec that was not seen, its mappings, the names of its threads, its end. False
 * when its mappings may not be read now, or its last records still wait. */
static bool recover_process(struct cap_session *s, struct cap_proc *q, uint64_t sure_ns)
{
	struct sp_err err = {0};
	cap_emit_missed_exec(&s->emit, q, sure_ns, s->emit.now_ns);
	int found = cap_emit_maps(&s->emit, q, s->emit.now_ns, &err);
	bool denied = found < 0 && (err.os == EACCES || err.os == EPERM);
	if (denied)
		say_denied(q, &err);
	/* A zombie's maps are empty. */
	if (cap_emit_names(&s->emit, q->pid, s->emit.now_ns) < 0 && found <= 0 &&
	    !sp_process_exists(q->pid)) {
		if (!is_told(s, q))
			return false;
		cap_emit_gone(&s->emit, q);
		return true;
	}
	q->ended_ns = 0;
	return !denied;
}

void cap_recover_all(struct cap_session *s, uint64_t sure_ns)
{
	uint64_t drained_ns = cap_now_ns();
	if (s->o->follow && !s->o->all)
		find_descendants(s);
	for (size_t i = 0; i < s->emit.procs.n; i++) {
		struct cap_proc *q = user_process(s, i);
		if (q && !recover_process(s, q, sure_ns))
			cap_emit_gap(&s->emit, sure_ns);
		cap_recover_keep_up(s, &drained_ns);
	}
}

/* Another round is due: records were lost, or mappings could not be read the last time. */
static bool round_begins(struct cap_session *s, bool forced, uint64_t now)
{
	struct cap_recovery *r = &s->recovery;
	struct cap_emit *e = &s->emit;
	if ((!e->lost_side_band && !r->denied) || (!forced && now < r->not_before_ns))
		return false;
	if (forced && s->o->all)
		return false; /* samples whose mapping is not known make their process be read */
	struct cap_recovery next = {.running = true,
				    .sure_ns = r->denied ? r->sure_ns : UINT64_MAX,
				    .patience_ns = r->denied ? r->patience_ns : AGAIN_NS};
	if (e->lost_side_band) {
		sp_count(&e->counters, SP_C_lifecycle_gaps, 1);
		next.sure_ns = e->sure_ns < next.sure_ns ? e->sure_ns : next.sure_ns;
	}
	e->lost_side_band = false;
	*r = next;
	return true;
}

/* With thousands of processes this takes longer than the rings hold out: a slice at a time, and a
 * tenth of the time at most. */
void cap_recover(struct cap_session *s, bool forced)
{
	struct cap_recovery *r = &s->recovery;
	uint64_t begin = cap_now_ns();
	if (!r->running) {
		if (!round_begins(s, forced, begin))
			return;
		if (s->o->follow && !s->o->all)
			find_descendants(s);
	}
	uint64_t now = begin;
	while (r->at < s->emit.procs.n && (forced || now - begin < SLICE_NS)) {
		struct cap_proc *q = user_process(s, r->at++);
		r->denied |= q && !recover_process(s, q, r->sure_ns);
		now = cap_now_ns();
	}
	r->spent_ns += now - begin;
	if (r->at < s->emit.procs.n)
		return;
	uint64_t gap = r->spent_ns * 10;
	r->not_before_ns = now + (gap > r->patience_ns ? gap : r->patience_ns);
	r->running = false;
	if (r->denied && r->patience_ns < MOST_PATIENCE_NS)
		r->patience_ns *= 2;
}
