/* From an address to its levels: the index of units, then functions, inline calls and lines. */
#include <stdlib.h>

#include "sym/dwarf_impl.h"

#define MAX_INLINE_DEPTH 128

/* .debug_aranges (DWARF 5, section 6.1.2) names the units of addresses without reading them. Not
 * all compilers write it, and linkers mix files with and without. */
static int read_aranges(struct sp_dwarf *d, struct sp_err *err)
{
	d->aranges_read = true;
	struct dw_bytes b = dw_section(&d->main, DW_ARANGES);
	struct sp_cursor c = dw_cursor(&d->main, b, 0);
	while (!c.bad && sp_cur_left(&c) > 4) {
		const uint8_t *set = c.p;
		uint64_t len = sp_cur_u32(&c);
		unsigned offset_size = 4;
		if (len == 0xffffffff) {
			len = sp_cur_u64(&c);
			offset_size = 8;
		}
		if (c.bad || len > sp_cur_left(&c))
			break;
		struct sp_cursor s = c;
		s.end = c.p + len;
		sp_cur_skip(&c, len);
		uint16_t version = sp_cur_u16(&s);
		uint64_t unit_off = sp_cur_uint(&s, offset_size);
		uint8_t addr_size = sp_cur_u8(&s), segment_size = sp_cur_u8(&s);
		if (s.bad || version != 2 || segment_size || (addr_size != 4 && addr_size != 8))
			continue;
		/* Tuples begin at a multiple of their size, counted from the set's start. */
		size_t tuple = 2u * addr_size, used = (size_t)(s.p - set);
		sp_cur_skip(&s, (tuple - used % tuple) % tuple);
		if (unit_off > UINT32_MAX)
			continue;
		for (;;) {
			uint64_t lo = sp_cur_uint(&s, addr_size), n = sp_cur_uint(&s, addr_size);
			if (s.bad || (!lo && !n))
				break;
			if (n <= UINT64_MAX - lo && dw_is_code(d, lo) &&
			    !sp_ranges_add(&d->aranges, lo, lo + n, (uint32_t)unit_off))
				return sp_err_nomem(err);
		}
	}
	return sp_ranges_sort(&d->aranges) ? 0 : sp_err_nomem(err);
}

static bool holds_code(const struct dw_unit *u)
{
	return u->type == DW_UT_compile || u->type == DW_UT_skeleton;
}

/* All units by the ranges of their roots. One that has lines or contents but no ranges there is
 * remembered, to be asked when nothing else has an address. */
static int read_units(struct sp_dwarf *d, struct sp_err *err)
{
	d->units_read = true;
	if (dw_heads_read(&d->main, err) < 0)
		return SP_ERR_NOMEM;
	struct dw_pcs pcs = {0};
	bool ok = true;
	for (size_t i = 0; i < d->main.n_heads && i < UINT32_MAX && ok; i++) {
		struct dw_unit *u = dw_unit_get(&d->main, i);
		if (!u || !holds_code(u)) {
			dw_unit_drop(&d->main, i);
			continue;
		}
		if (!dw_unit_root(u))
			continue;
		pcs.n = 0;
		ok = dw_pcs_add(u, &u->pc, &pcs);
		for (size_t k = 0; k < pcs.n && ok; k++)
			ok = sp_ranges_add(&d->units, pcs.v[k].lo, pcs.v[k].hi, (uint32_t)i);
		bool silent = !u->pc.has_ranges && !(u->pc.has_low && u->pc.has_high);
		if (silent && u->has_stmt_list && ok) {
			size_t *slot = SP_PUSH(&d->homeless, &d->n_homeless, &d->homeless_cap);
			ok = slot != NULL;
			if (slot)
				*slot = i;
		}
	}
	free(pcs.v);
	return ok && sp_ranges_sort(&d->units) ? 0 : sp_err_nomem(err);
}

struct answer {
	struct dw_unit *u; /* where functions are */
	struct dw_func *fn;
	struct dw_lines *lines;
	bool has_row;
	uint32_t file, line;
};

