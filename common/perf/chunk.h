/* Pieces of memory that records point into: counted references, recycled through a pool that lives
 * until its last chunk is back. */
#ifndef SP_PERF_CHUNK_H
#define SP_PERF_CHUNK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/reader.h"

/* Bytes of a chunk: one read of 1 MiB behind room for a record that began in the chunk before. */
#define SP_CHUNK_HEADROOM ((size_t)65536)
#define SP_CHUNK_BYTES (SP_CHUNK_HEADROOM + ((size_t)1 << 20))

struct sp_chunk_pool;

struct sp_chunk {
	_Atomic uint32_t refs;
	uint32_t n_queued;          /* the reader's own: entries of its queue that lie here */
	struct sp_chunk_pool *pool; /* NULL: other memory, freed by its owner */
	struct sp_chunk *next;      /* in the pool's free list */
	uint8_t *data;              /* of the pool: SP_CHUNK_BYTES, page-aligned */
	void (*gone)(struct sp_chunk *c); /* without a pool: called with the last reference, or NULL */
};

struct sp_chunk_pool *sp_chunk_pool_new(void);
/* The pool goes when its last chunk is released. */
void sp_chunk_pool_close(struct sp_chunk_pool *p);
/* A chunk with one reference, or NULL when memory ends. */
struct sp_chunk *sp_chunk_get(struct sp_chunk_pool *p);

#endif
