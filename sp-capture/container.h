/* What the path of a control group says about the container in it. Pure. */
#ifndef CAP_CONTAINER_H
#define CAP_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>

struct cap_container {
	const char *runtime; /* "docker", "podman", …; static */
	const char *id;      /* in the text; id_len 0 = none is told */
	size_t id_len;
	const char *name; /* in the text; name_len 0 = none is told */
	size_t name_len;
};

/* One component of a path: "docker-<64 hex>.scope", "libpod-…", "cri-containerd-…", "crio-…",
 * "lxc.payload.NAME", "machine-NAME.scope", "SLICE:docker:<64 hex>", …, or 64 hex digits alone. */
bool cap_container_component(const char *text, size_t len, struct cap_container *out);

/* The innermost container of a path. */
bool cap_container_path(const char *path, size_t len, struct cap_container *out);

/* The name, as it was before systemd escaped it ("a\x2db" was "a-b"); its length, size at most. */
size_t cap_container_name(const struct cap_container *c, char *out, size_t size);

/* The path that is worth telling in the text of /proc/PID/cgroup: that of v2 with a container in
 * it, else the first of v1 with one, else that of v2 when it is not the root. False when there is
 * none. */
bool cap_container_of_proc(const char *text, size_t len, const char **path, size_t *path_len);

#endif
