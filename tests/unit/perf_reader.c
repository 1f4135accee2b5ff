/* The reader: order within rounds, whole and cut input, compressed data, files, what is no perf. */
#define _GNU_SOURCE
#include "tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "perf_enc.h"
#include "perf/ext.h"
#include "perf/feature.h"
#include "perf/head.h"

static const uint64_t id_a = 11, id_b = 22;

static void head(struct enc *e)
{
	struct sp_attr a = e_plain_attr();
	e_pipe(e);
	e_head_attr(e, &a, 128, &id_a, 1);
	a.config = 9;
	e_head_attr(e, &a, 128, &id_b, 1);
}

static struct sp_reader *open_bytes(const void *data, size_t size, unsigned flags)
{
	struct sp_reader *r = NULL;
	struct sp_err err = {0};
	if (sp_reader_open_bytes(&r, data, size, flags, &err) < 0) {
		tap_ok(false, "the input opens");
		printf("# %s\n", err.msg);
	}
	return r;
}

/* Times of the kernel's records as they are given, as text: "1 2 5". */
static const char *times(struct sp_reader *r)
{
	static char text[400];
	size_t at = 0;
	struct sp_record rec;
	text[0] = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		char one[32] = "";
		if (rec.type == SP_PERF_FINISHED_ROUND)
			snprintf(one, sizeof one, "%sR", at ? " " : "");
		else if (rec.type < SP_PERF_HEADER_ATTR)
			snprintf(one, sizeof one, "%s%llu", at ? " " : "",
				 (unsigned long long)rec.time_ns);
		size_t n = strlen(one);
		if (at + n < sizeof text)
			memcpy(text + at, one, n + 1), at += n;
	}
	return text;
}

static const char *times_of(struct enc *e, unsigned flags, struct sp_counters *c)
{
	struct sp_reader *r = open_bytes(e->b.data, e->b.len, flags);
	const char *text = times(r);
	if (r && c)
		*c = *sp_reader_counters(r);
	sp_reader_close(r);
	return text;
}

/* --- order --- */

static void test_rounds(void)
{
	struct enc e = {0};
	head(&e);
	/* round 1 of two rings, round 2 brings what was older than round 1's newest */
	e_sample(&e, id_a, 10, 1), e_sample(&e, id_a, 30, 1), e_sample(&e, id_b, 20, 1);
	e_round(&e);
	e_sample(&e, id_a, 40, 1), e_sample(&e, id_b, 25, 1), e_sample(&e, id_b, 35, 1);
	e_round(&e);
	e_sample(&e, id_a, 50, 1);
	struct sp_counters c = {0};
	tap_str(times_of(&e, 0, &c), "R 10 20 25 30 R 35 40 50",
		"a round ends what the round before it had reached");
	tap_eq(c.v[SP_C_out_of_order], 0, "nothing of it is out of order");
	tap_str(times_of(&e, SP_READER_UNORDERED, NULL), "10 30 20 R 40 25 35 R 50",
		"unordered reading keeps the input's order");
	e_round(&e);
	e_round(&e);
	e_sample(&e, id_a, 5, 1);
	e_sample(&e, id_a, 60, 1);
	tap_str(times_of(&e, 0, &c), "R 10 20 25 30 R 35 40 R 50 R 5 60",
		"what is later than its round is given when it comes");
	tap_eq(c.v[SP_C_out_of_order], 1, "and counted");
	sp_buf_deinit(&e.b);
}

static void test_equal_times(void)
{
	struct enc e = {0};
	head(&e);
	for (uint64_t i = 0; i < 100; i++)
		e_sample(&e, i % 2 ? id_a : id_b, 7 + i % 3, i);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	struct sp_record rec;
	uint64_t last_time = 0, last_ip = 0, wrong = 0, n = 0, by_id = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		if (rec.type != SP_PERF_SAMPLE)
			continue;
		if (rec.time_ns == last_time && rec.sample.ip < last_ip)
			wrong++;
		wrong += rec.time_ns < last_time;
		last_time = rec.time_ns;
		last_ip = rec.sample.ip;
		by_id += rec.event->index == (rec.sample.ip % 2 ? 0u : 1u);
		n++;
	}
	sp_reader_close(r);
	tap_eq(n, 100, "all samples of equal times are given");
	tap_eq(wrong, 0, "in the order of the input");
	tap_eq(by_id, 100, "each with the event of its id");
	sp_buf_deinit(&e.b);
}

