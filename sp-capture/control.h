/* --control: commands from a fifo while recording. One a line:
 *
 *   enable | disable        sampling on and off; what was mapped meanwhile is read on enable
 *   add PID                 one more process
 *   refresh PID             read its mappings and threads' names again; with -f attach descendants
 *   summary                 counters so far
 *   stop                    end the recording
 *
 * Each is answered by one line on standard error. */
#ifndef CAP_CONTROL_H
#define CAP_CONTROL_H

#include "session.h"

struct cap_control {
	int fd;           /* owned; -1 = none */
	bool made;        /* the fifo is ours to remove */
	const char *path; /* borrowed */
	char line[256];
	size_t n;
	bool too_long;
};

/* Open path, made when it is not there; nothing but a fifo will do. */
int cap_control_open(struct cap_control *c, const char *path, struct sp_err *err);
void cap_control_close(struct cap_control *c);

enum cap_command { CAP_ENABLE, CAP_DISABLE, CAP_ADD, CAP_REFRESH, CAP_SUMMARY, CAP_STOP, CAP_BAD };

/* The next whole line as a command (*pid for add and refresh); false when there is none yet. */
bool cap_control_next(struct cap_control *c, enum cap_command *what, int32_t *pid);

/* --- the pure part --- */
enum cap_command cap_command_parse(const char *line, int32_t *pid);

#endif
