/* The hash of a file's content: values that are stored and must never change, and that everything
 * in a file has its part in them. */
#include "elf/content_hash.h"

#include <stdlib.h>
#include <string.h>

#include "tap.h"

static const char *hex_of(const void *data, size_t size)
{
	static char hex[2 * SP_CONTENT_HASH_BYTES + 1];
	uint8_t hash[SP_CONTENT_HASH_BYTES];
	sp_content_hash(data, size, hash);
	for (size_t i = 0; i < sizeof hash; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	return hex;
}

static void test_values(void)
{
	uint8_t data[256];
	for (unsigned i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)i;
	tap_str(hex_of("", 0), "f0e7f2edc0ed5f0dbc62c1e95ae565bdb553e1d4", "of nothing");
	tap_str(hex_of("a", 1), "8805586ae8440af3722e20d266359188c0a31c8e", "of a byte");
	tap_str(hex_of(data, 32), "21b3f7eae4aa2c25224b4d45b91db90a08d861e9", "of a stripe");
	tap_str(hex_of(data, 255), "f235eb22a1919af855f041208d195acbb678e141", "of stripes, words and a rest");
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, SP_CONTENT_HASH_BYTES);
}

/* Each bit of 300 bytes turned, and each length: all hashes differ. */
static void test_bits(void)
{
	enum { N = 300 };
	static uint8_t all[N * 8 + N + 1][SP_CONTENT_HASH_BYTES];
	uint8_t data[N] = {0};
	size_t n = 0;
	for (size_t i = 0; i <= N; i++)
		sp_content_hash(data, i, all[n++]);
	for (size_t i = 0; i < N; i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			data[i] ^= (uint8_t)(1u << bit);
			sp_content_hash(data, N, all[n++]);
			data[i] = 0;
		}
	}
	qsort(all, n, sizeof *all, by_bytes);
	size_t equal = 0;
	for (size_t i = 1; i < n; i++)
		equal += by_bytes(all[i - 1], all[i]) == 0;
	tap_eq(equal, 0, "zeros of each length, and each bit, give another hash");
	/* Halves as well: all of the 20 bytes carry the difference. */
	equal = 0;
	for (size_t i = 1; i < n; i++)
		equal += memcmp(all[i - 1], all[i], 8) == 0 || memcmp(all[i - 1] + 8, all[i] + 8, 8) == 0 ||
			 memcmp(all[i - 1] + 12, all[i] + 12, 8) == 0;
	tap_eq(equal, 0, "in each part of it");
}

static void test_place(void)
{
	uint8_t a[96], b[96 + 1];
	for (unsigned i = 0; i < sizeof a; i++)
		a[i] = (uint8_t)(i * 7 + 1);
	memcpy(b + 1, a, sizeof a);
	char first[2 * SP_CONTENT_HASH_BYTES + 1];
	snprintf(first, sizeof first, "%s", hex_of(a, sizeof a));
	tap_str(hex_of(b + 1, sizeof a), first, "where the bytes lie does not matter");
	memcpy(b, a + 32, 32);
	memcpy(b + 32, a, 32);
	memcpy(b + 64, a + 64, 32);
	tap_ok(strcmp(hex_of(b, sizeof a), first) != 0, "their order does");
}

/* Sparse: only the pages that are touched cost memory. */
static void test_large(void)
{
	size_t size = SP_CONTENT_HASH_MAX + (1 << 20) + 8192, half = SP_CONTENT_HASH_MAX / 2;
	uint8_t *p = calloc(1, size);
	if (!p) {
		tap_ok(false, "there is memory for a large file");
		return;
	}
	char zeros[2 * SP_CONTENT_HASH_BYTES + 1], whole[2 * SP_CONTENT_HASH_BYTES + 1];
	snprintf(whole, sizeof whole, "%s", hex_of(p, SP_CONTENT_HASH_MAX));
	snprintf(zeros, sizeof zeros, "%s", hex_of(p, size));
	tap_ok(strcmp(whole, zeros) != 0, "the size of a large file counts");
	p[half + 4096] = 1;
	tap_str(hex_of(p, size), zeros, "most of its middle does not");
	tap_ok(strcmp(hex_of(p, SP_CONTENT_HASH_MAX), whole) != 0, "that of one below the limit does");
	p[half + 4096] = 0;
	const size_t places[] = {half - 1, half + (1 << 20) - 4096, half + (1 << 20) - 1, size - half,
				 size - 1};
	size_t missed = 0;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		p[places[i]] = 1;
		missed += strcmp(hex_of(p, size), zeros) == 0;
		p[places[i]] = 0;
	}
	tap_eq(missed, 0, "both ends of its parts do");
	free(p);
}

/* Parts of all sizes around the places where there is one more: in order, apart, within the file. */
static void test_parts(void)
{
	size_t step = 1 << 20, bad = 0, n_middle[2] = {0};
	for (size_t k = 0; k < 4; k++) {
		for (size_t d = 0; d < 3; d++) {
			size_t size = SP_CONTENT_HASH_MAX + k * step + d - 1, end = 0, all = 0, at, n, i = 0;
			for (; (n = sp_content_part(size, i, &at)) > 0; i++) {
				bad += at < end || n > size - at;
				end = at + n;
				all += n;
			}
			bad += end != size;
			size_t middle = size <= SP_CONTENT_HASH_MAX ? 0 : (size - SP_CONTENT_HASH_MAX) / step;
			bad += all != (size <= SP_CONTENT_HASH_MAX ? size : SP_CONTENT_HASH_MAX + middle * 4096);
			n_middle[0] += middle;
			n_middle[1] += size <= SP_CONTENT_HASH_MAX ? 0 : i - 2;
		}
	}
	tap_eq(bad, 0, "parts are apart, and the last one ends the file");
	tap_eq(n_middle[1], n_middle[0], "a page of each whole MiB between");
}

int main(void)
{
	test_values();
	test_bits();
	test_place();
	test_large();
	test_parts();
	return tap_done();
}