static void test_no_time(void)
{
	struct enc e = {0};
	head(&e);
	e_sample(&e, id_a, 20, 1), e_sample(&e, id_a, 0, 1), e_sample(&e, id_a, UINT64_MAX, 1);
	e_sample(&e, id_a, 10, 1);
	tap_str(times_of(&e, 0, NULL), "0 18446744073709551615 10 20",
		"records without a time come before those that wait");
	sp_buf_deinit(&e.b);
}

/* Records of 60,000 bytes, so that a window is soon full. */
static void big(struct enc *e, uint64_t time)
{
	e_begin(e, SP_PERF_COMM, 0);
	e32(e, 1), e32(e, 1);
	sp_buf_zero(&e->b, 60000);
	e_sid(e, 1, 1, time, 0, id_a);
	e_end(e);
}

static void test_window(void)
{
	struct enc e = {0};
	struct sp_counters c = {0};
	head(&e);
	for (uint64_t i = 0; i < 1000; i++) /* 60 MB */
		big(&e, 1000 + i);
	e_sample(&e, id_a, 999, 1);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	struct sp_record rec;
	uint64_t first = 0;
	while (r && !first && sp_reader_next(r, &rec, NULL) == 1)
		first = rec.time_ns;
	sp_reader_close(r);
	tap_eq(first, 999, "without rounds a record may be late by less than 64 MiB");
	for (uint64_t i = 0; i < 1000; i++)
		big(&e, 3000 + i);
	e_sample(&e, id_a, 998, 1);
	times_of(&e, 0, &c);
	tap_eq(c.v[SP_C_out_of_order], 1, "what is later than that is out of order");
	e_round(&e);
	times_of(&e, 0, &c);
	tap_eq(c.v[SP_C_out_of_order], 0, "unless a round ends further on in the file");
	sp_buf_deinit(&e.b);
}

/* --- ours --- */

static void ext(struct enc *e, enum sp_ext_kind kind, const char *text)
{
	sp_ext_encode(&e->b, kind, 1, text, strlen(text));
}

static void test_ours(void)
{
	struct enc e = {0};
	head(&e);
	ext(&e, SP_EXT_START, "tool=test\nchain=site\n");
	e_comm(&e, id_a, 5, "first");
	e_sample(&e, id_a, 10, 1);
	e_round(&e);
	size_t without_end = e.b.len;
	ext(&e, SP_EXT_END, "status=0\n");
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "5 10 R", "a stream of ours is given as it comes");
	tap_ok(r && sp_reader_info(r)->is_ours, "it is known as ours by its start record");
	tap_ok(r && sp_reader_info(r)->chain_is_site, "and by its form of chains");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_WHOLE, "with its end record it is whole");
	sp_reader_close(r);
	r = open_bytes(e.b.data, without_end, 0);
	times(r);
	tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT, "without its end record it is cut");
	tap_ok(r && strstr(sp_reader_complaint(r), "end record"), "and that is told");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* --- cut --- */

