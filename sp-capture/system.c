#include "system.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/stop.h"
#include "recover.h"
#include "rings.h"
#include "session.h"
#include "tasks.h"

#define TICK_NS UINT64_C(1000000000)
#define DRAIN_NS UINT64_C(5000000) /* the rings are looked at so often while /proc is read */
#define REAP_PER_TICK 64u
#define BUSY_HZ 20000u
#define PIECE_NS UINT64_C(50000000)

static const struct cap_cpu_events closed = {.side = -1, .sample = -1, .switches = -1, .pulse = -1};

/* --- the events of one CPU --- */

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void cpu_events_close(struct cap_cpu_events *c)
{
	close_one(&c->side);
	close_one(&c->sample);
	close_one(&c->switches);
	close_one(&c->pulse);
}

uint64_t cap_system_lost(const struct cap_session *s, size_t cpu)
{
	const struct cap_system *y = &s->system;
	if (cpu >= y->n || !s->sampler.has_lost)
		return 0;
	return cap_event_lost(y->cpus[cpu].side) + cap_event_lost(y->cpus[cpu].sample) +
	       cap_event_lost(y->cpus[cpu].switches);
}

static void cpu_close(struct cap_session *s, size_t cpu)
{
	struct cap_cpu_events *c = &s->system.cpus[cpu];
	s->retired_lost[cpu] += cap_system_lost(s, cpu);
	cpu_events_close(c);
}

bool cap_system_records(const struct cap_session *s)
{
	return s->bpf || s->o->all;
}

bool cap_system_is_counted(const struct cap_session *s)
{
	return s->o->all && s->sampler.rate_hz >= BUSY_HZ && s->sampler.event->is_clock;
}

/* One more piece for an event that stands still, unless it had all that the time until now makes:
 * that of a control group stands still as long as the group does not run. */
static void go_on(const struct cap_session *s, struct cap_cpu_events *c, uint64_t now)
{
	uint64_t piece = s->sampler.rate_hz * PIECE_NS / 1000000000;
	uint64_t v = cap_event_value(c->sample);
	uint64_t due = s->sampler.rate_hz * ((now - s->system.on_ns) / 1000) / 1000000 + piece;
	if ((!c->n_given || v == c->sample_ns) && c->n_given < due &&
	    ioctl(c->sample, PERF_EVENT_IOC_REFRESH, (int)piece) == 0)
		c->n_given += piece;
	c->sample_ns = v;
}

static void cpu_switch(const struct cap_session *s, struct cap_cpu_events *c)
{
	unsigned long what = s->system.on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE;
	c->n_given = 0;
	if (c->sample >= 0 && s->system.on && cap_system_is_counted(s))
		go_on(s, c, cap_now_ns());
	else if (c->sample >= 0)
		ioctl(c->sample, what, 0);
	if (c->switches >= 0)
		ioctl(c->switches, what, 0);
}

