#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "asleep.h"
#include "base/cli.h"
#include "base/stop.h"
#include "control.h"
#include "recover.h"
#include "session.h"
#include "tasks.h"

#define IDLE_INTERVAL_NS UINT64_C(100000000)
#define AFTER_EXEC_NS UINT64_C(10000000)
#define SWEEP_NS UINT64_C(1000000000)

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
	struct pollfd *fds; /* owned: stop, output, control, roots, execs, rings, CPUs */
	size_t n;
};

static int watch_init(struct watch *w, const struct cap_session *s, struct sp_err *err)
{
	size_t n = 4 + s->n_rings + s->n_roots + s->execs.n;
	struct pollfd *fds = calloc(n, sizeof *fds);
	if (!fds)
		return sp_err_nomem(err);
	free(w->fds);
	w->fds = fds;
	w->n = n;
	w->fds[0] = (struct pollfd){.fd = sp_stop_fd(), .events = POLLIN};
	w->fds[1] = (struct pollfd){.fd = s->o->output_kind == CAP_TO_DATA ? -1 : s->out_fd};
	w->fds[2] = (struct pollfd){.fd = s->control ? s->control->fd : -1, .events = POLLIN};
	for (size_t i = 0; i < s->n_roots; i++)
		w->fds[3 + i] = (struct pollfd){.fd = s->roots[i].pidfd, .events = POLLIN};
	struct pollfd *rest = w->fds + 3 + s->n_roots;
	for (size_t i = 0; i < s->execs.n; i++)
		*rest++ = (struct pollfd){.fd = s->execs.rings[i].fd, .events = POLLIN};
	for (size_t i = 0; i < s->n_rings; i++)
		*rest++ = (struct pollfd){.fd = s->rings[i].fd, .events = POLLIN};
	*rest = (struct pollfd){.fd = s->system.uevent_fd, .events = POLLIN};
	return 0;
}

static int wait_until(struct watch *w, uint64_t end_ns)
{
	uint64_t now = cap_now_ns(), ns = end_ns > now ? end_ns - now : 0;
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000)};
	int n = ppoll(w->fds, w->n, &ts, NULL);
	for (size_t i = 0; n < 0 && i < w->n; i++)
		w->fds[i].revents = 0;
	return n;
}

/* Until the time is over or there is something to do. An exec of a recorded process has its
 * arguments taken, which will not be there for long, and the rings emptied soon: files that the
 * process maps may go with it. */
static void sleep_for(struct cap_session *s, struct watch *w, uint64_t ns)
{
	uint64_t end_ns = cap_now_ns() + ns;
	int n, n_execs;
	do {
		n = wait_until(w, end_ns);
		n_execs = 0;
		for (size_t i = 0; n > 0 && i < s->execs.n; i++) {
			struct pollfd *p = &w->fds[3 + s->n_roots + i];
			n_execs += p->revents != 0;
			if (p->revents & ~POLLIN)
				p->fd = -1; /* its CPU is away */
		}
		uint64_t looked_ns = cap_now_ns();
		if (n_execs && cap_session_look(s, cap_session_perf_rings(s), NULL) > 0) {
			s->round_ns = looked_ns; /* what came before is told then */
			uint64_t soon = looked_ns + AFTER_EXEC_NS;
			end_ns = soon < end_ns ? soon : end_ns;
		}
	} while (n > 0 && n == n_execs && cap_now_ns() < end_ns);
}

