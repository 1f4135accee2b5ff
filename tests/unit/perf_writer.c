/* The writer: streams and files that our reader gets back by value (tests/stream.bats has perf's
 * own reading), and our own records, whole and in fragments. */
#define _GNU_SOURCE
#include "tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf_enc.h"
#include "perf/ext.h"
#include "perf/feature.h"
#include "perf/reader.h"

static struct sp_err err;

static int fresh_file(void)
{
	char name[] = "/tmp/sp-writer-XXXXXX";
	int fd = mkstemp(name);
	if (fd >= 0)
		unlink(name);
	return fd;
}

static const struct sp_sample_id sid = {
	.pid = 100, .tid = 101, .time_ns = 5000, .cpu = 1, .id = 77};

static void write_head(struct sp_writer *w)
{
	struct sp_attr a = e_plain_attr();
	static char words[3][12] = {"sp-capture", "-p", "1"};
	char *cmdline[] = {words[0], words[1], words[2]};
	a.flags |= SP_ATTR_USE_CLOCKID;
	a.clockid = 1;
	sp_writer_begin(w, &err);
	sp_writer_attr(w, &a, "cpu-clock", 77, &err);
	a.config = 9;
	sp_writer_attr(w, &a, "mine", 78, &err);
	struct sp_writer_features f = {.hostname = "here",
				       .osrelease = "6.1",
				       .version = "0.1",
				       .arch = "x86_64",
				       .n_cpus_online = 3,
				       .n_cpus_avail = 4,
				       .cmdline = cmdline,
				       .n_cmdline = 3,
				       .clockid = 1,
				       .wall_ns = 1700000000000000000,
				       .clock_ns = 1000};
	sp_writer_features(w, &f, &err);
	sp_ext_write(w, SP_EXT_START, "chain=site\n", 11, &err);
}

static void write_body(struct sp_writer *w)
{
	struct enc e = {0};
	uint8_t tail[SP_SAMPLE_ID_BYTES];
	sp_sample_id_put(tail, &sid);
	e_begin(&e, SP_PERF_COMM, SP_MISC_COMM_EXEC);
	e32(&e, 100), e32(&e, 101);
	estr(&e, "hello", 8);
	ebytes(&e, tail, sizeof tail);
	e_end(&e);
	sp_writer_raw(w, e.b.data, e.b.len, &err);
	struct sp_build_id_record id = {.pid = -1, .misc = 2, .len = 20, .path = "/bin/true"};
	memset(id.id, 0xab, 20);
	sp_writer_build_id(w, &id, &err);
	id.id[0] ^= 0xff;
	id.maj = 8;
	id.min = 1;
	id.ino = 4711;
	sp_writer_build_id(w, &id, &err);
	e.b.len = 0;
	e_sample(&e, 78, 6000, 0x1234);
	sp_writer_raw(w, e.b.data, e.b.len, &err);
	uint8_t *p = sp_writer_reserve(w, 200, &err);
	if (p) {
		memcpy(p, e.b.data, e.b.len);
		sp_writer_commit(w, e.b.len);
	}
	sp_buf_deinit(&e.b);
	sp_ext_write(w, SP_EXT_END, "status=0\n", 9, &err);
}

static struct sp_reader *open_fd(int fd)
{
	char path[40];
	struct sp_reader *r = NULL;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (sp_reader_open(&r, path, 0, &err) < 0)
		printf("# %s\n", err.msg);
	return r;
}

static bool next_of(struct sp_reader *r, uint32_t type, struct sp_record *rec)
{
	while (r && sp_reader_next(r, rec, NULL) == 1)
		if (rec->type == type)
			return true;
	return tap_ok(false, "the record is there");
}

