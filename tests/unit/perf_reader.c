/* The reader: order within rounds, whole and cut input, data behind records, names and features,
 * what is no perf. */
#define _GNU_SOURCE
#include "perf_read.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/feature.h"
#include "perf/head.h"

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
	tap_str(times_of(&e, 0, NULL), "0 0 10 20",
		"records without a time come before those that wait");
	sp_buf_deinit(&e.b);
}

/* A sample that ends after n words of its body; whole ones have 6. */
static void cut_sample(struct enc *e, uint64_t time, unsigned n)
{
	const uint64_t words[] = {id_a, 77, UINT64_C(101) << 32 | 100, time, 3, 1000};
	e_begin(e, SP_PERF_SAMPLE, 2);
	for (unsigned i = 0; i < n; i++)
		e64(e, words[i]);
	e_end(e);
}

/* All samples of a late reader, decoded after the last was given: as text like times(). Of those
 * that are malformed it is told from the last to the first. */
static const char *late_times(struct sp_reader *r)
{
	static char text[400];
	static struct sp_late late[32];
	size_t n = 0, at = 0, known = 0;
	struct sp_record rec;
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		known += rec.malformed;
		if (rec.is_late && n < 32) {
			late[n++] = rec.late;
			at += (size_t)snprintf(text + at, sizeof text - at, "%s%llu/%d", at ? " " : "",
					       (unsigned long long)rec.time_ns, rec.pid);
		}
	}
	at += (size_t)snprintf(text + at, sizeof text - at, ", %zu known to be bad;", known);
	for (size_t i = n; i-- > 0;) {
		bool good = sp_late_decode(&rec, &late[i]);
		if (!good)
			sp_reader_reject(r, &late[i]);
		at += (size_t)snprintf(text + at, sizeof text - at, " %llu",
				       good ? (unsigned long long)rec.sample.ip : 0);
	}
	return text;
}

static void test_late(void)
{
	for (int round = 0; round < 2; round++) {
		struct enc e = {0};
		head_one(&e);
		e_sample(&e, id_a, 20, 5), cut_sample(&e, 40, 5), cut_sample(&e, 30, 4);
		e_sample(&e, id_a, 10, 6), cut_sample(&e, 35, 6);
		if (round) /* a complaint of the reader's own before all of them are given */
			cut_sample(&e, 0, 3);
		struct sp_reader *whole = open_bytes(e.b.data, e.b.len, 0);
		struct sp_reader *late = open_bytes(e.b.data, e.b.len, SP_READER_LATE);
		times(whole);
		tap_str(late_times(late),
			round ? "10/100 20/100 30/100 35/100 40/100, 1 known to be bad; 0 77 0 5 6"
			      : "10/100 20/100 30/100 35/100 40/100, 0 known to be bad; 0 77 0 5 6",
			"late samples are in order, and decoded by whoever has them");
		tap_ok(sp_reader_state(whole) == SP_INPUT_DAMAGED &&
			       sp_reader_state(late) == SP_INPUT_DAMAGED,
		       "of a malformed one the reader is told");
		tap_str(sp_reader_complaint(late), sp_reader_complaint(whole),
			"the complaint is of the one that was given first");
		sp_reader_close(whole);
		sp_reader_close(late);
		sp_buf_deinit(&e.b);
	}
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
	e_ext(&e->b, kind, 1, text, strlen(text));
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
	head_one(&e);
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
	head_one(&e);
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

/* A name by its config is compared with every event: many of both would take for ever. */
static void test_many_names(void)
{
	struct enc e = {0};
	struct sp_attr a = e_plain_attr();
	a.type = 2;
	a.config = 7;
	e_pipe(&e);
	for (uint64_t id = 1; id <= 4096; id++)
		e_head_attr(&e, &a, 128, &id, 1);
	for (unsigned i = 0; i < 2000; i++) {
		char name[32];
		snprintf(name, sizeof name, "name %u", i);
		e_begin(&e, SP_PERF_HEADER_EVENT_TYPE, 0);
		e64(&e, 7);
		estr(&e, name, 8);
		e_end(&e);
	}
	struct sp_reader *r = open_bytes(e.b.data, e.b.len, 0);
	struct sp_record rec;
	while (r && sp_reader_next(r, &rec, NULL) == 1)
		;
	tap_str(r ? sp_reader_event(r, 4095)->name : "", "name 1024",
		"of 4,096 events' names of one config the first 4 million are looked at");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* --- memory --- */

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
	test_late();
	test_window();
	test_ours();
	test_cut();
	test_sizes();
	for (int be = 0; be < 2; be++) {
		test_auxtrace(be);
		test_tracing_inside(be);
		test_features(be);
	}
	test_names();
	test_many_names();
	test_chunks();
	test_head();
	test_not_perf();
	return tap_done();
}
