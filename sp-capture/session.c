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
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/stop.h"
#include "control.h"
#include "head.h"
#include "kallsyms.h"
#include "recover.h"
#include "rings.h"
#include "tasks.h"

#define MIN_INTERVAL_NS UINT64_C(2000000)
#define MAX_INTERVAL_NS UINT64_C(40000000)
#define IDLE_INTERVAL_NS UINT64_C(100000000)
#define PUMP_BYTES ((size_t)1 << 20) /* of embedded objects between two looks at the rings */
#define SHORT_TURN_NS 400000
#define SWEEP_NS UINT64_C(1000000000)
#define SIDE_RING ((size_t)1 << 20)  /* per CPU, of side-band alone */
#define BPF_RING ((uint64_t)8 << 20) /* per CPU, though the CPUs share one */
#define BPF_RING_MAX ((uint64_t)256 << 20)

/* --- draining --- */

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
			cap_emit_cmdline_read(&s->emit, (int32_t)cap_ring_u64(r, en->pos + 8),
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

static int scan_bpf(struct cap_session *s, uint64_t now, uint64_t *fill, struct sp_err *err)
{
	struct cap_ring *r = &s->rings[s->n_cpus];
	cap_bpf_looking(s->bpf);
	int rc = cap_bpf_ring_scan(r, err);
	*fill = cap_bpf_ring_used(r) * CAP_FILL_FULL / r->size;
	for (size_t i = 0; i < s->n_cpus; i++) {
		uint64_t lost = cap_bpf_lost(s->bpf, s->kernel.cpus[i]);
		if (lost > s->bpf_lost[i])
			cap_emit_lost(&s->emit, i, s->round_ns, now, lost - s->bpf_lost[i]);
		s->bpf_lost[i] = lost;
	}
	return rc;
}

static void emit_one(struct cap_session *s, size_t ring)
{
	struct cap_ring *r = &s->rings[ring];
	const struct cap_entry *en = &r->queue[r->at++];
	if (s->bpf && ring == s->n_cpus) {
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
	int found = 0;
	if (s->bpf) {
		found = scan_bpf(s, now, &fill, err);
		if (found < 0)
			return found;
	}
	for (size_t i = 0; i < s->n_rings; i++) {
		struct cap_ring *r = &s->rings[i];
		if (s->bpf && i == s->n_cpus)
			continue; /* scanned already */
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
	cap_embed_pump(&s->embed, PUMP_BYTES);
	cap_emit_round(&s->emit, s->rings, all);
	cap_output_push(s->out); /* it lay in the rings */
	for (size_t i = 0; i < s->n_rings; i++)
		if (s->bpf && i == s->n_cpus)
			cap_bpf_ring_release(&s->rings[i]);
		else
			cap_ring_release(&s->rings[i]);
	return found;
}

/* --- the loop --- */

static bool root_gone(struct cap_root *r, const struct pollfd *p)
{
	struct sp_stat st;
	if (r->gone)
		return true;
	if (r->pidfd >= 0)
		r->gone = (p->revents & (POLLIN | POLLHUP)) != 0;
	else
		r->gone = !sp_stat_read(r->pid, r->pid, &st) || st.state == 'Z' ||
			  st.start_ticks != r->start_ticks;
	return r->gone;
}

static bool reader_is_dead(const struct pollfd *p)
{
	return (p->revents & (POLLERR | POLLNVAL)) != 0;
}

struct watch {
	struct pollfd *fds; /* owned: stop, output, rings, roots, control */
	size_t n;
};

static int watch_init(struct watch *w, const struct cap_session *s, struct sp_err *err)
{
	size_t n = 3 + s->n_rings + s->n_roots;
	struct pollfd *fds = calloc(n, sizeof *fds);
	if (!fds)
		return sp_err_nomem(err);
	free(w->fds);
	w->fds = fds;
	w->n = n;
	w->fds[0] = (struct pollfd){.fd = sp_stop_fd(), .events = POLLIN};
	w->fds[1] = (struct pollfd){.fd = s->o->output_kind == CAP_TO_DATA ? -1 : s->out_fd};
	for (size_t i = 0; i < s->n_rings; i++)
		w->fds[2 + i] = (struct pollfd){.fd = s->rings[i].fd, .events = POLLIN};
	w->fds[w->n - 1] =
		(struct pollfd){.fd = s->control ? s->control->fd : -1, .events = POLLIN};
	for (size_t i = 0; i < s->n_roots; i++)
		w->fds[2 + s->n_rings + i] =
			(struct pollfd){.fd = s->roots[i].pidfd, .events = POLLIN};
	return 0;
}

static void sleep_for(struct watch *w, uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000)};
	if (ppoll(w->fds, w->n, &ts, NULL) < 0)
		for (size_t i = 0; i < w->n; i++)
			w->fds[i].revents = 0;
}

/* Whether there is anybody left to record. */
static bool targets_gone(struct cap_session *s, struct watch *w)
{
	bool all = true;
	for (size_t i = 0; i < s->n_roots; i++) {
		struct pollfd *p = &w->fds[2 + s->n_rings + i];
		if (root_gone(&s->roots[i], p))
			p->fd = -1;
		else
			all = false;
	}
	if (!all || (s->o->all && !s->n_roots))
		return s->system.over;
	/* Followed children go on without their parents, but a command's end is the end. */
	return s->launch.pid > 0 || !s->o->follow || s->emit.procs.n_alive == 0;
}

static bool time_is_over(const struct cap_session *s, uint64_t now)
{
	return s->o->has_duration && s->enabled_ns && now - s->enabled_ns >= s->o->duration_ns;
}

static uint64_t next_sleep(const struct cap_session *s, uint64_t interval, uint64_t now)
{
	if (!s->o->has_duration || !s->enabled_ns)
		return interval;
	uint64_t end = s->enabled_ns + s->o->duration_ns;
	uint64_t left = end > now ? end - now : 0;
	return left < interval ? left : interval;
}

static void every_second(struct cap_session *s)
{
	bool roots = false;
	cap_attach_sweep(s);
	for (size_t i = 0; i < s->n_roots; i++)
		roots |= !s->roots[i].gone;
	if (!roots && !s->o->all)
		cap_recover_reap(s); /* who is left decides about the end */
	if (s->on_tick)
		s->on_tick(s);
}

static void add_process(struct cap_session *s, struct watch *w, int32_t pid)
{
	struct sp_err err;
	if (cap_procs_find(&s->emit.procs, pid)) {
		sp_note("control: add %d: attached already", pid);
		return;
	}
	s->attaching = true;
	int rc = cap_attach_process(s, pid, true, &err);
	s->attaching = false;
	if (rc >= 0)
		rc = watch_init(w, s, &err);
	if (rc < 0)
		sp_note("control: add %d: %s", pid, err.msg);
	else
		sp_note("control: add %d: attached", pid);
}

/* Mappings, names of threads and, where children are followed, descendants: what the stream does
 * not know is told, what has no events gets them. */
static void refresh_process(struct cap_session *s, struct watch *w, int32_t pid)
{
	struct sp_err err = {0};
	struct cap_refreshed found = {0};
	if (!cap_procs_find(&s->emit.procs, pid)) {
		sp_note("control: refresh %d: not recorded", pid);
		return;
	}
	s->attaching = true;
	int rc = cap_attach_refresh(s, pid, &found, &err);
	s->attaching = false;
	if (rc >= 0)
		rc = watch_init(w, s, &err);
	if (rc < 0)
		sp_note("control: refresh %d: %s", pid, err.msg);
	else
		sp_note("control: refresh %d: %d new mappings, %d threads, %d new descendants", pid,
			found.mappings, found.threads, found.descendants);
}

/* Commands of the fifo; false when the recording is to end. */
static bool take_commands(struct cap_session *s, struct watch *w)
{
	enum cap_command what;
	int32_t pid = 0;
	while (cap_control_next(s->control, &what, &pid)) {
		switch (what) {
		case CAP_ENABLE:
			cap_attach_switch(s, true);
			cap_recover_maps(s);
			sp_note("control: enabled");
			break;
		case CAP_DISABLE:
			cap_attach_switch(s, false);
			sp_note("control: disabled");
			break;
		case CAP_ADD:
			add_process(s, w, pid);
			break;
		case CAP_REFRESH:
			refresh_process(s, w, pid);
			break;
		case CAP_SUMMARY:
			sp_note("control: %llu samples, %llu lost, %zu processes",
				(unsigned long long)s->emit.counters.v[SP_C_samples],
				(unsigned long long)s->emit.counters.v[SP_C_lost_events],
				s->emit.procs.n_alive);
			break;
		case CAP_STOP:
			sp_note("control: stopping");
			return false;
		case CAP_BAD:
		default:
			sp_note("control: unknown command '%s'; known: enable, disable, add PID, "
				"refresh PID, summary, stop",
				s->control->line);
			break;
		}
	}
	return true;
}

/* How long to sleep now. Rings that filled to less than an eighth meanwhile are looked at less
 * often: on a machine with more to do than CPUs, each look costs a switch for few samples. */
static uint64_t next_interval(const struct cap_session *s, uint64_t interval, bool found)
{
	if (s->fill > CAP_FILL_FULL * 3 / 8)
		return s->interval_ns;
	if (found && s->fill > CAP_FILL_FULL / 8)
		return interval;
	return interval * 2 < IDLE_INTERVAL_NS ? interval * 2 : IDLE_INTERVAL_NS;
}

static int look_at_system(struct cap_session *s, struct watch *w, struct sp_err *err)
{
	size_t n_cpus = s->n_cpus;
	cap_system_tick(s);
	return s->n_cpus == n_cpus ? 0 : watch_init(w, s, err);
}

static int loop(struct cap_session *s, struct sp_err *err)
{
	struct watch w = {0};
	uint64_t interval = s->interval_ns, swept = cap_now_ns();
	int rc = watch_init(&w, s, err);
	while (rc >= 0) {
		uint64_t now = cap_now_ns();
		if (sp_stop_level() > 0 || time_is_over(s, now))
			break;
		sleep_for(&w, next_sleep(s, interval, now));
		rc = cap_session_drain(s, false, err);
		if (rc < 0)
			break;
		interval = next_interval(s, interval, rc > 0);
		if (reader_is_dead(&w.fds[1])) {
			errno = EPIPE;
			rc = sp_err_errno(err, "cannot write %s", s->out_name);
			break;
		}
		rc = cap_output_error(s->out, err);
		if (rc < 0 || targets_gone(s, &w))
			break;
		cap_recover(s, false);
		if (cap_grow_step(s, now) && (rc = watch_init(&w, s, err)) < 0)
			break;
		if (now - swept >= SWEEP_NS) {
			every_second(s);
			swept = now;
		}
		rc = look_at_system(s, &w, err);
		if (rc < 0)
			break;
		if (w.fds[w.n - 1].revents && !take_commands(s, &w))
			break;
	}
	free(w.fds);
	return rc < 0 ? rc : 0;
}

/* --- begin and end --- */

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

static void on_exit_process(void *arg, struct cap_proc *q, uint64_t time_ns)
{
	struct cap_session *s = arg;
	(void)time_ns;
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

/* The engine that was asked for, or the perf engine. */
static int open_engine(struct cap_session *s, char cure[200], struct sp_err *err)
{
	const struct cap_options *o = s->o;
	if (o->engine == CAP_ENGINE_PERF && o->off_cpu)
		return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
				  "cannot record time off the CPU with the perf engine: it is "
				  "not in this version");
	if (o->engine != CAP_ENGINE_BPF && !o->off_cpu)
		return 0;
	uint64_t ring = (o->ring_bytes ? o->ring_bytes : BPF_RING) * s->kernel.n_cpus;
	struct cap_bpf_want want = {
		.max_stack = o->stack_given ? o->stack_bytes : 0,
		.kernel_frames = s->sampler.kernel_frames,
		.ring_bytes = ring < BPF_RING_MAX || o->ring_bytes ? ring : BPF_RING_MAX,
		.n_cpus_avail = s->kernel.n_cpus_avail,
		.off_cpu = o->off_cpu,
		.min_ns = o->off_min_ns,
		.max_waits = CAP_MAX_WAITS,
		.by_thread = o->n_tids > 0,
		.follow = o->follow,
	};
	return cap_bpf_open(&s->bpf, &want, cure, err);
}

/* With the BPF engine the CPUs' rings have side-band only. */
static int open_bpf_rings(struct cap_session *s, struct sp_err *err)
{
	size_t side = SIDE_RING;
	s->bpf_lost = calloc(s->n_cpus, sizeof *s->bpf_lost);
	if (!s->bpf_lost)
		return sp_err_nomem(err);
	cap_bpf_ring(s->bpf, &s->rings[s->n_cpus]);
	s->ring_bytes = s->grow.start_bytes = s->grow.wanted = s->rings[s->n_cpus].size;
	s->interval_ns = MIN_INTERVAL_NS;
	int rc = cap_rings_map(s->rings, &s->sampler, &side, 8, err);
	return rc < 0 ? rc : cap_attach_side_band(s, err);
}

void cap_session_pace(struct cap_session *s)
{
	uint64_t fill_ns = s->ring_bytes / cap_sample_bytes(s->o->stack_bytes) * 1000000000 /
			   s->sampler.rate_hz;
	/* Each look wakes all stages: as few as a ring that may grow allows. Whatever comes between
	 * two looks, a ring that is half full wakes the loop. */
	s->interval_ns = fill_ns / (s->ring_bytes < s->grow.wanted ? 3 : 6);
	if (s->interval_ns < MIN_INTERVAL_NS)
		s->interval_ns = MIN_INTERVAL_NS;
	if (s->interval_ns > MAX_INTERVAL_NS)
		s->interval_ns = MAX_INTERVAL_NS;
}

/* How many events the attach will open, about. */
static size_t events_expected(const struct cap_session *s)
{
	size_t n = s->o->n_tids + (s->o->command != NULL);
	for (size_t i = 0; i < s->o->n_pids; i++)
		n += cap_task_count(s->o->pids[i]);
	return n * s->kernel.n_cpus;
}

static int open_rings(struct cap_session *s, struct sp_err *err)
{
	const struct cap_options *o = s->o;
	s->n_cpus = s->kernel.n_cpus;
	s->n_rings = s->n_cpus + (s->bpf != NULL);
	s->rings = calloc(s->n_cpus * 2, sizeof *s->rings);
	s->retired_lost = calloc(s->n_cpus, sizeof *s->retired_lost);
	if (!s->rings || !s->retired_lost)
		return sp_err_nomem(err);
	for (size_t i = 0; i < s->n_cpus * 2; i++)
		s->rings[i].fd = -1;
	if (s->bpf)
		return open_bpf_rings(s, err);
	s->grow.wanted = cap_ring_size(o->ring_bytes, s->sampler.rate_hz, o->stack_bytes,
				       s->kernel.page_bytes);
	/* Where a budget limits the rings, what is asked for first is what one gets. */
	bool is_free = geteuid() == 0 || s->kernel.paranoid == -1;
	size_t start = s->grow.wanted;
	if (is_free && !o->ring_bytes && !o->all)
		start = cap_grow_start(start, o->stack_bytes, events_expected(s));
	s->ring_bytes = start;
	int rc = cap_rings_map(s->rings, &s->sampler, &s->ring_bytes, o->stack_bytes, err);
	if (rc < 0)
		return rc;
	s->grow.start_bytes = s->ring_bytes;
	if (s->ring_bytes < start) {
		cap_rings_say_smaller(&s->kernel, s->ring_bytes, s->grow.wanted);
		s->grow.wanted = s->ring_bytes;
	}
	cap_session_pace(s);
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
	char who[300];
	if (o->all)
		cap_system_name(s, who, sizeof who);
	else if (s->launch.pid > 0)
		snprintf(who, sizeof who, "%s", o->command[0]);
	else if (o->n_tids)
		snprintf(who, sizeof who, "thread %d%s", o->tids[0], o->n_tids > 1 ? ", …" : "");
	else
		snprintf(who, sizeof who, "%d%s (%zu threads)", o->pids[0],
			 o->n_pids > 1 ? ", …" : "", s->n_threads);
	sp_note("recording %s, %llu Hz, %s", who, (unsigned long long)s->sampler.rate_hz,
		s->sampler.event->name);
}

/* Until half of the blocks are free: what follows must not get lost. */
static void wait_room(struct cap_session *s)
{
	while (!cap_output_has_room(s->out) && cap_output_error(s->out, NULL) == 0) {
		cap_output_push(s->out);
		poll(NULL, 0, 2);
	}
}

static void emit_final_losses(struct cap_session *s)
{
	if (!s->sampler.has_lost || s->bpf)
		return;
	for (size_t i = 0; i < s->n_cpus; i++) {
		uint64_t truth = cap_attach_lost(s, i);
		struct cap_ring *r = &s->rings[i];
		uint64_t told =
			r->lost + (s->n_rings > s->n_cpus ? s->rings[s->n_cpus + i].lost : 0);
		if (truth <= told)
			continue;
		cap_emit_lost(&s->emit, i, r->last_ns, s->end_ns, truth - told);
	}
}

static void emit_counters(struct cap_session *s)
{
	struct sp_counters *c = &s->emit.counters;
	struct sp_buf b = {0};
	sp_count(c, SP_C_lost_events, 0);
	sp_count(c, SP_C_samples, 0);
	sp_count(c, SP_C_sample_events, 0);
	sp_count(c, SP_C_kernel_enabled, s->sampler.kernel_frames);
	sp_count(c, SP_C_minimum_ring_buffer_bytes, s->grow.start_bytes);
	sp_count(c, SP_C_maximum_ring_buffer_bytes, s->ring_bytes);
	sp_buf_str(&b, "stage sp-capture\n");
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		if (sp_counter_known(c, (enum sp_counter)i))
			sp_buf_printf(&b, "%s %llu\n", sp_counter_name((enum sp_counter)i),
				      (unsigned long long)c->v[i]);
	if (!b.failed)
		cap_emit_ext(&s->emit, SP_EXT_COUNTERS, b.data, b.len);
	sp_buf_deinit(&b);
}

/* why: NULL for a whole recording. */
static void emit_end(struct cap_session *s, const char *why)
{
	struct sp_buf b = {0};
	sp_buf_str(&b, why ? "status=cut\n" : "status=0\n");
	if (why)
		sp_buf_printf(&b, "reason=sp-capture failed: %s\n", why);
	sp_buf_printf(&b, "end_ns=%llu\n", (unsigned long long)cap_now_ns());
	if (s->launch.ended)
		sp_buf_printf(&b, "command_status=%d\n", s->launch.status);
	if (!b.failed)
		cap_emit_ext(&s->emit, SP_EXT_END, b.data, b.len);
	sp_buf_deinit(&b);
}

/* What travels at the end: perf maps of the living, kernel names; until it is out, or nobody wants
 * it. */
static void embed_all(struct cap_session *s)
{
	for (size_t i = 0; i < s->emit.procs.n; i++)
		if (s->emit.procs.procs[i])
			cap_embed_end(&s->embed, s->emit.procs.procs[i], 0);
	if (s->sampler.kernel_frames && s->o->embed != CAP_EMBED_NONE)
		cap_kallsyms_embed(&s->embed);
	while (cap_embed_pump(&s->embed, PUMP_BYTES) && cap_output_error(s->out, NULL) == 0)
		wait_room(s);
}

static void on_unfinished(void *arg, const struct spb_sample *wait)
{
	struct cap_session *s = arg;
	cap_waits_end(&s->emit, wait, NULL, 0);
}

/* Drain, account, embed, end. */
static int finish(struct cap_session *s, struct sp_err *err)
{
	cap_recover(s, true);
	cap_attach_switch(s, false);
	s->end_ns = cap_now_ns();
	cap_grow_end(s);
	int rc = cap_session_drain(s, true, err);
	if (rc < 0)
		return rc;
	if (s->launch.pid > 0)
		cap_launch_wait(&s->launch, false);
	wait_room(s);
	if (s->bpf && s->o->off_cpu)
		cap_bpf_unfinished(s->bpf, s->end_ns, on_unfinished, s);
	cap_waits_flush(&s->emit);
	embed_all(s);
	emit_final_losses(s);
	emit_counters(s);
	cap_emit_round(&s->emit, s->rings, true);
	emit_end(s, NULL);
	s->n_bytes = cap_output_bytes(s->out);
	return 0;
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
	cap_head_emit(s);
	return 0;
}

/* Wait for --delay; false when a signal came first. */
static bool wait_delay(struct cap_session *s)
{
	uint64_t end = cap_now_ns() + s->o->delay_ns;
	for (;;) {
		uint64_t now = cap_now_ns();
		if (sp_stop_level() > 0 ||
		    (s->launch.pid > 0 && cap_launch_wait(&s->launch, false)))
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
	int rc = cap_kernel_read(&s->kernel, err);
	if (rc >= 0)
		rc = cap_sampler_init(&s->sampler, o, &s->kernel, err);
	if (rc >= 0 && o->command)
		rc = cap_launch_start(&s->launch, o->command, s->out_fd == STDOUT_FILENO, err);
	if (rc >= 0)
		rc = cap_sampler_probe(&s->sampler, err);
	if (rc >= 0)
		rc = open_engine(s, s->sampler.cure, err);
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
	s->emit.all_side_band = s->bpf != NULL;
	s->emit.waits.stacks_after = s->bpf && cap_bpf_stacks_after(s->bpf);
	s->emit.kernel_frames = s->sampler.kernel_frames;
	s->emit.follow = o->follow;
	s->emit.known_only = !o->follow && !s->sampler.attr.inherit_thread;
	s->emit.on_thread_exit = on_thread_exit;
	s->emit.on_fork = o->all ? NULL : on_fork;
	s->emit.wants = o->all ? cap_system_wants : NULL;
	s->emit.on_map = on_map;
	s->emit.on_jit = on_jit;
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
			return finish(s, err);
	}
	if (rc >= 0)
		rc = attach(s, err);
	if (rc < 0)
		return rc;
	if (cap_launch_is_suspended(&s->launch))
		rc = launch_go(s, err);
	s->enabled_ns = cap_now_ns();
	if (rc < 0)
		return rc;
	say_recording(s);
	ask_short_turns();
	rc = loop(s, err);
	return rc < 0 ? rc : finish(s, err);
}

/* The stages behind say why the recording ended: a short stream with an end record. */
static void tell_failure(struct cap_session *s, const struct sp_err *err)
{
	if (cap_output_error(s->out, NULL) < 0)
		return;
	cap_attach_switch(s, false);
	s->end_ns = cap_now_ns();
	emit_counters(s);
	cap_emit_round(&s->emit, s->rings, true);
	emit_end(s, err->msg);
}

int cap_session_run(struct cap_session *s, int fd, const char *name, char *const *argv,
		    char cure[400], struct sp_err *err)
{
	s->out_fd = fd;
	s->out_name = name;
	s->launch = (struct cap_launch){.pid = -1};
	s->system.cgroup.fd = -1;
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
		if (rc < 0)
			tell_failure(s, err);
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
	cap_grow_end(s);
	cap_attach_deinit(s);
	cap_system_deinit(s);
	for (size_t i = 0; s->rings && i < s->n_rings; i++)
		if (!s->bpf || i < s->n_cpus)
			cap_ring_unmap(&s->rings[i]);
	if (s->rings && s->bpf)
		free(s->rings[s->n_cpus].queue);
	free(s->rings);
	free(s->bpf_lost);
	cap_bpf_close(s->bpf);
	cap_embed_deinit(&s->embed);
	cap_emit_deinit(&s->emit);
	cap_kernel_deinit(&s->kernel);
}
