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

/* Least significant digit first: stable, and linear in the number of ranges, which a comparison
 * sort of a hundred thousand symbols is not. */
static bool sort_many(struct sp_ranges *r)
{
	uint64_t min = UINT64_MAX, max = 0;
	for (size_t i = 0; i < r->n; i++) {
		min = r->v[i].lo < min ? r->v[i].lo : min;
		max = r->v[i].lo > max ? r->v[i].lo : max;
	}
	struct sp_range *from = r->v, *to = malloc(r->n * sizeof *to);
	size_t *at = malloc(N_DIGITS * sizeof *at);
	if (!to || !at) {
		free(to);
		free(at);
		return false;
	}
	for (unsigned shift = 0; shift < 64 && (max - min) >> shift; shift += DIGIT_BITS) {
		memset(at, 0, N_DIGITS * sizeof *at);
		for (size_t i = 0; i < r->n; i++)
			at[(from[i].lo - min) >> shift & (N_DIGITS - 1)]++;
		size_t sum = 0;
		for (size_t d = 0; d < N_DIGITS; d++) {
			size_t n = at[d];
			at[d] = sum;
			sum += n;
		}
		for (size_t i = 0; i < r->n; i++)
			to[at[(from[i].lo - min) >> shift & (N_DIGITS - 1)]++] = from[i];
		struct sp_range *t = from;
		from = to;
		to = t;
	}
	if (from != r->v)
		r->cap = r->n;
	r->v = from;
	free(to);
	free(at);
	return true;
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
