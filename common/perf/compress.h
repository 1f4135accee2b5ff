/* COMPRESSED and COMPRESSED2 records: one zstd stream through all of them, whose output is again
 * records, cut anywhere. */
#ifndef SP_PERF_COMPRESS_H
#define SP_PERF_COMPRESS_H

#include "base/err.h"
#include "perf/chunk.h"

struct sp_decomp;

struct sp_decomp *sp_decomp_new(struct sp_chunk_pool *pool);
void sp_decomp_free(struct sp_decomp *d);

/* Give it one record's compressed bytes, which must stay until it has been emptied. It may expand
 * to at most limit bytes. */
void sp_decomp_feed(struct sp_decomp *d, const uint8_t *data, size_t size, uint64_t limit);

/* The next n bytes of output in place, in *chunk: 1; 0 when the input given so far does not make
 * them; SP_ERR_CORRUPT, SP_ERR_LIMIT. They stand until sp_decomp_take takes them. n is at most
 * 65535. */
int sp_decomp_peek(struct sp_decomp *d, size_t n, const uint8_t **data, struct sp_chunk **chunk,
		   struct sp_err *err);
void sp_decomp_take(struct sp_decomp *d, size_t n);

/* Bytes of an unfinished record that wait for more input. */
size_t sp_decomp_rest(const struct sp_decomp *d);

#endif
