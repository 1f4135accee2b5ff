/* The walk with all registers: for rules that need others than sp and fp, or expressions. Each
 * frame interprets its FDE; less than 1 % of the samples come here. */
#include "expr.h"
#include "golang.h"
#include "insn.h"
#include "walker.h"

struct full {
	struct uw_walk *k;
	uint64_t regs[CFI_REGS];
	uint64_t known;     /* bit n: regs[n] is known */
	uint64_t bias;      /* of the frame's module */
	uint32_t n_scanned; /* words that saved_sp() looked at, for all frames */
	uint64_t missing;   /* the last address that an expression did not find */

	/* fp may be that of a frame further up (rule.h, uw_fde_lands()); words and bytes of code
	 * that own_fp() looked at, for all frames. */
	bool landing;
	uint32_t n_searched, n_code;
};

static bool is_known(const struct full *f, uint64_t reg)
{
	return reg < f->k->arch->n_regs && f->known >> reg & 1;
}

/* Memory for expressions: the stack copy, and what a file maps read-only. */
static bool load(void *ctx, uint64_t addr, unsigned size, uint64_t *out)
{
	struct full *f = ctx;
	struct uw_walk *k = f->k;
	const uint8_t *p = uw_stack_at(k, addr, size);
	if (!p) {
		const struct uw_map *map = uw_map_find(k->w, k->s->space, addr);
		if (map && map->module)
			p = uw_module_bytes(map->module, addr - map->bias, size);
	}
	if (!p) {
		f->missing = addr;
		return false;
	}
	uint64_t v = 0;
	memcpy(&v, p, size);
	*out = v;
	return true;
}

static int evaluate(struct full *f, const struct cfi_reg *e, const uint64_t *initial, uint64_t *out)
{
	const struct uw_arch *a = f->k->arch;
	struct uw_expr_env env = {
		.regs = f->regs,
		.known = f->known,
		.n_regs = a->n_regs,
		.addr_bytes = a->word_bytes,
		.bias = f->bias,
		.load = load,
		.ctx = f,
	};
	switch (uw_expr_eval(&env, e->expr, e->len, initial, out)) {
	case UW_EXPR_OK:
		return UW_GOES_ON;
	case UW_EXPR_NO_MEMORY:
		return uw_stack_missing(f->k, f->missing);
	case UW_EXPR_BAD:
	case UW_EXPR_NO_REG:
		break;
	}
	return UW_BAD_CFA;
}

static bool is_by_fp(const struct uw_walk *k, const struct cfi_reg *rule)
{
	return rule->len && rule->expr[0] == 0x70 + k->arch->fp; /* DW_OP_breg<fp> */
}

/* The value that a rule gives. UW_GOES_ON and *out; or why it is not known. */
static int recover(struct full *f, const struct cfi_reg *rule, uint64_t own, bool own_known,
		   uint64_t cfa, uint64_t *out)
{
	struct uw_walk *k = f->k;
	uint64_t at = 0;
	int rc;
	switch ((enum cfi_rule)rule->rule) {
	case CFI_UNSPEC:
	case CFI_SAME:
		*out = own;
		return own_known ? UW_GOES_ON : UW_BAD_CFA;
	case CFI_UNDEF:
		return UW_BAD_CFA;
	case CFI_OFFSET:
		at = cfa + (uint64_t)rule->off;
		break;
	case CFI_VAL_OFFSET:
		*out = cfa + (uint64_t)rule->off;
		return UW_GOES_ON;
	case CFI_REG:
		if (!is_known(f, (uint64_t)rule->off))
			return UW_BAD_CFA;
		*out = f->regs[rule->off];
		return UW_GOES_ON;
	case CFI_VAL_EXPR:
		return evaluate(f, rule, &cfa, out);
	case CFI_EXPR:
		if (own_known && is_by_fp(k, rule) && uw_fp_left(k, cfa)) {
			*out = own;
			return UW_GOES_ON;
		}
		rc = evaluate(f, rule, &cfa, &at);
		if (rc != UW_GOES_ON)
			return rc;
		break;
	}
	if (k->arch->word_bytes == 4)
		at = (uint32_t)at;
	if (uw_stack_word(k, at, out))
		return UW_GOES_ON;
	if (at < k->sp && k->exact && own_known) { /* popped already: walk.c, rule_step() */
		*out = own;
		return UW_GOES_ON;
	}
	return uw_stack_missing(k, at);
}

