/* The walk of AArch64 stacks made by hand.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c
 * unit: sp-unwind/guess.c sp-unwind/insn.c sp-unwind/reuse.c sp-unwind/rule.c
 * unit: sp-unwind/walk.c sp-unwind/walk_full.c */
#include "walk_stack.h"

enum {
	A_LEAF = 0x1000,     /* CFA = sp, return address live */
	A_FRAME = 0x1100,    /* CFA = sp + 16, x29 at CFA - 16, x30 at CFA - 8 */
	A_ROOT = 0x1200,     /* x30 undefined */
	A_SIGNED = 0x1300,   /* as A_FRAME, the return address signed */
	A_RESOLVE = 0x1400,  /* return address at CFA + 8, CFA = sp + 208 */
	A_RESOLVED = 0x1500, /* the same, CFA = sp - 16 */
	A_HUGE = 0x1600,     /* the same, CFA = sp + INT64_MAX */
	A_RETURN = 0x2000,   /* mov x8,#139; svc #0 */
	A_NO_CFI = 0x2100,   /* calls A_FAR before 0x2140 */
	A_FAR = 0x3800,      /* no CFI either */
};

static void arm_at(uint64_t svma)
{
	at(svma);
	sample.machine = EM_AARCH64;
	sample.regs_mask = (UINT64_C(1) << 33) - 1;
	memset(regs, 0, sizeof regs);
}

static uint64_t r[33];

/* A signal in the middle: the trampoline's frame holds the registers. */
static void test_arm_signal(void)
{
	memset(stack, 0, sizeof stack);
	r[30] = MAPPED(A_RETURN);
	uint64_t *mc = &stack[(128 + 176 + 8) / 8];
	mc[29] = ADDR(90);
	mc[30] = MAPPED(A_FRAME + 0x20);
	mc[31] = ADDR(80);
	mc[32] = MAPPED(A_LEAF + 8);
	stack[80] = ADDR(95);
	stack[81] = MAPPED(A_ROOT + 0x20);
	EXPECT("below a signal trampoline the link register is live again", UW_END, A_LEAF,
	       A_RETURN - 1, A_LEAF + 8, SITE(A_FRAME), SITE(A_ROOT));
}

/* No CFI: a leaf without a frame, called by a BL. */
static void test_arm_leaf(void)
{
	memset(stack, 0, sizeof stack);
	r[32] = MAPPED(A_FAR + 4);
	r[30] = MAPPED(A_NO_CFI + 0x40);
	r[29] = ADDR(4);
	stack[5] = MAPPED(A_ROOT + 0x20);
	EXPECT("a leaf without CFI has a caller, which has a frame", UW_END, A_FAR + 4,
	       A_NO_CFI + 0x3f, SITE(A_ROOT));
	r[32] = MAPPED(A_NO_CFI + 0x48);
	EXPECT("its own code in the link register is left from a call that returned", UW_END,
	       A_NO_CFI + 0x48, SITE(A_ROOT));
}

/* What is a call, by the code before a return address. */
static void test_arm_calls(const struct image *arm)
{
	static const struct {
		const char *name;
		uint32_t code;
		bool is_call;
	} codes[] = {
		{"blr x8", 0xd63f0100, true},       {"blraaz x8", 0xd63f091f, true},
		{"blrab x8, x9", 0xd73f0d09, true}, {"br x8", 0xd61f0100, false},
		{"ret", 0xd65f03c0, false},
	};
	memset(stack, 0, sizeof stack);
	r[32] = MAPPED(A_NO_CFI + 4);
	r[29] = 5;
	stack[5] = 0;
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		uint64_t end = A_NO_CFI + 0x200 + 16 * i;
		memcpy(arm->data + end - 4, &codes[i].code, 4);
		r[30] = MAPPED(end);
		const uint64_t want[] = {A_NO_CFI + 4, end - 1};
		expect(codes[i].name, UW_NO_CFI, want, codes[i].is_call ? 2 : 1);
	}
}

