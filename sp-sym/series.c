#include "series.h"

#include <stdlib.h>

/* A sample: the time since the one before; the stack, twice shifted, with a bit for a lane and one
 * for a weight that follow since they are others. All are LEB128. */
#define OTHER_LANE 1u
#define OTHER_WEIGHT 2u
#define SAMPLE_MAX (10u + 5 + 5 + 10)
/* A block has no room for one more from here on. */
#define BLOCK_FULL (SCRATCH_BLOCK - SAMPLE_MAX)

size_t series_n_lists(const struct view *v)
{
	return sp_spool_n_threads(v->spool) * (v->apart ? sp_spool_n_events(v->spool) : 1);
}

size_t series_list(const struct view *v, uint32_t task, uint32_t event)
{
	size_t thread = v->tasks[task].thread;
	return v->apart ? thread * sp_spool_n_events(v->spool) + event : thread;
}

static uint8_t *put(uint8_t *p, uint64_t x)
{
	for (; x >= 0x80; x >>= 7)
		*p++ = (uint8_t)(x | 0x80);
	*p++ = (uint8_t)x;
	return p;
}

static uint64_t get(const uint8_t **p)
{
	uint64_t x = *(*p)++;
	if (x < 0x80)
		return x;
	x &= 0x7f;
	for (unsigned shift = 7;; shift += 7) {
		uint64_t b = *(*p)++;
		x |= (b & 0x7f) << shift;
		if (b < 0x80)
			return x;
	}
}

/* Most threads have few samples: their room begins small. */
static bool make_room(struct series_list *l)
{
	if (l->tail_cap - l->tail_len >= SAMPLE_MAX)
		return true;
	uint32_t cap = l->tail_cap ? l->tail_cap * 4 : SCRATCH_BLOCK / 64;
	uint8_t *bigger = realloc(l->tail, cap);
	if (!bigger)
		return false;
	l->tail = bigger;
	l->tail_cap = cap;
	return true;
}

static int put_aside(struct series *s, struct series_list *l, struct sp_err *err)
{
	uint32_t id;
	int r = scratch_add(&s->scratch, l->tail, &id, err);
	if (r < 0)
		return r;
	if (!sp_grow(&s->next, &s->next_cap, (size_t)id + 1, sizeof *s->next))
		return sp_err_nomem(err);
	if (l->last_block == SCRATCH_NONE)
		l->block = id;
	else
		s->next[l->last_block] = id;
	l->last_block = id;
	l->tail_len = 0;
	return 0;
}

static int add(struct series *s, struct series_list *l, const struct series_sample *x,
	       struct sp_err *err)
{
	uint64_t stack = (uint64_t)x->stack << 2;
	if (!l->n)
		l->first = *x;
	stack |= x->lane != l->last.lane ? OTHER_LANE : 0;
	stack |= x->weight != l->last.weight ? OTHER_WEIGHT : 0;
	if (!make_room(l))
		return sp_err_nomem(err);
	uint8_t *p = put(put(l->tail + l->tail_len, x->time_ns - l->last.time_ns), stack);
	if (stack & OTHER_LANE)
		p = put(p, x->lane);
	if (stack & OTHER_WEIGHT)
		p = put(p, x->weight);
	l->tail_len = (uint32_t)(p - l->tail);
	l->last = *x;
	l->n++;
	l->weight += x->weight;
	return l->tail_len > BLOCK_FULL ? put_aside(s, l, err) : 0;
}

int series_init(struct series *s, struct view *v, struct sp_err *err)
{
	struct view_sample x;
	int r;
	*s = (struct series){.n_lists = series_n_lists(v), .scratch = {.fd = v->opt->scratch_fd}};
	s->lists = calloc(s->n_lists + 1, sizeof *s->lists);
	if (!s->lists)
		return sp_err_nomem(err);
	for (size_t i = 0; i < s->n_lists; i++)
		s->lists[i].last_block = SCRATCH_NONE;
	for (size_t i = 0; i < v->n_lanes; i++)
		v->lanes[i].n = 0;
	view_rewind(v);
	while ((r = view_next(v, &x, err)) > 0) {
		struct view_lane *lane = &v->lanes[x.lane];
		lane->n++;
		r = add(s, &s->lists[series_list(v, lane->task, lane->event)],
			&(struct series_sample){x.time_ns, x.weight, v->rows[x.row].stack, x.lane},
			err);
		if (r < 0)
			break;
	}
	return r;
}

void series_deinit(struct series *s)
{
	for (size_t i = 0; s->lists && i < s->n_lists; i++)
		free(s->lists[i].tail);
	free(s->lists);
	free(s->next);
	scratch_deinit(&s->scratch);
	*s = (struct series){0};
}

void series_rewind(struct series_cursor *c, const struct series *s, size_t list)
{
	c->series = s;
	c->list = &s->lists[list];
	c->n = 0;
	c->p = c->end = NULL;
	c->block = SCRATCH_NONE;
	c->last = (struct series_sample){0};
}

/* The block that follows, or the tail. */
static int next_block(struct series_cursor *c, struct sp_err *err)
{
	const struct series_list *l = c->list;
	if (l->last_block == SCRATCH_NONE || c->block == l->last_block) {
		c->block = SCRATCH_NONE;
		c->p = l->tail;
		c->end = l->tail + l->tail_len;
		return 0;
	}
	c->block = c->n ? c->series->next[c->block] : l->block;
	c->p = scratch_get(&c->series->scratch, c->block, c->buf, err);
	c->end = c->p ? c->p + BLOCK_FULL + 1 : NULL;
	return c->p ? 0 : SP_ERR_IO;
}

int series_next(struct series_cursor *c, struct series_sample *out, struct sp_err *err)
{
	if (c->n == c->list->n)
		return 0;
	if (c->p >= c->end) {
		int r = next_block(c, err);
		if (r < 0)
			return r;
	}
	c->last.time_ns += get(&c->p);
	uint64_t stack = get(&c->p);
	c->last.stack = (uint32_t)(stack >> 2);
	if (stack & OTHER_LANE)
		c->last.lane = (uint32_t)get(&c->p);
	if (stack & OTHER_WEIGHT)
		c->last.weight = get(&c->p);
	c->n++;
	*out = c->last;
	return 1;
}
