/* The samples of a DATA block: the first pass takes their new stacks in, the second gives them. */
#include "spool/decode.h"

#include <stdlib.h>

/* How far the decoding of stacks has come. */
struct walk {
	struct sp_spool *s;
	struct sp_col *c;
	uint32_t epoch_node, epoch_frame; /* first ids */
	uint32_t node, end_node;          /* next new one, and where they end */
	uint32_t frame, end_frame;
	uint32_t pops;
	uint32_t prev; /* SP_NONE: empty */
	bool define;   /* first pass */
};

/* A known node by its stored number + 1; 0 is the empty stack. */
static const char *known_node(const struct walk *w, uint64_t stored, uint32_t *out)
{
	if (stored > w->node - w->epoch_node)
		return "a sample refers to no stack";
	*out = stored ? w->epoch_node + (uint32_t)(stored - 1) : SP_NONE;
	return NULL;
}

static const char *push_nodes(struct walk *w, uint32_t base, uint64_t n)
{
	struct sp_spool *s = w->s;
	if (n == 0 || n > w->end_node - w->node)
		return "it holds more stacks than it claims";
	if (!w->define) {
		w->node += (uint32_t)n;
		return NULL;
	}
	uint32_t depth = base == SP_NONE ? 0 : s->node[base].depth;
	bool lost = base != SP_NONE && s->node[base].frame == SP_NONE;
	if (n > SP_SPOOL_MAX_DEPTH - depth)
		return "a stack is too deep";
	for (; n; n--, w->node++) {
		uint64_t ref = sp_col_next(&w->c[SP_COL_S_FRAME]);
		uint32_t frame;
		if (ref == 0 && w->frame < w->end_frame)
			frame = w->frame++;
		else if (ref && ref <= w->frame - w->epoch_frame)
			frame = w->epoch_frame + (uint32_t)(ref - 1);
		else
			return "a stack refers to no frame";
		if (s->frame[frame].kind == SP_FKIND_LOST)
			lost = true;
		s->has_lost_nodes |= lost;
		s->node[w->node] = (struct sp_rnode){
			.parent = base,
			.frame = lost ? SP_NONE : frame,
			.depth = ++depth,
		};
		base = w->node;
	}
	return NULL;
}

/* The next sample's stack, in w->prev. */
static const char *next_stack(struct walk *w)
{
	struct sp_spool *s = w->s;
	uint32_t base = w->prev;
	const char *why = NULL;
	switch (sp_col_next(&w->c[SP_COL_S_KIND])) {
	case SP_SKIND_SAME:
		return NULL;
	case SP_SKIND_NODE:
		return known_node(w, sp_col_next(&w->c[SP_COL_S_NODE]), &w->prev);
	case SP_SKIND_POP: {
		uint64_t pops = sp_col_next(&w->c[SP_COL_S_POP]);
		if (base == SP_NONE || pops > SP_SPOOL_MAX_POPS - w->pops)
			return "a stack continues nothing";
		w->pops += (uint32_t)pops;
		/* Below a lost stack nothing is known, not even its depth. */
		for (; pops && base != SP_NONE && w->define; pops--)
			base = s->node[base].parent;
		break;
	}
	case SP_SKIND_NEW:
		why = known_node(w, sp_col_next(&w->c[SP_COL_S_NODE]), &base);
		break;
	default:
		return "a sample is of an unknown kind";
	}
	if (!why)
		why = push_nodes(w, base, sp_col_next(&w->c[SP_COL_S_PUSH]));
	w->prev = w->node - 1;
	return why;
}

static struct walk begin(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e,
			 bool define)
{
	return (struct walk){
		.s = s,
		.c = d->cols.c,
		.epoch_node = e->node,
		.epoch_frame = e->frame,
		.node = e->node + (uint32_t)d->head[SP_HEAD_NODE],
		.end_node = e->node + (uint32_t)(d->head[SP_HEAD_NODE] + d->head[SP_HEAD_N_NODES]),
		.frame = e->frame + (uint32_t)d->head[SP_HEAD_FRAME],
		.end_frame =
			e->frame + (uint32_t)(d->head[SP_HEAD_FRAME] + d->head[SP_HEAD_N_FRAMES]),
		.prev = SP_NONE,
		.define = define,
	};
}

