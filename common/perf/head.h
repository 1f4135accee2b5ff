/* The head of a filter's output, made from that of its input (stream.md, "What a stream of ours
 * contains"): attrs with their ids, features, names of events, build-ids.
 *
 * A filter whose input is a stream gets the head as records: it gives each to sp_head_rewrite and
 * writes what comes out. One whose input is a file (sp_perf_info.is_pipe false) gets none, and
 * calls sp_head_write once before its first record. Its own start record follows. */
#ifndef SP_PERF_HEAD_H
#define SP_PERF_HEAD_H

#include "perf/reader.h"
#include "perf/writer.h"

enum sp_head_flag {
	SP_HEAD_UNWOUND = 1, /* samples lose user registers and stacks, and gain user chains */
};

/* sp_writer_begin and the whole head from what the reader knows. */
int sp_head_write(struct sp_writer *w, const struct sp_reader *r, unsigned flags,
		  struct sp_err *err);

/* What a TRACING_DATA record stands for (reader.h): to be called in place of passing it on. */
int sp_head_tracing_data(struct sp_writer *w, const struct sp_reader *r, struct sp_err *err);

/* One record of the head. 1: *out (emptied first) holds what to write in its place, with attr.size
 * 128 and the flags applied to attrs and to EVENT_DESC's copies; 2: it must be left out (what it
 * says does not hold for the output, such as COMPRESSED); 0: pass it on as it is. */
int sp_head_rewrite(struct sp_buf *out, const struct sp_record *rec, unsigned flags,
		    struct sp_err *err);

#endif
