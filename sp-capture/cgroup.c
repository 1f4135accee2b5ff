#define _GNU_SOURCE
#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "container.h"

#define CGROUP2_MAGIC 0x63677270 /* include/uapi/linux/magic.h */
#define MOUNTS "/proc/self/mountinfo"
#define MOUNTS_MAX (64u << 20)
#define MAX_DEPTH 64u
#define LEAST_DIGITS 6u

const char *cap_cgroup_mount(const char *text, const char *end, const char *type, char *out,
			     size_t size)
{
	char mark[32];
	size_t mark_len = (size_t)snprintf(mark, sizeof mark, " - %s ", type);
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		const char *stop = nl ? nl : end;
		const char *dash = memmem(text, (size_t)(stop - text), mark, mark_len);
		const char *p = text;
		for (int i = 0; i < 4 && p; i++) { /* id, parent, device, root */
			p = memchr(p, ' ', (size_t)(stop - p));
			p = p ? p + 1 : NULL;
		}
		const char *sp = p && dash ? memchr(p, ' ', (size_t)(stop - p)) : NULL;
		if (sp && sp <= dash) {
			size_t n = 0;
			for (; p < sp && n + 1 < size; p++) {
				unsigned c = (unsigned char)*p;
				if (c == '\\' && sp - p >= 4) { /* three octal digits */
					c = (p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0');
					p += 3;
				}
				out[n++] = (char)c;
			}
			out[n] = 0;
			return p == sp ? stop + (nl != NULL) : NULL;
		}
		text = stop + 1;
	}
	return NULL;
}

static int find_mount(char out[PATH_MAX], char cure[320], struct sp_err *err)
{
	struct sp_buf b = {0};
	bool found = sp_file_read(MOUNTS, MOUNTS_MAX, &b, NULL) >= 0 &&
		     cap_cgroup_mount((const char *)b.data, (const char *)b.data + b.len, "cgroup2",
				      out, PATH_MAX);
	sp_buf_deinit(&b);
	if (found)
		return 0;
	snprintf(cure, 320,
		 "mount it: sudo mount -t cgroup2 none /sys/fs/cgroup (or boot with "
		 "systemd.unified_cgroup_hierarchy=1)");
	return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
			  "cannot find a control group: no cgroup v2 is mounted "
			  "(/proc/self/mountinfo names none)");
}

static int open_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* --- search for a container --- */

struct search {
	const char *name;
	size_t len;
	char *found; /* owned: the first hit */
	unsigned n;
	char others[160]; /* names of hits, for the message */
};

static bool matches(const struct search *x, const char *dir)
{
	struct cap_container c;
	char name[256];
	size_t len = strlen(dir);
	if (len == x->len && !memcmp(dir, x->name, len))
		return true; /* nginx.service, wherever it is */
	if (!cap_container_component(dir, len, &c))
		return false;
	if (c.name_len)
		return cap_container_name(&c, name, sizeof name) == x->len &&
		       !memcmp(name, x->name, x->len);
	return x->len >= LEAST_DIGITS && c.id_len >= x->len && !memcmp(c.id, x->name, x->len);
}

static void hit(struct search *x, const char *path, const char *dir)
{
	size_t used = strlen(x->others);
	if (!x->n++)
		x->found = strdup(path);
	snprintf(x->others + used, sizeof x->others - used, "%s%.30s", used ? ", " : "", dir);
}

/* Below a hit nothing is looked for: what runs in a container is its own. */
static void walk(struct search *x, const char *path, unsigned depth)
{
	DIR *d = depth < MAX_DEPTH ? opendir(path) : NULL;
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		char *below;
		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		if (asprintf(&below, "%s/%s", path, e->d_name) < 0)
			break;
		if (matches(x, e->d_name))
			hit(x, below, e->d_name);
		else
			walk(x, below, depth + 1);
		free(below);
	}
	if (d)
		closedir(d);
}

/* Whether a group or container is one of cgroup v1: its folder, owned by the caller, or NULL. */
static char *find_v1(const char *name)
{
	struct search x = {.name = name, .len = strlen(name)};
	struct sp_buf b = {0};
	char mount[PATH_MAX];
	sp_file_read(MOUNTS, MOUNTS_MAX, &b, NULL);
	const char *p = (const char *)b.data, *end = p ? p + b.len : p;
	while (p && !x.found && (p = cap_cgroup_mount(p, end, "cgroup", mount, sizeof mount))) {
		char *path = NULL;
		if (!strchr(name, '/'))
			walk(&x, mount, 0);
		else if (asprintf(&path, "%s/%s", mount, name) < 0)
			break;
		else if (access(path, F_OK) == 0)
			x.found = path;
		else
			free(path);
	}
	sp_buf_deinit(&b);
	return x.found;
}