/* glibc's _dl_runtime_resolve, below whose CFA the PLT has pushed two words. */
static void test_arm_resolver(void)
{
	memset(stack, 0, sizeof stack);
	r[32] = MAPPED(A_RESOLVE + 4);
	stack[27] = MAPPED(A_FRAME + 0x20);
	stack[26] = stack[28] = MAPPED(A_LEAF + 0x20); /* not return addresses */
	stack[29] = MAPPED(A_ROOT + 0x20);
	EXPECT("a return address above the CFA: the caller's sp is right above it", UW_END,
	       A_RESOLVE + 4, SITE(A_FRAME), SITE(A_ROOT));
	r[32] = MAPPED(A_RESOLVED + 4);
	r[30] = MAPPED(A_FRAME + 0x20);
	stack[1] = MAPPED(A_ROOT + 0x20);
	EXPECT("one that was popped is in the link register", UW_END, A_RESOLVED + 4, SITE(A_FRAME),
	       SITE(A_ROOT));
	r[32] = MAPPED(A_HUGE + 4);
	EXPECT("offsets beyond all bounds wrap", UW_NO_STACK, A_HUGE + 4, SITE(A_FRAME));
}

static void test_arm(void)
{
	struct image arm;
	struct uw_module *x86 = module;
	image_new(&arm, EM_AARCH64);
	IMAGE_FDE(&arm, false, A_LEAF, 0x100, 0);
	IMAGE_FDE(&arm, false, A_FRAME, 0x100, 0x0e, 16, 0x9d, 2, 0x9e, 1);
	IMAGE_FDE(&arm, false, A_ROOT, 0x100, 0x07, 30);
	IMAGE_FDE(&arm, false, A_SIGNED, 0x100, 0x2d, 0x0e, 16, 0x9d, 2, 0x9e, 1);
	IMAGE_FDE(&arm, false, A_RESOLVE, 0x100, 0x11, 30, 0x7f, 0x0e, 0xd0, 1);
	IMAGE_FDE(&arm, false, A_RESOLVED, 0x100, 0x11, 30, 0x7f, 0x13, 2);
	IMAGE_FDE(&arm, false, A_HUGE, 0x100, 0x11, 30, 0x7f, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff,
		  0xff, 0xff, 0xff, 0x7f);
	image_finish(&arm);
	const uint32_t code[] = {0xd2801168, 0xd4000001};
	memcpy(arm.data + A_RETURN, code, sizeof code);
	const uint32_t bl = 0x94000000 | (A_FAR - (A_NO_CFI + 0x3c)) / 4;
	memcpy(arm.data + A_NO_CFI + 0x3c, &bl, 4);
	module = image_module(&arm);
	arm_at(A_LEAF);
	sample.regs = (const uint8_t *)r;
	r[32] = MAPPED(A_LEAF);
	r[31] = SP;
	r[30] = MAPPED(A_FRAME + 0x20);
	r[29] = ADDR(8);
	stack[0] = ADDR(8);
	/* Signed: bits above 47 hold a signature. */
	stack[1] = MAPPED(A_SIGNED + 0x20) | UINT64_C(0x2b) << 48;
	stack[2] = ADDR(20);
	stack[3] = MAPPED(A_ROOT + 0x20) | UINT64_C(0x7f) << 48;
	EXPECT("the link register, frames, signed return addresses, the root", UW_END, A_LEAF,
	       SITE(A_FRAME), SITE(A_SIGNED), SITE(A_ROOT));
	r[32] |= UINT64_C(0x51) << 48;
	EXPECT("a pc that is signed", UW_END, A_LEAF, SITE(A_FRAME), SITE(A_SIGNED), SITE(A_ROOT));
	r[32] = MAPPED(A_LEAF);
	maps[1] = (struct uw_map){UINT64_C(1) << 53, (UINT64_C(1) << 53) + 4096, 0, NULL, 0, 9};
	part.n = 2;
	EXPECT("addresses of 53 bits are none: signatures begin at the usual place", UW_END, A_LEAF,
	       SITE(A_FRAME), SITE(A_SIGNED), SITE(A_ROOT));
	part.n = 1;
	stack[1] = MAPPED(A_LEAF + 0x20);
	EXPECT("a link register that was overwritten is no return address", UW_LOOP, A_LEAF,
	       SITE(A_FRAME), SITE(A_LEAF));
	test_arm_signal();
	test_arm_leaf();
	test_arm_resolver();
	test_arm_calls(&arm);
	uw_module_free(module);
	free(arm.data);
	module = x86;
}

int main(void)
{
	if (!walk_begin())
		return tap_done();
	test_arm();
	return walk_end();
}