const char *sp_load_stacks(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct walk w = begin(s, d, e, true);
	const char *why = NULL;
	for (uint64_t n = d->head[SP_HEAD_N_SAMPLES]; n && !why; n--)
		why = next_stack(&w);
	if (!why && (w.node != w.end_node || w.frame != w.end_frame))
		why = "it holds fewer stacks than it claims";
	s->n_node = why ? s->n_node : w.end_node;
	return why;
}

/* A local id as a global one; SP_NONE when there is no such entry or it was lost. */
static uint32_t known(uint32_t base, uint64_t local, size_t n)
{
	return local < n - base ? (uint32_t)(base + local) : SP_NONE;
}

static const char *load_groups(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e)
{
	struct sp_col *c = d->cols.c;
	struct sp_rcursor *r = s->cur;
	size_t n = d->head[SP_HEAD_N_GROUPS];
	uint64_t sum = 0;
	r->n_group = 0;
	if (!sp_grow(&r->group, &r->cap_group, n, sizeof *r->group))
		return "memory ended";
	for (; r->n_group < n; r->n_group++) {
		uint64_t set = 0;
		struct sp_rgroup g = {
			.thread = known(e->thread, sp_col_next(&c[SP_COL_GRP_THREAD]), s->n_thread),
			.comm = known(e->string, sp_col_next(&c[SP_COL_GRP_COMM]), s->n_str),
			.event = known(e->event, sp_col_next(&c[SP_COL_GRP_EVENT]), s->n_event),
			.weight = sp_col_next(&c[SP_COL_GRP_WEIGHT]),
		};
		set = sp_col_next(&c[SP_COL_GRP_SET]);
		g.set = set ? known(e->set, set - 1, s->n_set) : SP_NONE;
		uint64_t samples = sp_col_next(&c[SP_COL_GRP_N]);
		g.lost = g.thread == SP_NONE || s->thread[g.thread].lost || g.event == SP_NONE ||
			 s->event[g.event].lost || g.comm == SP_NONE ||
			 s->str[g.comm].len == SP_NONE ||
			 (set && (g.set == SP_NONE || s->set[g.set].lost));
		if (samples > SP_SPOOL_MAX_SAMPLES)
			return "it claims too many samples";
		g.n = (uint32_t)samples;
		sum += samples;
		r->group[r->n_group] = g;
	}
	return sum == d->head[SP_HEAD_N_SAMPLES] ? NULL : "its groups do not hold its samples";
}

static const char *next_sample(struct walk *w, struct sp_rsample *out, const struct sp_rgroup *g,
			       uint32_t first_wait, uint32_t *cpu)
{
	const char *why = next_stack(w);
	*cpu += (uint32_t)sp_unzigzag(sp_col_next(&w->c[SP_COL_S_CPU]));
	out->cpu = *cpu - 1;
	out->weight = g->weight + (uint64_t)sp_unzigzag(sp_col_next(&w->c[SP_COL_S_WEIGHT]));
	bool lost = g->lost || (w->s->has_lost_nodes && !why && w->prev != SP_NONE &&
				w->s->node[w->prev].frame == SP_NONE);
	out->stack = lost ? SP_STACK_LOST : w->prev;
	uint64_t wait = sp_col_next(&w->c[SP_COL_S_WAIT]);
	if (wait > w->s->n_wait - first_wait)
		return "a sample refers to no wait";
	bool known_wait = wait && !w->s->wait[first_wait + wait - 1].lost;
	out->wait = known_wait ? first_wait + (uint32_t)wait : 0;
	return why;
}

