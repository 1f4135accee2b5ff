/* Abbreviation tables (DWARF 5, section 7.5.3), each with a plan for stepping over its entries. */
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

/* How the bytes of each form are stepped over; sizes that depend on the unit have names. */
enum { N_ADDR = 17, N_OFFSET, N_REF_ADDR };
#define FIXED(bytes) {true, DW_FIXED, (bytes)}
#define BY(step) {true, (step), 0}
struct form_step {
	bool known;
	uint8_t step, n;
};
static const struct form_step forms[] = {
	[DW_FORM_flag_present] = FIXED(0),
	[DW_FORM_implicit_const] = FIXED(0),
	[DW_FORM_data1] = FIXED(1),
	[DW_FORM_ref1] = FIXED(1),
	[DW_FORM_flag] = FIXED(1),
	[DW_FORM_strx1] = FIXED(1),
	[DW_FORM_addrx1] = FIXED(1),
	[DW_FORM_data2] = FIXED(2),
	[DW_FORM_ref2] = FIXED(2),
	[DW_FORM_strx2] = FIXED(2),
	[DW_FORM_addrx2] = FIXED(2),
	[DW_FORM_strx3] = FIXED(3),
	[DW_FORM_addrx3] = FIXED(3),
	[DW_FORM_data4] = FIXED(4),
	[DW_FORM_ref4] = FIXED(4),
	[DW_FORM_strx4] = FIXED(4),
	[DW_FORM_addrx4] = FIXED(4),
	[DW_FORM_ref_sup4] = FIXED(4),
	[DW_FORM_data8] = FIXED(8),
	[DW_FORM_ref8] = FIXED(8),
	[DW_FORM_ref_sig8] = FIXED(8),
	[DW_FORM_ref_sup8] = FIXED(8),
	[DW_FORM_data16] = FIXED(16),
	[DW_FORM_addr] = FIXED(N_ADDR),
	[DW_FORM_ref_addr] = FIXED(N_REF_ADDR),
	[DW_FORM_strp] = FIXED(N_OFFSET),
	[DW_FORM_line_strp] = FIXED(N_OFFSET),
	[DW_FORM_strp_sup] = FIXED(N_OFFSET),
	[DW_FORM_sec_offset] = FIXED(N_OFFSET),
	[DW_FORM_udata] = BY(DW_ULEB),
	[DW_FORM_sdata] = BY(DW_ULEB),
	[DW_FORM_ref_udata] = BY(DW_ULEB),
	[DW_FORM_strx] = BY(DW_ULEB),
	[DW_FORM_addrx] = BY(DW_ULEB),
	[DW_FORM_loclistx] = BY(DW_ULEB),
	[DW_FORM_rnglistx] = BY(DW_ULEB),
	[DW_FORM_string] = BY(DW_CSTRING),
	[DW_FORM_block1] = BY(DW_BLOCK1),
	[DW_FORM_block2] = BY(DW_BLOCK2),
	[DW_FORM_block4] = BY(DW_BLOCK4),
	[DW_FORM_block] = BY(DW_BLOCKU),
	[DW_FORM_exprloc] = BY(DW_BLOCKU),
	[DW_FORM_indirect] = BY(DW_INDIRECT),
};

static struct form_step form_step(uint64_t form)
{
	switch (form) {
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_GNU_strp_alt:
		return (struct form_step)FIXED(N_OFFSET);
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
		return (struct form_step)BY(DW_ULEB);
	default:
		return form < sizeof forms / sizeof *forms ? forms[form] : (struct form_step){0};
	}
}

enum dw_step dw_form_step(const struct dw_unit *u, uint64_t form, uint32_t *n, bool *known)
{
	struct form_step s = form_step(form);
	*known = s.known;
	*n = s.n;
	if (s.n == N_ADDR)
		*n = u->addr_size;
	else if (s.n == N_OFFSET)
		*n = u->offset_size;
	else if (s.n == N_REF_ADDR) /* DWARF 2 gave it the size of an address */
		*n = u->version == 2 ? u->addr_size : u->offset_size;
	return (enum dw_step)s.step;
}

bool dw_attr_plan(const struct dw_unit *u, struct dw_attr *a)
{
	uint32_t n;
	bool known;
	a->step = (uint8_t)dw_form_step(u, a->form, &n, &known);
	a->n = (uint8_t)n;
	return known;
}

void dw_scratch_deinit(struct dw_scratch *s)
{
	free(s->v);
	free(s->attrs);
	free(s->skips);
}

static bool add_skip(struct dw_scratch *t, struct dw_abbrev *a, const struct dw_attr *at)
{
	if (at->step == DW_FIXED && a->n_skips && t->skips[t->n_skips - 1].step == DW_FIXED) {
		t->skips[t->n_skips - 1].n += at->n;
		return true;
	}
	if (t->n_skips == t->skips_cap &&
	    !sp_grow(&t->skips, &t->skips_cap, t->n_skips + 1, sizeof *t->skips))
		return false;
	t->skips[t->n_skips++] = (struct dw_skip){.step = at->step, .n = at->n};
	a->n_skips++;
	return true;
}

