/* What a frame needs in the fast walk, in eight bytes: where the CFA is, where the return address
 * and the frame pointer were saved. 99.8 % of the rows of a Debian system fit. */
#ifndef SP_UNWIND_RULE_H
#define SP_UNWIND_RULE_H

#include "cfi_module.h"

enum uw_rule_kind {
	UW_RULE_NONE,      /* no CFI here */
	UW_RULE_CODE,      /* none either; the code shows where its return address is (code.h) */
	UW_RULE_END,       /* the root */
	UW_RULE_SP,        /* CFA = sp + cfa * 8 */
	UW_RULE_FP,        /* CFA = fp + cfa * 8 */
	UW_RULE_FP_DEREF,  /* CFA = *(fp + (int16_t)cfa * 8): gcc's realigned stacks */
	UW_RULE_PLT,       /* CFA = sp + 8, and 8 more when (pc & 15) >= cfa */
	UW_RULE_COMPLEX,   /* more registers, or an expression: all registers are needed */
	UW_RULE_SIGRETURN, /* a signal trampoline known by its bytes: struct ucontext is at sp */
	UW_RULE_BAD,       /* CFI that can't be understood; switched: no way back is known */
};

#define UW_RULE_SIGNAL 1u   /* a signal frame: its caller was interrupted */
#define UW_RULE_FP_AT_FP 2u /* the frame pointer was saved at fp + slot, not CFA + slot */
#define UW_RULE_SWITCHED 4u /* the caller may be on another stack, or with fp 0 there is none */
/* Of UW_RULE_CODE: the DWARF number of the register from which its slots are, mostly sp or fp. Or
 * what is at ra_slot is the address from which fp_slot and cfa are, and the return address is at
 * the latter. On AArch64 cfa says where the caller's sp is (code_arm.h). */
#define UW_RULE_BASE 31u
#define UW_RULE_DEREF 32u
#define UW_RULE_FP_BY_FP 64u /* fp_slot is from fp all the same */
/* The register holds the return address itself; the caller's sp is ra_slot words above the register
 * with the DWARF number cfa, fp_slot is from sp. */
#define UW_RULE_HELD 128u

#define UW_SLOT_KEEP INT16_MIN /* fp: unchanged; ra: in the link register */
#define UW_SLOT_LOST INT16_MAX /* fp, of UW_RULE_CODE: not known */

struct uw_rule {
	uint8_t kind;             /* enum uw_rule_kind */
	uint8_t flags;            /* UW_RULE_* bits; of UW_RULE_CODE a register */
	int16_t fp_slot, ra_slot; /* in units of 8, from the CFA */
	uint16_t cfa;
};

_Static_assert(sizeof(struct uw_rule) == 8, "a cache entry is a key and a rule: 16 bytes");

static inline bool uw_rule_is_signal(struct uw_rule r)
{
	return r.kind != UW_RULE_CODE && r.flags & UW_RULE_SIGNAL;
}

/* Why a walk ends where UW_RULE_BAD is in force. */
static inline enum uw_stop uw_rule_stop(struct uw_rule r)
{
	return r.flags & UW_RULE_SWITCHED ? UW_NO_STACK : UW_BAD_CFA;
}

/* Addresses, SVMA; end exclusive. */
struct uw_span {
	uint64_t begin, end;
};

/* The rule at an address of a module: one FDE is interpreted. *same: around the address, where the
 * rule is the same; empty when that is not known. May be NULL. */
struct uw_rule uw_rule_make(const struct uw_module *m, uint64_t svma, struct uw_span *same);

/* Whether a function may leave by __builtin_eh_return, as libgcc's _Unwind_RaiseException and
 * _Unwind_Resume do: it saves rax and rdx, which nobody else needs to have back, for the landing
 * pad. Before it leaves it writes the registers of the frame that it goes to where it saved its
 * caller's (uw_install_context_1), the return address last. x86-64 only. */
bool uw_fde_lands(const struct uw_arch *arch, const struct cfi_fde *fde);

/* glibc's _dl_runtime_resolve for AArch64 (2.36, sysdeps/aarch64/dl-trampoline.S) calls the CFA
 * what sp is at its first instruction, though the PLT has pushed x16 and the link register by then:
 * the return address is said to lie above the CFA, in the caller's frame. Of a row's n registers
 * that of the return address is ra. */
void uw_row_mend(const struct uw_arch *arch, struct cfi_row *row, unsigned ra, unsigned n);

#endif
