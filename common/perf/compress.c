#include "perf/compress.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

struct sp_decomp {
	ZSTD_DStream *zstd; /* owned */
	struct sp_chunk_pool *pool;
	struct sp_chunk *chunk; /* held */
	uint8_t *at, *end;      /* output not yet taken, in chunk */
	ZSTD_inBuffer in;
	uint64_t made, limit; /* output of the current record */
	bool pending;         /* zstd may hold output although its input is used up */
};

struct sp_decomp *sp_decomp_new(struct sp_chunk_pool *pool)
{
	struct sp_decomp *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->pool = pool;
	d->zstd = ZSTD_createDStream();
	if (!d->zstd || ZSTD_isError(ZSTD_initDStream(d->zstd)) ||
	    /* perf's streams are made with windows up to level 22's 128 MiB */
	    ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, 27))) {
		sp_decomp_free(d);
		return NULL;
	}
	return d;
}

void sp_decomp_free(struct sp_decomp *d)
{
	if (!d)
		return;
	ZSTD_freeDStream(d->zstd);
	sp_chunk_release(d->chunk);
	free(d);
}

void sp_decomp_feed(struct sp_decomp *d, const uint8_t *data, size_t size, uint64_t limit)
{
	d->in = (ZSTD_inBuffer){.src = data, .size = size};
	d->made = 0;
	d->limit = limit;
	d->pending = false;
}

size_t sp_decomp_rest(const struct sp_decomp *d)
{
	return (size_t)(d->end - d->at);
}

void sp_decomp_take(struct sp_decomp *d, size_t n)
{
	d->at += n;
}

/* A fresh chunk that begins with what was not yet taken. */
static int next_chunk(struct sp_decomp *d, struct sp_err *err)
{
	struct sp_chunk *c = sp_chunk_get(d->pool);
	if (!c)
		return sp_err_nomem(err);
	size_t rest = sp_decomp_rest(d);
	if (rest)
		memcpy(c->data, d->at, rest);
	sp_chunk_release(d->chunk);
	d->chunk = c;
	d->at = c->data;
	d->end = c->data + rest;
	return 0;
}

int sp_decomp_peek(struct sp_decomp *d, size_t n, const uint8_t **data, struct sp_chunk **chunk,
		   struct sp_err *err)
{
	while (sp_decomp_rest(d) < n) {
		if (d->in.pos == d->in.size && !d->pending)
			return 0;
		size_t room = d->chunk ? (size_t)(d->chunk->data + SP_CHUNK_BYTES - d->end) : 0;
		if (room < SP_CHUNK_HEADROOM) {
			int rc = next_chunk(d, err);
			if (rc < 0)
				return rc;
			room = (size_t)(d->chunk->data + SP_CHUNK_BYTES - d->end);
		}
		ZSTD_outBuffer out = {.dst = d->end, .size = room};
		size_t rc = ZSTD_decompressStream(d->zstd, &out, &d->in);
		if (ZSTD_isError(rc))
			return sp_err_set(err, SP_ERR_CORRUPT, 0, "zstd says: %s",
					  ZSTD_getErrorName(rc));
		d->pending = out.pos == out.size; /* full: there may be more */
		d->end += out.pos;
		d->made += out.pos;
		if (d->made > d->limit)
			return sp_err_set(err, SP_ERR_LIMIT, 0,
					  "it expands to more than %llu bytes",
					  (unsigned long long)d->limit);
	}
	*data = d->at;
	*chunk = d->chunk;
	return 1;
}
