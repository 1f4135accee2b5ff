/* Reading processes and threads from /proc. */
#ifndef CAP_TASKS_H
#define CAP_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cap_stat {
	char state; /* R, S, D, T, t, Z, … */
	int32_t ppid;
	uint64_t start_ticks; /* since boot; with the pid, a process's identity */
};

/* /proc/PID/task/TID/stat; false when the thread is gone. */
bool cap_stat_read(int32_t pid, int32_t tid, struct cap_stat *out);

/* The process that a thread belongs to; 0 when it is gone. */
int32_t cap_task_process(int32_t tid);

/* Append the threads of a process, in the order of /proc. SP_ERR_GONE when it has none. */
int cap_tasks_list(int32_t pid, int32_t **tids, size_t *n, size_t *cap, struct sp_err *err);

/* Append all living descendants of pid, parents before children; each once. */
int cap_descendants_list(int32_t pid, int32_t **pids, size_t *n, size_t *cap, struct sp_err *err);

/* Whether a process holds the pipe open that our descriptor fd is an end of. */
bool cap_task_has_pipe(int32_t pid, int fd);

/* The thread's name into comm (64 bytes); "" when it is gone. */
void cap_task_comm(int32_t pid, int32_t tid, char comm[64]);

/* Whether a process still runs: it is there, and no zombie, or has threads left. */
bool cap_is_alive(int32_t pid);

#endif
