/* Go's linker writes .debug_frame from what its assembler knows of sp, and no more: frame pointers
 * are saved without a word (cmd/link/internal/ld/dwarf.go, writeframes), and the runtime's
 * functions that go on on another stack look as if they did not. Go itself calls these SPWRITE and
 * walks through none of them. */
#include "golang.h"

#include "base/le.h"

static bool is_goexit(const struct uw_module *m, uint64_t ra)
{
	const uint8_t *p;
	switch (m->arch->machine) {
	case EM_X86_64: /* nop; call; nop (go 1.21, src/runtime/asm_amd64.s) */
		p = uw_module_bytes(m, ra - 1, 7);
		return p && p[0] == 0x90 && p[1] == 0xe8 && p[6] == 0x90;
	case EM_AARCH64: /* mov x0,x0; bl (asm_arm64.s) */
		p = ra & 3 ? NULL : uw_module_bytes(m, ra - 4, 8);
		return p && sp_get32(p) == 0xaa0003e0 && sp_get32(p + 4) >> 26 == 0x25;
	default:
		return false;
	}
}

/* Where clone calls a new thread's function; should that return, the thread leaves with 111. */
static bool is_clone(const struct uw_module *m, uint64_t ra)
{
	/* call *%r12; mov $111,%edi (go 1.21, src/runtime/sys_linux_amd64.s) */
	static const uint8_t x86[] = {0x41, 0xff, 0xd4, 0xbf, 111, 0, 0, 0};
	/* blr x0; mov w0,#111 (sys_linux_arm64.s) */
	static const uint8_t arm[] = {0, 0, 0x3f, 0xd6, 0xe0, 0x0d, 0x80, 0x52};
	bool is_arm = m->arch->machine == EM_AARCH64;
	if (!is_arm && m->arch->machine != EM_X86_64)
		return false;
	const uint8_t *p = uw_module_bytes(m, ra - (is_arm ? 4 : 3), sizeof x86);
	return p && !memcmp(p, is_arm ? arm : x86, sizeof x86);
}

bool uw_go_root(const struct uw_module *m, uint64_t ra)
{
	return is_goexit(m, ra) || is_clone(m, ra);
}

/* Where the process's first thread began: argc and argv are moved to an aligned sp, below which the
 * CFI goes on as if nothing had happened (rt0_go, asm_amd64.s). */
static bool is_rt0(const struct uw_module *m, uint64_t begin)
{
	/* mov %rdi,%rax; mov %rsi,%rbx; sub $N,%rsp; and $-16,%rsp */
	static const uint8_t moves[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf3, 0x48, 0x83, 0xec},
			     aligns[] = {0x48, 0x83, 0xe4, 0xf0};
	const uint8_t *p = uw_module_bytes(m, begin, sizeof moves + 1 + sizeof aligns);
	return p && !memcmp(p, moves, sizeof moves) &&
	       !memcmp(p + sizeof moves + 1, aligns, sizeof aligns);
}

/* Behind a check of the stack's size, which has three instructions at most. */
#define PROLOGUE_MAX 48u

/* Where the frame record stands: rbp points to it, and it lies at CFA - 16. SIZE_MAX: nowhere. */
static size_t frame_record(const uint8_t *p, size_t n)
{
	static const uint8_t push[] = {0x55, 0x48, 0x89, 0xe5}; /* push %rbp; mov %rsp,%rbp */
	/* Until 1.20: mov %rbp,N(%rsp); lea N(%rsp),%rbp, N of one byte or four. */
	static const uint8_t near_to[] = {0x48, 0x8d, 0x6c, 0x24},
			     far_to[] = {0x48, 0x8d, 0xac, 0x24};
	for (size_t i = 0; i + sizeof push <= n && i < PROLOGUE_MAX; i++) {
		if (!memcmp(p + i, push, sizeof push))
			return i + sizeof push;
		if (i + 5 <= n && !memcmp(p + i, near_to, sizeof near_to))
			return i + 5;
		if (i + 8 <= n && !memcmp(p + i, far_to, sizeof far_to))
			return i + 8;
	}
	return SIZE_MAX;
}

/* The functions that write sp are written by hand and short: asmcgocall, mcall, morestack,
 * nanotime1, systemstack, time.now. */
#define BY_HAND_MAX 1024u

static bool table_says(const struct sp_go_func *f)
{
	return f->flags & SP_GO_SP_WRITE && f->end - f->begin <= BY_HAND_MAX;
}

/* Whether a function is one of them: Go's function table says it; without one, its size. */
static bool may_write_sp(const struct uw_module *m, uint64_t begin, uint64_t end)
{
	const struct sp_pclntab *t = uw_module_pclntab(m);
	struct sp_go_func f;
	if (t && sp_pclntab_find(t, begin, &f))
		return table_says(&f);
	return end - begin <= BY_HAND_MAX;
}

/* mov N(%reg),%rsp: to g0's stack; until 1.20 also mov %rbx,%rsp. and $-16,%rsp, for C: where there
 * is a record. */
