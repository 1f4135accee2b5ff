/* DWARF in other files: dwo files and packages of them (DWARF 5, sections 7.3.2 and 7.3.5; the GNU
 * forms of DWARF 4), and the supplementary file of dwz. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

#define MAX_PATH 4096

/* .debug_cu_index: a hash table of dwo ids, and for each unit where its part of each section is. */
struct dw_cu_index {
	struct sp_cursor hashes, indexes, offsets; /* at the start of each table */
	enum dw_sec *columns; /* owned; DW_N_SECS for sections that are not read */
	uint32_t n_columns, n_units, n_slots;
};

void dw_cu_index_free(struct dw_cu_index *x)
{
	if (x)
		free(x->columns);
	free(x);
}

static enum dw_sec column(uint32_t id, bool v5)
{
	switch (id) {
	case DW_SECT_INFO:
		return DW_INFO;
	case DW_SECT_ABBREV:
		return DW_ABBREV;
	case DW_SECT_LINE:
		return DW_LINE;
	case DW_SECT_STR_OFFSETS:
		return DW_STR_OFFSETS;
	case DW_SECT_RNGLISTS: /* the GNU form has macros there */
		return v5 ? DW_RNGLISTS : DW_N_SECS;
	default:
		return DW_N_SECS;
	}
}

static struct dw_cu_index *read_cu_index(const struct sp_elf *e)
{
	const struct sp_section *s = sp_elf_section(e, ".debug_cu_index");
	const uint8_t *p;
	size_t size;
	void *owned = NULL;
	if (!s || (s->flags & SHF_COMPRESSED) ||
	    sp_elf_section_data(e, s, &p, &size, &owned, NULL) < 0)
		return NULL;
	struct sp_cursor c = sp_elf_cursor(e, p, size);
	uint32_t version = sp_cur_u32(&c);
	bool v5 = (version & 0xffff) == 5;
	struct dw_cu_index x = {0};
	x.n_columns = sp_cur_u32(&c);
	x.n_units = sp_cur_u32(&c);
	x.n_slots = sp_cur_u32(&c);
	bool power = x.n_slots && !(x.n_slots & (x.n_slots - 1));
	if (c.bad || (version != 2 && !v5) || !power || !x.n_columns || x.n_columns > 64)
		return NULL;
	x.hashes = c;
	sp_cur_skip(&c, (uint64_t)x.n_slots * 8);
	x.indexes = c;
	sp_cur_skip(&c, (uint64_t)x.n_slots * 4);
	x.columns = calloc(x.n_columns, sizeof *x.columns);
	for (uint32_t i = 0; x.columns && i < x.n_columns; i++)
		x.columns[i] = column(sp_cur_u32(&c), v5);
	x.offsets = c;
	struct dw_cu_index *out = c.bad || !x.columns ? NULL : malloc(sizeof *out);
	if (!out) {
		free(x.columns);
		return NULL;
	}
	*out = x;
	return out;
}

static uint64_t table_at(struct sp_cursor table, uint64_t index, unsigned size)
{
	sp_cur_skip(&table, index * size);
	return sp_cur_uint(&table, size);
}

/* Fills part_off; false when the package has no such unit. */
static bool find_in_index(const struct dw_cu_index *x, uint64_t dwo_id,
			  uint64_t part_off[DW_N_SECS])
{
	uint32_t mask = x->n_slots - 1, at = (uint32_t)dwo_id & mask;
	uint32_t step = ((uint32_t)(dwo_id >> 32) & mask) | 1;
	for (uint32_t tries = 0; tries < x->n_slots; tries++, at = (at + step) & mask) {
		uint64_t row = table_at(x->indexes, at, 4);
		if (!row)
			return false;
		if (table_at(x->hashes, at, 8) != dwo_id)
			continue;
		if (row > x->n_units)
			return false;
		for (uint32_t i = 0; i < x->n_columns; i++)
			if (x->columns[i] != DW_N_SECS)
				part_off[x->columns[i]] =
					table_at(x->offsets, (row - 1) * x->n_columns + i, 4);
		return true;
	}
	return false;
}

/* The file as an object of d, or NULL (with the reason in problem unless it is just not there). */
static struct dw_obj *open_obj(struct sp_dwarf *d, const char *path, bool is_dwo)
{
	struct dw_obj *o = calloc(1, sizeof *o);
	struct sp_err why;
	if (!o)
		return NULL;
	if (sp_elf_open(&o->own_elf, path, &why) < 0) {
		if (!why.os)
			dw_problem(d, "%.180s", why.msg);
		free(o);
		return NULL;
	}
	o->d = d;
	o->elf = &o->own_elf;
	o->owns_elf = true;
	o->is_dwo = is_dwo;
	o->alt_tried = true;
	d->work_left += DW_WORK_PER_BYTE * (uint64_t)o->own_elf.size;
	return o;
}

