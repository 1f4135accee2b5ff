#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "asleep.h"
#include "base/cli.h"
#include "base/stop.h"
#include "head.h"
#include "privileges.h"
#include "rings.h"
#include "tasks.h"

#define MIN_INTERVAL_NS UINT64_C(2000000)
#define MAX_INTERVAL_NS UINT64_C(40000000)
#define SHORT_TURN_NS 400000
#define BPF_RING_MAX ((uint64_t)256 << 20) /* by default */
#define BPF_RING_MIN ((uint64_t)8 << 20)   /* by default: some stacks of the greatest depth */
/* What it begins with: the kernel clears all pages of a ring, a record takes what is used of a
 * stack, and most programs use less than half of that. */
#define BPF_FIRST_MIN ((uint64_t)4 << 20)
#define BPF_FIRST_STACK 20480u

static void on_thread_exit(void *arg, int32_t tid)
{
	struct cap_session *s = arg;
	cap_attach_ended(s, tid);
	cap_waits_forget(&s->emit, tid);
}

static void on_map(void *arg, struct cap_proc *q, struct cap_range *r, uint64_t time_ns)
{
	struct cap_session *s = arg;
	cap_embed_map(&s->embed, q, r, time_ns);
}

static void on_sampled(void *arg, struct cap_proc *q, uint64_t time_ns)
{
	struct cap_session *s = arg;
	cap_embed_sampled(&s->embed, q, time_ns);
}

static void on_jit(void *arg, struct cap_proc *q)
{
	struct cap_session *s = arg;
	cap_embed_jit(&s->embed, q);
}

static void on_exec(void *arg, struct cap_proc *q, uint64_t time_ns)
{
	struct cap_session *s = arg;
	if (q->n) /* not the launcher's own image, which we do not record */
		cap_embed_end(&s->embed, q, time_ns);
	cap_embed_off(&s->embed, q, time_ns);
}

static void on_exit_process(void *arg, struct cap_proc *q)
{
	struct cap_session *s = arg;
	cap_embed_end(&s->embed, q, 0);
	if (s->o->off_cpu && s->bpf)
		cap_bpf_untarget(s->bpf, q->pid);
}

static void on_copy(void *arg, int32_t tid, size_t cpu_index)
{
	cap_attach_copy(arg, tid, cpu_index);
}

static void on_fork(void *arg, int32_t ptid)
{
	cap_attach_pin(arg, ptid);
}

/* Threads switch as often as ever at a low rate. */
static uint64_t switch_rate(const struct cap_session *s)
{
	return s->sampler.rate_hz < CAP_DEFAULT_HZ ? CAP_DEFAULT_HZ : s->sampler.rate_hz;
}

void cap_session_bpf_ring(const struct cap_session *s, size_t *first, size_t *whole)
{
	const struct cap_options *o = s->o;
	size_t page = s->kernel.page_bytes;
	uint64_t hz = o->off_cpu ? switch_rate(s) : s->sampler.rate_hz;
	uint64_t ring = cap_ring_size(o->ring_bytes, hz, o->stack_bytes, page) * s->kernel.n_cpus;
	uint64_t most = o->ring_bytes ? CAP_BPF_RING_MAX : BPF_RING_MAX;
	uint64_t small = cap_ring_need(BPF_FIRST_STACK, hz) * s->kernel.n_cpus;
	if (!o->ring_bytes && ring < BPF_RING_MIN)
		ring = BPF_RING_MIN;
	if (small < BPF_FIRST_MIN)
		small = BPF_FIRST_MIN;
	*whole = cap_ring_floor(ring < most ? ring : most, page);
	*first = o->ring_bytes || small > *whole ? *whole : cap_ring_floor(small, page);
}

size_t cap_session_perf_ring(const struct cap_session *s)
{
	uint64_t hz = s->stacks_of_switches ? switch_rate(s) : s->sampler.rate_hz;
	return cap_ring_size(s->o->ring_bytes, hz, s->o->stack_bytes, s->kernel.page_bytes);
}

