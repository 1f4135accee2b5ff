/* speedscope: its own JSON (file-format-schema.json of speedscope 1.25), a sampled profile per
 * thread (and event, if there are several) with the samples in time order. It repeats the stack
 * with each sample, so a long recording is written with equal stacks together instead: the viewer's
 * limit is near 500 MB. */
#include <stdlib.h>

#include "base/cli.h"
#include "formats.h"
#include "series.h"

#define IN_TIME_ORDER_BYTES (150u << 20)

struct writer {
	struct view *v;
	struct out *o;
	uint32_t *levels; /* owned */
	bool time;        /* weights of the profile at hand are ns */
};

/* Profiles are in the order of the series' lists, or of tasks when equal stacks are together. */
static size_t profile_of(const struct view *v, bool together, const struct view_row *row)
{
	size_t n_events = sp_spool_n_events(v->spool);
	return !together ? series_list(v, row->task, row->event)
	       : v->apart ? row->task * n_events + row->event
			  : row->task;
}

/* The profile that is shown first: the one with the most samples. */
static size_t heaviest(const struct view *v, bool together, struct sp_err *err, int *r)
{
	size_t n = together ? v->n_tasks * (v->apart ? sp_spool_n_events(v->spool) : 1)
			    : series_n_lists(v);
	size_t best = 0, at = 0, index = 0;
	uint64_t *sums = calloc(n + 1, sizeof *sums);
	if (!sums) {
		*r = sp_err_nomem(err);
		return 0;
	}
	for (size_t i = 0; i < v->n_rows; i++)
		sums[profile_of(v, together, &v->rows[i])] += v->rows[i].n;
	for (size_t i = 0; i < n; i++) {
		index += i > 0 && sums[i - 1] > 0;
		if (sums[i] > sums[best] || !i) {
			best = i;
			at = index;
		}
	}
	free(sums);
	return at;
}

static void write_frames(struct view *v, struct out *o, size_t active)
{
	out_str(o, "{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\n"
		   "\"exporter\": \"sp-sym " SP_VERSION "\",\n\"name\": ");
	const char *name = sp_spool_info(v->spool)->cmdline;
	out_json(o, name && *name ? name : "profile");
	out_printf(o, ",\n\"activeProfileIndex\": %zu,\n\"shared\": {\"frames\": [", active);
	for (size_t i = 0; i < v->n_funcs; i++) {
		const struct view_func *f = &v->funcs[i];
		out_str(o, i ? ",\n{\"name\": " : "\n{\"name\": ");
		out_json(o, *f->name ? f->name : "?");
		if (f->file || *f->module) {
			out_str(o, ", \"file\": ");
			out_json(o, f->file ? f->file : f->module);
		}
		out_char(o, '}');
	}
	out_str(o, "]},\n\"profiles\": [");
}

static void write_stack(struct writer *w, uint32_t stack)
{
	size_t n = view_stack_levels(w->v, stack, w->levels);
	out_char(w->o, '[');
	while (n--) {
		out_u64(w->o, w->v->levels[w->levels[n]].func);
		out_char(w->o, n ? ',' : ']');
	}
}

/* Weights are times where --weight does not say otherwise. */
static void choose_event(struct writer *w, uint32_t event)
{
	const struct sp_spool_event *e = sp_spool_event(w->v->spool, event);
	w->time = w->v->opt->weight != WEIGHT_SAMPLES && e->weight_is_time &&
		  (w->v->apart || view_weight_is_time(w->v));
}

static void begin_profile(struct writer *w, size_t index, uint32_t task, uint32_t event,
			  uint64_t sum)
{
	const struct view_task *t = &w->v->tasks[task];
	struct out name = {.memory = true};
	if (w->v->apart)
		out_printf(&name, "%s: ", sp_spool_event(w->v->spool, event)->name);
	out_str(&name, *t->comm ? t->comm : "?");
	out_printf(&name, " %d/%d", t->pid, t->tid);
	out_char(&name, 0);
	out_str(w->o, index ? ",\n" : "\n");
	out_str(w->o, "{\"type\": \"sampled\", \"name\": ");
	out_json(w->o, name.buf.failed ? "?" : (const char *)name.buf.data);
	out_printf(w->o,
		   ", \"unit\": \"%s\", \"startValue\": 0, \"endValue\": %llu,\n\"samples\": [",
		   w->time ? "nanoseconds" : "none", (unsigned long long)sum);
	sp_buf_deinit(&name.buf);
}