static void test_cut(void)
{
	struct enc e = {0};
	size_t ends[32], n_ends = 0;
	head(&e);
	ends[n_ends++] = 16;
	ends[n_ends++] = 16 + 8 + 128 + 8;
	ends[n_ends++] = e.b.len;
	for (uint64_t i = 0; i < 4; i++) {
		e_sample(&e, id_a, i + 1, 1);
		ends[n_ends++] = e.b.len;
		e_comm(&e, id_b, i + 1, "comm");
		ends[n_ends++] = e.b.len;
	}
	unsigned wrong = 0, refused = 0;
	for (size_t n = 0; n <= e.b.len; n++) {
		struct sp_reader *r = NULL;
		struct sp_err err;
		uint8_t *copy = malloc(n ? n : 1); /* so that a sanitizer sees every step too far */
		if (copy)
			memcpy(copy, e.b.data, n);
		if (sp_reader_open_bytes(&r, copy, n, 0, &err) < 0) {
			refused++;
			free(copy);
			continue;
		}
		size_t whole = 0, got = 0;
		bool boundary = false;
		for (size_t i = 0; i < n_ends; i++) {
			whole += ends[i] <= n;
			boundary |= ends[i] == n;
		}
		struct sp_record rec;
		while (sp_reader_next(r, &rec, NULL) == 1)
			got++;
		wrong += got != whole - 1;
		wrong += sp_reader_state(r) != (boundary ? SP_INPUT_WHOLE : SP_INPUT_CUT);
		wrong += boundary != (sp_reader_complaint(r)[0] == 0);
		sp_reader_close(r);
		free(copy);
	}
	tap_eq(refused, 16, "a stream shorter than its header is refused");
	tap_eq(wrong, 0,
	       "cut at every byte it gives the whole records, and is whole on their bounds");
	sp_buf_deinit(&e.b);
}

static void test_sizes(void)
{
	for (uint16_t size = 0; size < 8; size += 7) {
		struct enc e = {0};
		head(&e);
		e_sample(&e, id_a, 1, 1);
		size_t at = e.b.len;
		e_sample(&e, id_a, 2, 1);
		sp_put16(e.b.data + at + 6, size);
		struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
		tap_str(times(r), "1", "a record of an impossible size ends the reading");
		tap_ok(r && sp_reader_state(r) == SP_INPUT_DAMAGED, "as damage");
		sp_reader_close(r);
		sp_buf_deinit(&e.b);
	}
}

/* --- data behind records --- */

static void test_auxtrace(bool be)
{
	struct enc e = {.be = be};
	struct sp_attr a = e_plain_attr();
	e_pipe(&e);
	e_head_attr(&e, &a, 128, &id_a, 1);
	e_begin(&e, SP_PERF_AUXTRACE, 0);
	e64(&e, 100000), e64(&e, 0), e64(&e, 0), e32(&e, 0), e32(&e, 1), e32(&e, 1), e32(&e, 0);
	e_end(&e);
	sp_buf_zero(&e.b, 100000);
	e_begin(&e, SP_PERF_HEADER_TRACING_DATA, 0);
	e32(&e, 24);
	e_end(&e);
	sp_buf_add(&e.b, "formats of tracepoints..", 24);
	e_begin(&e, 32769, 1); /* simpleperf's kernel symbols: 0x10004 bytes */
	sp_buf_zero(&e.b, 0xfffc);
	e.start = e.b.len - 0xfffc - 8;
	sp_put16(e.b.data + e.start + 6, be ? 0x0400 : 4);
	e_begin(&e, 200, 0); /* of a perf to come */
	e64(&e, 1);
	e_end(&e);
	e_sample(&e, id_a, 1, 1);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "1", "AUX and tracing data are passed over by their true length");
	tap_eq(r ? sp_reader_counters(r)->v[SP_C_skipped_records] : 0, 4, "and counted, as unknown records are");
	size_t n = 0;
	const uint8_t *data = r ? sp_reader_feature(r, SP_FEATURE_TRACING_DATA, &n) : NULL;
	tap_ok(data && n == 24 && !memcmp(data, "formats of tracepoints..", 24),
	       "tracing data is kept as the feature that it is in a file");
	sp_reader_close(r);
	r = open_bytes(e.b.data, 16 + 144 + 48 + 500, 0);
	times(r);
	tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT, "an end inside of them is a cut");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* simpleperf before 2020 put the tracing data into the record, padded to 64 bytes. */
