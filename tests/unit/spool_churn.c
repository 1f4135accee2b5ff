/* Processes that map and fork without end: sets of modules stay small enough to be gone through, and
 * every sample comes back with the module that it had. The sizes are such that a step that grows with
 * what was mapped before would take minutes.
 * unit: sp-spool/chain.c
 * unit: sp-spool/intern.c */
#define _GNU_SOURCE
#include "../../sp-spool/intern.h"
#include "spool_make.h"
#include "tap.h"

#define SET_MOST 8192u

static struct spool_intern in;
static struct sp_spool_writer *w;
static struct sp_reader *reader;
static struct sp_buf out;
static uint32_t n_samples, largest;

static void begin(void)
{
	static const uint8_t head[16] = "PERFILE2\x10";
	const uint64_t seed[2] = {1, 2};
	struct sp_err err;
	out.len = 0;
	n_samples = largest = 0;
	w = make_begin(&out, 1);
	if (sp_reader_open_bytes(&reader, head, sizeof head, 0, &err) < 0 ||
	    spool_intern_init(&in, w, reader, seed, &err) < 0)
		abort();
	in.site = true;
}

static struct sp_record base(uint32_t type, int32_t pid)
{
	return (struct sp_record){.type = type, .misc = SP_CPUMODE_USER, .pid = pid, .tid = pid,
				  .has_tid = true, .has_time = true};
}

static void apply(const struct sp_record *rec)
{
	struct sp_err err;
	if (spool_intern_record(&in, rec, &err) < 0)
		abort();
}

static void map(int32_t pid, uint64_t start, const char *path)
{
	struct sp_record r = base(SP_PERF_MMAP2, pid);
	r.mmap = (struct sp_perf_mmap){.start = start, .len = 0x1000, .ino = 7, .prot = 5,
				       .path = path, .is_mmap2 = true};
	apply(&r);
}

static void fork_of(int32_t parent, int32_t child)
{
	struct sp_record r = base(SP_PERF_FORK, child);
	r.task.pid = r.task.tid = child;
	r.task.ppid = r.task.ptid = parent;
	apply(&r);
}

static void sample(int32_t pid, uint64_t ip)
{
	struct sp_record r = base(SP_PERF_SAMPLE, pid);
	struct spool_placed p;
	struct sp_err err;
	r.sample.has_ip = true;
	r.sample.ip = ip;
	if (spool_intern_sample(&in, &r, &p, &err) < 0)
		abort();
	uint32_t n = (uint32_t)sp_spool_set_n(w, p.set);
	largest = n > largest ? n : largest;
	struct sp_spool_wsample s = {.time_ns = ++n_samples, .thread = p.thread, .comm = p.comm,
				     .set = p.set, .stack = p.stack, .cpu = SP_NONE,
				     .event = sp_spool_put_event(w, "e", false)};
	if (sp_spool_put_sample(w, &s, &err) < 0)
		abort();
}

/* What sample i was given. */
typedef void expect_fn(uint32_t i, int32_t *pid, uint64_t *ip, char path[32]);

/* How many samples have the address and the module that they had; n_modules: that the reader holds. */
static uint32_t end(expect_fn *expect, uint64_t *n_modules)
{
	struct sp_err err;
	struct sp_spool *s;
	if (sp_spool_finish(w, NULL, &err) < 0 || open_bytes(&s, out.data, out.len, &err) < 0)
		abort();
	struct sp_spool_sample got;
	uint32_t good = 0;
	for (uint32_t i = 0; i < n_samples && sp_spool_next(s, &got, &err) == 1; i++) {
		int32_t pid;
		uint64_t ip;
		char path[32];
		const struct sp_spool_frame *f;
		expect(i, &pid, &ip, path);
		size_t n = sp_spool_frames(s, &f);
		const struct sp_spool_module *m =
			n && f->module != SP_NONE ? sp_spool_module(s, f->module) : NULL;
		good += n == 1 && m && f->abs_ip == ip && m->start == (ip & ~UINT64_C(0xfff)) &&
			!strcmp(m->path, path) && sp_spool_thread(s, got.thread)->pid == pid;
	}
	*n_modules = sp_spool_n_modules(s);
	tap_ok(sp_spool_state(s) == SP_SPOOL_WHOLE, "the spool is whole");
	sp_spool_close(s);
	spool_intern_deinit(&in);
	sp_reader_close(reader);
	sp_spool_writer_free(w);
	return good;
}

