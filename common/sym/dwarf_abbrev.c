/* Abbreviation tables (DWARF 5, section 7.5.3), each with a plan for stepping over its entries. */
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

/* How the bytes of each form are stepped over; sizes that depend on the unit have names. */
enum { N_ADDR = 17, N_OFFSET, N_REF_ADDR };
#define FIXED(bytes)                                                                               \
	{                                                                                          \
		true, DW_FIXED, (bytes)                                                            \
	}
#define BY(step)                                                                                   \
	{                                                                                          \
		true, (step), 0                                                                    \
	}
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

bool dw_attr_next_slow(struct sp_cursor *list, struct dw_attr *a)
{
	uint64_t at = sp_cur_uleb(list), form = sp_cur_uleb(list);
	int64_t implicit = form == DW_FORM_implicit_const ? sp_cur_sleb(list) : 0;
	list->bad |= at > UINT16_MAX || form > UINT16_MAX;
	*a = (struct dw_attr){.at = (uint16_t)at, .form = (uint16_t)form, .implicit = implicit};
	return !list->bad && (at || form);
}

void dw_scratch_deinit(struct dw_scratch *s)
{
	free(s->v);
	free(s->skips);
	free(s->dirs);
	free(s->files);
	free(s->firsts);
	free(s->marks);
}

static bool add_skip(struct dw_scratch *t, struct dw_abbrev *a, enum dw_step step, uint32_t n)
{
	struct dw_skip *last = a->n_skips ? &t->skips[t->n_skips - 1] : NULL;
	if (step == DW_FIXED && last && last->step == DW_FIXED && last->n + n <= UINT8_MAX) {
		last->n = (uint8_t)(last->n + n);
		return true;
	}
	if (a->n_skips == DW_SKIPS_MANY)
		return true;
	struct dw_skip *slot = SP_PUSH(&t->skips, &t->n_skips, &t->skips_cap);
	if (!slot)
		return false;
	*slot = (struct dw_skip){(uint8_t)step, (uint8_t)n};
	a->n_skips++;
	return true;
}

/* The attributes of one abbreviation; false at the end of what can be used. */
static bool read_attrs(struct dw_unit *u, struct dw_scratch *t, struct dw_abbrev *a,
		       struct sp_cursor *c)
{
	struct dw_attr attr;
	size_t first_skip = t->n_skips;
	while (dw_attr_next(c, &attr)) {
		uint32_t n;
		bool known;
		enum dw_step step = dw_form_step(u, attr.form, &n, &known);
		if (!known || !add_skip(t, a, step, n))
			return false;
		if (attr.at == DW_AT_sibling && attr.form == DW_FORM_ref4)
			a->sibling_at = a->fixed;
		bool fixed = step == DW_FIXED && a->fixed >= 0 && a->fixed + n <= INT16_MAX;
		a->fixed = fixed ? (int16_t)(a->fixed + n) : -1;
		if (attr.at == DW_AT_low_pc || attr.at == DW_AT_ranges)
			a->flags |= DW_HAS_PC;
		if (attr.at == DW_AT_sibling)
			a->flags |= DW_HAS_SIBLING;
	}
	if (a->fixed >= 0) {
		t->n_skips = first_skip;
		a->n_skips = 0;
	}
	return !c->bad;
}

void *dw_keep(struct sp_dwarf *d, const void *from, size_t n, size_t size, size_t align)
{
	void *out = sp_arena_take(&d->memory, n * size + 1, align);
	if (out && n)
		memcpy(out, from, n * size);
	return out;
}

/* The codes of a table that is not dense. */
static void map_codes(struct dw_abbrevs *t)
{
	struct sp_cursor c = t->bytes;
	for (size_t i = 0; i < t->n; i++) {
		struct dw_attr attr;
		uint64_t code = sp_cur_uleb(&c);
		if (sp_map64_get(&t->by_code, code) == SP_NOT_FOUND)
			sp_map64_put(&t->by_code, code, (uint32_t)i);
		c.p = t->bytes.p + t->v[i].attrs;
		while (dw_attr_next(&c, &attr))
			;
	}
}

static struct dw_abbrevs *read_table(struct dw_unit *u, uint64_t off)
{
	struct sp_dwarf *d = u->obj->d;
	struct dw_scratch *s = &d->scratch;
	struct dw_abbrevs *t = sp_arena_take(&d->memory, sizeof *t, _Alignof(struct dw_abbrevs));
	if (!t)
		return NULL;
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_ABBREV), off);
	*t = (struct dw_abbrevs){.bytes = c, .dense = true};
	s->n = s->n_skips = 0;
	for (;;) {
		uint64_t code = sp_cur_uleb(&c);
		if (c.bad || !code)
			break;
		uint64_t tag = sp_cur_uleb(&c);
		struct dw_abbrev a = {.first_skip = (uint32_t)s->n_skips, .sibling_at = -1};
		a.tag = tag > UINT16_MAX ? 0 : (uint16_t)tag;
		a.flags = sp_cur_u8(&c) ? DW_CHILDREN : 0;
		const uint8_t *from = c.p;
		a.attrs = (uint32_t)(from - t->bytes.p);
		if (from - t->bytes.p > UINT32_MAX || !read_attrs(u, s, &a, &c) ||
		    !dw_work(d, (uint64_t)(c.p - from)))
			break; /* what came before it is good */
		t->dense &= code == s->n + 1;
		if (s->n == s->cap && !sp_grow(&s->v, &s->cap, s->n + 1, sizeof a))
			break;
		s->v[s->n++] = a;
	}
	t->n = s->n;
	t->v = dw_keep(d, s->v, s->n, sizeof *s->v, _Alignof(struct dw_abbrev));
	t->skips = dw_keep(d, s->skips, s->n_skips, sizeof *s->skips, 1);
	if (!t->v || !t->skips)
		return NULL;
	if (!t->dense)
		map_codes(t);
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
