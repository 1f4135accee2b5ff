/* Ranges by address: the order and the look-ups of many at random equal a plain search's, near each
 * other and over the whole of the address space. */
#include <stdlib.h>

#include "sym/ranges.h"
#include "tap.h"

#define N 500

static uint64_t state = 7;

static uint64_t random_u64(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void test_span(uint64_t span, const char *sorted, const char *found)
{
	static struct sp_range plain[N];
	struct sp_ranges r = {0};
	bool order = true, same = true;
	for (uint32_t i = 0; i < N; i++) {
		uint64_t lo = 0x1000 + random_u64() % span;
		/* Some begin where others do: these stay in order of arrival. */
		lo = i % 3 == 0 && i ? plain[i / 2].lo : lo;
		plain[i] = (struct sp_range){.lo = lo, .hi = lo + 1 + random_u64() % (span / 16), .id = i};
		sp_ranges_add(&r, plain[i].lo, plain[i].hi, i);
	}
	tap_ok(sp_ranges_sort(&r) && r.n == N, "ranges are sorted");
	for (size_t i = 1; i < r.n; i++)
		order &= r.v[i].lo > r.v[i - 1].lo ||
			 (r.v[i].lo == r.v[i - 1].lo && r.v[i].id > r.v[i - 1].id);
	tap_ok(order, sorted);
	for (int k = 0; k < 2000; k++) {
		uint64_t addr = 0x1000 + random_u64() % span;
		size_t want = 0, got = 0;
		for (uint32_t i = 0; i < N; i++)
			want += addr >= plain[i].lo && addr < plain[i].hi;
		struct sp_ranges_at at = sp_ranges_at(&r, addr);
		for (const struct sp_range *e; (e = sp_ranges_next(&at));) {
			same &= plain[e->id].lo == e->lo && plain[e->id].hi == e->hi &&
				addr >= e->lo && addr < e->hi;
			got++;
		}
		same &= got == want;
	}
	tap_ok(same, found);
	sp_ranges_deinit(&r);
}

int main(void)
{
	test_span(1 << 20, "by start, in order of arrival", "all that hold an address are found");
	test_span(UINT64_C(1) << 32, "also over 4 GiB", "and all are found there");
	test_span(UINT64_C(1) << 62, "also over more", "and all are found there too");
	return tap_done();
}
