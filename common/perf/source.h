/* The bytes of an input in order: a mapped file, or whatever read() gives, in chunks. */
#ifndef SP_PERF_SOURCE_H
#define SP_PERF_SOURCE_H

#include "base/file.h"
#include "perf/chunk.h"
#include "perf/share.h"
#include "perf/trim.h"
#include "perf/window.h"

struct sp_source {
	bool mapped, ended;
	bool stopped; /* a signal ended it */
	int fd;       /* -1 when mapped */
	bool close_fd;
	char *name;              /* owned; for messages */
	uint64_t pos;            /* offset in the input of `at` */
	uint64_t limit;          /* input ends here whatever follows; UINT64_MAX: at its end */
	const uint8_t *at, *end; /* bytes in hand, in chunk */
	struct sp_chunk *chunk;  /* held */
	struct sp_chunk_pool *pool;
	struct sp_share *share; /* owned; NULL: no memory is offered to the writer */
	struct {                /* what goes on behind the shared bytes that are in hand */
		const uint8_t *at, *end;
		struct sp_chunk *chunk; /* held */
	} behind;
	bool in_share;
	uint64_t n_waits; /* how often there was nothing to read */
	/* What other threads look at, all the time when they have nothing else to do: the reader
	 * writes what stands around for each record, in other cache lines. */
	uint8_t before_window[64];
	struct sp_map_file map;
	struct sp_window window; /* of map */
	uint8_t behind_window[64];
	uint64_t moved_at;       /* where it is to follow */
	const uint8_t *expected; /* frames.c's: where the next large record is, and how many */
	uint32_t n_asked;        /* behind it were asked for */
	void (*wake)(void *ctx); /* or NULL: there is something to do for sp_source_help */
	void *wake_ctx;
	uint64_t rounds[2];      /* where the last rounds began */
	int map_fd; /* owned: of map, or -1 */
	struct sp_trim trim;
	struct sp_chunk map_chunk;
};

/* path NULL or "-": standard input. Regular files are mapped, all else is read. */
int sp_source_open(struct sp_source *s, const char *path, struct sp_chunk_pool *pool,
		   struct sp_err *err);
/* For tests and fuzzers: bytes in memory as if they were a mapped file. */
void sp_source_memory(struct sp_source *s, const void *data, size_t size);
void sp_source_close(struct sp_source *s);
/* Offer memory to the writer of a pipe (share.h), where that can be. */
void sp_source_share(struct sp_source *s);
/* Go on in shared memory, and behind it where the source stands now: false when there is no such
 * place. */
bool sp_source_enter(struct sp_source *s, uint32_t slot, uint32_t offset, uint32_t bytes);

/* Have n bytes (at most 65535 of a pipe) in place at s->at: 1; 0 when the input ends before. */
int sp_source_fill(struct sp_source *s, size_t n, struct sp_err *err);

static inline int sp_source_need(struct sp_source *s, size_t n, struct sp_err *err)
{
	return (size_t)(s->end - s->at) >= n && s->limit - s->pos >= n ? 1
								       : sp_source_fill(s, n, err);
}

static inline void sp_source_take(struct sp_source *s, size_t n)
{
	s->at += n;
	s->pos += n;
}

/* Pass over n bytes: 1, or 0 when the input ends before. */
int sp_source_skip(struct sp_source *s, uint64_t n, struct sp_err *err);

/* A mapped file, at moved_at: its window follows. */
void sp_source_moved(struct sp_source *s);
/* A round ends here: what came before the last two is needed no more. */
void sp_source_round(struct sp_source *s);
/* Any thread: bring in some of what a mapped file's reading will need next. False: there is enough,
 * or it is no such file. */
bool sp_source_help(struct sp_source *s);
/* No record is looked at any more: from now on to help is to let go of what is left. */
void sp_source_done(struct sp_source *s);
/* Whether that is worth a thread's start. */
bool sp_source_wants_help(const struct sp_source *s);

/* Append everything up to input offset `upto` to b; fewer when the input ends. SP_ERR_LIMIT. */
int sp_source_read(struct sp_source *s, uint64_t upto, size_t max, struct sp_buf *b,
		   struct sp_err *err);

#endif
