/* Stack tails: joined with their sample, whatever comes between; hostile and lost ones are no harm.
 * unit: sp-unwind/tails.c */
#include <stdlib.h>

#include "../../sp-unwind/tails.h"
#include "tap.h"

/* A tail of n bytes of value c for the sample of tid at time, from at on. */
static bool add(struct un_tails *t, uint64_t time_ns, int32_t tid, uint64_t at, uint8_t c, size_t n)
{
	uint8_t *p = calloc(1, 24 + n);
	sp_put64(p, time_ns);
	sp_put32(p + 8, 10);
	sp_put32(p + 12, (uint32_t)tid);
	sp_put64(p + 16, at);
	memset(p + 24, c, n);
	bool ok = un_tails_add(t, p, 24 + n);
	free(p);
	return ok;
}

static struct sp_record sample(uint64_t time_ns, int32_t tid, const uint8_t *stack, uint64_t n)
{
	struct sp_record rec = {.time_ns = time_ns, .pid = 10, .tid = tid};
	rec.sample.stack = stack;
	rec.sample.stack_bytes = n;
	return rec;
}

static void test_join(void)
{
	struct un_tails t = {0};
	uint8_t stack[16];
	size_t size = 0;
	memset(stack, 1, sizeof stack);
	add(&t, 100, 11, 16, 2, 8);
	add(&t, 100, 12, 16, 3, 8);
	struct sp_record other = sample(99, 11, stack, 16), mine = sample(100, 12, stack, 16);
	tap_ok(!un_tails_join(&t, &other, &size) && t.n == 2, "a sample of another time has none");
	uint8_t *whole = un_tails_join(&t, &mine, &size);
	tap_ok(whole && size == 24 && whole[15] == 1 && whole[16] == 3 && t.n == 1,
	       "a sample's own tail follows its bytes, and is used once");
	free(whole);
	tap_ok(!un_tails_join(&t, &mine, &size), "it is gone then");
	struct sp_record shorter = sample(100, 11, stack, 8);
	tap_ok(!un_tails_join(&t, &shorter, &size) && t.n == 0 && t.bytes == 0,
	       "a tail that does not begin where the sample ends is dropped");
	un_tails_deinit(&t);
}

static void test_bounds(void)
{
	struct un_tails t = {0};
	uint8_t head[24] = {0};
	tap_ok(un_tails_add(&t, head, 24) && un_tails_add(&t, head, 3) && t.n == 0,
	       "a tail without bytes is none");
	for (uint32_t i = 0; i < UN_TAILS_MAX + 100; i++)
		add(&t, i, 11, 0, 0, 8);
	tap_ok(t.n == UN_TAILS_MAX && t.v[0].time_ns == 100, "of too many the oldest give way");
	for (uint32_t i = 0; i < 80; i++)
		add(&t, i, 12, 0, 0, (size_t)1 << 20);
	tap_ok(t.bytes <= UN_TAILS_BYTES && t.n <= 64, "so they do when they are large");
	un_tails_deinit(&t);
}

int main(void)
{
	test_join();
	test_bounds();
	return tap_done();
}
