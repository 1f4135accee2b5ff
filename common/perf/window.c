#include "perf/window.h"

/* What one thread brings in at once: the pages of one page table, whose lock threads would wait for
 * otherwise. */
#define PIECE ((uint64_t)2 << 20)
/* How far ahead of the reader pages are at least, so that what it asks for ahead of time (frames.c)
 * is there, and at most. */
#define MARGIN ((uint64_t)1 << 20)
#define AHEAD ((uint64_t)8 << 20)
/* Pages stay while this much of the file is read beyond them: for what workers have in hand, and as
 * long as their records wait, up to a limit. Those that come back all the same, 16 with each that
 * is read, go with the next: with a limit of 8 MiB as much memory is in use, and more CPU time. */
#define KEEP_MIN ((uint64_t)8 << 20)
#define KEEP_MAX ((uint64_t)16 << 20)
#define DROP_AGAIN ((uint64_t)16 << 20)
/* Pages go in steps. With threads it is fewer, as each interrupts all their CPUs, and they are the
 * helpers' work as long as those keep up. */
#define DROP_STEP ((uint64_t)4 << 20)
#define DROP_STEP_HELPED ((uint64_t)8 << 20)
#define DROP_LATE ((uint64_t)10 << 20)
/* What the kernel maps around a page of a file that is touched (mm/memory.c, fault_around_bytes).
 * To touch one page in each such block costs half of what MADV_POPULATE_READ does, which looks at
 * every page. */
#define FAULT_BYTES ((uint64_t)64 << 10)

static uint64_t get(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

/* Up to where pages may go. */
static uint64_t drop_end(const struct sp_window *w)
{
	uint64_t at = get(&w->reading), needed = get(&w->needed);
	if (at < KEEP_MAX)
		return 0;
	uint64_t end = needed > at - KEEP_MAX ? needed : at - KEEP_MAX;
	if (end > at - KEEP_MIN)
		end = at - KEEP_MIN;
	return end & ~(PIECE - 1);
}

/* Let go what is behind, if it is a step at least. */
static bool drop_behind(struct sp_window *w, const struct sp_map_file *map, uint64_t step)
{
	uint64_t end = drop_end(w), from = get(&w->dropped);
	if (end < from + step || !atomic_compare_exchange_strong(&w->dropped, &from, end))
		return false;
	from -= from < DROP_AGAIN ? from : DROP_AGAIN;
	sp_map_file_release(map, map->data + from, (size_t)(end - from));
	return true;
}

/* The piece at offset `at`; false: somebody has taken it on. */
static bool bring(struct sp_window *w, const struct sp_map_file *map, uint64_t at)
{
	if (!atomic_compare_exchange_strong(&w->asked, &at, at + PIECE))
		return false;
	uint64_t n = map->size - at < PIECE ? map->size - at : PIECE;
	for (uint64_t i = 0; i < n; i += FAULT_BYTES)
		(void)*(const volatile uint8_t *)(map->data + at + i);
	return true;
}

uint64_t sp_window_move(struct sp_window *w, const struct sp_map_file *map, uint64_t at)
{
	uint64_t here = at & ~(PIECE - 1), asked;
	atomic_store_explicit(&w->reading, at, memory_order_relaxed);
	while ((asked = get(&w->asked)) < map->size && asked < at + MARGIN) {
		if (asked >= here)
			bring(w, map, asked);
		else /* what lies between was passed over */
			atomic_compare_exchange_strong(&w->asked, &asked, here);
	}
	bool helped = atomic_load_explicit(&w->helped, memory_order_relaxed);
	drop_behind(w, map, helped ? DROP_LATE : DROP_STEP);
	return at + MARGIN / 2;
}

/* A step of all that is left, which the map's end would do in one thread. */
static bool drop_rest(struct sp_window *w, const struct sp_map_file *map)
{
	uint64_t from = get(&w->dropped), left = map->size - from;
	uint64_t n = left < PIECE ? left : PIECE;
	if (n && atomic_compare_exchange_strong(&w->dropped, &from, from + n))
		sp_map_file_release(map, map->data + from, (size_t)n);
	return n != 0;
}

bool sp_window_help(struct sp_window *w, const struct sp_map_file *map)
{
	uint64_t asked;
	if (atomic_load_explicit(&w->ended, memory_order_acquire))
		return drop_rest(w, map);
	if (drop_behind(w, map, DROP_STEP_HELPED))
		return true;
	while ((asked = get(&w->asked)) < map->size && asked < get(&w->reading) + AHEAD) {
		atomic_store_explicit(&w->helped, true, memory_order_relaxed);
		if (bring(w, map, asked))
			return true;
	}
	return false;
}

bool sp_window_wants(const struct sp_window *w, const struct sp_map_file *map)
{
	uint64_t asked = get(&w->asked);
	return (asked < map->size && asked < get(&w->reading) + AHEAD - PIECE) ||
	       drop_end(w) >= get(&w->dropped) + DROP_STEP_HELPED;
}
