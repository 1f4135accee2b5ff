/* Address ranges of an entry: low_pc with high_pc, .debug_ranges, .debug_rnglists. */
#include "sym/dwarf_impl.h"

void dw_pc_attr(struct dw_pc_attrs *pc, uint16_t at, const struct dw_val *v)
{
	if (v->class == DW_V_NONE)
		return;
	switch (at) {
	case DW_AT_low_pc:
		pc->has_low = true;
		pc->low = v->u;
		break;
	case DW_AT_high_pc: /* an address up to DWARF 3, since then also a length */
		pc->has_high = true;
		pc->high_is_size = v->class != DW_V_ADDR;
		pc->high = v->u;
		break;
	case DW_AT_ranges:
		pc->has_ranges = true;
		pc->ranges_class = v->class;
		pc->ranges = v->u;
		break;
	default:
		break;
	}
}

static bool add(struct dw_unit *u, struct dw_pcs *out, uint64_t lo, uint64_t hi)
{
	if (hi <= lo || !dw_is_code(u->obj->d, lo))
		return true;
	struct dw_pc *p = SP_PUSH(&out->v, &out->n, &out->cap);
	if (!p)
		return false;
	*p = (struct dw_pc){lo, hi};
	return true;
}

static uint64_t base_of(const struct dw_unit *u)
{
	return u->skeleton ? u->skeleton->pc.low : u->pc.low;
}

/* DWARF 2 to 4, section 2.17.3: pairs of offsets from a base; all ones and an address is a new
 * base; two zeros end the list. */
static bool add_ranges(struct dw_unit *u, uint64_t off, struct dw_pcs *out)
{
	struct dw_unit *b = u->skeleton ? u->skeleton : u;
	uint64_t from = off + (u->skeleton ? b->gnu_ranges_base : 0);
	struct sp_cursor c = dw_cursor(b->obj, dw_section(b->obj, DW_RANGES), from);
	uint64_t base = base_of(u);
	uint64_t ones = u->addr_size == 4 ? UINT32_MAX : UINT64_MAX;
	while (dw_work(u->obj->d, 16)) {
		uint64_t lo = sp_cur_uint(&c, u->addr_size), hi = sp_cur_uint(&c, u->addr_size);
		if (c.bad || (!lo && !hi))
			return true;
		if (lo == ones)
			base = hi;
		else if (!add(u, out, (base + lo) & ones, (base + hi) & ones))
			return false;
	}
	return true;
}

/* One entry of a list of DWARF 5, section 7.25. 1: *lo and *hi; 0: a base or an end. */
static int rnglist_entry(struct dw_unit *u, struct sp_cursor *c, uint64_t *base, bool *end,
			 uint64_t *lo, uint64_t *hi)
{
	uint8_t kind = sp_cur_u8(c);
	*end = c->bad;
	switch (kind) {
	case DW_RLE_base_addressx:
		*end |= !dw_addr_x(u, sp_cur_uleb(c), base);
		return 0;
	case DW_RLE_base_address:
		*base = sp_cur_uint(c, u->addr_size);
		return 0;
	case DW_RLE_startx_endx: {
		bool ok = dw_addr_x(u, sp_cur_uleb(c), lo);
		return ok && dw_addr_x(u, sp_cur_uleb(c), hi);
	}
	case DW_RLE_startx_length: {
		bool ok = dw_addr_x(u, sp_cur_uleb(c), lo);
		*hi = *lo + sp_cur_uleb(c);
		return ok;
	}
	case DW_RLE_offset_pair:
		*lo = *base + sp_cur_uleb(c);
		*hi = *base + sp_cur_uleb(c);
		return 1;
	case DW_RLE_start_end:
		*lo = sp_cur_uint(c, u->addr_size);
		*hi = sp_cur_uint(c, u->addr_size);
		return 1;
	case DW_RLE_start_length:
		*lo = sp_cur_uint(c, u->addr_size);
		*hi = *lo + sp_cur_uleb(c);
		return 1;
	default: /* DW_RLE_end_of_list, and what no standard has yet */
		*end = true;
		return 0;
	}
}

static bool add_rnglist(struct dw_unit *u, uint64_t off, struct dw_pcs *out)
{
	struct sp_cursor c = dw_cursor(u->obj, dw_section(u->obj, DW_RNGLISTS), off);
	uint64_t base = base_of(u), lo = 0, hi = 0;
	bool end = false;
	while (!end && dw_work(u->obj->d, 4)) {
		int got = rnglist_entry(u, &c, &base, &end, &lo, &hi);
		if (c.bad)
			break;
		if (got && !add(u, out, lo, hi))
			return false;
	}
	return true;
}

bool dw_pcs_add(struct dw_unit *u, const struct dw_pc_attrs *pc, struct dw_pcs *out)
{
	if (pc->has_ranges) {
		if (pc->ranges_class == DW_V_RNGX) {
			if (pc->ranges > UINT32_MAX)
				return true;
			struct sp_cursor c =
				dw_cursor(u->obj, dw_section(u->obj, DW_RNGLISTS),
					  u->rnglists_base + pc->ranges * u->offset_size);
			uint64_t off = sp_cur_uint(&c, u->offset_size);
			return c.bad || add_rnglist(u, u->rnglists_base + off, out);
		}
		if (u->version >= 5)
			return add_rnglist(u, pc->ranges + u->part_off[DW_RNGLISTS], out);
		return add_ranges(u, pc->ranges, out);
	}
	if (!pc->has_low || !pc->has_high)
		return true;
	return add(u, out, pc->low, pc->high_is_size ? pc->low + pc->high : pc->high);
}
