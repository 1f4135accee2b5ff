/* top: the functions by the samples in them (self) and below them (total), for a first look. */
#include <stdio.h>
#include <stdlib.h>

#include "counts.h"
#include "formats.h"
#include "head.h"
#include "term.h"

#define TOP_LINES 40

struct column_widths {
	size_t count, name, module, place;
};

static int by_self(const void *a, const void *b)
{
	const struct func_count *x = *(const struct func_count *const *)a;
	const struct func_count *y = *(const struct func_count *const *)b;
	if (x->self != y->self)
		return x->self > y->self ? -1 : 1;
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return counts_compare_funcs(x->f, y->f);
}

static int by_total(const void *a, const void *b)
{
	const struct func_count *x = *(const struct func_count *const *)a;
	const struct func_count *y = *(const struct func_count *const *)b;
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return by_self(a, b);
}

static void write_place(struct out *o, const struct func_count *c)
{
	const char *file = c->place.file ? c->place.file : c->f->file;
	if (!file)
		return;
	out_str(o, view_base(file));
	if (c->place.line) {
		out_char(o, ':');
		out_u64(o, c->place.line);
	}
	out_char(o, 0);
}

static const char *place_text(struct out *scratch, const struct func_count *c)
{
	scratch->buf.len = 0;
	write_place(scratch, c);
	return scratch->buf.len && !scratch->buf.failed ? (const char *)scratch->buf.data : "";
}

/* Take from a column, down to least, until `missing` columns are found. */
static void take(size_t *column, size_t least, size_t *missing)
{
	size_t spare = *column > least ? *column - least : 0;
	spare = spare < *missing ? spare : *missing;
	*column -= spare;
	*missing -= spare;
}

/* Names first: they get what they need up to two thirds of what the numbers leave, at the cost of
 * the modules, then of the places, then the modules go. What names don't need is the others'. */
static struct column_widths layout(const struct term *t, struct func_count **list, size_t n,
				   uint64_t all, struct out *scratch)
{
	struct column_widths w = {.count = 5, .module = 6, .place = 9};
	size_t want = 12;
	for (; all >= 100000 && w.count < 20; all /= 10)
		w.count++;
	for (size_t i = 0; i < n; i++) {
		size_t name = term_columns(list[i]->f->name);
		size_t module = term_columns(list[i]->f->module);
		size_t place = term_columns(place_text(scratch, list[i]));
		want = name > want ? name : want;
		w.module = module > w.module ? module : w.module;
		w.place = place > w.place ? place : w.place;
	}
	w.module = w.module > t->width / 8 ? t->width / 8 : w.module;
	w.place = w.place > t->width / 4 ? t->width / 4 : w.place;
	size_t place_want = w.place;
	size_t numbers = 7 + 9 + 2 + w.count + 2;
	size_t room = t->width > numbers + 12 ? t->width - numbers : 12;
	want = want < room * 2 / 3 ? want : room * 2 / 3;
	size_t rest = w.module + w.place + 4;
	size_t missing = want + rest > room ? want + rest - room : 0;
	take(&w.module, 9, &missing);
	take(&w.place, 14, &missing);
	if (missing) { /* what the module leaves over is the place's again */
		w.module = 0;
		w.place = w.place + 2 > room - want ? w.place : room - want - 2;
		w.place = w.place > place_want ? place_want : w.place;
	}
	rest = (w.module ? w.module + 2 : 0) + w.place + 2;
	if (rest + 20 > room) /* a very narrow terminal */
		rest = w.module = w.place = 0;
	w.name = room > rest ? room - rest : 12;
	return w;
}

/* Self as a number, or as a time for people. */
static void write_self(struct out *o, const struct view *v, const struct column_widths *w,
		       uint64_t self)
{
	char buf[24];
	if (v->by_weight && view_weight_is_time(v))
		out_printf(o, "%*s  ", (int)w->count, term_duration(buf, self));
	else
		out_printf(o, "%*llu  ", (int)w->count, (unsigned long long)self);
}

