/* The floor: cursors, buffers, tables, counters, guarded maps. */
#define _GNU_SOURCE
#include "tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/counters.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/table.h"

static void test_cursor(void)
{
	static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 'h', 'i', 0, 'x'};
	struct sp_cursor c = sp_cursor(bytes, sizeof bytes);
	tap_eq(sp_cur_u16(&c), 0x0201, "a u16 is little-endian");
	tap_eq(sp_cur_u8(&c), 3, "a u8 follows it");
	tap_eq(sp_cur_u32(&c), 0x07060504, "an unaligned u32 reads whole");
	sp_cur_skip(&c, 1);
	tap_str(sp_cur_str(&c), "hi", "a string ends at its NUL");
	tap_ok(sp_cur_str(&c) == NULL && c.bad, "a string without NUL is bad");
	tap_eq(sp_cur_u8(&c), 0, "a bad cursor gives zeros");
	c = sp_cursor(bytes, sizeof bytes);
	c.swap = true;
	tap_eq(sp_cur_u64(&c), UINT64_C(0x0102030405060708), "a swapped u64 is big-endian");
	sp_cur_skip(&c, UINT64_MAX);
	tap_ok(c.bad, "skipping past any end is bad, also with a huge length");
}

static void put_sleb(struct sp_buf *b, int64_t v)
{
	for (;;) {
		uint8_t byte = (uint8_t)(v & 0x7f);
		v >>= 7;
		if ((v == 0 && !(byte & 0x40)) || (v == -1 && (byte & 0x40))) {
			sp_buf_u8(b, byte);
			return;
		}
		sp_buf_u8(b, byte | 0x80);
	}
}

static void test_leb(void)
{
	static const uint64_t values[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX};
	bool good = true;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct sp_buf b = {0};
		sp_buf_uleb(&b, values[i]);
		put_sleb(&b, (int64_t)values[i]);
		put_sleb(&b, -(int64_t)(values[i] >> 1));
		struct sp_cursor c = sp_cursor(b.data, b.len);
		good &= sp_cur_uleb(&c) == values[i] && sp_cur_sleb(&c) == (int64_t)values[i] &&
			sp_cur_sleb(&c) == -(int64_t)(values[i] >> 1) && !c.bad && !sp_cur_left(&c);
		sp_buf_deinit(&b);
	}
	tap_ok(good, "LEB128 numbers come back as they were");
	static const uint8_t eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};
	struct sp_cursor c = sp_cursor(eleven, sizeof eleven);
	sp_cur_uleb(&c);
	tap_ok(c.bad, "a LEB128 of eleven bytes is bad");
	static const uint8_t wide[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
	c = sp_cursor(wide, sizeof wide);
	sp_cur_uleb(&c);
	tap_ok(c.bad, "a LEB128 that loses bits is bad");
}

