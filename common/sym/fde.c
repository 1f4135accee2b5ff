#include "sym/fde.h"

#include <dwarf.h>
#include <string.h>

#include "base/le.h"

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

/* What section bytes say about the FDE at the cursor, which is behind its length: true and its
 * range, or false (a CIE, or unreadable). */
struct section {
	const struct sp_elf *e;
	const uint8_t *p;
	size_t size;
	uint64_t svma;
	uint64_t cie; /* the last one, and its encoding */
	uint8_t encoding;
};

static bool read_fde(struct section *s, struct sp_cursor c, uint64_t *lo, uint64_t *hi)
{
	uint64_t at = (uint64_t)(c.p - s->p);
	uint64_t back = sp_cur_u32(&c);
	if (!back || back > at || c.bad)
		return false;
	if (at - back != s->cie) {
		s->cie = at - back;
		s->encoding = cie_encoding(s->e, s->p, s->size, s->cie);
	}
	uint8_t rel = s->encoding & 0x70;
	if (s->encoding == DW_EH_PE_omit || (rel != 0 && rel != DW_EH_PE_pcrel))
		return false;
	*lo = rel == DW_EH_PE_pcrel ? s->svma + (uint64_t)(c.p - s->p) : 0;
	*lo += encoded(&c, s->e, s->encoding & 0x0f);
	uint64_t n = encoded(&c, s->e, s->encoding & 0x07);
	*hi = *lo + n;
	return !c.bad && n <= UINT64_MAX - *lo;
}

/* Steps over one entry; its contents in *entry. */
static bool next_entry(struct sp_cursor *c, struct sp_cursor *entry)
{
	uint64_t len = sp_cur_u32(c);
	if (len == 0xffffffff)
		len = sp_cur_u64(c);
	if (c->bad || !len || len > sp_cur_left(c))
		return false;
	*entry = *c;
	entry->end = entry->p + len;
	sp_cur_skip(c, len);
	return true;
}

static bool open_section(struct section *s, const struct sp_elf *e)
{
	*s = (struct section){.e = e, .cie = UINT64_MAX, .encoding = DW_EH_PE_omit};
	s->p = section_bytes(e, &s->svma, &s->size);
	return s->p != NULL;
}

/* Every linker writes the same kind of table: 32-bit, from the header's start, sorted. */
static bool find_table(struct sp_fdes *f, const struct sp_elf *e)
{
	const struct sp_section *hdr = sp_elf_section(e, ".eh_frame_hdr");
	const uint8_t *p;
	size_t size;
	void *owned = NULL;
	if (!hdr || hdr->type == SHT_NOBITS || (hdr->flags & SHF_COMPRESSED) ||
	    sp_elf_section_data(e, hdr, &p, &size, &owned, NULL) < 0 || size < 12)
		return false;
	if (p[0] != 1 || p[1] != (DW_EH_PE_pcrel | DW_EH_PE_sdata4) || p[2] != DW_EH_PE_udata4 ||
	    p[3] != (DW_EH_PE_datarel | DW_EH_PE_sdata4) || e->swap)
		return false;
	f->n = sp_get32(p + 8);
	if (f->n > (size - 12) / 8)
		return false;
	f->table = p + 12;
	f->table_svma = hdr->svma;
	return true;
}

bool sp_fdes_read(struct sp_fdes *f, const struct sp_elf *e)
{
	struct section s;
	f->elf = e;
	if (find_table(f, e) || !open_section(&s, e))
		return true;
	struct sp_cursor all = sp_elf_cursor(e, s.p, s.size), entry;
	while (sp_cur_left(&all) > 4 && next_entry(&all, &entry)) {
		uint64_t lo, hi;
		if (read_fde(&s, entry, &lo, &hi) && !sp_ranges_add(&f->v, lo, hi, 0))
			return false;
	}
	return sp_ranges_sort(&f->v);
}

static uint64_t table_value(const struct sp_fdes *f, size_t i, size_t part)
{
	return f->table_svma + (uint64_t)(int64_t)(int32_t)sp_get32(f->table + 8 * i + 4 * part);
}

/* The last FDE that begins at or below svma. */
static bool find_in_table(const struct sp_fdes *f, uint64_t svma, uint64_t *lo, uint64_t *hi)
{
	size_t from = 0, to = f->n;
	while (from < to) {
		size_t mid = from + (to - from) / 2;
		if (table_value(f, mid, 0) <= svma)
			from = mid + 1;
		else
			to = mid;
	}
	if (!from)
		return false;
	*lo = *hi = table_value(f, from - 1, 0);
	struct section s;
	uint64_t at = table_value(f, from - 1, 1);
	if (open_section(&s, f->elf) && at >= s.svma && at - s.svma < s.size) {
		struct sp_cursor all = sp_elf_cursor(f->elf, s.p, s.size), entry;
		uint64_t fde_lo, fde_hi;
		sp_cur_skip(&all, at - s.svma);
		if (next_entry(&all, &entry) && read_fde(&s, entry, &fde_lo, &fde_hi) &&
		    fde_lo == *lo)
			*hi = fde_hi;
	}
	return true;
}

bool sp_fdes_separate(const struct sp_fdes *f, uint64_t start, uint64_t svma)
{
	uint64_t lo, hi;
	if (f->table) {
		if (!find_in_table(f, svma, &lo, &hi))
			return false;
	} else {
		size_t n = sp_ranges_upper(&f->v, svma);
		if (!n)
			return false;
		lo = f->v.v[n - 1].lo;
		hi = f->v.v[n - 1].hi;
	}
	return lo > start || (hi > start && hi <= svma);
}