/* Merge neighbouring runs of ordered samples until one is left; equal times keep their order. */
static bool merge_groups(struct sp_rcursor *r)
{
	size_t n = r->n_sample, runs = 0;
	size_t *end = calloc(r->n_group + 1, sizeof *end);
	if (!end || !sp_grow(&r->spare, &r->cap_spare, n, sizeof *r->spare)) {
		free(end);
		return false;
	}
	for (size_t g = 0, at = 0; g < r->n_group; g++)
		if (r->group[g].n)
			end[runs++] = at += r->group[g].n;
	while (runs > 1) {
		size_t at = 0, out = 0;
		for (size_t k = 0; k < runs; k += 2) {
			size_t i = at, mid = end[k], stop = k + 1 < runs ? end[k + 1] : mid;
			size_t j = mid;
			while (i < mid && j < stop)
				r->spare[at++] = r->sample[j].time < r->sample[i].time
							   ? r->sample[j++]
							   : r->sample[i++];
			while (i < mid)
				r->spare[at++] = r->sample[i++];
			while (j < stop)
				r->spare[at++] = r->sample[j++];
			end[out++] = stop;
		}
		runs = out;
		struct sp_rsample *p = r->sample;
		size_t cap = r->cap_sample;
		r->sample = r->spare;
		r->cap_sample = r->cap_spare;
		r->spare = p;
		r->cap_spare = cap;
		if (!sp_grow(&r->spare, &r->cap_spare, n, sizeof *r->spare)) {
			free(end);
			return false;
		}
	}
	free(end);
	return true;
}

const char *sp_load_samples(struct sp_spool *s, const uint8_t *payload, size_t n, uint32_t epoch)
{
	struct sp_data *d = &s->data;
	struct sp_rcursor *r = s->cur;
	const char *why = sp_data_parse(d, payload, n);
	if (why)
		return why;
	if (d->head[SP_HEAD_EPOCH] != epoch)
		return "it changed since it was opened";
	const struct sp_repoch *e = &s->epoch[epoch];
	size_t total = d->head[SP_HEAD_N_SAMPLES];
	if (d->head[SP_HEAD_NODE] > s->n_node - e->node ||
	    d->head[SP_HEAD_N_NODES] > s->n_node - e->node - d->head[SP_HEAD_NODE])
		return "it changed since it was opened";
	why = load_groups(s, d, e);
	if (why)
		return why;
	if (!sp_grow(&r->sample, &r->cap_sample, total, sizeof *r->sample))
		return "memory ended";
	struct walk w = begin(s, d, e, false);
	bool grouped = d->head[SP_HEAD_MODE] == 0;
	uint64_t res = e->resolution, base = d->head[SP_HEAD_TIME], time = base;
	uint32_t group = SP_NONE, left = 0, cpu = 0;
	r->n_sample = 0;
	for (size_t i = 0; i < total && !why; i++) {
		uint64_t expected = grouped ? time + d->head[SP_HEAD_PERIOD] : time;
		bool first = grouped && left == 0;
		if (!grouped) {
			uint64_t to = sp_col_next(&w.c[SP_COL_S_GROUP]);
			if (to >= r->n_group)
				return "a sample is of no group";
			group = (uint32_t)to;
		} else if (first) {
			while (!r->group[++group].n) /* the sum was checked: one comes */
				;
			left = r->group[group].n;
			expected = base;
			cpu = 0;
		}
		left -= grouped;
		uint64_t now = expected + (uint64_t)sp_unzigzag(sp_col_next(&w.c[SP_COL_S_TIME]));
		if (now > UINT64_MAX / res || (grouped && !first && now < time))
			return "a time is out of range";
		time = now;
		struct sp_rsample *out = &r->sample[r->n_sample++];
		out->time = now ? now * res + (uint64_t)e->shift_ns : 0;
		out->group = group;
		why = next_sample(&w, out, &r->group[group], e->wait, &cpu);
	}
	/* The first pass looks at each sample alone. */
	if (!why && grouped && r->n_group > 1 && r != &s->first_pass && !merge_groups(r))
		why = "memory ended";
	return why;
}
