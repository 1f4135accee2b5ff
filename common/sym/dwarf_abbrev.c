/* Abbreviation tables (DWARF 5, section 7.5.3), each with a plan for stepping over its entries. */
#include <stdlib.h>

#include "sym/dwarf_impl.h"

enum dw_step dw_form_step(const struct dw_unit *u, uint64_t form, uint32_t *n, bool *known)
{
	*known = true;
	*n = 0;
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const:
		return DW_FIXED;
	case DW_FORM_data1:
	case DW_FORM_ref1:
	case DW_FORM_flag:
	case DW_FORM_strx1:
	case DW_FORM_addrx1:
		*n = 1;
		return DW_FIXED;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2:
		*n = 2;
		return DW_FIXED;
	case DW_FORM_strx3:
	case DW_FORM_addrx3:
		*n = 3;
		return DW_FIXED;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4:
	case DW_FORM_ref_sup4:
		*n = 4;
		return DW_FIXED;
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8:
		*n = 8;
		return DW_FIXED;
	case DW_FORM_data16:
		*n = 16;
		return DW_FIXED;
	case DW_FORM_addr:
		*n = u->addr_size;
		return DW_FIXED;
	case DW_FORM_ref_addr: /* DWARF 2 gave it the size of an address */
		*n = u->version == 2 ? u->addr_size : u->offset_size;
		return DW_FIXED;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_strp_sup:
	case DW_FORM_sec_offset:
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_GNU_strp_alt:
		*n = u->offset_size;
		return DW_FIXED;
	case DW_FORM_udata:
	case DW_FORM_sdata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
		return DW_ULEB;
	case DW_FORM_string:
		return DW_CSTRING;
	case DW_FORM_block1:
		return DW_BLOCK1;
	case DW_FORM_block2:
		return DW_BLOCK2;
	case DW_FORM_block4:
		return DW_BLOCK4;
	case DW_FORM_block:
	case DW_FORM_exprloc:
		return DW_BLOCKU;
	case DW_FORM_indirect:
		return DW_INDIRECT;
	default:
		*known = false;
		return DW_FIXED;
	}
}

static bool add_skip(struct dw_abbrevs *t, struct dw_abbrev *a, enum dw_step step, uint32_t n)
{
	if (step == DW_FIXED && a->n_skips && t->skips[t->n_skips - 1].step == DW_FIXED) {
		t->skips[t->n_skips - 1].n += n;
		return true;
	}
	struct dw_skip *s = SP_PUSH(&t->skips, &t->n_skips, &t->skips_cap);
	if (!s)
		return false;
	*s = (struct dw_skip){.step = step, .n = n};
	a->n_skips++;
	return true;
}

/* The attributes of one abbreviation; false at the end of what can be used. */
static bool read_attrs(struct dw_unit *u, struct dw_abbrevs *t, struct dw_abbrev *a,
		       struct sp_cursor *c)
{
	for (;;) {
		uint64_t at = sp_cur_uleb(c), form = sp_cur_uleb(c);
		int64_t implicit = form == DW_FORM_implicit_const ? sp_cur_sleb(c) : 0;
		if (c->bad)
			return false;
		if (!at && !form)
			return true;
		uint32_t n;
		bool known;
		enum dw_step step = dw_form_step(u, form, &n, &known);
		if (!known || at > UINT16_MAX || t->n_attrs >= UINT32_MAX)
			return false;
		if (at == DW_AT_sibling && form == DW_FORM_ref4)
			a->sibling_at = a->fixed;
		a->fixed = step == DW_FIXED && a->fixed >= 0 && a->fixed < INT16_MAX
				   ? a->fixed + (int32_t)n
				   : -1;
		struct dw_attr *slot = SP_PUSH(&t->attrs, &t->n_attrs, &t->attrs_cap);
		if (!slot || !add_skip(t, a, step, n))
			return false;
		*slot = (struct dw_attr){(uint16_t)at, (uint16_t)form, implicit};
		a->n_attrs++;
		a->has_pc |= at == DW_AT_low_pc || at == DW_AT_ranges;
		a->has_sibling |= at == DW_AT_sibling;
	}
}

static struct dw_abbrevs *read_table(struct dw_unit *u, uint64_t off)
{
	struct dw_abbrevs *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_ABBREV), off);
	t->dense = true;
	for (;;) {
		struct dw_abbrev a = {.code = sp_cur_uleb(&c), .sibling_at = -1};
		if (c.bad || !a.code)
			break;
		uint64_t tag = sp_cur_uleb(&c);
		a.tag = tag > UINT16_MAX ? 0 : (uint16_t)tag;
		a.children = sp_cur_u8(&c) != 0;
		a.first_attr = (uint32_t)t->n_attrs;
		a.first_skip = (uint32_t)t->n_skips;
		const uint8_t *from = c.p;
		if (!read_attrs(u, t, &a, &c) || !dw_work(u->obj->d, (uint64_t)(c.p - from)))
			break; /* what came before it is good */
		t->dense &= a.code == t->n + 1;
		struct dw_abbrev *slot = SP_PUSH(&t->v, &t->n, &t->cap);
		if (!slot)
			break;
		*slot = a;
	}
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
	free(t->v);
	free(t->attrs);
	free(t->skips);
	sp_map64_deinit(&t->by_code);
	free(t);
}