void cap_session_count(struct cap_session *s)
{
	s->n_cpus = s->kernel.n_cpus;
	s->n_fds = s->stacks_of_switches ? 2 * s->n_cpus : s->n_cpus;
}

static int open_bpf_engine(struct cap_session *s, char cure[200], struct sp_err *err)
{
	const struct cap_options *o = s->o;
	struct cap_bpf_want want = {
		.max_stack = o->stack_given ? o->stack_bytes : 0,
		.kernel_frames = s->sampler.kernel_frames,
		.counted = cap_system_is_counted(s),
		.n_cpus_avail = s->kernel.n_cpus_avail,
		.off_cpu = o->off_cpu,
		.min_ns = o->off_min_ns,
		.max_waits = CAP_MAX_WAITS,
		.by_thread = o->n_tids > 0,
		.follow = o->follow,
		.all = o->all,
		.kernel_threads = o->kernel_threads,
		.in_group = o->cgroup != NULL,
	};
	cap_session_bpf_ring(s, &want.first_bytes, &want.ring_bytes);
	s->most_ring_bytes = want.ring_bytes;
	return cap_bpf_open(&s->bpf, &want, cure, err);
}

/* Time off the CPU by perf events; why: BPF does not record it, NULL = it was not asked. */
static void tell_switches(struct cap_session *s, const struct sp_err *why, const char *cure)
{
	char refusal[160];
	s->stacks_of_switches = cap_sampler_tell_switches(&s->sampler, refusal);
	if (why)
		sp_note("time off the CPU by context switch events, without states and wakers: "
			"%s%s%s",
			why->msg, *cure ? "; cure: " : "", cure);
	if (!s->stacks_of_switches)
		sp_note("time off the CPU without stacks: %s; cure: run it as root, or sudo sysctl "
			"kernel.perf_event_paranoid=1",
			refusal);
}

/* The engine that was asked for; by default BPF where it can be had, else the perf engine. */
static int open_engine(struct cap_session *s, char cure[200], struct sp_err *err)
{
	const struct cap_options *o = s->o;
	bool wants_bpf = o->engine != CAP_ENGINE_PERF;
	int rc = wants_bpf ? open_bpf_engine(s, cure, err) : 0;
	if (o->engine == CAP_ENGINE_BPF || s->bpf)
		return rc;
	if (o->off_cpu)
		tell_switches(s, wants_bpf ? err : NULL, cure);
	else if (wants_bpf)
		sp_note("sampling by perf events: %s%s%s", err->msg, *cure ? "; cure: " : "", cure);
	cure[0] = 0;
	return 0;
}

/* With the BPF engine the CPUs' rings have side-band only. */
static int open_bpf_rings(struct cap_session *s, struct sp_err *err)
{
	size_t side = CAP_SIDE_RING;
	s->bpf_lost = calloc(s->n_cpus, sizeof *s->bpf_lost);
	if (!s->bpf_lost)
		return sp_err_nomem(err);
	cap_bpf_ring(s->bpf, &s->rings[s->n_cpus]);
	s->ring_bytes = s->first_ring_bytes = s->rings[s->n_cpus].size;
	s->interval_ns = MIN_INTERVAL_NS;
	int rc = cap_rings_map(s->rings, s->n_cpus, &s->sampler, &side, 8, err);
	return rc < 0 || s->o->all ? rc : cap_system_watch(s, err);
}

/* How often the rings are looked at, from their size. Each look wakes all stages; whatever comes
 * between two looks, a ring that is half full wakes the loop. */
static void set_pace(struct cap_session *s)
{
	uint64_t fill_ns = s->ring_bytes / cap_sample_bytes(s->o->stack_bytes) * 1000000000 /
			   s->sampler.rate_hz;
	s->interval_ns = fill_ns / 6;
	if (s->interval_ns < MIN_INTERVAL_NS)
		s->interval_ns = MIN_INTERVAL_NS;
	if (s->interval_ns > MAX_INTERVAL_NS)
		s->interval_ns = MAX_INTERVAL_NS;
}