static int row_cfa(struct full *f, const struct cfi_row *row, uint64_t *cfa)
{
	if (row->cfa.rule == CFI_EXPR)
		return evaluate(f, &row->cfa, NULL, cfa);
	if (row->cfa.rule != CFI_REG || !is_known(f, row->cfa_reg))
		return UW_BAD_CFA;
	*cfa = f->regs[row->cfa_reg] + (uint64_t)row->cfa.off;
	if (f->k->arch->word_bytes == 4)
		*cfa = (uint32_t)*cfa;
	return UW_GOES_ON;
}

#define SCAN_MAX 512u

/* OpenSSL's SHA-2 for AVX2 keeps the sp that it came with in the word below the one that it has,
 * and its CFI reads that (3.0, crypto/sha/asm/sha512-x86_64.pl): no copy of a stack holds it. It
 * also stands in the frame, where the function put it first: a word that points to a return
 * address. */
static bool saved_sp(struct full *f, const struct cfi_row *row, uint64_t *cfa)
{
	struct uw_walk *k = f->k;
	uint64_t at = k->sp, ra, word, plus;
	const struct uw_map *map;
	if (row->cfa.rule != CFI_EXPR || !k->exact || k->arch->machine != EM_X86_64)
		return false;
	struct sp_cursor c = sp_cursor(row->cfa.expr, row->cfa.len);
	if (sp_cur_u8(&c) != 0x77 || sp_cur_sleb(&c) >= 0 || /* breg7 */
	    sp_cur_u8(&c) != 0x06 || sp_cur_u8(&c) != 0x23)  /* deref, plus_uconst */
		return false;
	plus = sp_cur_uleb(&c);
	if (c.bad || c.p != c.end || plus > 64)
		return false;
	for (; f->n_scanned < SCAN_MAX; f->n_scanned++, at += 8) {
		if (!uw_stack_u64(k, at, &word))
			return false;
		if (word > at && word % 8 == 0 && uw_stack_u64(k, word + plus - 8, &ra) &&
		    uw_call_before(k, ra, &map).kind > UW_CALL_UNKNOWN) {
			k->w->counters.v[SP_C_scanned_frames]++;
			*cfa = word + plus;
			return true;
		}
	}
	return false;
}

/* --- frames below a landing pad's, on x86-64 --- */

/* Whether a function jumps to another: to its cold part, most times. */
static bool jumps_to(struct full *f, const struct uw_module *m, const struct cfi_fde *from,
		     const struct cfi_fde *to)
{
	enum { JUMP = 5, CODE_MAX = 1 << 18 };
	uint64_t n = from->end - from->begin;
	if (n > CODE_MAX - f->n_code)
		n = CODE_MAX - f->n_code;
	f->n_code += (uint32_t)n;
	const uint8_t *p = n < JUMP ? NULL : uw_module_bytes(m, from->begin, (size_t)n);
	for (uint64_t i = 0; p && i + JUMP <= n; i++) {
		uint64_t there = from->begin + i + JUMP + (uint64_t)(int32_t)sp_get32(p + i + 1);
		bool jump = p[i] == 0xe9 || (i && p[i - 1] == 0x0f && (p[i] & 0xf0) == 0x80);
		if (jump && there - to->begin < to->end - to->begin)
			return true;
	}
	return false;
}

/* How far fp is above sp where a function with a frame record calls, by its prologue: push %rbp;
 * mov %rsp,%rbp; pushes; sub. Further with alloca(). */
