#define _GNU_SOURCE
#include "hold.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "kernel.h"
#include "tasks.h"

/* What the keeper reports. */
enum { HELD = 1, REFUSED = 2, TIMED_OUT = 3, TARGET_GONE = 4, KEEPER_DEAD = 5 };

struct report {
	int what, os;
};

struct held {
	int32_t tid;
	bool stopped;
};

struct keeper {
	int32_t pid;
	struct held *threads; /* owned by the keeper process */
	size_t n, cap;
	uint64_t end_ns;
};

static struct held *find(struct keeper *k, int32_t tid)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->threads[i].tid == tid)
			return &k->threads[i];
	return NULL;
}

/* Seize and interrupt the threads that are not ours yet: how many were new, or -1. */
static int seize_new(struct keeper *k, int *os)
{
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	int fresh = 0;
	if (sp_tasks_list(k->pid, &tids, &n, &cap, NULL) < 0) {
		*os = ESRCH;
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		if (find(k, tids[i]))
			continue;
		if (ptrace(PTRACE_SEIZE, tids[i], NULL, NULL) < 0) {
			if (errno == ESRCH)
				continue; /* ended meanwhile */
			*os = errno;
			free(tids);
			return -1;
		}
		if (cap_task_is_foreign(k->pid, tids[i]))
			continue; /* it runs on: nobody interrupts it */
		struct held *h = SP_PUSH(&k->threads, &k->n, &k->cap);
		if (!h)
			_exit(1);
		h->tid = tids[i];
		ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL);
		fresh++;
	}
	free(tids);
	return fresh;
}

static void forget(struct keeper *k, struct held *h)
{
	*h = k->threads[--k->n];
}

/* One thread's stop. A signal that was on its way is delivered when it goes on. */
static void take_stop(struct keeper *k, int32_t tid, int status)
{
	struct held *h = find(k, tid);
	if (!WIFSTOPPED(status)) {
		if (h)
			forget(k, h);
		return;
	}
	if (status >> 16 == PTRACE_EVENT_STOP) {
		if (h)
			h->stopped = true;
		else
			ptrace(PTRACE_LISTEN, tid, NULL, NULL);
		return;
	}
	ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)WSTOPSIG(status));
	if (h)
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
}

static bool all_stopped(const struct keeper *k)
{
	for (size_t i = 0; i < k->n; i++)
		if (!k->threads[i].stopped)
			return false;
	return k->n > 0;
}

/* Until every seized thread is stopped; false when the time is over. */
static bool wait_stops(struct keeper *k)
{
	while (!all_stopped(k) && k->n) {
		int status;
		pid_t tid = waitpid(-1, &status, __WALL | WNOHANG);
		if (tid > 0) {
			take_stop(k, tid, status);
			continue;
		}
		if (cap_now_ns() >= k->end_ns)
			return false;
		poll(NULL, 0, 1);
	}
	return true;
}

static struct report hold_all(struct keeper *k)
{
	int os = 0, fresh;
	/* Two equal lists with everything in them stopped: nobody is left to make more threads. */
	do {
		fresh = seize_new(k, &os);
		if (fresh < 0)
			return (struct report){os == ESRCH ? TARGET_GONE : REFUSED, os};
		if (!wait_stops(k))
			return (struct report){TIMED_OUT, 0};
	} while (fresh > 0);
	return (struct report){k->n ? HELD : TARGET_GONE, 0};
}

/* Until our parent closes its end, dies, or the time is over. Detaching happens by dying: the
 * kernel resumes whatever a dead tracer held, and leaves group-stops as they were. */
static void wait_release(int fd, uint64_t end_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (;;) {
		uint64_t now = cap_now_ns();
		if (now >= end_ns)
			return;
		if (poll(&p, 1, (int)((end_ns - now) / 1000000 + 1)) > 0)
			return;
	}
}

static _Noreturn void tracer(const struct cap_hold *h, int fd)
{
	struct keeper k = {.pid = h->pid, .end_ns = cap_now_ns() + CAP_HOLD_MS * UINT64_C(1000000)};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(CAP_HOLD_MS / 1000 + 1); /* whatever happens here */
	struct report r = hold_all(&k);
	if (write(fd, &r, sizeof r) == sizeof r && r.what == HELD)
		wait_release(fd, k.end_ns);
	_exit(0);
}

/* The state letter of a process, 0 when it is gone. */
static char state_of(int32_t pid)
{
	struct sp_stat st;
	return sp_stat_read(pid, pid, &st) ? st.state : 0;
}

static bool all_in_state_t(int32_t pid)
{
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	bool all = sp_tasks_list(pid, &tids, &n, &cap, NULL) >= 0 && n > 0;
	for (size_t i = 0; all && i < n; i++) {
		struct sp_stat st;
		if (sp_stat_read(pid, tids[i], &st))
			all = st.state == 'T' || st.state == 't';
	}
	free(tids);
	return all;
}

/* To the process that had the id when the hold began, whoever has it now. */
static int send_signal(const struct cap_hold *h, int sig)
{
	int rc = h->pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_send_signal, h->pidfd, sig, NULL, 0);
	/* Linux before 5.3, or a filter that knows kill(2) only. */
	if (rc < 0 && (h->pidfd < 0 || errno == ENOSYS || errno == EPERM))
		rc = kill(h->pid, sig);
	return rc;
}

