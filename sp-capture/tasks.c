#define _GNU_SOURCE
#include "tasks.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "stacks.h"

bool cap_stat_read(int32_t pid, int32_t tid, struct cap_stat *out)
{
	char path[64];
	struct sp_buf b = {0};
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
	bool ok = sp_file_read(path, 8192, &b, NULL) >= 0;
	const char *text = (const char *)b.data;
	const char *paren = ok ? memrchr(text, ')', b.len) : NULL;
	ok = paren && paren + 2 < text + b.len;
	if (ok)
		*out = (struct cap_stat){
			.state = paren[2],
			.ppid = (int32_t)cap_stat_field(text, b.len, 4),
			.start_ticks = cap_stat_field(text, b.len, 22),
		};
	sp_buf_deinit(&b);
	return ok;
}

int32_t cap_task_process(int32_t tid)
{
	char path[40];
	struct sp_buf b = {0};
	int32_t pid = 0;
	snprintf(path, sizeof path, "/proc/%d/status", tid);
	if (sp_file_read(path, 65536, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		const char *at = b.failed ? NULL : strstr((const char *)b.data, "\nTgid:");
		pid = at ? (int32_t)strtol(at + 6, NULL, 10) : 0;
	}
	sp_buf_deinit(&b);
	return pid;
}

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

int cap_tasks_list(int32_t pid, int32_t **tids, size_t *n, size_t *cap, struct sp_err *err)
{
	char path[40];
	size_t before = *n;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	if (!d && errno == ENOENT)
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "process %d has ended", pid);
	if (!d)
		return sp_err_errno(err, "cannot list the threads of process %d: %s", pid, path);
	for (;;) {
		errno = 0;
		const struct dirent *e = readdir(d);
		if (!e)
			break;
		int32_t tid = id_name(e->d_name);
		int32_t *slot = tid ? SP_PUSH(tids, n, cap) : NULL;
		if (slot)
			*slot = tid;
		else if (tid)
			errno = ENOMEM;
		if (errno)
			break;
	}
	int os = errno;
	closedir(d);
	if (os && os != ESRCH && os != ENOENT) {
		errno = os;
		return sp_err_errno(err, "cannot list the threads of process %d: %s", pid, path);
	}
	if (*n == before)
		return sp_err_set(err, SP_ERR_GONE, ESRCH, "process %d has ended", pid);
	return 0;
}

static bool push_new(int32_t **pids, size_t *n, size_t *cap, int32_t pid)
{
	for (size_t i = 0; i < *n; i++)
		if ((*pids)[i] == pid)
			return true;
	int32_t *slot = SP_PUSH(pids, n, cap);
	if (slot)
		*slot = pid;
	return slot != NULL;
}

/* The children of all threads of pid by /proc/PID/task/TID/children; false when the kernel has no
 * such file (it is an option of the kernel's build). */
static bool children_of(int32_t pid, int32_t **pids, size_t *n, size_t *cap)
{
	int32_t *tids = NULL;
	size_t n_tids = 0, cap_tids = 0;
	bool readable = true;
	if (cap_tasks_list(pid, &tids, &n_tids, &cap_tids, NULL) < 0)
		n_tids = 0;
	for (size_t i = 0; i < n_tids; i++) {
		char path[64];
		struct sp_buf b = {0};
		struct sp_err err = {0};
		snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, tids[i]);
		if (sp_file_read(path, 16 << 20, &b, &err) < 0 && i == 0 && err.os == ENOENT)
			readable = false;
		sp_buf_u8(&b, 0);
		for (char *p = b.failed ? NULL : (char *)b.data, *end; p && *p; p = end) {
			long v = strtol(p, &end, 10);
			if (end == p)
				break;
			if (v > 0 && v <= INT32_MAX)
				push_new(pids, n, cap, (int32_t)v);
		}
		sp_buf_deinit(&b);
	}
	free(tids);
	return readable;
}

/* The same from the parents that all processes name. */
static void children_by_scan(int32_t pid, int32_t **pids, size_t *n, size_t *cap)
{
	DIR *d = opendir("/proc");
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		struct cap_stat st;
		int32_t child = id_name(e->d_name);
		if (child && cap_stat_read(child, child, &st) && st.ppid == pid)
			push_new(pids, n, cap, child);
	}
	if (d)
		closedir(d);
}

int cap_descendants_list(int32_t pid, int32_t **pids, size_t *n, size_t *cap, struct sp_err *err)
{
	size_t from = *n;
	if (!children_of(pid, pids, n, cap))
		children_by_scan(pid, pids, n, cap);
	for (size_t i = from; i < *n; i++)
		if (!children_of((*pids)[i], pids, n, cap))
			children_by_scan((*pids)[i], pids, n, cap);
	return *n > 0 && !*pids ? sp_err_nomem(err) : 0;
}

bool cap_task_has_pipe(int32_t pid, int fd)
{
	char path[300];
	struct stat ours, theirs;
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	DIR *d = fstat(fd, &ours) == 0 && S_ISFIFO(ours.st_mode) ? opendir(path) : NULL;
	const struct dirent *e;
	while (d && !found && (e = readdir(d))) {
		snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, e->d_name);
		found = stat(path, &theirs) == 0 && theirs.st_ino == ours.st_ino &&
			theirs.st_dev == ours.st_dev;
	}
	if (d)
		closedir(d);
	return found;
}

void cap_task_comm(int32_t pid, int32_t tid, char comm[64])
{
	char path[64];
	struct sp_buf b = {0};
	comm[0] = 0;
	snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, tid);
	if (sp_file_read(path, 4096, &b, NULL) >= 0 && b.len) {
		size_t len = b.data[b.len - 1] == '\n' ? b.len - 1 : b.len;
		len = len < 63 ? len : 63;
		memcpy(comm, b.data, len);
		comm[len] = 0;
	}
	sp_buf_deinit(&b);
}

bool cap_is_alive(int32_t pid)
{
	struct cap_stat st;
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	if (!cap_stat_read(pid, pid, &st))
		return false;
	if (st.state != 'Z')
		return true;
	/* A leader that is a zombie may have threads that run. */
	cap_tasks_list(pid, &tids, &n, &cap, NULL);
	free(tids);
	return n > 1;
}
