/* Names of PLT entries. What an entry calls is read from its code: the GOT slot that it jumps
 * through, and from the relocations which symbol the slot is for. So it does not matter which
 * linker laid the entries out. */
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/table.h"
#include "sym/symtab.h"

/* A slot's relocation. */
struct slot {
	uint32_t symbol; /* in .dynsym */
	uint64_t addend; /* of IRELATIVE: the resolver */
};

struct slots {
	struct sp_map64 by_svma;
	struct slot *v; /* owned */
	size_t n, cap;
	size_t n_jumps; /* those of .rela.plt, in order: lazy entries push their number */
};

static bool is_irelative(const struct sp_elf *e, uint32_t type)
{
	return e->machine == EM_X86_64 ? type == R_X86_64_IRELATIVE
				       : e->machine == EM_AARCH64 && type == R_AARCH64_IRELATIVE;
}

static bool add_relocations(struct sp_symtab *t, struct slots *slots, const struct sp_section *s)
{
	const struct sp_elf *e = t->code;
	const uint8_t *p;
	size_t size;
	void *owned = NULL;
	if (s->type != SHT_RELA || !e->is64 || e->swap || (s->flags & SHF_COMPRESSED) ||
	    sp_elf_section_data(e, s, &p, &size, &owned, NULL) < 0)
		return true;
	/* .dynsym is the first source of the file with the code, when it has one. */
	bool has_dynsym = t->n_sources && t->sources[0].elf == e && s->link < e->n_sections &&
			  t->sources[0].section == &e->sections[s->link];
	for (size_t at = 0; size - at >= sizeof(Elf64_Rela); at += sizeof(Elf64_Rela)) {
		Elf64_Rela r;
		memcpy(&r, p + at, sizeof r);
		uint32_t symbol = (uint32_t)ELF64_R_SYM(r.r_info);
		bool irelative = is_irelative(e, (uint32_t)ELF64_R_TYPE(r.r_info));
		if (!irelative && (!symbol || !has_dynsym))
			continue;
		struct slot *slot = SP_PUSH(&slots->v, &slots->n, &slots->cap);
		if (!slot || !sp_map64_put(&slots->by_svma, r.r_offset, (uint32_t)slots->n - 1))
			return false;
		*slot = (struct slot){.symbol = symbol,
				      .addend = irelative ? (uint64_t)r.r_addend : 0};
	}
	return true;
}

static bool read_slots(struct sp_symtab *t, struct slots *slots)
{
	const struct sp_elf *e = t->code;
	const struct sp_section *jumps = sp_elf_section(e, ".rela.plt");
	if (jumps && !add_relocations(t, slots, jumps))
		return false;
	slots->n_jumps = slots->n;
	for (size_t i = 0; i < e->n_sections; i++) {
		const struct sp_section *s = &e->sections[i];
		if (s != jumps && s->type == SHT_RELA && (s->flags & SHF_ALLOC) &&
		    !add_relocations(t, slots, s))
			return false;
	}
	return true;
}

/* The slot that x86-64 code jumps through (endbr64 and bnd may come first), or 0. */
static uint64_t x86_slot(const uint8_t *p, size_t n, uint64_t svma, uint32_t *pushed)
{
	size_t i = 0;
	*pushed = UINT32_MAX;
	if (n >= 4 && !memcmp(p, "\xf3\x0f\x1e\xfa", 4))
		i = 4;
	if (i < n && p[i] == 0xf2)
		i++;
	if (i + 6 <= n && p[i] == 0xff && p[i + 1] == 0x25)
		return svma + i + 6 + (uint64_t)(int64_t)(int32_t)sp_get32(p + i + 2);
	/* The lazy half of a split PLT: push the number of the relocation, go to the resolver. */
	if (i + 5 <= n && p[i] == 0x68)
		*pushed = sp_get32(p + i + 1);
	/* mold: mov $number, %r11d; jmp *slot */
	if (i + 12 <= n && p[i] == 0x41 && p[i + 1] == 0xbb && p[i + 6] == 0xff && p[i + 7] == 0x25)
		return svma + i + 12 + (uint64_t)(int64_t)(int32_t)sp_get32(p + i + 8);
	return 0;
}

