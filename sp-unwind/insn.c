#include "insn.h"

#include <string.h>

#include "base/le.h"

/* The instruction under way; behind its longest form 13 bytes more may be read. */
struct insn_bytes {
	const uint8_t *b;
	unsigned at;
	bool half, addr32; /* prefixes 66, 67 */
	uint8_t rex;
};
#define READ_MAX (UW_INSN_MAX + 13)

/* What stands behind an opcode: how many bytes of an immediate operand, or one of these, and in
 * front of it a ModRM. */
enum {
	W = 5, /* 2 or 4, by prefix 66 */
	V,     /* so, but 8 with REX.W */
	A,     /* an address: 4 or 8, by prefix 67 */
	T,     /* of two of the eight by ModRM 1, of none of the others */
	U,     /* so with W */
	IMM = 15,
	M = 16, /* ModRM */
	M1 = M + 1,
	MW = M + W,
	MT = M + T,
	MU = M + U,
	X = 32, /* no instruction, or an escape */
	P = 64, /* a prefix */
};

static const uint8_t one_byte_form[256] = {
	M,  M,  M, M,  1, W, X,  X,  M, M,  M, M,  1, W, X, X, /* 00: arithmetic; 0f is an escape */
	M,  M,  M, M,  1, W, X,  X,  M, M,  M, M,  1, W, X, X, /* 10 */
	M,  M,  M, M,  1, W, P,  X,  M, M,  M, M,  1, W, P, X, /* 20 */
	M,  M,  M, M,  1, W, P,  X,  M, M,  M, M,  1, W, P, X, /* 30 */
	0,  0,  0, 0,  0, 0, 0,  0,  0, 0,  0, 0,  0, 0, 0, 0, /* 40: REX */
	0,  0,  0, 0,  0, 0, 0,  0,  0, 0,  0, 0,  0, 0, 0, 0, /* 50: push, pop */
	X,  X,  X, M,  P, P, P,  P,  W, MW, 1, M1, 0, 0, 0, 0, /* 60: 62 is EVEX, 69 and 6b imul */
	1,  1,  1, 1,  1, 1, 1,  1,  1, 1,  1, 1,  1, 1, 1, 1, /* 70: jumps */
	M1, MW, X, M1, M, M, M,  M,  M, M,  M, M,  M, M, M, M, /* 80 */
	0,  0,  0, 0,  0, 0, 0,  0,  0, 0,  X, 0,  0, 0, 0, 0, /* 90 */
	A,  A,  A, A,  0, 0, 0,  0,  1, W,  0, 0,  0, 0, 0, 0, /* a0 */
	1,  1,  1, 1,  1, 1, 1,  1,  V, V,  V, V,  V, V, V, V, /* b0: mov */
	M1, M1, 2, 0,  0, 0, M1, MW, 3, 0,  2, 0,  0, 1, X, 0, /* c0: c4 and c5 are VEX */
	M,  M,  M, M,  X, X, X,  0,  M, M,  M, M,  M, M, M, M, /* d0 */
	1,  1,  1, 1,  1, 1, 1,  1,  4, 4,  X, 1,  0, 0, 0, 0, /* e0 */
	P,  0,  P, P,  0, 0, MT, MU, 0, 0,  0, 0,  0, 0, M, M, /* f0 */
};

/* Behind 0f. */
static const uint8_t two_byte_form[256] = {
	M,  M,  M,  M,  M,  0,  0,  0, 0, 0, M,  0, M,  M, 0, M, /* 00 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* 10 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* 20 */
	0,  0,  0,  0,  0,  0,  0,  0, M, M, M,  M, M,  M, M, M, /* 30: 38 and 3a are escapes */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* 40: cmov */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* 50 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* 60 */
	M1, M1, M1, M1, M,  M,  M,  0, M, M, M,  M, M,  M, M, M, /* 70: 77 is emms */
	4,  4,  4,  4,  4,  4,  4,  4, 4, 4, 4,  4, 4,  4, 4, 4, /* 80: jumps */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* 90 */
	0,  0,  0,  M,  M1, M,  M,  M, 0, 0, 0,  M, M1, M, M, M, /* a0 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M1, M, M,  M, M, M, /* b0 */
	M,  M,  M1, M,  M1, M1, M1, M, 0, 0, 0,  0, 0,  0, 0, 0, /* c0 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* d0 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* e0 */
	M,  M,  M,  M,  M,  M,  M,  M, M, M, M,  M, M,  M, M, M, /* f0 */
};

