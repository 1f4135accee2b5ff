/* Rules from code. A function written by hand, or built without unwind tables as musl's are, has no
 * CFI, and often no frame pointer; but it must find its way back itself. So what it will do with
 * sp is followed from where it stands: pushes, pops, additions, copies in registers and in the
 * frame, up to `ret`. What becomes of other registers and of memory is of no interest: a register
 * that holds sp is not used for anything else by code that restores sp from it, nor by what that
 * code calls. */
#include "code.h"

#include "base/le.h"
#include "code_arm.h"
#include "insn.h"

/* --- calls --- */

/* Bytes of a call through memory or a register (FF /2), with its REX prefix, whatever stands before
 * that; 0: none. Intel SDM, volume 2, chapter 2.1 (ModRM and SIB). */
static unsigned indirect_call(const uint8_t *p, unsigned n)
{
	unsigned i = 0;
	if (i < n && (p[i] & 0xf0) == 0x40) /* REX */
		i++;
	if (i + 2 > n || p[i] != 0xff || (p[i + 1] >> 3 & 7) != 2)
		return 0;
	uint8_t mod = p[i + 1] >> 6, rm = p[i + 1] & 7;
	i += 2;
	if (mod == 3)
		return i;
	uint8_t base = rm;
	if (rm == 4) {
		if (i == n)
			return 0;
		base = p[i++] & 7;
	}
	if (mod == 1)
		i += 1;
	else if (mod == 2 || (mod == 0 && base == 5))
		i += 4;
	return i;
}

#define LONGEST_CALL 8

/* Files whose code was blanked out (for a symbol server, for a test) have zeros there, which are
 * no instructions that return: nothing can be said about calls. */
static bool blank(const uint8_t *p, unsigned n)
{
	while (n && !p[n - 1])
		n--;
	return n == 0;
}

static struct uw_call x86_call(const struct uw_module *m, uint64_t svma)
{
	const uint8_t *p = NULL;
	unsigned n = LONGEST_CALL + 1;
	while (!p && --n >= 2)
		p = uw_module_bytes(m, svma - n, n);
	if (!p || blank(p, n))
		return (struct uw_call){UW_CALL_UNKNOWN, 0};
	if (n >= 5 && p[n - 5] == 0xe8)
		return (struct uw_call){UW_CALL_DIRECT, (int32_t)sp_get32(p + n - 4)};
	for (unsigned len = 2; len <= n; len++)
		if (indirect_call(p + n - len, len) == len)
			return (struct uw_call){UW_CALL_INDIRECT, 0};
	return (struct uw_call){UW_CALL_NONE, 0};
}

static struct uw_call arm64_call(const struct uw_module *m, uint64_t svma)
{
	const uint8_t *p = uw_module_bytes(m, svma - 4, 4);
	if (svma & 3)
		return (struct uw_call){UW_CALL_NONE, 0};
	if (!p || blank(p, 4))
		return (struct uw_call){UW_CALL_UNKNOWN, 0};
	uint32_t insn = sp_get32(p);
	if ((insn & 0xfc000000) == 0x94000000) /* BL: 26 bits of words, from the instruction on */
		return (struct uw_call){UW_CALL_DIRECT, ((int32_t)(insn << 6) >> 4) - 4};
	/* BLR, and BLRAA… with a signature */
	if ((insn & 0xfffffc1f) == 0xd63f0000 || (insn & 0xfefff800) == 0xd63f0800)
		return (struct uw_call){UW_CALL_INDIRECT, 0};
	return (struct uw_call){UW_CALL_NONE, 0};
}

struct uw_call uw_code_call(const struct uw_module *m, uint64_t ra)
{
	return m->arch->machine == EM_AARCH64 ? arm64_call(m, ra) : x86_call(m, ra);
}

/* --- values --- */

enum { RAX, RSP = 4, RBP, N_REGS = 16 };
/* What sp is once it was set to something unknown, as to be aligned: new, and not to be had. */
#define NEW_SP N_REGS

static const uint8_t dwarf_regs[N_REGS] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};

/* What a register or a word holds, by what the registers held at first: reg + off; the word there,
 * + far; or the word there, which is not known further. */
struct value {
	uint8_t depth; /* words that are read to have it: 0 … 2; UNKNOWN */
	uint8_t reg;
	int16_t far;
	int32_t off;
};
#define UNKNOWN 3

static const struct value unknown = {.depth = UNKNOWN};

static struct value plus(struct value v, int32_t n)
{
	if (v.depth == 0 ? __builtin_add_overflow(v.off, n, &v.off)
			 : v.depth > 1 || __builtin_add_overflow(v.far, n, &v.far))
		return unknown;
	return v;
}

