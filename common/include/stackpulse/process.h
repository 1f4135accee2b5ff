/* stackpulse/process.h - the processes that a recorder looks at.
 *
 * For programs that run sp-capture as a child and say what it records: start a command that waits
 * before its first instruction, find a process's descendants, learn of its end. No global state, no
 * signal handlers; nothing is printed. Functions that take an id refuse ids <= 0, which would mean
 * groups of processes (SP_ERR_INVALID).
 *
 *	struct sp_launch *l;
 *	if (sp_launch_new(&l, argv, NULL, &err) < 0) ...
 *	... sp-capture -p sp_launch_pid(l), wait until it records ...
 *	if (sp_launch_resume(l, &err) < 0) ...           // argv[0] can't be run: err.os says why
 *	sp_launch_wait(l, true, &status, &err);
 *	sp_launch_free(l);
 */
#ifndef STACKPULSE_PROCESS_H
#define STACKPULSE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stackpulse/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- launching --- */

struct sp_launch; /* a child: suspended, running or ended. One thread at a time. */

struct sp_launch_options {
	/* "NAME=VALUE" replaces or adds, "NAME" alone removes; ends with NULL. Borrowed until
	 * sp_launch_new returns. The PATH that argv[0] is searched in is the child's. */
	const char *const *env;
	/* Runs in the child just before it becomes the command; < 0 fails the launch with errno.
	 * Only what is allowed between fork and exec belongs there. */
	int (*in_child)(void *arg);
	void *arg;
};

/* Forks a child that waits; it is the process that the command will be. options may be NULL.
 * SIGPIPE is at its default in the child. */
int sp_launch_new(struct sp_launch **out, char *const *argv,
		  const struct sp_launch_options *options, struct sp_err *err);

int32_t sp_launch_pid(const struct sp_launch *l);
bool sp_launch_is_suspended(const struct sp_launch *l);

/* Lets it become the command. When that fails the child is reaped and err->os holds exec's errno.
 * Once. A child that something killed while it waited: 0, and sp_launch_wait shows how it ended. */
int sp_launch_resume(struct sp_launch *l, struct sp_err *err);

/* 1 when it has ended, with *status as waitpid(2) gives it, again and again; 0 when it runs. With
 * block it waits for the end; a signal's handler ends that wait with 0. */
int sp_launch_wait(struct sp_launch *l, bool block, int *status, struct sp_err *err);

/* A child that never ran is ended and reaped; one that runs is left alone. NULL is allowed. */
void sp_launch_free(struct sp_launch *l);

/* --- what runs --- */

/* Whether any thread of the process is there: its leader may be a zombie, and then it counts only
 * when another thread lives. */
bool sp_process_exists(int32_t pid);

struct sp_process_edge {
	int32_t parent, child;
};

/* All living descendants: a list of edges, each child once, parents before their children, brothers
 * by pid. *edges is malloc'd: free() it. Of a process that is gone: none. */
int sp_process_descendants(int32_t pid, struct sp_process_edge **edges, size_t *n,
			   struct sp_err *err);

/* SIGINT and SIGKILL to one process. SP_ERR_GONE when there is none. */
int sp_process_interrupt(int32_t pid, struct sp_err *err);
int sp_process_kill(int32_t pid, struct sp_err *err);

/* --- its end --- */

/* The process that has the pid now, not one that gets it later. */
struct sp_exit_watch {
	int fd; /* owned: a pidfd, readable at the end, for poll(2); -1 on kernels before 5.3 */
	int32_t pid;
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	bool ended;           /* stays */
};

/* SP_ERR_GONE when there is no such process. */
int sp_exit_watch_open(struct sp_exit_watch *w, int32_t pid, struct sp_err *err);
/* 1 when it has ended (a zombie has), 0 when timeout_ms passed (-1 waits for ever) or a signal
 * came. */
int sp_exit_watch_wait(struct sp_exit_watch *w, int timeout_ms, struct sp_err *err);
void sp_exit_watch_close(struct sp_exit_watch *w);

#ifdef __cplusplus
}
#endif

#endif
