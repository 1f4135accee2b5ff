#include "counts.h"

#include <stdlib.h>

/* Self and total per (function, place), to find the line that stands for the function. */
struct line_count {
	uint32_t func, place;
	uint64_t self, total;
};

struct lines {
	struct sp_map64 ids;
	struct line_count *v;
	size_t n, cap;
};

static bool add_line(struct lines *l, const struct view_level *level, uint64_t self, uint64_t total)
{
	uint64_t key = (uint64_t)level->func << 32 | level->place;
	uint32_t id = sp_map64_get(&l->ids, key);
	if (id == SP_NOT_FOUND) {
		struct line_count *c = SP_PUSH(&l->v, &l->n, &l->cap);
		id = (uint32_t)l->n - 1;
		if (!c || !sp_map64_put(&l->ids, key, id))
			return false;
		*c = (struct line_count){level->func, level->place, 0, 0};
	}
	l->v[id].self += self;
	l->v[id].total += total;
	return true;
}

/* The hottest line; the first one of equals in the file. */
static void choose_lines(struct counts *c, const struct view *v, const struct lines *l,
			 struct line_count *best)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct line_count *x = &l->v[i];
		struct line_count *b = &best[x->func];
		bool self = c->v[x->func].self > 0;
		uint64_t have = self ? x->self : x->total, had = self ? b->self : b->total;
		uint32_t line = v->places[x->place].line, old = v->places[b->place].line;
		if (line && (!old || have > had || (have == had && line < old)))
			*b = *x;
	}
	for (size_t i = 0; i < c->n; i++)
		c->v[i].place = v->places[best[i].place];
}

static bool add_row(struct counts *c, const struct view *v, const struct view_row *row,
		    const uint32_t *levels, size_t n, size_t *seen, size_t stamp, struct lines *l)
{
	uint64_t value = view_value(v, row);
	for (size_t j = 0; j < n; j++) {
		const struct view_level *level = &v->levels[levels[j]];
		struct func_count *f = &c->v[level->func];
		bool first = seen[level->func] != stamp;
		seen[level->func] = stamp;
		if (j == 0)
			f->self += value;
		if (first) {
			f->total += value;
			f->n_total += row->n;
		}
		if (level->place && (first || j == 0) &&
		    !add_line(l, level, j == 0 ? value : 0, first ? value : 0))
			return false;
	}
	return true;
}

int counts_init(struct counts *c, struct view *v, struct sp_err *err)
{
	struct lines lines = {0};
	size_t n = v->n_funcs;
	*c = (struct counts){.v = calloc(n + 1, sizeof *c->v), .n = n};
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	size_t *seen = calloc(n + 1, sizeof *seen);
	struct line_count *best = calloc(n + 1, sizeof *best);
	bool ok = c->v && levels && seen && best;
	for (size_t i = 0; ok && i < n; i++)
		c->v[i].f = &v->funcs[i];
	for (size_t i = 0; ok && i < v->n_rows; i++) {
		const struct view_row *row = &v->rows[i];
		if (!row->n)
			continue;
		size_t depth = view_stack_levels(v, row->stack, levels);
		ok = add_row(c, v, row, levels, depth, seen, i + 1, &lines);
	}
	if (ok)
		choose_lines(c, v, &lines, best);
	free(lines.v);
	sp_map64_deinit(&lines.ids);
	free(levels);
	free(seen);
	free(best);
	if (ok)
		return 0;
	counts_deinit(c);
	return sp_err_nomem(err);
}

void counts_deinit(struct counts *c)
{
	free(c->v);
	*c = (struct counts){0};
}

int counts_compare_funcs(const struct view_func *a, const struct view_func *b)
{
	int d = strcmp(a->name, b->name);
	d = d ? d : strcmp(a->module, b->module);
	d = d ? d : strcmp(a->file ? a->file : "", b->file ? b->file : "");
	return d ? d : (int)a->kind - (int)b->kind;
}

struct count_summary counts_summary(const struct view *v)
{
	struct count_summary s = {0};
	struct sp_map64 pids = {0}, threads = {0};
	for (size_t i = 0; i < v->n_rows; i++) {
		const struct view_row *row = &v->rows[i];
		if (!row->n)
			continue;
		const struct view_stack *stack = &v->stacks[row->stack];
		if (stack->n && v->frames[v->stack_frames[stack->at + stack->n - 1]].f.mode ==
					SP_FRAME_TRUNCATED)
			s.n_truncated += row->n;
	}
	for (size_t i = 0; i < v->n_lanes; i++) {
		const struct view_lane *lane = &v->lanes[i];
		const struct view_task *t = &v->tasks[lane->task];
		if (!lane->n || !v->event_shown[lane->event])
			continue;
		sp_map64_put(&pids, (uint32_t)t->pid, 0);
		sp_map64_put(&threads, t->thread, 0);
	}
	s.n_processes = pids.n;
	s.n_threads = threads.n;
	sp_map64_deinit(&pids);
	sp_map64_deinit(&threads);
	return s;
}