static uint64_t value(const struct writer *w, uint64_t n, uint64_t weight)
{
	return w->time ? weight : n;
}

/* The samples of a list; neighbours with equal stacks are one. */
static int write_series(struct writer *w, const struct series *s, size_t list, size_t index,
			struct sp_err *err)
{
	const struct series_list *l = &s->lists[list];
	const struct view_lane *lane = &w->v->lanes[l->last.lane];
	struct series_cursor c;
	struct series_sample x;
	uint32_t last = SP_NONE;
	uint64_t run = 0;
	int r;
	choose_event(w, lane->event);
	begin_profile(w, index, lane->task, lane->event, value(w, l->n, l->weight));
	series_rewind(&c, s, list);
	for (; (r = series_next(&c, &x, err)) > 0; last = x.stack) {
		if (x.stack == last)
			continue;
		out_str(w->o, last != SP_NONE ? ",\n" : "\n");
		write_stack(w, x.stack);
	}
	out_str(w->o, "],\n\"weights\": [");
	last = l->first.stack;
	series_rewind(&c, s, list);
	while (r >= 0 && (r = series_next(&c, &x, err)) > 0) {
		if (x.stack != last) {
			out_u64(w->o, run);
			out_char(w->o, ',');
			run = 0;
		}
		run += value(w, 1, x.weight);
		last = x.stack;
	}
	out_u64(w->o, run);
	out_str(w->o, "]}");
	return r;
}

static int write_in_time_order(struct writer *w, struct sp_err *err)
{
	struct series s;
	size_t index = 0;
	int r = series_init(&s, w->v, err);
	for (size_t i = 0; i < s.n_lists && r >= 0; i++)
		if (s.lists[i].n)
			r = write_series(w, &s, i, index++, err);
	series_deinit(&s);
	return r;
}

static int by_task(const void *a, const void *b)
{
	const struct view_row *x = *(const struct view_row *const *)a;
	const struct view_row *y = *(const struct view_row *const *)b;
	if (x->task != y->task)
		return x->task < y->task ? -1 : 1;
	if (x->event != y->event)
		return x->event < y->event ? -1 : 1;
	return (x > y) - (x < y);
}

static int write_together(struct writer *w, struct sp_err *err)
{
	struct view *v = w->v;
	const struct view_row **list = malloc((v->n_rows + 1) * sizeof *list);
	size_t n = 0, index = 0;
	if (!list)
		return sp_err_nomem(err);
	for (size_t i = 0; i < v->n_rows; i++)
		if (v->rows[i].n)
			list[n++] = &v->rows[i];
	qsort(list, n, sizeof *list, by_task);
	for (size_t a = 0, b; a < n; a = b) {
		uint64_t sum = 0;
		choose_event(w, list[a]->event);
		for (b = a; b < n && profile_of(v, true, list[b]) == profile_of(v, true, list[a]);
		     b++)
			sum += value(w, list[b]->n, list[b]->weight);
		begin_profile(w, index++, list[a]->task, list[a]->event, sum);
		for (size_t i = a; i < b; i++) {
			out_str(w->o, i > a ? ",\n" : "\n");
			write_stack(w, list[i]->stack);
		}
		out_str(w->o, "],\n\"weights\": [");
		for (size_t i = a; i < b; i++) {
			out_str(w->o, i > a ? "," : "");
			out_u64(w->o, value(w, list[i]->n, list[i]->weight));
		}
		out_str(w->o, "]}");
	}
	free(list);
	return 0;
}

/* What the samples would take in time order. */
static uint64_t estimate(const struct view *v)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < v->n_rows; i++)
		bytes += v->rows[i].n * (10 + 6 * (uint64_t)v->stacks[v->rows[i].stack].n);
	return bytes;
}

int format_speedscope(struct view *v, struct out *o, struct sp_err *err)
{
	struct writer w = {v, o, malloc((v->max_levels + 1) * sizeof *w.levels), false};
	if (!w.levels)
		return sp_err_nomem(err);
	int r = 0;
	bool together = estimate(v) > IN_TIME_ORDER_BYTES;
	write_frames(v, o, heaviest(v, together, err, &r));
	if (together)
		v->note = "too long for speedscope in time order: equal stacks are put together "
			  "(--time, --pid or --tid make it shorter)";
	if (r >= 0)
		r = together ? write_together(&w, err) : write_in_time_order(&w, err);
	out_str(o, "]}\n");
	free(w.levels);
	return r;
}
