#include "elf/debugfile.h"

#include <libdeflate.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROOT "/usr/lib/debug"
#define MAX_ROOTS 64
#define MAX_PATH 4096

/* What is looked for, and what was refused on the way. */
struct search {
	struct sp_elf *out;
	const struct sp_elf *e;
	const char *dir; /* of the file, without a final slash */
	const char *roots[MAX_ROOTS];
	size_t n_roots, n_given; /* the first n_given are the user's own folders */
	char *env;               /* owned: what roots point into */
	struct sp_debug_dirs dirs;
	char *why;
	char dir_bytes[MAX_PATH];
};

__attribute__((format(printf, 2, 3))) static void refuse(struct search *s, const char *fmt, ...)
{
	if (!s->why || s->why[0])
		return; /* the first reason is the nearest one */
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->why, 200, fmt, ap);
	va_end(ap);
}

/* Each folder once: what the environment names is often given too. */
static void add_root(struct search *s, const char *dir)
{
	bool known = s->n_roots == MAX_ROOTS;
	for (size_t i = 0; i < s->n_roots && !known; i++)
		known = !strcmp(s->roots[i], dir);
	if (!known)
		s->roots[s->n_roots++] = dir;
}

static int start(struct search *s, struct sp_elf *out, const struct sp_elf *e, const char *path,
		 const struct sp_debug_dirs *dirs, char *why, struct sp_err *err)
{
	*s = (struct search){.out = out, .e = e, .why = why};
	if (dirs)
		s->dirs = *dirs;
	if (why)
		why[0] = 0;
	const char *slash = path ? strrchr(path, '/') : NULL;
	size_t len = slash ? (size_t)(slash - path) : 1;
	snprintf(s->dir_bytes, sizeof s->dir_bytes, "%.*s", (int)(len < MAX_PATH ? len : 0),
		 slash ? path : ".");
	s->dir = s->dir_bytes;
	for (size_t i = 0; i < s->dirs.n; i++)
		add_root(s, s->dirs.dirs[i]);
	s->n_given = s->n_roots;
	const char *env = getenv("STACKPULSE_DEBUG_DIRS");
	s->env = strdup(env && *env ? env : DEFAULT_ROOT);
	if (!s->env)
		return sp_err_nomem(err);
	char *save = NULL;
	for (char *p = strtok_r(s->env, ":", &save); p; p = strtok_r(NULL, ":", &save))
		add_root(s, p);
	return 0;
}

static bool is_itself(const struct search *s, const struct sp_elf *found)
{
	return s->e && s->e->map.ino && found->map.ino == s->e->map.ino &&
	       found->map.dev == s->e->map.dev;
}

static bool same_machine(const struct search *s, const struct sp_elf *found)
{
	return !s->e || (found->machine == s->e->machine && found->is64 == s->e->is64 &&
	       found->swap == s->e->swap);
}

/* Opens a candidate into *found; false when there is none or it is no ELF file. */
static bool open_candidate(struct search *s, const char *path, struct sp_elf *found)
{
	struct sp_err why;
	int rc = sp_elf_open(found, path, &why);
	if (rc < 0) {
		if (why.os == 0)
			refuse(s, "%s: %s", path, why.msg);
		return false;
	}
	if (is_itself(s, found)) {
		sp_elf_close(found);
		return false;
	}
	if (!same_machine(s, found)) {
		refuse(s, "debug file %s is for another machine", path);
		sp_elf_close(found);
		return false;
	}
	return true;
}

static bool try_build_id(struct search *s, const char *path, const struct sp_build_id *id)
{
	struct sp_elf found;
	if (!open_candidate(s, path, &found))
		return false;
	if (sp_build_id_equal(&found.build_id, id)) {
		*s->out = found;
		return true;
	}
	refuse(s, "debug file %s has another build-id", path);
	sp_elf_close(&found);
	return false;
}

static bool by_build_id(struct search *s, const struct sp_build_id *id)
{
	char hex[2 * SP_BUILD_ID_MAX + 1], path[MAX_PATH + 200];
	if (id->len < 2)
		return false;
	sp_build_id_hex(id, hex);
	for (size_t i = 0; i < s->n_roots; i++) {
		snprintf(path, sizeof path, "%s/.build-id/%.2s/%s.debug", s->roots[i], hex,
			 hex + 2);
		if (try_build_id(s, path, id))
			return true;
	}
	return false;
}

