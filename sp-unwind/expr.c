#include "expr.h"

#include "base/cursor.h"

/* DWARF 5, table 7.9. */
enum {
	DW_OP_addr = 0x03,
	DW_OP_deref = 0x06,
	DW_OP_const1u = 0x08,
	DW_OP_const1s = 0x09,
	DW_OP_const2u = 0x0a,
	DW_OP_const2s = 0x0b,
	DW_OP_const4u = 0x0c,
	DW_OP_const4s = 0x0d,
	DW_OP_const8u = 0x0e,
	DW_OP_const8s = 0x0f,
	DW_OP_constu = 0x10,
	DW_OP_consts = 0x11,
	DW_OP_dup = 0x12,
	DW_OP_drop = 0x13,
	DW_OP_over = 0x14,
	DW_OP_pick = 0x15,
	DW_OP_swap = 0x16,
	DW_OP_rot = 0x17,
	DW_OP_abs = 0x19,
	DW_OP_and = 0x1a,
	DW_OP_div = 0x1b,
	DW_OP_minus = 0x1c,
	DW_OP_mod = 0x1d,
	DW_OP_mul = 0x1e,
	DW_OP_neg = 0x1f,
	DW_OP_not = 0x20,
	DW_OP_or = 0x21,
	DW_OP_plus = 0x22,
	DW_OP_plus_uconst = 0x23,
	DW_OP_shl = 0x24,
	DW_OP_shr = 0x25,
	DW_OP_shra = 0x26,
	DW_OP_xor = 0x27,
	DW_OP_bra = 0x28,
	DW_OP_eq = 0x29,
	DW_OP_ge = 0x2a,
	DW_OP_gt = 0x2b,
	DW_OP_le = 0x2c,
	DW_OP_lt = 0x2d,
	DW_OP_ne = 0x2e,
	DW_OP_skip = 0x2f,
	DW_OP_lit0 = 0x30,
	DW_OP_reg0 = 0x50,
	DW_OP_breg0 = 0x70,
	DW_OP_regx = 0x90,
	DW_OP_bregx = 0x92,
	DW_OP_deref_size = 0x94,
	DW_OP_nop = 0x96,
};

struct machine {
	const struct uw_expr_env *env;
	const uint8_t *start;
	struct sp_cursor c;
	uint64_t stack[UW_EXPR_DEPTH];
	unsigned n;
	enum uw_expr_result fault;
};

static void fail(struct machine *m, enum uw_expr_result why)
{
	if (m->fault == UW_EXPR_OK)
		m->fault = why;
}

static uint64_t cut(const struct machine *m, uint64_t v)
{
	return m->env->addr_bytes == 4 ? (uint32_t)v : v;
}

static int64_t as_signed(const struct machine *m, uint64_t v)
{
	return m->env->addr_bytes == 4 ? (int32_t)v : (int64_t)v;
}

static void push(struct machine *m, uint64_t v)
{
	if (m->n == UW_EXPR_DEPTH)
		fail(m, UW_EXPR_BAD);
	else
		m->stack[m->n++] = cut(m, v);
}

static uint64_t pop(struct machine *m)
{
	if (!m->n) {
		fail(m, UW_EXPR_BAD);
		return 0;
	}
	return m->stack[--m->n];
}

static void pick(struct machine *m, uint64_t depth)
{
	if (depth >= m->n)
		fail(m, UW_EXPR_BAD);
	else
		push(m, m->stack[m->n - 1 - depth]);
}

static void push_reg(struct machine *m, uint64_t reg, int64_t offset)
{
	if (reg >= m->env->n_regs || reg > 63 || !(m->env->known >> reg & 1))
		fail(m, UW_EXPR_NO_REG);
	else
		push(m, m->env->regs[reg] + (uint64_t)offset);
}

