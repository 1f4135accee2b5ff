#include "rule.h"

#include "base/le.h"
#include "code.h"
#include "golang.h"

/* The two forms of an x86-64 PLT entry's CFA (binutils' elf_x86_64_lazy_plt eh_frame; lld's and
 * binutils' bnd form): sp + 8 + (((pc & 15) >= 11 or 10) << 3). */
static unsigned plt_limit(const struct cfi_reg *cfa)
{
	static const uint8_t form[] = {
		0x77, 8,    /* breg7 8 */
		0x80, 0,    /* breg16 0 */
		0x3f, 0x1a, /* lit15, and */
		0,    0x2a, /* lit11 or lit10, ge */
		0x33, 0x24, /* lit3, shl */
		0x22,       /* plus */
	};
	if (cfa->len != sizeof form || memcmp(cfa->expr, form, 6) ||
	    memcmp(cfa->expr + 7, form + 7, 4))
		return 0;
	return cfa->expr[6] == 0x3b ? 11 : cfa->expr[6] == 0x3a ? 10 : 0;
}

/* An offset in units of 8 that fits a slot. */
static bool slot(int64_t off, int16_t *out)
{
	if (off % 8 || off / 8 <= INT16_MIN || off / 8 > INT16_MAX)
		return false;
	*out = (int16_t)(off / 8);
	return true;
}

/* "breg<reg> off", and behind it "deref" or nothing. */
static bool register_plus(const struct cfi_reg *e, unsigned reg, bool deref, int16_t *out)
{
	struct sp_cursor c = sp_cursor(e->expr, e->len);
	if (sp_cur_u8(&c) != 0x70 + reg)
		return false;
	int64_t off = sp_cur_sleb(&c);
	if (deref && sp_cur_u8(&c) != 0x06)
		return false;
	return !c.bad && c.p == c.end && slot(off, out);
}

/* Where the CFA is; false: too complex. */
static bool pack_cfa(const struct uw_arch *arch, const struct cfi_row *row, struct uw_rule *r)
{
	if (row->cfa.rule == CFI_REG) {
		int64_t off = row->cfa.off;
		if (off < 0 || off % 8 || off / 8 > UINT16_MAX)
			return false;
		r->cfa = (uint16_t)(off / 8);
		r->kind = row->cfa_reg == arch->sp ? UW_RULE_SP : UW_RULE_FP;
		return row->cfa_reg == arch->sp || row->cfa_reg == arch->fp;
	}
	if (row->cfa.rule != CFI_EXPR || arch->machine != EM_X86_64)
		return false;
	unsigned limit = plt_limit(&row->cfa);
	int16_t at;
	if (limit) {
		r->kind = UW_RULE_PLT;
		r->cfa = (uint16_t)limit;
		return true;
	}
	if (!register_plus(&row->cfa, arch->fp, true, &at))
		return false;
	r->kind = UW_RULE_FP_DEREF;
	r->cfa = (uint16_t)at;
	return true;
}

static bool pack_fp(const struct uw_arch *arch, const struct cfi_reg *fp, struct uw_rule *r)
{
	switch ((enum cfi_rule)fp->rule) {
	case CFI_UNSPEC:
	case CFI_SAME:
		r->fp_slot = UW_SLOT_KEEP;
		return true;
	case CFI_OFFSET:
		return slot(fp->off, &r->fp_slot);
	case CFI_EXPR:
		r->flags |= UW_RULE_FP_AT_FP;
		return register_plus(fp, arch->fp, false, &r->fp_slot);
	case CFI_UNDEF:
	case CFI_VAL_OFFSET:
	case CFI_REG:
	case CFI_VAL_EXPR:
		break;
	}
	return false;
}

/* Offsets are whatever a file says: sums wrap. */
static int64_t plus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

void uw_row_mend(const struct uw_arch *arch, struct cfi_row *row, unsigned ra, unsigned n)
{
	enum { PUSHED = 16, ABOVE = 8 };
	struct cfi_reg *reg = row->reg;
	if (arch->machine != EM_AARCH64 || row->cfa.rule != CFI_REG || reg[ra].rule != CFI_OFFSET ||
	    reg[ra].off != ABOVE)
		return;
	row->cfa.off = plus(row->cfa.off, PUSHED);
	for (unsigned i = 0; i < n; i++)
		if (reg[i].rule == CFI_OFFSET || reg[i].rule == CFI_VAL_OFFSET)
			reg[i].off = plus(reg[i].off, -PUSHED);
	if (row->cfa_reg == arch->sp && plus(row->cfa.off, reg[ra].off) < 0)
		reg[ra].rule = CFI_SAME; /* popped: it has its value back */
}