/* bti c (or not); adrp x16, page; ldr x17, [x16, #offset] */
static uint64_t aarch64_slot(const uint8_t *p, size_t n, uint64_t svma)
{
	if (n >= 4 && sp_get32(p) == 0xd503245f) {
		p += 4;
		n -= 4;
		svma += 4;
	}
	if (n < 8)
		return 0;
	uint32_t adrp = sp_get32(p), ldr = sp_get32(p + 4);
	if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return 0;
	uint64_t imm = (adrp >> 29 & 3) | (adrp >> 5 & 0x7ffff) << 2;
	uint64_t page = (svma & ~UINT64_C(0xfff)) +
			(uint64_t)((int64_t)(imm << 43) >> 31); /* sign of 21 bits, times 4096 */
	return page + (ldr >> 10 & 0xfff) * 8;
}

static const char *slot_name(struct sp_symtab *t, const struct slot *s)
{
	struct sp_symbol resolver;
	if (!s->symbol)
		return sp_symtab_find(t, s->addend, NULL, &resolver) ? resolver.name : NULL;
	return sp_symtab_source_name(&t->sources[0], s->symbol);
}

static bool name_entry(struct sp_symtab *t, const struct slot *s, uint64_t lo, uint64_t hi)
{
	const char *name = slot_name(t, s);
	if (!name || !*name)
		return true;
	const char **slot = SP_PUSH(&t->plt_names, &t->n_plt, &t->plt_cap);
	if (!slot)
		return false;
	*slot = name;
	return sp_ranges_add(&t->plt, lo, hi, (uint32_t)t->n_plt - 1);
}

static bool read_section(struct sp_symtab *t, const struct slots *slots, const struct sp_section *s)
{
	const struct sp_elf *e = t->code;
	const uint8_t *p;
	size_t size;
	void *owned = NULL;
	if (s->type == SHT_NOBITS || (s->flags & SHF_COMPRESSED) ||
	    sp_elf_section_data(e, s, &p, &size, &owned, NULL) < 0)
		return true;
	/* .plt.got's entries are 8 bytes where they need no endbr64; those of AArch64 are 16, or 24
	 * with bti or pac, behind a header of 32. */
	size_t step = s->entsize >= 8 && s->entsize <= 64 ? s->entsize : 16;
	size_t at = 0;
	if (e->machine == EM_AARCH64)
		step = 4;
	for (size_t n; at < size; at += n) {
		uint32_t pushed = UINT32_MAX;
		n = size - at < step ? size - at : step;
		uint64_t slot = e->machine == EM_X86_64
					? x86_slot(p + at, n, s->svma + at, &pushed)
					: aarch64_slot(p + at, size - at, s->svma + at);
		uint32_t found = slot                      ? sp_map64_get(&slots->by_svma, slot)
				 : pushed < slots->n_jumps ? pushed
							   : SP_NOT_FOUND;
		if (found == SP_NOT_FOUND)
			continue;
		if (e->machine == EM_AARCH64)
			n = size - at >= 24 && sp_get32(p + at) == 0xd503245f ? 24
			    : size - at >= 16                                 ? 16
									      : size - at;
		if (!name_entry(t, &slots->v[found], s->svma + at, s->svma + at + n))
			return false;
	}
	return true;
}

static bool is_plt(const struct sp_section *s)
{
	return (s->flags & SHF_EXECINSTR) &&
	       (!strncmp(s->name, ".plt", 4) || !strcmp(s->name, ".iplt"));
}

int sp_symtab_find_plt(struct sp_symtab *t, struct sp_err *err)
{
	const struct sp_elf *e = t->code;
	if (e->machine != EM_X86_64 && e->machine != EM_AARCH64)
		return 0;
	for (size_t i = 0; i < e->n_sections; i++) {
		const struct sp_section *s = &e->sections[i];
		if (is_plt(s) && s->size <= UINT64_MAX - s->svma &&
		    !sp_ranges_add(&t->plt_sections, s->svma, s->svma + s->size, 0))
			return sp_err_nomem(err);
	}
	return sp_ranges_sort(&t->plt_sections) ? 0 : sp_err_nomem(err);
}

bool sp_symtab_read_plt(struct sp_symtab *t)
{
	const struct sp_elf *e = t->code;
	struct slots slots = {0};
	bool ok = read_slots(t, &slots);
	for (size_t i = 0; i < e->n_sections && ok; i++)
		if (is_plt(&e->sections[i]))
			ok = read_section(t, &slots, &e->sections[i]);
	ok = ok && sp_ranges_sort(&t->plt);
	sp_map64_deinit(&slots.by_svma);
	free(slots.v);
	return ok;
}
