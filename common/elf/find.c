#define _GNU_SOURCE
#include "elf/find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "elf/content_hash.h"
#include "elf/zip.h"

#define PATH_SIZE 8192
#define IMAGE_STEP 4096u
#define IMAGE_BACK                                                                                 \
	(UINT64_C(256) << 20) /* how far below a mapping an archive's image may begin              \
			       */
static const char deleted[] = " (deleted)";

/* How far a candidate is believed. */
enum trust {
	TRUST_NOTHING, /* identity must be confirmed */
	TRUST_PATH,    /* it is what the path names: enough when there is nothing to compare */
	TRUST_CHOICE,  /* the user chose it: inode numbers of a copy say nothing */
	TRUST_KERNEL,  /* the kernel's link to what is mapped there: its device need not agree */
};

struct search {
	const struct sp_file_query *q;
	struct sp_elf *out;
	enum sp_found best;
	char *why; /* the caller's; of the best result so far */
};

static size_t old_len(const char *old, size_t len)
{
	while (len > 1 && old[len - 1] == '/')
		len--;
	return len;
}

bool sp_path_map(const struct sp_find_options *o, const char *path, char *out, size_t size)
{
	const char *best = NULL;
	size_t best_len = 0;
	for (size_t i = 0; i < o->n_path_maps; i++) {
		const char *old = o->path_maps[i], *eq = strchr(old, '=');
		if (!eq || eq == old)
			continue;
		size_t len = old_len(old, (size_t)(eq - old));
		bool fits = !strncmp(path, old, len) &&
			    (!path[len] || path[len] == '/' || old[len - 1] == '/');
		if (fits && len > best_len) {
			best = eq + 1;
			best_len = len;
		}
	}
	if (!best)
		return false;
	const char *rest = path + best_len;
	size_t keep = strlen(best);
	while (*rest == '/')
		rest++;
	while (*rest && keep && best[keep - 1] == '/')
		keep--;
	int n = snprintf(out, size, "%.*s%s%s", (int)keep, best, *rest ? "/" : "", rest);
	return n >= 0 && (size_t)n < size;
}

static void verdict(struct search *s, enum sp_found found, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void verdict(struct search *s, enum sp_found found, const char *fmt, ...)
{
	if (found == SP_FOUND_NOTHING && s->best != SP_FOUND_NOTHING)
		return;
	s->best = found;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->why, 200, fmt, ap);
	va_end(ap);
}

/* Device and inode that the kernel shows for a map of a file: one of our own, never touched. */
static bool own_map_identity(int fd, uint32_t *maj, uint32_t *min, uint64_t *ino)
{
	struct sp_buf b = {0};
	bool found = false;
	void *data = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return false;
	if (sp_file_read("/proc/self/maps", 64u << 20, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		char want[32];
		int n = snprintf(want, sizeof want, "%lx-", (unsigned long)(uintptr_t)data);
		for (char *line = b.failed ? NULL : (char *)b.data; line && !found;) {
			unsigned long long i;
			if (!strncmp(line, want, (size_t)n) &&
			    sscanf(line, "%*s %*s %*s %x:%x %llu", maj, min, &i) == 3) {
				*ino = i;
				found = true;
			}
			line = strchr(line, '\n');
			line = line ? line + 1 : NULL;
		}
	}
	sp_buf_deinit(&b);
	munmap(data, 1);
	return found;
}

static bool same_inode(const struct sp_file_query *q, const struct stat *st, int fd,
		       enum trust trust)
{
	bool has_dev = q->maj || q->min;
	if (st->st_ino == q->ino && (!has_dev || trust == TRUST_KERNEL ||
				     (major(st->st_dev) == q->maj && minor(st->st_dev) == q->min)))
		return true;
	uint32_t maj, min;
	uint64_t ino;
	return own_map_identity(fd, &maj, &min, &ino) && ino == q->ino &&
	       (!has_dev || (maj == q->maj && min == q->min));
}

/* The image that a mapping at foff of an archive belongs to: the nearest ELF header below it whose
 * segments reach that far. */
static int image_in_archive(struct sp_elf *e, const struct sp_map_file *map, uint64_t foff)
{
	uint64_t at = foff & ~(uint64_t)(IMAGE_STEP - 1);
	uint64_t stop = at > IMAGE_BACK ? at - IMAGE_BACK : 0;
	for (; at > stop; at -= IMAGE_STEP) {
		if (map->size < 64 || at > map->size - 64 ||
		    memcmp(map->data + at, ELFMAG, SELFMAG) != 0 ||
		    sp_elf_init(e, map->data + at, map->size - at, NULL) < 0)
			continue;
		for (size_t i = 0; i < e->n_segments; i++) {
			const struct sp_segment *s = &e->segments[i];
			if (s->type == PT_LOAD && foff - at < s->foff + s->filesz &&
			    s->filesz <= map->size)
				return 0;
		}
		sp_elf_close(e);
	}
	return SP_ERR_CORRUPT;
}

/* The library that "base.apk!/lib/arm64-v8a/libx.so" names. */
static int member_of_archive(struct sp_elf *e, const struct sp_map_file *map, const char *member,
			     struct sp_err *err)
{
	size_t at, len;
	if (!map->size || !sp_zip_stored(map->data, map->size, member, &at, &len))
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "the archive does not store it");
	int rc = sp_elf_init(e, map->data + at, len, err);
	e->is_member = rc >= 0;
	return rc;
}