/* An event for all that a CPU runs, into a ring of that CPU. */
static int open_into(struct cap_session *s, enum cap_role role, size_t ring, int *out,
		     struct sp_err *err)
{
	uint32_t number = s->rings[ring].cpu;
	int fd = cap_sampler_open_cpu(&s->sampler, role, number, err);
	if (fd < 0)
		return fd;
	if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, s->rings[ring].fd) < 0) {
		int rc = sp_err_errno(
			err, "cannot use the ring of CPU %u: PERF_EVENT_IOC_SET_OUTPUT", number);
		close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

/* The event that a BPF program samples a CPU by. */
static int open_bpf(struct cap_session *s, size_t cpu, int *out, struct sp_err *err)
{
	int fd = cap_sampler_open_cpu(&s->sampler, CAP_BPF_ALL, s->kernel.cpus[cpu], err);
	int rc = fd < 0 ? fd : cap_bpf_hang(s->bpf, fd, 0, err);
	if (rc >= 0)
		*out = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

static int open_samples(struct cap_session *s, size_t cpu, struct sp_err *err)
{
	struct cap_cpu_events *c = &s->system.cpus[cpu];
	int rc = s->bpf ? open_bpf(s, cpu, &c->sample, err)
			: open_into(s, CAP_SAMPLES_ALL, cpu, &c->sample, err);
	if (rc >= 0 && s->stacks_of_switches)
		rc = open_into(s, CAP_SWITCHES_ALL, s->n_cpus + cpu, &c->switches, err);
	return rc;
}

/* 1, or 0 when the CPU is away: all its events are closed then, as after an error. */
static int cpu_open(struct cap_session *s, size_t cpu, struct sp_err *err)
{
	struct cap_cpu_events *c = &s->system.cpus[cpu];
	int rc = cap_system_records(s) ? open_into(s, CAP_SIDE_BAND_ALL, cpu, &c->side, err) : 0;
	if (rc >= 0 && s->o->all)
		rc = open_samples(s, cpu, err);
	if (rc < 0) {
		cpu_close(s, cpu);
		return err->os == ENODEV ? 0 : rc;
	}
	c->pulse = cap_sampler_pulse(s->kernel.cpus[cpu]);
	if (c->side < 0 && c->pulse < 0)
		return 0;
	c->pulse_ns = cap_event_value(c->pulse);
	c->alive_ns = cap_now_ns();
	cpu_switch(s, c);
	return 1;
}

/* Of those that are there; the others are waited for. */
int cap_system_watch(struct cap_session *s, struct sp_err *err)
{
	struct cap_system *y = &s->system;
	int rc = 0;
	y->cpus = malloc(s->n_cpus * sizeof *y->cpus);
	if (!y->cpus)
		return sp_err_nomem(err);
	for (; y->n < s->n_cpus; y->n++)
		y->cpus[y->n] = closed;
	y->uevent_fd = cap_kernel_uevents();
	y->looked_ns = cap_now_ns();
	for (size_t i = 0; rc >= 0 && i < y->n; i++) {
		rc = cpu_open(s, i, err);
		if (rc == 0 && cap_system_records(s))
			sp_note("CPU %u is offline: recorded from when it is back",
				s->kernel.cpus[i]);
	}
	return rc < 0 ? rc : 0;
}

int cap_system_prepare(struct cap_session *s, struct sp_err *err)
{
	struct cap_system *y = &s->system;
	int rc = 0;
	if (s->o->cgroup)
		rc = cap_cgroup_open(&y->cgroup, s->o->cgroup, s->sampler.cure, err);
	if (rc < 0)
		return rc;
	s->sampler.cgroup_fd = y->cgroup.fd;
	int fd = SP_ERR_IO;
	for (size_t i = 0; i < s->kernel.n_cpus; i++) { /* the first one that is not away */
		fd = cap_sampler_open_cpu(&s->sampler, CAP_SAMPLES_ALL, s->kernel.cpus[i], err);
		if (fd >= 0 || err->os != ENODEV)
			break;
	}
	if (fd < 0)
		return fd;
	close(fd);
	cap_scopes_init(&y->scopes, s->o, s->out_fd);
	if (s->bpf && s->o->off_cpu && s->o->cgroup)
		rc = cap_bpf_group(s->bpf, y->cgroup.fd, err);
	if (s->bpf && s->o->off_cpu && rc >= 0)
		rc = cap_bpf_target(s->bpf, (int32_t)getpid(), false, err);
	return rc;
}

/* --- what is there at the start --- */

static void tell_threads(struct cap_session *s, const struct sp_stat *st, int32_t pid)
{
	int n = st->n_threads > 1 ? cap_emit_names(&s->emit, pid, s->emit.now_ns) : 0;
	struct cap_proc *q = cap_procs_find(&s->emit.procs, pid);
	if (q && n > 0)
		q->n_threads = (uint32_t)n;
	s->n_threads += n > 0 ? (size_t)n : 1;
}

static void tell_process(struct cap_session *s, int32_t pid)
{
	struct cap_system *y = &s->system;
	struct sp_stat st;
	bool more_pipes;
	if (!sp_stat_read(pid, pid, &st) || (st.state == 'Z' && st.n_threads < 2))
		return;
	struct cap_proc *q = cap_procs_find(&s->emit.procs, pid);
	enum cap_scope scope = cap_scopes_sort(&y->scopes, pid, &more_pipes);
	if (scope == CAP_KERNEL && !cap_scopes_keep(&y->scopes, scope)) {
		q = cap_procs_get(&s->emit.procs, pid);
		if (q)
			q->scope = CAP_KERNEL;
		return;
	}
	if (q) /* born since: what it inherited may not have been known then */
		cap_emit_maps(&s->emit, q, s->emit.now_ns, NULL);
	else
		cap_attach_describe(s, pid);
	tell_threads(s, &st, pid);
	q = cap_procs_find(&s->emit.procs, pid);
	if (q)
		q->scope = (uint8_t)scope;
	y->n_processes += scope == CAP_WANTED;
}

/* Side-band goes on meanwhile, and what we tell must find room. */
static int keep_up(struct cap_session *s, uint64_t *drained_ns, struct sp_err *err)
{
	uint64_t now = cap_now_ns();
	bool room = cap_output_has_room(s->out);
	while (now - *drained_ns >= DRAIN_NS || !room) {
		int rc = cap_session_drain(s, false, err);
		if (rc >= 0)
			rc = cap_output_error(s->out, err);
		if (rc < 0)
			return rc;
		*drained_ns = now = cap_now_ns();
		room = cap_output_has_room(s->out);
		if (room || sp_stop_level() > 0)
			break;
		poll(NULL, 0, 2);
	}
	return 0;
}

static int tell_all(struct cap_session *s, struct sp_err *err)
{
	int32_t *pids = NULL;
	size_t n = 0, cap = 0;
	uint64_t drained_ns = cap_now_ns(), begin_ns = drained_ns;
	int rc = s->o->cgroup ? cap_cgroup_list(&s->system.cgroup, &pids, &n, &cap, err)
			      : sp_processes_list(&pids, &n, &cap, err);
	for (size_t i = 0; rc >= 0 && i < n && sp_stop_level() == 0; i++) {
		tell_process(s, pids[i]);
		rc = keep_up(s, &drained_ns, err);
	}
	free(pids);
	sp_detail("%zu processes read in %.1f ms", s->system.n_processes,
		  (double)(cap_now_ns() - begin_ns) / 1e6);
	return rc < 0 ? rc : 0;
}

int cap_system_begin(struct cap_session *s, struct sp_err *err)
{
	struct cap_system *y = &s->system;
	int rc = cap_system_watch(s, err);
	if (rc >= 0)
		rc = tell_all(s, err);
	if (rc < 0)
		return rc;
	y->looked_ns = cap_now_ns();
	cap_system_switch(s, true);
	return 0;
}

void cap_system_switch(struct cap_session *s, bool on)
{
	struct cap_system *y = &s->system;
	y->on = on;
	y->on_ns = cap_now_ns();
	for (size_t i = 0; i < y->n; i++)
		cpu_switch(s, &y->cpus[i]);
}

/* --- samples that are left out --- */

/* A stage that was not known writes to a pipe whose reader may be one too. */
static void sort_again(struct cap_session *s)
{
	for (size_t i = 0; i < s->emit.procs.n; i++)
		if (s->emit.procs.procs[i] && s->emit.procs.procs[i]->scope == CAP_WANTED)
			s->emit.procs.procs[i]->scope = CAP_UNSORTED;
}

bool cap_system_wants(void *session, int32_t pid, bool has_regs, uint64_t time_ns)
{
	struct cap_session *s = session;
	struct cap_system *y = &s->system;
	bool keep = true;
	if (pid > 0) {
		struct cap_proc *q = cap_procs_find(&s->emit.procs, pid);
		if (!q && sp_process_exists(pid))
			q = cap_emit_meet(&s->emit, pid, time_ns);
		if (q && q->scope == CAP_UNSORTED) {
			bool more_pipes;
			q->scope = (uint8_t)cap_scopes_sort(&y->scopes, pid, &more_pipes);
			if (s->bpf && s->o->off_cpu && !cap_scopes_keep(&y->scopes, q->scope))
				cap_bpf_target(s->bpf, pid, false, NULL);
			if (more_pipes)
				sort_again(s);
		}
		keep = !q || cap_scopes_keep(&y->scopes, q->scope);
	} else if (pid == 0 && !has_regs) {
		keep = s->o->idle;
	}
	y->scopes.n_left_out += !keep;
	return keep;
}

/* --- CPUs that go and come --- */

/* Room for one more CPU in an array of n. */
static bool grow(void *array, size_t n, size_t size)
{
	size_t cap = n;
	return sp_grow(array, &cap, n + 1, size);
}

static int ring_add(struct cap_session *s, struct cap_ring *r, uint32_t number, bool of_switches,
		    struct sp_err *err)
{
	int rc = cap_rings_map_one(r, &s->sampler, number, s->rings[0].size, err);
	r->index = (uint32_t)s->n_cpus;
	r->of_switches = of_switches;
	return rc;
}

/* All or nothing: after a failure the arrays may be longer, which nobody sees. */
static int cpu_add(struct cap_session *s, uint32_t number, struct sp_err *err)
{
	struct cap_system *y = &s->system;
	size_t n = s->n_cpus;
	struct cap_ring first = {.fd = -1}, second = {.fd = -1};
	if (!grow(&y->cpus, n, sizeof *y->cpus) ||
	    !grow(&s->rings, s->n_rings + 2, sizeof *s->rings) ||
	    !grow(&s->retired_lost, n, sizeof *s->retired_lost) ||
	    (s->bpf && !grow(&s->bpf_lost, n, sizeof *s->bpf_lost)) ||
	    !grow(&s->kernel.cpus, n, sizeof *s->kernel.cpus) || !cap_emit_cpu_add(&s->emit))
		return sp_err_nomem(err);
	int rc = ring_add(s, &first, number, false, err);
	if (rc >= 0 && s->stacks_of_switches)
		rc = ring_add(s, &second, number, true, err);
	if (rc < 0) {
		cap_ring_unmap(&first);
		return rc;
	}
	/* What stands behind the CPUs' rings: those of switches, or that of the BPF engine. */
	memmove(s->rings + n + 1, s->rings + n, (s->n_rings - n) * sizeof *s->rings);
	s->rings[n] = first;
	s->n_rings++;
	if (s->stacks_of_switches)
		s->rings[s->n_rings++] = second;
	if (s->bpf)
		s->bpf_lost[n] = 0;
	s->retired_lost[n] = 0;
	s->kernel.cpus[n] = number;
	y->cpus[n] = closed;
	y->n = s->emit.n_cpus = s->kernel.n_cpus = s->n_cpus = n + 1;
	return 0;
}

/* Whether the events of a CPU still count: those of one that was away stay dead. */
static bool is_alive(struct cap_cpu_events *c)
{
	uint64_t now = cap_now_ns(), v = cap_event_value(c->pulse);
	bool alive = c->pulse < 0 ? c->side >= 0 : v != c->pulse_ns;
	c->pulse_ns = v;
	if (alive)
		c->alive_ns = now;
	return alive;
}

/* From when on something may be missing: how much nobody knows, and one is told as lost. */
static void tell_missing(struct cap_session *s, size_t at, uint64_t from_ns, bool is_new)
{
	uint64_t now = cap_now_ns();
	sp_note("CPU %u %s: recorded from now on; what it ran in the %.3f s before may be missing, "
		"and counts as one record lost",
		s->kernel.cpus[at], is_new ? "appeared" : "is back", (double)(now - from_ns) / 1e9);
	s->system.n_came++;
	cap_emit_lost(&s->emit, at, from_ns, now, 1);
	cap_emit_gap(&s->emit, from_ns);
}

/* Threads have no event of their own on a CPU that was away at the start. */
static void tell_unrecorded(struct cap_session *s, uint32_t number)
{
	struct cap_system *y = &s->system;
	if (y->n_came)
		return;
	y->n_came = 1;
	sp_warn("CPU %u was offline at the start: what it runs from now on is not recorded, and "
		"counts as one record lost; to have it, begin anew",
		number);
	sp_count(&s->emit.counters, SP_C_lost_events, 1);
	cap_emit_loss(&s->emit, y->looked_ns, cap_now_ns(), number, 0, 1);
}

/* True when its events were opened. */
static bool look_at_cpu(struct cap_session *s, uint32_t number)
{
	struct cap_system *y = &s->system;
	struct sp_err err = {0};
	size_t at = cap_kernel_find_cpu(&s->kernel, number);
	bool is_new = at == s->n_cpus;
	if (is_new && !cap_system_records(s)) {
		tell_unrecorded(s, number);
		return false;
	}
	if (!is_new && (!y->n || is_alive(&y->cpus[at])))
		return false;
	int rc = is_new ? cpu_add(s, number, &err) : 0;
	uint64_t from_ns = rc < 0 || !y->cpus[at].alive_ns ? y->looked_ns : y->cpus[at].alive_ns;
	if (rc >= 0) {
		cpu_close(s, at);
		rc = cpu_open(s, at, &err);
	}
	if (rc < 0)
		sp_warn("CPU %u is not recorded: %s", number, err.msg);
	if (rc <= 0)
		return false;
	cap_execs_reopen(&s->execs, &s->sampler, number);
	if (cap_system_records(s))
		tell_missing(s, at, from_ns, is_new);
	else
		sp_detail("CPU %u is back: the arguments of execs are seen again", number);
	return true;
}

bool cap_system_look(struct cap_session *s)
{
	struct cap_kernel now = {0};
	struct sp_err err;
	bool changed = false;
	uint64_t looked_ns = cap_now_ns();
	if (cap_kernel_cpus(&now, &err) < 0)
		return false;
	for (size_t i = 0; i < now.n_cpus; i++)
		changed |= look_at_cpu(s, now.cpus[i]);
	s->system.looked_ns = looked_ns;
	cap_kernel_deinit(&now);
	return changed;
}

bool cap_system_tick(struct cap_session *s)
{
	struct cap_system *y = &s->system;
	uint64_t now = cap_now_ns();
	for (size_t i = 0; y->on && cap_system_is_counted(s) && i < y->n; i++)
		go_on(s, &y->cpus[i], now);
	bool is_due = now - y->looked_ns >= TICK_NS;
	if (!cap_kernel_told(y->uevent_fd) && !is_due)
		return false;
	bool changed = cap_system_look(s);
	if (!is_due || !s->o->all)
		return changed;
	y->reap_at = cap_recover_reap_some(s, y->reap_at, REAP_PER_TICK);
	if (s->o->cgroup && cap_cgroup_is_gone(&y->cgroup)) {
		sp_note("the control group %s was removed: the recording ends", y->cgroup.path);
		y->over = true;
	}
	return changed;
}

void cap_system_name(const struct cap_session *s, char *out, size_t size)
{
	const struct cap_system *y = &s->system;
	if (s->o->cgroup)
		snprintf(out, size, "control group %s (%zu process%s)", y->cgroup.path,
			 y->n_processes, y->n_processes == 1 ? "" : "es");
	else
		snprintf(out, size, "all processes (%zu)", y->n_processes);
}

void cap_system_deinit(struct cap_session *s)
{
	struct cap_system *y = &s->system;
	for (size_t i = 0; i < y->n; i++)
		cpu_events_close(&y->cpus[i]);
	free(y->cpus);
	close_one(&y->uevent_fd);
	cap_cgroup_close(&y->cgroup);
	cap_scopes_deinit(&y->scopes);
	*y = (struct cap_system){.cgroup = {.fd = -1}, .uevent_fd = -1};
}
