/* Samples per function, and what a profile is about in numbers. */
#ifndef SYM_COUNTS_H
#define SYM_COUNTS_H

#include "view.h"

struct func_count {
	const struct view_func *f; /* of the view */
	uint64_t self, total;    /* what --weight says; a recursive function counts once a sample */
	uint64_t n_total;        /* samples */
	struct view_place place; /* where most of self is (else of total) */
};

struct counts {
	struct func_count *v; /* owned; by function of the view */
	size_t n;
};

int counts_init(struct counts *c, struct view *v, struct sp_err *err);
void counts_deinit(struct counts *c);

/* An order of functions that depends on their text only. */
int counts_compare_funcs(const struct view_func *a, const struct view_func *b);

struct count_summary {
	size_t n_processes, n_threads;
	uint64_t n_truncated; /* samples whose stack stopped before its root */
};

struct count_summary counts_summary(const struct view *v);

#endif
