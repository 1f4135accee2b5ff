#include "sym/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define DIGIT_BITS 11
#define N_DIGITS (1u << DIGIT_BITS)

void sp_ranges_deinit(struct sp_ranges *r)
{
	free(r->v);
	*r = (struct sp_ranges){0};
}

bool sp_ranges_add(struct sp_ranges *r, uint64_t lo, uint64_t hi, uint32_t id)
{
	if (hi <= lo)
		return true;
	if (!sp_grow(&r->v, &r->cap, r->n + 1, sizeof *r->v))
		return false;
	r->v[r->n++] = (struct sp_range){.lo = lo, .hi = hi, .id = id};
	return true;
}

static bool is_sorted(const struct sp_ranges *r)
{
	for (size_t i = 1; i < r->n; i++)
		if (r->v[i].lo < r->v[i - 1].lo)
			return false;
	return true;
}

static void sort_few(struct sp_ranges *r)
{
	for (size_t i = 1; i < r->n; i++) {
		struct sp_range e = r->v[i];
		size_t j = i;
		for (; j > 0 && r->v[j - 1].lo > e.lo; j--)
			r->v[j] = r->v[j - 1];
		r->v[j] = e;
	}
}

struct key {
	uint64_t lo;
	size_t at;
};

/* Least significant digit first: stable, and linear in the number of ranges, which a comparison
 * sort of a hundred thousand symbols is not. */
static struct key *sort_keys(struct key *from, struct key *to, size_t n, uint64_t span, size_t *at)
{
	for (unsigned shift = 0; shift < 64 && span >> shift; shift += DIGIT_BITS) {
		memset(at, 0, N_DIGITS * sizeof *at);
		for (size_t i = 0; i < n; i++)
			at[from[i].lo >> shift & (N_DIGITS - 1)]++;
		size_t sum = 0;
		for (size_t d = 0; d < N_DIGITS; d++) {
			size_t count = at[d];
			at[d] = sum;
			sum += count;
		}
		for (size_t i = 0; i < n; i++)
			to[at[from[i].lo >> shift & (N_DIGITS - 1)]++] = from[i];
		struct key *t = from;
		from = to;
		to = t;
	}
	return from;
}

static bool sort_many(struct sp_ranges *r)
{
	struct key *keys = malloc(2 * r->n * sizeof *keys);
	struct sp_range *sorted = malloc(r->n * sizeof *sorted);
	size_t *at = malloc(N_DIGITS * sizeof *at);
	bool ok = keys && sorted && at;
	if (ok) {
		uint64_t min = UINT64_MAX, max = 0;
		for (size_t i = 0; i < r->n; i++) {
			min = r->v[i].lo < min ? r->v[i].lo : min;
			max = r->v[i].lo > max ? r->v[i].lo : max;
		}
		for (size_t i = 0; i < r->n; i++)
			keys[i] = (struct key){r->v[i].lo - min, i};
		const struct key *k = sort_keys(keys, keys + r->n, r->n, max - min, at);
		for (size_t i = 0; i < r->n; i++)
			sorted[i] = r->v[k[i].at];
		free(r->v);
		r->v = sorted;
		r->cap = r->n;
	} else {
		free(sorted);
	}
	free(keys);
	free(at);
	return ok;
}

bool sp_ranges_sort(struct sp_ranges *r)
{
	if (!is_sorted(r)) {
		if (r->n < 64)
			sort_few(r);
		else if (!sort_many(r))
			return false;
	}
	uint64_t max = 0;
	for (size_t i = 0; i < r->n; i++) {
		max = r->v[i].hi > max ? r->v[i].hi : max;
		r->v[i].max_hi = max;
	}
	return true;
}

size_t sp_ranges_upper(const struct sp_ranges *r, uint64_t addr)
{
	size_t lo = 0, hi = r->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (r->v[mid].lo <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}
