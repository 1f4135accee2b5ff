#include "base/radix.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11
#define N_DIGITS (1u << DIGIT_BITS)

static void sort_digit(const struct sp_key *from, struct sp_key *to, size_t n, unsigned shift,
		       size_t *at)
{
	memset(at, 0, N_DIGITS * sizeof *at);
	for (size_t i = 0; i < n; i++)
		at[from[i].key >> shift & (N_DIGITS - 1)]++;
	size_t sum = 0;
	for (size_t d = 0; d < N_DIGITS; d++) {
		size_t count = at[d];
		at[d] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n; i++)
		to[at[from[i].key >> shift & (N_DIGITS - 1)]++] = from[i];
}

/* Least significant digit first. */
bool sp_keys_sort(struct sp_key *keys, size_t n, uint32_t max)
{
	struct sp_key *other = malloc((n + 1) * sizeof *other), *from = keys, *to = other;
	size_t *at = malloc(N_DIGITS * sizeof *at);
	bool ok = other && at;
	for (unsigned shift = 0; ok && shift < 32 && max >> shift; shift += DIGIT_BITS) {
		sort_digit(from, to, n, shift, at);
		struct sp_key *t = from;
		from = to;
		to = t;
	}
	if (ok && from != keys)
		memcpy(keys, from, n * sizeof *keys);
	free(other);
	free(at);
	return ok;
}