static void check_body(struct sp_reader *r)
{
	struct sp_record rec;
	if (next_of(r, SP_PERF_COMM, &rec)) {
		tap_str(rec.comm.comm, "hello", "a name comes back");
		tap_ok(rec.comm.is_exec, "with its exec mark");
		tap_eq(rec.time_ns, 5000, "and the time of its sample_id");
		tap_eq(rec.cpu, 1, "and its cpu");
		tap_str(rec.event ? rec.event->name : "", "cpu-clock", "and its event");
	}
	for (int i = 0; i < 2; i++)
		if (next_of(r, SP_PERF_SAMPLE, &rec)) {
			tap_eq(rec.sample.ip, 0x1234, "a sample comes back");
			tap_str(rec.event ? rec.event->name : "", "mine", "with its event");
		}
	while (r && sp_reader_next(r, &rec, NULL) == 1)
		;
}

static void check_info(struct sp_reader *r)
{
	const struct sp_perf_info *i = sp_reader_info(r);
	uint8_t len = 0;
	tap_eq(sp_reader_state(r), SP_INPUT_WHOLE, "what was written is whole");
	tap_ok(i->is_ours && i->chain_is_site, "and ours");
	tap_str(i->hostname, "here", "it has the host's name");
	tap_str(i->cmdline, "sp-capture -p 1", "the command line");
	tap_eq(i->n_cpus, 4, "the processors");
	tap_eq(i->wall_ns, 1700000000000000000, "and the clocks' common instant");
	tap_eq(sp_reader_n_events(r), 2, "both events");
	tap_eq(sp_reader_event(r, 1)->n_ids, 1, "with one id each");
	tap_ok(sp_reader_build_id(r, "/bin/true", 0, 0, 0, &len) && len == 20, "and the build-id");
	const uint8_t *of_path = sp_reader_build_id(r, "/bin/true", 8, 1, 4712, &len);
	const uint8_t *of_file = sp_reader_build_id(r, "/bin/true", 8, 1, 4711, &len);
	tap_ok(of_path && of_file && (of_file[0] ^ of_path[0]) == 0xff &&
		       !memcmp(of_file + 1, of_path + 1, 19),
	       "a file has its own build-id beside the one of its path");
}

static void test_write(bool as_file)
{
	struct sp_writer *w = NULL;
	int fd = fresh_file();
	tap_eq((uint64_t)sp_writer_new(&w, fd, "a file", as_file, &err), 0, "a writer is made");
	write_head(w);
	write_body(w);
	tap_eq((uint64_t)sp_writer_finish(w, &err), 0, "and finished");
	struct sp_reader *r = open_fd(fd);
	if (!tap_ok(r != NULL,
		    as_file ? "our reader opens the file" : "our reader opens the stream"))
		return;
	tap_eq(sp_reader_info(r)->is_pipe, !as_file, "in the form that was asked for");
	check_body(r);
	check_info(r);
	sp_reader_close(r);
	close(fd);
}

/* A writer that is killed leaves a file that is read to its end. */
static void test_abandoned(void)
{
	struct sp_writer *w = NULL;
	int fd = fresh_file();
	sp_writer_new(&w, fd, "a file", true, &err);
	write_head(w);
	write_body(w);
	sp_writer_flush(w, &err);
	sp_writer_abandon(w);
	struct sp_reader *r = open_fd(fd);
	struct sp_record rec;
	uint64_t n = 0;
	while (r && sp_reader_next(r, &rec, NULL) == 1)
		n += rec.type == SP_PERF_SAMPLE;
	tap_eq(n, 2, "an unfinished file has its samples");
	tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT, "and is told as cut");
	tap_str(r ? sp_reader_event(r, 1)->name : "", "mine", "with the names of events");
	sp_reader_close(r);
	close(fd);
}

/* The records of a stream's head, given raw, go to the header of a file. */
static void test_absorb(void)
{
	int from = fresh_file(), to = fresh_file();
	struct sp_writer *w = NULL;
	struct sp_record rec;
	sp_writer_new(&w, from, "a stream", false, &err);
	write_head(w);
	write_body(w);
	sp_writer_finish(w, &err);
	struct sp_reader *r = open_fd(from);
	sp_writer_new(&w, to, "a file", true, &err);
	while (r && sp_reader_next(r, &rec, NULL) == 1)
		if (sp_writer_raw(w, rec.raw, rec.size, &err) < 0)
			tap_ok(false, err.msg);
	sp_reader_close(r);
	sp_writer_finish(w, &err);
	r = open_fd(to);
	if (tap_ok(r && !sp_reader_info(r)->is_pipe, "a stream given raw becomes a file")) {
		check_body(r);
		check_info(r);
	}
	sp_reader_close(r);
	close(from);
	close(to);
}

