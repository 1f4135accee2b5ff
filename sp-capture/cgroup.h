/* Control groups: finding one by what the user calls it, and who is in it. */
#ifndef CAP_CGROUP_H
#define CAP_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cap_cgroup {
	int fd;     /* owned: its directory, which perf_event_open takes; -1 = none */
	char *path; /* owned: of the directory */
};

/* NAME: an absolute path of its directory, a path below the mount of cgroup v2, or a name or the
 * beginning of an id (6 digits or more) of one container. SP_ERR_GONE: there is none, cure says
 * what there is; SP_ERR_INVALID: several; SP_ERR_UNSUPPORTED: no cgroup v2 here, or it is one of
 * v1. */
int cap_cgroup_open(struct cap_cgroup *g, const char *name, char cure[320], struct sp_err *err);
void cap_cgroup_close(struct cap_cgroup *g);

/* Append the processes in it and in the groups below. */
int cap_cgroup_list(const struct cap_cgroup *g, int32_t **pids, size_t *n, size_t *cap,
		    struct sp_err *err);

/* Whether it was removed. */
bool cap_cgroup_is_gone(const struct cap_cgroup *g);

/* --- the pure part --- */

/* The first mount point of a type of file system ("cgroup2", "cgroup": v1) in mountinfo text,
 * unescaped, into out, and where the text goes on; NULL when there is none. */
const char *cap_cgroup_mount(const char *text, const char *end, const char *type, char *out,
			     size_t size);

#endif
