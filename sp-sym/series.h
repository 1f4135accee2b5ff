/* The shown samples of each thread, in time order: for formats that keep one list per thread, or per
 * thread and event where events are shown apart. Costs 12 bytes a sample, 20 with their weights. */
#ifndef SYM_SERIES_H
#define SYM_SERIES_H

#include "view.h"

struct series {
	size_t *start;     /* owned; by list: samples start[i] to start[i + 1] */
	uint32_t *row;     /* owned */
	uint64_t *time_ns; /* owned */
	uint64_t *weight;  /* owned, or NULL */
	size_t n_lists;
};

/* The list that a row's samples are in; lists of one thread are neighbours. */
size_t series_list(const struct view *v, const struct view_row *row);
size_t series_n_lists(const struct view *v);

int series_init(struct series *s, struct view *v, bool weights, struct sp_err *err);
void series_deinit(struct series *s);

#endif