bool uw_fde_lands(const struct uw_arch *arch, const struct cfi_fde *fde)
{
	enum { SAVES_RAX = 0x80, SAVES_RDX = 0x81 }; /* DW_CFA_offset, with a slot behind it */
	const uint8_t *p = fde->ops, *end = p + fde->n_ops;
	if (arch->machine != EM_X86_64 || fde->cie.signal || fde->n_ops >= CFI_MARKS_FROM)
		return false;
	while (end - p >= 4 && (p = memchr(p, SAVES_RDX, (size_t)(end - p) - 3))) {
		if (p[2] == SAVES_RAX && p[3] == p[1] + 1)
			return true;
		p++;
	}
	return false;
}

static struct uw_rule pack(const struct uw_arch *arch, const struct cfi_row *row, bool signal)
{
	const struct cfi_reg *ra = &row->reg[CFI_SMALL_RA];
	struct uw_rule r = {.flags = signal ? UW_RULE_SIGNAL : 0};
	const struct uw_rule complex_rule = {.kind = UW_RULE_COMPLEX, .flags = r.flags};
	if (ra->rule == CFI_UNDEF || (ra->rule == CFI_UNSPEC && !arch->ra_same_is_live))
		return (struct uw_rule){.kind = UW_RULE_END};
	if (row->cfa.rule != CFI_REG && row->cfa.rule != CFI_EXPR)
		return (struct uw_rule){.kind = UW_RULE_BAD};
	if (arch->ra_same_is_live && (ra->rule == CFI_UNSPEC || ra->rule == CFI_SAME))
		r.ra_slot = UW_SLOT_KEEP;
	else if (ra->rule != CFI_OFFSET || !slot(ra->off, &r.ra_slot))
		return complex_rule;
	if (!pack_cfa(arch, row, &r) || !pack_fp(arch, &row->reg[CFI_SMALL_FP], &r))
		return complex_rule;
	return r;
}

/* rt_sigreturn's two instructions, of which musl, Go and newer arm64 vdsos have no CFI, and older
 * arm64 vdsos CFI that restores the link register but not the pc (kernel 5.8's
 * arch/arm64/kernel/vdso/sigreturn.S says so). svma: the looked-up address, that is the
 * trampoline's first byte, the byte before, its system call, or what is behind that: there a thread
 * stands while the kernel works, where the trampoline's own FDE is over. */
static bool is_sigreturn(const struct uw_module *m, uint64_t svma)
{
	static const struct {
		uint16_t machine;
		uint8_t n, syscall; /* offset of the second instruction */
		uint8_t code[9];
	} forms[] = {
		/* mov $15,%rax (two encodings); syscall */
		{EM_X86_64, 9, 7, {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}},
		{EM_X86_64, 7, 5, {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}},
		/* mov x8,#139; svc #0 */
		{EM_AARCH64, 8, 4, {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}},
	};
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		if (forms[i].machine != m->arch->machine)
			continue;
		const uint64_t starts[] = {svma + 1, svma, svma - forms[i].syscall,
					   svma - forms[i].n};
		for (size_t j = 0; j < sizeof starts / sizeof *starts; j++) {
			const uint8_t *p = uw_module_bytes(m, starts[j], forms[i].n);
			if (p && !memcmp(p, forms[i].code, forms[i].n))
				return true;
		}
	}
	return false;
}

/* Behind the call of a new thread's function in musl's clone, which has no CFI: exit(its result)
 * (1.2.3, src/thread/x86_64/clone.s, aarch64/clone.s). */