#define N 100000u

static uint64_t place(uint32_t i)
{
	return (1 + (uint64_t)i * 7919 % N) << 16;
}

static void expect_growing(uint32_t i, int32_t *pid, uint64_t *ip, char path[32])
{
	*pid = 100;
	*ip = place(i) + 5;
	snprintf(path, 32, "/l%u", i % 3);
}

static void test_growing(void)
{
	begin();
	for (uint32_t i = 0; i < N; i++) {
		char path[32];
		snprintf(path, sizeof path, "/l%u", i % 3);
		map(100, place(i), path);
		sample(100, place(i) + 5);
	}
	uint64_t n;
	tap_ok(largest <= SET_MOST, "of 100,000 modules of a process a set has so many and no more");
	tap_eq(end(expect_growing, &n), N, "each sample has the module that was mapped before it");
	tap_eq(n, N, "each module is stored once");
}

#define PLACE (UINT64_C(5) << 40)

static void expect_replaced(uint32_t i, int32_t *pid, uint64_t *ip, char path[32])
{
	*pid = 100;
	*ip = i % 2 ? PLACE : (1 + (uint64_t)i % 1000) << 16;
	snprintf(path, 32, i % 2 ? "/r%u" : "/lib", i % 3);
}

/* The same code in each set: chains that differ in nothing but the set. */
static void test_replaced(void)
{
	begin();
	for (uint32_t i = 0; i < 1000; i++)
		map(100, (1 + (uint64_t)i) << 16, "/lib");
	for (uint32_t i = 0; i < N; i++) {
		int32_t pid;
		uint64_t ip;
		char path[32];
		expect_replaced(i, &pid, &ip, path);
		if (i % 2)
			map(100, PLACE, path);
		sample(100, ip);
	}
	uint64_t n;
	tap_eq(end(expect_replaced, &n), N, "each sample has the module that took the place last");
	tap_ok(n <= N + 1, "a set has no more modules than its samples need");
}

#define PARENTS 4000u
#define CHILDREN 5000u

static void expect_forks(uint32_t i, int32_t *pid, uint64_t *ip, char path[32])
{
	bool child = i >= PARENTS;
	*pid = child ? (int32_t)(1000 + i - PARENTS) : 100;
	*ip = (1 + (uint64_t)i % PARENTS) << 16 | 9;
	snprintf(path, 32, "/lib");
}

/* 20 million modules, did each child's set begin with those of its parent's. */
static void test_forks(void)
{
	begin();
	for (uint32_t i = 0; i < PARENTS + CHILDREN; i++) {
		int32_t pid;
		uint64_t ip;
		char path[32];
		expect_forks(i, &pid, &ip, path);
		if (i < PARENTS) {
			map(pid, ip & ~UINT64_C(0xfff), path);
		} else {
			fork_of(100, pid);
			map(pid, PLACE, "/own");
		}
		sample(pid, ip);
	}
	uint64_t n;
	tap_eq(end(expect_forks, &n), PARENTS + CHILDREN, "each child has the module that its parent had");
	tap_ok(n > 50 * PARENTS, "a child's set begins with its parent's");
	tap_ok(n < 300000, "until that is more than a reader should hold");
}

int main(void)
{
	test_growing();
	test_replaced();
	test_forks();
	sp_buf_deinit(&out);
	return tap_done();
}
