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
	UN_PASS,   /* as it came */
	UN_SAMPLE, /* where its event unwinds its chain becomes looked-up addresses, walked by
		    * registers and stack where it has them and a space; else it leaves as it came
		    */
	UN_CHAIN,  /* the same, and of every event */
};

/* One record's work, in a cache line: to send one to another CPU takes as long as to unwind a stack
 * of a few frames. */
struct un_item {
	_Alignas(64) struct sp_late late;
	const struct uw_space *space; /* in one of the batch's spaces, or NULL */
	enum un_action action;
	bool is_joined; /* its stack is the batch's next one */
};
_Static_assert(sizeof(struct un_item) == 64, "a cache line");

/* A stack that came in parts. */
struct un_joined {
	uint8_t *data; /* owned */
	size_t size;
};

#define UN_BATCH_ITEMS 256u
#define UN_BATCH_OUT ((size_t)256 << 10) /* of output, until more is needed */
/* Of input; one record more may lie in it. To hand one over takes 20 us when a thread sleeps. */
#define UN_BATCH_BYTES ((size_t)1 << 20)
#define UN_BATCH_BYTES_SHARED ((size_t)3 << 19)

struct un_batch {
	uint32_t n, n_chunks, n_spaces, n_stacks;
	size_t bytes;
	struct sp_chunk *chunks[UN_BATCH_ITEMS]; /* held */
	struct sp_space *spaces[UN_BATCH_ITEMS]; /* held */
	struct un_joined stacks[UN_BATCH_ITEMS];
	struct sp_late bad; /* the first sample that could not be decoded; raw NULL: none */
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

#define UN_DECODED_AHEAD 3u

struct un_worker {
	struct uw_walker *walker; /* owned */
	struct sp_counters counters;
	struct un_stops stops;
	uint16_t machine; /* EM_* of the recording */
	uint64_t cpu_ns;  /* spent on batches, by the submitting thread's worker */
	bool had_chains;  /* some sample came with a call chain */
	struct uw_stack stack;
	struct un_chain chain;
	struct sp_record ahead[UN_DECODED_AHEAD + 1]; /* of the batch's next items */
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
