/* The interpreter of call frame programs. One body, compiled twice: with all registers, and with
 * the two that most frames need, whose rows are small enough to copy for nothing. */
#include <stdlib.h>

#include "base/le.h"
#include "cfi.h"

enum {
	OP_ADVANCE = 1, /* the high two bits */
	OP_OFFSET = 2,
	OP_RESTORE = 3,
};

/* DWARF 5, table 7.29, and the extensions that gcc and clang emit. */
enum {
	DW_CFA_nop = 0x00,
	DW_CFA_set_loc = 0x01,
	DW_CFA_advance_loc1 = 0x02,
	DW_CFA_advance_loc2 = 0x03,
	DW_CFA_advance_loc4 = 0x04,
	DW_CFA_offset_extended = 0x05,
	DW_CFA_restore_extended = 0x06,
	DW_CFA_undefined = 0x07,
	DW_CFA_same_value = 0x08,
	DW_CFA_register = 0x09,
	DW_CFA_remember_state = 0x0a,
	DW_CFA_restore_state = 0x0b,
	DW_CFA_def_cfa = 0x0c,
	DW_CFA_def_cfa_register = 0x0d,
	DW_CFA_def_cfa_offset = 0x0e,
	DW_CFA_def_cfa_expression = 0x0f,
	DW_CFA_expression = 0x10,
	DW_CFA_offset_extended_sf = 0x11,
	DW_CFA_def_cfa_sf = 0x12,
	DW_CFA_def_cfa_offset_sf = 0x13,
	DW_CFA_val_offset = 0x14,
	DW_CFA_val_offset_sf = 0x15,
	DW_CFA_val_expression = 0x16,
	DW_CFA_MIPS_advance_loc8 = 0x1d,
	DW_CFA_AARCH64_set_ra_state = 0x2b,
	DW_CFA_AARCH64_negate_ra_state_with_pc = 0x2c,
	DW_CFA_AARCH64_negate_ra_state = 0x2d, /* SPARC: GNU_window_save */
	DW_CFA_GNU_args_size = 0x2e,
	DW_CFA_GNU_negative_offset_extended = 0x2f,
};

#define INLINE static inline __attribute__((always_inline))

/* The parts of struct cfi_rows that a program changes; only `n` slots of a row are touched. */
struct run {
	const struct cfi_section *section;
	const struct cfi_fde *fde;
	/* A cursor taken apart, so that it lives in registers: nobody has its address. */
	const uint8_t *p, *end;
	bool bad;
	uint64_t loc, next_loc;
	unsigned depth;
	struct cfi_row *row, *saved;
	const struct cfi_row *initial; /* NULL while the CIE's own program runs */
	uint32_t ra_reg, fp_reg;
};

INLINE struct sp_cursor rest(const struct run *r)
{
	return (struct sp_cursor){
		.p = r->p, .end = r->end, .bad = r->bad, .swap = r->section->swap};
}

INLINE void took(struct run *r, const struct sp_cursor *c)
{
	r->p = c->p;
	r->bad = c->bad;
}

INLINE uint64_t uleb(struct run *r)
{
	if (__builtin_expect(r->p < r->end && !(*r->p & 0x80), 1))
		return *r->p++;
	struct sp_cursor c = rest(r);
	uint64_t v = sp_cur_uleb_slow(&c);
	took(r, &c);
	return v;
}

INLINE uint64_t sleb(struct run *r)
{
	struct sp_cursor c = rest(r);
	uint64_t v = (uint64_t)sp_cur_sleb(&c);
	took(r, &c);
	return v;
}

INLINE uint64_t fixed(struct run *r, unsigned size)
{
	struct sp_cursor c = rest(r);
	uint64_t v = size == 1   ? sp_cur_u8(&c)
		     : size == 2 ? sp_cur_u16(&c)
		     : size == 4 ? sp_cur_u32(&c)
				 : sp_cur_u64(&c);
	took(r, &c);
	return v;
}

