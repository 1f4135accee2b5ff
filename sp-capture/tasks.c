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

size_t cap_task_count(int32_t pid)
{
	char path[40];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	return stat(path, &st) == 0 && st.st_nlink > 2 ? st.st_nlink - 2 : 0;
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
