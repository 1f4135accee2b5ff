#define _GNU_SOURCE
#include "base/proc.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/table.h"
#include "stackpulse/process.h"

uint64_t sp_stat_field(const char *text, size_t len, unsigned field)
{
	const char *p = memrchr(text, ')', len);
	const char *end = text + len;
	unsigned at = 2;
	if (!p)
		return 0;
	for (p++; p < end; p++)
		if (*p == ' ' && ++at == field) {
			uint64_t v = 0;
			for (p++; p < end && *p >= '0' && *p <= '9'; p++)
				v = v * 10 + (uint64_t)(*p - '0');
			return v;
		}
	return 0;
}

bool sp_stat_read(int32_t pid, int32_t tid, struct sp_stat *out)
{
	char path[64];
	struct sp_buf b = {0};
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
	bool ok = sp_file_read(path, 8192, &b, NULL) >= 0;
	const char *text = (const char *)b.data;
	const char *paren = ok ? memrchr(text, ')', b.len) : NULL;
	ok = paren && paren + 2 < text + b.len;
	if (ok)
		*out = (struct sp_stat){
			.state = paren[2],
			.ppid = (int32_t)sp_stat_field(text, b.len, 4),
			.start_ticks = sp_stat_field(text, b.len, 22),
			.flags = sp_stat_field(text, b.len, 9),
			.n_threads = sp_stat_field(text, b.len, 20),
		};
	sp_buf_deinit(&b);
	return ok;
}

/* "123" of a folder of /proc; 0 for other names. */
static int32_t id_name(const char *name)
{
	int64_t v = 0;
	if (!*name)
		return 0;
	for (; *name; name++) {
		if (*name < '0' || *name > '9' || v > INT32_MAX)
			return 0;
		v = v * 10 + (*name - '0');
	}
	return v <= INT32_MAX ? (int32_t)v : 0;
}

/* Adds the names of a folder that are numbers, and closes it. 0, or what failed, an errno. */
static int list_ids(DIR *d, int32_t **ids, size_t *n, size_t *cap)
{
	const struct dirent *e;
	while ((errno = 0, e = readdir(d))) {
		int32_t id = id_name(e->d_name);
		int32_t *slot = id ? SP_PUSH(ids, n, cap) : NULL;
		if (slot)
			*slot = id;
		else if (id)
			errno = ENOMEM;
		if (errno)
			break;
	}
	int os = errno;
	closedir(d);
	return os;
}

int sp_processes_list(int32_t **pids, size_t *n, size_t *cap, struct sp_err *err)
{
	DIR *d = opendir("/proc");
	int os = d ? list_ids(d, pids, n, cap) : errno;
	errno = os;
	return os ? sp_err_errno(err, "cannot list the processes: /proc") : 0;
}

int sp_tasks_list(int32_t pid, int32_t **tids, size_t *n, size_t *cap, struct sp_err *err)
{
	char path[40];
	size_t before = *n;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	if (!d && errno == ENOENT)
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "process %d has ended", pid);
	if (!d)
		return sp_err_errno(err, "cannot list the threads of process %d: %s", pid, path);
	int os = list_ids(d, tids, n, cap);
	if (os && os != ESRCH && os != ENOENT) {
		errno = os;
		return sp_err_errno(err, "cannot list the threads of process %d: %s", pid, path);
	}
	if (*n == before)
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "process %d has ended", pid);
	return 0;
}

bool sp_process_exists(int32_t pid)
{
	struct sp_stat st;
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	if (pid <= 0 || !sp_stat_read(pid, pid, &st))
		return false;
	if (st.state != 'Z')
		return true;
	/* A leader that is a zombie may have threads that run. */
	sp_tasks_list(pid, &tids, &n, &cap, NULL);
	free(tids);
	return n > 1;
}

/* --- descendants --- */

struct family {
	struct sp_process_edge *v; /* owned */
	size_t n, cap;
	struct sp_map64 seen; /* children */
	bool failed;          /* memory has ended */
};

static void family_add(struct family *f, int32_t parent, int32_t child)
{
	if (sp_map64_get(&f->seen, (uint64_t)child) != SP_NOT_FOUND)
		return;
	struct sp_process_edge *e = SP_PUSH(&f->v, &f->n, &f->cap);
	if (e)
		*e = (struct sp_process_edge){parent, child};
	if (!e || !sp_map64_put(&f->seen, (uint64_t)child, 0))
		f->failed = true;
}

/* The children of one thread, by /proc/PID/task/TID/children; false when the kernel has no such
 * file (it is an option of the kernel's build). */
static bool children_of_thread(struct family *f, int32_t pid, int32_t tid)
{
	char path[64];
	struct sp_buf b = {0};
	struct sp_err err = {0};
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, tid);
	bool is_there = sp_file_read(path, 16 << 20, &b, &err) >= 0 || err.os != ENOENT;
	sp_buf_u8(&b, 0);
	for (char *word = b.failed ? NULL : (char *)b.data, *rest; word; word = rest) {
		rest = strchr(word, ' ');
		if (rest)
			*rest++ = 0;
		int32_t child = id_name(word);
		if (child)
			family_add(f, pid, child);
	}
	f->failed |= b.failed;
	sp_buf_deinit(&b);
	return is_there;
}

