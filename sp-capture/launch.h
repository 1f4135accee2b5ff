/* A command launched suspended: it waits before exec until the events are open. */
#ifndef CAP_LAUNCH_H
#define CAP_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "stackpulse/process.h"

struct cap_launch {
	pid_t pid;               /* -1 = none */
	struct sp_launch *child; /* owned; NULL = none */
	bool ended;
	int status; /* of waitpid, once ended */
};

/* Remember the signal dispositions and the mask that a command is to be born with: before the stop
 * handlers are installed. */
void cap_launch_prepare(void);

/* stdout_to_stderr: standard output carries the stream. Behind sudo it runs as the user who called
 * sudo. */
int cap_launch_start(struct cap_launch *l, char *const *command, bool stdout_to_stderr,
		     struct sp_err *err);
bool cap_launch_is_suspended(const struct cap_launch *l);
/* Let it run. SP_ERR_IO with err->os when exec failed; it is reaped then. */
int cap_launch_go(struct cap_launch *l, struct sp_err *err);
/* Reap it if it has ended; block: wait until it does. True when ended. A signal may end a blocking
 * wait: the caller decides. */
bool cap_launch_wait(struct cap_launch *l, bool block);
/* Ends one that has not begun; leaves one that runs. */
void cap_launch_close(struct cap_launch *l);

#endif