/* ModRM, SIB and displacement. */
static inline void modrm(struct insn_bytes *i, struct uw_insn *out)
{
	uint8_t byte = i->b[i->at++], mod = byte >> 6, rm = byte & 7;
	out->has_modrm = true;
	out->ext = byte >> 3 & 7;
	out->reg = (uint8_t)(out->ext | (i->rex & 4) << 1);
	out->rm = (uint8_t)(rm | (i->rex & 1) << 3);
	out->is_mem = mod != 3;
	if (mod == 3)
		return;
	bool none = mod == 0 && rm == 5;
	if (rm == 4) {
		uint8_t sib = i->b[i->at++], base = sib & 7;
		out->rm = (uint8_t)(base | (i->rex & 1) << 3);
		out->indexed = (sib >> 3 & 7) != 4 || i->rex & 2;
		none = mod == 0 && base == 5;
	}
	if (none) {
		out->indexed = true;
		out->rm = UW_INSN_NONE;
	}
	if (mod == 1) {
		out->disp = (int8_t)i->b[i->at++];
	} else if (mod == 2 || none) {
		out->disp = (int32_t)sp_get32(i->b + i->at);
		i->at += 4;
	}
}

/* Behind a VEX or EVEX prefix: the opcode's map says what follows. */
static bool vector(struct insn_bytes *i, struct uw_insn *out)
{
	uint8_t first = i->b[i->at];
	uint8_t map = first == 0xc5 ? 1 : i->b[i->at + 1] & (first == 0x62 ? 7 : 31);
	i->at += first == 0xc5 ? 2 : first == 0xc4 ? 3 : 4;
	uint8_t op = i->b[i->at++];
	out->map = UW_MAP_OTHERS;
	out->op = op;
	if (!map || map > 6 || map == 4)
		return false;
	if (map != 1 || op != 0x77 || first == 0x62)
		modrm(i, out);
	i->at += map == 3 || (map == 1 && (two_byte_form[op] & IMM) == 1);
	return true;
}

static inline void prefixes(struct insn_bytes *i, struct uw_insn *out)
{
	for (; i->at < UW_INSN_MAX; i->at++) {
		uint8_t byte = i->b[i->at];
		if (!(one_byte_form[byte] & P)) {
			if ((byte & 0xf0) == 0x40)
				i->rex = i->b[i->at++];
			return;
		}
		i->half |= byte == 0x66;
		i->addr32 |= byte == 0x67;
		out->notrack |= byte == 0x3e;
	}
}

/* Bytes of an immediate operand. */
static inline unsigned imm_bytes(const struct insn_bytes *i, uint8_t form, uint8_t ext)
{
	unsigned n = form & IMM, word = i->half ? 2 : 4;
	if (n < W)
		return n;
	switch (n) {
	case V:
		return i->rex & 8 ? 8 : word;
	case A:
		return i->addr32 ? 4 : 8;
	case T:
		return ext < 2 ? 1 : 0;
	case U:
		return ext < 2 ? word : 0;
	default:
		return word;
	}
}

/* ModRM and immediate. */
static inline void operands(struct insn_bytes *i, struct uw_insn *out, uint8_t form)
{
	if (form & M)
		modrm(i, out);
	unsigned n = imm_bytes(i, form, out->ext);
	if (n == 1)
		out->imm = (int8_t)i->b[i->at];
	else if (n == 2 || n == 3)
		out->imm = (int16_t)sp_get16(i->b + i->at);
	else if (n)
		out->imm = (int32_t)sp_get32(i->b + i->at);
	i->at += n;
}

static inline bool opcode(struct insn_bytes *i, struct uw_insn *out)
{
	uint8_t op = i->b[i->at];
	if (op == 0xc4 || op == 0xc5 || op == 0x62)
		return vector(i, out);
	i->at++;
	out->wide = i->rex & 8;
	out->op = op;
	if (op != 0x0f) {
		out->o = (uint8_t)((op & 7) | (i->rex & 1) << 3);
		operands(i, out, one_byte_form[op]);
		return !(one_byte_form[op] & X);
	}
	op = out->op = i->b[i->at++];
	out->map = UW_MAP_TWO;
	if (op == 0x38 || op == 0x3a || op == 0x0f) {
		out->map = UW_MAP_OTHERS;
		i->at += op != 0x0f;
		modrm(i, out);
		i->at += op != 0x38;
		return true;
	}
	operands(i, out, two_byte_form[op]);
	return true;
}

bool uw_insn_decode(const uint8_t *p, size_t n, struct uw_insn *out)
{
	uint8_t padded[READ_MAX];
	struct insn_bytes i = {.b = p};
	if (n < READ_MAX) {
		memset(padded, 0, sizeof padded);
		memcpy(padded, p, n);
		i.b = padded;
	}
	*out = (struct uw_insn){0};
	prefixes(&i, out);
	if (!opcode(&i, out) || i.at > UW_INSN_MAX || i.at > n)
		return false;
	out->len = (uint8_t)i.at;
	return true;
}