static uint64_t frame_bytes(const struct uw_module *m, const struct cfi_fde *fde)
{
	enum { PROLOGUE = 64, SP = 4, FP = 5 };
	uint64_t bytes = 0, n = fde->end - fde->begin;
	struct uw_insn i;
	bool framed = false;
	if (n > PROLOGUE)
		n = PROLOGUE;
	const uint8_t *p = uw_module_bytes(m, fde->begin, (size_t)n), *end = p ? p + n : p;
	for (; p && uw_insn_decode(p, (size_t)(end - p), &i); p += i.len) {
		if (i.map != UW_MAP_ONE)
			continue;
		bool moves = (i.op == 0x89 && i.reg == SP && i.rm == FP) ||
			     (i.op == 0x8b && i.reg == FP && i.rm == SP);
		if (moves && i.has_modrm && !i.is_mem)
			framed = true;
		else if (i.op >= 0x50 && i.op <= 0x57)
			bytes += framed ? 8 : 0;
		else if (i.op >= 0x70 && (i.op <= 0x7f || i.op == 0xe8 || i.op == 0xe9))
			break;
		else if ((i.op == 0x83 || i.op == 0x81) && i.ext == 5 && i.rm == SP && !i.is_mem)
			return framed && i.imm > 0 ? bytes + (uint32_t)i.imm : 0;
	}
	return framed ? bytes : 0;
}

/* Whether fp is the frame pointer of a call of fde's function, or of the one whose cold part that
 * is: its frame record returns to behind one. *whole: that function. */
static bool is_own(struct full *f, const struct cfi_fde *fde, uint64_t fp, struct cfi_fde *whole)
{
	struct uw_walk *k = f->k;
	const struct cfi_section *s;
	const struct uw_map *map;
	uint64_t ra;
	if (!uw_stack_u64(k, fp + 8, &ra))
		return false;
	struct uw_call call = uw_call_before(k, ra, &map);
	if (call.kind != UW_CALL_DIRECT || map->bias != f->bias)
		return false;
	uint64_t target = ra - map->bias + (uint64_t)(int64_t)call.rel;
	return uw_module_find(map->module, target, &s, whole) && whole->begin == target &&
	       (target == fde->begin || jumps_to(f, map->module, whole, fde));
}

#define LANDING_WORDS 32768u

/* Whether the frame records from one on come to another one. */
static bool leads_to(struct full *f, uint64_t from, uint64_t to)
{
	uint64_t next;
	for (; from < to; from = next)
		if (f->n_searched++ >= LANDING_WORDS || !uw_stack_u64(f->k, from, &next) ||
		    next <= from)
			return false;
	return from == to;
}

static void set_fp(struct full *f, uint64_t fp)
{
	unsigned reg = f->k->arch->fp;
	f->regs[reg] = f->k->fp = fp;
	f->known |= UINT64_C(1) << reg;
}

/* The frame that threw, or one that is being cleaned up, has a frame record, and fp may be that of
 * the frame with the landing pad already: then its own one is nearer, and leads there. It is where
 * the prologue put it, behind a call, or returns to behind a call of this function. Where fp points
 * to nothing, whatever follows is a guess. */
static void own_fp(struct full *f, const struct uw_module *m, const struct cfi_fde *fde)
{
	struct uw_walk *k = f->k;
	uint64_t at = k->sp, ra, fp = k->fp;
	bool lost = fp & 7 || fp < k->sp || fp - k->sp > UW_FRAME_MAX;
	const struct uw_map *map;
	struct cfi_fde whole = *fde, other;
	bool own = !lost && is_own(f, fde, fp, &whole);
	uint64_t bytes = frame_bytes(m, own ? &whole : fde);
	if (lost)
		k->guessed = k->out->n;
	if (bytes && (lost || leads_to(f, at + bytes, fp)) &&
	    uw_stack_u64(k, at + bytes + 8, &ra) &&
	    uw_call_before(k, ra, &map).kind > UW_CALL_UNKNOWN)
		return set_fp(f, at + bytes);
	for (; !own && f->n_searched < LANDING_WORDS && (lost || at < fp);
	     f->n_searched++, at += 8) {
		if (!uw_stack_u64(k, at + 8, &ra))
			return;
		if ((lost || leads_to(f, at, fp)) && is_own(f, fde, at, &other))
			return set_fp(f, at);
	}
}