static void close_obj(struct dw_obj *o)
{
	if (!o)
		return;
	dw_obj_deinit(o);
	free(o);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* dir/name in out; the folder of `beside` where dir is NULL. */
static void join(char out[MAX_PATH], const char *dir, const char *beside, const char *name,
		 const char *tail)
{
	size_t len = beside ? (size_t)(base_name(beside) - beside) : 0;
	if (dir)
		snprintf(out, MAX_PATH, "%s/%s%s", dir, name, tail);
	else
		snprintf(out, MAX_PATH, "%.*s%s%s", len < MAX_PATH ? (int)len : 0,
			 beside ? beside : "", name, tail);
}

/* The package of the main file: prog.dwp beside prog, or in one of the folders. */
static struct dw_obj *open_dwp(struct sp_dwarf *d)
{
	char path[MAX_PATH];
	const char *name = d->options.path ? base_name(d->options.path) : "";
	for (size_t i = 0; *name && i <= d->options.dirs.n; i++) {
		join(path, i ? d->options.dirs.dirs[i - 1] : NULL, d->options.path, name, ".dwp");
		struct dw_obj *o = open_obj(d, path, true);
		if (o && (o->cu_index = read_cu_index(o->elf)))
			return o;
		close_obj(o);
	}
	return NULL;
}

static struct dw_unit *unit_in_dwp(struct sp_dwarf *d, struct dw_unit *skeleton)
{
	if (!d->dwp_tried) {
		d->dwp_tried = true;
		d->dwp = open_dwp(d);
	}
	uint64_t part_off[DW_N_SECS] = {0};
	if (!d->dwp || !find_in_index(d->dwp->cu_index, skeleton->dwo_id, part_off))
		return NULL;
	struct dw_unit *u = dw_unit_at(d->dwp, part_off[DW_INFO]);
	if (!u || u->skeleton || u->root_read)
		return NULL;
	memcpy(u->part_off, part_off, sizeof part_off);
	u->skeleton = skeleton;
	return u;
}

static bool is_full(const struct dw_unit *u)
{
	return u->type == DW_UT_split_compile || u->type == DW_UT_compile;
}

/* The unit of that id in a dwo file. Several would be strange, but cost nothing; types may have
 * thousands of units before it (-fdebug-types-section). */
static struct dw_unit *unit_in_dwo(struct dw_obj *o, struct dw_unit *skeleton)
{
	if (dw_heads_read(o, NULL) < 0)
		return NULL;
	for (size_t i = 0, tried = 0; i < o->n_heads && tried < 64; i++) {
		struct dw_unit *u = dw_unit_get(o, i);
		if (!u || !is_full(u)) {
			dw_unit_drop(o, i);
			continue;
		}
		tried++;
		if (u->skeleton)
			continue;
		u->skeleton = skeleton;
		if (dw_unit_root(u) && u->dwo_id == skeleton->dwo_id)
			return u;
		u->skeleton = NULL;
	}
	return NULL;
}

static struct dw_unit *try_dwo(struct sp_dwarf *d, const char *path, struct dw_unit *skeleton)
{
	struct dw_obj *o = open_obj(d, path, true);
	if (!o)
		return NULL;
	struct dw_unit *u = unit_in_dwo(o, skeleton);
	struct dw_obj **slot = u ? SP_PUSH(&d->dwos, &d->n_dwos, &d->dwos_cap) : NULL;
	if (!slot) {
		if (!u)
			dw_problem(d, "%.120s is of another build", path);
		close_obj(o);
		return NULL;
	}
	*slot = o;
	return u;
}

static struct dw_unit *find_dwo(struct sp_dwarf *d, struct dw_unit *skeleton)
{
	const char *name = skeleton->dwo_name, *base = base_name(name);
	const struct sp_debug_dirs *dirs = &d->options.dirs;
	char path[MAX_PATH];
	struct dw_unit *u = NULL;
	if (name[0] == '/')
		u = try_dwo(d, name, skeleton);
	else if (skeleton->comp_dir) {
		join(path, skeleton->comp_dir, NULL, name, "");
		u = try_dwo(d, path, skeleton);
	}
	for (size_t i = 0; !u && i <= dirs->n; i++) {
		const char *dir = i ? dirs->dirs[i - 1] : NULL;
		if (name[0] != '/') {
			join(path, dir, d->options.path, name, "");
			u = try_dwo(d, path, skeleton);
		}
		if (!u && (base != name)) {
			join(path, dir, d->options.path, base, "");
			u = try_dwo(d, path, skeleton);
		}
	}
	return u;
}

struct dw_unit *dw_split_unit(struct dw_unit *u)
{
	if (!u->split_tried) {
		u->split_tried = true;
		struct sp_dwarf *d = u->obj->d;
		if (u->dwo_name && *u->dwo_name) {
			u->split = unit_in_dwp(d, u);
			if (!u->split)
				u->split = find_dwo(d, u);
			if (u->split && !dw_unit_root(u->split))
				u->split = NULL;
			if (!u->split)
				dw_problem(d, "%.120s (split DWARF) not found", u->dwo_name);
		}
	}
	return u->split ? u->split : u;
}

struct dw_obj *dw_alt(struct dw_obj *o)
{
	if (o->alt_tried)
		return o->alt;
	o->alt_tried = true;
	struct dw_obj *alt = calloc(1, sizeof *alt);
	char why[200];
	if (!alt)
		return NULL;
	int rc = sp_alt_file_find(&alt->own_elf, o->elf, o->path, &o->d->options.dirs, why, NULL);
	if (rc <= 0) {
		dw_problem(o->d, "%s", why[0] ? why : "the supplementary file of dwz not found");
		free(alt);
		return NULL;
	}
	alt->d = o->d;
	alt->elf = &alt->own_elf;
	alt->owns_elf = true;
	alt->alt_tried = true;
	o->d->work_left += DW_WORK_PER_BYTE * (uint64_t)alt->own_elf.size;
	return o->alt = alt;
}
