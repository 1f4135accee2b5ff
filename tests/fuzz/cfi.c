/* Call frame information without an ELF file around it: the first bytes choose what the rest is
 * taken for: .eh_frame or .debug_frame, its addresses, a header's table, an expression.
 *
 * fuzz: sp-unwind/arch.c sp-unwind/cfi_[a-z]*.c sp-unwind/expr.c */
#include "../../sp-unwind/cfi_table.h"
#include "../../sp-unwind/expr.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool load(void *ctx, uint64_t addr, unsigned size, uint64_t *out)
{
	(void)ctx;
	*out = addr * 3 + size;
	return !(addr & 1);
}

static void evaluate(const uint8_t *data, size_t size)
{
	static const uint64_t regs[17] = {1, 2, 3, UINT64_MAX, 0x7fffffff};
	struct uw_expr_env env = {
		.regs = regs, .known = 0x1ffff, .n_regs = 17, .addr_bytes = 8, .load = load};
	uint64_t v, cfa = 0x1000;
	(void)uw_expr_eval(&env, data, size, NULL, &v);
	env.addr_bytes = 4;
	(void)uw_expr_eval(&env, data, size, &cfa, &v);
}

static bool differ(const struct cfi_reg *a, const struct cfi_reg *b)
{
	return a->rule != b->rule || a->len != b->len || a->off != b->off;
}

static void rows_of(const struct cfi_section *s, const struct cfi_fde *fde)
{
	static struct cfi_rows rows;
	struct cfi_row small, full, brief, of_cie;
	/* As a module does it, which keeps the CIE's row: the way that common programs take. */
	struct cfi_fde kept = *fde;
	if (cfi_cie_row(s, &fde->cie, 6, &of_cie))
		kept.cie.small_row = &of_cie;
	struct cfi_marks marks;
	if (!cfi_marks_make(&kept, 6, &marks))
		return;
	uint64_t start, end, last = fde->begin;
	cfi_rows_start(&rows, s, fde);
	for (unsigned i = 0; i < 10000 && cfi_rows_next(&rows, &start, &end) > 0; i++) {
		if (start < last || end <= start || end > fde->end)
			abort(); /* rows ascend and stay in their function */
		last = end;
		if (i > 200)
			continue;
		/* Four ways to the same row. */
		if (!cfi_row_full(s, fde, start, &full) ||
		    !cfi_row_small(s, fde, start, 6, NULL, &small) ||
		    differ(&full.cfa, &rows.row.cfa) || differ(&small.cfa, &full.cfa) ||
		    differ(&small.reg[CFI_SMALL_RA], &full.reg[cfi_ra_slot(&fde->cie)]))
			abort();
		if (!cfi_row_small(s, &kept, start, 6, i & 1 ? &marks : NULL, &brief) ||
		    differ(&brief.cfa, &small.cfa) || brief.cfa_reg != small.cfa_reg ||
		    differ(&brief.reg[0], &small.reg[0]) || differ(&brief.reg[1], &small.reg[1]))
			abort();
		if (full.cfa.rule == CFI_EXPR)
			evaluate(full.cfa.expr, full.cfa.len);
	}
	cfi_marks_deinit(&marks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 8)
		return 0;
	struct cfi_section s = {
		.data = data + 8,
		.size = size - 8,
		.svma = data[1] * UINT64_C(0x1000),
		.text_svma = 0x1000,
		.data_svma = 0x2000,
		.addr_bytes = data[0] & 1 ? 4 : 8,
		.swap = data[0] & 2,
		.eh = data[0] & 4,
		.bounded = data[0] & 8,
	};
	if (data[0] & 16) {
		struct cfi_table t;
		struct cfi_table_entry e;
		cfi_table_init(&t, &s, s.data, s.size, s.svma);
		for (uint64_t pc = 0; pc < 0x20000; pc += 0x777)
			if (!cfi_table_find(&t, pc, cfi_table_place(&t, pc & ~UINT64_C(0xfff)), &e))
				(void)cfi_table_find(&t, pc, 0, &e);
		(void)cfi_table_sorted(&t);
		return 0;
	}
	if (data[0] & 32) {
		evaluate(s.data, s.size);
		return 0;
	}
	const struct cfi_code code = {0};
	struct cfi_index x;
	if (cfi_index_build(&x, &s, &code, NULL) < 0)
		return 0;
	struct cfi_fde f;
	for (size_t i = 0; i < x.n; i++) {
		if (i && x.v[i].begin < x.v[i - 1].end)
			abort(); /* ranges are sorted and disjoint */
		if (i < 50 && cfi_fde_parse(&s, x.v[i].off, &f))
			rows_of(&s, &f);
	}
	cfi_index_deinit(&x);
	return 0;
}