/* What is known of fp when a row is met: whether it is this frame's. */
static void mend_fp(struct full *f, const struct uw_module *m, const struct cfi_fde *fde,
		    const struct cfi_row *row)
{
	const struct uw_arch *a = f->k->arch;
	bool record = row->reg[a->fp].rule == CFI_OFFSET;
	if (f->landing && row->cfa.rule == CFI_REG && row->cfa_reg == a->fp && record &&
	    row->cfa.off == 16 && row->reg[a->fp].off == -16 && !f->k->exact)
		own_fp(f, m, fde);
	f->landing = uw_fde_lands(a, fde) || (f->landing && !record);
}

/* One step by a row. */
static int row_step(struct full *f, const struct cfi_fde *fde, const struct cfi_row *row)
{
	struct uw_walk *k = f->k;
	const struct uw_arch *a = k->arch;
	const struct cfi_reg *ra_rule = &row->reg[cfi_ra_slot(&fde->cie)];
	uint64_t cfa, ra, next[CFI_REGS], known = 0;
	bool signal = fde->cie.signal;
	if (ra_rule->rule == CFI_UNDEF || (ra_rule->rule == CFI_UNSPEC && !a->ra_same_is_live))
		return UW_END;
	int rc = row_cfa(f, row, &cfa);
	if (rc != UW_GOES_ON && !saved_sp(f, row, &cfa))
		return rc;
	if (cfa <= k->sp && !k->exact && !signal)
		return cfa == k->sp ? UW_LOOP : UW_BACKWARDS;
	bool live = a->ra_same_is_live && k->exact;
	uint32_t ra_reg = fde->cie.ra_reg;
	rc = recover(f, ra_rule, ra_reg < CFI_REGS ? f->regs[ra_reg] : 0,
		     live && is_known(f, ra_reg), cfa, &ra);
	if (rc != UW_GOES_ON)
		return rc;
	for (unsigned i = 0; i < a->n_regs; i++) {
		const struct cfi_reg *rule = &row->reg[i];
		bool kept = is_known(f, i) &&
			    (rule->rule != CFI_UNSPEC || signal || a->callee_saved >> i & 1);
		if (i == a->sp && rule->rule == CFI_UNSPEC) {
			next[i] = cfa;
			known |= UINT64_C(1) << i;
		} else if (recover(f, rule, f->regs[i], kept, cfa, &next[i]) == UW_GOES_ON) {
			known |= UINT64_C(1) << i;
		}
	}
	ra &= k->ra_mask;
	if (!ra && !signal)
		return UW_END;
	if (!(known >> a->sp & 1))
		return UW_BAD_CFA;
	if (next[a->sp] == k->sp && ra == k->pc)
		return UW_LOOP;
	memcpy(f->regs, next, a->n_regs * sizeof *next);
	f->known = known;
	if (a->ra_same_is_live && !signal) {
		f->regs[a->ra] = ra;
		f->known |= UINT64_C(1) << a->ra;
	}
	k->pc = ra;
	k->sp = next[a->sp];
	k->fp = known >> a->fp & 1 ? next[a->fp] : UW_FP_LOST;
	k->lr = a->ra_same_is_live && f->known >> a->ra & 1 ? f->regs[a->ra] & k->ra_mask : 0;
	k->exact = signal;
	return UW_GOES_ON;
}

/* Registers of the walk after a guess. */
static void after_guess(struct full *f, bool keeps)
{
	const struct uw_arch *a = f->k->arch;
	uint64_t lost = f->k->fp == UW_FP_LOST ? UINT64_C(1) << a->fp : 0;
	f->known &= keeps ? a->callee_saved : 0;
	f->known |= UINT64_C(1) << a->sp | UINT64_C(1) << a->fp;
	f->known &= ~lost;
	f->regs[a->sp] = f->k->sp;
	f->regs[a->fp] = f->k->fp;
}