/* What is brought counts by its build-id, as what lies in a folder. */
static bool by_fetching(struct search *s, const struct sp_build_id *id)
{
	char hex[2 * SP_BUILD_ID_MAX + 1], path[MAX_PATH];
	if (!s->dirs.fetch || id->len < 2)
		return false;
	sp_build_id_hex(id, hex);
	return s->dirs.fetch(s->dirs.fetch_ctx, hex, path, sizeof path) > 0 &&
	       try_build_id(s, path, id);
}

static bool try_debuglink(struct search *s, const char *path, uint32_t crc)
{
	struct sp_elf found;
	if (!open_candidate(s, path, &found))
		return false;
	if (found.build_id.len && s->e->build_id.len &&
	    !sp_build_id_equal(&found.build_id, &s->e->build_id)) {
		refuse(s, "debug file %s has another build-id", path);
	} else if (libdeflate_crc32(0, found.data, found.size) != crc) {
		refuse(s, "debug file %s has another CRC than .gnu_debuglink says", path);
	} else {
		*s->out = found;
		return true;
	}
	sp_elf_close(&found);
	return false;
}

static bool by_debuglink_in(struct search *s, const char *name, uint32_t crc)
{
	char path[2 * MAX_PATH + 400];
	snprintf(path, sizeof path, "%s/%s", s->dir, name);
	if (try_debuglink(s, path, crc))
		return true;
	snprintf(path, sizeof path, "%s/.debug/%s", s->dir, name);
	if (try_debuglink(s, path, crc))
		return true;
	for (size_t i = 0; i < s->n_roots; i++) {
		static const char *const below[] = {"", "/.debug"};
		if (s->dir[0] == '/') {
			snprintf(path, sizeof path, "%s%s/%s", s->roots[i], s->dir, name);
			if (try_debuglink(s, path, crc))
				return true;
		}
		for (size_t k = 0; i < s->n_given && k < 2; k++) {
			snprintf(path, sizeof path, "%s%s/%s", s->roots[i], below[k], name);
			if (try_debuglink(s, path, crc))
				return true;
		}
	}
	return false;
}

static bool by_debuglink(struct search *s)
{
	const char *name;
	uint32_t crc;
	/* A name with a slash would leave the folders that are searched. */
	if (!sp_elf_debuglink(s->e, &name, &crc) || strchr(name, '/') || strlen(name) > 255)
		return false;
	if (by_debuglink_in(s, name, crc))
		return true;
	/* /lib is /usr/lib on many systems: debug packages use the folder's true name. */
	char *real = realpath(s->dir, NULL);
	bool found = false;
	if (real && strcmp(real, s->dir) != 0 && strlen(real) < MAX_PATH) {
		s->dir = real;
		found = by_debuglink_in(s, name, crc);
		s->dir = s->dir_bytes;
	}
	free(real);
	return found;
}

int sp_debug_file_find(struct sp_elf *out, const struct sp_elf *e, const char *path,
		       const struct sp_debug_dirs *dirs, char why[200], struct sp_err *err)
{
	struct search s;
	int rc = start(&s, out, e, path, dirs, why, err);
	if (rc < 0)
		return rc;
	rc = by_build_id(&s, &e->build_id) || by_debuglink(&s) ||
	     by_fetching(&s, &e->build_id);
	free(s.env);
	return rc;
}

/* Whether a program's code is in it: debug files have its headers only. */
static bool has_code(const struct sp_elf *e)
{
	bool found = false;
	for (size_t i = 0; i < e->n_segments && !found; i++)
		found = e->segments[i].type == PT_LOAD && e->segments[i].flags & PF_X &&
			e->segments[i].filesz;
	const struct sp_section *text = sp_elf_section(e, ".text");
	return found && (!text || text->type != SHT_NOBITS);
}