/* The attributes of one abbreviation; false at the end of what can be used. */
static bool read_attrs(struct dw_unit *u, struct dw_scratch *t, struct dw_abbrev *a,
		       struct sp_cursor *c)
{
	for (;;) {
		uint64_t at, form;
		if (c->end - c->p >= 2 && !c->bad && !((c->p[0] | c->p[1]) & 0x80)) {
			at = c->p[0]; /* nearly all of them */
			form = c->p[1];
			c->p += 2;
		} else {
			at = sp_cur_uleb(c);
			form = sp_cur_uleb(c);
		}
		int64_t implicit = form == DW_FORM_implicit_const ? sp_cur_sleb(c) : 0;
		if (c->bad)
			return false;
		if (!at && !form)
			return true;
		struct dw_attr attr = {
			.at = (uint16_t)at, .form = (uint16_t)form, .implicit = implicit};
		if (at > UINT16_MAX || form > UINT16_MAX || !dw_attr_plan(u, &attr) ||
		    t->n_attrs >= UINT32_MAX)
			return false;
		if (at == DW_AT_sibling && form == DW_FORM_ref4)
			a->sibling_at = a->fixed;
		a->fixed = attr.step == DW_FIXED && a->fixed >= 0 && a->fixed < INT16_MAX
				   ? a->fixed + attr.n
				   : -1;
		if (t->n_attrs == t->attrs_cap &&
		    !sp_grow(&t->attrs, &t->attrs_cap, t->n_attrs + 1, sizeof *t->attrs))
			return false;
		if (!add_skip(t, a, &attr))
			return false;
		t->attrs[t->n_attrs++] = attr;
		a->n_attrs++;
		a->has_pc |= at == DW_AT_low_pc || at == DW_AT_ranges;
		a->has_sibling |= at == DW_AT_sibling;
	}
}

static void *keep(struct sp_dwarf *d, const void *from, size_t n, size_t size)
{
	void *out = sp_arena_take(&d->memory, n * size + 1, _Alignof(struct dw_attr));
	if (out && n)
		memcpy(out, from, n * size);
	return out;
}

static struct dw_abbrevs *read_table(struct dw_unit *u, uint64_t off)
{
	struct sp_dwarf *d = u->obj->d;
	struct dw_scratch *s = &d->scratch;
	struct dw_abbrevs *t = sp_arena_take(&d->memory, sizeof *t, _Alignof(struct dw_abbrevs));
	if (!t)
		return NULL;
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_ABBREV), off);
	*t = (struct dw_abbrevs){.dense = true};
	s->n = s->n_attrs = s->n_skips = 0;
	for (;;) {
		struct dw_abbrev a = {.code = sp_cur_uleb(&c), .sibling_at = -1};
		if (c.bad || !a.code)
			break;
		uint64_t tag = sp_cur_uleb(&c);
		a.tag = tag > UINT16_MAX ? 0 : (uint16_t)tag;
		a.children = sp_cur_u8(&c) != 0;
		a.first_attr = (uint32_t)s->n_attrs;
		a.first_skip = (uint32_t)s->n_skips;
		const uint8_t *from = c.p;
		if (!read_attrs(u, s, &a, &c) || !dw_work(d, (uint64_t)(c.p - from)))
			break; /* what came before it is good */
		t->dense &= a.code == s->n + 1;
		if (s->n == s->cap && !sp_grow(&s->v, &s->cap, s->n + 1, sizeof a))
			break;
		s->v[s->n++] = a;
	}
	t->n = s->n;
	t->v = keep(d, s->v, s->n, sizeof *s->v);
	t->attrs = keep(d, s->attrs, s->n_attrs, sizeof *s->attrs);
	t->skips = keep(d, s->skips, s->n_skips, sizeof *s->skips);
	if (!t->v || !t->attrs || !t->skips)
		return NULL;
	for (size_t i = 0; !t->dense && i < t->n; i++)
		if (sp_map64_get(&t->by_code, t->v[i].code) == SP_NOT_FOUND)
			sp_map64_put(&t->by_code, t->v[i].code, (uint32_t)i);
	return t;
}

struct dw_abbrevs *dw_abbrevs_get(struct dw_unit *u)
{
	if (u->abbrevs)
		return u->abbrevs;
	struct dw_obj *o = u->obj;
	uint64_t off = u->abbrev_off + u->part_off[DW_ABBREV];
	/* Sizes that depend on the unit's header are part of the plan. */
	uint64_t key = off << 6 | (uint64_t)(u->version == 2) << 5 | (u->offset_size == 8) << 4 |
		       u->addr_size;
	uint32_t at = sp_map64_get(&o->table_of, key);
	if (at == SP_NOT_FOUND) {
		struct dw_abbrevs *t = read_table(u, off);
		struct dw_abbrevs **slot =
			t ? SP_PUSH(&o->tables, &o->n_tables, &o->tables_cap) : NULL;
		if (!slot) {
			dw_abbrevs_free(t);
			return NULL;
		}
		*slot = t;
		at = (uint32_t)o->n_tables - 1;
		sp_map64_put(&o->table_of, key, at);
	}
	return u->abbrevs = o->tables[at];
}

const struct dw_abbrev *dw_abbrev_slow(const struct dw_abbrevs *t, uint64_t code)
{
	uint32_t at = sp_map64_get(&t->by_code, code);
	return at == SP_NOT_FOUND ? NULL : &t->v[at];
}

void dw_abbrevs_free(struct dw_abbrevs *t)
{
	if (!t)
		return;
	sp_map64_deinit(&t->by_code);
}
