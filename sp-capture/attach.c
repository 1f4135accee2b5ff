#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cli.h"
#include "hold.h"
#include "session.h"
#include "tasks.h"

#define MAX_PASSES 3
#define GONE SP_ERR_GONE

struct list {
	int32_t *v; /* owned */
	size_t n, cap;
};

static void close_event(struct cap_session *s, struct cap_task *t, size_t at)
{
	if (t->fds[at] < 0)
		return;
	if (s->sampler.has_lost)
		s->retired_lost[at % s->n_cpus] += cap_event_lost(t->fds[at]);
	close(t->fds[at]);
	t->fds[at] = -1;
}

static void task_drop(struct cap_session *s, struct cap_task *t)
{
	for (size_t i = 0; i < s->n_fds; i++)
		close_event(s, t, i);
	free(t->fds);
	*t = (struct cap_task){0};
}

/* One event on one CPU, into its ring. */
static int open_on(struct cap_session *s, struct cap_task *t, size_t at, size_t n_wanted,
		   struct sp_err *err)
{
	bool of_switches = s->rings[at].of_switches;
	if (of_switches && t->role == CAP_SIDE_BAND)
		return 0;
	uint32_t cpu = s->kernel.cpus[at % s->n_cpus];
	enum cap_role role = of_switches ? cap_role_of_switches(t->role) : t->role;
	int fd = cap_sampler_open(&s->sampler, role, t->tid, cpu, n_wanted, err);
	if (fd < 0)
		return fd;
	if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, s->rings[at].fd) < 0) {
		int rc = sp_err_errno(err,
				      "cannot use the ring of CPU %u for thread %d: "
				      "PERF_EVENT_IOC_SET_OUTPUT",
				      cpu, t->tid);
		close(fd);
		return rc;
	}
	t->fds[at] = fd;
	return 0;
}