#define HEAD_BYTES 4096 /* linkers put header, segments and build-id there */

/* Parse what is mapped; e takes the map over. */
static int parse(struct sp_elf *e, struct sp_map_file *map, int fd, const struct sp_file_query *q,
		 const char *path, const char *member, struct sp_err *err)
{
	uint8_t head[HEAD_BYTES];
	ssize_t n = pread(fd, head, sizeof head, 0);
	bool elf = n >= SELFMAG && !memcmp(head, ELFMAG, SELFMAG);
	struct sp_err why = {.msg = "not an ELF file"};
	int rc = member ? member_of_archive(e, map, member, &why)
		 : elf	? sp_elf_init_head(e, map->data, map->size, head, (size_t)n, &why)
			: image_in_archive(e, map, q->foff);
	if (rc < 0)
		return rc == SP_ERR_NOMEM ? rc : sp_err_set(err, rc, 0, "%s", why.msg);
	e->map = *map;
	*map = (struct sp_map_file){0};
	e->path = strdup(path);
	rc = !e->path ? sp_err_nomem(err)
	     : e->sections_unread && !q->sections_later ? sp_elf_read_sections(e, err)
							: 0;
	if (rc < 0)
		sp_elf_close(e);
	return rc;
}

static bool same_content(const uint8_t *recorded, const struct sp_elf *e)
{
	bool is_whole = e->map.data && !e->is_member;
	return sp_content_is(is_whole ? e->map.data : e->data, is_whole ? e->map.size : e->size,
			     recorded);
}

/* Is the open file the recorded one? Fills s->best and s->why. */
static void judge(struct search *s, struct sp_elf *e, const struct stat *st, int fd,
		  const char *path, enum trust trust)
{
	const struct sp_file_query *q = s->q;
	if (q->build_id.len) {
		char hex[2 * SP_BUILD_ID_MAX + 1];
		sp_build_id_hex(&e->build_id, hex);
		if (sp_build_id_recorded(&q->build_id, &e->build_id))
			verdict(s, SP_FOUND, "%s", "");
		else
			verdict(s, SP_FOUND_OTHER, "%s has %s%.16s", path,
				*hex ? "another build-id: " : "no build-id", hex);
	} else if (q->content_hash) {
		if (same_content(q->content_hash, e))
			verdict(s, SP_FOUND, "%s", "");
		else
			verdict(s, SP_FOUND_OTHER, "%s has another content than the recorded file",
				path);
	} else if (q->ino && trust != TRUST_CHOICE) {
		if (same_inode(q, st, fd, trust))
			verdict(s, SP_FOUND, "%s", "");
		else
			verdict(s, SP_FOUND_OTHER,
				"%s has device %u:%u inode %llu, recorded were %u:%u and %llu",
				path, major(st->st_dev), minor(st->st_dev),
				(unsigned long long)st->st_ino, q->maj, q->min,
				(unsigned long long)q->ino);
	} else if (trust == TRUST_CHOICE && !q->ino) {
		verdict(s, SP_FOUND, "%s", "");
	} else if (trust == TRUST_NOTHING) {
		verdict(s, SP_FOUND_OTHER, "%s: nothing says that it is the recorded file", path);
	} else {
		verdict(s, SP_FOUND_BY_PATH, "%s was taken on its path", path);
	}
}

static bool is_found(const struct search *s)
{
	return s->best == SP_FOUND || s->best == SP_FOUND_BY_PATH;
}