static void sample_regs(struct full *f)
{
	const struct uw_sample *s = f->k->s;
	const struct uw_arch *a = f->k->arch;
	f->known = 0;
	for (unsigned i = 0; i < a->n_regs; i++)
		if (uw_sample_reg(s, a->perf[i], &f->regs[i]))
			f->known |= UINT64_C(1) << i;
}

static int sigreturn_step(struct full *f)
{
	uint64_t regs[CFI_REGS], known = 0;
	for (unsigned i = 0; i < f->k->arch->n_regs; i++)
		if (uw_sigcontext(f->k, i, &regs[i]))
			known |= UINT64_C(1) << i;
	int rc = uw_sigreturn_step(f->k);
	if (rc == UW_GOES_ON) {
		memcpy(f->regs, regs, sizeof regs);
		f->known = known;
	}
	return rc;
}

/* Where there is no FDE, or one that is known to be wrong: what the fast walk does. */
static int plain_step(struct full *f, const struct uw_map *map)
{
	struct uw_walk *k = f->k;
	struct uw_rule r = {.kind = UW_RULE_NONE};
	struct uw_memo_frame made = {.edge = UW_EDGE_CALLEE};
	int rc;
	if (map)
		r = uw_rule_get(k->w, map, uw_look(k));
	if (r.kind == UW_RULE_END)
		return UW_END;
	if (r.kind == UW_RULE_SIGRETURN)
		return sigreturn_step(f);
	if (r.kind == UW_RULE_BAD)
		return uw_rule_stop(r);
	if (r.kind >= UW_RULE_SP && r.kind <= UW_RULE_PLT)
		rc = uw_rule_step(k, r);
	else
		rc = uw_guess(k, map, r, &made);
	if (rc == UW_GOES_ON)
		after_guess(f, made.edge == UW_EDGE_CALLEE);
	return rc;
}

static int frame_step(struct full *f, const struct uw_map *map)
{
	struct uw_walk *k = f->k;
	const struct cfi_section *section;
	struct cfi_fde fde;
	struct cfi_row row;
	if (!map || !map->module)
		return plain_step(f, map);
	uint64_t svma = uw_look(k) - map->bias;
	f->bias = map->bias;
	f->regs[k->arch->pc] = k->pc;
	f->known |= UINT64_C(1) << k->arch->pc;
	if (!uw_module_find(map->module, svma, &section, &fde) ||
	    (fde.cie.signal && k->arch->machine == EM_AARCH64))
		return plain_step(f, map);
	if (!cfi_row_full(section, &fde, svma, &row))
		return UW_BAD_CFA;
	mend_fp(f, map->module, &fde, &row);
	uw_row_mend(k->arch, &row, cfi_ra_slot(&fde.cie), CFI_SLOTS);
	struct uw_rule go;
	if (uw_go_rule(map->module, section, &fde, &row, svma, &go))
		return plain_step(f, map);
	return row_step(f, &fde, &row);
}

int uw_walk_full(struct uw_walk *k, uint32_t frames)
{
	struct full f = {.k = k};
	sample_regs(&f);
	for (uint32_t i = 0; i < frames || f.landing; i++) {
		const struct uw_map *map = uw_map_find(k->w, k->s->space, uw_look(k));
		k->out->stop_map = map;
		if (!map && k->out->n && !k->exact) {
			int rc = uw_led_nowhere(k);
			if (rc != UW_GOES_ON)
				return rc;
			after_guess(&f, false);
			continue;
		}
		if ((k->pc || map || !k->out->n) && !uw_append(k)) /* walk.c, walk_fast() */
			return UW_DEPTH;
		int rc = frame_step(&f, map);
		if (rc != UW_GOES_ON)
			return rc;
		k->callee = map;
	}
	return UW_GOES_ON;
}