/* True when the unit has the function of the address. */
static bool ask_unit(struct dw_unit *u, uint64_t svma, struct answer *a)
{
	if (!dw_unit_root(u))
		return false;
	struct dw_unit *contents = dw_split_unit(u);
	struct dw_func *fn = dw_func_find(contents, svma);
	bool unasked = u->obj->d->options.no_lines;
	struct dw_lines *lines = unasked ? NULL : dw_lines_get(u);
	uint32_t file = 0, line = 0;
	/* Unasked, a line table stands for the row that it would have. */
	bool has_row = unasked ? u->has_stmt_list
			       : lines && dw_lines_find(u->obj->d, lines, svma, &file, &line);
	if (!fn && (!has_row || a->has_row))
		return false;
	*a = (struct answer){contents, fn, lines, has_row, file, line};
	return fn != NULL;
}

/* A unit that several ranges name is asked once in a row. */
static bool ask_index(struct sp_dwarf *d, const struct sp_ranges *index, bool by_offset,
		      uint64_t svma, struct answer *a)
{
	struct sp_ranges_at i = sp_ranges_at(index, svma);
	struct dw_unit *last = NULL;
	unsigned asked = 0;
	for (const struct sp_range *r; (r = sp_ranges_next(&i)) && asked < 16;) {
		struct dw_unit *u =
			by_offset ? dw_unit_at(&d->main, r->id) : dw_unit_get(&d->main, r->id);
		if (!u || u == last)
			continue;
		last = u;
		asked++;
		if (ask_unit(u, svma, a))
			return true;
	}
	return false;
}

static int find_answer(struct sp_dwarf *d, uint64_t svma, struct answer *a, struct sp_err *err)
{
	if (!d->aranges_read && read_aranges(d, err) < 0)
		return SP_ERR_NOMEM;
	if (ask_index(d, &d->aranges, true, svma, a) || a->has_row)
		return 0;
	if (!d->units_read && read_units(d, err) < 0)
		return SP_ERR_NOMEM;
	if (ask_index(d, &d->units, false, svma, a) || a->has_row)
		return 0;
	for (size_t i = 0; i < d->n_homeless; i++) {
		struct dw_unit *u = dw_unit_get(&d->main, d->homeless[i]);
		if (u && ask_unit(u, svma, a))
			break;
	}
	return 0;
}

static struct sp_dwarf_level *push(struct sp_dwarf *d, size_t *n)
{
	if (!sp_grow(&d->levels, &d->levels_cap, *n + 1, sizeof *d->levels))
		return NULL;
	struct sp_dwarf_level *l = &d->levels[(*n)++];
	*l = (struct sp_dwarf_level){0};
	return l;
}

static void set_name(struct sp_dwarf_level *l, struct dw_unit *u, uint64_t off)
{
	struct dw_name name = dw_name_of(u, off);
	l->linkage = name.linkage;
	l->name = name.name;
}

int sp_dwarf_lookup(struct sp_dwarf *d, uint64_t svma, const struct sp_dwarf_level **out,
		    uint64_t *func_start, struct sp_err *err)
{
	struct answer a = {0};
	if (!dw_is_code(d, svma))
		return 0;
	int rc = find_answer(d, svma, &a, err);
	if (rc < 0)
		return rc;
	if (!a.fn && !a.has_row)
		return 0;
	const char *file = NULL;
	uint64_t line = 0;
	/* File numbers of calls are those of the line table, which a split unit's skeleton has. */
	struct dw_unit *line_unit = a.u->skeleton ? a.u->skeleton : a.u;
	if (a.lines && a.has_row) {
		file = dw_lines_file(line_unit, a.lines, a.file);
		line = a.line;
	}
	size_t n = 0;
	const struct dw_inline *in[MAX_INLINE_DEPTH];
	size_t n_in = a.fn && !d->options.no_inline
			      ? dw_inlines_find(a.u, a.fn, svma, in, MAX_INLINE_DEPTH)
			      : 0;
	for (size_t i = n_in + 1; i-- > 0;) {
		struct sp_dwarf_level *l = push(d, &n);
		if (!l)
			return sp_err_nomem(err);
		l->file = file;
		l->line = line > UINT32_MAX ? 0 : (uint32_t)line;
		if (i > 0) {
			set_name(l, a.u, in[i - 1]->off);
			file = a.lines ? dw_lines_file(line_unit, a.lines, in[i - 1]->call_file)
				       : NULL;
			line = in[i - 1]->call_line;
		} else if (a.fn) {
			set_name(l, a.u, a.fn->off);
			*func_start = a.fn->low;
		}
	}
	*out = d->levels;
	return (int)n;
}