/* An expression: its bytes, or NULL (and bad). */
INLINE const uint8_t *block(struct run *r, uint32_t *len)
{
	uint64_t n = uleb(r);
	if (r->bad || n > (uint64_t)(r->end - r->p) || n > UINT32_MAX) {
		r->bad = true;
		return NULL;
	}
	*len = (uint32_t)n;
	r->p += n;
	return r->p - n;
}

INLINE void row_copy(struct cfi_row *to, const struct cfi_row *from, bool small)
{
	to->cfa = from->cfa;
	to->cfa_reg = from->cfa_reg;
	to->ra_signed = from->ra_signed;
	memcpy(to->reg, from->reg, (small ? CFI_SMALL_SLOTS : CFI_SLOTS) * sizeof *to->reg);
}

INLINE void row_clear(struct cfi_row *row, bool small)
{
	row->cfa = (struct cfi_reg){0};
	row->cfa_reg = 0;
	row->ra_signed = false;
	memset(row->reg, 0, (small ? CFI_SMALL_SLOTS : CFI_SLOTS) * sizeof *row->reg);
}

INLINE void set(struct run *r, uint64_t reg, struct cfi_reg rule, bool small)
{
	if (small) {
		if (reg == r->ra_reg)
			r->row->reg[CFI_SMALL_RA] = rule;
		else if (reg == r->fp_reg)
			r->row->reg[CFI_SMALL_FP] = rule;
	} else if (reg < CFI_REGS) {
		r->row->reg[reg] = rule;
	} else if (reg == r->ra_reg) {
		r->row->reg[CFI_REGS] = rule;
	}
}

INLINE void set_off(struct run *r, uint64_t reg, enum cfi_rule kind, uint64_t off, bool small)
{
	set(r, reg, (struct cfi_reg){.rule = (uint8_t)kind, .off = (int64_t)off}, small);
}

INLINE void restore(struct run *r, uint64_t reg, bool small)
{
	if (!r->initial)
		set(r, reg, (struct cfi_reg){0}, small);
	else if (small)
		set(r, reg, r->initial->reg[reg == r->ra_reg ? CFI_SMALL_RA : CFI_SMALL_FP], small);
	else if (reg < CFI_REGS || reg == r->ra_reg)
		set(r, reg, r->initial->reg[reg < CFI_REGS ? reg : CFI_REGS], small);
}

INLINE void set_expr(struct run *r, uint64_t reg, enum cfi_rule kind, bool small)
{
	uint32_t len = 0;
	const uint8_t *expr = block(r, &len);
	set(r, reg, (struct cfi_reg){.rule = (uint8_t)kind, .len = len, .expr = expr}, small);
}

/* Instructions that define the CFA. */
INLINE void def_cfa(struct run *r, uint8_t op)
{
	struct cfi_row *row = r->row;
	uint64_t reg = row->cfa_reg;
	if (op == DW_CFA_def_cfa || op == DW_CFA_def_cfa_register || op == DW_CFA_def_cfa_sf)
		reg = uleb(r);
	/* Only the register or only the offset: binutils and libgcc take a CFA that was an
	 * expression for a register's then; its offset is 0 here rather than stale. */
	int64_t off = row->cfa.rule == CFI_REG ? row->cfa.off : 0;
	if (op == DW_CFA_def_cfa || op == DW_CFA_def_cfa_offset)
		off = (int64_t)uleb(r);
	else if (op != DW_CFA_def_cfa_register)
		off = (int64_t)(sleb(r) * (uint64_t)r->fde->cie.data_align);
	row->cfa_reg = reg > UINT16_MAX ? UINT16_MAX : (uint32_t)reg;
	row->cfa = (struct cfi_reg){.rule = CFI_REG, .off = off};
}