static _Noreturn void watchdog(const struct cap_hold *h, int fd)
{
	uint64_t end = cap_now_ns() + CAP_HOLD_MS * UINT64_C(1000000);
	struct report r = {TIMED_OUT, 0};
	setsid();
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	if (send_signal(h, SIGSTOP) < 0) {
		r = (struct report){errno == ESRCH ? TARGET_GONE : REFUSED, errno};
		end = 0;
	}
	while (end && cap_now_ns() < end && r.what == TIMED_OUT) {
		if (all_in_state_t(h->pid))
			r.what = HELD;
		else if (!sp_process_exists(h->pid))
			r.what = TARGET_GONE; /* a zombie takes signals, and never stops */
		else
			poll(NULL, 0, 2);
	}
	if (write(fd, &r, sizeof r) == sizeof r && r.what == HELD)
		wait_release(fd, end);
	if (end)
		send_signal(h, SIGCONT);
	_exit(0);
}

/* A keeper that comes too late to look at the time is ended by its own alarm. */
static bool is_late(int signal)
{
	return signal == SIGALRM;
}

/* Why there is no report. */
static int why_silent(pid_t keeper)
{
	siginfo_t how = {0};
	int rc;
	do
		rc = waitid(P_PID, (id_t)keeper, &how, WEXITED | WNOWAIT | __WALL);
	while (rc < 0 && errno == EINTR);
	bool killed = rc == 0 && how.si_code == CLD_KILLED;
	return killed && is_late(how.si_status) ? TIMED_OUT : KEEPER_DEAD;
}

static int start(struct cap_hold *h, void (*run)(const struct cap_hold *, int), struct report *r,
		 struct sp_err *err)
{
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return sp_err_errno(err, "cannot hold process %d: socketpair", h->pid);
	pid_t keeper = fork();
	if (keeper == 0) {
		close(fds[0]);
		run(h, fds[1]);
	}
	close(fds[1]);
	if (keeper < 0) {
		close(fds[0]);
		return sp_err_errno(err, "cannot hold process %d: fork", h->pid);
	}
	ssize_t n;
	do
		n = read(fds[0], r, sizeof *r);
	while (n < 0 && errno == EINTR);
	if (n != sizeof *r)
		*r = (struct report){why_silent(keeper), 0};
	h->keeper = keeper;
	h->fd = fds[0];
	return 0;
}

static void run_tracer(const struct cap_hold *h, int fd)
{
	tracer(h, fd);
}

static void run_watchdog(const struct cap_hold *h, int fd)
{
	watchdog(h, fd);
}

static void end(struct cap_hold *h)
{
	if (h->pidfd >= 0)
		close(h->pidfd);
	h->keeper = 0;
	h->fd = h->pidfd = -1;
}

int cap_hold_begin(struct cap_hold *h, int32_t pid, struct sp_err *err)
{
	struct report r;
	*h = (struct cap_hold){.fd = -1, .pidfd = -1, .pid = pid};
	char state = state_of(pid);
	if ((state == 'T' || state == 't') && all_in_state_t(pid))
		return 0;
	int rc = start(h, run_tracer, &r, err);
	if (rc == 0 && r.what == REFUSED) {
		cap_hold_end(h, NULL);
		h->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
		h->by_signal = true;
		rc = start(h, run_watchdog, &r, err);
	}
	if (rc < 0) {
		end(h);
		return rc;
	}
	if (r.what == HELD)
		return 1;
	cap_hold_end(h, NULL);
	if (r.what == TARGET_GONE)
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "cannot hold process %d: it has ended",
				  pid);
	if (r.what == REFUSED)
		return sp_err_set(err, SP_ERR_PERM, r.os, "cannot hold process %d: kill: %s", pid,
				  strerror(r.os));
	if (r.what == KEEPER_DEAD)
		return sp_err_set(err, SP_ERR_IO, EINTR,
				  "cannot hold process %d: our process that holds it was ended",
				  pid);
	return sp_err_set(err, SP_ERR_LIMIT, ETIMEDOUT,
			  "cannot hold process %d: a thread did not stop within %d s; it runs on",
			  pid, CAP_HOLD_MS / 1000);
}

int cap_hold_end(struct cap_hold *h, struct sp_err *err)
{
	int status = 0;
	if (h->keeper <= 0)
		return 0;
	/* A keeper that has gone already: the target ran before we were ready. */
	bool early = waitpid(h->keeper, &status, WNOHANG | __WALL) == h->keeper;
	close(h->fd);
	while (!early && waitpid(h->keeper, &status, __WALL) < 0 && errno == EINTR)
		;
	/* Somebody killed the watchdog: its last task is ours. */
	if (h->by_signal && WIFSIGNALED(status))
		send_signal(h, SIGCONT);
	end(h);
	if (early && WIFSIGNALED(status) && !is_late(WTERMSIG(status)))
		return sp_err_set(err, SP_ERR_IO, EINTR,
				  "the hold ended early: signal %d to our process that held it",
				  WTERMSIG(status));
	if (early)
		return sp_err_set(err, SP_ERR_LIMIT, ETIMEDOUT,
				  "the hold ended after %d s, before all events were open",
				  CAP_HOLD_MS / 1000);
	return 0;
}
