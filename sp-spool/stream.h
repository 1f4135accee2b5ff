/* A perf stream or perf.data file into a spool. */
#ifndef SPOOL_STREAM_H
#define SPOOL_STREAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/counters.h"
#include "carry.h"
#include "filter.h"
#include "intern.h"
#include "perf/ext.h"
#include "reads.h"
#include "stackpulse/spool.h"
#include "waits.h"

/* --rotate: the file so far is complete, another one begins: 0 and its writer. */
typedef int spool_next_file(void *ctx, struct sp_spool_writer **w, struct sp_err *err);

struct spool_stream {
	struct sp_reader *r;       /* owned */
	struct sp_spool_writer *w; /* borrowed */
	struct spool_intern in;
	struct sp_ext_joiner *joiner; /* owned */
	struct spool_waits waits;
	struct spool_reads reads;
	struct sp_counters own;       /* what we see ourselves */
	struct sp_counters told;      /* per counter, the most that a stage before us told */
#define SPOOL_N_SEEN 5
	uint64_t seen[SPOOL_N_SEEN]; /* the reader's counters */
	uint64_t lost_told;           /* sum of the loss records */
	bool has_loss_records, has_samples;
	bool from_file, stopped; /* a file is not read on after the first Ctrl-C */
	/* Asked whenever something was written, when it is set: whether to stop here. */
	bool (*is_over)(void *ctx);
	uint64_t asked_at_bytes;
	uint32_t objects_refused; /* beyond the limit of embedded files */
	uint32_t *event; /* owned: writer's event + 1 by the reader's */
	size_t n_event, cap_event;

	struct sp_spool_info info; /* what was put last; its strings: */
	struct sp_buf start;       /* payload of the start record */
	char boot_id[64], clock[64];
	/* Append: what the file's first recording says, to put our times on its clock. */
	const struct sp_spool_info *first;
	bool info_put;
	uint64_t first_sample_ns;

	struct spool_filter *filter; /* borrowed, or NULL when all samples are wanted */
	uint64_t n_left_out;
	uint64_t file_first_ns; /* of the samples that went into the file at hand */

	/* Rotation, when next_file is set: by size, or by the samples' times. */
	spool_next_file *next_file;
	void *next_ctx; /* of is_over too */
	uint64_t rotate_bytes, rotate_ns;
	struct spool_carry carry;
	struct sp_counters before; /* in the files that are complete */

	/* While the main thread waits for input, another one flushes. */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t flusher, main;
	bool flusher_runs, ending;
	_Atomic bool flush_due;
	int flush_rc;
	struct sp_err flush_err;
};

/* path NULL: standard input. first: NULL, or the facts of the file that is appended to. */
int spool_stream_open(struct spool_stream *s, const char *path, const struct sp_spool_info *first,
		      struct sp_err *err);
void spool_stream_set_writer(struct spool_stream *s, struct sp_spool_writer *w);
void spool_stream_close(struct spool_stream *s);

/* Read it all, write everything but the end: 0, or what stopped it. */
int spool_stream_run(struct spool_stream *s, const uint64_t seed[2], struct sp_err *err);
/* All counters: ours, and what the stages before us told; of all files. */
struct sp_counters spool_stream_counters(const struct spool_stream *s);

#endif
