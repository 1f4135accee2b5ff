/* The window of a mapped file: what the reader needs is in memory, what lies behind is let go,
 * whoever does the work, and the bytes are the file's at any time.
 */
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/le.h"
#include "perf/window.h"

#define MIB ((uint64_t)1 << 20)
#define PAGES (MIB / 4096)
#define FILE_BYTES (96 * MIB + 12345)

static struct sp_map_file map;

/* Each word is its own offset. */
static bool make_file(void)
{
	static uint64_t words[8192];
	char path[] = "/tmp/perf_window.XXXXXX";
	int fd = mkstemp(path);
	if (fd < 0)
		return false;
	unlink(path);
	bool ok = true;
	for (uint64_t at = 0; ok && at < FILE_BYTES; at += sizeof words) {
		uint64_t n = FILE_BYTES - at < sizeof words ? FILE_BYTES - at : sizeof words;
		for (uint64_t i = 0; i < sizeof words / 8; i++)
			words[i] = at + i * 8;
		ok = sp_fd_write(fd, words, (size_t)n, path, NULL) == 0;
	}
	ok = ok && sp_map_file_fd(&map, fd, path, NULL) == 0;
	close(fd);
	return ok;
}

/* Bit 63 of /proc/self/pagemap: the page is in this process's memory. How many of the map's are. */
static uint64_t resident(uint64_t from, uint64_t to)
{
	static uint64_t entries[512];
	uint64_t n = 0;
	int fd = sp_file_open("/proc/self/pagemap", 0, NULL);
	for (uint64_t at = from; at < to; at += 2 * MIB) {
		uint64_t bytes = to - at < 2 * MIB ? to - at : 2 * MIB;
		size_t want = (size_t)((bytes + 4095) / 4096 * 8);
		off_t where = (off_t)(((uintptr_t)map.data + at) / 4096 * 8);
		if (pread(fd, entries, want, where) != (ssize_t)want)
			tap_ok(false, "pagemap can be read");
		for (size_t i = 0; i < want / 8; i++)
			n += entries[i] >> 63;
	}
	close(fd);
	return n;
}

static bool bytes_are_right(uint64_t at)
{
	return sp_get64(map.data + at / 8 * 8) == at / 8 * 8;
}

static void alone(void)
{
	struct sp_window w = {0};
	uint64_t next = 0, most = 0;
	bool right = true, there = true;
	for (uint64_t at = 0; at + 8 < FILE_BYTES; at += 64 << 10) {
		if (at >= next)
			next = sp_window_move(&w, &map, at);
		if (at % MIB == 0) {
			there &= resident(at, at + 1) == 1;
			uint64_t all = resident(0, FILE_BYTES);
			most = all > most ? all : most;
		}
		right &= bytes_are_right(at);
	}
	tap_ok(right, "the bytes are right");
	tap_ok(there, "what comes next is in memory");
	tap_ok(most <= 28 * PAGES, "at most 28 MiB are");
	tap_ok(!sp_window_help(&w, &map), "at the end there is nothing more to do");
}

static struct sp_window shared;
static _Atomic bool done;

static void *help(void *arg)
{
	uint64_t *n = arg;
	while (!atomic_load(&done))
		*n += sp_window_help(&shared, &map);
	return NULL;
}

static void with_threads(void)
{
	pthread_t threads[3];
	static uint64_t helped[3];
	uint64_t next = 0;
	bool right = true;
	int n = 0;
	while (n < 3 && pthread_create(&threads[n], NULL, help, &helped[n]) == 0)
		n++;
	for (uint64_t at = 0; at + 8 < FILE_BYTES; at += 4096) {
		if (at >= next)
			next = sp_window_move(&shared, &map, at);
		right &= bytes_are_right(at) && bytes_are_right(at / 2) && bytes_are_right(at / 3);
	}
	atomic_store(&done, true);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	tap_ok(n == 3 && right, "with threads too");
	/* of 2 MiB; what lies behind goes by 8 */
	tap_ok(helped[0] + helped[1] + helped[2] <= 49 + 12, "no piece is brought or let go twice");
}

/* What is passed over is not read; a file that nobody reads is brought a little only. */
static void skipping(void)
{
	sp_map_file_release(&map, map.data, map.size);
	struct sp_window w = {0};
	sp_window_move(&w, &map, 0);
	sp_window_move(&w, &map, 80 * MIB);
	tap_ok(resident(4 * MIB, 78 * MIB) == 0, "what is passed over stays out");
	tap_ok(resident(80 * MIB, 80 * MIB + 1) == 1, "what comes behind does not");
	sp_map_file_release(&map, map.data, map.size);
	w = (struct sp_window){0};
	int n = 0;
	while (n < 100 && sp_window_help(&w, &map))
		n++;
	tap_ok(n > 0 && n < 8 && resident(16 * MIB, 90 * MIB) == 0,
	       "helpers stay near the reader");
	tap_ok(!sp_window_wants(&w, &map), "and sleep then");
	atomic_store(&w.reading, 40 * MIB);
	tap_ok(sp_window_wants(&w, &map), "until it has come near");
	w = (struct sp_window){0};
	uint64_t most = 0;
	for (uint64_t at = 0; at <= 80 * MIB; at += MIB / 2) {
		sp_window_move(&w, &map, at);
		while (sp_window_help(&w, &map))
			;
		uint64_t all = resident(0, FILE_BYTES);
		most = all > most ? all : most;
	}
	tap_ok(most <= 34 * PAGES, "they let go what is behind it too");
}

/* Pages go as soon as no record waits in them. */
static void rounds(void)
{
	sp_map_file_release(&map, map.data, map.size);
	struct sp_window w = {0};
	uint64_t next = 0;
	for (uint64_t at = 0; at < 80 * MIB; at += 64 << 10) {
		atomic_store(&w.needed, at);
		if (at >= next)
			next = sp_window_move(&w, &map, at);
	}
	tap_ok(resident(0, FILE_BYTES) <= 20 * PAGES, "short rounds need less");
}

/* When nobody reads any more all pages may go, and are the file's again where one is read. */
static void the_end(void)
{
	struct sp_window w = {0};
	sp_window_move(&w, &map, 0);
	sp_window_move(&w, &map, 20 * MIB);
	atomic_store(&w.ended, true);
	int n = 0;
	while (n < 100 && sp_window_help(&w, &map))
		n++;
	tap_ok(n > 0 && n < 100, "letting go of the rest ends");
	tap_ok(resident(0, FILE_BYTES) <= 1, "and leaves the last page's part at most");
	tap_ok(bytes_are_right(20 * MIB), "which is no loss");
}

int main(void)
{
	sp_map_guard();
	if (!make_file())
		tap_ok(false, "a file to map");
	alone();
	with_threads();
	skipping();
	rounds();
	the_end();
	sp_map_file_close(&map);
	return tap_done();
}