/* A file, or the archive in which it is a member. */
static int open_file(const char *path, const char **member, struct sp_err *why)
{
	*member = NULL;
	int fd = sp_file_open(path, 0, why);
	const char *sep = fd < 0 ? strstr(path, "!/") : NULL;
	if (!sep)
		return fd;
	char archive[PATH_SIZE];
	snprintf(archive, sizeof archive, "%.*s", (int)(sep - path), path);
	*member = sep + 2;
	return sp_file_open(archive, 0, why);
}

/* 1 found, 0 not. */
static int try_file(struct search *s, const char *path, enum trust trust, struct sp_err *err)
{
	struct sp_err why;
	const char *member;
	int fd = open_file(path, &member, &why);
	if (fd < 0) {
		if (why.os != ENOENT && why.os != ENOTDIR)
			verdict(s, SP_FOUND_NOTHING, "%s", why.msg);
		return 0;
	}
	struct stat st;
	struct sp_map_file map;
	int rc = fstat(fd, &st) < 0 ? sp_err_errno(&why, "cannot stat %s", path)
				    : sp_map_file_fd(&map, fd, path, &why);
	if (rc < 0) {
		close(fd);
		verdict(s, SP_FOUND_NOTHING, "%s", why.msg);
		return rc == SP_ERR_NOMEM ? sp_err_nomem(err) : 0;
	}
	struct sp_elf e;
	rc = parse(&e, &map, fd, s->q, path, member, &why);
	sp_map_file_close(&map);
	if (rc >= 0)
		judge(s, &e, &st, fd, path, trust);
	close(fd);
	if (rc < 0) {
		verdict(s, SP_FOUND_NOTHING, "%s: %s", path, why.msg);
		return rc == SP_ERR_NOMEM ? sp_err_nomem(err) : 0;
	}
	if (!is_found(s)) {
		sp_elf_close(&e);
		return 0;
	}
	*s->out = e;
	return 1;
}

/* The kernel writes a newline in a path as \012 in /proc/PID/maps, and nothing else. */
static bool unescape(const char *path, char *out)
{
	if (!strstr(path, "\\012"))
		return false;
	while (*path) {
		if (!strncmp(path, "\\012", 4)) {
			*out++ = '\n';
			path += 4;
		} else {
			*out++ = *path++;
		}
	}
	*out = '\0';
	return true;
}

/* prefix + path, its unescaped form, and without the kernel's mark of deleted files. */
static int try_path(struct search *s, const char *prefix, const char *path, enum trust trust,
		    struct sp_err *err)
{
	char full[PATH_SIZE], plain[PATH_SIZE];
	int n = snprintf(full, sizeof full, "%s%s", prefix, path);
	if (n < 0 || (size_t)n >= sizeof full)
		return 0;
	int rc = try_file(s, full, trust, err);
	if (rc == 0 && unescape(full, plain))
		rc = try_file(s, plain, trust, err);
	size_t len = strlen(full), mark = sizeof deleted - 1;
	if (rc == 0 && len > mark && !strcmp(full + len - mark, deleted)) {
		full[len - mark] = '\0';
		rc = try_file(s, full, trust == TRUST_CHOICE ? trust : TRUST_NOTHING, err);
	}
	return rc;
}

static int try_live(struct search *s, struct sp_err *err)
{
	const struct sp_file_query *q = s->q;
	char path[100];
	int rc = 0;
	/* What the links show may have been mapped later: they help only with an identity. */
	if (q->end && (q->ino || q->build_id.len)) {
		snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", q->live_pid,
			 (unsigned long long)q->start, (unsigned long long)q->end);
		rc = try_file(s, path, TRUST_KERNEL, err);
	}
	if (rc == 0 && (q->ino || q->build_id.len)) {
		/* That the program is another file than this library says nothing about it. */
		char unused[200];
		struct search quiet = {
			.q = q, .out = s->out, .best = SP_FOUND_NOTHING, .why = unused};
		snprintf(path, sizeof path, "/proc/%d/exe", q->live_pid);
		rc = try_file(&quiet, path, TRUST_NOTHING, err);
		if (rc == 1)
			verdict(s, SP_FOUND, "%s", "");
	}
	if (rc == 0 && q->path[0] == '/') {
		snprintf(path, sizeof path, "/proc/%d/root", q->live_pid);
		rc = try_path(s, path, q->path, TRUST_PATH, err);
	}
	return rc;
}

/* Below one folder of build-ids. perf (build_id_cache__linkname in its build-id.c) makes
 * .build-id/xx/yyyy a link to the folder that holds "elf" or "vdso"; before perf 4.10 it was the
 * file itself. Debuggers keep programs there by the same name. */
