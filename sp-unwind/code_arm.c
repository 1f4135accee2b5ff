/* Rules from AArch64 code that has no CFI: musl's functions, PLTs, start files, assembly. As in
 * code.c the instructions are followed from where the function stands up to its `ret`, which goes
 * to the link register: that was left alone since, or is loaded from where it was saved.
 *
 * Source: Arm Architecture Reference Manual (DDI 0487), C4.1 (encodings by groups). */
#include "code_arm.h"

#include "base/le.h"

enum { X16 = 16, X17, FP = 29, LR, SP, N_REGS };

/* What a register or a word holds. */
struct value {
	uint8_t kind;
	uint8_t reg; /* FP or SP: what it was at first */
	int32_t off;
};
enum {
	UNKNOWN,
	ADDRESS,  /* reg + off */
	WORD,     /* what was at reg + off at first */
	RETURNED, /* what the link register held at first */
};

static const struct value unknown = {.kind = UNKNOWN};

static struct value plus(struct value v, int64_t n)
{
	if (v.kind != ADDRESS || n < INT16_MIN * 64 || n > INT16_MAX * 64 ||
	    __builtin_add_overflow(v.off, (int32_t)n, &v.off))
		return unknown;
	return v;
}

/* --- a way through the code --- */

#define WORDS 16u

struct way {
	uint64_t pc;
	struct value regs[N_REGS];
	struct {
		struct value at, v;
	} words[WORDS]; /* that were written on the way; the oldest gives place */
	uint32_t n_words;
};

static bool same(const struct value *a, const struct value *b)
{
	return a->kind == b->kind && a->reg == b->reg && a->off == b->off;
}

static void store(struct way *w, struct value at, struct value v)
{
	uint32_t i = 0, n = w->n_words < WORDS ? w->n_words : WORDS;
	if (at.kind != ADDRESS)
		return;
	while (i < n && !same(&w->words[i].at, &at))
		i++;
	if (i == n)
		i = w->n_words++ % WORDS;
	w->words[i].at = at;
	w->words[i].v = v;
}

static struct value load(const struct way *w, struct value at)
{
	if (at.kind != ADDRESS)
		return unknown;
	for (uint32_t i = 0; i < WORDS && i < w->n_words; i++)
		if (same(&w->words[i].at, &at))
			return w->words[i].v;
	at.kind = WORD;
	return at;
}

/* A register as a destination, of which 31 is none. */
static void set(struct way *w, uint32_t reg, struct value v)
{
	if (reg < SP)
		w->regs[reg] = v;
}

static struct value get(const struct way *w, uint32_t reg)
{
	return reg < SP ? w->regs[reg] : unknown;
}

/* The lowest bits of v. */
static int32_t sign_extend(uint32_t v, unsigned bits)
{
	return (int32_t)(v << (32 - bits)) >> (32 - bits);
}

/* --- instructions --- */

/* Pairs: opc, V, and how the base changes stand in the same bits of all forms. */
static void pair(struct way *w, uint32_t insn)
{
	uint32_t opc = insn >> 30, how = insn >> 23 & 3, base = insn >> 5 & 31;
	bool vector = insn >> 26 & 1, loads = insn >> 22 & 1;
	bool words = !vector && opc == 2;
	unsigned shift = vector ? 2 + opc : words ? 3 : 2;
	int32_t by = sign_extend(insn >> 15, 7) * (1 << shift);
	struct value from = w->regs[base], at = how == 1 ? from : plus(from, by);
	struct value next = plus(at, 8);
	uint32_t first = insn & 31, second = insn >> 10 & 31;
	if (how & 1) /* behind (1) or before (3) the access */
		w->regs[base] = plus(from, by);
	if (vector)
		return;
	if (loads) {
		set(w, first, words ? load(w, at) : unknown);
		set(w, second, words ? load(w, next) : unknown);
	} else if (words) {
		store(w, at, get(w, first));
		store(w, next, get(w, second));
	}
}