int sp_file_of_build_id(struct sp_elf *out, const struct sp_build_id *id, bool whole,
			const struct sp_debug_dirs *dirs, struct sp_err *err)
{
	static const char *const ends[] = {"", ".debug"};
	char hex[2 * SP_BUILD_ID_MAX + 1], path[MAX_PATH + 200];
	struct search s;
	if (id->len < 2)
		return 0;
	int rc = start(&s, out, NULL, NULL, dirs, NULL, err);
	sp_build_id_hex(id, hex);
	for (size_t k = 0; rc == 0 && k < 2; k++) {
		for (size_t i = 0; rc == 0 && i < s.n_roots; i++) {
			snprintf(path, sizeof path, "%s/.build-id/%.2s/%s%s", s.roots[i], hex,
				 hex + 2, ends[k]);
			rc = try_build_id(&s, path, id);
			if (rc == 1 && whole && !has_code(out)) {
				sp_elf_close(out);
				rc = 0;
			}
		}
	}
	if (rc == 0 && !whole)
		rc = by_fetching(&s, id);
	free(s.env);
	return rc;
}

/* DWARF 5, section 7.3.6: .debug_sup of the referring file holds the name of the supplementary file
 * and a checksum, which that file's own .debug_sup repeats. */
struct sup {
	const char *name;
	const uint8_t *sum;
	uint64_t sum_len;
	bool is_sup;
};

static bool read_sup(const struct sp_elf *e, struct sup *sup)
{
	const struct sp_section *sec = sp_elf_section(e, ".debug_sup");
	const uint8_t *p;
	size_t size;
	void *owned = NULL;
	if (!sec || (sec->flags & SHF_COMPRESSED) ||
	    sp_elf_section_data(e, sec, &p, &size, &owned, NULL) < 0)
		return false;
	struct sp_cursor c = sp_elf_cursor(e, p, size);
	sp_cur_u16(&c);
	sup->is_sup = sp_cur_u8(&c) != 0;
	sup->name = sp_cur_str(&c);
	sup->sum_len = sp_cur_uleb(&c);
	sup->sum = sp_cur_bytes(&c, sup->sum_len);
	return !c.bad;
}

static bool try_sup(struct search *s, const char *path, const struct sup *want)
{
	struct sp_elf found;
	if (!open_candidate(s, path, &found))
		return false;
	struct sup has;
	if (read_sup(&found, &has) && has.is_sup && has.sum_len == want->sum_len &&
	    !memcmp(has.sum, want->sum, has.sum_len)) {
		*s->out = found;
		return true;
	}
	refuse(s, "supplementary file %s has another checksum", path);
	sp_elf_close(&found);
	return false;
}

static bool try_alt(struct search *s, const char *path, const struct sp_build_id *id,
		    const struct sup *sup)
{
	return id ? try_build_id(s, path, id) : try_sup(s, path, sup);
}

static bool by_alt_name(struct search *s, const char *name, const struct sp_build_id *id,
			const struct sup *sup)
{
	char path[2 * MAX_PATH];
	const char *base = strrchr(name, '/');
	base = base ? base + 1 : name;
	if (name[0] == '/')
		snprintf(path, sizeof path, "%s", name);
	else
		snprintf(path, sizeof path, "%s/%s", s->dir, name);
	if (try_alt(s, path, id, sup))
		return true;
	snprintf(path, sizeof path, "%s/%s", s->dir, base);
	if (base != name && try_alt(s, path, id, sup))
		return true;
	for (size_t i = 0; i < s->n_roots; i++) {
		static const char *const where[] = {"", "/.dwz"};
		for (size_t k = 0; k < 2; k++) {
			snprintf(path, sizeof path, "%s%s/%s", s->roots[i], where[k], base);
			if (try_alt(s, path, id, sup))
				return true;
		}
	}
	return false;
}

int sp_alt_file_find(struct sp_elf *out, const struct sp_elf *e, const char *path,
		     const struct sp_debug_dirs *dirs, char why[200], struct sp_err *err)
{
	struct search s;
	int rc = start(&s, out, e, path, dirs, why, err);
	if (rc < 0)
		return rc;
	const char *name;
	struct sp_build_id id;
	struct sup sup;
	if (sp_elf_altlink(e, &name, &id) && strlen(name) < MAX_PATH)
		rc = by_build_id(&s, &id) || by_alt_name(&s, name, &id, NULL) ||
		     by_fetching(&s, &id);
	else if (read_sup(e, &sup) && !sup.is_sup && strlen(sup.name) < MAX_PATH)
		rc = by_alt_name(&s, sup.name, NULL, &sup);
	free(s.env);
	return rc;
}
