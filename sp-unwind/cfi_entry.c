#include "cfi.h"

#include <string.h>

#include "base/le.h"

static struct sp_cursor cursor_at(const struct cfi_section *s, size_t off, size_t end)
{
	struct sp_cursor c = sp_cursor(s->data + off, end - off);
	c.swap = s->swap;
	return c;
}

static uint64_t svma_of(const struct cfi_section *s, const struct sp_cursor *c)
{
	return s->svma + (uint64_t)(c->p - s->data);
}

struct cfi_entry cfi_entry_at(const struct cfi_section *s, size_t off)
{
	struct cfi_entry e = {.kind = CFI_END, .off = off, .next = s->size};
	if (!s->data || off >= s->size)
		return e;
	struct sp_cursor c = cursor_at(s, off, s->size);
	uint64_t len = sp_cur_u32(&c);
	if (len == UINT32_MAX) {
		len = sp_cur_u64(&c);
		e.dwarf64 = true;
	}
	if (c.bad || len > sp_cur_left(&c))
		return e;
	if (!len) {
		/* .eh_frame's terminator. Linkers leave some in the middle (ld -r, several
		 * crtend.o), so it ends only what has no other end. */
		e.next = (size_t)(c.p - s->data);
		e.kind = s->bounded ? CFI_SKIP : CFI_END;
		return e;
	}
	e.next = (size_t)(c.p - s->data) + (size_t)len;
	c.end = c.p + len;
	size_t id_at = (size_t)(c.p - s->data);
	/* .eh_frame's CIE pointer has four bytes even in 64-bit entries of gcc and binutils;
	 * the LSB says so for the ID, too. */
	bool wide = e.dwarf64 && !s->eh;
	uint64_t id = wide ? sp_cur_u64(&c) : sp_cur_u32(&c);
	if (c.bad) {
		e.kind = CFI_SKIP;
		return e;
	}
	e.body = c;
	if (s->eh) {
		e.kind = id ? CFI_FDE : CFI_CIE;
		if (id > id_at)
			e.kind = CFI_SKIP;
		e.cie_off = id_at - (size_t)id;
	} else {
		e.kind = id == (wide ? UINT64_MAX : UINT32_MAX) ? CFI_CIE : CFI_FDE;
		e.cie_off = (size_t)id;
	}
	return e;
}

bool cfi_pointer(struct sp_cursor *c, uint8_t enc, const struct cfi_section *s, uint8_t addr_bytes,
		 uint64_t at, uint64_t func, uint64_t *out)
{
	uint64_t v = 0;
	if (enc == CFI_PE_OMIT || enc & CFI_PE_INDIRECT)
		return false;
	if ((enc & 0x70) == CFI_PE_ALIGNED) {
		sp_cur_skip(c, -at & (addr_bytes - 1u));
		*out = sp_cur_uint(c, addr_bytes);
		return !c->bad;
	}
	switch (enc & 0x0f) {
	case CFI_PE_ABSPTR:
		v = sp_cur_uint(c, addr_bytes);
		break;
	case CFI_PE_ULEB:
		v = sp_cur_uleb(c);
		break;
	case CFI_PE_UDATA2:
		v = sp_cur_u16(c);
		break;
	case CFI_PE_UDATA4:
		v = sp_cur_u32(c);
		break;
	case CFI_PE_UDATA8:
	case CFI_PE_SDATA8:
		v = sp_cur_u64(c);
		break;
	case 0x08: /* "signed", of an address's size */
		v = sp_cur_uint(c, addr_bytes);
		break;
	case CFI_PE_SLEB:
		v = (uint64_t)sp_cur_sleb(c);
		break;
	case CFI_PE_SDATA2:
		v = (uint64_t)(int16_t)sp_cur_u16(c);
		break;
	case CFI_PE_SDATA4:
		v = (uint64_t)(int32_t)sp_cur_u32(c);
		break;
	default:
		return false;
	}
	switch (enc & 0x70) {
	case 0:
		break;
	case CFI_PE_PCREL:
		v += at;
		break;
	case CFI_PE_TEXTREL:
		v += s->text_svma;
		break;
	case CFI_PE_DATAREL:
		v += s->data_svma;
		break;
	case CFI_PE_FUNCREL:
		v += func;
		break;
	default:
		return false;
	}
	if (addr_bytes == 4)
		v = (uint32_t)v;
	*out = v;
	return !c->bad;
}

/* The augmentation data of a 'z' CIE: letters in the order of the string. */
static bool augmentation(struct sp_cursor *c, const char *letters, const struct cfi_section *s,
			 struct cfi_cie *cie)
{
	for (; *letters; letters++) {
		uint64_t unused;
		uint8_t enc;
		switch (*letters) {
		case 'R':
			cie->fde_enc = sp_cur_u8(c);
			break;
		case 'L':
			sp_cur_skip(c, 1);
			break;
		case 'P':
			enc = sp_cur_u8(c);
			if (enc != CFI_PE_OMIT)
				(void)cfi_pointer(c, enc & (uint8_t)~CFI_PE_INDIRECT, s,
						  cie->addr_bytes, svma_of(s, c), 0, &unused);
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B': /* AArch64: return addresses are signed with the B key */
		case 'G': /* AArch64: tagged frame */
			break;
		default:
			/* Unknown: its data can't be told apart, but 'z' gives the length of all.
			 * What stood before is known. */
			return !c->bad;
		}
	}
	return !c->bad;
}

/* Without 'z' there is no data, and only letters that have none can be read past: gas 2.40 marks
 * the signal frames and B keys of .debug_frame so (gas/dw2gencfi.c, output_cie). */
