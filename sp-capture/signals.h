/* Signals that another process sent us go on to the launched command; those of the terminal reach
 * it by themselves. */
#ifndef CAP_SIGNALS_H
#define CAP_SIGNALS_H

#include <stdbool.h>
#include <sys/types.h>

/* After sp_stop_install: its handlers run behind these. */
void cap_signals_install(void);

/* Pass on what came since the last call. True when there was something. */
bool cap_signals_forward(pid_t pid);

#endif