static void load(struct machine *m, unsigned size)
{
	uint64_t addr = pop(m), v = 0;
	if (m->fault != UW_EXPR_OK)
		return;
	if ((size != 1 && size != 2 && size != 4 && size != 8) || size > m->env->addr_bytes)
		fail(m, UW_EXPR_BAD);
	else if (!m->env->load(m->env->ctx, addr, size, &v))
		fail(m, UW_EXPR_NO_MEMORY);
	else
		push(m, v);
}

static void jump(struct machine *m, int16_t by)
{
	ptrdiff_t to = m->c.p - m->start + by;
	if (to < 0 || to > m->c.end - m->start)
		fail(m, UW_EXPR_BAD);
	else
		m->c.p = m->start + to;
}

static void divide(struct machine *m, uint8_t op)
{
	uint64_t b = pop(m), a = pop(m);
	if (!b) {
		fail(m, UW_EXPR_BAD);
	} else if (op == DW_OP_mod) {
		push(m, a % b); /* unsigned, as gdb, libgcc and elfutils have it */
	} else {
		int64_t x = as_signed(m, a), y = as_signed(m, b);
		push(m, y == -1 ? -a : (uint64_t)(x / y));
	}
}

static uint64_t shift(const struct machine *m, uint8_t op, uint64_t a, uint64_t by)
{
	unsigned bits = m->env->addr_bytes * 8;
	if (op == DW_OP_shra) {
		uint64_t n = by < bits ? by : bits - 1;
		return (uint64_t)(as_signed(m, a) >> n);
	}
	if (by >= bits)
		return 0;
	return op == DW_OP_shl ? a << by : a >> by;
}

/* Operations on two elements: a below b. */
static void binary(struct machine *m, uint8_t op)
{
	uint64_t b = pop(m), a = pop(m);
	int64_t y = as_signed(m, b), x = as_signed(m, a);
	switch (op) {
	case DW_OP_and:
		push(m, a & b);
		break;
	case DW_OP_minus:
		push(m, a - b);
		break;
	case DW_OP_mul:
		push(m, a * b);
		break;
	case DW_OP_or:
		push(m, a | b);
		break;
	case DW_OP_plus:
		push(m, a + b);
		break;
	case DW_OP_xor:
		push(m, a ^ b);
		break;
	case DW_OP_eq:
		push(m, x == y);
		break;
	case DW_OP_ge:
		push(m, x >= y);
		break;
	case DW_OP_gt:
		push(m, x > y);
		break;
	case DW_OP_le:
		push(m, x <= y);
		break;
	case DW_OP_lt:
		push(m, x < y);
		break;
	case DW_OP_ne:
		push(m, x != y);
		break;
	default:
		push(m, shift(m, op, a, b));
		break;
	}
}

static void constant(struct machine *m, uint8_t op)
{
	struct sp_cursor *c = &m->c;
	switch (op) {
	case DW_OP_addr:
		push(m, sp_cur_uint(c, m->env->addr_bytes) + m->env->bias);
		break;
	case DW_OP_const1u:
		push(m, sp_cur_u8(c));
		break;
	case DW_OP_const1s:
		push(m, (uint64_t)(int8_t)sp_cur_u8(c));
		break;
	case DW_OP_const2u:
		push(m, sp_cur_u16(c));
		break;
	case DW_OP_const2s:
		push(m, (uint64_t)(int16_t)sp_cur_u16(c));
		break;
	case DW_OP_const4u:
		push(m, sp_cur_u32(c));
		break;
	case DW_OP_const4s:
		push(m, (uint64_t)(int32_t)sp_cur_u32(c));
		break;
	case DW_OP_constu:
		push(m, sp_cur_uleb(c));
		break;
	case DW_OP_consts:
		push(m, (uint64_t)sp_cur_sleb(c));
		break;
	default: /* const8u, const8s */
		push(m, sp_cur_u64(c));
		break;
	}
}