static int open_rings(struct cap_session *s, struct sp_err *err)
{
	const struct cap_options *o = s->o;
	s->n_rings = s->bpf ? s->n_cpus + 1 : s->n_fds;
	s->rings = calloc(s->n_rings + 1, sizeof *s->rings);
	s->retired_lost = calloc(s->n_cpus, sizeof *s->retired_lost);
	if (!s->rings || !s->retired_lost)
		return sp_err_nomem(err);
	for (size_t i = 0; i < s->n_rings; i++)
		s->rings[i].fd = -1;
	if (s->bpf)
		return open_bpf_rings(s, err);
	size_t wanted = cap_session_perf_ring(s);
	s->ring_bytes = wanted;
	int rc = cap_rings_map(s->rings, s->n_rings, &s->sampler, &s->ring_bytes, o->stack_bytes,
			       err);
	if (rc < 0)
		return rc;
	for (size_t i = s->n_cpus; i < s->n_rings; i++)
		s->rings[i].of_switches = true;
	if (s->ring_bytes < wanted)
		cap_rings_say_smaller(&s->kernel, s->n_rings, s->ring_bytes, wanted);
	s->rings_are_small = s->ring_bytes < wanted;
	s->first_ring_bytes = s->ring_bytes;
	set_pace(s);
	return 0;
}

static int attach_tree(struct cap_session *s, int32_t pid, bool descendants, struct sp_err *err)
{
	struct sp_process_edge *found = NULL;
	size_t n = 0;
	int rc = cap_attach_process(s, pid, true, err);
	if (rc >= 0 && descendants)
		rc = sp_process_descendants(pid, &found, &n, err);
	for (size_t i = 0; rc >= 0 && i < n; i++) {
		struct sp_err why;
		int one = cap_attach_process(s, found[i].child, false, &why);
		if (one < 0 && one != SP_ERR_GONE)
			sp_warn("%s; going on without it", why.msg);
	}
	free(found);
	return rc < 0 ? rc : 0;
}

static int attach(struct cap_session *s, struct sp_err *err)
{
	const struct cap_options *o = s->o;
	int rc = 0;
	s->attaching = !o->all;
	if (o->all) {
		if (s->launch.pid > 0)
			rc = cap_attach_command(s, s->launch.pid, err);
		if (rc >= 0)
			rc = cap_system_begin(s, err);
	} else if (cap_launch_is_suspended(&s->launch))
		rc = cap_attach_launched(s, s->launch.pid, err);
	else if (s->launch.pid > 0) /* it runs since --delay began */
		rc = attach_tree(s, s->launch.pid, o->follow, err);
	else if (o->n_tids)
		rc = cap_attach_threads(s, err);
	for (size_t i = 0; rc >= 0 && i < o->n_pids; i++)
		rc = attach_tree(s, o->pids[i], o->descendants, err);
	s->attaching = false;
	if (rc >= 0 && s->bpf && o->off_cpu)
		cap_bpf_switch(s->bpf, true);
	if (rc >= 0 && o->off_cpu)
		cap_asleep_all(s);
	return rc < 0 ? rc : 0;
}

static void say_recording(const struct cap_session *s)
{
	const struct cap_options *o = s->o;
	if (s->sampler.kernel_refusal[0])
		sp_note("no kernel frames: %s; cure: run it as root, or sudo sysctl "
			"kernel.perf_event_paranoid=1",
			s->sampler.kernel_refusal);
	if (s->sampler.event_refusal[0])
		sp_detail("no hardware cycles here: %s; sampling by cpu-clock",
			  s->sampler.event_refusal);
	if (!s->sampler.has_lost)
		sp_note("this kernel is older than 6.0: losses are known by LOST records only");
	char who[300];
	if (o->all)
		cap_system_name(s, who, sizeof who);
	else if (s->launch.pid > 0)
		snprintf(who, sizeof who, "%s", o->command[0]);
	else if (o->n_tids)
		snprintf(who, sizeof who, "thread %d%s", o->tids[0], o->n_tids > 1 ? ", …" : "");
	else
		snprintf(who, sizeof who, "%d%s (%zu thread%s)", o->pids[0],
			 o->n_pids > 1 ? ", …" : "", s->n_threads, s->n_threads == 1 ? "" : "s");
	sp_note("recording %s, %llu Hz, %s", who, (unsigned long long)s->sampler.rate_hz,
		s->sampler.event->name);
}

