/* The reader: perf.data files of all forms, from memory and through a pipe. */
#define _GNU_SOURCE
#include "perf_read.h"

#include <sys/wait.h>
#include <unistd.h>

#include "perf/feature.h"

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
	tap_ok(r && strstr(sp_reader_complaint(r), "inside a record"), "inside of a record");
	sp_reader_close(r);
	for (size_t cut = 1; cut <= 16 + 68; cut += 20) { /* in the features, or their table */
		char where[32];
		snprintf(where, sizeof where, "offset %zu on", data_end);
		r = open_bytes(e.b.data, e.b.len - cut, 0);
		tap_str(times(r), "1 2 3", "a file cut behind its data has all of these");
		tap_ok(r && sp_reader_state(r) == SP_INPUT_CUT &&
			       strstr(sp_reader_complaint(r), where),
		       "and is told to be cut, and from where");
		sp_reader_close(r);
	}
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

int main(void)
{
	for (int be = 0; be < 2; be++) {
		test_files(be);
		test_first_form(be);
		test_old_features(be);
	}
	test_simpleperf_names();
	test_pipes();
	return tap_done();
}