static int search(struct cap_cgroup *g, const char *mount, const char *name, char cure[320],
		  struct sp_err *err)
{
	struct search x = {.name = name, .len = strlen(name)};
	if (!strchr(name, '/'))
		walk(&x, mount, 0);
	if (x.n == 1 && x.found) {
		g->path = x.found;
		return 0;
	}
	free(x.found);
	if (x.n > 1) {
		snprintf(cure, 320, "give more of the id, or the path below %.200s", mount);
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot record control group %s: %u groups are called so: %s",
				  name, x.n, x.others);
	}
	char *v1 = find_v1(name);
	if (v1) {
		int rc = sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
				    "cannot record control group %s: it is one of cgroup v1 only (%s)",
				    name, v1);
		snprintf(cure, 320,
			 "boot with systemd.unified_cgroup_hierarchy=1, or record its processes: -p "
			 "PID[,PID...]");
		free(v1);
		return rc;
	}
	snprintf(cure, 320,
		 "give a path below %.200s, as `cat /proc/PID/cgroup` shows it, or %u and more "
		 "digits "
		 "of a container's id",
		 mount, LEAST_DIGITS);
	return sp_err_set(err, SP_ERR_GONE, 0,
			  "cannot record control group %s: there is no such group below %s, and no "
			  "such container",
			  name, mount);
}

static bool is_cgroup2(int fd)
{
	struct statfs fs;
	return fstatfs(fd, &fs) == 0 && (unsigned long)fs.f_type == CGROUP2_MAGIC;
}

/* Whether a path has a component "..". */
static bool leaves(const char *path)
{
	for (const char *p = path; (p = strstr(p, "..")); p += 2)
		if ((p == path || p[-1] == '/') && (p[2] == '/' || !p[2]))
			return true;
	return false;
}

/* As a path: with the mount point before it, or below it. */
static int open_path(struct cap_cgroup *g, const char *mount, const char *name)
{
	size_t n = strlen(mount);
	const char *below = name;
	if (!strncmp(name, mount, n) && (name[n] == '/' || !name[n]))
		below = name + n;
	while (*below == '/')
		below++;
	if (leaves(below)) {
		errno = ENOENT;
		return -1;
	}
	if (asprintf(&g->path, "%s/%s", mount, below) < 0) {
		g->path = NULL;
		return -1;
	}
	for (size_t len = strlen(g->path); len > 1 && g->path[len - 1] == '/';)
		g->path[--len] = 0;
	g->fd = open_dir(g->path);
	if (g->fd >= 0)
		return 0;
	free(g->path);
	g->path = NULL;
	return -1;
}

int cap_cgroup_open(struct cap_cgroup *g, const char *name, char cure[320], struct sp_err *err)
{
	char mount[PATH_MAX];
	*g = (struct cap_cgroup){.fd = -1};
	int rc = find_mount(mount, cure, err);
	if (rc < 0)
		return rc;
	if (open_path(g, mount, name) < 0) {
		int os = errno;
		if (os == EACCES)
			return sp_err_set(err, SP_ERR_PERM, os,
					  "cannot record control group %s: %s", name, strerror(os));
		rc = search(g, mount, name, cure, err);
		if (rc < 0)
			return rc;
		g->fd = open_dir(g->path);
	}
	if (g->fd < 0 || !is_cgroup2(g->fd)) {
		rc = sp_err_set(err, SP_ERR_GONE, 0,
				"cannot record control group %s: %s is no directory of cgroup v2",
				name, g->path);
		cap_cgroup_close(g);
		return rc;
	}
	return 0;
}

void cap_cgroup_close(struct cap_cgroup *g)
{
	if (g->fd >= 0)
		close(g->fd);
	free(g->path);
	*g = (struct cap_cgroup){.fd = -1};
}

bool cap_cgroup_is_gone(const struct cap_cgroup *g)
{
	struct stat there, ours;
	return g->fd >= 0 && (fstat(g->fd, &ours) < 0 || stat(g->path, &there) < 0 ||
			      there.st_ino != ours.st_ino);
}

/* --- who is in it --- */

static void members(const char *path, int32_t **pids, size_t *n, size_t *cap)
{
	char *file;
	struct sp_buf b = {0};
	if (asprintf(&file, "%s/cgroup.procs", path) < 0)
		return;
	/* A threaded group refuses the read: its processes are in the group above. */
	if (sp_file_read(file, 64 << 20, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		for (char *p = b.failed ? NULL : (char *)b.data, *end; p && *p; p = end) {
			long v = strtol(p, &end, 10);
			if (end == p)
				break;
			int32_t *slot = v > 0 && v <= INT32_MAX ? SP_PUSH(pids, n, cap) : NULL;
			if (slot)
				*slot = (int32_t)v;
		}
	}
	sp_buf_deinit(&b);
	free(file);
}

static void list_below(const char *path, unsigned depth, int32_t **pids, size_t *n, size_t *cap)
{
	DIR *d = depth < MAX_DEPTH ? opendir(path) : NULL;
	const struct dirent *e;
	members(path, pids, n, cap);
	while (d && (e = readdir(d))) {
		char *below;
		if (e->d_type != DT_DIR || e->d_name[0] == '.' ||
		    asprintf(&below, "%s/%s", path, e->d_name) < 0)
			continue;
		list_below(below, depth + 1, pids, n, cap);
		free(below);
	}
	if (d)
		closedir(d);
}

int cap_cgroup_list(const struct cap_cgroup *g, int32_t **pids, size_t *n, size_t *cap,
		    struct sp_err *err)
{
	if (cap_cgroup_is_gone(g))
		return sp_err_set(err, SP_ERR_GONE, 0, "the control group %s was removed", g->path);
	list_below(g->path, 0, pids, n, cap);
	return 0;
}
