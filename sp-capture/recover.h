/* After a loss: what the lost records said is read from /proc again. */
#ifndef CAP_RECOVER_H
#define CAP_RECOVER_H

#include "session.h"

/* When side-band may have been lost: execs, mappings, names of threads, new descendants and ended
 * processes; at most four times a second unless forced. */
void cap_recover(struct cap_session *s, bool forced);

/* All of that at once, as after enable: nothing was told since sampling was disabled, at sure_ns. */
void cap_recover_all(struct cap_session *s, uint64_t sure_ns);

/* Between two processes, of many: what is done to all takes longer than the rings hold out, and
 * they are drained from time to time. Processes may go meanwhile. */
void cap_recover_keep_up(struct cap_session *s, uint64_t *drained_ns);

/* Forget the processes that are no more, whose last EXIT was not seen. */
void cap_recover_reap(struct cap_session *s);
/* The same with at most n of them, from one on; where to go on the next time. */
size_t cap_recover_reap_some(struct cap_session *s, size_t from, size_t n);

#endif