static bool is_thread_root(const struct uw_module *m, uint64_t svma)
{
	/* mov %eax,%edi; xor %eax,%eax; mov $60,%al; syscall */
	static const uint8_t x86_64[] = {0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05};
	static const uint8_t arm64[] = {0xa8, 0x0b, 0x80, 0xd2,
					1,    0,    0,    0xd4}; /* mov x8,#93; svc #0 */
	const uint8_t *p = uw_module_bytes(m, svma + 1, sizeof x86_64);
	switch (m->arch->machine) {
	case EM_X86_64:
		return p && !memcmp(p, x86_64, sizeof x86_64);
	case EM_AARCH64:
		return p && !memcmp(p, arm64, sizeof arm64);
	default:
		return false;
	}
}

/* _init and _fini of crti.o and crtn.o have no CFI: (endbr64;) sub $8,%rsp; …; add $8,%rsp; ret.
 * Their sections hold nothing else. */
static struct uw_rule crt_rule(const struct uw_module *m, uint64_t svma)
{
	static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa}, sub[] = {0x48, 0x83, 0xec, 8},
			     tail[] = {0x48, 0x83, 0xc4, 8, 0xc3};
	struct uw_rule none = {.kind = UW_RULE_NONE};
	for (size_t i = 0; i < 2 && m->arch->machine == EM_X86_64; i++) {
		const struct sp_section *s = m->crt[i];
		if (!s || svma - s->svma >= s->size || s->size < sizeof sub + sizeof tail)
			continue;
		const uint8_t *p = uw_module_bytes(m, s->svma, (size_t)s->size);
		size_t at = p && !memcmp(p, endbr, sizeof endbr) ? sizeof endbr : 0;
		if (!p || s->size < at + sizeof sub + sizeof tail ||
		    memcmp(p + at, sub, sizeof sub) ||
		    memcmp(p + s->size - sizeof tail, tail, sizeof tail))
			return none;
		bool inside = svma - s->svma >= at + sizeof sub && svma - s->svma < s->size - 1;
		return (struct uw_rule){UW_RULE_SP, 0, UW_SLOT_KEEP, -1, inside ? 2 : 1};
	}
	return none;
}

/* How many words lie between sp and the CFA at an instruction of a PLT; 0: it is none. lld and mold
 * give theirs no CFI, nor does binutils to that of a static program. Behind endbr64 or not, with or
 * without bnd, an entry is one of
 *     jmp *GOT                        push INDEX; jmp FIRST           mov INDEX, %r11d; jmp *GOT
 * and the first one of
 *     push GOT; jmp *GOT              push %r11; push GOT; jmp *GOT
 * (lld 14, ELF/Arch/X86_64.cpp; mold 1.10, elf/arch-x86-64.cc). */
static uint16_t plt_words(const uint8_t *before, const uint8_t *p)
{
	bool endbr = p[0] == 0xf3 && p[1] == 0x0f && p[2] == 0x1e && p[3] == 0xfa;
	if (endbr)
		p += 4;
	bool bnd = p[0] == 0xf2, pushes_got = p[0] == 0xff && p[1] == 0x35;
	const uint8_t *next = p + (pushes_got                     ? 6
				   : p[0] == 0x68                 ? 5
				   : p[0] == 0x41 && p[1] == 0xbb ? 6
								  : 2);
	bool next_bnd = next[0] == 0xf2;
	bool next_got = next[next_bnd] == 0xff && next[next_bnd + 1] == 0x25;
	if (p[bnd] == 0xff && p[bnd + 1] == 0x25)
		return !endbr && before[0] == 0xff && before[1] == 0x35 ? 3 : 1;
	if (pushes_got && next_got)
		return 2;
	if (p[0] == 0x68 && next[next_bnd] == 0xe9)
		return 1;
	if (p[0] == 0x41 &&
	    ((p[1] == 0xbb && next_got) || (p[1] == 0x53 && next[0] == 0xff && next[1] == 0x35)))
		return 1;
	return !endbr && p[bnd] == 0xe9 && before[1] == 0x68 ? 2 : 0;
}

/* AArch64's, whose other entries change neither sp nor the link register. The first one is
 *     stp x16, x30, [sp, #-16]!; adrp x16, GOT; ldr x17, [x16]; add x16, x16, GOT; br x17 */