static bool bare_augmentation(const char *letters, struct cfi_cie *cie)
{
	if (!strcmp(letters, "armcc+")) /* changes nothing here */
		return true;
	if (letters[0] == 'e' && letters[1] == 'h')
		letters += 2;
	for (; *letters; letters++) {
		if (*letters == 'S')
			cie->signal = true;
		else if (*letters != 'B' && *letters != 'G')
			return false;
	}
	return true;
}

bool cfi_cie_parse(const struct cfi_section *s, size_t off, struct cfi_cie *out)
{
	struct cfi_entry e = cfi_entry_at(s, off);
	if (e.kind != CFI_CIE || sp_cur_left(&e.body) > CFI_ENTRY_MAX)
		return false;
	struct sp_cursor *c = &e.body;
	struct cfi_cie cie = {.off = off, .addr_bytes = s->addr_bytes};
	uint8_t version = sp_cur_u8(c);
	const char *aug = sp_cur_str(c);
	if (!aug || (version != 1 && version != 3 && version != 4))
		return false;
	if (version == 4) {
		cie.addr_bytes = sp_cur_u8(c);
		uint8_t segment_bytes = sp_cur_u8(c);
		if ((cie.addr_bytes != 4 && cie.addr_bytes != 8) || segment_bytes)
			return false;
	}
	if (aug[0] == 'e' && aug[1] == 'h' && !aug[2]) /* gcc 2: a pointer to its own table */
		sp_cur_skip(c, cie.addr_bytes);
	cie.code_align = sp_cur_uleb(c);
	cie.data_align = sp_cur_sleb(c);
	uint64_t ra = version == 1 ? sp_cur_u8(c) : sp_cur_uleb(c);
	if (c->bad || ra > UINT16_MAX)
		return false;
	cie.ra_reg = (uint32_t)ra;
	if (aug[0] == 'z') {
		cie.augmented = true;
		uint64_t len = sp_cur_uleb(c);
		const uint8_t *data = sp_cur_bytes(c, len);
		if (!data)
			return false;
		struct sp_cursor a = cursor_at(s, (size_t)(data - s->data),
					       (size_t)(data - s->data) + (size_t)len);
		if (!augmentation(&a, aug + 1, s, &cie))
			return false;
	} else if (!bare_augmentation(aug, &cie)) {
		return false;
	}
	cie.ops = c->p;
	cie.n_ops = sp_cur_left(c);
	*out = cie;
	return true;
}

static const struct cfi_cie *known_cie(const struct cfi_section *s, size_t off)
{
	for (unsigned i = 0; i < s->n_known; i++)
		if (s->known[i].off == off)
			return &s->known[i];
	return NULL;
}

static bool find_cie(const struct cfi_section *s, size_t off, struct cfi_cie *out)
{
	const struct cfi_cie *known = known_cie(s, off);
	if (known)
		*out = *known;
	return known || cfi_cie_parse(s, off, out);
}

bool cfi_fde_read(const struct cfi_section *s, const struct cfi_entry *e, struct cfi_fde *out)
{
	if (e->kind != CFI_FDE || sp_cur_left(&e->body) > CFI_ENTRY_MAX)
		return false;
	if ((!out->cie.ops || out->cie.off != e->cie_off) && !find_cie(s, e->cie_off, &out->cie)) {
		out->cie.ops = NULL;
		return false;
	}
	const struct cfi_cie *cie = &out->cie;
	struct sp_cursor c = e->body;
	uint64_t begin, len;
	if (!cfi_pointer(&c, cie->fde_enc, s, cie->addr_bytes, svma_of(s, &c), 0, &begin) ||
	    !cfi_pointer(&c, cie->fde_enc & 0x0f, s, cie->addr_bytes, 0, 0, &len))
		return false;
	if (cie->augmented)
		sp_cur_skip(&c, sp_cur_uleb(&c));
	if (c.bad || begin + len < begin)
		return false;
	out->off = e->off;
	out->begin = begin;
	out->end = begin + len;
	out->ops = c.p;
	out->n_ops = sp_cur_left(&c);
	out->alone = false;
	return true;
}

/* What nearly every FDE is: of .eh_frame, 32-bit length, a known CIE, pcrel|sdata4 addresses.
 * False: another form, or none. */
static bool fde_common(const struct cfi_section *s, size_t off, struct cfi_fde *out)
{
	if (!s->eh || s->swap || s->addr_bytes != 8 || off > s->size || s->size - off < 20)
		return false;
	const uint8_t *p = s->data + off;
	uint32_t len = sp_get32(p), id = sp_get32(p + 4);
	if (len < 13 || len > s->size - off - 4 || len > CFI_ENTRY_MAX || !id || id > off + 4)
		return false;
	const struct cfi_cie *cie = known_cie(s, off + 4 - id);
	if (!cie || cie->fde_enc != (CFI_PE_PCREL | CFI_PE_SDATA4) || !cie->augmented ||
	    cie->addr_bytes != 8)
		return false;
	uint64_t begin = s->svma + off + 8 + (uint64_t)(int64_t)(int32_t)sp_get32(p + 8);
	int32_t range = (int32_t)sp_get32(p + 12);
	if (range < 0 || begin + (uint32_t)range < begin || p[16] > 0x7f || 13u + p[16] > len)
		return false;
	out->cie = *cie;
	out->off = off;
	out->begin = begin;
	out->end = begin + (uint32_t)range;
	out->ops = p + 17 + p[16];
	out->n_ops = len - 13u - p[16];
	out->alone = false;
	return true;
}

bool cfi_fde_parse(const struct cfi_section *s, size_t off, struct cfi_fde *out)
{
	if (__builtin_expect(fde_common(s, off, out), 1))
		return true;
	struct cfi_entry e = cfi_entry_at(s, off);
	out->cie.ops = NULL;
	return cfi_fde_read(s, &e, out);
}