/* One register, with an offset of 12 bits, or one of 9 bits that may change the base. */
static void single(struct way *w, uint32_t insn)
{
	uint32_t size = insn >> 30, opc = insn >> 22 & 3, base = insn >> 5 & 31;
	bool vector = insn >> 26 & 1, is_far = insn >> 24 & 1, other = !is_far && insn >> 21 & 1;
	uint32_t how = insn >> 10 & 3; /* 0: no change, 1: behind, 3: before */
	struct value from = w->regs[base], at = unknown;
	if (is_far) {
		at = plus(from, (int64_t)(insn >> 10 & 0xfff) << size);
	} else if (!other) {
		struct value moved = plus(from, sign_extend(insn >> 12, 9));
		at = how == 1 ? from : moved;
		if (how & 1)
			w->regs[base] = moved;
	}
	if (vector || (size == 3 && opc == 2)) /* PRFM */
		return;
	if (opc || other)
		set(w, insn & 31, size == 3 && opc == 1 ? load(w, at) : unknown);
	else if (size == 3)
		store(w, at, get(w, insn & 31));
}

/* Additions of a constant are followed, and moves. What else sets sp: an addition of a register,
 * and a mask that aligns it. */
static void arithmetic(struct way *w, uint32_t insn)
{
	uint32_t to = insn & 31, from = insn >> 5 & 31;
	if ((insn & 0x9f800000) == 0x91000000) { /* ADD and ADDS, SUB and SUBS: of 64 bits */
		int64_t n = (int64_t)(insn >> 10 & 0xfff) << (insn >> 22 & 1) * 12;
		struct value v = plus(w->regs[from], insn >> 30 & 1 ? -n : n);
		if (!(insn >> 29 & 1))
			w->regs[to] = v;
		else
			set(w, to, unknown);
	} else if ((insn & 0xffe0ffe0) == 0xaa0003e0) { /* MOV */
		set(w, to, get(w, insn >> 16 & 31));
	} else if ((insn & 0xffff8000) == 0xdac10000) {
		return; /* PACIA …, XPACD: the same address, signed or not */
	} else if (to == SP && ((insn & 0xbfe00000) == 0x8b200000 ||  /* ADD, SUB of a register */
				((insn & 0x9f800000) == 0x92000000 && /* AND, ORR, EOR */
				 (insn >> 29 & 3) != 3))) {
		w->regs[SP] = unknown;
	} else {
		set(w, to, unknown);
	}
}

/* --- the search --- */

#include "code_search.h"

/* Whether a way that ends here leads to the caller. */
static bool found(const struct way *w, struct value to, struct uw_rule *out)
{
	struct uw_rule r = {.kind = UW_RULE_CODE, .fp_slot = UW_SLOT_LOST};
	struct value sp = w->regs[SP], fp = w->regs[FP];
	int16_t up;
	if (sp.kind != ADDRESS || !slot(sp.off, &up))
		return false;
	if (to.kind == RETURNED) {
		r.flags = LR | UW_RULE_HELD;
		r.ra_slot = up;
		r.cfa = sp.reg;
	} else if (to.kind == WORD && to.reg == sp.reg && slot(to.off, &r.ra_slot)) {
		r.flags = to.reg;
		r.cfa = (uint16_t)up;
	} else {
		return false;
	}
	if (fp.kind == ADDRESS && fp.reg == FP && !fp.off)
		r.fp_slot = UW_SLOT_KEEP;
	else if (fp.kind == WORD && fp.reg == (to.kind == WORD ? to.reg : SP))
		(void)slot(fp.off, &r.fp_slot);
	*out = r;
	return true;
}

/* A call: what it may change is not known afterwards. */
static enum outcome call(struct way *w)
{
	for (unsigned i = 0; i <= 18; i++)
		w->regs[i] = unknown;
	w->regs[LR] = unknown;
	return GOES_ON;
}

/* Through a register: BLR, RET, BR, each with its forms that check a signature. A jump through x16
 * or x17 leaves the function, as linkers' stubs do; another one may be a switch's. */