static void test_tracing_inside(bool be)
{
	struct enc e = {.be = be};
	struct sp_attr a = e_plain_attr();
	e_pipe(&e);
	e_head_attr(&e, &a, 128, &id_a, 1);
	e_begin(&e, SP_PERF_HEADER_TRACING_DATA, 0);
	e32(&e, 24);
	sp_buf_add(&e.b, "formats of tracepoints..", 24);
	sp_buf_zero(&e.b, 40);
	e_end(&e);
	e_sample(&e, id_a, 1, 1);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "1", "what follows tracing data inside of its record is read");
	size_t n = 0;
	const uint8_t *data = r ? sp_reader_feature(r, SP_FEATURE_TRACING_DATA, &n) : NULL;
	tap_ok(data && n == 24 && !memcmp(data, "formats of tracepoints..", 24),
	       "and the data is kept");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* --- compressed --- */

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
	tap_ok(strncmp(text, "1 2 3 ", 6) == 0, "damaged compressed data gives what came before");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_DAMAGED, "and is told as damage");
	sp_reader_close(r);
	e.b.len = whole;
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

/* --- names and features --- */

static void put_feature_string(struct enc *e, unsigned feature, const char *s)
{
	e_begin(e, SP_PERF_HEADER_FEATURE, 0);
	e64(e, feature);
	e32(e, 64);
	estr(e, s, 64);
	sp_buf_zero(&e->b, 4);
	e_end(e);
}

