/* From a file to its blocks, whatever happened to it. */
#define _GNU_SOURCE
#include "spool/load.h"

#include <errno.h>
#include <unistd.h>

/* Exactly n bytes at an offset: 1; 0 when the file is shorter than that. */
static int read_at(struct sp_scan *s, void *out, size_t n, uint64_t at, struct sp_err *err)
{
	uint8_t *p = out;
	while (n) {
		ssize_t got = pread(s->fd, p, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return sp_err_set(err, SP_ERR_IO, errno, "cannot read the spool: %s",
					  strerror(errno));
		if (got == 0)
			return 0;
		p += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 1;
}

static bool is_ours(const struct sp_scan *s, const struct sp_block *b)
{
	return !s->salt_known || b->salt == (uint32_t)s->salt;
}

/* Behind damage: the next offset with a sound block header of this file, or the end. */
static int resync(struct sp_scan *s, uint64_t from, struct sp_err *err)
{
	uint8_t window[65536];
	for (uint64_t at = from; at < s->size;) {
		size_t n = s->size - at < sizeof window ? (size_t)(s->size - at) : sizeof window;
		int rc = read_at(s, window, n, at, err);
		if (rc < 0)
			return rc;
		if (rc == 0 || n < SP_SPOOL_BLOCK_HEAD)
			break;
		for (size_t i = 0; i + SP_SPOOL_BLOCK_HEAD <= n; i++) {
			struct sp_block b;
			if (sp_get32(window + i) == SP_SPOOL_BLOCK_MARK &&
			    sp_block_decode(&b, window + i) && is_ours(s, &b)) {
				s->at = at + i;
				return 0;
			}
		}
		at += n - (SP_SPOOL_BLOCK_HEAD - 1);
		if (n < sizeof window)
			break;
	}
	s->at = s->size;
	return 0;
}

static int bad(struct sp_scan *s, uint64_t from, const char **why, const char *text,
	       struct sp_err *err)
{
	*why = text;
	int rc = resync(s, from, err);
	return rc < 0 ? rc : SP_SCAN_BAD;
}

int sp_scan_next(struct sp_scan *s, struct sp_block *b, uint64_t *at, const uint8_t **payload,
		 const char **why, struct sp_err *err)
{
	uint8_t head[SP_SPOOL_BLOCK_HEAD];
	*at = s->at;
	if (s->at >= s->size)
		return SP_SCAN_END;
	if (s->size - s->at < sizeof head)
		return SP_SCAN_TAIL;
	int rc = read_at(s, head, sizeof head, s->at, err);
	if (rc <= 0)
		return rc < 0 ? rc : SP_SCAN_TAIL;
	if (!sp_block_decode(b, head) || !is_ours(s, b))
		return bad(s, s->at + 1, why, "the header of a block is damaged", err);
	uint64_t body = s->at + sizeof head;
	if (b->stored > s->size - body)
		return SP_SCAN_TAIL;
	s->stored.len = s->raw.len = 0;
	if (!sp_buf_reserve(&s->stored, b->stored + 1) || !sp_buf_reserve(&s->raw, b->raw + 1))
		return sp_err_nomem(err);
	rc = read_at(s, s->stored.data, b->stored, body, err);
	if (rc <= 0)
		return rc < 0 ? rc : SP_SCAN_TAIL;
	if (sp_spool_crc(s->stored.data, b->stored) != b->crc)
		return bad(s, body + b->stored, why, "the payload of a block is damaged", err);
	*payload = s->stored.data;
	if (b->flags & SP_BLOCK_ZSTD) {
		size_t n = ZSTD_decompressDCtx(s->zstd, s->raw.data, b->raw, s->stored.data,
					       b->stored);
		if (ZSTD_isError(n) || n != b->raw)
			return bad(s, body + b->stored, why, "a block does not decompress", err);
		*payload = s->raw.data;
	} else if (b->stored != b->raw) {
		return bad(s, body + b->stored, why, "a block contradicts its lengths", err);
	}
	s->at = body + b->stored;
	if (!s->salt_known) {
		s->salt = b->salt;
		s->salt_known = true;
	}
	return SP_SCAN_BLOCK;
}

void sp_scan_deinit(struct sp_scan *s)
{
	if (s->fd >= 0)
		close(s->fd);
	ZSTD_freeDCtx(s->zstd);
	sp_buf_deinit(&s->stored);
	sp_buf_deinit(&s->raw);
}
