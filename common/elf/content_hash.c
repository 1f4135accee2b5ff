#include "elf/content_hash.h"

#include <string.h>

#include "base/le.h"

#define N_LANES 4u
#define STRIPE (N_LANES * 8)

#define PAGE ((size_t)4096)
#define STEP ((size_t)1 << 20) /* from a page to the next one */

/* Odd numbers with about half of their bits set: digits of pi, from its fractional part on. */
#define K1 UINT64_C(0x243f6a8885a308d3)
#define K2 UINT64_C(0x13198a2e03707345)
#define K3 UINT64_C(0xa4093822299f31d1)

static uint64_t turn(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

/* Both are one-to-one in each argument: a file that differs in 8 bytes only has another lane. */
static uint64_t step(uint64_t lane, uint64_t word)
{
	return turn(lane + word * K1, 31) * K2;
}

static uint64_t scatter(uint64_t x)
{
	x = (x ^ x >> 32) * K3;
	x = (x ^ x >> 29) * K1;
	return x ^ x >> 32;
}

/* Zeros follow what does not fill a stripe: the size is hashed too. */
static void add(uint64_t lane[N_LANES], const uint8_t *p, size_t n)
{
	uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
	for (; n >= STRIPE; n -= STRIPE, p += STRIPE) {
		a = step(a, sp_get64(p));
		b = step(b, sp_get64(p + 8));
		c = step(c, sp_get64(p + 16));
		d = step(d, sp_get64(p + 24));
	}
	lane[0] = a;
	lane[1] = b;
	lane[2] = c;
	lane[3] = d;
	for (unsigned i = 0; n; i++) {
		uint8_t word[8] = {0};
		size_t part = n < sizeof word ? n : sizeof word;
		for (size_t j = 0; j < part; j++)
			word[j] = p[j];
		lane[i] = step(lane[i], sp_get64(word));
		p += part;
		n -= part;
	}
}

size_t sp_content_part(size_t size, size_t i, size_t *at)
{
	size_t half = SP_CONTENT_HASH_MAX / 2;
	*at = 0;
	if (size <= SP_CONTENT_HASH_MAX)
		return i ? 0 : size;
	size_t n_pages = (size - SP_CONTENT_HASH_MAX) / STEP;
	if (i == 0)
		return half;
	*at = i <= n_pages ? half + i * STEP - PAGE : size - half;
	return i <= n_pages ? PAGE : i == n_pages + 1 ? half : 0;
}

void sp_content_hash(const void *data, size_t size, uint8_t out[SP_CONTENT_HASH_BYTES])
{
	const uint8_t *p = data;
	uint64_t lane[N_LANES] = {K1, K2, K3, K1 ^ K2};
	for (size_t i = 0, at, n; (n = sp_content_part(size, i, &at)) > 0; i++)
		add(lane, p + at, n);
	uint64_t all = scatter(size);
	for (unsigned i = 0; i < N_LANES; i++)
		all = scatter(step(all, scatter(lane[i])));
	uint64_t other = scatter(step(scatter(lane[0] ^ turn(lane[2], 17)), all));
	uint64_t third = scatter(step(scatter(lane[1] ^ turn(lane[3], 17)), other));
	sp_put64(out, all);
	sp_put64(out + 8, other);
	sp_put32(out + 16, (uint32_t)third);
}

bool sp_content_is(const void *data, size_t size, const uint8_t hash[SP_CONTENT_HASH_BYTES])
{
	uint8_t own[SP_CONTENT_HASH_BYTES];
	sp_content_hash(data, size, own);
	return !memcmp(own, hash, sizeof own);
}
