#include "sym/ranges.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/radix.h"

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

/* Copies the ranges in order into `sorted`: in place it would be a walk from miss to miss. */
static bool sort_narrow(const struct sp_ranges *r, uint64_t min, uint32_t span,
			struct sp_range *sorted)
{
	struct sp_key *keys = malloc(r->n * sizeof *keys);
	for (size_t i = 0; keys && i < r->n; i++)
		keys[i] = (struct sp_key){(uint32_t)(r->v[i].lo - min), (uint32_t)i};
	bool ok = keys && sp_keys_sort(keys, r->n, span);
	for (size_t i = 0; ok && i < r->n; i++)
		sorted[i] = r->v[keys[i].at];
	free(keys);
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
	} else if (!sort_narrow(r, min, (uint32_t)(max - min), sorted)) {
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
