/* Shared by reader.c (order, what is known) and frames.c (records in input order). */
#ifndef SP_PERF_READER_PRIV_H
#define SP_PERF_READER_PRIV_H

#include "perf/compress.h"
#include "perf/events.h"
#include "perf/file_header.h"
#include "perf/order.h"
#include "perf/source.h"

#define HEAD_BYTES_MAX ((size_t)64 << 20) /* of a file that comes through a pipe */

/* One record's bytes, wherever they come from. */
struct frame {
	const uint8_t *raw; /* header in the input's byte order until native() */
	size_t size;
	size_t whole; /* of one that is trimmed: its size in the file */
	uint64_t pos;
	struct sp_chunk *chunk;
};

/* A file, or one of those in the folder that perf record --threads leaves. */
struct part {
	struct sp_source src;
	struct sp_decomp *decomp; /* owned; made by the first compressed record */
	bool expanding, decomp_broken;
	uint64_t expanding_pos;
	uint64_t passing; /* bytes of what is expanded that belong to no record */
	/* of a folder: its next record, whose chunk is held */
	bool has_head, ended;
	struct frame head;
	uint64_t head_time; /* 0: it goes before all that have one */
};

struct sp_reader {
	struct part main; /* has header, attributes and features */
	struct part *in;  /* the one that is read */
	struct part **parts; /* owned, with all but the first, which is main; NULL: no folder */
	size_t n_parts;
	struct sp_chunk *lent; /* held: of the record that a folder's merge gave last */
	struct sp_chunk_pool *pool; /* owned */
	struct sp_events ev;
	struct sp_file_layout layout;
	struct sp_counters counters;
	unsigned flags;
	bool file_on_pipe;

	uint8_t tracing_head[SP_TRACING_HEAD_BYTES]; /* the record just given */

	struct sp_chunk *swap_chunk; /* held; copies in native order */
	size_t swap_used;

	struct sp_order order;
	bool rounds_seen, looked_ahead;
	bool flushing, flush_all; /* giving out the queue: up to flush_limit, or all */
	uint64_t flush_limit, next_limit, max_time, given_time;
	struct frame round; /* the FINISHED_ROUND that comes after the flush */

	struct sp_chunk *cur; /* of the record just given */
	bool cur_held;        /* released by the next call */
	bool kernel_record_seen, end_seen;
	uint64_t n_given; /* records */
	enum sp_input_state state;
	char complaint[300];
	uint64_t complaint_seq; /* n_given when it came */
	int pending_rc; /* a failure, told after the queue is empty */
	struct sp_err pending;
};

/* The first complaint is kept; damage outweighs a cut. */
void sp_reader_complain(struct sp_reader *r, enum sp_input_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The features of a perf.data file, of which part is there; that some are not is told. */
void sp_reader_features(struct sp_reader *r, const struct sp_file_part *part);

/* The input ends here, whether it should or not. */
void sp_reader_input_ended(struct sp_reader *r);

/* A record's size and type as its header says, in the input's byte order. */
size_t sp_reader_frame_size(const struct sp_reader *r, const uint8_t *header);
uint32_t sp_reader_frame_type(const struct sp_reader *r, const uint8_t *header);

/* The next record in input order, expanded and native: 1, 0 at the end, or an error. Of a folder:
 * the earliest of those that its files have next. */
int sp_reader_frame(struct sp_reader *r, struct frame *f, struct sp_err *err);
/* The same of the file that is read. */
int sp_reader_part_frame(struct sp_reader *r, struct frame *f, struct sp_err *err);

/* folder.c: opens all files of a folder. */
int sp_reader_open_folder(struct sp_reader *r, const char *path, struct sp_err *err);
int sp_reader_merged_frame(struct sp_reader *r, struct frame *f, struct sp_err *err);
void sp_reader_close_folder(struct sp_reader *r);

#endif