/* The one event that a BPF program samples a thread by. late: it may have inherited one already. */
static int open_bpf(struct cap_session *s, struct cap_task *t, size_t n_wanted, bool late,
		    struct sp_err *err)
{
	enum cap_role role = t->role == CAP_SAMPLES ? CAP_BPF_SAMPLES : CAP_BPF_ALONE;
	if (t->role == CAP_SIDE_BAND)
		return 0; /* side-band comes from all processes */
	int fd = cap_sampler_open(&s->sampler, role, t->tid, CAP_ANY_CPU, n_wanted, err);
	if (fd < 0)
		return fd;
	if (s->o->off_cpu) {
		bool by_thread = t->role == CAP_SAMPLES_ALONE;
		int set = cap_bpf_target(s->bpf, by_thread ? t->tid : t->pid,
					 cap_launch_is_suspended(&s->launch), err);
		if (set < 0) {
			close(fd);
			return set;
		}
	}
	uint64_t cookie = late ? s->n_tasks + 1 : 0;
	int rc = cap_bpf_hang(s->bpf, fd, cookie, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	t->fds[0] = fd;
	return 0;
}

static int open_task(struct cap_session *s, int32_t pid, int32_t tid, enum cap_role role,
		     size_t n_wanted, bool late, struct sp_err *err)
{
	struct cap_task t = {.pid = pid, .tid = tid, .role = role};
	t.fds = malloc(s->n_fds * sizeof *t.fds);
	if (!t.fds)
		return sp_err_nomem(err);
	for (size_t i = 0; i < s->n_fds; i++)
		t.fds[i] = -1;
	int rc = s->bpf ? open_bpf(s, &t, n_wanted, late, err) : 0;
	for (size_t i = 0; rc >= 0 && !s->bpf && i < s->n_fds; i++)
		rc = open_on(s, &t, i, n_wanted, err);
	if (rc >= 0 && cap_task_is_foreign(pid, tid)) /* the id has another thread now */
		rc = sp_err_set(err, GONE, ESRCH, "thread %d has ended", tid);
	if (rc < 0) {
		task_drop(s, &t);
		return rc;
	}
	t.opened_ns = cap_now_ns();
	struct cap_task *slot = SP_PUSH(&s->tasks, &s->n_tasks, &s->cap_tasks);
	if (!slot || !sp_map64_put(&s->by_tid, (uint32_t)tid, (uint32_t)s->n_tasks - 1)) {
		if (slot)
			s->n_tasks--;
		task_drop(s, &t);
		return sp_err_nomem(err);
	}
	*slot = t;
	return 0;
}

/* Whether a thread's events came by inheritance: it was seen born after those of its maker were
 * complete. */
static bool is_inherited(const struct cap_session *s, int32_t tid)
{
	for (int depth = 0; depth < 64; depth++) {
		uint32_t at = sp_map64_get(&s->forked, (uint32_t)tid);
		if (at == SP_NOT_FOUND)
			return false;
		uint32_t maker = sp_map64_get(&s->by_tid, (uint32_t)s->births[at].ptid);
		if (maker != SP_NOT_FOUND)
			return s->tasks[maker].opened_ns <= s->births[at].time_ns;
		tid = s->births[at].ptid;
	}
	return false;
}

/* A thread that appeared while we attached may have inherited some of its maker's events already:
 * its own ids tell the copies apart (see cap_emit). */
static void note_late(struct cap_session *s, struct cap_task *t)
{
	uint64_t *ids = calloc(s->n_cpus, sizeof *ids);
	for (size_t c = 0; ids && c < s->n_cpus; c++)
		if (s->bpf)
			ids[c] = s->n_tasks; /* the cookie of open_bpf */
		else if (ioctl(t->fds[c], PERF_EVENT_IOC_ID, &ids[c]) < 0)
			ids[c] = 0;
	if (ids)
		cap_emit_late(&s->emit, t->tid, ids);
	free(ids);
}

/* Open the threads that are there and not known; how many were, or an error. */
static int open_new(struct cap_session *s, int32_t pid, enum cap_role role, bool late,
		    struct sp_err *err)
{
	struct list l = {0};
	int fresh = 0;
	int rc = sp_tasks_list(pid, &l.v, &l.n, &l.cap, err);
	size_t n_wanted = cap_session_fds(s, s->n_tasks + l.n, s->bpf);
	for (size_t i = 0; rc >= 0 && i < l.n; i++) {
		if (sp_map64_get(&s->by_tid, (uint32_t)l.v[i]) != SP_NOT_FOUND ||
		    is_inherited(s, l.v[i]))
			continue;
		rc = open_task(s, pid, l.v[i], role, n_wanted, late, err);
		if (rc == GONE) { /* ended between the list and the open */
			rc = 0;
			continue;
		}
		if (rc >= 0 && late)
			note_late(s, &s->tasks[s->n_tasks - 1]);
		fresh++;
	}
	free(l.v);
	return rc < 0 ? rc : fresh;
}

/* Passes until one finds nothing new. 1 when it settled, 0 when threads keep coming. */
static int open_passes(struct cap_session *s, int32_t pid, enum cap_role role, struct sp_err *err)
{
	for (int pass = 0; pass < MAX_PASSES; pass++) {
		int fresh = open_new(s, pid, role, pass > 0, err);
		if (fresh < 0)
			return fresh;
		/* The rings know who was born meanwhile, and must not overflow. */
		int rc = cap_session_drain(s, false, err);
		if (rc < 0)
			return rc;
		if (pass > 0 && fresh == 0)
			return 1;
	}
	return 0;
}

static int open_held(struct cap_session *s, int32_t pid, enum cap_role role, struct sp_err *err)
{
	struct cap_hold hold;
	struct sp_err why;
	int held = cap_hold_begin(&hold, pid, &why);
	if (held == GONE) {
		*err = why;
		return held;
	}
	if (held < 0)
		sp_warn("%s; going on without holding it", why.msg);
	bool late = s->n_tasks > 0;
	int rc = 0;
	for (int pass = 0; rc >= 0 && pass < 2; pass++) {
		rc = cap_session_drain(s, false, err);
		if (rc >= 0)
			rc = open_new(s, pid, role, late || pass > 0, err);
	}
	if (held > 0 && cap_hold_end(&hold, &why) < 0)
		sp_warn("%s", why.msg);
	return rc < 0 ? rc : 0;
}

static int root_add(struct cap_session *s, int32_t pid, struct sp_err *err)
{
	struct sp_stat st;
	if (!sp_stat_read(pid, pid, &st))
		return sp_err_set(err, GONE, ESRCH, "cannot attach to process %d: no such process",
				  pid);
	struct cap_root *r = SP_PUSH(&s->roots, &s->n_roots, &s->cap_roots);
	if (!r)
		return sp_err_nomem(err);
	r->pid = pid;
	r->start_ticks = st.start_ticks;
	r->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return 0;
}

/* Whether the id is still that of the process which root_add found: events are opened by ids. One
 * that has ended, and whose id nobody else has, was recorded as long as it lived. */
static int check_same(const struct cap_root *r, struct sp_err *err)
{
	struct sp_stat st;
	struct pollfd p = {.fd = r->pidfd, .events = POLLIN};
	if (!sp_stat_read(r->pid, r->pid, &st))
		return 0;
	bool has_ended = r->pidfd >= 0 && poll(&p, 1, 0) == 1;
	if (st.start_ticks == r->start_ticks && (!has_ended || st.state == 'Z'))
		return 0;
	return sp_err_set(err, GONE, ESRCH,
			  "cannot attach to process %d: it has ended, and another one has its id",
			  r->pid);
}

/* A process that could not be attached leaves no trace: its events, and what was noted of it. */
static void take_back(struct cap_session *s, int32_t pid, size_t n_tasks, size_t n_roots)
{
	while (s->n_tasks > n_tasks) {
		struct cap_task *t = &s->tasks[--s->n_tasks];
		sp_map64_remove(&s->by_tid, (uint32_t)t->tid);
		task_drop(s, t);
	}
	while (s->n_roots > n_roots)
		if (s->roots[--s->n_roots].pidfd >= 0)
			close(s->roots[s->n_roots].pidfd);
	if (s->o->off_cpu && s->bpf)
		cap_bpf_untarget(s->bpf, pid);
	cap_procs_remove(&s->emit.procs, pid);
}

static void emit_threads(struct cap_session *s, int32_t pid, struct cap_proc *q)
{
	int n = cap_emit_names(&s->emit, pid, s->emit.now_ns);
	if (n <= 0)
		return;
	q->n_threads = (uint32_t)n;
	s->n_threads += (size_t)n;
}

/* What the process is and has mapped: into the stream, dated before its first sample. */
static int describe(struct cap_session *s, int32_t pid, bool is_root, struct sp_err *err)
{
	struct cap_proc *q = cap_procs_get(&s->emit.procs, pid);
	char comm[64];
	if (!q)
		return sp_err_nomem(err);
	/* Its name and maps are read behind what tells the image: an exec since is told once more. */
	q->shown_ns = cap_cmdlines_see(&s->emit.cmdlines, pid, s->emit.now_ns);
	cap_task_comm(pid, pid, comm);
	cap_emit_comm(&s->emit, pid, pid, comm, s->emit.now_ns);
	cap_emit_exec(&s->emit, q, s->emit.now_ns);
	cap_emit_cgroup(&s->emit, q, true, s->emit.now_ns);
	int rc = cap_emit_maps(&s->emit, q, s->emit.now_ns, err);
	if (rc < 0 && is_root && err->os == ENOENT)
		return sp_err_set(err, GONE, ESRCH, "cannot attach to process %d: no such process",
				  pid);
	if (rc < 0)
		q->shown_ns = 0; /* unreadable maps: MMAP2 records cover what comes */
	return 0;
}

/* Whether a thread may be sampled; of a process whose leader has exited, any other one. */
static int check_open(struct cap_session *s, int32_t id, bool is_process, struct sp_err *err)
{
	struct list l = {0};
	size_t n_wanted = cap_session_fds(s, 1, s->bpf);
	int fd = cap_sampler_open(&s->sampler, CAP_SAMPLES_ALONE, id, s->kernel.cpus[0], n_wanted,
				  err);
	if (fd == GONE && is_process)
		sp_tasks_list(id, &l.v, &l.n, &l.cap, NULL);
	for (size_t i = 0; fd == GONE && i < l.n; i++)
		if (l.v[i] != id)
			fd = cap_sampler_open(&s->sampler, CAP_SAMPLES_ALONE, l.v[i],
					      s->kernel.cpus[0], n_wanted, err);
	free(l.v);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int cap_attach_check_one(struct cap_session *s, int32_t id, bool is_process, struct sp_err *err)
{
	const char *what = is_process ? "process" : "thread";
	int32_t owner = cap_task_process(id);
	if (!owner)
		return sp_err_set(err, GONE, ESRCH, "cannot attach to %s %d: no such %s", what, id,
				  what);
	if (is_process && owner != id)
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot attach to process %d: it is a thread of process %d (use "
				  "-p %d, or -t %d)",
				  id, owner, owner, id);
	if (s->o->stop && owner == getpid())
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot hold process %d: it is sp-capture itself", id);
	if (s->o->stop && cap_task_gets_pipe(owner, s->out_fd))
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot hold process %d: it reads this very stream", id);
	return check_open(s, id, is_process, err);
}

int cap_attach_check(struct cap_session *s, struct sp_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc >= 0 && i < s->o->n_pids; i++)
		rc = cap_attach_check_one(s, s->o->pids[i], true, err);
	for (size_t i = 0; rc >= 0 && i < s->o->n_tids; i++)
		rc = cap_attach_check_one(s, s->o->tids[i], false, err);
	return rc;
}

static int attach_process(struct cap_session *s, int32_t pid, bool is_root, struct sp_err *err)
{
	size_t root = s->n_roots;
	int rc = is_root ? root_add(s, pid, err) : 0;
	if (rc >= 0)
		rc = describe(s, pid, is_root, err);
	if (rc < 0)
		return rc;
	uint64_t described_ns = cap_now_ns();
	if (s->o->stop)
		rc = open_held(s, pid, CAP_SAMPLES, err);
	else
		rc = open_passes(s, pid, CAP_SAMPLES, err);
	if (rc == 0 && !s->o->stop) /* threads keep coming */
		rc = open_held(s, pid, CAP_SAMPLES, err);
	if (rc >= 0 && is_root)
		rc = check_same(&s->roots[root], err);
	if (rc < 0)
		return rc;
	struct cap_proc *q = cap_procs_find(&s->emit.procs, pid);
	if (q) { /* what was run and mapped between the first look and the events */
		cap_emit_missed_exec(&s->emit, q, described_ns, s->emit.now_ns);
		cap_emit_maps(&s->emit, q, s->emit.now_ns, NULL);
		emit_threads(s, pid, q);
	}
	return 0;
}

int cap_attach_process(struct cap_session *s, int32_t pid, bool is_root, struct sp_err *err)
{
	size_t n_tasks = s->n_tasks, n_roots = s->n_roots;
	bool is_known = sp_map64_get(&s->by_tid, (uint32_t)pid) != SP_NOT_FOUND;
	if (!is_root && (is_known || is_inherited(s, pid)))
		return 0;
	int rc = attach_process(s, pid, is_root, err);
	if (rc < 0)
		take_back(s, pid, n_tasks, n_roots);
	return rc;
}

int cap_attach_refresh(struct cap_session *s, int32_t pid, struct cap_refreshed *found,
		       struct sp_err *err)
{
	struct sp_process_edge *family = NULL;
	size_t n = 0;
	struct cap_proc *q = cap_procs_find(&s->emit.procs, pid);
	int rc = cap_session_drain(s, false, err);
	if (rc >= 0)
		rc = found->mappings = cap_emit_maps(&s->emit, q, s->emit.now_ns, err);
	if (rc >= 0) {
		/* Whoever was born since has inherited events. */
		size_t before = s->n_threads;
		emit_threads(s, pid, q);
		s->n_threads = before;
		found->threads = (int)q->n_threads;
	}
	if (rc >= 0 && s->o->follow)
		rc = sp_process_descendants(pid, &family, &n, err);
	for (size_t i = 0; rc >= 0 && i < n; i++) {
		struct sp_err why;
		if (!cap_procs_find(&s->emit.procs, family[i].child))
			found->descendants +=
				cap_attach_process(s, family[i].child, false, &why) >= 0;
	}
	free(family);
	return rc < 0 ? rc : 0;
}

void cap_attach_describe(struct cap_session *s, int32_t pid)
{
	struct sp_err err;
	describe(s, pid, false, &err);
}

int cap_attach_command(struct cap_session *s, int32_t pid, struct sp_err *err)
{
	if (!cap_procs_get(&s->emit.procs, pid))
		return sp_err_nomem(err);
	s->n_threads = 1;
	cap_cmdlines_give(&s->emit.cmdlines, pid, s->o->command);
	return root_add(s, pid, err);
}

int cap_attach_launched(struct cap_session *s, int32_t pid, struct sp_err *err)
{
	int rc = cap_attach_command(s, pid, err);
	return rc < 0 ? rc : open_task(s, pid, pid, CAP_SAMPLES, cap_session_fds(s, 1, s->bpf),
				       false, err);
}

int cap_attach_threads(struct cap_session *s, struct sp_err *err)
{
	for (size_t i = 0; i < s->o->n_tids; i++) {
		int32_t tid = s->o->tids[i];
		int32_t pid = cap_task_process(tid);
		struct sp_stat st;
		if (!pid || !sp_stat_read(pid, tid, &st))
			return sp_err_set(err, GONE, ESRCH,
					  "cannot attach to thread %d: no such thread", tid);
		int rc = 0;
		if (!cap_procs_find(&s->emit.procs, pid)) {
			/* Mappings come only from the thread that maps: side-band of all. */
			rc = describe(s, pid, true, err);
			if (rc >= 0)
				rc = s->o->stop ? open_held(s, pid, CAP_SIDE_BAND, err)
						: open_passes(s, pid, CAP_SIDE_BAND, err);
			if (rc >= 0)
				emit_threads(s, pid, cap_procs_get(&s->emit.procs, pid));
			if (rc >= 0)
				rc = root_add(s, pid, err);
		}
		if (rc >= 0)
			rc = open_task(s, pid, tid, CAP_SAMPLES_ALONE,
				       cap_session_fds(s, s->n_tasks + 1, s->bpf), false, err);
		if (rc < 0)
			return rc;
	}
	s->n_threads = s->o->n_tids;
	return 0;
}

static struct cap_pin *pin_find(struct cap_session *s, int32_t tid)
{
	uint32_t at = sp_map64_get(&s->pin_of, (uint32_t)tid);
	return at < s->n_pins && s->pins[at].tid == tid ? &s->pins[at] : NULL;
}

void cap_attach_pin(struct cap_session *s, int32_t tid)
{
	size_t at = 0;
	if (pin_find(s, tid))
		return;
	int fd = cap_sampler_pin(tid);
	if (fd < 0)
		return; /* it ended, or descriptors did: it is an improvement only */
	while (at < s->n_pins && s->pins[at].tid)
		at++;
	if ((at == s->n_pins && !SP_PUSH(&s->pins, &s->n_pins, &s->cap_pins)) ||
	    !sp_map64_put(&s->pin_of, (uint32_t)tid, (uint32_t)at)) {
		close(fd);
		return;
	}
	s->pins[at] = (struct cap_pin){.tid = tid, .fd = fd};
}

void cap_attach_ended(struct cap_session *s, int32_t tid)
{
	struct cap_pin *pin = pin_find(s, tid);
	if (pin) {
		close(pin->fd);
		*pin = (struct cap_pin){0};
	}
	if (sp_map64_get(&s->by_tid, (uint32_t)tid) == SP_NOT_FOUND)
		return; /* inherited its events: they are not ours to close */
	for (size_t i = 0; i < s->n_tasks; i++) {
		if (s->tasks[i].tid != tid || s->tasks[i].ended)
			continue;
		s->tasks[i].ended = true;
		s->n_ended++;
	}
}

void cap_attach_copy(struct cap_session *s, int32_t tid, size_t cpu)
{
	uint32_t at = sp_map64_get(&s->by_tid, (uint32_t)tid);
	if (at == SP_NOT_FOUND)
		return;
	for (size_t i = s->bpf ? 0 : cpu; i < s->n_fds; i += s->n_cpus)
		close_event(s, &s->tasks[at], i);
}

void cap_attach_sweep(struct cap_session *s)
{
	/* Of an event without a ring the kernel always says HUP (perf_poll), and to close it would
	 * end those that others inherited from it. */
	if (s->bpf)
		return;
	for (size_t i = 0; s->n_ended && i < s->n_tasks; i++) {
		struct cap_task *t = &s->tasks[i];
		bool open = false;
		if (!t->ended)
			continue;
		for (size_t c = 0; c < s->n_fds; c++) {
			struct pollfd p = {.fd = t->fds[c]};
			if (t->fds[c] < 0)
				continue;
			/* HUP: neither the thread nor anybody who inherited from it lives. */
			if (poll(&p, 1, 0) == 1 && (p.revents & POLLHUP))
				close_event(s, t, c);
			else
				open = true;
		}
		if (open)
			continue;
		s->n_ended--;
		t->ended = false;
	}
}

void cap_attach_switch(struct cap_session *s, bool on)
{
	cap_sampler_switch(&s->sampler, on);
	if (s->bpf && s->o->off_cpu)
		cap_bpf_switch(s->bpf, on);
	else if (on)
		s->emit.waits.since_ns = cap_now_ns();
	for (size_t i = 0; i < s->n_tasks; i++)
		for (size_t c = 0; c < s->n_fds; c++)
			if (s->tasks[i].fds[c] >= 0)
				ioctl(s->tasks[i].fds[c],
				      on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
	cap_system_switch(s, on);
}

uint64_t cap_attach_lost(const struct cap_session *s, size_t cpu_index)
{
	uint64_t sum = s->retired_lost[cpu_index] + cap_system_lost(s, cpu_index);
	for (size_t i = 0; i < s->n_tasks; i++)
		for (size_t at = cpu_index; at < s->n_fds; at += s->n_cpus)
			sum += cap_event_lost(s->tasks[i].fds[at]);
	return sum;
}

void cap_attach_deinit(struct cap_session *s)
{
	for (size_t i = 0; i < s->n_tasks; i++) {
		struct cap_task *t = &s->tasks[i];
		for (size_t at = 0; t->fds && at < s->n_fds; at++)
			if (t->fds[at] >= 0)
				close(t->fds[at]);
		free(t->fds);
	}
	for (size_t i = 0; i < s->n_roots; i++)
		if (s->roots[i].pidfd >= 0)
			close(s->roots[i].pidfd);
	for (size_t i = 0; i < s->n_pins; i++)
		if (s->pins[i].tid)
			close(s->pins[i].fd);
	free(s->pins);
	sp_map64_deinit(&s->pin_of);
	free(s->tasks);
	free(s->births);
	free(s->forks);
	free(s->roots);
	free(s->retired_lost);
	sp_map64_deinit(&s->by_tid);
	sp_map64_deinit(&s->forked);
}