static enum outcome by_register(struct search *s, struct way *w, uint32_t insn, struct uw_rule *out)
{
	uint32_t reg = insn >> 5 & 31;
	bool is_signed = insn >> 11 & 1;
	switch (insn >> 21 & 7) {
	case 1:
		return call(w);
	case 2:
		return found(w, get(w, is_signed ? LR : reg), out) ? FOUND : DEAD;
	case 0:
		if ((reg == X16 || reg == X17) && found(w, w->regs[LR], out))
			return FOUND;
		if (s->second.kind == UW_RULE_NONE)
			(void)found(w, w->regs[LR], &s->second);
		return DEAD;
	default:
		return DEAD;
	}
}

/* Where a jump by so many instructions, in the lowest bits of `field`, leads from the last one. */
static uint64_t target(const struct way *w, uint32_t field, unsigned bits)
{
	return w->pc - 4 + (uint64_t)(int64_t)sign_extend(field, bits) * 4;
}

static enum outcome branch(struct search *s, struct way *w, uint32_t insn, struct uw_rule *out)
{
	if ((insn & 0x7c000000) == 0x14000000) { /* B, BL */
		if (insn >> 31)
			return call(w);
		return jump(s, w, target(w, insn, 26));
	}
	if ((insn & 0x7e000000) == 0x34000000 ||
	    (insn & 0xff000000) == 0x54000000) /* CBZ, B.cond */
		part(s, w, target(w, insn >> 5, 19));
	else if ((insn & 0x7e000000) == 0x36000000) /* TBZ */
		part(s, w, target(w, insn >> 5, 14));
	else if ((insn & 0xfe000000) == 0xd6000000)
		return by_register(s, w, insn, out);
	else if ((insn & 0xff000000) == 0xd4000000) /* SVC, BRK, HLT */
		return (insn & 0xffe0001f) == 0xd4000001 ? GOES_ON : DEAD;
	else if ((insn & 0xffe00000) == 0xd5200000) /* MRS and the like: a result */
		set(w, insn & 31, unknown);
	return GOES_ON;
}

static enum outcome step(struct search *s, struct way *w, struct uw_rule *out)
{
	uint64_t at = w->pc - s->svma;
	if (at >= s->left || s->left - at < 4)
		return DEAD;
	uint32_t insn = sp_get32(s->p + at);
	w->pc += 4;
	switch (insn >> 25 & 15) {
	case 0: /* UDF; SME */
	case 1:
	case 3:
		return DEAD;
	case 2: /* SVE, whose counts go to registers */
	case 5: /* of registers */
	case 8: /* of constants */
	case 9:
	case 13:
		arithmetic(w, insn);
		return GOES_ON;
	case 10:
	case 11:
		return branch(s, w, insn, out);
	case 7: /* vectors, which may go to general registers */
	case 15:
		set(w, insn & 31, unknown);
		return GOES_ON;
	default:
		break;
	}
	if ((insn & 0x3a000000) == 0x28000000)
		pair(w, insn);
	else if ((insn & 0x3a000000) == 0x38000000)
		single(w, insn);
	else if ((insn & 0xbe800000) == 0x0c800000) /* structures of vectors, and the base moves */
		w->regs[insn >> 5 & 31] = unknown;
	else /* exclusive accesses, literals */
		set(w, insn & 31, unknown);
	return GOES_ON;
}

static struct uw_rule search(const struct uw_module *m, uint64_t svma, struct value lr)
{
	struct search s;
	struct way w = {.pc = svma};
	if (svma & 3)
		return (struct uw_rule){.kind = UW_RULE_NONE};
	w.regs[FP] = (struct value){ADDRESS, FP, 0};
	w.regs[SP] = (struct value){ADDRESS, SP, 0};
	w.regs[LR] = lr;
	return follow(&s, m, &w);
}

struct uw_rule uw_code_arm_rule(const struct uw_module *m, uint64_t svma, bool called)
{
	struct uw_rule r = {.kind = UW_RULE_NONE};
	if (called)
		r = search(m, svma, unknown);
	/* Behind a call that does not return, another function begins. */
	return r.kind == UW_RULE_NONE ? search(m, svma, (struct value){.kind = RETURNED}) : r;
}
