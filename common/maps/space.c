#include "maps/space.h"

#include <stdlib.h>
#include <string.h>

struct sp_space *sp_space_new(uint64_t generation)
{
	struct sp_space *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	s->generation = generation;
	return s;
}

void sp_space_hold(struct sp_space *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

static void drop_attached(struct sp_space *s)
{
	if (s->attached)
		s->drop(s->attached);
	s->attached = NULL;
}

void sp_space_release(struct sp_space *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	drop_attached(s);
	free(s->room);
	free(s);
}

/* The index of the first mapping that ends above addr. */
static uint32_t first_above(const struct sp_space *s, uint64_t addr)
{
	uint32_t lo = 0, hi = s->n;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (s->maps[mid].end > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

const struct sp_mapping *sp_space_find(const struct sp_space *s, uint64_t addr)
{
	uint32_t i = first_above(s, addr);
	return i < s->n && s->maps[i].start <= addr ? &s->maps[i] : NULL;
}

/* The same array in memory for n mappings more, in the middle of it: both ends may grow. */
static bool copy_maps(struct sp_space *to, const struct sp_space *from, uint32_t more)
{
	uint32_t cap = (from->n + more) * 2 + 8;
	struct sp_mapping *room = malloc(cap * sizeof *room);
	if (!room)
		return false;
	struct sp_mapping *maps = room + (cap - from->n) / 2;
	if (from->n)
		memcpy(maps, from->maps, from->n * sizeof *maps);
	free(to->room);
	to->room = room;
	to->maps = maps;
	to->cap = cap;
	to->n = from->n;
	return true;
}

/* Make *s ours alone, with room for `more` mappings. */
static bool own(struct sp_space **s, uint32_t more)
{
	struct sp_space *old = *s;
	if (atomic_load_explicit(&old->refs, memory_order_acquire) == 1) {
		size_t before = old->room ? (size_t)(old->maps - old->room) : 0;
		size_t after = old->cap - old->n - before;
		return (before >= more && after >= more) || copy_maps(old, old, more);
	}
	struct sp_space *copy = sp_space_new(0);
	if (!copy)
		return false;
	if (!copy_maps(copy, old, more)) {
		sp_space_release(copy);
		return false;
	}
	sp_space_release(old);
	*s = copy;
	return true;
}

/* Replace the mappings [at, at + n_old) by n_new others; moves the shorter side. */
static void replace(struct sp_space *s, uint32_t at, uint32_t n_old, const struct sp_mapping *with,
		    uint32_t n_new)
{
	uint32_t tail = s->n - at - n_old;
	if (at < tail) {
		struct sp_mapping *to = s->maps + n_old - n_new; /* may lie before maps */
		memmove(to, s->maps, at * sizeof *to);
		s->maps = to;
	} else {
		memmove(s->maps + at + n_new, s->maps + at + n_old, tail * sizeof *s->maps);
	}
	memcpy(s->maps + at, with, n_new * sizeof *with);
	s->n = s->n - n_old + n_new;
}

int sp_space_insert(struct sp_space **space, const struct sp_mapping *m, uint64_t *generations)
{
	struct sp_space *s = *space;
	uint32_t at = first_above(s, m->start), to = at;
	while (to < s->n && s->maps[to].start < m->end)
		to++;
	const struct sp_mapping *first = to > at ? &s->maps[at] : NULL;
	const struct sp_mapping *last = to > at ? &s->maps[to - 1] : NULL;
	/* mprotect and a second reading of /proc/PID/maps repeat what is known: keep the version.
	 */
	if (first && first == last && first->start <= m->start && m->end <= first->end &&
	    first->file == m->file && first->flags == m->flags &&
	    first->foff + (m->start - first->start) == m->foff)
		return 0;

	struct sp_mapping with[3];
	uint32_t n = 0;
	if (first && first->start < m->start) {
		with[n] = *first;
		with[n++].end = m->start;
	}
	with[n++] = *m;
	if (last && last->end > m->end) {
		with[n] = *last;
		with[n].foff += m->end - last->start;
		with[n++].start = m->end;
	}
	if (s->n - (to - at) + n > SP_SPACE_MAPPINGS)
		return 0;
	if (!own(space, 2))
		return SP_ERR_NOMEM;
	s = *space;
	drop_attached(s);
	s->generation = ++*generations;
	replace(s, at, to - at, with, n);
	return 1;
}
