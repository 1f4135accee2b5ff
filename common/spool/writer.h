/* Writing a spool (stackpulse-spool.5): dictionaries, samples, blocks.
 *
 * The writer interns what it is given, gathers samples, and hands whole blocks to a sink: pure, no
 * fd and no clock. Ids are dense from 0 per kind and equal for equal things. Definitions leave with
 * the first block whose samples need them. When the sink fails the writer is dead: every later
 * call returns the same error and the sink is not called again. Not thread-safe. Memory: by
 * distinct definitions, plus one block of samples. */
#ifndef SP_SPOOL_WRITER_H
#define SP_SPOOL_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "stackpulse/spool.h"

struct sp_spool_writer;

/* Takes whole blocks (the very first time: the file header before it). 0 or an error. */
typedef int sp_spool_sink(void *ctx, const void *bytes, size_t n, struct sp_err *err);

struct sp_spool_wopts {
	sp_spool_sink *sink;
	void *ctx;
	uint64_t salt;          /* anything unlikely to be met twice */
	uint64_t resolution_ns; /* times are rounded down to it; 0 = 1 */
	int level;              /* of zstd; 0 = the default */
	bool append;            /* no file header: blocks go on after seq, in epoch */
	uint32_t seq, epoch;
	int64_t shift_ns; /* append: puts our times on the clock of the file's first epoch */
};

int sp_spool_writer_new(struct sp_spool_writer **out, const struct sp_spool_wopts *opts,
			struct sp_err *err);
void sp_spool_writer_free(struct sp_spool_writer *w); /* writes nothing; NULL is fine */
/* The shift, when it is known only later: before the first block. */
void sp_spool_set_shift(struct sp_spool_writer *w, int64_t shift_ns);

/* The facts of the recording, before the first block; what is learnt later replaces them. Only the
 * strings, start_timestamp_us, sample_interval_us, clock_ns and wall_ns are looked at. */
int sp_spool_put_info(struct sp_spool_writer *w, const struct sp_spool_info *info,
		      struct sp_err *err);

/* --- dictionaries: the id, or SP_NONE when memory ended or a limit was reached --- */
uint32_t sp_spool_put_string(struct sp_spool_writer *w, const char *s, size_t len);

struct sp_spool_wfile {
	const char *path;
	uint32_t maj, min;
	uint64_t ino, ino_gen;
	const uint8_t *build_id;
	uint8_t build_id_len; /* at most 64 */
	bool is_kernel, is_anon;
	const uint8_t *content_hash; /* SP_CONTENT_HASH_BYTES, or NULL */
};
uint32_t sp_spool_put_file(struct sp_spool_writer *w, const struct sp_spool_wfile *f);
uint32_t sp_spool_put_event(struct sp_spool_writer *w, const char *name, bool weight_is_time);
/* Where processes of merged recordings come from; origin 0 is the recording itself. */
uint32_t sp_spool_put_origin(struct sp_spool_writer *w, const char *host, const char *boot_id);
uint32_t sp_spool_put_thread(struct sp_spool_writer *w, uint32_t origin, int32_t pid, int32_t tid);

/* A set of modules: what a process has mapped during some samples. It only grows; when a module
 * goes away or is replaced, begin a new one. parent: SP_NONE, or a set to begin as a copy of (a
 * forked child's). Always a new id. */
uint32_t sp_spool_put_set(struct sp_spool_writer *w, uint32_t origin, int32_t pid, uint32_t parent);
/* Add a module unless the set has it. Modules of a set must not overlap in address, except the
 * kernel's (pid -1), where the last one wins. Returns its place in the set. */
uint32_t sp_spool_put_module(struct sp_spool_writer *w, uint32_t set, uint64_t start, uint64_t end,
			     uint64_t foff, uint32_t file);
size_t sp_spool_set_n(const struct sp_spool_writer *w, uint32_t set);
bool sp_spool_set_has_start(const struct sp_spool_writer *w, uint32_t set, uint64_t start);
/* The n-th module of a set, as given. */
void sp_spool_set_module(const struct sp_spool_writer *w, uint32_t set, uint32_t n, uint64_t *start,
			 uint64_t *end, uint64_t *foff, uint32_t *file);
/* No more modules come for this set and none are asked for: its memory is freed. Samples may still
 * name it; children may not begin as its copies. */
void sp_spool_drop_set(struct sp_spool_writer *w, uint32_t set);

/* Frames. The truncation marker is always frame 0. */
#define SP_SPOOL_MARKER 0u
/* The frame of an address inside the set's module n: by file and offset, so that processes share
 * it, and such that the reader gets exactly this address back for this set. Anonymous modules give
 * frames by address. */
uint32_t sp_spool_put_site(struct sp_spool_writer *w, uint32_t set, uint32_t n, uint64_t addr);
uint32_t sp_spool_put_addr(struct sp_spool_writer *w, uint64_t addr, bool is_kernel);

/* What is known of waits, counted from 1; waker_pid and _tid 0: nobody, or not known; comm: a
 * string. */
uint32_t sp_spool_put_wait(struct sp_spool_writer *w, uint32_t state, int32_t waker_pid,
			   int32_t waker_tid, uint32_t waker_comm);

/* A stack is a node: its innermost frame on top of another stack (prefix), built from the root;
 * SP_NONE is the empty stack. */
uint32_t sp_spool_put_node(struct sp_spool_writer *w, uint32_t prefix, uint32_t frame);

/* --- data --- */
struct sp_spool_wsample {
	uint64_t time_ns;
	uint64_t weight;
	uint32_t thread, event, stack, cpu; /* stack, cpu: SP_NONE = empty, unknown */
	uint32_t comm;                      /* a string */
	uint32_t set;                       /* SP_NONE: no user modules */
	uint32_t wait;                      /* 0: none */
};
int sp_spool_put_sample(struct sp_spool_writer *w, const struct sp_spool_wsample *s,
			struct sp_err *err);
int sp_spool_put_loss(struct sp_spool_writer *w, const struct sp_spool_loss *l, struct sp_err *err);
int sp_spool_put_exec(struct sp_spool_writer *w, const struct sp_spool_exec *e, struct sp_err *err);
int sp_spool_put_object(struct sp_spool_writer *w, const struct sp_spool_object *o,
			struct sp_err *err);
/* The counters so far, as totals; what has grown leaves with the next block. */
void sp_spool_put_counters(struct sp_spool_writer *w, const struct sp_counters *c);
/* What a stage said about itself: "counter value" lines. */
int sp_spool_put_stage(struct sp_spool_writer *w, const char *name, const void *text, size_t n,
		       struct sp_err *err);

/* Everything that waits leaves as blocks. */
int sp_spool_flush(struct sp_spool_writer *w, struct sp_err *err);
/* Flush, then the end record. cut: NULL when the input was whole, else what happened to it; the
 * spool then reads as incomplete, with that reason. */
int sp_spool_finish(struct sp_spool_writer *w, const char *cut, struct sp_err *err);

uint64_t sp_spool_written_bytes(const struct sp_spool_writer *w);
uint64_t sp_spool_written_samples(const struct sp_spool_writer *w);

#endif
