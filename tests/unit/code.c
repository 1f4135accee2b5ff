/* Rules from code that has no CFI, and the lengths of instructions.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c
 * unit: sp-unwind/insn.c sp-unwind/rule.c */
#include "tap.h"

#include "../../sp-unwind/code.h"
#include "../../sp-unwind/insn.h"
#include "image.h"

#define AT 0x1900 /* no FDE is near */

static struct image image;
static struct uw_module *module;

/* DWARF's numbers. */
enum { CX = 2, BP = 6, SP = 7 };

#define NONE                                                                                       \
	{                                                                                          \
		.kind = UW_RULE_NONE                                                               \
	}
#define CODE(base, fp, ra, far)                                                                    \
	{                                                                                          \
		UW_RULE_CODE, base, fp, ra, far                                                    \
	}
#define KEEP UW_SLOT_KEEP
#define LOST UW_SLOT_LOST

static const struct {
	const char *name;
	unsigned at; /* of the instruction that is next */
	uint8_t code[24];
	struct uw_rule rule;
} rules[] = {
	{"before any push",
	 0,
	 {0x53, 0x48, 0x83, 0xec, 24, 0x90, 0x48, 0x83, 0xc4, 24, 0x5b, 0xc3},
	 CODE(SP, KEEP, 0, 0)},
	{"a push and room",
	 5,
	 {0x53, 0x48, 0x83, 0xec, 24, 0x90, 0x48, 0x83, 0xc4, 24, 0x5b, 0xc3},
	 CODE(SP, KEEP, 4, 0)},
	{"room given back",
	 10,
	 {0x53, 0x48, 0x83, 0xec, 24, 0x90, 0x48, 0x83, 0xc4, 24, 0x5b, 0xc3},
	 CODE(SP, KEEP, 1, 0)},
	{"a saved rbp",
	 7,
	 {0x55, 0x53, 0xbd, 2, 0, 0, 0, 0x90, 0x5b, 0x5d, 0xc3},
	 CODE(SP, 1, 2, 0)},
	{"rbp saved by a store",
	 0,
	 {0x48, 0x8b, 0x6c, 0x24, 8, 0x48, 0x83, 0xc4, 16, 0xc3},
	 CODE(SP, 1, 2, 0)},
	{"before a frame record",
	 0,
	 {0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3},
	 CODE(SP, KEEP, 0, 0)},
	{"a frame record", 4, {0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3}, CODE(BP, 0, 1, 0)},
	{"sp from a frame record",
	 0,
	 {0x48, 0x8d, 0x65, 0xe0, 0x5b, 0x41, 0x5c, 0x41, 0x5d, 0x41, 0x5e, 0x5d, 0xc3},
	 CODE(BP, 0, 1, 0)},
	{"sp kept in the frame",
	 0,
	 {0x48, 0x8b, 0x64, 0x24, 16, 0x5d, 0xc3},
	 CODE(SP | UW_RULE_DEREF, 0, 2, 1)},
	{"sp kept in another register", 0, {0x90, 0x48, 0x89, 0xcc, 0xc3}, CODE(CX, KEEP, 0, 0)},
	{"an aligned stack, before it is",
	 0,
	 {0x48, 0x89, 0xe1, 0x48, 0x83, 0xe4, 0xe0, 0x90, 0x48, 0x89, 0xcc, 0xc3},
	 CODE(SP, KEEP, 0, 0)},
	{"ah has rsp's number", 0, {0x80, 0xf4, 0x20, 0x30, 0xe4, 0xc3}, CODE(SP, KEEP, 0, 0)},
	{"a loop", 0, {0x48, 0xff, 0xc8, 0x75, 0xfb, 0x58, 0xc3}, CODE(SP, KEEP, 1, 0)},
	{"a jump over what does not return", 0, {0x75, 2, 0x0f, 0x0b, 0xc3}, CODE(SP, KEEP, 0, 0)},
	{"a jump back to the end", 3, {0x58, 0xc3, 0xcc, 0xeb, 0xfb}, CODE(SP, KEEP, 1, 0)},
	{"a switch", 0, {0xff, 0xe0, 0x5b, 0xc3}, CODE(SP, KEEP, 1, 0)},
	{"a tail call through a register", 0, {0x5b, 0xff, 0xe0, 0xcc}, CODE(SP, KEEP, 1, 0)},
	{"V8's way to drop arguments",
	 0,
	 {0x59, 0x49, 0x8d, 0x67, 8, 0x51, 0xc3},
	 CODE(SP, KEEP, 0, 0)},
	{"V8's way, the return address in rcx",
	 1,
	 {0x59, 0x49, 0x8d, 0x67, 8, 0x51, 0xc3},
	 CODE(CX | UW_RULE_HELD, KEEP, 1, 15)},
	{"the same, arguments gone",
	 5,
	 {0x59, 0x49, 0x8d, 0x67, 8, 0x51, 0xc3},
	 CODE(CX | UW_RULE_HELD, KEEP, 0, SP)},
	{"the same, as many arguments as a register says",
	 1,
	 {0x59, 0x48, 0x8d, 0x24, 0x1c, 0x51, 0xc3},
	 CODE(CX | UW_RULE_HELD, KEEP, 0, SP)},
	{"the same before rbp is popped",
	 0,
	 {0x5d, 0x51, 0xc3},
	 CODE(CX | UW_RULE_HELD, 0, 1, SP)},
	{"the same by a register",
	 0,
	 {0xc9, 0x59, 0x48, 0x03, 0xe3, 0x51, 0xc3},
	 CODE(BP, 0, 1, 0)},
	{"V8's handlers: rbp from its frame, sp without",
	 0,
	 {0x48, 0x8b, 0x6d, 0, 0x48, 0x83, 0xc4, 0x28, 0xff, 0xe1, 0xcc},
	 CODE(SP | UW_RULE_FP_BY_FP, 0, 5, 0)},
	{"calls leave sp as it was",
	 0,
	 {0xe8, 1, 2, 3, 4, 0xff, 0xd3, 0x5b, 0xc3},
	 CODE(SP, KEEP, 1, 0)},
	{"Go's body, behind it a panic and a call for more stack: not from its begin on",
	 9,
	 {0x49, 0x3b, 0x66, 16, 0x50, 0x75, 2, 0x58, 0xc3, 0x75, 0xfc, 0xe8, 9, 9, 9, 9, 0xe8, 9,
	  9, 9, 9, 0xeb, 0xe9},
	 CODE(SP, KEEP, 1, 0)},
	{"Go's call for more stack",
	 7,
	 {0x49, 0x3b, 0x66, 16, 0x58, 0x58, 0xc3, 0xe8, 9, 9, 9, 9, 0xeb, 0xf2},
	 CODE(SP, KEEP, 2, 0)},
	{"a call of what follows is a push",
	 0,
	 {0xe8, 0, 0, 0, 0, 0x59, 0xc3},
	 CODE(SP, KEEP, 0, 0)},
	{"a return that drops arguments", 0, {0xc2, 8, 0}, CODE(SP, KEEP, 0, 0)},
	{"a jump by a pushed address", 0, {0x68, 1, 2, 3, 4, 0xc3}, NONE},
	{"an offset that is no word's", 0, {0x48, 0x83, 0xc4, 4, 0xc3}, NONE},
	{"a trap", 0, {0xcc, 0xc3}, NONE},
	{"a halt", 0, {0xf4, 0xc3}, NONE},
	{"a call that does not return, held by a halt",
	 0,
	 {0x31, 0xff, 0xe8, 1, 2, 3, 4, 0xf4},
	 {.kind = UW_RULE_END}},
	{"such a call beside a return",
	 0,
	 {0x74, 1, 0xc3, 0xe8, 1, 2, 3, 4, 0xf4},
	 CODE(SP, KEEP, 0, 0)},
	{"an endless loop", 0, {0xeb, 0xfe, 0xc3}, NONE},
	{"no instruction", 0, {0x06, 0xc3}, NONE},
};

