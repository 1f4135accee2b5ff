#define _GNU_SOURCE
#include <linux/perf_event.h>

#include "base/cli.h"
#include "rings.h"
#include "session.h"

#define WAITING_FORKS 16u /* of a process, its parent, …, that wait in the rings */
#define MANY 4u           /* records, of which a mean says something */

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

static bool is_exec(const struct cap_ring *r, const struct cap_entry *en)
{
	return en->type == PERF_RECORD_COMM && en->size >= 24 &&
	       (cap_ring_u64(r, en->pos) >> 32 & PERF_RECORD_MISC_COMM_EXEC);
}

/* Processes that are new in a ring. The BPF engine's side-band comes from all processes: whose
 * child an exec is of must be known before its fork is told, and without a search of the rings for
 * each. */
static void note_forks(struct cap_session *s, const struct cap_ring *r)
{
	for (size_t i = r->n - r->n_new; i < r->n; i++) {
		const struct cap_entry *en = &r->queue[i];
		if (en->type != PERF_RECORD_FORK || en->size < 32)
			continue;
		uint64_t pids = cap_ring_u64(r, en->pos + 8);
		int32_t pid = (int32_t)pids, parent = (int32_t)(pids >> 32);
		struct cap_fork *f = pid == parent ? NULL
						   : SP_PUSH(&s->forks, &s->n_forks, &s->cap_forks);
		if (f)
			*f = (struct cap_fork){
				.pid = pid, .parent = parent, .time_ns = en->time_ns};
	}
}

/* Those that were told up to then are known to the table of processes. */
static void forget_forks(struct cap_session *s, uint64_t limit_ns)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n_forks; i++)
		if (s->forks[i].time_ns > limit_ns)
			s->forks[n++] = s->forks[i];
	s->n_forks = n;
}

static const struct cap_fork *find_fork(const struct cap_session *s, int32_t pid)
{
	for (size_t i = s->n_forks; i > 0; i--)
		if (s->forks[i - 1].pid == pid)
			return &s->forks[i - 1];
	return NULL;
}

/* Whether a process is recorded, or will be once the forks that wait in the rings have been told. */
static bool is_ours(struct cap_session *s, int32_t pid)
{
	if (!s->bpf || s->o->all)
		return true;
	for (unsigned depth = 0; !cap_procs_find(&s->emit.procs, pid); depth++) {
		const struct cap_fork *f = depth < WAITING_FORKS ? find_fork(s, pid) : NULL;
		if (!f)
			return false;
		pid = f->parent;
	}
	return true;
}

/* Whether an exec of the process waits in the rings. */
static bool is_execing(void *arg, int32_t pid)
{
	struct cap_session *s = arg;
	if (!is_ours(s, pid))
		return false;
	for (size_t i = 0; i < cap_session_perf_rings(s); i++) {
		const struct cap_ring *r = &s->rings[i];
		for (size_t k = r->at; k < r->n; k++)
			if (is_exec(r, &r->queue[k]) &&
			    (int32_t)cap_ring_u64(r, r->queue[k].pos + 8) == pid)
				return true;
	}
	return false;
}

/* Command lines of execs that are new in a ring, while the processes live; how many there are. */
static int note_execs(struct cap_session *s, struct cap_ring *r)
{
	int found = 0;
	for (size_t i = r->n - r->n_new; i < r->n; i++) {
		const struct cap_entry *en = &r->queue[i];
		int32_t pid = is_exec(r, en) ? (int32_t)cap_ring_u64(r, en->pos + 8) : -1;
		if (pid < 0 || !is_ours(s, pid))
			continue;
		cap_cmdlines_read(&s->emit.cmdlines, pid, en->time_ns);
		found++;
	}
	r->n_new = 0;
	return found;
}

/* How many records were skipped nobody knows: one is told as lost. */
static void tell_skipped(struct cap_session *s, struct cap_ring *r)
{
	sp_note("the ring of CPU %u held a record of wrong size (%u): %llu bytes were skipped, and "
		"count as one sample lost",
		r->cpu, r->wrong_size, (unsigned long long)r->skipped);
	cap_emit_gap(&s->emit, r->last_ns);
	cap_emit_lost(&s->emit, r->index, r->last_ns, cap_now_ns(), 1);
	r->skipped = 0;
}

