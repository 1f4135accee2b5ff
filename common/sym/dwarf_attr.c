/* Attribute values by form (DWARF 5, section 7.5.6). */
#include "sym/dwarf_impl.h"

struct sp_cursor dw_cursor(const struct dw_obj *o, struct dw_bytes b, uint64_t from)
{
	struct sp_cursor c = sp_elf_cursor(o->elf, b.p, b.n);
	sp_cur_skip(&c, from);
	return c;
}

struct sp_cursor dw_unit_cursor(struct dw_unit *u, uint64_t off)
{
	struct dw_bytes info = dw_section(u->obj, DW_INFO);
	info.n = u->end < info.n ? u->end : info.n;
	struct sp_cursor c = dw_cursor(u->obj, info, off);
	c.bad |= off < u->root_off;
	return c;
}

static void step_over(struct dw_unit *u, struct sp_cursor *c, enum dw_step step, uint32_t n)
{
	/* An indirect form that leads to another one is not followed: no compiler makes it. */
	for (int indirect = 0; step == DW_INDIRECT; indirect++) {
		bool known;
		step = dw_form_step(u, sp_cur_uleb(c), &n, &known);
		if (!known || indirect > 0) {
			c->bad = true;
			return;
		}
	}
	switch (step) {
	case DW_FIXED:
		sp_cur_skip(c, n);
		break;
	case DW_ULEB: /* signed ones have the same length */
		while (sp_cur_u8(c) & 0x80)
			;
		break;
	case DW_CSTRING:
		sp_cur_str(c);
		break;
	case DW_BLOCK1:
		sp_cur_skip(c, sp_cur_u8(c));
		break;
	case DW_BLOCK2:
		sp_cur_skip(c, sp_cur_u16(c));
		break;
	case DW_BLOCK4:
		sp_cur_skip(c, sp_cur_u32(c));
		break;
	case DW_BLOCKU:
		sp_cur_skip(c, sp_cur_uleb(c));
		break;
	case DW_INDIRECT:
		break;
	}
}

void dw_attr_skip(struct dw_unit *u, struct sp_cursor *c, uint64_t form)
{
	uint32_t n;
	bool known;
	enum dw_step step = dw_form_step(u, form, &n, &known);
	if (!known)
		c->bad = true;
	else if (step == DW_FIXED)
		sp_cur_skip(c, n);
	else
		step_over(u, c, step, n);
}

void dw_skip_attrs_slow(struct dw_unit *u, struct sp_cursor *c, const struct dw_abbrev *a)
{
	if (a->n_skips == DW_SKIPS_MANY) {
		struct sp_cursor list = dw_attrs(u->abbrevs, a);
		struct dw_attr at;
		while (!c->bad && dw_attr_next(&list, &at))
			dw_attr_skip(u, c, at.form);
		dw_attrs_done(u, a, &list);
		return;
	}
	const struct dw_skip *s = &u->abbrevs->skips[a->first_skip];
	for (uint32_t i = 0; i < a->n_skips; i++) {
		if (s[i].step == DW_FIXED)
			sp_cur_skip(c, s[i].n);
		else
			step_over(u, c, s[i].step, s[i].n);
	}
}

const char *dw_string_at(struct dw_obj *o, enum dw_sec s, uint64_t off)
{
	struct sp_cursor c = dw_cursor(o, dw_section(o, s), off);
	return sp_cur_str(&c);
}

const char *dw_string_x(struct dw_unit *u, uint64_t index)
{
	if (index > UINT32_MAX)
		return NULL;
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_STR_OFFSETS),
				       u->str_offsets_base + index * u->offset_size);
	uint64_t off = sp_cur_uint(&c, u->offset_size);
	return c.bad ? NULL : dw_string_at(u->obj, DW_STR, off);
}

bool dw_addr_x(struct dw_unit *u, uint64_t index, uint64_t *addr)
{
	struct dw_unit *b = u->skeleton ? u->skeleton : u;
	if (index > UINT32_MAX)
		return false;
	struct sp_cursor c =
		dw_cursor(b->obj, dw_section(b->obj, DW_ADDR), b->addr_base + index * b->addr_size);
	*addr = sp_cur_uint(&c, b->addr_size);
	return !c.bad;
}

static uint32_t cur_u24(struct sp_cursor *c)
{
	uint32_t a = sp_cur_u8(c), b = sp_cur_u8(c), d = sp_cur_u8(c);
	return c->swap ? a << 16 | b << 8 | d : d << 16 | b << 8 | a;
}

static void set_ref(struct dw_val *v, struct dw_obj *o, uint64_t off)
{
	v->class = o ? DW_V_REF : DW_V_NONE;
	v->obj = o;
	v->u = off;
}

static void set_string(struct dw_val *v, const char *s)
{
	v->class = DW_V_STRING;
	v->str = s;
}

static void set_addr_x(struct dw_unit *u, struct dw_val *v, uint64_t index)
{
	v->class = dw_addr_x(u, index, &v->u) ? DW_V_ADDR : DW_V_NONE;
}

static void set_uint(struct dw_val *v, uint64_t n)
{
	v->class = DW_V_UINT;
	v->u = n;
}