static struct uw_rule plt_rule_arm(const struct uw_module *m, uint64_t svma)
{
	enum { LAST = 16 };
	const uint32_t stp = 0xa9bf7bf0, br = 0xd61f0220;
	for (unsigned behind = 0; behind <= LAST; behind += 4) {
		const uint8_t *p = uw_module_bytes(m, svma - behind, LAST + 4);
		if (p && sp_get32(p) == stp && sp_get32(p + LAST) == br)
			return (struct uw_rule){UW_RULE_SP, 0, UW_SLOT_KEEP, UW_SLOT_KEEP,
						behind ? 2 : 0};
	}
	return (struct uw_rule){.kind = UW_RULE_NONE};
}

static struct uw_rule plt_rule(const struct uw_module *m, uint64_t svma)
{
	enum { BEFORE = 6, AFTER = 14 };
	uint8_t code[BEFORE + AFTER] = {0};
	const uint8_t *p;
	size_t n = AFTER;
	if (m->arch->machine == EM_AARCH64)
		return plt_rule_arm(m, svma);
	if (m->arch->machine != EM_X86_64)
		return (struct uw_rule){.kind = UW_RULE_NONE};
	/* A PLT may stand at a segment's beginning, and at its end. */
	if ((p = uw_module_bytes(m, svma - BEFORE, BEFORE)))
		memcpy(code, p, BEFORE);
	while (n && !(p = uw_module_bytes(m, svma, n)))
		n--;
	if (p)
		memcpy(code + BEFORE, p, n);
	uint16_t words = plt_words(code, code + BEFORE);
	if (!words)
		return (struct uw_rule){.kind = UW_RULE_NONE};
	return (struct uw_rule){UW_RULE_SP, 0, UW_SLOT_KEEP, -1, words};
}

struct uw_rule uw_rule_make(const struct uw_module *m, uint64_t svma, struct uw_span *same)
{
	const struct cfi_section *s = &m->eh;
	struct cfi_fde fde;
	struct cfi_row row;
	if (same)
		*same = (struct uw_span){0};
	enum uw_listed listed = uw_module_look(m, svma, &fde);
	bool found = listed == UW_LISTED;
	if (!found) {
		/* Known by its bytes: no reason to doubt the table. */
		struct uw_rule crt = crt_rule(m, svma);
		if (crt.kind != UW_RULE_NONE)
			return crt;
		found = uw_module_search(m, svma, listed, &s, &fde);
	}
	if ((!found || (fde.cie.signal && m->arch->machine == EM_AARCH64)) && is_sigreturn(m, svma))
		return (struct uw_rule){.kind = UW_RULE_SIGRETURN, .flags = UW_RULE_SIGNAL};
	if (!found) {
		struct uw_rule go;
		if (uw_go_table_rule(m, svma, &go))
			return go;
		if (uw_module_in_entry(m, svma) || uw_go_root(m, svma + 1) ||
		    is_thread_root(m, svma))
			return (struct uw_rule){.kind = UW_RULE_END};
		struct uw_rule plt = plt_rule(m, svma);
		if (plt.kind != UW_RULE_NONE)
			return plt;
		/* The address is an instruction's, or a call's last byte. */
		return uw_code_rule(m, svma + (uw_code_call(m, svma + 1).kind > UW_CALL_UNKNOWN));
	}
	const struct cfi_marks *marks =
		fde.n_ops < CFI_MARKS_FROM ? NULL : uw_module_marks(m, s, &fde);
	if (!cfi_row_small(s, &fde, svma, m->arch->fp, marks, &row))
		return (struct uw_rule){.kind = UW_RULE_BAD};
	uw_row_mend(m->arch, &row, CFI_SMALL_RA, CFI_SMALL_SLOTS);
	/* Not of a signal's trampoline, nor of .debug_frame, which has no FDE alone: there the code
	 * itself has a say. */
	if (same && fde.alone && !fde.cie.signal)
		*same = (struct uw_span){row.begin, row.end < fde.end ? row.end : fde.end};
	/* Another column than the ABI's: the full walk knows, and what to make of registers that
	 * may be another frame's. */
	if (fde.cie.ra_reg != m->arch->ra || uw_fde_lands(m->arch, &fde))
		return (struct uw_rule){.kind = UW_RULE_COMPLEX};
	struct uw_rule go;
	if (uw_go_rule(m, s, &fde, &row, svma, &go))
		return go;
	return pack(m->arch, &row, fde.cie.signal);
}
