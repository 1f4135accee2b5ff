/* --dump-cfi: the rows of a file, one in force at each address; of Go's code without CFI those that
 * its function table stands for. */
#include <inttypes.h>
#include <stdio.h>

#include "cfi_module.h"

#define LEVELS (1 + CFI_DEBUGS) /* .eh_frame, then .debug_frame's: the first one wins */

/* Ranges that lie within each other run the outer program again: bounded. libLLVM-14 has a million
 * rows. */
#define WORK_MAX (UINT64_C(1) << 26)

struct dump {
	FILE *out;
	const struct uw_arch *arch;
	struct {
		const struct cfi_section *section;
		const struct cfi_index *index;
	} level[LEVELS];
	const struct sp_pclntab *go; /* or NULL */
	uint64_t end;                /* of the last row */
	bool any;
	uint64_t work; /* rows that were run through */
	struct cfi_rows rows;
	struct cfi_fde fde;
};

static void print_cfa(const struct dump *d, const struct cfi_row *row)
{
	const char *const *names = d->arch->names;
	if (row->cfa.rule == CFI_EXPR)
		fputs("exp", d->out);
	else if (row->cfa.rule != CFI_REG)
		fputs("u", d->out);
	else if (row->cfa_reg < d->arch->n_names)
		fprintf(d->out, "%s%+" PRId64, names[row->cfa_reg], row->cfa.off);
	else
		fprintf(d->out, "r%" PRIu32 "%+" PRId64, row->cfa_reg, row->cfa.off);
}

static void print_reg(const struct dump *d, const struct cfi_reg *reg)
{
	switch ((enum cfi_rule)reg->rule) {
	case CFI_UNSPEC:
	case CFI_UNDEF:
		fputs("\tu", d->out);
		break;
	case CFI_SAME:
		fputs("\ts", d->out);
		break;
	case CFI_OFFSET:
		fprintf(d->out, "\tc%+" PRId64, reg->off);
		break;
	case CFI_VAL_OFFSET:
		fprintf(d->out, "\tv%+" PRId64, reg->off);
		break;
	case CFI_REG:
		fprintf(d->out, "\tr%" PRId64, reg->off);
		break;
	case CFI_EXPR:
		fputs("\texp", d->out);
		break;
	case CFI_VAL_EXPR:
		fputs("\tvexp", d->out);
		break;
	}
}

static void gap(struct dump *d, uint64_t next)
{
	if (d->any && d->end < next)
		fprintf(d->out, "%" PRIx64 "\t-\n", d->end);
}

/* The rows of one FDE, as far as they lie in [begin, end). */
static void print_fde(struct dump *d, const struct cfi_section *s, size_t off, uint64_t begin,
		      uint64_t end)
{
	static const struct cfi_reg none;
	if (!cfi_fde_parse(s, off, &d->fde))
		return;
	const struct cfi_reg *fp = d->arch->fp < CFI_REGS ? &d->rows.row.reg[d->arch->fp] : &none;
	const struct cfi_reg *ra = &d->rows.row.reg[cfi_ra_slot(&d->fde.cie)];
	uint64_t from, to;
	cfi_rows_start(&d->rows, s, &d->fde);
	while (d->work < WORK_MAX && cfi_rows_next(&d->rows, &from, &to) > 0) {
		d->work++;
		if (from >= end)
			break;
		if (from < begin)
			from = begin;
		if (to > end)
			to = end;
		if (from >= to)
			continue;
		gap(d, from);
		fprintf(d->out, "%" PRIx64 "\t", from);
		print_cfa(d, &d->rows.row);
		print_reg(d, ra);
		print_reg(d, fp);
		fputc('\n', d->out);
		d->end = to;
		d->any = true;
	}
}

/* sp counts from where the caller's was: x86-64's calls push the return address above that,
 * AArch64's functions store it where sp is then. */
static void print_go_row(struct dump *d, uint64_t from, uint64_t to, int32_t used)
{
	bool is_arm = d->arch->machine == EM_AARCH64;
	gap(d, from);
	fprintf(d->out, "%" PRIx64 "\t%s%+" PRId64 "\t", from, d->arch->names[d->arch->sp],
		(int64_t)used + (is_arm ? 0 : 8));
	if (is_arm && !used)
		fputs("s\tu\n", d->out);
	else
		fprintf(d->out, "c%+" PRId64 "\tu\n", is_arm ? -(int64_t)used : -8);
	d->end = to;
	d->any = true;
}

/* Of Go's functions in [begin, end). */
static void print_go(struct dump *d, uint64_t begin, uint64_t end)
{
	struct sp_go_func f;
	struct sp_go_values values;
	struct sp_go_value v;
	if (!d->go || d->arch->sp >= d->arch->n_names)
		return;
	uint32_t i = sp_pclntab_count(d->go, begin);
	for (i -= i > 0; i < d->go->n_funcs && d->work < WORK_MAX; i++) {
		if (!sp_pclntab_func(d->go, i, &f))
			continue;
		if (f.begin >= end)
			break;
		sp_pclntab_values(d->go, &f, f.pcsp, &values);
		while (d->work++ < WORK_MAX && sp_pclntab_next(&values, &v)) {
			uint64_t from = v.begin > begin ? v.begin : begin;
			uint64_t to = v.end < end ? v.end : end;
			if (from < to && (!d->any || from >= d->end))
				print_go_row(d, from, to, v.value);
		}
	}
}

/* What this level has in [begin, end), and between its ranges what the next one has. */
static void print_level(struct dump *d, unsigned level, uint64_t begin, uint64_t end)
{
	if (begin >= end)
		return;
	if (level == LEVELS)
		return print_go(d, begin, end);
	const struct cfi_index *x = d->level[level].index;
	uint64_t at = begin;
	size_t low = 0, high = x ? x->n : 0;
	while (low < high) { /* the first range that ends behind begin */
		size_t mid = (low + high) / 2;
		if (x->v[mid].end <= begin)
			low = mid + 1;
		else
			high = mid;
	}
	for (size_t i = low; x && i < x->n && x->v[i].begin < end; i++) {
		const struct cfi_range *r = &x->v[i];
		uint64_t from = r->begin > begin ? r->begin : begin;
		uint64_t to = r->end < end ? r->end : end;
		print_level(d, level + 1, at, from);
		print_fde(d, d->level[level].section, r->off, from, to);
		at = to;
	}
	print_level(d, level + 1, at, end);
}

int uw_dump_cfi(const struct uw_module *m, FILE *out, struct sp_err *err)
{
	struct dump d = {.out = out, .arch = m->arch};
	struct cfi_index eh = {0};
	int rc = cfi_index_build(&eh, &m->eh, &m->eh_code, err);
	if (rc < 0)
		return rc;
	const struct cfi_debug *debug = uw_module_debug(m);
	d.level[0].section = &m->eh;
	d.level[0].index = &eh;
	for (int i = 0; debug && i < CFI_DEBUGS; i++) {
		d.level[i + 1].section = &debug[i].section;
		d.level[i + 1].index = &debug[i].index;
	}
	d.go = uw_module_pclntab(m);
	print_level(&d, 0, 0, UINT64_MAX);
	gap(&d, UINT64_MAX);
	cfi_index_deinit(&eh);
	if (!debug)
		return sp_err_nomem(err);
	if (d.work >= WORK_MAX)
		return sp_err_set(err, SP_ERR_LIMIT, 0, "cannot print all rows: too many of them");
	return 0;
}
