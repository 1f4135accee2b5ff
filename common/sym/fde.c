#include "sym/fde.h"

#include <dwarf.h>
#include <string.h>

void sp_fdes_deinit(struct sp_fdes *f)
{
	sp_ranges_deinit(&f->v);
}

static const uint8_t *section_bytes(const struct sp_elf *e, uint64_t *svma, size_t *size)
{
	const struct sp_section *s = sp_elf_section(e, ".eh_frame");
	const uint8_t *p;
	void *owned = NULL;
	if (!s || s->type == SHT_NOBITS || (s->flags & SHF_COMPRESSED) ||
	    sp_elf_section_data(e, s, &p, size, &owned, NULL) < 0)
		return NULL;
	*svma = s->svma;
	return p;
}

/* The pointer encoding of the CIE at `off` (LSB 5.0 Core, section 10.6.1), or DW_EH_PE_omit. */
static uint8_t cie_encoding(const struct sp_elf *e, const uint8_t *p, size_t size, uint64_t off)
{
	struct sp_cursor c = sp_elf_cursor(e, p, size);
	sp_cur_skip(&c, off);
	uint64_t len = sp_cur_u32(&c);
	if (len == 0xffffffff)
		len = sp_cur_u64(&c);
	if (c.bad || len > sp_cur_left(&c))
		return DW_EH_PE_omit;
	c.end = c.p + len;
	sp_cur_u32(&c);
	uint8_t version = sp_cur_u8(&c);
	const char *aug = sp_cur_str(&c);
	if (!aug)
		return DW_EH_PE_omit;
	if (aug[0] != 'z')
		return aug[0] ? DW_EH_PE_omit : DW_EH_PE_absptr;
	if (version >= 4)
		sp_cur_u16(&c);
	sp_cur_uleb(&c);
	sp_cur_sleb(&c);
	if (version == 1)
		sp_cur_u8(&c);
	else
		sp_cur_uleb(&c);
	sp_cur_uleb(&c);
	for (const char *a = aug + 1; *a && !c.bad; a++) {
		if (*a == 'R')
			return sp_cur_u8(&c);
		if (*a == 'L') {
			sp_cur_u8(&c);
		} else if (*a == 'P') {
			uint8_t enc = sp_cur_u8(&c) & 0x0f;
			sp_cur_skip(&c, enc == DW_EH_PE_absptr ? (e->is64 ? 8 : 4)
					: enc == DW_EH_PE_udata2 || enc == DW_EH_PE_sdata2 ? 2
					: enc == DW_EH_PE_udata4 || enc == DW_EH_PE_sdata4 ? 4
											   : 8);
		}
	}
	return c.bad ? DW_EH_PE_omit : DW_EH_PE_absptr;
}

static uint64_t encoded(struct sp_cursor *c, const struct sp_elf *e, uint8_t format)
{
	switch (format) {
	case DW_EH_PE_absptr:
		return sp_cur_uint(c, e->is64 ? 8 : 4);
	case DW_EH_PE_uleb128:
		return sp_cur_uleb(c);
	case DW_EH_PE_sleb128:
		return (uint64_t)sp_cur_sleb(c);
	case DW_EH_PE_udata2:
		return sp_cur_u16(c);
	case DW_EH_PE_sdata2:
		return (uint64_t)(int16_t)sp_cur_u16(c);
	case DW_EH_PE_udata4:
		return sp_cur_u32(c);
	case DW_EH_PE_sdata4:
		return (uint64_t)(int32_t)sp_cur_u32(c);
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return sp_cur_u64(c);
	default:
		c->bad = true;
		return 0;
	}
}

bool sp_fdes_read(struct sp_fdes *f, const struct sp_elf *e)
{
	uint64_t svma = 0;
	size_t size = 0;
	const uint8_t *p = section_bytes(e, &svma, &size);
	if (!p)
		return true;
	struct sp_cursor all = sp_elf_cursor(e, p, size);
	uint64_t last_cie = UINT64_MAX;
	uint8_t enc = DW_EH_PE_omit;
	while (sp_cur_left(&all) > 4) {
		uint64_t len = sp_cur_u32(&all);
		if (len == 0xffffffff)
			len = sp_cur_u64(&all);
		if (all.bad || !len || len > sp_cur_left(&all))
			break;
		struct sp_cursor c = all;
		c.end = c.p + len;
		sp_cur_skip(&all, len);
		uint64_t at = (uint64_t)(c.p - p);
		uint64_t back = sp_cur_u32(&c);
		if (!back || back > at || c.bad)
			continue;
		if (at - back != last_cie) {
			last_cie = at - back;
			enc = cie_encoding(e, p, size, last_cie);
		}
		uint8_t rel = enc & 0x70;
		if (enc == DW_EH_PE_omit || (rel != 0 && rel != DW_EH_PE_pcrel))
			continue;
		uint64_t lo = rel == DW_EH_PE_pcrel ? svma + (uint64_t)(c.p - p) : 0;
		lo += encoded(&c, e, enc & 0x0f);
		uint64_t n = encoded(&c, e, enc & 0x07);
		if (!c.bad && n <= UINT64_MAX - lo && !sp_ranges_add(&f->v, lo, lo + n, 0))
			return false;
	}
	return sp_ranges_sort(&f->v);
}

bool sp_fdes_separate(const struct sp_fdes *f, uint64_t start, uint64_t svma)
{
	size_t n = sp_ranges_upper(&f->v, svma);
	if (!n)
		return false;
	const struct sp_range *r = &f->v.v[n - 1];
	return r->lo > start || (r->hi > start && r->hi <= svma);
}
