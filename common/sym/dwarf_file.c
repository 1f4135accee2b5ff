/* Sections and units of the DWARF files; opening and closing. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

#define WORK_BASE (UINT64_C(64) << 20)

static const char *const section_names[DW_N_SECS] = {
	[DW_INFO] = "info",         [DW_ABBREV] = "abbrev",     [DW_LINE] = "line",
	[DW_STR] = "str",           [DW_LINE_STR] = "line_str", [DW_RANGES] = "ranges",
	[DW_RNGLISTS] = "rnglists", [DW_ADDR] = "addr",         [DW_STR_OFFSETS] = "str_offsets",
	[DW_ARANGES] = "aranges",
};

void dw_problem(struct sp_dwarf *d, const char *fmt, ...)
{
	if (d->problem[0])
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(d->problem, sizeof d->problem, fmt, ap);
	va_end(ap);
}

static const struct sp_section *find_section(const struct dw_obj *o, enum dw_sec s)
{
	char name[40];
	const char *tail = o->is_dwo ? ".dwo" : "";
	snprintf(name, sizeof name, ".debug_%s%s", section_names[s], tail);
	const struct sp_section *found = sp_elf_section(o->elf, name);
	if (!found) {
		snprintf(name, sizeof name, ".zdebug_%s%s", section_names[s], tail);
		found = sp_elf_section(o->elf, name);
	}
	return found;
}

struct dw_bytes dw_section(struct dw_obj *o, enum dw_sec s)
{
	if (!o->loaded[s]) {
		o->loaded[s] = true;
		const struct sp_section *found = find_section(o, s);
		struct sp_err why;
		if (found && sp_elf_section_data(o->elf, found, &o->sec[s].p, &o->sec[s].n,
						 &o->owned[s], &why) < 0) {
			dw_problem(o->d, "%s: %s", found->name, why.msg);
			o->sec[s] = (struct dw_bytes){0};
		}
	}
	return o->sec[s];
}

int dw_heads_read(struct dw_obj *o, struct sp_err *err)
{
	if (o->heads_read)
		return 0;
	o->heads_read = true;
	struct dw_bytes info = dw_section(o, DW_INFO);
	uint64_t off = 0;
	while (off < info.n) {
		struct sp_cursor c = dw_cursor(o, info, off);
		uint64_t len = sp_cur_u32(&c);
		uint64_t head = 4;
		if (len == 0xffffffff) {
			len = sp_cur_u64(&c);
			head = 12;
		}
		if (c.bad || len > sp_cur_left(&c))
			break; /* a cut section: what came before is good */
		struct dw_head *h = SP_PUSH(&o->heads, &o->n_heads, &o->heads_cap);
		if (!h)
			return sp_err_nomem(err);
		*h = (struct dw_head){.off = off, .end = off + head + len};
		off = h->end;
	}
	return 0;
}

/* The header of DWARF 5, section 7.5.1; of 2 to 4, section 7.5.1.1. */
static void read_header(struct dw_unit *u)
{
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_INFO), u->off);
	u->offset_size = 4;
	if (sp_cur_u32(&c) == 0xffffffff) {
		sp_cur_u64(&c);
		u->offset_size = 8;
	}
	u->version = sp_cur_u16(&c);
	if (u->version >= 5) {
		u->type = sp_cur_u8(&c);
		u->addr_size = sp_cur_u8(&c);
		u->abbrev_off = sp_cur_uint(&c, u->offset_size);
		if (u->type == DW_UT_skeleton || u->type == DW_UT_split_compile) {
			u->dwo_id = sp_cur_u64(&c);
		} else if (u->type == DW_UT_type || u->type == DW_UT_split_type) {
			sp_cur_u64(&c);
			sp_cur_skip(&c, u->offset_size);
		}
	} else {
		u->type = DW_UT_compile;
		u->abbrev_off = sp_cur_uint(&c, u->offset_size);
		u->addr_size = sp_cur_u8(&c);
	}
	u->root_off = (uint64_t)(c.p - dw_section(u->obj, DW_INFO).p);
	u->bad = c.bad || u->version < 2 || u->version > 5 || u->root_off >= u->end ||
		 (u->addr_size != 4 && u->addr_size != 8);
}

struct dw_unit *dw_unit_get(struct dw_obj *o, size_t head)
{
	struct dw_head *h = &o->heads[head];
	if (!h->unit) {
		h->unit = calloc(1, sizeof *h->unit);
		if (!h->unit)
			return NULL;
		h->unit->obj = o;
		h->unit->off = h->off;
		h->unit->end = h->end;
		read_header(h->unit);
	}
	return h->unit->bad ? NULL : h->unit;
}

void dw_unit_drop(struct dw_obj *o, size_t head)
{
	struct dw_unit *u = o->heads[head].unit;
	if (u)
		dw_funcs_free(u->funcs);
	free(u);
	o->heads[head].unit = NULL;
}

