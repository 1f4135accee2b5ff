#include "insn.h"

#include <string.h>

#include "base/le.h"

/* The instruction under way, padded with zeros. */
struct insn_bytes {
	uint8_t b[UW_INSN_MAX + 13];
	unsigned at;
	bool half, addr32; /* prefixes 66, 67 */
	uint8_t rex;
};

/* A bit for each opcode of a map. */
static bool in_set(const uint32_t set[8], uint8_t op)
{
	return set[op >> 5] >> (op & 31) & 1;
}

static const uint32_t one_has_modrm[8] = {
	0x0f0f0f0f,             /* 00-1f: arithmetic, its first four of eight */
	0x0f0f0f0f,             /* 20-3f */
	0x00000000, 0x00000a08, /* 63 movsxd, 69 and 6b imul */
	0x0000ffff,             /* 80-8f */
	0x00000000, 0xff0f00c3, /* c0 c1 c6 c7, d0-d3, d8-df */
	0xc0c00000,             /* f6 f7 fe ff */
};
static const uint32_t one_is_bad[8] = {
	0xc0c040c0,             /* 06 07 0e 16 17 1e 1f; 0f is an escape */
	0x80808080,             /* 27 2f 37 3f; 26 2e 36 3e are prefixes */
	0x00000000, 0x00000007, /* 60-62; 62 is EVEX */
	0x04000004,             /* 82, 9a */
	0x00000000, 0x00704000, /* ce, d4-d6 */
	0x00000400,             /* ea */
};
static const uint32_t two_has_no_modrm[8] = {
	0x00004be0,             /* 05-09 0b 0e */
	0x00ff0000,             /* 30-37 */
	0x00000000, 0x00800000, /* 77 emms */
	0x0000ffff,             /* 80-8f: jumps */
	0x00000707,             /* a0-a2, a8-aa */
	0x0000ff00,             /* c8-cf */
	0x00000000,
};

/* Bytes of an immediate operand. */
static unsigned one_imm(const struct insn_bytes *i, uint8_t op, uint8_t ext)
{
	unsigned word = i->half ? 2 : 4;
	if (op < 0x40)
		return (op & 7) == 4 ? 1 : (op & 7) == 5 ? word : 0;
	switch (op) {
	case 0x68:
	case 0x69:
	case 0x81:
	case 0xa9:
	case 0xc7:
		return word;
	case 0x6a:
	case 0x6b:
	case 0x80:
	case 0x83:
	case 0xa8:
	case 0xc0:
	case 0xc1:
	case 0xc6:
	case 0xcd:
	case 0xeb:
		return 1;
	case 0xc2:
	case 0xca:
		return 2;
	case 0xc8:
		return 3;
	case 0xe8:
	case 0xe9:
		return 4;
	case 0xf6:
		return ext < 2 ? 1 : 0;
	case 0xf7:
		return ext < 2 ? word : 0;
	default:
		break;
	}
	if ((op & 0xf0) == 0x70 || (op & 0xf8) == 0xb0 || (op & 0xf8) == 0xe0)
		return 1;
	if ((op & 0xf8) == 0xb8)
		return i->rex & 8 ? 8 : word;
	return (op & 0xfc) == 0xa0 ? (i->addr32 ? 4 : 8) : 0;
}

static unsigned two_imm(uint8_t op)
{
	if ((op & 0xf0) == 0x80)
		return 4;
	return (op & 0xfc) == 0x70 || op == 0xa4 || op == 0xac || op == 0xba || op == 0xc2 ||
	       (op >= 0xc4 && op <= 0xc6);
}

/* ModRM, SIB and displacement. */
static void modrm(struct insn_bytes *i, struct uw_insn *out)
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
	i->at += map == 3 || (map == 1 && two_imm(op) == 1);
	return true;
}

static void prefixes(struct insn_bytes *i, struct uw_insn *out)
{
	for (; i->at < UW_INSN_MAX; i->at++) {
		switch (i->b[i->at]) {
		case 0x66:
			i->half = true;
			break;
		case 0x67:
			i->addr32 = true;
			break;
		case 0x3e:
			out->notrack = true;
			break;
		case 0x26:
		case 0x2e:
		case 0x36:
		case 0x64:
		case 0x65:
		case 0xf0:
		case 0xf2:
		case 0xf3:
			break;
		default:
			if ((i->b[i->at] & 0xf0) == 0x40)
				i->rex = i->b[i->at++];
			return;
		}
	}
}

static void immediate(struct insn_bytes *i, struct uw_insn *out, unsigned n)
{
	if (n == 1)
		out->imm = (int8_t)i->b[i->at];
	else if (n == 2 || n == 3)
		out->imm = (int16_t)sp_get16(i->b + i->at);
	else if (n)
		out->imm = (int32_t)sp_get32(i->b + i->at);
	i->at += n;
}

static bool opcode(struct insn_bytes *i, struct uw_insn *out)
{
	uint8_t op = i->b[i->at];
	if (op == 0xc4 || op == 0xc5 || op == 0x62)
		return vector(i, out);
	i->at++;
	out->wide = i->rex & 8;
	out->op = op;
	if (op != 0x0f) {
		if (in_set(one_is_bad, op))
			return false;
		out->o = (uint8_t)((op & 7) | (i->rex & 1) << 3);
		if (in_set(one_has_modrm, op))
			modrm(i, out);
		immediate(i, out, one_imm(i, op, out->ext));
		return true;
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
	if (!in_set(two_has_no_modrm, op))
		modrm(i, out);
	immediate(i, out, two_imm(op));
	return true;
}

bool uw_insn_decode(const uint8_t *p, size_t n, struct uw_insn *out)
{
	struct insn_bytes i = {0};
	if (n >= UW_INSN_MAX) /* all but always: no call */
		memcpy(i.b, p, UW_INSN_MAX);
	else
		memcpy(i.b, p, n);
	*out = (struct uw_insn){0};
	prefixes(&i, out);
	if (!opcode(&i, out) || i.at > UW_INSN_MAX || i.at > n)
		return false;
	out->len = (uint8_t)i.at;
	return true;
}