static bool same(const struct value *a, const struct value *b)
{
	_Static_assert(sizeof *a == 8, "all bytes count");
	return !memcmp(a, b, sizeof *a);
}

/* --- a way through the code --- */

#define WORDS 16u

struct way {
	uint64_t pc;
	uint32_t n_calls;
	struct value regs[N_REGS];
	/* Words that were written on the way; the oldest gives place. */
	struct {
		struct value at, v;
	} words[WORDS];
	uint32_t n_words;
};

static void store(struct way *w, struct value at, struct value v)
{
	if (at.depth > 1)
		return;
	uint32_t i = 0, n = w->n_words < WORDS ? w->n_words : WORDS;
	while (i < n && !same(&w->words[i].at, &at))
		i++;
	if (i == n)
		i = w->n_words++ % WORDS;
	w->words[i].at = at;
	w->words[i].v = v;
}

static struct value load(const struct way *w, struct value at)
{
	if (at.depth > 1)
		return unknown;
	for (uint32_t i = 0; i < WORDS && i < w->n_words; i++)
		if (same(&w->words[i].at, &at))
			return w->words[i].v;
	at.depth++;
	return at;
}

static void push(struct way *w, struct value v)
{
	w->regs[RSP] = plus(w->regs[RSP], -8);
	store(w, w->regs[RSP], v);
}

static struct value pop(struct way *w)
{
	struct value v = load(w, w->regs[RSP]);
	w->regs[RSP] = plus(w->regs[RSP], 8);
	return v;
}

/* The address of a memory operand. */
static struct value address(const struct way *w, const struct uw_insn *i)
{
	return i->indexed ? unknown : plus(w->regs[i->rm], i->disp);
}

static void set(struct way *w, unsigned reg, struct value v)
{
	if (reg == RSP && v.depth == UNKNOWN) {
		v = (struct value){.reg = NEW_SP};
		for (uint32_t i = 0; i < WORDS && i < w->n_words; i++)
			if (w->words[i].at.reg == NEW_SP)
				w->words[i].at = unknown;
	}
	w->regs[reg] = v;
}

static void set_rm(struct way *w, const struct uw_insn *i, struct value v)
{
	if (!i->is_mem)
		set(w, i->rm, v);
	else if (i->wide)
		store(w, address(w, i), v);
}

/* What an instruction does. */
enum effect {
	NOTHING, /* that is of interest; bytes too, of which ah's number is rsp's */
	REG,     /* reg is something else */
	RM,
	ACC,   /* rax */
	OPREG, /* the register in the opcode */
	STORE,
	LOAD,
	LEA,
	ADD, /* 81 and 83 */
	XCHG,
	XCHG_ACC,
	PUSH,
	PUSH_ANY,
	POP,
	DROP,
	LEAVE,
	UNARY, /* f7 */
	FF,    /* so, or a jump, or a call; what follows affects no value by itself */
	JCC,
	JUMP,
	CALL,
	RET,
	HLT,
	ZERO, /* 00: blanked out, or what lies behind all code; or bytes */
	STOP, /* int3, enter, far returns, ud2 */
};

#define ARITHMETIC(op) [op + 1] = RM, [op + 3] = REG, [op + 5] = ACC
static const uint8_t one_byte_effect[256] = {
	ARITHMETIC(0x00),
	ARITHMETIC(0x08),
	ARITHMETIC(0x10),
	ARITHMETIC(0x18),
	ARITHMETIC(0x20),
	ARITHMETIC(0x28),
	ARITHMETIC(0x30),
	[0x00] = ZERO,
	[0x50 ... 0x57] = PUSH,
	[0x58 ... 0x5f] = POP,
	[0x63] = REG, /* movsxd */
	[0x68] = PUSH_ANY,
	[0x69] = REG, /* imul */
	[0x6a] = PUSH_ANY,
	[0x6b] = REG,
	[0x70 ... 0x7f] = JCC,
	[0x81] = ADD,
	[0x83] = ADD,
	[0x87] = XCHG,
	[0x89] = STORE,
	[0x8b] = LOAD,
	[0x8d] = LEA,
	[0x8f] = DROP,
	[0x90 ... 0x97] = XCHG_ACC,
	[0x9c] = PUSH_ANY, /* pushf */
	[0x9d] = DROP,
	[0xb8 ... 0xbf] = OPREG, /* mov */
	[0xc1] = RM,             /* shifts */
	[0xc2] = RET,
	[0xc3] = RET,
	[0xc7] = RM, /* mov */
	[0xc8] = STOP,
	[0xc9] = LEAVE,
	[0xca ... 0xcc] = STOP,
	[0xcf] = STOP,
	[0xd1] = RM,
	[0xd3] = RM,
	[0xe0 ... 0xe3] = JCC, /* loop, jrcxz */
	[0xe8] = CALL,
	[0xe9] = JUMP,
	[0xeb] = JUMP,
	[0xf4] = HLT,
	[0xf7] = UNARY,
	[0xff] = FF,
};