static int start(struct cap_session *s, char *const *argv, struct sp_err *err)
{
	struct sp_writer *w;
	s->start_ns = s->round_ns = cap_now_ns();
	s->start_wall_ns = cap_wall_ns();
	int rc = cap_head_write(&w, s, argv, err);
	if (rc < 0)
		return rc;
	rc = cap_output_new(&s->out, w, s->out_fd, s->out_name, s->o->output_kind == CAP_TO_DATA,
			    err);
	if (rc < 0) {
		sp_writer_abandon(w);
		return rc;
	}
	s->emit.out = s->out;
	s->emit.now_ns = s->emit.round_ns = s->start_ns;
	cap_embed_init(&s->embed, &s->emit, s->o->embed, s->start_ns, s->start_wall_ns);
	s->embed.lazy = s->o->all;
	cap_head_emit(s);
	return 0;
}

/* Wait for --delay; false when a signal came first. */
static bool wait_delay(struct cap_session *s)
{
	uint64_t end = cap_now_ns() + s->o->delay_ns;
	for (;;) {
		uint64_t now = cap_now_ns();
		s->ended_by = sp_stop_level() > 0 ? "signal"
			      : s->launch.pid > 0 && cap_launch_wait(&s->launch, false)
				      ? "command"
				      : NULL;
		if (s->ended_by)
			return false;
		if (now >= end)
			return true;
		struct pollfd p = {.fd = sp_stop_fd(), .events = POLLIN};
		uint64_t ms = (end - now) / 1000000 + 1;
		poll(&p, 1, ms < 100 ? (int)ms : 100);
	}
}

static int prepare(struct cap_session *s, char *const *argv, struct sp_err *err)
{
	const struct cap_options *o = s->o;
	int rc = cap_limit_init(&s->limit, o, s->out_fd, s->sampler.cure, err);
	if (rc >= 0)
		rc = cap_kernel_read(&s->kernel, err);
	if (rc >= 0)
		rc = cap_sampler_init(&s->sampler, o, &s->kernel, err);
	if (rc >= 0 && o->command)
		rc = cap_launch_start(&s->launch, o->command, s->out_fd == STDOUT_FILENO, err);
	if (rc >= 0)
		rc = cap_sampler_probe(&s->sampler, err);
	if (rc >= 0)
		rc = open_engine(s, s->sampler.cure, err);
	cap_session_count(s);
	if (rc >= 0 && o->all)
		rc = cap_system_prepare(s, err);
	else if (rc >= 0 && !o->delay_ns)
		rc = cap_attach_check(s, err);
	if (rc >= 0)
		rc = open_rings(s, err);
	if (rc >= 0)
		rc = cap_emit_init(&s->emit, NULL, s->n_cpus, err);
	if (rc < 0)
		return rc;
	if (o->follow || o->all)
		cap_execs_open(&s->execs, &s->sampler);
	if (s->execs.n && !cap_system_records(s)) {
		rc = cap_system_watch(s, err);
		if (rc < 0)
			return rc;
	}
	s->emit.all_side_band = s->bpf && !o->all;
	s->emit.waits.stacks_after = s->bpf && cap_bpf_stacks_after(s->bpf);
	s->emit.waits.min_ns = o->off_min_ns;
	s->emit.waits.max_per_s = (uint64_t)CAP_MAX_WAITS * s->n_cpus;
	s->emit.kernel_frames = s->sampler.kernel_frames;
	s->emit.follow = o->follow;
	s->emit.known_only = !o->follow && !s->sampler.attr.inherit_thread;
	s->emit.on_thread_exit = on_thread_exit;
	s->emit.on_fork = o->all ? NULL : on_fork;
	s->emit.wants = o->all ? cap_system_wants : NULL;
	s->emit.on_map = on_map;
	s->emit.on_jit = on_jit;
	s->emit.on_sampled = on_sampled;
	s->emit.on_exec = on_exec;
	s->emit.on_exit = on_exit_process;
	s->emit.on_copy = on_copy;
	s->emit.arg = s;
	return start(s, argv, err);
}