/* The first failure stays. */
static void test_full(void)
{
	struct sp_writer *w = NULL;
	int fd = open("/dev/full", O_WRONLY);
	sp_writer_new(&w, fd, "/dev/full", false, &err);
	write_head(w);
	int rc = sp_writer_flush(w, &err);
	tap_eq((uint64_t)rc, (uint64_t)SP_ERR_IO, "a full device is an error");
	tap_ok(strstr(err.msg, "/dev/full") && strstr(err.msg, "No space"), "that names both");
	struct sp_err again = {0};
	tap_eq((uint64_t)sp_writer_head_end(w, &again), (uint64_t)SP_ERR_IO,
	       "and stays");
	tap_str(again.msg, err.msg, "with its message");
	tap_eq((uint64_t)sp_writer_finish(w, &again), (uint64_t)SP_ERR_IO, "to the end");
	close(fd);
}

/* --- our own records --- */

static struct sp_record parse(const uint8_t *raw)
{
	struct sp_record rec;
	sp_record_parse(&rec, raw, sp_get16(raw + 6), NULL, 0, NULL);
	return rec;
}

static void test_ext(void)
{
	struct sp_buf b = {0};
	struct sp_ext x;
	size_t len;
	e_ext(&b, SP_EXT_START, 3, "chain=site\nstart_ns=12\nempty=\n", 30);
	struct sp_record rec = parse(b.data);
	tap_eq(rec.size, 80, "a short record of ours has 80 bytes");
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), 1, "it is known");
	tap_eq(x.kind, SP_EXT_START, "by its kind");
	tap_eq(x.payload_bytes, 30, "with its payload");
	const char *v = sp_ext_value(x.payload, x.payload_bytes, "start_ns", &len);
	tap_ok(v && len == 2 && memcmp(v, "12", 2) == 0, "a value is found by key");
	v = sp_ext_value(x.payload, x.payload_bytes, "empty", &len);
	tap_ok(v && len == 0, "an empty one too");
	tap_ok(!sp_ext_value(x.payload, x.payload_bytes, "start", &len),
	       "a key's beginning is none");
	tap_ok(!sp_ext_value(x.payload, x.payload_bytes, "site", &len), "nor is a value");

	rec.size = SP_EXT_HEAD - 8;
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), (uint64_t)SP_ERR_CORRUPT,
	       "one that ends in its head is corrupt");
	sp_put32(b.data + 20, 33); /* more than the record holds */
	rec = parse(b.data);
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), (uint64_t)SP_ERR_CORRUPT,
	       "a lie is corrupt");
	sp_put32(b.data + 20, 30);
	sp_put64(b.data + 40, 29); /* total below what is here */
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), (uint64_t)SP_ERR_CORRUPT, "every lie");
	sp_put64(b.data + 40, 30);
	sp_put64(b.data + 32, 31); /* it begins behind the end */
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), (uint64_t)SP_ERR_CORRUPT, "also this one");
	sp_put64(b.data + 32, 0);
	sp_put16(b.data + 16, 2);
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), 1, "another version is known as ours");
	tap_eq(x.kind, 0, "but of no kind that we know");
	b.data[8] = 'X';
	tap_eq((uint64_t)sp_ext_parse(&rec, &x, &err), 0, "another magic is none of ours");
	sp_buf_deinit(&b);
}

