/* Times off the CPU in words: the state that a thread was in, and who woke it. */
#ifndef SYM_WAIT_H
#define SYM_WAIT_H

#include "view.h"

/* "sleeping", "disk sleep", "runnable" …, "unknown"; "on CPU" of samples of other events. Static. */
const char *wait_state(const struct view *v, const struct view_row *row);
/* The waker's name; "[interrupt]", "[nobody]" (it could have run all the time), "[unknown]", "[on
 * CPU]". Valid as the spool's own texts are. */
const char *wait_waker(const struct view *v, const struct view_row *row);
/* The name of a known waker: tid not 0. */
const char *wait_comm(const struct sp_spool_wait *w);

#endif
