#define _GNU_SOURCE
#include "container.h"

#include <string.h>

#define ID_DIGITS 64u /* of docker, podman, containerd and cri-o alike */

/* What stands before an id or a name, and which of them follows. */
static const struct {
	const char *before, *runtime;
	bool is_name;
} marks[] = {
	{"docker-", "docker", false},
	{"libpod-conmon-", NULL, false}, /* the monitor, not the container */
	{"libpod-", "podman", false},
	{"cri-containerd-", "containerd", false},
	{"nerdctl-", "containerd", false},
	{"crio-conmon-", NULL, false},
	{"crio-", "cri-o", false},
	{"lxc.payload.", "lxc", true},
	{"lxc.payload:", "lxc", true},
	{"machine-qemu", NULL, true}, /* a virtual machine of libvirt */
	{"machine-lxc", "lxc", true},
	{"machine-", "machine", true},
	{"systemd-nspawn@", "nspawn", true},
};

static bool is_id(const char *text, size_t len)
{
	if (len != ID_DIGITS)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
			return false;
	return true;
}

static size_t cut_suffix(const char *text, size_t len, const char *suffix)
{
	size_t n = strlen(suffix);
	return len > n && !memcmp(text + len - n, suffix, n) ? len - n : len;
}

/* "system.slice:docker:ID": what a runtime that was told of systemd's units makes of plain folders. */
static bool by_colons(const char *text, size_t len, struct cap_container *out)
{
	const char *id = memrchr(text, ':', len);
	size_t before = id ? (size_t)(id - text) : 0;
	const char *what = before ? memrchr(text, ':', before) : NULL;
	if (!what++ || !is_id(id + 1, len - before - 1))
		return false;
	*out = (struct cap_container){
		.runtime = "container", .id = id + 1, .id_len = len - before - 1};
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		size_t n = strlen(marks[i].before) - 1;
		if (marks[i].runtime && !marks[i].is_name && (size_t)(id - what) == n &&
		    !memcmp(what, marks[i].before, n))
			out->runtime = marks[i].runtime;
	}
	return true;
}

bool cap_container_component(const char *text, size_t len, struct cap_container *out)
{
	len = cut_suffix(text, len, ".scope");
	len = cut_suffix(text, len, ".service");
	if (is_id(text, len)) {
		*out = (struct cap_container){.runtime = "container", .id = text, .id_len = len};
		return true;
	}
	if (by_colons(text, len, out))
		return true;
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		size_t n = strlen(marks[i].before);
		if (len <= n || memcmp(text, marks[i].before, n) != 0)
			continue;
		if (!marks[i].runtime || (!marks[i].is_name && !is_id(text + n, len - n)))
			return false;
		*out = (struct cap_container){.runtime = marks[i].runtime};
		if (marks[i].is_name) {
			out->name = text + n;
			out->name_len = len - n;
		} else {
			out->id = text + n;
			out->id_len = len - n;
		}
		return true;
	}
	return false;
}

/* What the folders around say of a bare id: /docker/ID, /kubepods/…/ID, /lxc/NAME. */
static const char *around(const char *path, size_t len, const char *runtime)
{
	if (memmem(path, len, "/docker/", 8))
		return "docker";
	if (memmem(path, len, "kubepods", 8))
		return "kubernetes";
	if (memmem(path, len, "/libpod_parent/", 15))
		return "podman";
	return runtime;
}

bool cap_container_path(const char *path, size_t len, struct cap_container *out)
{
	bool found = false;
	for (size_t at = 0; at < len;) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - (path + at)) : len - at;
		struct cap_container c;
		if (n && cap_container_component(path + at, n, &c)) {
			if (c.id_len == n)
				c.runtime = around(path, at, c.runtime);
			*out = c;
			found = true;
		} else if (n && at >= 5 && !memcmp(path + at - 5, "/lxc/", 5)) {
			*out = (struct cap_container){
				.runtime = "lxc", .name = path + at, .name_len = n};
			found = true;
		}
		at += n + 1;
	}
	return found;
}

static unsigned digit_of(char c)
{
	unsigned letter = (unsigned)(c | 32) - 'a';
	return c >= '0' && c <= '9' ? (unsigned)(c - '0') : letter < 6 ? letter + 10 : 16;
}

size_t cap_container_name(const struct cap_container *c, char *out, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < c->name_len && n < size; i++) {
		const char *p = c->name + i;
		if (c->name_len - i >= 4 && p[0] == '\\' && p[1] == 'x' && digit_of(p[2]) < 16 &&
		    digit_of(p[3]) < 16) {
			out[n++] = (char)(digit_of(p[2]) << 4 | digit_of(p[3]));
			i += 3;
		} else {
			out[n++] = *p;
		}
	}
	return n;
}

bool cap_container_of_proc(const char *text, size_t len, const char **path, size_t *path_len)
{
	enum { NOTHING, GROUP, CONTAINER_V1, CONTAINER } best = NOTHING;
	const char *end = text + len;
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		const char *stop = nl ? nl : end;
		/* hierarchy:controllers:path; the path may hold colons */
		const char *a = memchr(text, ':', (size_t)(stop - text));
		const char *b = a ? memchr(a + 1, ':', (size_t)(stop - a - 1)) : NULL;
		struct cap_container c;
		if (b && stop - b > 2) {
			bool is_v2 = a - text == 1 && *text == '0' && b == a + 1;
			size_t n = (size_t)(stop - (b + 1));
			bool has = cap_container_path(b + 1, n, &c);
			unsigned is = has && is_v2 ? CONTAINER
				      : has        ? CONTAINER_V1
				      : is_v2      ? GROUP
						   : 0;
			if (is > best) {
				*path = b + 1;
				*path_len = n;
				best = is;
			}
		}
		text = stop + 1;
	}
	return best != NOTHING;
}