static void test_rules(void)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		memcpy(image.data + AT, rules[i].code, sizeof rules[i].code);
		struct uw_rule r = uw_code_rule(module, AT + rules[i].at);
		if (!tap_ok(!memcmp(&r, &rules[i].rule, sizeof r), rules[i].name))
			printf("# kind %d flags %d fp %d ra %d cfa %d\n", r.kind, r.flags,
			       r.fp_slot, r.ra_slot, r.cfa);
	}
	tap_eq(uw_code_rule(module, IMAGE_SIZE + 5).kind, UW_RULE_NONE, "no code there");
	/* At a segment's end: nothing behind it is read. */
	memset(image.data + AT, 0x90, 64);
	tap_eq(uw_code_rule(module, AT).kind, UW_RULE_NONE, "instructions that lead nowhere");
	/* By the address before: a call's last byte, or an instruction's first. */
	static const uint8_t calls[] = {0xe8, 1, 2, 3, 4, 0x5b, 0x5d, 0xc3};
	memcpy(image.data + AT, calls, sizeof calls);
	tap_eq((uint64_t)uw_rule_make(module, AT + 4, NULL).ra_slot, 2, "behind a call");
	tap_eq((uint64_t)uw_rule_make(module, AT + 6, NULL).ra_slot, 1, "at an instruction");
}

