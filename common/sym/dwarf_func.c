/* Functions of a unit by address, and the inline calls in each. */
#include <stdlib.h>

#include "sym/dwarf_impl.h"

#define MAX_DEPTH 256 /* of entries in entries; deeper trees are not followed */

void dw_funcs_free(struct dw_funcs *f)
{
	if (!f)
		return;
	free(f->v);
	sp_ranges_deinit(&f->by_pc);
	free(f->inlines);
	free(f->pcs.v);
	free(f);
}

/* The attributes of an entry that say where its code is and where the next entry begins. */
struct place {
	struct dw_pc_attrs pc;
	uint64_t sibling; /* 0 = not said */
	uint64_t call_file, call_line;
};

static void read_place(struct dw_unit *u, struct sp_cursor *c, const struct dw_abbrev *a,
		       struct place *p)
{
	*p = (struct place){0};
	struct sp_cursor list = dw_attrs(u->abbrevs, a);
	struct dw_attr at;
	while (!c->bad && dw_attr_next(&list, &at)) {
		struct dw_val v;
		switch (at.at) {
		case DW_AT_low_pc:
		case DW_AT_high_pc:
		case DW_AT_ranges:
			dw_attr_read(u, c, &at, &v);
			dw_pc_attr(&p->pc, at.at, &v);
			break;
		case DW_AT_sibling:
			dw_attr_read(u, c, &at, &v);
			p->sibling = v.class == DW_V_REF ? v.u : 0;
			break;
		case DW_AT_call_file:
			dw_attr_read(u, c, &at, &v);
			p->call_file = v.u;
			break;
		case DW_AT_call_line:
			dw_attr_read(u, c, &at, &v);
			p->call_line = v.u;
			break;
		default:
			dw_attr_skip(u, c, at.form);
			break;
		}
	}
	dw_attrs_done(u, a, &list);
}

static bool add_func(struct dw_unit *u, struct dw_funcs *f, uint64_t off,
		     const struct dw_pc_attrs *pc)
{
	f->pcs.n = 0;
	if (!dw_pcs_add(u, pc, &f->pcs))
		return false;
	if (!f->pcs.n)
		return true;
	struct dw_func *slot = SP_PUSH(&f->v, &f->n, &f->cap);
	if (!slot || f->n > UINT32_MAX)
		return false;
	slot->off = off;
	slot->low = pc->has_low && !pc->has_ranges ? pc->low : f->pcs.v[0].lo;
	for (size_t i = 0; i < f->pcs.n; i++)
		if (!sp_ranges_add(&f->by_pc, f->pcs.v[i].lo, f->pcs.v[i].hi, (uint32_t)f->n - 1))
			return false;
	return true;
}

/* Whether functions with code are looked for among the children. In classes and in functions they
 * are rare (local classes, nested functions of C and D): those are sought only when an address of
 * the unit found no function. Where entries do not say where their next one is, as clang's, all of
 * them are passed anyway. */
static bool may_hold_functions(uint16_t tag, bool deep)
{
	switch (tag) {
	case DW_TAG_compile_unit:
	case DW_TAG_partial_unit:
	case DW_TAG_skeleton_unit:
	case DW_TAG_namespace:
	case DW_TAG_module:
		return true;
	default:
		return deep;
	}
}

/* Where the cursor goes on after an entry with children: among them, or behind them when it says
 * where that is. Returns the change of depth. */
static unsigned step(const uint8_t *base, struct sp_cursor *c, uint64_t sibling, bool enter)
{
	if (!enter && sibling > (uint64_t)(c->p - base) && sibling < (uint64_t)(c->end - base)) {
		c->p = base + sibling;
		return 0;
	}
	return 1;
}

static bool read_funcs(struct dw_unit *u, struct dw_funcs *f, bool deep)
{
	struct sp_cursor c = dw_unit_cursor(u, u->root_off);
	const uint8_t *base = dw_section(u->obj, DW_INFO).p;
	if (!dw_abbrevs_get(u) || !dw_work(u->obj->d, u->end - u->off))
		return true;
	uint64_t depth = 0;
	do {
		uint64_t off = (uint64_t)(c.p - base);
		uint64_t code = sp_cur_uleb(&c);
		if (c.bad || !dw_work(u->obj->d, 0))
			break;
		if (!code) {
			depth -= depth > 0;
			continue;
		}
		const struct dw_abbrev *a = dw_abbrev(u->abbrevs, code);
		if (!a)
			break;
		uint64_t sibling = 0;
		if (a->flags & DW_HAS_PC && a->tag == DW_TAG_subprogram) {
			struct place p;
			read_place(u, &c, a, &p);
			if (!c.bad && !add_func(u, f, off, &p.pc))
				return false;
			sibling = p.sibling;
		} else if (a->flags & DW_CHILDREN) {
			sibling = dw_skip_to_sibling(u, &c, a);
		} else {
			dw_skip_attrs(u, &c, a);
		}
		if (c.bad)
			break;
		if (a->flags & DW_CHILDREN)
			depth += step(base, &c, sibling, may_hold_functions(a->tag, deep));
	} while (depth > 0 && c.p < c.end);
	return true;
}

