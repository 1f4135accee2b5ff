/* What each exec was called with, out of the new program's own stack: a process that ends at once
 * has no /proc/PID/cmdline any more when somebody looks.
 *
 * The tracepoint sched:sched_process_exec fires when the new image is in place, its arguments on
 * top of its stack (fs/exec.c, exec_binprm; Linux 6.1). An event on it copies registers and the
 * stack's first bytes, on each CPU into a small ring of its own, so that nothing of the recording
 * has to make room. Between the pointers to the arguments and these lies a random gap of up to 8
 * KiB; where that holds a page that nobody touched, the kernel's copy ends there, and /proc is
 * looked at: each exec wakes us, which mostly is in time.
 *
 * It needs root (or CAP_PERFMON) and tracefs; without them /proc is all there is. */
#ifndef CAP_EXECS_H
#define CAP_EXECS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmdlines.h"
#include "events.h"
#include "ring.h"

struct cap_execs {
	struct cap_ring *rings; /* owned; NULL: there is no such event here */
	size_t n, cap;
	int64_t id; /* of the tracepoint */
	struct sp_buf args;
};

/* Execs on all CPUs; or none, without an error. */
void cap_execs_open(struct cap_execs *x, const struct cap_sampler *s);
/* Those on a CPU that came, or came back: what waited in its ring is gone. */
void cap_execs_reopen(struct cap_execs *x, const struct cap_sampler *s, uint32_t cpu);
void cap_execs_close(struct cap_execs *x);

/* Queue those that are new; their number. Each has a record in the ring of its CPU already, if it
 * is of a process that is recorded: the events see the execs of all processes. */
int cap_execs_scan(struct cap_execs *x, struct sp_err *err);
/* What was queued: that of wanted processes to those whose markers are to come. */
void cap_execs_take(struct cap_execs *x, struct cap_cmdlines *c,
		    bool (*wants)(void *arg, int32_t pid), void *arg);

/* --- the pure part --- */

/* The arguments, each with its NUL, that lie on a new program's stack: n bytes from sp on, words of
 * 8 or 4 bytes (System V ABI, "Initial Process Stack"). False when they do not all lie in it. */
bool cap_execs_args(const uint8_t *stack, size_t n, uint64_t sp, size_t word, struct sp_buf *out);

#endif