struct dw_unit *dw_unit_at(struct dw_obj *o, uint64_t off)
{
	if (dw_heads_read(o, NULL) < 0)
		return NULL;
	size_t lo = 0, hi = o->n_heads;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (o->heads[mid].off <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || off >= o->heads[lo - 1].end)
		return NULL;
	return dw_unit_get(o, lo - 1);
}

void dw_obj_deinit(struct dw_obj *o)
{
	for (size_t i = 0; i < o->n_heads; i++)
		dw_unit_drop(o, i);
	free(o->heads);
	for (size_t i = 0; i < o->n_tables; i++)
		dw_abbrevs_free(o->tables[i]);
	free(o->tables);
	sp_map64_deinit(&o->table_of);
	for (size_t i = 0; i < o->n_lines; i++)
		dw_lines_free(o->lines[i]);
	free(o->lines);
	sp_map64_deinit(&o->lines_of);
	free(o->names);
	sp_map64_deinit(&o->name_of);
	for (int i = 0; i < DW_N_SECS; i++)
		free(o->owned[i]);
	dw_cu_index_free(o->cu_index);
	if (o->alt) {
		dw_obj_deinit(o->alt);
		free(o->alt);
	}
	if (o->owns_elf)
		sp_elf_close(&o->own_elf);
}

/* Code that a linker threw away keeps its DWARF, with addresses of 0, -1 or small addends: they
 * must not be taken for the code that lies there. */
bool dw_is_code(const struct sp_dwarf *d, uint64_t svma)
{
	struct sp_ranges_at i = sp_ranges_at(&d->code, svma);
	return sp_ranges_next(&i) != NULL;
}

static bool add_code(struct sp_dwarf *d, const struct sp_elf *e)
{
	for (size_t i = 0; i < e->n_sections; i++) {
		const struct sp_section *s = &e->sections[i];
		if ((s->flags & (SHF_ALLOC | SHF_EXECINSTR)) == (SHF_ALLOC | SHF_EXECINSTR) &&
		    s->size <= UINT64_MAX - s->svma &&
		    !sp_ranges_add(&d->code, s->svma, s->svma + s->size, 0))
			return false;
	}
	for (size_t i = 0; !d->code.n && i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type == PT_LOAD && (s->flags & PF_X) && s->memsz <= UINT64_MAX - s->svma &&
		    !sp_ranges_add(&d->code, s->svma, s->svma + s->memsz, 0))
			return false;
	}
	return sp_ranges_sort(&d->code);
}

int sp_dwarf_open(struct sp_dwarf **out, const struct sp_elf *e,
		  const struct sp_dwarf_options *options, struct sp_err *err)
{
	struct dw_obj probe = {.elf = e};
	const struct sp_section *info = find_section(&probe, DW_INFO);
	if (!info || info->type == SHT_NOBITS || !info->size || e->type == ET_REL)
		return 0;
	struct sp_dwarf *d = calloc(1, sizeof *d);
	if (!d)
		return sp_err_nomem(err);
	d->main.elf = e;
	d->main.d = d;
	d->main.path = options->path;
	d->options = *options;
	d->work_left = WORK_BASE + DW_WORK_PER_BYTE * (uint64_t)e->size;
	if (!add_code(d, options->code ? options->code : e)) {
		sp_dwarf_close(d);
		return sp_err_nomem(err);
	}
	*out = d;
	return 1;
}

void sp_dwarf_close(struct sp_dwarf *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n_dwos; i++) {
		dw_obj_deinit(d->dwos[i]);
		free(d->dwos[i]);
	}
	free(d->dwos);
	if (d->dwp) {
		dw_obj_deinit(d->dwp);
		free(d->dwp);
	}
	dw_obj_deinit(&d->main);
	dw_scratch_deinit(&d->scratch);
	free(d->special);
	sp_arena_deinit(&d->memory);
	sp_strpool_deinit(&d->strings);
	sp_ranges_deinit(&d->code);
	sp_ranges_deinit(&d->units);
	sp_ranges_deinit(&d->aranges);
	free(d->homeless);
	free(d->levels);
	free(d);
}

const char *sp_dwarf_problem(const struct sp_dwarf *d)
{
	return d->problem[0] ? d->problem : NULL;
}

static bool add_file(const struct dw_obj *o, const struct sp_elf **out, size_t *n, size_t max)
{
	if (o && o->owns_elf) {
		if (*n == max)
			return false;
		out[(*n)++] = &o->own_elf;
	}
	return !o || !o->alt || add_file(o->alt, out, n, max);
}

int sp_dwarf_files(const struct sp_dwarf *d, const struct sp_elf **out, size_t max)
{
	size_t n = 0;
	bool ok = !d->problem[0] && d->work_left && add_file(&d->main, out, &n, max) &&
		  add_file(d->dwp, out, &n, max);
	for (size_t i = 0; ok && i < d->n_dwos; i++)
		ok = add_file(d->dwos[i], out, &n, max);
	return ok ? (int)n : -1;
}
