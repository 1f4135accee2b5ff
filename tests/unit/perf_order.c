/* Records that wait for their turn come out by time, equal times as they came, whatever the runs.
 */
#include "tap.h"

#include <stdlib.h>

#include "perf/order.h"

static struct sp_chunk chunk;

/* What lies in the order: (time, arrival), kept sorted by insertion. */
struct wanted {
	uint64_t time_ns, pos;
};
static struct wanted wanted[4096];
static size_t n_wanted;
static uint64_t arrivals;

static bool push(struct sp_order *o, uint64_t time_ns)
{
	static const uint8_t raw[8];
	size_t i = n_wanted++;
	for (; i && wanted[i - 1].time_ns > time_ns; i--)
		wanted[i] = wanted[i - 1];
	wanted[i] = (struct wanted){time_ns, arrivals};
	const struct order_item item = {
		.time_ns = time_ns, .raw = raw, .size = sizeof raw, .pos = arrivals++, .chunk = &chunk};
	return sp_order_push(o, &item);
}

static bool pop(struct sp_order *o)
{
	bool good = sp_order_first_ns(o) == wanted[0].time_ns;
	struct order_item got = sp_order_pop(o);
	good &= got.time_ns == wanted[0].time_ns && got.pos == wanted[0].pos && got.chunk == &chunk;
	if (!chunk.n_queued)
		sp_chunk_release(got.chunk);
	memmove(&wanted[0], &wanted[1], --n_wanted * sizeof *wanted);
	return good;
}

/* Rounds of n_cpus runs, each from the round's begin to its end; most of a round is taken before
 * the next one comes. */
static bool rounds(struct sp_order *o, unsigned n_cpus)
{
	bool good = true;
	for (uint64_t round = 0; round < 50; round++) {
		for (unsigned cpu = 0; cpu < n_cpus; cpu++)
			for (uint64_t i = 0; i < 5; i++)
				good &= push(o, 1000 * round + 150 * i + cpu % 3);
		while (n_wanted > n_cpus)
			good &= pop(o);
	}
	return good;
}

int main(void)
{
	struct sp_order o = {0};
	atomic_init(&chunk.refs, 1);
	bool good = true;
	for (uint64_t i = 0; i < 1000; i++)
		good &= push(&o, i / 3);
	tap_ok(good && o.n == 1000 && o.n_heads == 1, "records in order are one run");
	while (o.n)
		good &= pop(&o);
	tap_ok(good, "they come out as they came");
	for (uint64_t i = 1000; i-- > 0;)
		good &= push(&o, i / 3);
	while (o.n)
		good &= pop(&o);
	tap_ok(good, "records in reverse come out by time, equal ones as they came");
	uint64_t seed = 7;
	for (int i = 0; i < 20000; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1;
		good &= (seed >> 60 < 8 || !o.n) && o.n < 3000 ? push(&o, seed >> 33 & 1023)
							       : pop(&o);
	}
	tap_ok(good && o.n == n_wanted, "so do records in any order, taken between");
	while (o.n)
		good &= pop(&o);
	good &= rounds(&o, 2) && rounds(&o, 40);
	tap_ok(good, "so do rounds of 2 and of 40 CPUs");
	size_t runs = o.n_runs;
	good &= rounds(&o, 40);
	tap_ok(good && o.n_runs == runs, "more rounds need no more runs");
	tap_ok(atomic_load(&chunk.refs) == 2 && o.n_chunks == 1 && o.bytes == 8 * o.n,
	       "what waits holds its chunk");
	sp_order_deinit(&o);
	tap_ok(atomic_load(&chunk.refs) == 1 && chunk.n_queued == 0, "and lets it go in the end");
	return tap_done();
}
