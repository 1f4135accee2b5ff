/* Wait records and the samples that they are about.
 * unit: sp-spool/chain.c
 * unit: sp-spool/intern.c
 * unit: sp-spool/waits.c */
#define _GNU_SOURCE
#include "../../sp-spool/waits.h"
#include "spool_make.h"
#include "tap.h"

static struct sp_buf out;
static struct spool_waits w;
static struct spool_intern in;

/* A record's payload; comm NULL, end_ns 0: one of an earlier version, which ends before it. */
static void tell_end(uint64_t time_ns, int32_t tid, uint32_t state, int32_t waker, const char *comm,
		     uint64_t end_ns)
{
	struct sp_buf b = {0};
	sp_buf_u64(&b, time_ns);
	sp_buf_u32(&b, 10);
	sp_buf_u32(&b, (uint32_t)tid);
	sp_buf_u64(&b, 5);
	sp_buf_u32(&b, state);
	sp_buf_u32(&b, waker ? 10 : 0);
	sp_buf_u32(&b, (uint32_t)waker);
	sp_buf_u32(&b, 0);
	char name[SPOOL_COMM_BYTES] = {0};
	if (comm) {
		memcpy(name, comm, strnlen(comm, sizeof name));
		sp_buf_add(&b, name, sizeof name);
	}
	if (end_ns)
		sp_buf_u64(&b, end_ns);
	if (!spool_waits_add(&w, sp_cursor(b.data, b.len)))
		abort();
	sp_buf_deinit(&b);
}

static void tell(uint64_t time_ns, int32_t tid, uint32_t state, int32_t waker, const char *comm)
{
	tell_end(time_ns, tid, state, waker, comm, 0);
}

/* A sample as it goes into the spool. */
static struct sp_spool_wsample sample(uint64_t time_ns, int32_t tid)
{
	struct sp_record rec = {
		.has_time = true, .has_tid = true, .time_ns = time_ns, .pid = 10, .tid = tid};
	struct sp_err err;
	struct sp_spool_wsample s = {.time_ns = time_ns};
	if (spool_waits_join(&w, &in, &rec, &s, &err) < 0)
		abort();
	return s;
}

static uint32_t join(uint64_t time_ns, int32_t tid)
{
	return sample(time_ns, tid).wait;
}

static void test_join(void)
{
	tap_eq(join(100, 10), 0, "nothing was told");
	tell(100, 10, 1, 11, "waker");
	tell(100, 11, 2, 0, "");
	tell(200, 10, 1, 11, "waker");
	tap_eq(join(100, 12), 0, "a sample of another thread");
	tap_eq(join(99, 10), 0, "one of another time");
	uint32_t first = join(100, 10);
	tap_ok(first != 0, "one that was told of");
	tap_eq(join(100, 10), 0, "once");
	uint32_t second = join(100, 11);
	tap_ok(second && second != first, "another thread at the same time");
	tap_eq(join(200, 10), first, "equal waits are one");

	/* Two of one thread and time, as they were held back together: in their order. */
	tell(300, 10, 1, 11, "waker");
	tell(300, 10, 2, 0, "");
	uint32_t a = join(300, 10), b = join(300, 10);
	tap_ok(a == first && b == second, "two of one thread and time keep their order");

	/* What no sample came for goes with the next one. */
	for (uint32_t i = 0; i < 1000; i++)
		tell(400 + i, 10, 1, 11, NULL);
	tell(5000, 10, 1, 11, NULL);
	uint32_t third = join(5000, 10);
	tap_ok(third && third != first, "without a name it is another one");
	tap_ok(w.n - w.first <= 1, "those before are gone");
	tap_eq(join(450, 10), 0, "and not found any more");
}

/* A stack may come later than its wait ended. */
static void test_times(void)
{
	tell_end(5100, 10, 1, 11, "waker", 5050);
	tap_eq(sample(5100, 10).time_ns, 5050, "a wait has its own time, not that of its stack");
	tell_end(5200, 10, 1, 11, "waker", 5201);
	tap_eq(sample(5200, 10).time_ns, 5200, "which is not after its sample");
	tell(5300, 10, 1, 11, "waker");
	tap_eq(sample(5300, 10).time_ns, 5300, "and the sample's, where it is not told");
}

/* A name of 16 bytes has no NUL; a short record is none. */
static void test_name(void)
{
	struct sp_err err;
	tell(6000, 10, 1, 11, "0123456789abcdef");
	tap_ok(spool_waits_add(&w, sp_cursor((const uint8_t *)"short", 5)), "a short record is dropped");
	uint32_t fourth = join(6000, 10);
	struct sp_spool_wsample s = {.thread = sp_spool_put_thread(in.w, 0, 10, 10),
				     .event = sp_spool_put_event(in.w, "offcpu-time", true),
				     .stack = SP_NONE,
				     .cpu = SP_NONE,
				     .set = SP_NONE,
				     .time_ns = 6000,
				     .wait = fourth};
	struct sp_spool_info info = {.hostname = "h"};
	if (sp_spool_put_info(in.w, &info, &err) < 0 || sp_spool_put_sample(in.w, &s, &err) < 0 ||
	    sp_spool_finish(in.w, NULL, &err) < 0)
		abort();
	struct sp_spool *spool;
	struct sp_spool_sample got;
	if (open_bytes(&spool, out.data, out.len, &err) < 0 || sp_spool_next(spool, &got, &err) != 1)
		abort();
	struct sp_spool_wait wait = sp_spool_wait(spool, got.wait);
	tap_ok(wait.state == 1 && wait.waker_pid == 10 && wait.waker_tid == 11 &&
		       !strcmp(wait.waker_comm, "0123456789abcdef"),
	       "a name of 16 bytes comes back whole");
	sp_spool_close(spool);
}

static void test_bound(void)
{
	for (uint32_t i = 0; i < SPOOL_WAITS_MAX + 10; i++)
		tell(10000, (int32_t)i + 1, 1, 11, NULL);
	tap_ok(w.n - w.first == SPOOL_WAITS_MAX, "so many are kept");
	tap_ok(!join(10000, 10) && join(10000, 11), "the oldest gave way");
}

int main(void)
{
	in = (struct spool_intern){.w = make_begin(&out, 1), .procs = sp_procs_new()};
	if (!in.procs)
		abort();
	test_join();
	test_times();
	test_name();
	test_bound();
	spool_waits_deinit(&w);
	sp_procs_free(in.procs);
	sp_spool_writer_free(in.w);
	sp_buf_deinit(&out);
	return tap_done();
}