/* Short turns are due sooner (EEVDF, a slice of one's own: Linux 6.12; ignored before): among busy
 * threads the rings are looked at in time. Needs no privilege, and takes no CPU from anybody. */
static void ask_short_turns(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime_ns, deadline_ns, period_ns;
	} attr = {.size = sizeof attr, .policy = SCHED_OTHER, .runtime_ns = SHORT_TURN_NS};
	errno = 0;
	attr.nice = getpriority(PRIO_PROCESS, 0);
	if (errno == 0 && sched_getscheduler(0) == SCHED_OTHER)
		syscall(SYS_sched_setattr, 0, &attr, 0);
}

static int launch_go(struct cap_session *s, struct sp_err *err)
{
	int rc = cap_launch_go(&s->launch, err);
	s->launch_failed = rc < 0;
	return rc;
}

static int record(struct cap_session *s, struct sp_err *err)
{
	int rc = 0;
	if (s->o->delay_ns) {
		if (cap_launch_is_suspended(&s->launch))
			rc = launch_go(s, err);
		if (rc >= 0 && !wait_delay(s))
			return cap_session_finish(s, err);
	}
	if (rc >= 0)
		rc = attach(s, err);
	if (rc < 0)
		return rc;
	if (cap_launch_is_suspended(&s->launch))
		rc = launch_go(s, err);
	if (rc < 0)
		return rc;
	cap_sampler_switch(&s->sampler, true);
	s->enabled_ns = cap_now_ns();
	struct cap_privileges rest = {.owns_output = s->o->output != NULL,
				      .owns_control = s->o->control != NULL};
	cap_privileges_drop(&rest);
	say_recording(s);
	ask_short_turns();
	rc = cap_session_loop(s, err);
	return rc < 0 ? rc : cap_session_finish(s, err);
}

int cap_session_run(struct cap_session *s, int fd, const char *name, char *const *argv,
		    char cure[400], struct sp_err *err)
{
	s->out_fd = fd;
	s->out_name = name;
	s->launch = (struct cap_launch){.pid = -1};
	s->system.cgroup.fd = s->system.uevent_fd = -1;
	s->system.looked_ns = cap_now_ns();
	cure[0] = 0;
	int rc = prepare(s, argv, err);
	if (rc >= 0)
		rc = record(s, err);
	if (rc < 0)
		snprintf(cure, 400, "%s", s->sampler.cure);
	if (cap_launch_is_suspended(&s->launch))
		cap_launch_close(&s->launch);
	if (s->out) {
		struct sp_err late;
		/* Of a spool that would be empty nothing is made (main.c, fail()). */
		if (rc < 0 && (s->enabled_ns || s->o->output_kind != CAP_TO_SPOOL))
			cap_session_tell_failure(s, err);
		int end = cap_output_finish(s->out, &late);
		s->out = NULL;
		if (rc >= 0 && end < 0) {
			rc = end;
			*err = late;
		}
	}
	return rc;
}

void cap_session_deinit(struct cap_session *s)
{
	cap_attach_deinit(s);
	cap_system_deinit(s);
	cap_execs_close(&s->execs);
	for (size_t i = 0; s->rings && i < s->n_rings; i++)
		cap_ring_unmap(&s->rings[i]);
	free(s->rings);
	free(s->bpf_lost);
	cap_bpf_close(s->bpf);
	cap_embed_deinit(&s->embed);
	cap_emit_deinit(&s->emit);
	cap_kernel_deinit(&s->kernel);
	cap_limit_deinit(&s->limit);
}
