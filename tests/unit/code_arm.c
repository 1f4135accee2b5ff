/* Rules from AArch64 code that has no CFI.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c sp-unwind/insn.c sp-unwind/rule.c */
#include "tap.h"

#include "../../sp-unwind/code.h"
#include "image.h"

#define AT 0x1900 /* no FDE is near */

static struct image image;
static struct uw_module *module;

/* DWARF's numbers. */
enum { FP = 29, LR, SP };

/* Instructions, as binutils 2.40 has them. */
enum {
	SAVE = (int32_t)0xa9be7bfd,    /* stp x29, x30, [sp, #-32]! */
	MOV_FP = (int32_t)0x910003fd,  /* mov x29, sp */
	MOV_SP = (int32_t)0x910003bf,  /* mov sp, x29 */
	RESTORE = (int32_t)0xa8c27bfd, /* ldp x29, x30, [sp], #32 */
	PUSH_LR = (int32_t)0xf81f0ffe, /* str x30, [sp, #-16]! */
	POP_LR = (int32_t)0xf84107fe,  /* ldr x30, [sp], #16 */
	SUB_SP = (int32_t)0xd10043ff,  /* sub sp, sp, #16 */
	ADD_SP = (int32_t)0x910043ff,  /* add sp, sp, #16 */
	LOAD_16 = (int32_t)0xa9417bfd, /* ldp x29, x30, [sp, #16] */
	LOAD_19 = (int32_t)0xa94153f3, /* ldp x19, x20, [sp, #16] */
	POP_D8 = (int32_t)0xfc4107e8,  /* ldr d8, [sp], #16 */
	ALIGN = (int32_t)0x927ced3f,   /* and sp, x9, #-16 */
	ALLOCA = (int32_t)0xcb2063ff,  /* sub sp, sp, x0 */
	PACIASP = (int32_t)0xd503233f,
	AUTIASP = (int32_t)0xd50323bf,
	RETAA = (int32_t)0xd65f0bff,
	RET = (int32_t)0xd65f03c0,
	BL = (int32_t)0x94000040,
	ADD = 0x11000400,              /* add w0, w0, #1 */
	CBZ_8 = (int32_t)0xb4000040,   /* cbz x0, 8 bytes on */
	B_8 = 0x14000002,              /* b 8 bytes on */
	B_0 = 0x14000000,              /* b to itself */
	BRK = (int32_t)0xd4207d00,     /* brk #1000 */
	PUSH_16 = (int32_t)0xa9bf7bf0, /* stp x16, x30, [sp, #-16]! */
	ADRP = (int32_t)0x90000010,    /* adrp x16, GOT */
	LDR_17 = (int32_t)0xf9400211,  /* ldr x17, [x16] */
	ADD_16 = (int32_t)0x91000210,  /* add x16, x16, #0 */
	BR_17 = (int32_t)0xd61f0220,   /* br x17 */
	BR_0 = (int32_t)0xd61f0000,    /* br x0 */
};

#define KEEP UW_SLOT_KEEP
#define LOST UW_SLOT_LOST
#define NONE                                                                                       \
	{                                                                                          \
		.kind = UW_RULE_NONE                                                               \
	}
/* The return address is in the link register, the caller's sp so many words up. */
#define LIVE(fp, up)                                                                               \
	{                                                                                          \
		UW_RULE_CODE, LR | UW_RULE_HELD, fp, up, SP                                        \
	}
#define SAVED(base, fp, ra, up)                                                                    \
	{                                                                                          \
		UW_RULE_CODE, base, fp, ra, up                                                     \
	}