/* The less frequent instructions. False: unknown. */
INLINE bool other(struct run *r, uint8_t op, bool small)
{
	const uint64_t scale = (uint64_t)r->fde->cie.data_align;
	uint64_t reg;
	switch (op) {
	case DW_CFA_nop:
		return true;
	case DW_CFA_offset_extended:
		reg = uleb(r);
		set_off(r, reg, CFI_OFFSET, uleb(r) * scale, small);
		return true;
	case DW_CFA_offset_extended_sf:
		reg = uleb(r);
		set_off(r, reg, CFI_OFFSET, sleb(r) * scale, small);
		return true;
	case DW_CFA_GNU_negative_offset_extended:
		reg = uleb(r);
		set_off(r, reg, CFI_OFFSET, -(uleb(r) * scale), small);
		return true;
	case DW_CFA_val_offset:
		reg = uleb(r);
		set_off(r, reg, CFI_VAL_OFFSET, uleb(r) * scale, small);
		return true;
	case DW_CFA_val_offset_sf:
		reg = uleb(r);
		set_off(r, reg, CFI_VAL_OFFSET, sleb(r) * scale, small);
		return true;
	case DW_CFA_restore_extended:
		restore(r, uleb(r), small);
		return true;
	case DW_CFA_undefined:
		set_off(r, uleb(r), CFI_UNDEF, 0, small);
		return true;
	case DW_CFA_same_value:
		set_off(r, uleb(r), CFI_SAME, 0, small);
		return true;
	case DW_CFA_register:
		reg = uleb(r);
		set_off(r, reg, CFI_REG, uleb(r), small);
		return true;
	case DW_CFA_def_cfa_expression: {
		uint32_t len = 0;
		const uint8_t *expr = block(r, &len);
		r->row->cfa = (struct cfi_reg){CFI_EXPR, len, {.expr = expr}};
		return true;
	}
	case DW_CFA_expression:
		set_expr(r, uleb(r), CFI_EXPR, small);
		return true;
	case DW_CFA_val_expression:
		set_expr(r, uleb(r), CFI_VAL_EXPR, small);
		return true;
	case DW_CFA_GNU_args_size:
		(void)uleb(r);
		return true;
	case DW_CFA_AARCH64_negate_ra_state:
	case DW_CFA_AARCH64_negate_ra_state_with_pc:
		r->row->ra_signed = !r->row->ra_signed;
		return true;
	case DW_CFA_AARCH64_set_ra_state:
		r->row->ra_signed = uleb(r) != 0;
		(void)sleb(r);
		return true;
	default:
		return false;
	}
}

static __attribute__((noinline)) bool set_loc_at(const struct run *r, struct sp_cursor *c,
						 uint64_t *to)
{
	const struct cfi_cie *cie = &r->fde->cie;
	return cfi_pointer(c, cie->fde_enc, r->section, cie->addr_bytes,
			   r->section->svma + (uint64_t)(c->p - r->section->data), r->fde->begin,
			   to);
}

INLINE bool set_loc(struct run *r, uint64_t *to)
{
	const struct run copy = *r;
	struct sp_cursor c = rest(r);
	uint64_t at = 0;
	bool good = set_loc_at(&copy, &c, &at);
	took(r, &c);
	*to = at;
	return good;
}

/* Execute until the location would pass limit (true, next_loc says where to) or the program ends
 * (true, next_loc = end of the FDE). False: malformed. */