static struct dw_funcs *funcs_new(struct dw_unit *u, bool deep)
{
	struct dw_funcs *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->deep = deep;
	if (!read_funcs(u, f, deep) || !sp_ranges_sort(&f->by_pc)) {
		dw_funcs_free(f);
		return NULL;
	}
	sp_shrink(&f->v, &f->cap, f->n, sizeof *f->v);
	free(f->pcs.v);
	f->pcs = (struct dw_pcs){0};
	return f;
}

static struct dw_func *find(struct dw_funcs *f, uint64_t svma)
{
	struct sp_ranges_at i = sp_ranges_at(&f->by_pc, svma);
	const struct sp_range *r = sp_ranges_next(&i);
	return r ? &f->v[r->id] : NULL;
}

struct dw_func *dw_func_find(struct dw_unit *u, uint64_t svma)
{
	if (!u->funcs)
		u->funcs = funcs_new(u, false);
	if (!u->funcs)
		return NULL;
	struct dw_func *found = find(u->funcs, svma);
	if (!found && !u->funcs->deep) {
		struct dw_funcs *all = funcs_new(u, true);
		if (!all)
			return NULL;
		dw_funcs_free(u->funcs);
		u->funcs = all;
		found = find(all, svma);
	}
	return found;
}

static bool add_inline(struct dw_unit *u, struct dw_funcs *f, uint64_t off, const struct place *p)
{
	size_t first = f->pcs.n;
	if (!dw_pcs_add(u, &p->pc, &f->pcs))
		return false;
	struct dw_inline *slot = SP_PUSH(&f->inlines, &f->n_inlines, &f->inlines_cap);
	if (!slot || f->n_inlines > UINT32_MAX || f->pcs.n > UINT32_MAX)
		return false;
	slot->first_pc = (uint32_t)first;
	slot->n_pcs = (uint32_t)(f->pcs.n - first);
	slot->call_file = p->call_file;
	slot->call_line = p->call_line;
	slot->off = off;
	return true;
}

/* The tree of a function as a list in which each inline call knows how many follow that lie in it.
 * Blocks are seen through: their ranges add nothing. Functions nested in the function have their
 * own code and lists. */
static bool read_inlines(struct dw_unit *u, struct dw_funcs *f, struct dw_func *fn)
{
	struct sp_cursor c = dw_unit_cursor(u, fn->off);
	const uint8_t *base = dw_section(u->obj, DW_INFO).p;
	uint32_t open[MAX_DEPTH]; /* the inline call at each depth, or UINT32_MAX */
	unsigned depth = 0;
	do {
		uint64_t off = (uint64_t)(c.p - base);
		uint64_t code = sp_cur_uleb(&c);
		if (c.bad || !dw_work(u->obj->d, 1))
			break;
		if (!code) {
			depth--;
			if (open[depth] != UINT32_MAX)
				f->inlines[open[depth]].next = (uint32_t)f->n_inlines;
			continue;
		}
		const struct dw_abbrev *a = dw_abbrev(u->abbrevs, code);
		if (!a)
			break;
		bool inlined = a->tag == DW_TAG_inlined_subroutine;
		bool enter = inlined || off == fn->off || a->tag == DW_TAG_lexical_block ||
			     a->tag == DW_TAG_try_block || a->tag == DW_TAG_catch_block;
		uint64_t sibling = 0;
		uint32_t self = UINT32_MAX;
		if (inlined) {
			struct place p;
			read_place(u, &c, a, &p);
			if (c.bad)
				break;
			self = (uint32_t)f->n_inlines;
			if (!add_inline(u, f, off, &p))
				return false;
			f->inlines[self].next = self + 1;
		} else if (a->flags & DW_CHILDREN) {
			sibling = dw_skip_to_sibling(u, &c, a);
		} else {
			dw_skip_attrs(u, &c, a);
		}
		if (c.bad)
			break;
		if (a->flags & DW_CHILDREN && step(base, &c, sibling, enter)) {
			if (depth == MAX_DEPTH)
				break;
			open[depth++] = self;
		}
	} while (depth > 0 && c.p < c.end);
	while (depth > 0)
		if (open[--depth] != UINT32_MAX)
			f->inlines[open[depth]].next = (uint32_t)f->n_inlines;
	return true;
}

static bool holds(const struct dw_funcs *f, const struct dw_inline *n, uint64_t svma)
{
	for (uint32_t i = 0; i < n->n_pcs; i++) {
		const struct dw_pc *pc = &f->pcs.v[n->first_pc + i];
		if (svma >= pc->lo && svma < pc->hi)
			return true;
	}
	return false;
}

size_t dw_inlines_find(struct dw_unit *u, struct dw_func *fn, uint64_t svma,
		       const struct dw_inline **at, size_t max)
{
	struct dw_funcs *f = u->funcs;
	if (!fn->inlines_read) {
		fn->inlines_read = true;
		fn->first_inline = (uint32_t)f->n_inlines;
		if (!read_inlines(u, f, fn))
			f->n_inlines = fn->first_inline;
		fn->n_inlines = (uint32_t)(f->n_inlines - fn->first_inline);
	}
	size_t n = 0;
	uint32_t i = fn->first_inline, end = fn->first_inline + fn->n_inlines;
	while (i < end && n < max) {
		const struct dw_inline *in = &f->inlines[i];
		if (holds(f, in, svma)) {
			at[n++] = in;
			end = in->next;
			i++;
		} else {
			i = in->next;
		}
	}
	return n;
}