/* The same from the parents that all processes name. */
static void children_by_scan(struct family *f, int32_t pid)
{
	DIR *d = opendir("/proc");
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		struct sp_stat st;
		int32_t child = id_name(e->d_name);
		if (child && sp_stat_read(child, child, &st) && st.ppid == pid)
			family_add(f, pid, child);
	}
	if (d)
		closedir(d);
}

static int by_child(const void *a, const void *b)
{
	const struct sp_process_edge *x = a, *y = b;
	return (x->child > y->child) - (x->child < y->child);
}

static void children_of(struct family *f, int32_t pid)
{
	int32_t *tids = NULL;
	size_t n_tids = 0, cap = 0, before = f->n;
	if (sp_tasks_list(pid, &tids, &n_tids, &cap, NULL) < 0)
		n_tids = 0;
	for (size_t i = 0; i < n_tids; i++)
		if (!children_of_thread(f, pid, tids[i]) && i == 0 && sp_process_exists(pid)) {
			children_by_scan(f, pid);
			break;
		}
	free(tids);
	if (f->n > before)
		qsort(f->v + before, f->n - before, sizeof *f->v, by_child);
}

static int refuse_id(int32_t pid, struct sp_err *err)
{
	return sp_err_set(err, SP_ERR_INVALID, EINVAL, "%d is not the id of a process", pid);
}

int sp_process_descendants(int32_t pid, struct sp_process_edge **edges, size_t *n,
			   struct sp_err *err)
{
	struct family f = {0};
	if (pid <= 0)
		return refuse_id(pid, err);
	f.failed = !sp_map64_put(&f.seen, (uint64_t)pid, 0);
	children_of(&f, pid);
	for (size_t i = 0; i < f.n && !f.failed; i++)
		children_of(&f, f.v[i].child);
	sp_map64_deinit(&f.seen);
	if (f.failed) {
		free(f.v);
		return sp_err_nomem(err);
	}
	*edges = f.v;
	*n = f.n;
	return 0;
}

/* --- signals, ends --- */

static int send_signal(int32_t pid, int sig, struct sp_err *err)
{
	if (pid <= 0)
		return refuse_id(pid, err);
	if (kill(pid, sig) == 0)
		return 0;
	if (errno == ESRCH)
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "process %d has ended", pid);
	return sp_err_errno(err, "cannot send %s to process %d", sigabbrev_np(sig), pid);
}

int sp_process_interrupt(int32_t pid, struct sp_err *err)
{
	return send_signal(pid, SIGINT, err);
}

int sp_process_kill(int32_t pid, struct sp_err *err)
{
	return send_signal(pid, SIGKILL, err);
}

int sp_exit_watch_open(struct sp_exit_watch *w, int32_t pid, struct sp_err *err)
{
	struct sp_stat st;
	if (pid <= 0)
		return refuse_id(pid, err);
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 && errno != ENOSYS && errno != EPERM && errno != ESRCH)
		return sp_err_errno(err, "cannot watch process %d: pidfd_open", pid);
	if (!sp_stat_read(pid, pid, &st)) {
		if (fd >= 0)
			close(fd);
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "process %d has ended", pid);
	}
	*w = (struct sp_exit_watch){.fd = fd, .pid = pid, .start_ticks = st.start_ticks};
	return 0;
}

static bool has_ended(const struct sp_exit_watch *w)
{
	struct sp_stat st;
	return !sp_stat_read(w->pid, w->pid, &st) || st.start_ticks != w->start_ticks ||
	       !sp_process_exists(w->pid);
}

int sp_exit_watch_wait(struct sp_exit_watch *w, int timeout_ms, struct sp_err *err)
{
	static const int STEP_MS = 20; /* without a pidfd */
	while (!w->ended) {
		bool steps = w->fd < 0 && (timeout_ms < 0 || timeout_ms > STEP_MS);
		struct pollfd p = {.fd = w->fd, .events = POLLIN};
		if (w->fd < 0)
			w->ended = has_ended(w);
		if (w->ended)
			break;
		int n = poll(&p, 1, steps ? STEP_MS : timeout_ms);
		if (n < 0 && errno != EINTR)
			return sp_err_errno(err, "cannot watch process %d: poll", w->pid);
		if (n < 0)
			return 0;
		if (p.revents & (POLLERR | POLLNVAL))
			return sp_err_set(err, SP_ERR_IO, EBADF,
					  "cannot watch process %d: its pidfd is not valid",
					  w->pid);
		w->ended = n > 0 || (w->fd < 0 && has_ended(w));
		if (!steps)
			break;
		if (timeout_ms > 0)
			timeout_ms -= STEP_MS;
	}
	return w->ended;
}

void sp_exit_watch_close(struct sp_exit_watch *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}
