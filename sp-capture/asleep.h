/* Threads that wait already when waits begin to count. No switch away of theirs will be seen: their
 * waits are made to begin now. A thread that sleeps all the time of a recording (a deadlock, a
 * stopped process) would not be in it otherwise. */
#ifndef CAP_ASLEEP_H
#define CAP_ASLEEP_H

#include "session.h"

/* All that is recorded, once its switches are. */
void cap_asleep_all(struct cap_session *s);
/* The same of one process. */
void cap_asleep_process(struct cap_session *s, int32_t pid);

#endif
