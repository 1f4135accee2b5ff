/* The shown samples of each thread, in time order: for formats that keep one list per thread. Costs
 * 20 bytes a sample. */
#ifndef SYM_SERIES_H
#define SYM_SERIES_H

#include "view.h"

struct series {
	size_t *start;              /* owned; by spool thread: samples start[t] to start[t + 1] */
	uint32_t *row;              /* owned */
	uint64_t *time_ns, *weight; /* owned */
	size_t n_threads;
};

int series_init(struct series *s, struct view *v, struct sp_err *err);
void series_deinit(struct series *s);

#endif