INLINE bool run(struct run *r, uint64_t limit, bool small)
{
	const struct cfi_cie *cie = &r->fde->cie;
	while (r->p < r->end && !r->bad) {
		uint8_t op = *r->p++;
		uint64_t low = op & 0x3f, to;
		switch (op >> 6) {
		case OP_ADVANCE:
			to = r->loc + low * cie->code_align;
			break;
		case OP_OFFSET:
			set_off(r, low, CFI_OFFSET, uleb(r) * (uint64_t)cie->data_align, small);
			continue;
		case OP_RESTORE:
			restore(r, low, small);
			continue;
		default:
			switch (op) {
			case DW_CFA_advance_loc1:
				to = r->loc + fixed(r, 1) * cie->code_align;
				break;
			case DW_CFA_advance_loc2:
				to = r->loc + fixed(r, 2) * cie->code_align;
				break;
			case DW_CFA_advance_loc4:
				to = r->loc + fixed(r, 4) * cie->code_align;
				break;
			case DW_CFA_MIPS_advance_loc8:
				to = r->loc + fixed(r, 8) * cie->code_align;
				break;
			case DW_CFA_set_loc:
				if (!set_loc(r, &to))
					return false;
				break;
			case DW_CFA_def_cfa:
			case DW_CFA_def_cfa_register:
			case DW_CFA_def_cfa_offset:
			case DW_CFA_def_cfa_sf:
			case DW_CFA_def_cfa_offset_sf:
				def_cfa(r, op);
				continue;
			case DW_CFA_remember_state:
				if (r->depth == CFI_REMEMBER)
					return false;
				row_copy(&r->saved[r->depth++], r->row, small);
				continue;
			case DW_CFA_restore_state:
				if (!r->depth)
					return false;
				row_copy(r->row, &r->saved[--r->depth], small);
				continue;
			default:
				if (!other(r, op, small))
					return false;
				continue;
			}
		}
		if (r->bad)
			return false;
		if (!r->initial)
			continue; /* a CIE has no locations */
		if (to < r->loc)
			return false;
		if (to > limit) {
			r->next_loc = to;
			return true;
		}
		r->loc = to;
	}
	r->next_loc = r->fde->end;
	return !r->bad;
}

/* Run the CIE's program into row, and set r up for the FDE's. Only the row goes over from one to
 * the other: what the CIE remembered and did not restore is forgotten, as libdw and LLVM do
 * (libgcc would keep it; no compiler writes it). */
INLINE bool begin(struct run *r, struct cfi_row *initial, bool small)
{
	r->loc = r->fde->begin;
	r->ra_reg = r->fde->cie.ra_reg;
	if (small && r->fde->cie.small_row) {
		r->initial = r->fde->cie.small_row;
		row_copy(r->row, r->initial, small);
	} else {
		row_clear(r->row, small);
		r->p = r->fde->cie.ops;
		r->end = r->p + r->fde->cie.n_ops;
		if (!run(r, UINT64_MAX, small))
			return false;
		row_copy(initial, r->row, small);
		r->initial = initial;
	}
	r->depth = 0;
	r->p = r->fde->ops;
	r->end = r->p + r->fde->n_ops;
	return true;
}

/* --- the small row of a common program --- */

/* What nearly all programs consist of: locations, offsets of the CFA, saved registers. Of a row
 * only numbers are left, which stay in registers, and what usually stands together is taken
 * together: a look-up executes some thirty instructions, each a branch to be foretold. */
struct brief {
	uint64_t cfa_off;
	int64_t off[CFI_SMALL_SLOTS]; /* from the CFA, or NOT_SAVED */
	uint32_t cfa_reg;
};

#define NOT_SAVED INT64_MIN
#define BRIEF_REMEMBER 4

static bool brief_start(const struct cfi_cie *cie, struct brief *b)
{
	const struct cfi_row *row = cie->small_row;
	if (!row || row->cfa.rule != CFI_REG || row->ra_signed || cie->data_align < -64 ||
	    cie->data_align > 64 || cie->code_align > 64)
		return false;
	for (unsigned i = 0; i < CFI_SMALL_SLOTS; i++) {
		if (row->reg[i].rule != CFI_UNSPEC && row->reg[i].rule != CFI_OFFSET)
			return false;
		b->off[i] = row->reg[i].rule == CFI_OFFSET ? row->reg[i].off : NOT_SAVED;
	}
	b->cfa_off = (uint64_t)row->cfa.off;
	b->cfa_reg = row->cfa_reg;
	return true;
}

static void brief_row(const struct brief *b, struct cfi_row *out)
{
	out->cfa = (struct cfi_reg){.rule = CFI_REG, .off = (int64_t)b->cfa_off};
	out->cfa_reg = b->cfa_reg;
	out->ra_signed = false;
	for (unsigned i = 0; i < CFI_SMALL_SLOTS; i++)
		out->reg[i] = b->off[i] == NOT_SAVED
				      ? (struct cfi_reg){.rule = CFI_UNSPEC}
				      : (struct cfi_reg){.rule = CFI_OFFSET, .off = b->off[i]};
}

