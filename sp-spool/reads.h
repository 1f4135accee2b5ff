/* Samples that stand for several events: with PERF_SAMPLE_READ (perf record -e '{a,b}:S') one event
 * samples, and each sample takes along how far the counters of its group have come. What a counter
 * gained since the sample before is the weight that this one has for that counter's event, as perf
 * has it (tools/perf/util/session.c, deliver_sample_value). */
#ifndef SPOOL_READS_H
#define SPOOL_READS_H

#include "base/table.h"
#include "perf/reader.h"

#define SPOOL_COUNTERS_MAX (1u << 20) /* that are known; samples of further ones have their period */

struct spool_gain {
	const struct sp_event *event; /* of the reader */
	uint64_t weight;
};

struct spool_reads {
	struct sp_intern counters; /* id, and the thread where each has its own */
	uint64_t *last;            /* owned; by counter */
	size_t cap_last;
	struct spool_gain *gain; /* owned; of the sample at hand: n */
	size_t n, cap;
};

void spool_reads_deinit(struct spool_reads *x);

/* What a sample stands for, in x->gain: each event that gained; of a sample without values its own
 * event, by its period. If nothing was gained that is its own event with a weight of 0. */
int spool_reads_sample(struct spool_reads *x, const struct sp_reader *r,
		       const struct sp_record *rec, struct sp_err *err);

#endif
