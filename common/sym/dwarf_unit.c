/* The root entry of a unit: where its other data lies, and where its code is. */
#include "sym/dwarf_impl.h"

/* Only the root's abbreviation: an index of ten thousand units must not read as many tables. False
 * when the table has no such code. */
static bool root_attrs(struct dw_unit *u, uint64_t code, struct sp_cursor *list)
{
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_ABBREV),
				       u->abbrev_off + u->part_off[DW_ABBREV]);
	const uint8_t *from = c.p;
	for (;;) {
		uint64_t found = sp_cur_uleb(&c);
		sp_cur_uleb(&c);
		sp_cur_u8(&c);
		if (c.bad || !found || !dw_work(u->obj->d, (uint64_t)(c.p - from)))
			return false;
		*list = c;
		if (found == code)
			return true;
		from = c.p;
		struct dw_attr a;
		while (dw_attr_next(&c, &a))
			;
	}
}

static void read_base(struct dw_unit *u, uint16_t at, const struct dw_val *v)
{
	switch (at) {
	case DW_AT_str_offsets_base:
		u->str_offsets_base = v->u + u->part_off[DW_STR_OFFSETS];
		break;
	case DW_AT_addr_base:
	case DW_AT_GNU_addr_base:
		u->addr_base = v->u;
		break;
	case DW_AT_rnglists_base:
		u->rnglists_base = v->u + u->part_off[DW_RNGLISTS];
		break;
	case DW_AT_GNU_ranges_base:
		u->gnu_ranges_base = v->u;
		break;
	default:
		break;
	}
}

static void read_value(struct dw_unit *u, uint16_t at, const struct dw_val *v)
{
	switch (at) {
	case DW_AT_name:
		u->name = v->str;
		break;
	case DW_AT_comp_dir:
		u->comp_dir = v->str;
		break;
	case DW_AT_dwo_name:
	case DW_AT_GNU_dwo_name:
		u->dwo_name = v->str;
		break;
	case DW_AT_GNU_dwo_id:
		u->dwo_id = v->u;
		break;
	case DW_AT_language:
		u->language = (uint16_t)v->u;
		break;
	case DW_AT_stmt_list:
		u->has_stmt_list = v->class != DW_V_NONE;
		u->stmt_list = v->u;
		break;
	default:
		dw_pc_attr(&u->pc, at, v);
		break;
	}
}

/* Bases that a split unit does not state are behind the header of its own contribution (DWARF 5,
 * section 7.26 and following); the GNU form has no headers. */
static void default_bases(struct dw_unit *u)
{
	uint64_t head = u->offset_size == 8 ? 16 : 8;
	u->str_offsets_base = u->part_off[DW_STR_OFFSETS] + (u->version >= 5 ? head : 0);
	u->addr_base = u->version >= 5 ? head : 0;
	u->rnglists_base = u->part_off[DW_RNGLISTS] + head + 4;
}

bool dw_unit_root(struct dw_unit *u)
{
	if (u->root_read)
		return !u->bad;
	u->root_read = true;
	default_bases(u);
	struct sp_cursor c = dw_unit_cursor(u, u->root_off);
	struct sp_cursor attrs;
	u->bad |= !root_attrs(u, sp_cur_uleb(&c), &attrs) || c.bad;
	/* Strings and addresses by index need the bases, which may come later in the entry. */
	for (int pass = 0; pass < 2 && !u->bad; pass++) {
		struct sp_cursor v_at = c, list = attrs;
		struct dw_attr a;
		while (dw_attr_next(&list, &a)) {
			struct dw_val v;
			dw_attr_read(u, &v_at, &a, &v);
			if (v_at.bad)
				break;
			if (pass == 0)
				read_base(u, a.at, &v);
			else
				read_value(u, a.at, &v);
		}
	}
	return !u->bad;
}