static int try_cache_dir(struct search *s, const char *dir, const char *hex, struct sp_err *err)
{
	const char *names[] = {s->q->path[0] == '[' ? "/vdso" : "/elf", ""};
	char path[PATH_SIZE];
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++) {
		int n = snprintf(path, sizeof path, "%s/.build-id/%.2s/%s%s", dir, hex, hex + 2,
				 names[i]);
		struct stat st;
		if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
			rc = try_file(s, path, TRUST_NOTHING, err);
	}
	return rc;
}

static int try_cache_dirs(struct search *s, const struct sp_find_options *o,
			  const struct sp_build_id *id, struct sp_err *err)
{
	char hex[2 * SP_BUILD_ID_MAX + 1], cache[PATH_SIZE];
	const char *home = getenv("HOME");
	int rc = 0;
	if (id->len < 2)
		return 0;
	sp_build_id_hex(id, hex);
	for (size_t i = 0; rc == 0 && i < o->n_debug_dirs; i++)
		rc = try_cache_dir(s, o->debug_dirs[i], hex, err);
	if (rc || !home || home[0] != '/')
		return rc;
	int n = snprintf(cache, sizeof cache, "%s/.debug", home);
	return n > 0 && (size_t)n < sizeof cache ? try_cache_dir(s, cache, hex, err) : 0;
}

/* A recording may pad a short build-id with zeros: its folder is named after the true one. */
static int try_caches(struct search *s, const struct sp_find_options *o, struct sp_err *err)
{
	struct sp_build_id id = s->q->build_id;
	int rc = try_cache_dirs(s, o, &id, err);
	uint8_t padded = id.len;
	while (id.len && !id.bytes[id.len - 1])
		id.len--;
	return rc == 0 && id.len != padded ? try_cache_dirs(s, o, &id, err) : rc;
}

/* What perf archive packed. Its members are found by the build-id that they are named after; what
 * they are is compared all the same. */
static int try_archives(struct search *s, struct sp_archives *archives, struct sp_err *err)
{
	const struct sp_file_query *q = s->q;
	const uint8_t *data;
	size_t size;
	char why[200] = "";
	struct sp_elf e;
	int rc = q->build_id.len ? sp_archives_find(archives, &q->build_id,
						    q->path[0] == '[' ? "vdso" : "elf", &data,
						    &size, why, err)
				 : 0;
	if (rc == 0 && why[0])
		verdict(s, SP_FOUND_NOTHING, "%s", why);
	if (rc <= 0 || sp_elf_init(&e, data, size, NULL) < 0)
		return rc < 0 ? rc : 0;
	judge(s, &e, &(struct stat){0}, -1, "the archive's file", TRUST_NOTHING);
	if (!is_found(s)) {
		sp_elf_close(&e);
		return 0;
	}
	*s->out = e;
	return 1;
}

int sp_find_elf(struct sp_elf *out, const struct sp_find_options *o, const struct sp_file_query *q,
		char why[200], struct sp_err *err)
{
	struct search s = {.q = q, .out = out, .best = SP_FOUND_NOTHING, .why = why};
	char mapped[PATH_SIZE];
	why[0] = '\0';
	int rc = 0;
	if (sp_path_map(o, q->path, mapped, sizeof mapped))
		rc = try_path(&s, "", mapped, TRUST_CHOICE, err);
	if (rc == 0 && o->symfs && q->path[0] == '/')
		rc = try_path(&s, o->symfs, q->path, TRUST_CHOICE, err);
	if (rc == 0 && q->live_pid > 0)
		rc = try_live(&s, err);
	if (rc == 0 && q->path[0] == '/')
		rc = try_path(&s, "", q->path, TRUST_PATH, err);
	/* Without a build-id a copy lies below such a folder by its path. */
	size_t n_dirs = q->content_hash && q->path[0] == '/' ? o->n_debug_dirs : 0;
	for (size_t i = 0; rc == 0 && i < n_dirs; i++)
		rc = try_path(&s, o->debug_dirs[i], q->path, TRUST_NOTHING, err);
	if (rc == 0)
		rc = try_caches(&s, o, err);
	if (rc == 0)
		rc = try_archives(&s, o->archives, err);
	if (rc < 0)
		return rc;
	if (s.best == SP_FOUND_NOTHING && !why[0])
		snprintf(why, 200, "no such file");
	return (int)s.best;
}
