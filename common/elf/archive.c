#include "elf/archive.h"

#include <bzlib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "elf/elf_file.h"

#define BLOCK 512u
#define ROOM ((size_t)256 << 10)
#define NAME_BYTES 4096u
#define UNPACKED_MAX (UINT64_C(16) << 30) /* some KB of bzip2 can make as much */

struct member {
	struct sp_build_id id;
	const char *name; /* of known_names */
	struct sp_buf data;
};

struct tarball {
	char *path; /* owned */
	bool tried;
	char problem[200];
};

struct sp_archives {
	pthread_mutex_t lock;
	struct tarball *tarballs; /* owned */
	size_t n_tarballs, cap_tarballs;
	struct member *members; /* owned; of all tarballs tried so far */
	size_t n_members, cap_members, kept_bytes;
};

static const char *const known_names[] = {"elf", "vdso", "kallsyms"};

void sp_archives_free(struct sp_archives *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->n_tarballs; i++)
		free(a->tarballs[i].path);
	for (size_t i = 0; i < a->n_members; i++)
		sp_buf_deinit(&a->members[i].data);
	free(a->tarballs);
	free(a->members);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

bool sp_archives_add(struct sp_archives **all, const char *path)
{
	struct sp_archives *a = *all ? *all : calloc(1, sizeof *a);
	if (!a)
		return false;
	if (!*all)
		pthread_mutex_init(&a->lock, NULL);
	*all = a;
	char *copy = strdup(path);
	struct tarball *t = copy ? SP_PUSH(&a->tarballs, &a->n_tarballs, &a->cap_tarballs) : NULL;
	if (!t) {
		free(copy);
		return false;
	}
	t->path = copy;
	return true;
}

/* --- tar: POSIX ustar and GNU, which differ in how they write long names --- */

struct unpack {
	struct sp_archives *a;
	uint8_t header[BLOCK];
	size_t n_header;
	uint64_t body, padding; /* bytes to come */
	bool to_name, ended;
	size_t keep; /* index of the member that the body belongs to, or SIZE_MAX */
	char long_name[NAME_BYTES]; /* of the next member: GNU's 'L' */
	size_t n_long_name;
};

/* Octal digits, or GNU's base 256 with the top bit set. */
static uint64_t tar_number(const uint8_t *p, size_t n)
{
	uint64_t v = 0;
	if (*p & 0x80) {
		for (size_t i = n - 8; i < n; i++)
			v = v << 8 | p[i];
		return v;
	}
	for (size_t i = 0; i < n && p[i] && v < UINT64_MAX / 8; i++)
		if (p[i] >= '0' && p[i] <= '7')
			v = v * 8 + (uint64_t)(p[i] - '0');
	return v;
}

/* The sum of a header's bytes, its own field taken as blanks. */
static bool header_holds(const uint8_t *h)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	return sum == tar_number(h + 148, 8);
}

static bool hex_id(const char *s, size_t len, struct sp_build_id *id)
{
	if (len < 8 || len % 2 || len / 2 > SP_BUILD_ID_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		const char *digits = "0123456789abcdef", *d = strchr(digits, s[i]);
		if (!d || !*d)
			return false;
		unsigned half = (unsigned)(d - digits);
		id->bytes[i / 2] = (uint8_t)(i % 2 ? id->bytes[i / 2] | half : half << 4);
	}
	id->len = (uint8_t)(len / 2);
	return true;
}

/* …/HEX/elf and the like, or …/HEX: which file of which build-id, or NULL. */
static const char *file_of_id(const char *path, struct sp_build_id *id)
{
	const char *last = strrchr(path, '/');
	if (!last)
		return NULL;
	if (hex_id(last + 1, strlen(last + 1), id))
		return known_names[0];
	const char *before = last;
	while (before > path && before[-1] != '/')
		before--;
	for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++)
		if (!strcmp(last + 1, known_names[i]))
			return hex_id(before, (size_t)(last - before), id) ? known_names[i] : NULL;
	return NULL;
}

static void member_path(const struct unpack *u, char out[NAME_BYTES])
{
	const char *h = (const char *)u->header;
	bool has_prefix = !memcmp(h + 257, "ustar", 6) && h[345];
	if (u->n_long_name)
		snprintf(out, NAME_BYTES, "%.*s", (int)u->n_long_name, u->long_name);
	else
		snprintf(out, NAME_BYTES, "%.*s%s%.100s", has_prefix ? 155 : 0, h + 345,
			 has_prefix ? "/" : "", h);
}