/* Whether there is anybody left to record. */
static bool targets_gone(struct cap_session *s, struct watch *w)
{
	bool all = true;
	for (size_t i = 0; i < s->n_roots; i++) {
		struct pollfd *p = &w->fds[3 + i];
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

/* What ends the recording before the rings are looked at once more; NULL: nothing. */
static const char *end_before(const struct cap_session *s)
{
	return sp_stop_level() > 0              ? "signal"
	       : time_is_over(s, cap_now_ns()) ? "duration"
					       : NULL;
}

/* And after that. */
static const char *end_after(struct cap_session *s, struct watch *w)
{
	if (targets_gone(s, w))
		return s->system.over ? "cgroup" : s->launch.pid > 0 ? "command" : "targets";
	if (!cap_limit_reached(&s->limit, cap_output_bytes(s->out), cap_now_ns()))
		return NULL;
	return s->limit.state == CAP_MAX_SIZE ? "max-size" : "min-free";
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
	cap_session_limit(s);
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
		cap_control_say(s->control, "add %d: attached already", pid);
		return;
	}
	s->attaching = true;
	int rc = cap_attach_process(s, pid, true, &err);
	s->attaching = false;
	if (rc >= 0 && s->o->off_cpu && !s->is_paused)
		cap_asleep_process(s, pid);
	if (rc >= 0)
		rc = watch_init(w, s, &err);
	if (rc < 0)
		cap_control_say(s->control, "add %d: %s", pid, err.msg);
	else
		cap_control_say(s->control, "add %d: attached", pid);
}

/* Mappings, names of threads and, where children are followed, descendants: what the stream does
 * not know is told, what has no events gets them. */
static void refresh_process(struct cap_session *s, int32_t pid)
{
	struct sp_err err = {0};
	struct cap_refreshed found = {0};
	if (!cap_procs_find(&s->emit.procs, pid)) {
		cap_control_say(s->control, "refresh %d: not recorded", pid);
		return;
	}
	s->attaching = true;
	int rc = cap_attach_refresh(s, pid, &found, &err);
	s->attaching = false;
	if (rc < 0)
		cap_control_say(s->control, "refresh %d: %s", pid, err.msg);
	else
		cap_control_say(s->control,
				"refresh %d: %d new mappings, %d threads, %d new descendants", pid,
				found.mappings, found.threads, found.descendants);
}

/* Commands of the fifo or the socket; false when the recording is to end. */
static bool take_commands(struct cap_session *s, struct watch *w)
{
	enum cap_command what;
	int32_t pid = 0;
	while (cap_control_next(s->control, &what, &pid)) {
		switch (what) {
		case CAP_ENABLE:
			cap_session_resume(s);
			cap_control_say(s->control, "enabled");
			break;
		case CAP_DISABLE:
			cap_session_pause(s, NULL); /* an error comes again in the loop */
			cap_control_say(s->control, "disabled");
			break;
		case CAP_ADD:
			add_process(s, w, pid);
			break;
		case CAP_REFRESH:
			refresh_process(s, pid);
			break;
		case CAP_SUMMARY:
			cap_control_say(s->control, "%llu samples, %llu lost, %zu processes",
					(unsigned long long)s->emit.counters.v[SP_C_samples],
					(unsigned long long)s->emit.counters.v[SP_C_lost_events],
					s->emit.procs.n_alive);
			break;
		case CAP_STOP:
			cap_control_say(s->control, "stopping");
			return false;
		case CAP_BAD:
		default:
			cap_control_say(s->control,
					"unknown command '%s'; known: enable, disable, add PID, "
					"refresh PID, summary, stop",
					s->control->line.text);
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
	return cap_system_tick(s) ? watch_init(w, s, err) : 0;
}

int cap_session_loop(struct cap_session *s, struct sp_err *err)
{
	struct watch w = {0};
	uint64_t interval = s->interval_ns, swept = cap_now_ns();
	int rc = watch_init(&w, s, err);
	while (rc >= 0) {
		uint64_t now = cap_now_ns();
		s->ended_by = end_before(s);
		if (s->ended_by)
			break;
		sleep_for(s, &w, next_sleep(s, interval, now));
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
		s->ended_by = rc < 0 ? NULL : end_after(s, &w);
		if (rc < 0 || s->ended_by)
			break;
		cap_recover(s, false);
		if (now - swept >= SWEEP_NS) {
			every_second(s);
			swept = now;
		}
		rc = look_at_system(s, &w, err);
		if (rc < 0)
			break;
		if (w.fds[2].revents && !take_commands(s, &w)) {
			s->ended_by = "stop";
			break;
		}
	}
	free(w.fds);
	return rc < 0 ? rc : 0;
}