static const struct {
	unsigned len;
	uint8_t code[15];
} lengths[] = {
	{1, {0x90}},
	{2, {0x41, 0x57}},
	{3, {0x48, 0x89, 0xe5}},
	{4, {0x48, 0x83, 0xec, 8}},
	{7, {0x48, 0x81, 0xec, 0, 1, 0, 0}},
	{5, {0x66, 0x81, 0xc1, 1, 2}}, /* 16-bit immediate */
	{10, {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}},
	{5, {0xb8, 1, 2, 3, 4}},
	{9, {0xa0, 1, 2, 3, 4, 5, 6, 7, 8}},
	{6, {0x67, 0xa0, 1, 2, 3, 4}},
	{3, {0xf6, 0xc1, 1}},
	{2, {0xf6, 0xd1}},
	{6, {0xf7, 0xc1, 1, 2, 3, 4}},
	{4, {0x8b, 0x44, 0x24, 8}},          /* SIB, disp8 */
	{7, {0x8b, 0x84, 0x24, 8, 0, 0, 0}}, /* SIB, disp32 */
	{7, {0x8b, 0x04, 0x25, 8, 0, 0, 0}}, /* no base */
	{6, {0x8b, 0x05, 8, 0, 0, 0}},       /* from rip */
	{9, {0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0}},
	{6, {0x0f, 0x84, 1, 2, 3, 4}},
	{4, {0xf3, 0x0f, 0x1e, 0xfa}},
	{9, {0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}},
	{5, {0x66, 0x0f, 0x38, 0x00, 0xc1}},
	{6, {0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8}},
	{4, {0x0f, 0x70, 0xc1, 8}},
	{4, {0x0f, 0x0f, 0xc1, 0x9e}},
	{3, {0xc5, 0xf8, 0x77}},
	{4, {0xc5, 0xf5, 0xef, 0xc0}},
	{5, {0xc5, 0xf9, 0x70, 0xc1, 8}},
	{5, {0xc4, 0xe2, 0x7d, 0x00, 0xc1}},
	{6, {0xc4, 0xe3, 0x75, 0x0f, 0xc1, 8}},
	{6, {0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1}},
	{7, {0x62, 0xf1, 0x7c, 0x48, 0x28, 0x41, 1}},
	{3, {0xc2, 8, 0}},
	{4, {0xc8, 8, 0, 0}},
	{3, {0x3e, 0xff, 0xe0}},
	{15,
	 {0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66,
	  0x90}},
};

static void test_lengths(void)
{
	struct uw_insn i;
	unsigned wrong = 0, cut = 0;
	for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
		const uint8_t *p = lengths[k].code;
		if (!uw_insn_decode(p, sizeof lengths[k].code, &i) || i.len != lengths[k].len) {
			printf("# %02x %02x %02x: %u, not %u\n", p[0], p[1], p[2], i.len,
			       lengths[k].len);
			wrong++;
		}
		for (size_t n = 0; n < lengths[k].len; n++)
			cut += uw_insn_decode(p, n, &i);
	}
	tap_eq(wrong, 0, "lengths of instructions");
	tap_eq(cut, 0, "none that is cut short");
	static const uint8_t bad[][4] = {{0x06}, {0x9a}, {0xd5}, {0xea}, {0xc4, 0xe0, 0x7d, 0}};
	for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
		wrong += uw_insn_decode(bad[k], sizeof bad[k], &i);
	tap_eq(wrong, 0, "no instructions");
}

int main(void)
{
	image_new(&image, EM_X86_64);
	image_x86_basics(&image);
	image_finish(&image);
	module = image_module(&image);
	if (!tap_ok(module != NULL, "a module"))
		return tap_done();
	test_rules();
	test_lengths();
	uw_module_free(module);
	free(image.data);
	return tap_done();
}
