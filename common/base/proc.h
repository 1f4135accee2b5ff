/* Reading processes and threads from /proc. What embedders need of it is in stackpulse/process.h. */
#ifndef SP_BASE_PROC_H
#define SP_BASE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct sp_stat {
	char state; /* R, S, D, T, t, Z, … */
	int32_t ppid;
	uint64_t start_ticks; /* since boot; with the pid, a process's identity */
	uint64_t flags;       /* PF_* of the kernel's sched.h */
	uint64_t n_threads;   /* of the process */
};

#define SP_PF_KTHREAD UINT64_C(0x00200000)

/* /proc/PID/task/TID/stat; false when the thread is gone. */
bool sp_stat_read(int32_t pid, int32_t tid, struct sp_stat *out);

/* A number of the text of a stat file by its field, as proc(5) counts them; 0 when absent or
 * hidden. Fields are counted after the last ')': a name may hold anything. */
uint64_t sp_stat_field(const char *text, size_t len, unsigned field);

/* Append all processes there are now. */
int sp_processes_list(int32_t **pids, size_t *n, size_t *cap, struct sp_err *err);

/* Append the threads of a process, in the order of /proc. SP_ERR_GONE when it has none. */
int sp_tasks_list(int32_t pid, int32_t **tids, size_t *n, size_t *cap, struct sp_err *err);

#endif
