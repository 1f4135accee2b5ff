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

/* Where a start lies behind the first one, and which range it is. */
struct key {
	uint32_t lo, at;
};

/* Least significant digit first: stable, and linear in the number of ranges, which a comparison
 * sort of a hundred thousand symbols is not. */
static struct key *sort_keys(struct key *from, struct key *to, size_t n, uint64_t span, size_t *at)
{
	for (unsigned shift = 0; shift < 32 && span >> shift; shift += DIGIT_BITS) {
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

/* Copies the ranges in order into `sorted`: in place it would be a walk from miss to miss. */
static bool sort_narrow(const struct sp_ranges *r, uint64_t min, uint64_t span,
			struct sp_range *sorted)
{
	struct key *keys = malloc(2 * r->n * sizeof *keys);
	size_t *at = malloc(N_DIGITS * sizeof *at);
	bool ok = keys && at;
	for (size_t i = 0; ok && i < r->n; i++)
		keys[i] = (struct key){(uint32_t)(r->v[i].lo - min), (uint32_t)i};
	const struct key *k = ok ? sort_keys(keys, keys + r->n, r->n, span, at) : NULL;
	for (size_t i = 0; ok && i < r->n; i++)
		sorted[i] = r->v[k[i].at];
	free(keys);
	free(at);
	return ok;
}

static int by_start(const void *a, const void *b)
{
	const struct sp_range *x = a, *y = b;
	if (x->lo != y->lo)
		return x->lo < y->lo ? -1 : 1;
	return x->max_hi < y->max_hi ? -1 : x->max_hi > y->max_hi; /* meanwhile the order of arrival */
}

/* Over more than 4 GiB: no file has this; what claims to is only sorted. */
static void sort_wide(const struct sp_ranges *r, struct sp_range *sorted)
{
	for (size_t i = 0; i < r->n; i++) {
		sorted[i] = r->v[i];
		sorted[i].max_hi = i;
	}
	qsort(sorted, r->n, sizeof *sorted, by_start);
}

static bool sort_many(struct sp_ranges *r)
{
	uint64_t min = UINT64_MAX, max = 0;
	struct sp_range *sorted = malloc(r->n * sizeof *sorted);
	if (!sorted)
		return false;
	for (size_t i = 0; i < r->n; i++) {
		min = r->v[i].lo < min ? r->v[i].lo : min;
		max = r->v[i].lo > max ? r->v[i].lo : max;
	}
	if (max - min > UINT32_MAX || r->n > UINT32_MAX) {
		sort_wide(r, sorted);
	} else if (!sort_narrow(r, min, max - min, sorted)) {
		free(sorted);
		return false;
	}
	free(r->v);
	r->v = sorted;
	r->cap = r->n;
	return true;
}

bool sp_ranges_reserve(struct sp_ranges *r, size_t n)
{
	return n <= SIZE_MAX / sizeof *r->v - r->n &&
	       sp_grow(&r->v, &r->cap, r->n + n, sizeof *r->v);
}

bool sp_ranges_sort(struct sp_ranges *r)
{
	if (!is_sorted(r)) {
		if (r->n < 64)
			sort_few(r);
		else if (!sort_many(r))
			return false;
	}
	sp_shrink(&r->v, &r->cap, r->n, sizeof *r->v); /* most programs have thousands of short ones */
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
