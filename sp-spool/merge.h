/* Several spools into one: in time order, hosts and boots kept apart. */
#ifndef SPOOL_MERGE_H
#define SPOOL_MERGE_H

#include "filter.h"
#include "spool/reader.h"
#include "spool/writer.h"

/* Write all of the spools (opened, owned by the caller) but the end. Times are put on the first
 * one's clock. filter: NULL, or which samples are wanted. *n_left_out: how many were not;
 * *counters: of the result. *cut (of size n): what is wrong with the inputs, "" when all are whole. */
int spool_merge(struct sp_spool *const *in, size_t n_in, struct sp_spool_writer *w,
		struct spool_filter *filter, struct sp_counters *counters, uint64_t *n_left_out,
		char *cut, size_t cut_size, struct sp_err *err);

#endif
