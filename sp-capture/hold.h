/* Holding a target's threads still for a moment, by a process of its own that traces them: when it
 * dies, or we do, the kernel lets them run. Where ptrace is refused, SIGSTOP, and a watchdog in its
 * own session that sends SIGCONT. */
#ifndef CAP_HOLD_H
#define CAP_HOLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define CAP_HOLD_MS 2000

struct cap_hold {
	pid_t keeper;   /* the tracer or watchdog; 0 = nothing is held */
	int fd;         /* closing it lets the target run */
	int32_t pid;    /* the target */
	int pidfd;      /* owned; of the target, when ptrace was refused; or -1 */
	bool by_signal; /* ptrace was refused */
};

/* 1 held; 0 it was stopped already (by others: left alone); SP_ERR_*: not held, and running. The
 * whole hold, this call included, lasts at most CAP_HOLD_MS. */
int cap_hold_begin(struct cap_hold *h, int32_t pid, struct sp_err *err);
/* Let it run; SP_ERR_LIMIT when the time was over before this call. */
int cap_hold_end(struct cap_hold *h, struct sp_err *err);

#endif
