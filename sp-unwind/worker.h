/* The work on one batch of records: pure computing from handed-over memory into an output buffer,
 * so that any number of workers gives the same bytes. */
#ifndef SP_UNWIND_WORKER_H
#define SP_UNWIND_WORKER_H

#include <stddef.h>

#include "base/table.h"
#include "maps/procs.h"
#include "perf/reader.h"
#include "sample.h"
#include "walk.h"

enum un_action {
	UN_PASS,    /* as it came */
	UN_CONVERT, /* a sample with nothing to unwind: its chain becomes looked-up addresses */
	UN_WALK,    /* a sample with registers */
};

/* One record's work. What a worker needs is in two cache lines: to send one to another CPU takes as
 * long as to unwind a stack of a few frames. */
struct un_item {
	_Alignas(64) const struct uw_space *space; /* for UN_WALK; in one of the batch's spaces */
	enum un_action action;
	struct sp_record rec; /* UN_RECORD_BYTES of it */
};

#define UN_RECORD_BYTES offsetof(struct sp_record, sample.addr)
_Static_assert(offsetof(struct un_item, rec) + UN_RECORD_BYTES <= 128, "two cache lines");

#define UN_BATCH_ITEMS 256u
#define UN_BATCH_OUT ((size_t)256 << 10) /* of output, until more is needed */
#define UN_BATCH_BYTES ((size_t)1 << 20) /* of input; one record more may lie in it */

struct un_batch {
	uint32_t n, n_chunks, n_spaces, n_stacks;
	size_t bytes;
	struct sp_chunk *chunks[UN_BATCH_ITEMS]; /* held */
	struct sp_space *spaces[UN_BATCH_ITEMS]; /* held */
	uint8_t *stacks[UN_BATCH_ITEMS];         /* owned: those joined of parts */
	struct sp_buf out;
	bool flush; /* what is written so far must reach the next stage */
	struct un_item items[UN_BATCH_ITEMS];
};

/* Ends of walks by reason and file. */
struct un_stop_row {
	uint32_t tag; /* uw_map.tag, UINT32_MAX: in no mapping */
	uint64_t n[UW_N_STOPS];
};

struct un_stops {
	struct sp_map64 by_tag;
	struct un_stop_row *rows; /* owned */
	size_t n_rows, cap_rows;
	uint64_t n[UW_N_STOPS]; /* all together */
};

void un_stops_deinit(struct un_stops *s);
void un_stops_merge(struct un_stops *into, const struct un_stops *from);

struct un_worker {
	struct uw_walker *walker; /* owned */
	struct sp_counters counters;
	struct un_stops stops;
	uint16_t machine; /* EM_* of the recording */
	uint64_t cpu_ns;  /* spent on batches */
	struct uw_stack stack;
	struct un_chain chain;
};

/* Of any memory, most of which is not touched; false when memory ends. */
bool un_worker_init(struct un_worker *w);
void un_worker_deinit(struct un_worker *w);
struct un_batch *un_batch_new(void); /* NULL when memory ends */
void un_batch_free(struct un_batch *b);
/* Fill b->out (b->out.failed: memory has ended) and release what the batch holds. */
void un_worker_run(struct un_worker *w, struct un_batch *b);
void un_batch_release(struct un_batch *b);

#endif