/* Behind 0f: ud2; cmov, jumps, imul, movzx, bsf, bsr, movsx. */
static const uint8_t two_byte_effect[256] = {
	[0x0b] = STOP, [0x40 ... 0x4f] = REG, [0x80 ... 0x8f] = JCC,
	[0xaf] = REG,  [0xb6 ... 0xb7] = REG, [0xbc ... 0xbf] = REG,
};

static void by_constant(struct way *w, const struct uw_insn *i)
{
	if (i->is_mem || i->ext == 7)
		return;
	bool adds = i->wide && (i->ext == 0 || i->ext == 5) && i->imm != INT32_MIN;
	set(w, i->rm, adds ? plus(w->regs[i->rm], i->ext ? -i->imm : i->imm) : unknown);
}

static void exchange(struct way *w, unsigned a, unsigned b)
{
	struct value v = w->regs[a];
	set(w, a, w->regs[b]);
	set(w, b, v);
}

/* An instruction that does not jump. */
static inline void affect(struct way *w, const struct uw_insn *i, uint8_t effect)
{
	switch (effect) {
	case REG:
		return set(w, i->reg, unknown);
	case RM:
		if (!i->is_mem)
			set(w, i->rm, unknown);
		return;
	case ACC:
		return set(w, RAX, unknown);
	case OPREG:
		return set(w, i->o, unknown);
	case STORE:
		return set_rm(w, i, i->wide ? w->regs[i->reg] : unknown);
	case LOAD:
		return set(w, i->reg,
			   !i->wide    ? unknown
			   : i->is_mem ? load(w, address(w, i))
				       : w->regs[i->rm]);
	case LEA:
		return set(w, i->reg, i->wide && i->is_mem ? address(w, i) : unknown);
	case ADD:
		return by_constant(w, i);
	case XCHG:
		set_rm(w, i, unknown);
		return set(w, i->reg, unknown);
	case XCHG_ACC:
		return exchange(w, RAX, i->o);
	case PUSH:
		return push(w, w->regs[i->o]);
	case PUSH_ANY:
		return push(w, unknown);
	case POP:
		return set(w, i->o, pop(w));
	case DROP:
		(void)pop(w);
		return;
	case LEAVE:
		w->regs[RSP] = w->regs[RBP];
		return set(w, RBP, pop(w));
	case UNARY: /* not and neg */
		if (!i->is_mem && (i->ext == 2 || i->ext == 3))
			set(w, i->rm, unknown);
		return;
	case FF:
		if (i->ext == 6)
			push(w, unknown);
		else if (i->ext < 2 && !i->is_mem)
			set(w, i->rm, unknown);
		return;
	default:
		return;
	}
}

/* --- the search --- */

#include "code_search.h"

/* A return address that was in a register already: behind V8's `pop %rcx`, which goes before what
 * removes the arguments. Where sp will be may not be known: not below where it is. */
static struct uw_rule held(const struct way *w, unsigned reg)
{
	struct value sp = w->regs[RSP], fp = w->regs[RBP];
	struct uw_rule r = {UW_RULE_CODE, dwarf_regs[reg] | UW_RULE_HELD, UW_SLOT_LOST, 0,
			    dwarf_regs[RSP]};
	if (!sp.depth && sp.reg != NEW_SP && slot(sp.off, &r.ra_slot))
		r.cfa = dwarf_regs[sp.reg];
	if (!fp.depth && fp.reg == RBP && !fp.off)
		r.fp_slot = UW_SLOT_KEEP;
	else if (fp.depth == 1 && !fp.far && (fp.reg == RBP || fp.reg == RSP) &&
		 slot(fp.off, &r.fp_slot))
		r.flags |= fp.reg == RBP ? UW_RULE_FP_BY_FP : 0;
	return r;
}