/* The forms that name a string or an entry in another place. */
static bool read_reference(struct dw_unit *u, struct sp_cursor *c, uint64_t form, struct dw_val *v)
{
	struct dw_obj *o = u->obj;
	switch (form) {
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8: {
		unsigned size = form == DW_FORM_ref1   ? 1
				: form == DW_FORM_ref2 ? 2
				: form == DW_FORM_ref4 ? 4
						       : 8;
		set_ref(v, o, u->off + sp_cur_uint(c, size));
		return true;
	}
	case DW_FORM_ref_udata:
		set_ref(v, o, u->off + sp_cur_uleb(c));
		return true;
	case DW_FORM_ref_addr:
		set_ref(v, o, sp_cur_uint(c, u->version == 2 ? u->addr_size : u->offset_size));
		return true;
	case DW_FORM_ref_sup4:
		set_ref(v, dw_alt(o), sp_cur_u32(c));
		return true;
	case DW_FORM_ref_sup8:
		set_ref(v, dw_alt(o), sp_cur_u64(c));
		return true;
	case DW_FORM_GNU_ref_alt:
		set_ref(v, dw_alt(o), sp_cur_uint(c, u->offset_size));
		return true;
	case DW_FORM_string:
		set_string(v, sp_cur_str(c));
		return true;
	case DW_FORM_strp:
		set_string(v, dw_string_at(o, DW_STR, sp_cur_uint(c, u->offset_size)));
		return true;
	case DW_FORM_line_strp:
		set_string(v, dw_string_at(o, DW_LINE_STR, sp_cur_uint(c, u->offset_size)));
		return true;
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt: {
		uint64_t off = sp_cur_uint(c, u->offset_size);
		struct dw_obj *alt = dw_alt(o);
		set_string(v, alt ? dw_string_at(alt, DW_STR, off) : NULL);
		return true;
	}
	case DW_FORM_strx:
	case DW_FORM_GNU_str_index:
		set_string(v, dw_string_x(u, sp_cur_uleb(c)));
		return true;
	case DW_FORM_strx1:
		set_string(v, dw_string_x(u, sp_cur_u8(c)));
		return true;
	case DW_FORM_strx2:
		set_string(v, dw_string_x(u, sp_cur_u16(c)));
		return true;
	case DW_FORM_strx3:
		set_string(v, dw_string_x(u, cur_u24(c)));
		return true;
	case DW_FORM_strx4:
		set_string(v, dw_string_x(u, sp_cur_u32(c)));
		return true;
	default:
		return false;
	}
}

static bool read_number(struct dw_unit *u, struct sp_cursor *c, const struct dw_attr *a,
			uint64_t form, struct dw_val *v)
{
	switch (form) {
	case DW_FORM_flag_present:
		set_uint(v, 1);
		return true;
	case DW_FORM_implicit_const:
		set_uint(v, (uint64_t)a->implicit);
		return true;
	case DW_FORM_data1:
	case DW_FORM_flag:
		set_uint(v, sp_cur_u8(c));
		return true;
	case DW_FORM_data2:
		set_uint(v, sp_cur_u16(c));
		return true;
	case DW_FORM_data4:
		set_uint(v, sp_cur_u32(c));
		return true;
	case DW_FORM_data8:
		set_uint(v, sp_cur_u64(c));
		return true;
	case DW_FORM_udata:
		set_uint(v, sp_cur_uleb(c));
		return true;
	case DW_FORM_sdata:
		set_uint(v, (uint64_t)sp_cur_sleb(c));
		return true;
	case DW_FORM_sec_offset:
		v->class = DW_V_OFFSET;
		v->u = sp_cur_uint(c, u->offset_size);
		return true;
	case DW_FORM_rnglistx:
		v->class = DW_V_RNGX;
		v->u = sp_cur_uleb(c);
		return true;
	case DW_FORM_addr:
		v->class = DW_V_ADDR;
		v->u = sp_cur_uint(c, u->addr_size);
		return true;
	case DW_FORM_addrx:
	case DW_FORM_GNU_addr_index:
		set_addr_x(u, v, sp_cur_uleb(c));
		return true;
	case DW_FORM_addrx1:
		set_addr_x(u, v, sp_cur_u8(c));
		return true;
	case DW_FORM_addrx2:
		set_addr_x(u, v, sp_cur_u16(c));
		return true;
	case DW_FORM_addrx3:
		set_addr_x(u, v, cur_u24(c));
		return true;
	case DW_FORM_addrx4:
		set_addr_x(u, v, sp_cur_u32(c));
		return true;
	default:
		return false;
	}
}

void dw_attr_read(struct dw_unit *u, struct sp_cursor *c, const struct dw_attr *a, struct dw_val *v)
{
	uint64_t form = a->form;
	if (form == DW_FORM_indirect)
		form = sp_cur_uleb(c);
	v->class = DW_V_NONE;
	v->form = (uint16_t)form;
	v->u = 0;
	v->str = NULL;
	if (read_number(u, c, a, form, v) || read_reference(u, c, form, v))
		return;
	if (form == DW_FORM_indirect)
		c->bad = true; /* no compiler makes one lead to another */
	else
		dw_attr_skip(u, c, form);
}

uint64_t dw_skip_to_sibling(struct dw_unit *u, struct sp_cursor *c, const struct dw_abbrev *a)
{
	uint64_t sibling = 0;
	if (a->sibling_at >= 0) {
		struct sp_cursor at = *c;
		sp_cur_skip(&at, (uint64_t)a->sibling_at);
		uint64_t relative = sp_cur_u32(&at);
		sibling = at.bad ? 0 : u->off + relative;
	} else if (a->flags & DW_HAS_SIBLING) {
		struct sp_cursor list = dw_attrs(u->abbrevs, a), values = *c;
		struct dw_attr at;
		while (!values.bad && dw_attr_next(&list, &at)) {
			struct dw_val v;
			if (at.at != DW_AT_sibling) {
				dw_attr_skip(u, &values, at.form);
				continue;
			}
			dw_attr_read(u, &values, &at, &v);
			sibling = v.class == DW_V_REF ? v.u : 0;
			break;
		}
		dw_attrs_done(u, a, &list);
	}
	dw_skip_attrs(u, c, a);
	return sibling;
}
