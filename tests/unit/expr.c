/* The machine of DWARF expressions, operation by operation.
 *
 * unit: sp-unwind/expr.c */
#include "tap.h"

#include "../../sp-unwind/expr.h"

static bool load(void *ctx, uint64_t addr, unsigned size, uint64_t *out)
{
	(void)ctx;
	if (addr < 0x1000 || addr + size > 0x2000)
		return false;
	*out = addr * 16 + size;
	return true;
}

static const uint64_t regs[17] = {100, 101, 102, 103, 104, 105, 0x1100, 0x1200,  0,
				  0,   0,   0,   0,   0,   0,   0,      0x40100b};
static struct uw_expr_env env = {.regs = regs,
				 .known = 0x100ff,
				 .n_regs = 17,
				 .addr_bytes = 8,
				 .bias = 0x7000,
				 .load = load};

struct expect {
	const char *name;
	uint8_t code[40];
	uint8_t len;
	enum uw_expr_result result;
	uint64_t value;
};

#define M(x) ((uint64_t)(x))
#define OK UW_EXPR_OK

static const struct expect table[] = {
	{"lit31", {0x4f}, 1, OK, 31},
	{"const1u 200", {0x08, 200}, 2, OK, 200},
	{"const1s -56", {0x09, 200}, 2, OK, M(-56)},
	{"const2u", {0x0a, 0xfe, 0xff}, 3, OK, 0xfffe},
	{"const2s", {0x0b, 0xfe, 0xff}, 3, OK, M(-2)},
	{"const4u", {0x0c, 0xfe, 0xff, 0xff, 0xff}, 5, OK, 0xfffffffe},
	{"const4s", {0x0d, 0xfe, 0xff, 0xff, 0xff}, 5, OK, M(-2)},
	{"const8u", {0x0e, 1, 2, 3, 4, 5, 6, 7, 8}, 9, OK, 0x0807060504030201},
	{"const8s", {0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 9, OK, M(-1)},
	{"constu", {0x10, 0xe5, 0x8e, 0x26}, 4, OK, 624485},
	{"consts", {0x11, 0x7f}, 2, OK, M(-1)},
	{"addr is moved by the bias", {0x03, 0x34, 0x12, 0, 0, 0, 0, 0, 0}, 9, OK, 0x8234},
	{"breg7 -8", {0x77, 0x78}, 2, OK, 0x11f8},
	{"bregx 6 16", {0x92, 6, 16}, 3, OK, 0x1110},
	{"a register that is not known", {0x7a, 0}, 2, UW_EXPR_NO_REG, 0},
	{"a register that does not exist", {0x92, 70, 0}, 3, UW_EXPR_NO_REG, 0},
	{"dup plus", {0x34, 0x12, 0x22}, 3, OK, 8},
	{"drop", {0x31, 0x32, 0x13}, 3, OK, 1},
	{"over", {0x31, 0x32, 0x14, 0x1c, 0x22}, 5, OK, 2},
	{"pick 2", {0x37, 0x32, 0x33, 0x15, 2}, 5, OK, 7},
	{"swap", {0x31, 0x35, 0x16, 0x1c}, 4, OK, 4},
	/* 1 2 3 rot: 3 1 2; minus: 3 -1; minus: 4 */
	{"rot", {0x31, 0x32, 0x33, 0x17, 0x1c, 0x1c}, 6, OK, 4},
	{"abs", {0x09, 0xf6, 0x19}, 3, OK, 10},
	{"and", {0x3f, 0x3a, 0x1a}, 3, OK, 10},
	{"div is signed", {0x09, 0xf6, 0x33, 0x1b}, 4, OK, M(-3)},
	{"division by zero", {0x31, 0x30, 0x1b}, 3, UW_EXPR_BAD, 0},
	{"division of the least by -1",
	 {0x0e, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x09, 0xff, 0x1b},
	 12,
	 OK,
	 UINT64_C(1) << 63},
	{"mod", {0x3e, 0x34, 0x1d}, 3, OK, 2},
	{"mod by zero", {0x3e, 0x30, 0x1d}, 3, UW_EXPR_BAD, 0},
	{"mul", {0x3e, 0x34, 0x1e}, 3, OK, 56},
	{"neg", {0x35, 0x1f}, 2, OK, M(-5)},
	{"not", {0x30, 0x20}, 2, OK, M(-1)},
	{"or", {0x38, 0x31, 0x21}, 3, OK, 9},
	{"xor", {0x3f, 0x31, 0x27}, 3, OK, 14},
	{"plus_uconst", {0x35, 0x23, 0x80, 0x01}, 4, OK, 133},
	{"shl", {0x31, 0x34, 0x24}, 3, OK, 16},
	{"shl by 64 is 0", {0x31, 0x08, 64, 0x24}, 4, OK, 0},
	{"shr", {0x09, 0xff, 0x08, 60, 0x25}, 5, OK, 15},
	{"shra keeps the sign", {0x09, 0xf0, 0x32, 0x26}, 4, OK, M(-4)},
	{"shra by 200", {0x09, 0xf0, 0x08, 200, 0x26}, 5, OK, M(-1)},
	{"eq", {0x31, 0x31, 0x29}, 3, OK, 1},
	{"ge is signed", {0x09, 0xff, 0x31, 0x2a}, 4, OK, 0},
	{"gt", {0x32, 0x31, 0x2b}, 3, OK, 1},
	{"le", {0x32, 0x31, 0x2c}, 3, OK, 0},
	{"lt", {0x09, 0xff, 0x31, 0x2d}, 4, OK, 1},
	{"ne", {0x32, 0x31, 0x2e}, 3, OK, 1},
	{"skip", {0x31, 0x2f, 1, 0, 0x13, 0x96}, 6, OK, 1},
	{"bra taken", {0x35, 0x31, 0x28, 1, 0, 0x13, 0x96}, 7, OK, 5},
	{"bra not taken", {0x35, 0x36, 0x30, 0x28, 1, 0, 0x13}, 7, OK, 5},
	{"skip to the very end", {0x31, 0x2f, 0, 0}, 4, OK, 1},
	{"skip outside", {0x31, 0x2f, 5, 0}, 4, UW_EXPR_BAD, 0},
	{"skip before the beginning", {0x31, 0x2f, 0xf0, 0xff}, 4, UW_EXPR_BAD, 0},
	{"an endless loop", {0x31, 0x2f, 0xfd, 0xff}, 4, UW_EXPR_BAD, 0},
	{"deref", {0x77, 0x08, 0x06}, 3, OK, 0x12088},
	{"deref_size 2", {0x77, 0x00, 0x94, 2}, 4, OK, 0x12002},
	{"deref_size 3", {0x77, 0x00, 0x94, 3}, 4, UW_EXPR_BAD, 0},
	{"deref of what is not to be had", {0x31, 0x06}, 2, UW_EXPR_NO_MEMORY, 0},
	{"nothing is left", {0x31, 0x13}, 2, UW_EXPR_BAD, 0},
	{"too few operands", {0x31, 0x22}, 2, UW_EXPR_BAD, 0},
	{"an operand that is cut off", {0x0e, 1, 2}, 3, UW_EXPR_BAD, 0},
	{"a call", {0x98, 0, 0}, 3, UW_EXPR_BAD, 0},
	{"an unknown operation", {0xff}, 1, UW_EXPR_BAD, 0},
	{"an empty expression", {0}, 0, UW_EXPR_BAD, 0},
	/* pc is 0x40100b: its low four bits are 11 */
	{"the PLT's expression",
	 {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22},
	 11,
	 OK,
	 0x1210},
};

int main(void)
{
	uint64_t v;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		const struct expect *t = &table[i];
		v = 0;
		enum uw_expr_result got = uw_expr_eval(&env, t->code, t->len, NULL, &v);
		if (!tap_ok(got == t->result && v == t->value, t->name))
			printf("# result %d value %llx, not %d %llx\n", (int)got,
			       (unsigned long long)v, (int)t->result, (unsigned long long)t->value);
	}
	const uint64_t cfa = 0x1300;
	const uint8_t plus[] = {0x23, 8};
	v = 0;
	tap_ok(uw_expr_eval(&env, plus, 2, &cfa, &v) == OK && v == 0x1308,
	       "the CFA lies on the stack at first");
	uint8_t many[UW_EXPR_DEPTH + 1];
	memset(many, 0x31, sizeof many);
	tap_ok(uw_expr_eval(&env, many, UW_EXPR_DEPTH, NULL, &v) == OK,
	       "the stack's depth is used");
	tap_ok(uw_expr_eval(&env, many, UW_EXPR_DEPTH + 1, NULL, &v) == UW_EXPR_BAD,
	       "one more than the depth is refused");

	env.addr_bytes = 4;
	const uint8_t neg[] = {0x31, 0x1f}, less[] = {0x09, 0xff, 0x31, 0x2d},
		      word[] = {0x77, 0, 0x06};
	tap_ok(uw_expr_eval(&env, neg, 2, NULL, &v) == OK && v == 0xffffffff,
	       "32-bit arithmetic wraps at 32 bits");
	tap_ok(uw_expr_eval(&env, less, 4, NULL, &v) == OK && v == 1,
	       "32-bit comparison is signed");
	tap_ok(uw_expr_eval(&env, word, 3, NULL, &v) == OK && v == 0x12004,
	       "a 32-bit word is read");
	return tap_done();
}