int cap_session_look(struct cap_session *s, size_t n_rings, struct sp_err *err)
{
	int rc = cap_execs_scan(&s->execs, err), found = 0;
	bool has_execs = rc > 0;
	for (size_t i = 0; rc >= 0 && i < n_rings; i++) {
		struct cap_ring *r = &s->rings[i];
		rc = cap_ring_scan(r, err);
		if (rc > 0) {
			r->n_new += (size_t)rc;
			s->n_found += rc;
		}
		if (r->skipped)
			tell_skipped(s, r);
	}
	if (rc < 0)
		return rc;
	for (size_t i = 0; s->bpf && !s->o->all && i < n_rings; i++)
		note_forks(s, &s->rings[i]);
	if (has_execs)
		cap_execs_take(&s->execs, &s->emit.cmdlines, is_execing, s);
	for (size_t i = 0; i < n_rings; i++)
		found += note_execs(s, &s->rings[i]);
	return found;
}

/* A program may see a CPU before we do. */
static size_t index_of(const struct cap_session *s, uint32_t cpu)
{
	size_t at = cap_kernel_find_cpu(&s->kernel, cpu);
	return at < s->n_cpus ? at : s->n_cpus - 1;
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

/* The ring of the BPF engine is to hold 250 ms of the rate and of the stacks that there are, and
 * twice what nobody took in time. */
static size_t wanted_bytes(const struct cap_session *s, const struct cap_ring *r)
{
	uint64_t used = cap_ring_used(r), n = r->n - r->at, want = 0;
	size_t size = r->size;
	if (n >= MANY)
		want = cap_ring_need(used / n, s->sampler.rate_hz) * s->n_cpus;
	if (used > size / 3 && want < 2 * size)
		want = 2 * size;
	while (size < want && size < s->most_ring_bytes)
		size *= 2;
	return size;
}

static void grow_ring(struct cap_session *s, size_t bytes)
{
	struct cap_ring *r = &s->rings[s->n_cpus], *before = r + 1, old;
	bool has_before = s->n_rings > s->n_cpus + 1;
	struct sp_err err;
	if (has_before && before->at < before->n)
		return; /* not told yet */
	int rc = cap_bpf_grow(s->bpf, r, &old, bytes, &err);
	if (rc > 0) {
		if (has_before) {
			s->old_rings_written += before->scanned;
			cap_ring_unmap(before);
		}
		*before = old;
		s->n_rings = s->n_cpus + 2;
		sp_detail("a ring of %zu KiB instead of %zu KiB", bytes / 1024,
			  s->ring_bytes / 1024);
		s->ring_bytes = bytes;
		return;
	}
	if (rc < 0)
		sp_note("%s; going on with %zu KiB", err.msg, s->ring_bytes / 1024);
	s->most_ring_bytes = s->ring_bytes;
}

int cap_session_drain(struct cap_session *s, bool all, struct sp_err *err)
{
	uint64_t now = cap_now_ns();
	uint64_t fill = 0;
	size_t wanted = s->ring_bytes;
	if (s->bpf)
		look_at_programs(s, now);
	int rc = cap_session_look(s, s->n_rings, err);
	if (rc < 0)
		return rc;
	int found = s->n_found;
	s->n_found = 0;
	for (size_t i = 0; i < s->n_rings; i++) {
		const struct cap_ring *r = &s->rings[i];
		uint64_t used = cap_ring_used(r) * CAP_FILL_FULL / r->size;
		fill = used > fill ? used : fill;
		if (s->attaching)
			note_births(s, r);
	}
	if (s->bpf && !all && s->ring_bytes < s->most_ring_bytes)
		wanted = wanted_bytes(s, &s->rings[s->n_cpus]);
	/* A record that was not committed when a ring was scanned carries a time from just before:
	 * what is older than the scan before this one is complete. Under pressure, or when that was
	 * only just now: than 1 ms. */
	uint64_t limit = s->round_ns, settled = now - 1000000;
	if (all)
		limit = UINT64_MAX;
	else if (fill > CAP_FILL_FULL / 2 || limit > settled)
		limit = settled;
	s->told_ns = limit;
	s->round_ns = now;
	s->fill = (uint32_t)fill;
	cap_output_patience(s->out, fill > CAP_FILL_FULL / 2 ? 0 : now + s->interval_ns / 4);
	size_t at;
	while ((at = cap_rings_next(s->rings, s->n_rings, limit)) < s->n_rings) {
		emit_one(s, at);
		cap_emit_round(&s->emit, s->rings, false);
	}
	cap_cmdlines_expire(&s->emit.cmdlines, limit);
	forget_forks(s, limit);
	cap_embed_pump(&s->embed, CAP_PUMP_BYTES);
	cap_emit_round(&s->emit, s->rings, all);
	cap_output_push(s->out); /* it lay in the rings */
	for (size_t i = 0; i < s->n_rings; i++)
		cap_ring_release(&s->rings[i]);
	if (wanted > s->ring_bytes)
		grow_ring(s, wanted);
	return found;
}