/* Operations that only move or change the top. False: not one of them. */
static bool unary(struct machine *m, uint8_t op)
{
	uint64_t a, b, d;
	switch (op) {
	case DW_OP_nop:
		return true;
	case DW_OP_dup:
		pick(m, 0);
		return true;
	case DW_OP_over:
		pick(m, 1);
		return true;
	case DW_OP_pick:
		pick(m, sp_cur_u8(&m->c));
		return true;
	case DW_OP_drop:
		(void)pop(m);
		return true;
	case DW_OP_swap:
		a = pop(m);
		b = pop(m);
		push(m, a);
		push(m, b);
		return true;
	case DW_OP_rot: /* the top goes third */
		a = pop(m);
		b = pop(m);
		d = pop(m);
		push(m, a);
		push(m, d);
		push(m, b);
		return true;
	case DW_OP_abs:
		a = pop(m);
		push(m, as_signed(m, a) < 0 ? -a : a);
		return true;
	case DW_OP_neg:
		push(m, -pop(m));
		return true;
	case DW_OP_not:
		push(m, ~pop(m));
		return true;
	case DW_OP_plus_uconst:
		a = pop(m);
		push(m, a + sp_cur_uleb(&m->c));
		return true;
	default:
		return false;
	}
}

static void step(struct machine *m, uint8_t op)
{
	uint64_t reg;
	int16_t by;
	if (op >= DW_OP_breg0 && op < DW_OP_breg0 + 32) {
		push_reg(m, op - DW_OP_breg0, sp_cur_sleb(&m->c));
	} else if (op >= DW_OP_lit0 && op < DW_OP_lit0 + 32) {
		push(m, op - DW_OP_lit0);
	} else if (op >= DW_OP_reg0 && op < DW_OP_reg0 + 32) {
		/* Not allowed in CFI (6.4.2); libgcc takes it for the register's value. */
		push_reg(m, op - DW_OP_reg0, 0);
	} else if (op == DW_OP_addr || (op >= DW_OP_const1u && op <= DW_OP_consts)) {
		constant(m, op);
	} else if (unary(m, op)) {
		return;
	} else if (op == DW_OP_div || op == DW_OP_mod) {
		divide(m, op);
	} else if (op == DW_OP_bra) {
		by = (int16_t)sp_cur_u16(&m->c);
		if (pop(m))
			jump(m, by);
	} else if (op == DW_OP_skip) {
		jump(m, (int16_t)sp_cur_u16(&m->c));
	} else if (op >= DW_OP_and && op <= DW_OP_ne) {
		binary(m, op);
	} else if (op == DW_OP_deref) {
		load(m, m->env->addr_bytes);
	} else if (op == DW_OP_deref_size) {
		load(m, sp_cur_u8(&m->c));
	} else if (op == DW_OP_bregx) {
		reg = sp_cur_uleb(&m->c);
		push_reg(m, reg, sp_cur_sleb(&m->c));
	} else if (op == DW_OP_regx) {
		push_reg(m, sp_cur_uleb(&m->c), 0);
	} else {
		fail(m, UW_EXPR_BAD);
	}
}

enum uw_expr_result uw_expr_eval(const struct uw_expr_env *env, const uint8_t *expr, size_t len,
				 const uint64_t *initial, uint64_t *out)
{
	struct machine m = {.env = env, .start = expr, .c = sp_cursor(expr, len)};
	m.c.swap = env->swap;
	if (initial)
		push(&m, *initial);
	for (unsigned steps = 0; m.c.p < m.c.end; steps++) {
		if (steps == UW_EXPR_STEPS)
			return UW_EXPR_BAD;
		step(&m, sp_cur_u8(&m.c));
		if (m.c.bad)
			return UW_EXPR_BAD;
		if (m.fault != UW_EXPR_OK)
			return m.fault;
	}
	if (!m.n)
		return UW_EXPR_BAD;
	*out = m.stack[m.n - 1];
	return UW_EXPR_OK;
}
