/* The reader: compressed records, of both kinds, damaged ones, and those that expand too far. */
#include "perf_read.h"

#include <zstd.h>

#include "perf/feature.h"

/* inner, compressed as one stream, in records of at most part bytes. */
static void put_compressed(struct enc *e, const struct sp_buf *inner, size_t part, uint32_t type)
{
	ZSTD_CCtx *z = ZSTD_createCCtx();
	uint8_t out[60000];
	size_t at = 0;
	while (at < inner->len) {
		size_t n = inner->len - at < part ? inner->len - at : part;
		ZSTD_inBuffer in = {inner->data + at, n, 0};
		ZSTD_outBuffer o = {out, sizeof out, 0};
		ZSTD_compressStream2(z, &o, &in, ZSTD_e_flush);
		e_begin(e, type, 0);
		if (type == SP_PERF_COMPRESSED2)
			e64(e, o.pos);
		ebytes(e, out, o.pos);
		if (type == SP_PERF_COMPRESSED2)
			sp_buf_zero(&e->b, (8 - o.pos % 8) % 8);
		e_end(e);
		at += n;
	}
	ZSTD_freeCCtx(z);
}

static void test_compressed(void)
{
	struct enc inner = {0};
	for (uint64_t i = 0; i < 2000; i++)
		e_sample(&inner, id_a, i + 1, i * 77);
	static const size_t parts[] = {13, 1000, 100000};
	for (size_t k = 0; k < 6; k++) {
		struct enc e = {0};
		head(&e);
		put_compressed(&e, &inner.b, parts[k / 2],
			       k % 2 ? SP_PERF_COMPRESSED2 : SP_PERF_COMPRESSED);
		e_round(&e);
		struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
		struct sp_record rec;
		uint64_t n = 0, wrong = 0;
		while (r && sp_reader_next(r, &rec, NULL) == 1)
			if (rec.type == SP_PERF_SAMPLE) {
				wrong += rec.sample.ip != n * 77 || rec.time_ns != n + 1;
				n++;
			}
		tap_eq(n, 2000, "records are expanded across compressed ones of any size");
		tap_eq(wrong, 0, "with their values");
		tap_ok(r && sp_reader_state(r) == SP_INPUT_WHOLE, "and the stream is whole");
		sp_reader_close(r);
		sp_buf_deinit(&e.b);
	}
	/* More than a chunk of memory: records that lie across its end. */
	struct enc e = {0};
	size_t each = inner.b.len / 2000;
	while (inner.b.len < (5u << 20))
		e_sample(&inner, id_a, inner.b.len, inner.b.len);
	head(&e);
	put_compressed(&e, &inner.b, 49999, SP_PERF_COMPRESSED);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, SP_READER_UNORDERED);
	struct sp_record rec;
	uint64_t n = 0, wrong = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1)
		if (rec.type == SP_PERF_SAMPLE && n++ >= 2000)
			wrong += rec.sample.ip != (n - 1) * rec.size || rec.time_ns != rec.sample.ip;
	tap_eq(n, inner.b.len / each, "records are expanded beyond a chunk of memory");
	tap_eq(wrong, 0, "those across its end too");
	sp_reader_close(r);
	e.b.len = 0;
	inner.b.len = 2000 * each;
	head(&e);
	put_compressed(&e, &inner.b, 1000, SP_PERF_COMPRESSED);
	size_t whole = e.b.len;
	e.b.data[e.b.len / 2] ^= 0xff;
	memset(e.b.data + e.b.len / 2 + 8, 0xa5, 12);
	e_sample(&e, id_a, 9999, 1);
	r = open_bytes(e.b.data, e.b.len, 0);
	const char *text = times(r);
	tap_ok(memcmp(text, "1 2 3 ", 6) == 0, "damaged compressed data gives what came before");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_DAMAGED, "and is told as damage");
	sp_reader_close(r);
	e.b.len = 0;
	head(&e);
	whole = e.b.len;
	put_compressed(&e, &inner.b, 1001, SP_PERF_COMPRESSED);
	e.b.len = whole + sp_get16(e.b.data + whole + 6); /* the first one alone */
	char where[32];
	snprintf(where, sizeof where, "offset %zu", whole);
	r = open_bytes(e.b.data, e.b.len, 0);
	times(r);
	tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT && strstr(sp_reader_complaint(r), where),
	       "a cut between compressed records, inside of what they hold, is told with its offset");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
	sp_buf_deinit(&inner.b);
}

