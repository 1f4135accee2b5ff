/* The shown samples of each thread, in time order: for formats that keep one list per thread, or
 * per thread and event where events are shown apart. Some 6 bytes a sample, which lie in a scratch
 * file once they are many; in memory is what goes with the threads. */
#ifndef SYM_SERIES_H
#define SYM_SERIES_H

#include "scratch.h"
#include "view.h"

struct series_sample {
	uint64_t time_ns, weight;
	uint32_t stack, lane;
};

struct series_list {
	struct series_sample first, last;
	uint64_t n, weight;  /* samples, and the sum of their weights */
	uint32_t block;      /* the first of its full blocks */
	uint32_t last_block; /* SCRATCH_NONE = there is none */
	uint32_t tail_len, tail_cap;
	uint8_t *tail; /* owned: what comes after those */
};

struct series {
	struct series_list *lists; /* owned */
	size_t n_lists;
	struct scratch scratch;
	uint32_t *next; /* owned; by block: the one that follows in its list */
	size_t next_cap;
};

/* The list that samples of that task and event are in; lists of one thread are neighbours. */
size_t series_list(const struct view *v, uint32_t task, uint32_t event);
size_t series_n_lists(const struct view *v);

/* Counts the lanes, as view_count_lanes does. series_deinit is due whatever this returns. */
int series_init(struct series *s, struct view *v, struct sp_err *err);
void series_deinit(struct series *s);

/* The samples of a list, one after the other. */
struct series_cursor {
	const struct series *series; /* borrowed, as is the list */
	const struct series_list *list;
	uint64_t n; /* how many came */
	const uint8_t *p, *end;
	uint32_t block; /* that p is in; SCRATCH_NONE = the tail */
	struct series_sample last;
	uint8_t buf[SCRATCH_BLOCK];
};

void series_rewind(struct series_cursor *c, const struct series *s, size_t list);
/* 1 and *out, 0 at the end. */
int series_next(struct series_cursor *c, struct series_sample *out, struct sp_err *err);

#endif