/* A whole header: 0, SP_ERR_CORRUPT, SP_ERR_LIMIT or SP_ERR_NOMEM. */
static int on_header(struct unpack *u, struct sp_err *err)
{
	static const uint8_t zeros[BLOCK];
	const uint8_t *h = u->header;
	u->n_header = 0;
	if (!memcmp(h, zeros, BLOCK)) {
		u->ended = true;
		return 0;
	}
	if (!header_holds(h))
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "is no tar archive, or is damaged");
	u->body = tar_number(h + 124, 12);
	u->padding = (BLOCK - u->body % BLOCK) % BLOCK;
	u->to_name = h[156] == 'L' && u->body < NAME_BYTES;
	u->keep = SIZE_MAX;
	if (u->to_name) {
		u->n_long_name = 0;
		return 0;
	}
	char path[NAME_BYTES];
	struct sp_build_id id = {0};
	member_path(u, path);
	u->n_long_name = 0;
	const char *name = h[156] == '0' || !h[156] ? file_of_id(path, &id) : NULL;
	if (!name || !u->body)
		return 0;
	if (u->body > SP_ARCHIVE_MAX - u->a->kept_bytes)
		return sp_err_set(err, SP_ERR_LIMIT, 0, "holds more than %zu MiB of files",
				  SP_ARCHIVE_MAX >> 20);
	struct sp_archives *a = u->a;
	struct member *m = SP_PUSH(&a->members, &a->n_members, &a->cap_members);
	if (!m)
		return sp_err_nomem(err);
	m->id = id;
	m->name = name;
	u->keep = a->n_members - 1;
	return 0;
}

static int on_body(struct unpack *u, const uint8_t *p, size_t n, struct sp_err *err)
{
	if (u->to_name) {
		size_t room = sizeof u->long_name - 1 - u->n_long_name;
		n = n < room ? n : room;
		memcpy(u->long_name + u->n_long_name, p, n);
		u->n_long_name += n;
	} else if (u->keep != SIZE_MAX) {
		struct sp_buf *b = &u->a->members[u->keep].data;
		sp_buf_add(b, p, n);
		if (b->failed)
			return sp_err_nomem(err);
		u->a->kept_bytes += n;
	}
	return 0;
}

static int on_bytes(struct unpack *u, const uint8_t *p, size_t n, struct sp_err *err)
{
	int rc = 0;
	while (n && rc == 0 && !u->ended) {
		size_t part;
		if (u->body) {
			part = u->body < n ? (size_t)u->body : n;
			rc = on_body(u, p, part, err);
			u->body -= part;
		} else if (u->padding) {
			part = u->padding < n ? (size_t)u->padding : n;
			u->padding -= part;
		} else {
			part = BLOCK - u->n_header < n ? BLOCK - u->n_header : n;
			memcpy(u->header + u->n_header, p, part);
			u->n_header += part;
			if (u->n_header == BLOCK)
				rc = on_header(u, err);
		}
		p += part;
		n -= part;
	}
	return rc;
}

/* --- bzip2 --- */

/* One stream or several in a row, as parallel packers write them. */
static int unpack_bzip2(struct unpack *u, const struct sp_map_file *map, uint8_t *room,
			struct sp_err *err)
{
	bz_stream z = {0};
	size_t at = 0;
	uint64_t made = 0;
	int rc = 0, got = BZ_STREAM_END;
	bool open = false;
	while (rc == 0 && !u->ended) {
		if (got == BZ_STREAM_END) {
			at -= z.avail_in;
			if (open)
				BZ2_bzDecompressEnd(&z);
			z = (bz_stream){0};
			open = at < map->size && BZ2_bzDecompressInit(&z, 0, 0) == BZ_OK;
			if (!open)
				break;
		}
		if (!z.avail_in && at < map->size) {
			size_t part = map->size - at < ROOM ? map->size - at : ROOM;
			z.next_in = (char *)(uintptr_t)(map->data + at); /* it only reads there */
			z.avail_in = (unsigned)part;
			at += part;
		}
		z.next_out = (char *)room;
		z.avail_out = (unsigned)ROOM;
		got = BZ2_bzDecompress(&z);
		size_t n = ROOM - z.avail_out;
		made += n;
		if (got != BZ_OK && got != BZ_STREAM_END)
			rc = sp_err_set(err, SP_ERR_CORRUPT, 0, "cannot be unpacked (bzip2: %d)",
					got);
		else if (made > UNPACKED_MAX)
			rc = sp_err_set(err, SP_ERR_LIMIT, 0, "unpacks to more than 16 GiB");
		else if (got == BZ_OK && !n && !z.avail_in && at == map->size)
			rc = sp_err_set(err, SP_ERR_CORRUPT, 0, "ends too early");
		else
			rc = on_bytes(u, room, n, err);
	}
	if (open)
		BZ2_bzDecompressEnd(&z);
	return rc;
}

