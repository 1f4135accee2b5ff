#include "maps/space.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

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

static void release_chunk(struct sp_chunk *c)
{
	if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (c->attached)
		c->drop(c->attached);
	free(c);
}

void sp_space_release(struct sp_space *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	drop_attached(s);
	for (size_t i = 0; i < s->n_chunks; i++)
		release_chunk(s->chunks[i]);
	free(s->chunks);
	free(s);
}

/* The first mapping that ends above addr; behind the last one: chunk n_chunks. */
static struct sp_space_at first_above(const struct sp_space *s, uint64_t addr)
{
	size_t lo = 0, hi = s->n_chunks;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct sp_chunk *c = s->chunks[mid];
		if (c->maps[c->n - 1].end > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	struct sp_space_at p = {.chunk = lo};
	if (lo == s->n_chunks)
		return p;
	const struct sp_chunk *c = s->chunks[lo];
	for (uint32_t end = c->n - 1; p.at < end;) { /* the last one ends above */
		uint32_t mid = p.at + (end - p.at) / 2;
		if (c->maps[mid].end > addr)
			end = mid;
		else
			p.at = mid + 1;
	}
	return p;
}

const struct sp_mapping *sp_space_find(const struct sp_space *s, uint64_t addr)
{
	struct sp_space_at p = first_above(s, addr);
	if (p.chunk == s->n_chunks)
		return NULL;
	const struct sp_mapping *m = &s->chunks[p.chunk]->maps[p.at];
	return m->start <= addr ? m : NULL;
}

const struct sp_mapping *sp_space_next(const struct sp_space *s, struct sp_space_at *at)
{
	if (at->chunk == s->n_chunks)
		return NULL;
	const struct sp_chunk *c = s->chunks[at->chunk];
	const struct sp_mapping *m = &c->maps[at->at++];
	if (at->at == c->n)
		*at = (struct sp_space_at){.chunk = at->chunk + 1};
	return m;
}

/* Make *s ours alone, with room for `more` chunks. */
static bool own(struct sp_space **s, size_t more)
{
	struct sp_space *old = *s;
	if (atomic_load_explicit(&old->refs, memory_order_acquire) == 1)
		return sp_grow(&old->chunks, &old->cap_chunks, old->n_chunks + more,
			       sizeof *old->chunks);
	struct sp_space *copy = sp_space_new(0);
	if (!copy || !sp_grow(&copy->chunks, &copy->cap_chunks, old->n_chunks + more,
			      sizeof *copy->chunks)) {
		sp_space_release(copy);
		return false;
	}
	for (size_t i = 0; i < old->n_chunks; i++) {
		copy->chunks[i] = old->chunks[i];
		atomic_fetch_add_explicit(&copy->chunks[i]->refs, 1, memory_order_relaxed);
	}
	copy->n_chunks = old->n_chunks;
	copy->n = old->n;
	sp_space_release(old);
	*s = copy;
	return true;
}

/* The mappings that take the place of some whole chunks: parts of the first and of the last one,
 * and what comes between. */
struct change {
	size_t first, end; /* chunks of before */
	uint32_t n;
	struct sp_mapping maps[2 * SP_CHUNK_MAPPINGS + 3];
};

static void take(struct change *c, const struct sp_mapping *maps, uint32_t n)
{
	memcpy(c->maps + c->n, maps, n * sizeof *maps);
	c->n += n;
}

#define MAX_NEW 3u

/* The change's chunks, of about equal size. A chunk that would be split while the addresses rise or
 * fall leaves full ones behind. */
static uint32_t make_chunks(const struct change *c, bool at_end, struct sp_chunk *out[MAX_NEW])
{
	uint32_t count = (c->n + SP_CHUNK_MAPPINGS - 1) / SP_CHUNK_MAPPINGS, from = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t left = c->n - from;
		uint32_t n = at_end && i + 1 < count ? SP_CHUNK_MAPPINGS : left / (count - i);
		out[i] = malloc(sizeof *out[i] + n * sizeof *c->maps);
		if (!out[i]) {
			while (i--)
				free(out[i]);
			return 0;
		}
		*out[i] = (struct sp_chunk){.refs = 1, .n = n};
		memcpy(out[i]->maps, c->maps + from, n * sizeof *c->maps);
		from += n;
	}
	return count;
}

/* Put the change's chunks in their place. */
static bool apply(struct sp_space **space, const struct change *c, uint32_t n)
{
	struct sp_chunk *fresh[MAX_NEW];
	uint32_t count = make_chunks(c, c->end == (*space)->n_chunks, fresh);
	if (!count)
		return false;
	if (!own(space, MAX_NEW)) {
		while (count--)
			free(fresh[count]);
		return false;
	}
	struct sp_space *s = *space;
	for (size_t i = c->first; i < c->end; i++)
		release_chunk(s->chunks[i]);
	struct sp_chunk **at = s->chunks + c->first;
	memmove(at + count, s->chunks + c->end, (s->n_chunks - c->end) * sizeof *at);
	memcpy(at, fresh, count * sizeof *at);
	s->n_chunks = s->n_chunks - (c->end - c->first) + count;
	s->n = n;
	return true;
}

/* The mappings from p on that begin below end, into a list; *p: the first one behind them. */
static bool overlapped(const struct sp_space *s, struct sp_space_at *p, uint64_t end,
		       struct sp_mapping_list *out)
{
	out->n = 0;
	while (p->chunk < s->n_chunks && s->chunks[p->chunk]->maps[p->at].start < end) {
		struct sp_mapping *m = SP_PUSH(&out->v, &out->n, &out->cap);
		if (!m)
			return false;
		*m = *sp_space_next(s, p);
	}
	return true;
}

int sp_space_insert(struct sp_space **space, const struct sp_mapping *m, uint64_t *generations,
		    struct sp_mapping_list *replaced)
{
	const struct sp_space *s = *space;
	struct sp_space_at at = first_above(s, m->start), to = at;
	if (!overlapped(s, &to, m->end, replaced))
		return SP_ERR_NOMEM;
	const struct sp_mapping *first = replaced->n ? &replaced->v[0] : NULL;
	const struct sp_mapping *last = replaced->n ? &replaced->v[replaced->n - 1] : NULL;
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
	uint32_t n_after = s->n - (uint32_t)replaced->n + n;
	if (n_after > SP_SPACE_MAPPINGS)
		return 0;
	struct change c;
	c.n = 0;
	if (at.chunk == s->n_chunks && s->n_chunks) { /* behind all: the last chunk goes on */
		at.chunk--;
		at.at = s->chunks[at.chunk]->n;
	}
	c.first = at.chunk;
	c.end = to.chunk;
	if (s->n_chunks)
		take(&c, s->chunks[at.chunk]->maps, at.at);
	take(&c, with, n);
	if (to.chunk < s->n_chunks) {
		const struct sp_chunk *tail = s->chunks[to.chunk];
		take(&c, tail->maps + to.at, tail->n - to.at);
		c.end++;
	}
	if (!apply(space, &c, n_after))
		return SP_ERR_NOMEM;
	drop_attached(*space);
	(*space)->generation = ++*generations;
	return 1;
}