/* A ULEB128 of one or two bytes: false for a longer one, and at the end. */
INLINE bool brief_uleb(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	if (__builtin_expect(*p == end, 0))
		return false;
	*v = *(*p)++;
	if (__builtin_expect(*v < 0x80, 1))
		return true;
	if (*p == end || **p & 0x80)
		return false;
	*v = (*v & 0x7f) | (uint64_t) * (*p)++ << 7;
	return true;
}

INLINE void brief_saved(struct brief *b, const struct cfi_fde *fde, uint32_t fp_reg, uint64_t reg,
			int64_t off)
{
	b->off[CFI_SMALL_FP] = reg == fp_reg ? off : b->off[CFI_SMALL_FP];
	if (__builtin_expect(reg == fde->cie.ra_reg, 0))
		b->off[CFI_SMALL_RA] = off;
}

INLINE void brief_restore(struct brief *b, const struct cfi_fde *fde, uint32_t fp_reg, uint32_t reg)
{
	for (unsigned i = 0; i < CFI_SMALL_SLOTS; i++) {
		const struct cfi_reg *first = &fde->cie.small_row->reg[i];
		if (reg == (i == CFI_SMALL_RA ? fde->cie.ra_reg : fp_reg))
			b->off[i] = first->rule == CFI_OFFSET ? first->off : NOT_SAVED;
	}
}

/* How far an instruction moves the location; false: it does not. */
INLINE bool brief_step(uint8_t op, const uint8_t **p, const uint8_t *end, uint64_t *step)
{
	uint8_t n = op == DW_CFA_advance_loc1 ? 1 : op == DW_CFA_advance_loc2 ? 2 : 4;
	if (__builtin_expect(op >= 0x40, 1)) {
		*step = op & 0x3f;
		return true;
	}
	if (op < DW_CFA_advance_loc1 || op > DW_CFA_advance_loc4 || end - *p < n)
		return false;
	*step = n == 1 ? **p : n == 2 ? sp_get16(*p) : sp_get32(*p);
	*p += n;
	return true;
}

/* An instruction about the CFA, or about nothing that counts here; false: another one. */
INLINE bool brief_cfa(struct brief *b, uint8_t op, const uint8_t **p, const uint8_t *end)
{
	uint64_t v;
	switch (op) {
	case DW_CFA_nop:
		return true;
	case DW_CFA_def_cfa_offset:
		return brief_uleb(p, end, &b->cfa_off);
	case DW_CFA_GNU_args_size:
		return brief_uleb(p, end, &v);
	case DW_CFA_def_cfa:
	case DW_CFA_def_cfa_register:
		if (!brief_uleb(p, end, &v))
			return false;
		b->cfa_reg = (uint32_t)v;
		return op == DW_CFA_def_cfa_register || brief_uleb(p, end, &b->cfa_off);
	default:
		return false;
	}
}

/* A place in a program, between two instructions, and what holds there. */
struct cfi_mark {
	struct brief now, saved; /* saved: when depth is 1 */
	uint64_t loc;            /* from the function's begin */
	uint32_t ops_off, depth;
};

#define MARK_BYTES 128u /* of a program, from one mark to the next */

#define BRIEF_AHEAD 8 /* bytes that a turn of brief_pushes may read */

/* The part of a program that moves the location by a few bytes at a time, each time with the CFA's
 * new offset, and mostly with a register that was saved there: what pushes and pops need. All that
 * is taken from a word that was read at once; what is anything else, or near the end, is left.
 * True: the next step would lead beyond pc, *left bytes from here, and its length is *step. */