static int unpack_tarball(struct sp_archives *a, const char *path, struct sp_err *err)
{
	struct sp_map_file map;
	int rc = sp_map_file_open(&map, path, err);
	if (rc < 0)
		return rc;
	struct unpack *u = calloc(1, sizeof *u);
	uint8_t *room = malloc(ROOM);
	if (!u || !room) {
		rc = sp_err_nomem(err);
	} else {
		u->a = a;
		u->keep = SIZE_MAX;
		if (map.size >= 4 && !memcmp(map.data, "BZh", 3))
			rc = unpack_bzip2(u, &map, room, err);
		else
			rc = on_bytes(u, map.data, map.size, err);
		if (rc == 0 && !u->ended)
			rc = sp_err_set(err, SP_ERR_CORRUPT, 0, "ends too early");
		/* A member that is not whole is no file. */
		if (u->body && u->keep != SIZE_MAX) {
			a->kept_bytes -= a->members[u->keep].data.len;
			sp_buf_deinit(&a->members[u->keep].data);
			a->n_members--;
		}
	}
	free(room);
	free(u);
	sp_map_file_close(&map);
	return rc;
}

int sp_archives_is_tarball(const char *path, struct sp_err *err)
{
	uint8_t head[BLOCK];
	struct stat st;
	if (stat(path, &st) < 0 || (S_ISDIR(st.st_mode) && access(path, X_OK) < 0))
		return sp_err_errno(err, "cannot open %s", path);
	if (S_ISDIR(st.st_mode))
		return 0;
	int fd = sp_file_open(path, 0, err);
	if (fd < 0)
		return fd;
	ssize_t n = sp_fd_read(fd, head, sizeof head, path, err);
	close(fd);
	if (n < 0)
		return (int)n;
	if ((n >= 4 && !memcmp(head, "BZh", 3)) || (n == BLOCK && header_holds(head)))
		return 1;
	return sp_err_set(err, SP_ERR_INVALID, 0,
			  "%s is neither a folder nor a tarball of perf archive", path);
}

/* --- asking --- */

/* Recordings and perf's cache pad short build-ids with zeros, or do not. */
static bool same_id(const struct sp_build_id *a, const struct sp_build_id *b)
{
	return sp_build_id_recorded(a, b) || sp_build_id_recorded(b, a);
}

static const struct member *member_of(const struct sp_archives *a, size_t first,
				      const struct sp_build_id *id, const char *name)
{
	for (size_t i = first; i < a->n_members; i++)
		if (same_id(&a->members[i].id, id) && !strcmp(a->members[i].name, name))
			return &a->members[i];
	return NULL;
}

static int find_locked(struct sp_archives *a, const struct sp_build_id *id, const char *name,
		       const struct member **out, char why[200], struct sp_err *err)
{
	*out = member_of(a, 0, id, name);
	for (size_t i = 0; !*out && i < a->n_tarballs; i++) {
		struct tarball *t = &a->tarballs[i];
		size_t first = a->n_members;
		struct sp_err bad;
		int rc = t->tried ? 0 : unpack_tarball(a, t->path, &bad);
		t->tried = true;
		if (rc == SP_ERR_NOMEM)
			return sp_err_nomem(err);
		if (rc < 0)
			snprintf(t->problem, sizeof t->problem, "%.100s: %.90s", t->path, bad.msg);
		*out = member_of(a, first, id, name);
		if (!*out && t->problem[0])
			memcpy(why, t->problem, sizeof t->problem);
	}
	return *out != NULL;
}

int sp_archives_find(struct sp_archives *a, const struct sp_build_id *id, const char *name,
		     const uint8_t **data, size_t *size, char why[200], struct sp_err *err)
{
	if (!a || !a->n_tarballs || id->len < 4)
		return 0;
	const struct member *m = NULL;
	pthread_mutex_lock(&a->lock);
	int rc = find_locked(a, id, name, &m, why, err);
	if (rc == 1) {
		*data = m->data.data;
		*size = m->data.len;
	}
	pthread_mutex_unlock(&a->lock);
	return rc;
}

const char *sp_archives_problem(const struct sp_archives *a, size_t i)
{
	for (size_t k = 0; a && k < a->n_tarballs; k++)
		if (a->tarballs[k].problem[0] && i-- == 0)
			return a->tarballs[k].problem;
	return NULL;
}