/* simpleperf -z compresses its own records too, some of which are longer than a record can be. */
static void test_simpleperf(void)
{
	struct enc e = {0}, inner = {0};
	e_sample(&inner, id_a, 1, 1);
	e_begin(&inner, 32769, 2); /* 0x20010 bytes */
	sp_put16(inner.b.data + inner.start + 6, 16);
	sp_buf_zero(&inner.b, 0x20008);
	e_sample(&inner, id_a, 2, 1);
	for (size_t cut = 0; cut < 2; cut++) {
		e.b.len = 0;
		head(&e);
		size_t whole = inner.b.len;
		inner.b.len -= cut * 100; /* inside of the long one */
		put_compressed(&e, &inner.b, 30000, SP_PERF_COMPRESSED);
		inner.b.len = whole;
		struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
		tap_str(times(r), cut ? "1" : "1 2", "a long record of simpleperf's is passed over");
		tap_eq(r ? sp_reader_counters(r)->v[SP_C_skipped_records] : 0, 1, "and counted");
		tap_eq(r ? sp_reader_state(r) : 0, cut ? SP_INPUT_CUT : SP_INPUT_WHOLE,
		       "it is whole, or cut");
		sp_reader_close(r);
	}
	sp_buf_deinit(&e.b);
	sp_buf_deinit(&inner.b);
}

/* 64 KiB of compressed zeros would expand to gigabytes. */
static void test_bomb(void)
{
	struct enc e = {0};
	struct sp_buf zeros = {0};
	head(&e);
	sp_buf_zero(&zeros, (size_t)80 << 20);
	for (size_t at = 0; at + 64 <= zeros.len; at += 64) { /* records that mean nothing */
		sp_put32(zeros.data + at, SP_PERF_FINISHED_INIT);
		sp_put16(zeros.data + at + 6, 64);
	}
	put_compressed(&e, &zeros, zeros.len, SP_PERF_COMPRESSED);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	struct sp_record rec;
	uint64_t n = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1)
		n++;
	tap_ok(n <= (64u << 20) / 64 + 2, "one compressed record expands to 64 MiB at most");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_DAMAGED &&
		       strstr(sp_reader_complaint(r), "expands"),
	       "and that is told");
	sp_reader_close(r);
	/* Rings of 128 MiB, which the feature tells, give as much. */
	e.b.len = 0;
	head(&e);
	e_begin(&e, SP_PERF_HEADER_FEATURE, 0);
	e64(&e, SP_FEATURE_COMPRESSED), e32(&e, 1), e32(&e, 1), e32(&e, 1), e32(&e, 1000),
		e32(&e, 128u << 20), e32(&e, 0);
	e_end(&e);
	put_compressed(&e, &zeros, zeros.len, SP_PERF_COMPRESSED);
	r = open_bytes(e.b.data, e.b.len, 0);
	for (n = 0; r && sp_reader_next(r, &rec, NULL) == 1;)
		n += rec.type == SP_PERF_FINISHED_INIT;
	tap_eq(n, (80u << 20) / 64, "and to the ring's size where that is known to be larger");
	sp_reader_close(r);
	sp_buf_deinit(&zeros);
	sp_buf_deinit(&e.b);
}

int main(void)
{
	test_compressed();
	test_simpleperf();
	test_bomb();
	return tap_done();
}