INLINE bool brief_pushes(struct brief *b, const struct cfi_fde *fde, uint32_t fp_reg,
			 const uint8_t **at, const uint8_t *end, uint64_t *left, uint64_t *step)
{
	const uint8_t *p = *at;
	while (end - p >= BRIEF_AHEAD) {
		uint64_t word = sp_get64(p);
		if ((word >> 6 & 3) != OP_ADVANCE)
			break;
		uint64_t n = (word & 0x3f) * fde->cie.code_align;
		p++;
		if (n > *left) {
			*step = n;
			*at = p;
			return true;
		}
		*left -= n;
		if ((word >> 8 & 0x80ff) != DW_CFA_def_cfa_offset)
			continue;
		b->cfa_off = word >> 16 & 0x7f;
		p += 2;
		if ((word >> 24 & 0x80c0) == OP_OFFSET << 6) {
			brief_saved(b, fde, fp_reg, word >> 24 & 0x3f,
				    (int64_t)(word >> 32 & 0x7f) * fde->cie.data_align);
			p += 2;
		}
	}
	*at = p;
	return false;
}

/* From a mark on to pc; with stop at most to the first place behind it where a mark can be. ops_off
 * is the program's end where that is not reached. *next: from the function's begin, where another
 * row follows. False: there is something else, or malformed. */
INLINE bool brief_run(const struct cfi_fde *fde, uint64_t pc, uint32_t fp_reg, struct cfi_mark *m,
		      const uint8_t *stop, uint64_t *next)
{
	struct brief b = m->now, saved[BRIEF_REMEMBER];
	const uint8_t *p = fde->ops + m->ops_off, *end = fde->ops + fde->n_ops;
	const int64_t data_align = fde->cie.data_align;
	uint64_t left = pc - fde->begin - m->loc, step, v; /* left: bytes up to pc */
	unsigned depth = m->depth;
	saved[0] = m->saved;
	*next = fde->end - fde->begin;
	while (p < end) {
		if (stop && p >= stop && depth <= 1) {
			*m = (struct cfi_mark){b, saved[0], pc - fde->begin - left,
					       (uint32_t)(p - fde->ops), depth};
			return true;
		}
		if (brief_pushes(&b, fde, fp_reg, &p, stop ? stop : end, &left, &step)) {
			*next = pc - fde->begin - left + step;
			break;
		}
		if (p == end)
			break;
		uint8_t op = *p++;
		if (op >= 0xc0) {
			brief_restore(&b, fde, fp_reg, op & 0x3f);
		} else if (op >= 0x80) {
			if (!brief_uleb(&p, end, &v))
				return false;
			brief_saved(&b, fde, fp_reg, op & 0x3f, (int64_t)v * data_align);
		} else if (op == DW_CFA_remember_state) {
			if (depth == BRIEF_REMEMBER)
				return false;
			saved[depth++] = b;
		} else if (op == DW_CFA_restore_state) {
			if (!depth)
				return false;
			b = saved[--depth];
		} else if (brief_step(op, &p, end, &step)) {
			step *= fde->cie.code_align;
			if (step > left) {
				*next = pc - fde->begin - left + step;
				break;
			}
			left -= step;
		} else if (!brief_cfa(&b, op, &p, end)) {
			return false;
		}
	}
	m->now = b;
	m->loc = pc - fde->begin - left;
	m->ops_off = (uint32_t)fde->n_ops;
	return true;
}