static const struct {
	const char *name;
	unsigned at; /* which instruction is next */
	int32_t code[10];
	struct uw_rule rule;
} rules[] = {
	{"a leaf", 0, {ADD, RET}, LIVE(KEEP, 0)},
	{"before a frame", 0, {SAVE, MOV_FP, BL, RESTORE, RET}, LIVE(KEEP, 0)},
	{"in a frame", 1, {SAVE, MOV_FP, ADD, RESTORE, RET}, SAVED(SP, 0, 1, 4)},
	{"behind a call", 3, {SAVE, MOV_FP, BL, RESTORE, RET}, SAVED(SP, 0, 1, 4)},
	{"behind a frame", 4, {SAVE, MOV_FP, ADD, RESTORE, RET}, LIVE(KEEP, 0)},
	{"a stack that was aligned",
	 2,
	 {SAVE, MOV_FP, ALIGN, BL, MOV_SP, RESTORE, RET},
	 SAVED(FP, 0, 1, 4)},
	{"alloca", 3, {SAVE, MOV_FP, ALLOCA, ADD, MOV_SP, RESTORE, RET}, SAVED(FP, 0, 1, 4)},
	{"a frame below its callee-saved registers",
	 1,
	 {BL, LOAD_19, LOAD_16, ADD_SP, ADD_SP, RET},
	 SAVED(SP, 2, 3, 4)},
	{"the link register alone", 1, {PUSH_LR, BL, POP_LR, RET}, SAVED(SP, KEEP, 0, 2)},
	{"a vector register popped", 0, {POP_D8, POP_LR, RET}, SAVED(SP, KEEP, 2, 4)},
	{"room", 1, {SUB_SP, ADD, ADD_SP, RET}, LIVE(KEEP, 2)},
	{"signed", 0, {PACIASP, SAVE, BL, RESTORE, AUTIASP, RET}, LIVE(KEEP, 0)},
	{"signed, in the frame", 2, {PACIASP, SAVE, ADD, RESTORE, RETAA}, SAVED(SP, 0, 1, 4)},
	{"behind a call that does not return", 1, {BL, ADD, RET}, LIVE(KEEP, 0)},
	{"the other way", 0, {CBZ_8, BRK, RET}, LIVE(KEEP, 0)},
	{"a jump", 0, {B_8, BRK, RET}, LIVE(KEEP, 0)},
	{"a tail call", 0, {RESTORE, B_8, BRK, SAVE, RESTORE, RET}, SAVED(SP, 0, 1, 4)},
	{"a PLT's entry", 1, {ADRP, LDR_17, ADD_16, BR_17}, LIVE(KEEP, 0)},
	{"a tail call through a register", 1, {BL, RESTORE, BR_0}, SAVED(SP, 0, 1, 4)},
	{"a return address that is lost", 0, {BL, RET}, NONE},
	{"a trap", 0, {BRK, RET}, NONE},
	{"an endless loop", 0, {B_0, RET}, NONE},
	{"no instruction", 0, {0, RET}, NONE},
};

static void test_rules(void)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		memset(image.data + AT, 0, 64);
		memcpy(image.data + AT, rules[i].code, sizeof rules[i].code);
		struct uw_rule r = uw_code_rule(module, AT + 4 * rules[i].at);
		if (!tap_ok(!memcmp(&r, &rules[i].rule, sizeof r), rules[i].name))
			printf("# kind %d flags %d fp %d ra %d cfa %d\n", r.kind, r.flags,
			       r.fp_slot, r.ra_slot, r.cfa);
	}
	tap_eq(uw_code_rule(module, AT + 2).kind, UW_RULE_NONE, "half an instruction");
	tap_eq(uw_code_rule(module, IMAGE_SIZE + 4).kind, UW_RULE_NONE, "no code there");
	tap_eq(uw_code_rule(module, IMAGE_SIZE - 4).kind, UW_RULE_NONE, "a segment's end");
}

/* A PLT's first entry, which pushes two words. */
static void test_plt(void)
{
	static const int32_t plt[] = {PUSH_16, ADRP, LDR_17, ADD_16, BR_17};
	const unsigned n = sizeof plt / sizeof *plt;
	unsigned wrong = 0;
	memcpy(image.data + AT, plt, sizeof plt);
	for (unsigned i = 0; i < n; i++) {
		const struct uw_rule r = uw_rule_make(module, AT + 4 * i, NULL);
		const struct uw_rule want = {UW_RULE_SP, 0, KEEP, KEEP, i ? 2 : 0};
		wrong += memcmp(&r, &want, sizeof r) != 0;
	}
	tap_eq(wrong, 0, "a PLT's first entry");
}

int main(void)
{
	image_new(&image, EM_AARCH64);
	image_finish(&image);
	module = image_module(&image);
	if (!tap_ok(module != NULL, "a module"))
		return tap_done();
	test_rules();
	test_plt();
	uw_module_free(module);
	free(image.data);
	return tap_done();
}
