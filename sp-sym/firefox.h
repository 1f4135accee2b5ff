/* The parts of the Firefox format (fmt_firefox.c): what they share while a profile is written. */
#ifndef SYM_FIREFOX_H
#define SYM_FIREFOX_H

#include "out.h"
#include "series.h"
#include "view.h"

struct firefox_func {
	uint32_t name, file, resource; /* strings; SP_NONE = none */
	uint32_t func;                 /* of the view */
};

struct firefox_frame {
	uint32_t func;  /* of this table */
	uint32_t level; /* of the view */
	uint32_t depth; /* of inlining: 0 is the real function */
	uint64_t offset;
	bool has_offset;
};

struct firefox_stack {
	uint32_t prefix, frame;
};

/* The tables of one thread: only what its samples need. */
struct firefox_tables {
	struct sp_intern strings;
	struct sp_map64 func_ids, resource_ids;
	struct firefox_func *funcs;
	struct firefox_frame *frames;
	struct firefox_stack *stacks;
	uint32_t *libs; /* by resource: the library */
	size_t n_funcs, funcs_cap, n_frames, frames_cap, n_stacks, stacks_cap, n_libs, libs_cap;
};

/* Something's number in the last thread that had it. */
struct firefox_known {
	uint32_t thread, id;
};

struct firefox_node {
	uint32_t parent, frame, level; /* of the view; frame SP_NONE: [no stack] */
	uint32_t thread, id;           /* its number in the last thread that had it */
};

struct firefox_names {
	uint32_t task, n; /* the name of most of its samples; how many it had */
};

struct firefox {
	struct view *v;
	struct out *o;
	struct sp_map64 lib_ids; /* by the spool's file number */
	uint32_t *libs;          /* owned; by library: a module of that file */
	size_t n_libs, libs_cap;
	uint32_t thread;            /* the one at hand, from 1 */
	struct firefox_node *nodes; /* owned */
	size_t n_nodes, nodes_cap;
	struct firefox_names *names;        /* owned; by thread of the spool */
	struct firefox_known *known_stacks; /* owned; by stack of the view: as known */
	uint32_t *leaf;                     /* owned; by stack of the view: its node */
	uint32_t *path;                     /* owned: room for a way to the root */
	struct firefox_known *known; /* owned; by level: the frame in the last thread that had it */
	struct sp_map64 pids;        /* those of the threads so far */
	struct series_cursor cursor;
	bool failed;
	struct sp_err *err; /* of what failed when that is not memory: r is not 0 */
	int r;
};

/* A text's number in the thread's table of strings. */
uint32_t firefox_string(struct firefox *w, struct firefox_tables *t, const char *s);
/* The tree of all stacks, of which each thread's table has a part. */
void firefox_make_nodes(struct firefox *w);
/* The stack's number in the thread's table: what is missing of its way from the root is added. */
uint32_t firefox_stack(struct firefox *w, struct firefox_tables *t, uint32_t stack);
/* The stacks, frames, functions and libraries of the thread's samples, which are written before. */
void firefox_write_tables(struct firefox *w, struct firefox_tables *t);
/* Comes last: the others add to them. */
void firefox_write_strings(struct out *o, const struct firefox_tables *t);
void firefox_tables_deinit(struct firefox_tables *t);

void firefox_write_samples(struct firefox *w, struct firefox_tables *t, const struct series *s,
			   size_t list);
/* Names; in the first thread of each process its execs, in that of the file the losses. */
void firefox_write_markers(struct firefox *w, struct firefox_tables *t, const struct series *s,
			   size_t list, bool first_of_pid, bool first);

/* Milliseconds, exact. */
void firefox_ms(struct out *o, uint64_t ns);
/* The begin of a column: its name and the bracket. */
void firefox_column(struct out *o, const char *name);
/* One column; its elements by i. */
#define COLUMN(o, name, n, ...)                                                                    \
	do {                                                                                       \
		firefox_column(o, name);                                                           \
		for (size_t i = 0; i < (n); i++) {                                                 \
			if (i)                                                                     \
				out_char(o, ',');                                                  \
			__VA_ARGS__;                                                               \
		}                                                                                  \
		out_char(o, ']');                                                                  \
	} while (0)

#endif