static void test_features(bool be)
{
	struct enc e = {.be = be};
	struct sp_attr a = e_plain_attr();
	e_pipe(&e);
	e_head_attr(&e, &a, 64, &id_a, 1);
	a.type = 0;
	e_head_attr(&e, &a, 96, &id_b, 1);
	put_feature_string(&e, SP_FEATURE_HOSTNAME, "a host");
	put_feature_string(&e, SP_FEATURE_ARCH, "s390x");
	e_begin(&e, SP_PERF_HEADER_FEATURE, 0);
	e64(&e, SP_FEATURE_NRCPUS), e32(&e, 8), e32(&e, 6);
	e_end(&e);
	e_begin(&e, SP_PERF_HEADER_FEATURE, 0);
	e64(&e, SP_FEATURE_CLOCK_DATA), e32(&e, 1), e32(&e, 4), e64(&e, 1700000000), e64(&e, 55);
	e_end(&e);
	e_begin(&e, SP_PERF_HEADER_FEATURE, 0);
	e64(&e, SP_FEATURE_CMDLINE), e32(&e, 2);
	e32(&e, 64), estr(&e, "perf", 64), e32(&e, 64), estr(&e, "record", 64);
	sp_buf_zero(&e.b, 4);
	e_end(&e);
	e_begin(&e, SP_PERF_HEADER_FEATURE, 0);
	e64(&e, SP_FEATURE_EVENT_DESC), e32(&e, 2), e32(&e, 128);
	a.type = 1;
	e_attr(&e, &a, 128), e32(&e, 1), e32(&e, 64), estr(&e, "first", 64), e64(&e, id_a);
	e_attr(&e, &a, 128), e32(&e, 1), e32(&e, 64), estr(&e, "second", 64), e64(&e, id_b);
	e_end(&e);
	e_begin(&e, SP_PERF_EVENT_UPDATE, 0);
	e64(&e, 2), e64(&e, id_b), estr(&e, "renamed", 8);
	e_end(&e);
	e_begin(&e, SP_PERF_HEADER_BUILD_ID, SP_MISC_BUILD_ID_SIZE | 2);
	e32(&e, UINT32_MAX), ebytes(&e, "01234567890123456789", 20), e8(&e, 20),
		ebytes(&e, "\0\0", 3);
	estr(&e, "/lib/x.so", 64);
	e_end(&e);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	times(r);
	if (r) {
		const struct sp_perf_info *i = sp_reader_info(r);
		uint8_t len = 0;
		const uint8_t *id = sp_reader_build_id(r, "/lib/x.so", 0, 0, 0, &len);
		tap_str(i->hostname, "a host", "the host's name");
		tap_str(i->arch, "s390x", "the machine");
		tap_str(i->cmdline, "perf record", "the command line");
		tap_eq(i->n_cpus, 8, "the number of processors");
		tap_eq(i->clockid, 4, "the clock");
		tap_eq(i->wall_ns, 1700000000, "the instant on the wall's clock");
		tap_eq(i->clock_ns, 55, "and on the recording's");
		tap_eq(sp_reader_n_events(r), 2, "two events");
		tap_str(sp_reader_event(r, 0)->name, "first", "an event's name from EVENT_DESC");
		tap_str(sp_reader_event(r, 1)->name, "renamed", "and from EVENT_UPDATE");
		tap_eq(sp_get32(sp_reader_event(r, 0)->attr_bytes + 4), 128,
		       "a short attr is filled up to 128 bytes");
		tap_ok(id && len == 20 && memcmp(id, "01234567890123456789", 20) == 0,
		       "a build-id by path");
		tap_ok(!sp_reader_build_id(r, "/lib/y.so", 0, 0, 0, &len), "none of a path without");
	}
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* Names that nobody gave. */
static void test_names(void)
{
	static const struct {
		uint32_t type;
		uint64_t config;
		const char *name;
	} known[] = {{0, 0, "cycles"},
		     {0, 5, "branch-misses"},
		     {1, 0, "cpu-clock"},
		     {1, 2, "page-faults"},
		     {3, 0x10000, "L1-dcache-load-misses"},
		     {3, 2, "LLC-loads"},
		     {4, 0x1a2, "raw 0x1a2"},
		     {0, 0x400000000, "cycles"},
		     {9, 0x3c, "pmu9/0x3c/"},
		     {1, 999, "software 0x3e7"}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct sp_attr a = {.type = known[i].type, .config = known[i].config};
		char name[64];
		sp_attr_name(&a, name, sizeof name);
		tap_str(name, known[i].name, "an event is named by type and config");
	}
}

/* --- files --- */

/* A perf.data file of n samples; data_size UINT64_MAX writes the true one. */
static void put_file(struct enc *e, unsigned n, uint64_t data_size)
{
	struct sp_attr a = e_plain_attr();
	size_t data_at = 104 + 8 + 144;
	ebytes(e, e->be ? "2ELIFREP" : "PERFILE2", 8);
	e64(e, 104), e64(e, 144), e64(e, 112), e64(e, 144);
	size_t size_at = e->b.len + 8;
	e64(e, data_at), e64(e, 0), e64(e, 0), e64(e, 0);
	e64(e, 1u << SP_FEATURE_HOSTNAME), e64(e, 0), e64(e, 0), e64(e, 0);
	e64(e, id_a);
	e_attr(e, &a, 128), e64(e, 104), e64(e, 8);
	for (unsigned i = 0; i < n; i++)
		e_sample(e, id_a, n - i, 1);
	uint64_t size = data_size == UINT64_MAX ? e->b.len - data_at : data_size;
	sp_put64(e->b.data + size_at, e->be ? __builtin_bswap64(size) : size);
	e64(e, e->b.len + 16), e64(e, 68);
	e32(e, 64), estr(e, "filehost", 64);
}

static void test_files(bool be)
{
	struct enc e = {.be = be};
	put_file(&e, 3, UINT64_MAX);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "1 2 3", "a file's records are put in order");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_WHOLE, "a file with its data section is whole");
	tap_str(r ? sp_reader_info(r)->hostname : "", "filehost", "it has its features");
	tap_eq(r ? sp_reader_event(r, 0)->ids[0] : 0, id_a, "and its ids");
	sp_reader_close(r);

	size_t data_end = e.b.len - 16 - 68;
	r = open_bytes(e.b.data, data_end - 10, 0);
	tap_str(times(r), "2 3", "a cut file gives what is whole");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT, "and is cut");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);

	e = (struct enc){.be = be};
	put_file(&e, 3, 0);
	r = open_bytes(e.b.data, e.b.len - 84, 0);
	tap_str(times(r), "1 2 3", "a file whose writer was killed is read to its end");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT, "and is cut");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* The first form of the file: another magic, no features, the names of tracepoints in a table. */
