/* The control groups and containers that processes ran in, as the recording told them. */
#ifndef SYM_CONTAINER_H
#define SYM_CONTAINER_H

#include "view.h"

struct container { /* strings of the spool, "" where it tells none */
	const char *cgroup, *runtime, *id, *name;
};

struct containers {
	const struct sp_spool *spool; /* borrowed */
	struct sp_map64 by_pid;       /* the marker of a process that came last */
};

int containers_init(struct containers *c, const struct view *v, struct sp_err *err);
void containers_deinit(struct containers *c);

/* False when nothing is known of a process, or when it is in no control group but the root. */
bool containers_find(const struct containers *c, int32_t pid, struct container *out);

/* What a group of samples is called by it: the container's name, else its runtime and the beginning
 * of its id, else the control group. */
void container_name(const struct container *c, struct sp_buf *out);

#endif
