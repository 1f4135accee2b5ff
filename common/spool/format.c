#include "spool/format.h"

#include <libdeflate.h>
#include <stdlib.h>

uint32_t sp_spool_crc(const void *data, size_t n)
{
	return libdeflate_crc32(0, data, n);
}

void sp_block_encode(uint8_t out[SP_SPOOL_BLOCK_HEAD], const struct sp_block *b)
{
	sp_put32(out, SP_SPOOL_BLOCK_MARK);
	out[4] = b->type;
	out[5] = b->flags;
	sp_put16(out + 6, 0);
	sp_put32(out + 8, b->stored);
	sp_put32(out + 12, b->raw);
	sp_put32(out + 16, b->seq);
	sp_put32(out + 20, b->salt);
	sp_put32(out + 24, b->crc);
	sp_put32(out + 28, sp_spool_crc(out, 28));
}

bool sp_block_decode(struct sp_block *b, const uint8_t in[SP_SPOOL_BLOCK_HEAD])
{
	if (sp_get32(in) != SP_SPOOL_BLOCK_MARK || sp_get32(in + 28) != sp_spool_crc(in, 28))
		return false;
	struct sp_block out = {
		.type = in[4],
		.flags = in[5],
		.stored = sp_get32(in + 8),
		.raw = sp_get32(in + 12),
		.seq = sp_get32(in + 16),
		.salt = sp_get32(in + 20),
		.crc = sp_get32(in + 24),
	};
	/* The writer stores what zstd does not shrink as it is, so stored is never the larger. */
	if (out.raw > SP_SPOOL_RAW_MAX || out.stored > out.raw ||
	    out.raw > SP_SPOOL_RATIO(out.stored))
		return false;
	*b = out;
	return true;
}

void sp_spool_head_encode(uint8_t out[SP_SPOOL_FILE_HEAD], uint64_t salt)
{
	memset(out, 0, SP_SPOOL_FILE_HEAD);
	memcpy(out, SP_SPOOL_MAGIC, 8);
	sp_put16(out + 8, SP_SPOOL_VERSION);
	sp_put16(out + 10, SP_SPOOL_FILE_HEAD);
	sp_put64(out + 16, salt);
	sp_put32(out + 28, sp_spool_crc(out, 28));
}

int sp_spool_head_decode(const uint8_t in[SP_SPOOL_FILE_HEAD], uint64_t *salt, struct sp_err *err)
{
	if (memcmp(in, SP_SPOOL_MAGIC, 8) != 0)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "not a spool");
	if (sp_get32(in + 28) != sp_spool_crc(in, 28))
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "the file header at offset 0 is damaged (checksum)");
	if (sp_get16(in + 8) != SP_SPOOL_VERSION)
		return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
				  "spool version %u; this program reads version %u",
				  sp_get16(in + 8), SP_SPOOL_VERSION);
	*salt = sp_get64(in + 16);
	return 0;
}

void sp_col_out_deinit(struct sp_col_out *c)
{
	free(c->v);
	*c = (struct sp_col_out){0};
}

static uint8_t *col_head(struct sp_buf *out, unsigned id, unsigned width, size_t bytes)
{
	uint8_t *p = sp_buf_zero(out, 6 + bytes);
	if (!p)
		return NULL;
	p[0] = (uint8_t)id;
	p[1] = (uint8_t)width;
	sp_put32(p + 2, (uint32_t)bytes);
	return p + 6;
}

void sp_col_flush(struct sp_buf *out, unsigned id, struct sp_col_out *c)
{
	uint64_t all = 0;
	for (size_t i = 0; i < c->n; i++)
		all |= c->v[i];
	unsigned width = all ? (unsigned)(71 - __builtin_clzll(all)) / 8 : 0;
	uint8_t *p = width ? col_head(out, id, width, width * c->n) : NULL;
	for (unsigned plane = 0; p && plane < width; plane++, p += c->n)
		for (size_t i = 0; i < c->n; i++)
			p[i] = (uint8_t)(c->v[i] >> 8 * plane);
	if (c->failed)
		out->failed = true;
	c->n = 0;
	c->failed = false;
}

void sp_col_bytes(struct sp_buf *out, unsigned id, const void *data, size_t n)
{
	uint8_t *p = n ? col_head(out, id, 0, n) : NULL;
	if (p)
		memcpy(p, data, n);
}

void sp_col_u64(struct sp_buf *out, unsigned id, uint64_t v)
{
	uint8_t *p = v ? col_head(out, id, 8, 8) : NULL;
	if (p)
		sp_put64(p, v);
}

bool sp_cols_parse(struct sp_cols *cols, const uint8_t *payload, size_t n)
{
	memset(cols, 0, sizeof *cols);
	int last = -1;
	while (n) {
		if (n < 6)
			return false;
		unsigned id = payload[0], width = payload[1];
		size_t bytes = sp_get32(payload + 2);
		if (width > 8 || bytes > n - 6 || (int)id <= last || (width && bytes % width))
			return false;
		cols->c[id] = (struct sp_col){
			.p = payload + 6,
			.n = (uint32_t)(bytes / (width ? width : 1)),
			.width = (uint8_t)width,
		};
		last = (int)id;
		payload += 6 + bytes;
		n -= 6 + bytes;
	}
	return true;
}

const uint8_t *sp_cols_bytes(const struct sp_cols *cols, unsigned id, size_t *n)
{
	const struct sp_col *c = &cols->c[id];
	static const uint8_t none;
	*n = c->width == 0 ? c->n : 0;
	return *n ? c->p : &none;
}

uint64_t sp_cols_u64(const struct sp_cols *cols, unsigned id)
{
	struct sp_col c = cols->c[id];
	return c.width && c.n == 1 ? sp_col_next(&c) : 0;
}
