/* DWARF expressions as call frame information uses them (DWARF 5, sections 2.5 and 6.4.2): a
 * stack machine over registers and memory. Bounded in steps and depth; memory is what the caller
 * lets it see. */
#ifndef SP_UNWIND_EXPR_H
#define SP_UNWIND_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UW_EXPR_STEPS 1000
#define UW_EXPR_DEPTH 64

enum uw_expr_result {
	UW_EXPR_OK,
	UW_EXPR_BAD,       /* malformed, unknown operation, over a bound, division by zero */
	UW_EXPR_NO_REG,    /* a register whose value is not known */
	UW_EXPR_NO_MEMORY, /* load refused an address */
};

struct uw_expr_env {
	const uint64_t *regs; /* by DWARF number */
	uint64_t known;       /* bit n: regs[n] is known */
	unsigned n_regs;
	unsigned addr_bytes; /* 4 or 8: the width of the stack's elements */
	bool swap;
	uint64_t bias; /* added to DW_OP_addr */
	/* size is 1, 2, 4 or 8; false: not to be had. */
	bool (*load)(void *ctx, uint64_t addr, unsigned size, uint64_t *out);
	void *ctx;
};

/* initial: pushed first (the CFA), or NULL. */
enum uw_expr_result uw_expr_eval(const struct uw_expr_env *env, const uint8_t *expr, size_t len,
				 const uint64_t *initial, uint64_t *out);

#endif