static void test_tables(void)
{
	struct sp_map64 m = {0};
	for (uint32_t i = 0; i < 10000; i++)
		sp_map64_put(&m, (uint64_t)i * 4096, i);
	bool good = true;
	for (uint32_t i = 0; i < 10000; i++)
		good &= sp_map64_get(&m, (uint64_t)i * 4096) == i;
	tap_ok(good && m.n == 10000, "ten thousand keys are found again");
	tap_eq(sp_map64_get(&m, 17), SP_NOT_FOUND, "a key that was not put is not found");
	sp_map64_put(&m, 4096, 77);
	tap_eq(sp_map64_get(&m, 4096), 77, "putting a key again replaces its value");
	sp_map64_deinit(&m);

	/* Keys that come and go: few slots, so that they stand in each other's way. */
	uint32_t value[64] = {0}, n_keys = 0, room = 0, seed = 1;
	good = true;
	for (int step = 0; step < 20000; step++) {
		seed = seed * 1664525 + 1013904223;
		uint32_t key = seed >> 16 & 63;
		if (seed >> 24 & 1 && n_keys < 40) {
			n_keys += !value[key];
			value[key] = (uint32_t)step + 1;
			sp_map64_put(&m, key, value[key]);
		} else {
			n_keys -= value[key] != 0;
			value[key] = 0;
			sp_map64_remove(&m, key);
		}
		room = step == 100 ? m.mask : room;
		for (uint32_t k = 0; k < 64; k++)
			good &= sp_map64_get(&m, k) == (value[k] ? value[k] : SP_NOT_FOUND);
		good &= m.n == n_keys;
	}
	tap_ok(good, "what is removed is not found, everything else is");
	tap_eq(m.mask, room, "removed keys take no room");
	sp_map64_deinit(&m);

	struct sp_intern t = {0};
	bool is_new;
	for (uint32_t i = 0; i < 5000; i++) {
		char text[32];
		int n = snprintf(text, sizeof text, "name-%u", i % 2500);
		uint32_t id = sp_intern_add(&t, text, (size_t)n, &is_new);
		good &= id == i % 2500 && is_new == (i < 2500);
	}
	tap_ok(good && t.n == 2500, "equal strings get equal ids, in order of arrival");
	size_t len;
	tap_str(sp_intern_get(&t, 42, &len), "name-42", "an id gives its string back");
	tap_ok(sp_intern_add(&t, "", 0, &is_new) == 2500 && is_new, "the empty string is a string");
	tap_ok(sp_intern_add(&t, "a\0b", 3, NULL) != sp_intern_add(&t, "a\0c", 3, NULL),
	       "a NUL inside a string counts");
	sp_intern_deinit(&t);
}

static void test_counters(void)
{
	struct sp_counters a = {0}, b = {0};
	sp_count(&a, SP_C_samples, 3);
	sp_count(&b, SP_C_samples, 4);
	sp_count(&b, SP_C_lost_events, 0);
	sp_counters_add(&a, &b);
	tap_eq(a.v[SP_C_samples], 7, "counters of two stages add up");
	tap_ok(sp_counter_known(&a, SP_C_lost_events) && !sp_counter_known(&a, SP_C_throttled),
	       "a counted zero is known, an uncounted one is not");
	tap_eq(sp_counter_find("lost_events"), SP_C_lost_events, "a counter is found by its name");
	tap_eq(sp_counter_find("no_such"), SP_N_COUNTERS, "an unknown name finds no counter");
}

static void test_shrinking_file(void)
{
	char path[] = "/tmp/sp-base-XXXXXX";
	int fd = mkstemp(path);
	static uint8_t block[65536];
	memset(block, 7, sizeof block);
	struct sp_err err;
	struct sp_map_file m = {0}, copy = {0};
	struct sigaction before, after; /* instruments may have a handler of their own */
	sigaction(SIGBUS, NULL, &before);
	tap_ok(fd >= 0 && sp_fd_write(fd, block, sizeof block, path, &err) == 0 &&
		       sp_map_file_open(&copy, path, &err) == 0 && copy.size == sizeof block,
	       "a file is copied whole");
	sigaction(SIGBUS, NULL, &after);
	tap_ok(after.sa_handler == before.sa_handler,
	       "who does not say that files may be mapped keeps the signals");
	sp_map_guard();
	tap_ok(sp_map_file_open(&m, path, &err) == 0 && m.size == sizeof block,
	       "a file maps whole");
	sp_map_file_release(&m, m.data + 1, m.size - 1);
	tap_ok(m.data[0] == 7 && m.data[1] == 7 && m.data[40000] == 7,
	       "what was released of it can be read again");
	tap_ok(ftruncate(fd, 4096) == 0 && m.data[0] == 7 && m.data[40000] == 0,
	       "bytes that a mapped file lost read as zero instead of killing");
	tap_ok(copy.data[0] == 7 && copy.data[40000] == 7, "a copy has lost nothing");
	sp_map_file_close(&m);
	sp_map_file_close(&copy);
	close(fd);
	unlink(path);
	tap_ok(sp_file_open("/dev/null", 0, &err) == SP_ERR_INVALID &&
		       strstr(err.msg, "not a regular file"),
	       "a device is refused where a file is due");
}

int main(void)
{
	test_cursor();
	test_leb();
	test_tables();
	test_counters();
	test_shrinking_file();
	return tap_done();
}