/* Whether a way ends with a return address where it stood already, and where. */
static bool found(struct way *w, struct uw_rule *out)
{
	struct uw_rule r = {.kind = UW_RULE_CODE, .fp_slot = UW_SLOT_LOST};
	int16_t far = 0;
	struct value ra = pop(w), fp = w->regs[RBP];
	if (!ra.depth && !ra.off && ra.reg != NEW_SP && ra.reg != RSP) {
		*out = held(w, ra.reg);
		return true;
	}
	if (!ra.depth || ra.depth == UNKNOWN || ra.reg == NEW_SP || (ra.depth == 1 && ra.far) ||
	    !slot(ra.off, &r.ra_slot) || !slot(ra.far, &far))
		return false;
	r.flags = dwarf_regs[ra.reg] | (ra.depth == 2 ? UW_RULE_DEREF : 0);
	r.cfa = (uint16_t)far;
	if (!fp.depth && fp.reg == RBP && !fp.off) {
		r.fp_slot = UW_SLOT_KEEP;
	} else if (fp.depth == 1 && fp.reg == RBP && !fp.far && slot(fp.off, &r.fp_slot)) {
		r.flags |= ra.reg != RBP || ra.depth == 2 ? UW_RULE_FP_BY_FP : 0;
	} else if (fp.depth != ra.depth || fp.reg != ra.reg ||
		   (fp.depth == 1 ? fp.far != 0 : fp.off != ra.off) ||
		   !slot(fp.depth == 1 ? fp.off : fp.far, &r.fp_slot)) {
		r.fp_slot = UW_SLOT_LOST;
	}
	*out = r;
	return true;
}

/* A jump through a register or memory: one of a switch's, behind which most times another of its
 * labels stands; or a tail call, with sp at the return address, behind which another function
 * begins that finds it there. */
static enum outcome jump_anywhere(struct search *s, const struct way *w, const struct uw_insn *i)
{
	struct way there = *w;
	if (!i->notrack && s->second.kind == UW_RULE_NONE)
		(void)found(&there, &s->second);
	return is_new(s, w->pc) ? GOES_ON : DEAD;
}

/* Go's functions begin with a look at their stack's limit, that of g or g0: cmp 16(%r14),%reg, by
 * rcx until 1.16. Their last instructions call for more stack and jump there, behind calls that
 * panic. Who gets there from the body came through one of those, which does not return. */
static bool is_go_begin(const struct uw_insn *i)
{
	return i->op == 0x3b && i->is_mem && i->wide && !i->indexed &&
	       (i->disp == 16 || i->disp == 24) && (i->rm == 14 || (i->rm == 1 && i->reg == RSP));
}

static enum outcome step(struct search *s, struct way *w, struct uw_rule *out)
{
	struct uw_insn i;
	uint64_t at = w->pc - s->svma;
	if (at >= s->left || !uw_insn_decode(s->p + at, s->left - at, &i))
		return DEAD;
	w->pc += i.len;
	if (i.map == UW_MAP_OTHERS)
		return GOES_ON;
	bool one = i.map == UW_MAP_ONE, called = s->called;
	uint8_t effect = one ? one_byte_effect[i.op] : two_byte_effect[i.op];
	if (one)
		s->called = effect == CALL || (effect == FF && i.ext == 2);
	w->n_calls += one && s->called;
	if (one && w->n_calls > 1 && is_go_begin(&i))
		return DEAD;
	if (effect < FF) {
		affect(w, &i, effect);
		return GOES_ON;
	}
	switch (effect) {
	case JCC:
		part(s, w, w->pc + (uint64_t)(int64_t)i.imm);
		return GOES_ON;
	case JUMP:
		return jump(s, w, w->pc + (uint64_t)(int64_t)i.imm);
	case CALL:
		if (!i.imm)
			push(w, unknown);
		return GOES_ON;
	case RET:
		return found(w, out) ? FOUND : DEAD;
	case HLT:
		s->halts |= called;
		return DEAD;
	case ZERO:
		return i.is_mem && !i.reg && !i.rm && !i.disp ? DEAD : GOES_ON;
	case FF:
		if (i.ext == 4)
			return jump_anywhere(s, w, &i);
		affect(w, &i, effect);
		return GOES_ON;
	default:
		return DEAD;
	}
}

struct uw_rule uw_code_rule(const struct uw_module *m, uint64_t svma)
{
	struct search s;
	struct way w = {.pc = svma};
	if (m->arch->machine == EM_AARCH64)
		return uw_code_arm_rule(m, svma, uw_code_call(m, svma).kind > UW_CALL_UNKNOWN);
	if (m->arch->machine != EM_X86_64)
		return (struct uw_rule){.kind = UW_RULE_NONE};
	for (unsigned i = 0; i < N_REGS; i++)
		w.regs[i] = (struct value){.reg = (uint8_t)i};
	struct uw_rule r = follow(&s, m, &w);
	/* Nothing returns, and a call that does not is held for one that might: so end the first
	 * functions of processes, and those below a coroutine's (glibc 2.36's __start_context,
	 * Boost's make_fcontext). */
	if (r.kind == UW_RULE_NONE && s.halts)
		r = (struct uw_rule){.kind = UW_RULE_END};
	return r;
}
