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

/* mov N(%reg),%rsp: to g0's stack. and $-16,%rsp, for C: where there is a record. */
static bool writes_sp(const uint8_t *p, size_t n, bool has_record)
{
	for (size_t i = 0; i + 4 <= n; i++) {
		if ((p[i] & 0xfe) != 0x48)
			continue;
		if ((p[i + 1] == 0x8b && (p[i + 2] & 0xf8) == 0x60 && p[i + 2] != 0x64) ||
		    (has_record && p[i + 1] == 0x83 && p[i + 2] == 0xe4 && p[i + 3] == 0xf0))
			return true;
	}
	return false;
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
	size_t n = (size_t)(svma - fde->begin);
	bool by_hand = fde->end - fde->begin <= BY_HAND_MAX;
	if (!by_hand && n > PROLOGUE_MAX)
		n = PROLOGUE_MAX;
	const uint8_t *p = uw_module_bytes(m, fde->begin, n);
	if (!p)
		return false;
	bool has_record = frame_record(p, n) <= n;
	if (has_record && row->cfa.off < 16) /* popped again */
		return false;
	bool elsewhere = by_hand && writes_sp(p, n, has_record);
	if (elsewhere)
		*out = (struct uw_rule){has_record ? UW_RULE_FP : UW_RULE_BAD, UW_RULE_SWITCHED, -2,
					-1, 2};
	else
		*out = (struct uw_rule){UW_RULE_SP, 0, -2, -1, (uint16_t)(row->cfa.off / 8)};
	return elsewhere || has_record;
}