static void test_first_form(bool be)
{
	struct enc e = {.be = be};
	struct sp_attr a = e_plain_attr();
	a.type = 2;
	a.config = 17;
	uint64_t attrs = 72 + 8, types = attrs + 64 + 16, data = types + 72;
	ebytes(&e, "PERFFILE", 8);
	e64(&e, 72), e64(&e, 64 + 16), e64(&e, attrs), e64(&e, 64 + 16), e64(&e, data);
	size_t size_at = e.b.len;
	e64(&e, 0), e64(&e, types), e64(&e, 72), e64(&e, id_a);
	e_attr(&e, &a, 64), e64(&e, 72), e64(&e, 8);
	e64(&e, 17), estr(&e, "old:tracepoint", 64);
	e_sample(&e, id_a, 5, 1);
	uint64_t size = e.b.len - data;
	sp_put64(e.b.data + size_at, be ? __builtin_bswap64(size) : size);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "5", "the first form of perf.data is read");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_WHOLE, "as a whole");
	tap_str(r ? sp_reader_event(r, 0)->name : "", "old:tracepoint", "with its event's name");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
	/* The same name as a record of a pipe. */
	e = (struct enc){.be = be};
	e_pipe(&e);
	e_head_attr(&e, &a, 64, &id_a, 1);
	e_begin(&e, SP_PERF_HEADER_EVENT_TYPE, 0);
	e64(&e, 17), estr(&e, "old:tracepoint", 64);
	e_end(&e);
	e_sample(&e, id_a, 5, 1);
	r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "5", "and an old pipe");
	tap_str(r ? sp_reader_event(r, 0)->name : "", "old:tracepoint", "with its event's name");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* Of a 32-bit machine, whose bits of features are halves of ours, and of a kernel that put no pid
 * into its build-id. */
static void test_old_features(bool be)
{
	struct enc e = {.be = be};
	put_file(&e, 1, UINT64_MAX);
	size_t table = e.b.len - 16 - 68, at = e.b.len;
	for (unsigned i = 0; i < 8; i++) {
		uint32_t bits = i ? 0 : 1u << SP_FEATURE_HOSTNAME | 1u << SP_FEATURE_BUILD_ID;
		sp_put32(e.b.data + 72 + 4 * i, be ? __builtin_bswap32(bits) : bits);
	}
	/* two sections now: BUILD_ID is the lower one */
	struct enc tail = {.be = be};
	e64(&tail, at + 16), e64(&tail, 96);
	e64(&tail, table + 32), e64(&tail, 68);
	e32(&tail, 64), estr(&tail, "filehost", 64);
	e32(&tail, 0), e16(&tail, 1), e16(&tail, 96);
	ebytes(&tail, "01234567890123456789\0\0\0", 24);
	estr(&tail, "[kernel.kallsyms]", 64);
	e.b.len = table;
	ebytes(&e, tail.b.data, tail.b.len);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(times(r), "1", "a file of a 32-bit machine");
	const char *host = r ? sp_reader_info(r)->hostname : NULL;
	tap_str(host ? host : "", "filehost", "has its features");
	uint8_t len = 0;
	const uint8_t *id = r ? sp_reader_build_id(r, "[kernel.kallsyms]", 0, 0, 0, &len) : NULL;
	tap_ok(id && len == 20 && !memcmp(id, "01234567890123456789", 20),
	       "and the kernel's build-id, which has no pid before it");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
	sp_buf_deinit(&tail.b);
}

/* simpleperf tells the names of its events among other strings. */
static void test_simpleperf_names(void)
{
	struct enc e = {0};
	put_file(&e, 1, UINT64_MAX);
	static const char meta[] = "simpleperf_version\0001.0\0event_type_info\0nothing\n"
				   "cpu-clock,1,0\nsched:sched_switch,2,91\0app_type";
	e.b.len -= 16 + 68;
	memset(e.b.data + 72, 0, 32);
	e.b.data[72 + SP_FEATURE_SIMPLEPERF_META / 8] = 1 << SP_FEATURE_SIMPLEPERF_META % 8;
	e64(&e, e.b.len + 16), e64(&e, sizeof meta);
	ebytes(&e, meta, sizeof meta);
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	tap_str(r ? sp_reader_event(r, 0)->name : "", "cpu-clock", "an event's name by simpleperf");
	tap_str(times(r), "1", "and the file is read");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* Through a pipe, in pieces, by another process. */
static void test_pipe(const struct sp_buf *b, const char *want, const char *what, bool is_file)
{
	int fds[2];
	char path[40];
	if (pipe(fds) < 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t at = 0; at < b->len; at += 37)
			if (write(fds[1], b->data + at, b->len - at < 37 ? b->len - at : 37) < 0)
				_exit(1);
		_exit(0);
	}
	close(fds[1]);
	snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
	struct sp_reader *r = NULL;
	struct sp_err err = {0};
	if (sp_reader_open(&r, path, 0, &err) < 0)
		printf("# %s\n", err.msg);
	tap_str(times(r), want, what);
	tap_ok(r && sp_reader_state(r) == SP_INPUT_WHOLE, "and it is whole");
	if (is_file)
		tap_str(r ? sp_reader_info(r)->hostname : "", "filehost",
			"its features are used although they come last");
	sp_reader_close(r);
	close(fds[0]);
	waitpid(pid, NULL, 0);
}