/* False: not so brief, or malformed; nothing was changed. */
static bool row_brief(const struct cfi_fde *fde, uint64_t pc, uint32_t fp_reg,
		      const struct cfi_marks *marks, struct cfi_row *out)
{
	struct cfi_mark m = {0};
	if (fp_reg == fde->cie.ra_reg || !brief_start(&fde->cie, &m.now))
		return false;
	for (size_t low = 0, high = marks ? marks->n : 0; low < high;) {
		size_t mid = (low + high) / 2;
		if (marks->v[mid].loc <= pc - fde->begin) {
			m = marks->v[mid];
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	uint64_t next;
	if (!brief_run(fde, pc, fp_reg, &m, NULL, &next))
		return false;
	brief_row(&m.now, out);
	out->begin = fde->begin + m.loc;
	out->end = fde->begin + next;
	return true;
}

bool cfi_marks_make(const struct cfi_fde *fde, uint32_t fp_reg, struct cfi_marks *out)
{
	struct cfi_mark m = {0};
	size_t max = fde->n_ops / MARK_BYTES;
	if (fde->begin >= fde->end)
		max = 0;
	*out = (struct cfi_marks){0};
	if (fp_reg == fde->cie.ra_reg || !brief_start(&fde->cie, &m.now) || !max)
		return true;
	out->v = calloc(max, sizeof *out->v);
	if (!out->v)
		return false;
	while (out->n < max) {
		const uint8_t *stop = fde->ops + m.ops_off + MARK_BYTES;
		uint64_t next;
		if (!brief_run(fde, fde->end - 1, fp_reg, &m, stop, &next) ||
		    m.ops_off == fde->n_ops)
			break;
		out->v[out->n++] = m;
	}
	return true;
}

void cfi_marks_deinit(struct cfi_marks *m)
{
	free(m->v);
	*m = (struct cfi_marks){0};
}

/* By the whole interpreter. Apart: its rows are three pages of stack, each of which is touched
 * where stacks are guarded against clashes. */
static __attribute__((noinline)) bool row_small(const struct cfi_section *s,
						const struct cfi_fde *fde, uint64_t pc,
						uint32_t fp_reg, struct cfi_row *out)
{
	struct cfi_row initial, saved[CFI_REMEMBER];
	struct run r = {.section = s, .fde = fde, .row = out, .saved = saved, .fp_reg = fp_reg};
	if (!begin(&r, &initial, true) || !run(&r, pc, true))
		return false;
	out->begin = r.loc;
	out->end = r.next_loc;
	return true;
}

bool cfi_row_small(const struct cfi_section *s, const struct cfi_fde *fde, uint64_t pc,
		   uint32_t fp_reg, const struct cfi_marks *marks, struct cfi_row *out)
{
	return (!s->swap && __builtin_expect(row_brief(fde, pc, fp_reg, marks, out), 1)) ||
	       row_small(s, fde, pc, fp_reg, out);
}

bool cfi_cie_row(const struct cfi_section *s, const struct cfi_cie *cie, uint32_t fp_reg,
		 struct cfi_row *out)
{
	struct cfi_row initial, saved[CFI_REMEMBER];
	const struct cfi_fde empty = {.cie = *cie, .ops = cie->ops};
	struct run r = {.section = s, .fde = &empty, .row = out, .saved = saved, .fp_reg = fp_reg};
	return begin(&r, &initial, true);
}

bool cfi_row_full(const struct cfi_section *s, const struct cfi_fde *fde, uint64_t pc,
		  struct cfi_row *out)
{
	struct cfi_row initial, saved[CFI_REMEMBER];
	struct run r = {.section = s, .fde = fde, .row = out, .saved = saved};
	return begin(&r, &initial, false) && run(&r, pc, false);
}

void cfi_rows_start(struct cfi_rows *r, const struct cfi_section *s, const struct cfi_fde *fde)
{
	r->section = s;
	r->fde = fde;
	r->started = false;
}

int cfi_rows_next(struct cfi_rows *rows, uint64_t *start, uint64_t *end)
{
	struct run r = {
		.section = rows->section,
		.fde = rows->fde,
		.row = &rows->row,
		.saved = rows->saved,
	};
	if (!rows->started) {
		if (!begin(&r, &rows->initial, false))
			return -1;
		rows->started = true;
		rows->next_loc = rows->fde->begin;
	} else {
		r.p = rows->ops;
		r.end = rows->fde->ops + rows->fde->n_ops;
		r.depth = rows->depth;
		r.initial = &rows->initial;
		r.ra_reg = rows->fde->cie.ra_reg;
	}
	if (rows->next_loc >= rows->fde->end)
		return 0;
	r.loc = rows->loc = rows->next_loc;
	if (!run(&r, r.loc, false))
		return -1;
	rows->ops = r.p;
	rows->depth = r.depth;
	rows->next_loc = r.next_loc;
	*start = rows->loc;
	*end = r.next_loc < rows->fde->end ? r.next_loc : rows->fde->end;
	return 1;
}