/* The bytes that stackpulse-stream(5) promises for version 1; they never change. */
static void test_golden(void)
{
	static const uint8_t start[80] = {
		65,   0,    0, 0,   0,   0,   80,  0,   'S', 'T',  'K',  'P',  'U',  'L',  'S',
		'E',  1,    0, 1,   0,   11,  0,   0,   0,   0x08, 0x07, 0x06, 0x05, 0x04, 0x03,
		0x02, 0x01, 0, 0,   0,   0,   0,   0,   0,   0,    11,   0,    0,    0,    0,
		0,    0,    0, 'c', 'h', 'a', 'i', 'n', '=', 's',  'i',  't',  'e',  '\n'};
	static const uint8_t object[] = {
		1, 0, 0, 0, 255, 255, 255, 255,  2,    0, 0, 0, 0, 0,   0,   0,   3,   0,  0, 0, 0,
		0, 0, 0, 4, 0,   0,   0,   0,    0,    0, 0, 5, 0, 0,   0,   0,   0,   0,  0, 6, 0,
		0, 0, 7, 0, 0,   0,   2,   0xab, 0xcd, 0, 0, 0, 0, 0,   0,   0,   0,   0,  0, 0, 0,
		0, 0, 0, 0, 0,   0,   0,   0,    0,    1, 0, 0, 0, 'p', 'd', 'a', 't', 'a'};
	struct sp_buf b = {0};
	e_ext(&b, SP_EXT_START, UINT64_C(0x0102030405060708), "chain=site\n", 11);
	tap_ok(b.len == sizeof start && memcmp(b.data, start, sizeof start) == 0,
	       "a start record has the bytes of version 1");
	b.len = 0;
	struct sp_ext_object o = {.kind = SP_OBJECT_FILE,
				  .pid = -1,
				  .time_ns = 2,
				  .start = 3,
				  .end = 4,
				  .ino = 5,
				  .maj = 6,
				  .min = 7,
				  .build_id_len = 2,
				  .build_id = {0xab, 0xcd},
				  .path = "p",
				  .path_len = 1,
				  .data = (const uint8_t *)"data",
				  .size = 4};
	sp_ext_object_encode(&b, &o);
	tap_ok(b.len == sizeof object && memcmp(b.data, object, sizeof object) == 0,
	       "an embedded object has the bytes of version 1");
	tap_ok(SP_EXT_EXEC == 2 && SP_EXT_RUNTIME == 3 && SP_EXT_OBJECT == 4 && SP_EXT_LOSS == 5 &&
		       SP_EXT_COUNTERS == 6 && SP_EXT_END == 7 && SP_EXT_STACK_TAIL == 8 && SP_EXT_WAIT == 9 &&
		       SP_EXT_CONTENT == 10 && SP_EXT_SHARED == 11,
	       "kinds have the numbers of version 1");
	sp_buf_deinit(&b);
}

static void test_content(void)
{
	static const uint8_t want[] = {
		8,   0,	  0,   0,   1,	 0,   0,   0,	77,  0,	  0,   0,   0,	 0,   0,   0,
		'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
		'g', 'h', 'i', 'j', 0,	 0,   0,   0,	'/', 'p', 0};
	struct sp_buf b = {0};
	struct sp_ext_content c = {.maj = 8, .min = 1, .ino = 77, .path = "/prog", .path_len = 2}, got;
	memcpy(c.hash, "0123456789abcdefghij", sizeof c.hash);
	sp_ext_content_encode(&b, &c);
	tap_ok(b.len == sizeof want && memcmp(b.data, want, sizeof want) == 0,
	       "the hash of a file's content has the bytes of version 1");
	tap_eq((uint64_t)sp_ext_content_decode(&got, b.data, b.len, &err), 0, "it is read");
	tap_ok(got.maj == 8 && got.min == 1 && got.ino == 77 && got.path_len == 2 &&
		       !memcmp(got.path, "/p", 3) && !memcmp(got.hash, c.hash, sizeof c.hash),
	       "as it was written");
	sp_buf_add(&b, "later", 5);
	tap_ok(sp_ext_content_decode(&got, b.data, b.len, &err) == 0 && got.path_len == 2,
	       "what a later version adds is passed over");
	for (size_t n = 0; n < sizeof want; n++)
		if (sp_ext_content_decode(&got, b.data, n, &err) != SP_ERR_CORRUPT)
			tap_ok(false, "one that is cut is refused");
	sp_buf_deinit(&b);
}