static void test_pipes(void)
{
	struct enc e = {0};
	head(&e);
	for (uint64_t i = 0; i < 5; i++)
		e_sample(&e, id_a, 5 - i, 1);
	test_pipe(&e.b, "1 2 3 4 5", "a stream is read through a pipe", false);
	sp_buf_deinit(&e.b);
	e = (struct enc){0};
	put_file(&e, 4, UINT64_MAX);
	test_pipe(&e.b, "1 2 3 4", "a perf.data file is read through a pipe", true);
	sp_buf_deinit(&e.b);
}

/* Many megabytes through a pipe: held records keep their bytes when chunks are used again. */
static void test_chunks(void)
{
	int fds[2];
	char path[40];
	enum { N = 20000 };
	struct enc e = {0};
	if (pipe(fds) < 0)
		return;
	head(&e);
	ext(&e, SP_EXT_START, "chain=site\n");
	for (uint64_t i = 0; i < N; i++) {
		e_begin(&e, SP_PERF_COMM, 0);
		e32(&e, 1), e32(&e, (uint32_t)i);
		sp_buf_zero(&e.b, 8 * (i % 60));
		estr(&e, "x", 8);
		e_sid(&e, 1, (uint32_t)i, i + 1, 0, id_a);
		e_end(&e);
	}
	ext(&e, SP_EXT_END, "status=0\n");
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t at = 0; at < e.b.len;) {
			ssize_t n = write(fds[1], e.b.data + at, e.b.len - at);
			if (n < 0)
				_exit(1);
			at += (size_t)n;
		}
		_exit(0);
	}
	close(fds[1]);
	snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
	struct sp_reader *r = NULL;
	struct sp_record rec;
	static struct {
		struct sp_chunk *chunk;
		const uint8_t *raw;
		uint32_t tid;
	} held[N / 100];
	uint64_t n = 0, n_held = 0, wrong = 0;
	if (sp_reader_open(&r, path, 0, NULL) < 0)
		r = NULL;
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		if (rec.type != SP_PERF_COMM)
			continue;
		wrong += rec.tid != (int32_t)n;
		if (n % 100 == 0) {
			sp_chunk_hold(sp_reader_chunk(r));
			held[n_held].chunk = sp_reader_chunk(r);
			held[n_held].raw = rec.raw;
			held[n_held++].tid = (uint32_t)n;
		}
		n++;
	}
	for (uint64_t i = 0; i < n_held / 2; i++) {
		wrong += sp_get32(held[i].raw + 12) != held[i].tid;
		sp_chunk_release(held[i].chunk);
	}
	sp_reader_close(r); /* chunks outlive their reader */
	for (uint64_t i = n_held / 2; i < n_held; i++) {
		wrong += sp_get32(held[i].raw + 12) != held[i].tid;
		sp_chunk_release(held[i].chunk);
	}
	tap_eq(n, N, "records across chunks are all there");
	tap_eq(wrong, 0, "and those that are held keep their bytes");
	close(fds[0]);
	waitpid(pid, NULL, 0);
	sp_buf_deinit(&e.b);
}

/* --- the head of a filter's output --- */

