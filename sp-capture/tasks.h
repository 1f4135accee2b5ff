/* What a recorder asks of /proc besides base/proc.h. */
#ifndef CAP_TASKS_H
#define CAP_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proc.h"
#include "stackpulse/process.h"

/* The process that a thread belongs to; 0 when it is gone. */
int32_t cap_task_process(int32_t tid);
/* Whether a thread's id, which a list of the process named, is another process's by now. False for
 * one that is gone: by an exec it may live on under the process's id. */
bool cap_task_is_foreign(int32_t pid, int32_t tid);

/* Whether a process holds the pipe open that our descriptor fd is an end of. */
bool cap_task_has_pipe(int32_t pid, int fd);
/* The same of one that may still be opening it: waits until it is out of its open(). */
bool cap_task_gets_pipe(int32_t pid, int fd);

/* The thread's name into comm (64 bytes); "" when it is gone. */
void cap_task_comm(int32_t pid, int32_t tid, char comm[64]);

/* Append /proc/PID/maps, up to max bytes, also when the leader has exited and others run: its own
 * is empty then. What sp_file_read returns. */
int cap_task_maps(int32_t pid, size_t max, struct sp_buf *out, struct sp_err *err);

#endif