static bool writes_sp(const uint8_t *p, size_t n, bool has_record)
{
	static const uint8_t by_rbx[] = {0x48, 0x89, 0xdc};
	for (size_t i = 0; i + 4 <= n; i++) {
		if ((p[i] & 0xfe) != 0x48)
			continue;
		if (!memcmp(p + i, by_rbx, sizeof by_rbx) ||
		    (p[i + 1] == 0x8b && (p[i + 2] & 0xf8) == 0x60 && p[i + 2] != 0x64) ||
		    (has_record && p[i + 1] == 0x83 && p[i + 2] == 0xe4 && p[i + 3] == 0xf0))
			return true;
	}
	return false;
}

/* An instruction of Go's code. */
struct go_code {
	uint64_t begin, svma; /* of its function */
	int64_t cfa;          /* from sp */
	bool by_hand;         /* its function may write sp */
};

/* x86-64's rule; false: nothing but the CFA is known. */
static bool x86_rule(const struct uw_module *m, const struct go_code *c, struct uw_rule *out)
{
	size_t n = (size_t)(c->svma - c->begin);
	if (!c->by_hand && n > PROLOGUE_MAX)
		n = PROLOGUE_MAX;
	const uint8_t *p = uw_module_bytes(m, c->begin, n);
	if (!p)
		return false;
	bool has_record = frame_record(p, n) <= n;
	if (has_record && c->cfa < 16) /* popped again */
		return false;
	bool elsewhere = c->by_hand && writes_sp(p, n, has_record);
	if (elsewhere)
		*out = (struct uw_rule){has_record ? UW_RULE_FP : UW_RULE_BAD, UW_RULE_SWITCHED, -2,
					-1, 2};
	else
		*out = (struct uw_rule){UW_RULE_SP, 0, -2, -1, (uint16_t)(c->cfa / 8)};
	return elsewhere || has_record;
}

bool uw_go_rule(const struct uw_module *m, const struct cfi_section *s, const struct cfi_fde *fde,
		const struct cfi_row *row, uint64_t svma, struct uw_rule *out)
{
	if (s->eh || m->arch->machine != EM_X86_64 || row->cfa.rule != CFI_REG ||
	    row->cfa_reg != m->arch->sp || row->cfa.off < 8 || row->cfa.off % 8 ||
	    row->cfa.off / 8 > UINT16_MAX || !sp_elf_section(m->elf, ".note.go.buildid"))
		return false;
	if ((svma == fde->begin && is_goexit(m, svma + 1)) || is_clone(m, svma + 1) ||
	    is_rt0(m, fde->begin)) {
		*out = (struct uw_rule){.kind = UW_RULE_END};
		return true;
	}
	const struct go_code c = {fde->begin, svma, row->cfa.off,
				  may_write_sp(m, fde->begin, fde->end)};
	return x86_rule(m, &c, out);
}

/* Where a word more is between sp and the CFA than a slot can say, the code has to do. */
#define DELTA_MAX ((INT16_MAX - 2) * 8)

/* The return address is in the link register until it is stored where sp goes to; the frame record,
 * to which x29 points, is a word below that (cmd/internal/obj/arm64/obj7.go). Who writes sp is left
 * by the record. */
static struct uw_rule arm_rule(const struct sp_go_func *f, int32_t delta, bool elsewhere)
{
	int16_t words = (int16_t)(delta / 8);
	struct uw_rule r = {UW_RULE_SP, 0, (int16_t)(-words - 1), (int16_t)-words, (uint16_t)words};
	if (!words) {
		r.fp_slot = r.ra_slot = UW_SLOT_KEEP;
	} else if (f->flags & SP_GO_SP_WRITE && elsewhere) {
		r.kind = UW_RULE_FP;
		r.flags = UW_RULE_SWITCHED;
		r.cfa++;
	}
	return r;
}

bool uw_go_table_rule(const struct uw_module *m, uint64_t svma, struct uw_rule *out)
{
	const struct sp_pclntab *t = uw_module_pclntab(m);
	struct sp_go_func f;
	struct sp_go_value used;
	bool is_arm = m->arch->machine == EM_AARCH64;
	if (!t || (!is_arm && m->arch->machine != EM_X86_64) || !sp_pclntab_find(t, svma, &f))
		return false;
	const char *name = sp_pclntab_name(t, f.name);
	if (uw_go_root(m, svma + 1) || (!is_arm && is_rt0(m, f.begin)) ||
	    (name && !strcmp(name, "runtime.rt0_go"))) {
		*out = (struct uw_rule){.kind = UW_RULE_END};
		return true;
	}
	if (!sp_pclntab_value(t, &f, f.pcsp, svma, &used) || used.value < 0 || used.value % 8 ||
	    used.value > DELTA_MAX)
		return false;
	if (is_arm) {
		/* It is on two stacks in turn, and has a frame on either (asm_arm64.s). */
		bool both = name && !strcmp(name, "runtime.cgocallback");
		*out = arm_rule(&f, used.value, !both);
		return true;
	}
	const struct go_code c = {f.begin, svma, used.value + 8, table_says(&f)};
	if (!x86_rule(m, &c, out))
		*out = (struct uw_rule){UW_RULE_SP, 0, UW_SLOT_KEEP, -1, (uint16_t)(c.cfa / 8)};
	return true;
}