/* Walk the records of b into the joiner; skip one fragment when skip >= 0. */
static int join_all(struct sp_ext_joiner *j, const struct sp_buf *b, int skip,
		    const uint8_t **payload, size_t *size)
{
	int rc = 0, n = 0;
	for (size_t at = 0; at < b->len && rc == 0; at += sp_get16(b->data + at + 6), n++) {
		struct sp_record rec = parse(b->data + at);
		struct sp_ext x;
		if (n != skip && sp_ext_parse(&rec, &x, &err) == 1)
			rc = sp_ext_join(j, &x, payload, size, &err);
	}
	return rc;
}

static void test_fragments(void)
{
	struct sp_buf b = {0};
	struct sp_ext_joiner *j = sp_ext_joiner_new();
	size_t n = 200001, size = 0;
	uint8_t *data = malloc(n);
	const uint8_t *payload = NULL;
	if (!data || !j)
		return;
	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 31 >> 3);
	e_ext(&b, SP_EXT_OBJECT, 9, data, n);
	tap_eq(b.len % 8, 0, "fragments are padded to 8");
	tap_eq((uint64_t)join_all(j, &b, -1, &payload, &size), 1, "fragments make the object");
	tap_ok(size == n && memcmp(payload, data, n) == 0, "byte by byte");
	tap_eq((uint64_t)join_all(j, &b, 1, &payload, &size), 0, "with one missing they make none");
	tap_eq((uint64_t)join_all(j, &b, -1, &payload, &size), 1, "the number may be used again");
	tap_ok(size == n && memcmp(payload, data, n) == 0, "for a whole one");

	struct sp_ext huge = {.version = 1,
			      .kind = SP_EXT_OBJECT,
			      .object = 1,
			      .total = UINT64_C(1) << 62,
			      .payload = data,
			      .payload_bytes = 8};
	tap_eq((uint64_t)sp_ext_join(j, &huge, &payload, &size, &err), (uint64_t)SP_ERR_LIMIT,
	       "an object beyond the limit is refused");
	sp_ext_joiner_free(j);
	free(data);
	sp_buf_deinit(&b);
}

static void test_object(void)
{
	struct sp_buf b = {0};
	struct sp_ext_object o = {.kind = SP_OBJECT_FILE,
				  .pid = -1,
				  .time_ns = 5,
				  .start = 6,
				  .end = 7,
				  .maj = 8,
				  .min = 9,
				  .ino = 10,
				  .build_id_len = 20,
				  .path = "[vdso]",
				  .path_len = 6,
				  .data = (const uint8_t *)"ELF bytes",
				  .size = 9},
			     got;
	memset(o.build_id, 0xcd, 20);
	sp_ext_object_encode(&b, &o);
	tap_eq((uint64_t)sp_ext_object_decode(&got, b.data, b.len, &err), 0,
	       "an object is decoded");
	tap_ok(got.kind == o.kind && got.pid == -1 && got.time_ns == 5 && got.start == 6 &&
		       got.end == 7 && got.maj == 8 && got.min == 9 && got.ino == 10,
	       "with its numbers");
	tap_ok(got.build_id_len == 20 && memcmp(got.build_id, o.build_id, 20) == 0, "its build-id");
	tap_ok(got.path_len == 6 && memcmp(got.path, "[vdso]", 6) == 0, "its path");
	tap_ok(got.size == 9 && memcmp(got.data, "ELF bytes", 9) == 0, "and its bytes");
	unsigned refused = 0;
	for (size_t n = 0; n < b.len - 9; n++)
		refused += sp_ext_object_decode(&got, b.data, n, &err) == SP_ERR_CORRUPT;
	tap_eq(refused, b.len - 9, "shorter ones are refused");
	sp_buf_deinit(&b);
}

int main(void)
{
	test_write(false);
	test_write(true);
	test_abandoned();
	test_absorb();
	test_full();
	test_ext();
	test_golden();
	test_content();
	test_fragments();
	test_object();
	return tap_done();
}