static void test_head(void)
{
	struct enc e = {0};
	struct sp_attr a = e_plain_attr();
	a.sample_type |= SP_SAMPLE_REGS_USER | SP_SAMPLE_STACK_USER | SP_SAMPLE_CALLCHAIN;
	a.flags |= SP_ATTR_EXCLUDE_CALLCHAIN_USER;
	a.sample_regs_user = 0xff;
	a.sample_stack_user = 4096;
	e_head_attr(&e, &a, 144, &id_a, 1);
	e_begin(&e, SP_PERF_HEADER_FEATURE, 0);
	e64(&e, SP_FEATURE_EVENT_DESC), e32(&e, 1), e32(&e, 136);
	e_attr(&e, &a, 136), e32(&e, 1), e32(&e, 64), estr(&e, "ev", 64), e64(&e, id_a);
	e_end(&e);
	size_t desc_at = e.start;
	struct sp_buf out = {0};
	struct sp_record rec;
	struct sp_attr got;
	sp_record_parse(&rec, e.b.data, desc_at, NULL, 0, NULL);
	tap_eq(sp_head_rewrite(&out, &rec, SP_HEAD_UNWOUND, NULL), 1, "an attr is rewritten");
	tap_eq(out.len, 8 + 128 + 8, "to 128 bytes and its id");
	tap_eq(sp_get64(out.data + 136), id_a, "which is the same");
	sp_attr_decode(&got, out.data + 8, 128, false, NULL);
	tap_eq(got.size, 128, "its size says so");
	tap_eq(got.sample_type, E_SAMPLE_TYPE | SP_SAMPLE_CALLCHAIN,
	       "it lost registers and stacks");
	tap_eq(got.flags & SP_ATTR_EXCLUDE_CALLCHAIN_USER, 0, "and has user chains");
	tap_eq(got.sample_regs_user | got.sample_stack_user, 0, "and no masks and sizes");
	sp_record_parse(&rec, e.b.data + desc_at, e.b.len - desc_at, NULL, 0, NULL);
	tap_eq(sp_head_rewrite(&out, &rec, SP_HEAD_UNWOUND, NULL), 1, "EVENT_DESC is rewritten");
	sp_attr_decode(&got, out.data + 24, 128, false, NULL);
	tap_eq(got.sample_type, E_SAMPLE_TYPE | SP_SAMPLE_CALLCHAIN, "its copy of the attr too");
	tap_str((const char *)out.data + 24 + 128 + 8, "ev", "it keeps the name");
	tap_eq(sp_get64(out.data + 24 + 128 + 8 + 64), id_a, "and the id");
	sp_buf_deinit(&out);
	sp_buf_deinit(&e.b);
}

static void test_not_perf(void)
{
	static const struct {
		const char *data, *want;
	} odd[] = {{"", "empty"},
		   {"\177ELF\2\1\1\0aaaaaaaaaaaaaaaa", "ELF"},
		   {"\037\213\10\0aaaaaaaaaaaaaaaaa", "gzip"},
		   {"hello, this is a text\n", "text"},
		   {"PERFILE2", "cut"},
		   {"\1\2\3\4\5\6\7\10\1\2\3\4\5\6\7\10\1\2\3\4", "unknown"}};
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		struct sp_reader *r;
		struct sp_err err = {0};
		int rc = sp_reader_open_bytes(&r, odd[i].data, strlen(odd[i].data), 0, &err);
		tap_eq((uint64_t)rc, (uint64_t)SP_ERR_CORRUPT, "what is no recording is refused");
		if (!tap_ok(strstr(err.msg, odd[i].want) != NULL, "with what it looks like"))
			printf("# %s\n", err.msg);
	}
}

int main(void)
{
	test_rounds();
	test_equal_times();
	test_no_time();
	test_window();
	test_ours();
	test_cut();
	test_sizes();
	test_compressed();
	test_bomb();
	for (int be = 0; be < 2; be++) {
		test_auxtrace(be);
		test_tracing_inside(be);
		test_features(be);
		test_files(be);
		test_first_form(be);
		test_old_features(be);
	}
	test_names();
	test_simpleperf_names();
	test_pipes();
	test_chunks();
	test_head();
	test_not_perf();
	return tap_done();
}
