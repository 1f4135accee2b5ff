/* What keeps large outputs out of memory: gzip as it comes, blocks put aside; and the digits of hot
 * loops.
 *
 * unit: sp-sym/scratch.c
 * unit: sp-sym/outtext.c
 * unit: sp-sym/out.c
 * libs: -lisal */
#include <inttypes.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

#include "../../sp-sym/out.h"
#include "../../sp-sym/scratch.h"
#include "tap.h"

static uint64_t seed;

static uint32_t next_random(void)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(seed >> 33);
}

/* n bytes of one kind: 0 all equal, 1 noise, 2 numbers as in a column, 3 lines that repeat, 4 two
 * symbols of which one is rare, 5 frequencies that double from byte to byte, so that codes would be
 * too long. */
static void fill(struct sp_buf *b, size_t n, unsigned kind)
{
	b->len = 0;
	while (b->len < n) {
		uint32_t x = next_random();
		if (kind == 0)
			sp_buf_u8(b, 'a');
		else if (kind == 1)
			sp_buf_u8(b, (uint8_t)x);
		else if (kind == 2)
			sp_buf_printf(b, "%u,", x % 200000);
		else if (kind == 3)
			sp_buf_printf(b, "\t%16x main+0x%x (/usr/bin/thing)\n", x % 50, x % 7);
		else if (kind == 4)
			sp_buf_u8(b, x % 5000 ? 'x' : 'y');
		else
			sp_buf_u8(b, (uint8_t)(x ? __builtin_ctz(x) : 40));
	}
	b->len = n;
}

/* Written as gzip in pieces of that size, and unpacked by another hand. */
static bool comes_back(const struct sp_buf *in, size_t piece, size_t *packed_len)
{
	char path[] = "/tmp/view_large.XXXXXX";
	struct sp_err err;
	struct out o;
	struct sp_buf packed = {0};
	size_t got = 0, used = 0;
	close(mkstemp(path));
	bool good = out_open(&o, path, &err) == 0 && out_gzip(&o, &err) == 0;
	for (size_t at = 0; good && at < in->len; at += piece)
		out_add(&o, in->data + at, in->len - at < piece ? in->len - at : piece);
	good = good && out_close(&o, &err) == 0 && sp_file_read(path, SIZE_MAX, &packed, &err) == 0;
	unlink(path);
	if (!good)
		return false;
	uint8_t *back = malloc(in->len + 1);
	struct libdeflate_decompressor *z = libdeflate_alloc_decompressor();
	good = libdeflate_gzip_decompress_ex(z, packed.data, packed.len, back, in->len + 1, &used,
					     &got) == LIBDEFLATE_SUCCESS &&
	       used == packed.len && got == in->len && (!got || !memcmp(back, in->data, got));
	libdeflate_free_decompressor(z);
	*packed_len = packed.len;
	free(back);
	sp_buf_deinit(&packed);
	return good;
}

static void test_deflate(void)
{
	static const size_t sizes[] = {0,     1,      2,      3,      4,      5,      255,
				       32768, 131071, 131072, 131073, 262144, 1000003};
	struct sp_buf in = {0};
	bool good = true, small = true;
	size_t packed;
	sp_buf_reserve(&in, 1 << 20);
	for (unsigned kind = 0; kind < 6; kind++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			fill(&in, sizes[i], kind);
			bool same = comes_back(&in, i % 2 ? 777 : 200000, &packed);
			if (!same)
				printf("# kind %u, %zu bytes\n", kind, sizes[i]);
			good &= same;
			small &= packed <= in.len + in.len / 100 + 400;
		}
	tap_ok(good, "gzip as it comes is unpacked by libdeflate to what went in, of any kind and "
		     "length");
	tap_ok(small, "noise grows by no more than a hundredth");
	fill(&in, 1000003, 3);
	tap_ok(comes_back(&in, 4096, &packed) && packed < in.len / 5,
	       "lines that repeat shrink to a fifth");
	sp_buf_deinit(&in);
}

static void test_scratch(int fd, const char *name)
{
	struct scratch s = {.fd = fd};
	static uint8_t block[SCRATCH_BLOCK], buf[SCRATCH_BLOCK];
	struct sp_err err;
	bool good = true;
	uint32_t id, n = SCRATCH_IN_MEMORY + 100;
	for (uint32_t i = 0; i < n; i++) {
		memset(block, (int)(i * 7), sizeof block);
		memcpy(block, &i, sizeof i);
		good &= scratch_add(&s, block, &id, &err) == 0 && id == i;
	}
	for (uint32_t i = n; i-- > 0;) {
		const uint8_t *p = scratch_get(&s, i, buf, &err);
		good &= p && !memcmp(p, &i, sizeof i) && p[SCRATCH_BLOCK - 1] == (uint8_t)(i * 7);
	}
	tap_ok(good, name);
	scratch_deinit(&s);
}

static void test_digits(void)
{
	bool good = true;
	uint64_t v = 1;
	for (unsigned i = 0; i < 200; i++, v = v * 3 / 2 + i % 3) {
		uint8_t got[OUT_DIGITS + 1] = {0};
		char want[24];
		*out_put_u64(got, v) = 0;
		snprintf(want, sizeof want, "%" PRIu64, v);
		good &= !strcmp((const char *)got, want);
	}
	for (uint64_t ten = 1;; ten *= 10) {
		for (uint64_t x = ten - 1; x <= ten; x++) {
			uint8_t got[OUT_DIGITS + 1] = {0};
			char want[24];
			*out_put_u64(got, x) = 0;
			snprintf(want, sizeof want, "%" PRIu64, x);
			good &= !strcmp((const char *)got, want);
		}
		if (ten > UINT64_MAX / 10)
			break;
	}
	tap_ok(good, "numbers have the digits that printf gives them");
}

int main(void)
{
	test_deflate();
	int fd = scratch_open("/no/such/folder/file");
	tap_ok(fd >= 0,
	       "what is put aside goes elsewhere when there is no place beside the output");
	test_scratch(fd, "blocks come back from memory and from the file");
	test_scratch(-1, "without a file all blocks stay in memory");
	if (fd >= 0)
		close(fd);
	test_digits();
	return tap_done();
}