static void write_titles(struct out *o, const struct term *t, const struct column_widths *w)
{
	out_printf(o, "\n%s SELF %%  TOTAL %%  %*s  ", term_bold(t), (int)w->count, "SELF");
	term_fit(o, "FUNCTION", w->name);
	if (w->module) {
		out_str(o, "  ");
		term_fit(o, "MODULE", w->module);
	}
	out_printf(o, "%s%s\n", w->place ? "  FILE:LINE" : "", term_end(t));
}

static void write_line(struct out *o, const struct view *v, const struct term *t,
		       const struct column_widths *w, const struct func_count *c, uint64_t all,
		       struct out *scratch)
{
	double self = view_percent(c->self, all), total = view_percent(c->total, all);
	out_printf(o, "%s%7.2f%s%s%9.2f%s  ", term_heat(t, self), self, term_end(t),
		   term_heat(t, total), total, term_end(t));
	write_self(o, v, w, c->self);
	const char *place = w->place ? place_text(scratch, c) : "";
	bool more = w->module || *place;
	if (more)
		term_fit(o, *c->f->name ? c->f->name : "?", w->name);
	else
		term_shorten(o, *c->f->name ? c->f->name : "?", w->name);
	out_str(o, term_dim(t));
	if (w->module) {
		out_str(o, "  ");
		if (*place)
			term_fit(o, c->f->module, w->module);
		else
			term_shorten(o, c->f->module, w->module);
	}
	if (*place) {
		out_str(o, "  ");
		term_shorten(o, place, w->place);
	}
	out_printf(o, "%s\n", term_end(t));
}

static void write_table(struct view *v, struct out *o, const struct term *t,
			struct func_count **list, size_t n)
{
	struct out scratch = {.memory = true};
	uint64_t all = view_total(v), rest = 0;
	double min = v->opt->min_percent;
	size_t limit = v->opt->limit ? v->opt->limit : TOP_LINES, shown = 0;
	while (shown < n && shown < limit) {
		uint64_t value = v->opt->sort_total ? list[shown]->total : list[shown]->self;
		if (min >= 0 && view_percent(value, all) < min)
			break;
		shown++;
	}
	/* Times are of eight columns at most. */
	bool time = v->by_weight && view_weight_is_time(v);
	struct column_widths w = layout(t, list, shown, time ? 10000000 : all, &scratch);
	write_titles(o, t, &w);
	for (size_t i = 0; i < shown; i++)
		write_line(o, v, t, &w, list[i], all, &scratch);
	for (size_t i = shown; i < n; i++)
		rest += list[i]->self;
	if (shown < n) {
		out_printf(o, "%s%7.2f%9s  ", term_dim(t), view_percent(rest, all), "");
		write_self(o, v, &w, rest);
		out_printf(o, "… and %zu more functions (-n 0 shows all)%s\n", n - shown,
			   term_end(t));
	}
	sp_buf_deinit(&scratch.buf);
}

int format_top(struct view *v, struct out *o, struct sp_err *err)
{
	struct counts c;
	struct term t;
	int r = counts_init(&c, v, err);
	if (r < 0)
		return r;
	term_init(&t, v, o);
	struct func_count **list = malloc((c.n + 1) * sizeof *list);
	size_t n = 0;
	if (!list) {
		counts_deinit(&c);
		return sp_err_nomem(err);
	}
	for (size_t i = 0; i < c.n; i++)
		if (c.v[i].n_total && c.v[i].f->kind != VIEW_TRUNCATED)
			list[n++] = &c.v[i];
	qsort(list, n, sizeof *list, v->opt->sort_total ? by_total : by_self);
	head_write(v, o, &t);
	if (v->n_samples)
		write_table(v, o, &t, list, n);
	free(list);
	counts_deinit(&c);
	return 0;
}
