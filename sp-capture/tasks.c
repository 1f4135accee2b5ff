#define _GNU_SOURCE
#include "tasks.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "kernel.h"
#include "stacks.h"

#define OPENING_MS 500 /* for what waited in open() to come out of it */

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

bool cap_task_is_foreign(int32_t pid, int32_t tid)
{
	char path[48];
	snprintf(path, sizeof path, "/proc/%d/task/%d", pid, tid);
	if (access(path, F_OK) == 0)
		return false;
	int32_t owner = cap_task_process(tid);
	return owner && owner != pid;
}

/* Whether a thread of the process may be inside of an open(): one that has been let go on is told
 * to be "running", whatever it does. */
static bool may_be_opening(int32_t pid)
{
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	bool found = false;
	if (sp_tasks_list(pid, &tids, &n, &cap, NULL) < 0)
		n = 0;
	for (size_t i = 0; i < n && !found; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, tids[i]);
		int64_t number = cap_number_read(path);
		found = number == CAP_UNKNOWN || number == SYS_openat || number == SYS_openat2;
#ifdef SYS_open
		found |= number == SYS_open;
#endif
	}
	free(tids);
	return found;
}

/* A fifo with a name, that others can open. */
static bool is_named_fifo(int fd)
{
	char path[40], name[8] = {0};
	struct stat st;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
	       readlink(path, name, sizeof name - 1) > 0 && memcmp(name, "pipe:[", 6) != 0;
}

bool cap_task_gets_pipe(int32_t pid, int fd)
{
	bool named = is_named_fifo(fd);
	for (int ms = 0; named && ms < OPENING_MS && may_be_opening(pid); ms++) {
		if (cap_task_has_pipe(pid, fd))
			return true;
		poll(NULL, 0, 1);
	}
	return cap_task_has_pipe(pid, fd);
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

int cap_task_maps(int32_t pid, size_t max, struct sp_buf *out, struct sp_err *err)
{
	char path[64];
	int32_t *tids = NULL;
	size_t n = 0, cap = 0, before = out->len;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	int rc = sp_file_read(path, max, out, err);
	if (rc < 0 || out->len > before)
		return rc;
	sp_tasks_list(pid, &tids, &n, &cap, NULL);
	for (size_t i = 0; n > 1 && i < n && out->len == before; i++) {
		snprintf(path, sizeof path, "/proc/%d/task/%d/maps", pid, tids[i]);
		if (tids[i] != pid)
			sp_file_read(path, max, out, NULL);
	}
	free(tids);
	return rc;
}
