#include "series.h"

#include <stdlib.h>

size_t series_n_lists(const struct view *v)
{
	return sp_spool_n_threads(v->spool) * (v->apart ? sp_spool_n_events(v->spool) : 1);
}

size_t series_list(const struct view *v, const struct view_row *row)
{
	size_t thread = v->tasks[row->task].thread;
	return v->apart ? thread * sp_spool_n_events(v->spool) + row->event : thread;
}

static int fill(struct series *s, struct view *v, size_t *next, size_t n, struct sp_err *err)
{
	struct view_sample x;
	size_t seen = 0;
	int r;
	view_rewind(v);
	while ((r = view_next(v, &x, err)) > 0) {
		size_t at = next[series_list(v, &v->rows[x.row])]++;
		if (++seen > n)
			return sp_err_set(
				err, SP_ERR_CORRUPT, 0,
				"cannot read the samples a second time: the spool changed");
		s->row[at] = x.row;
		s->time_ns[at] = x.time_ns;
		if (s->weight)
			s->weight[at] = x.weight;
	}
	return r;
}

int series_init(struct series *s, struct view *v, bool weights, struct sp_err *err)
{
	size_t n = (size_t)v->n_samples, n_lists = series_n_lists(v);
	*s = (struct series){
		.n_lists = n_lists,
		.start = calloc(n_lists + 1, sizeof *s->start),
		.row = malloc((n + 1) * sizeof *s->row),
		.time_ns = malloc((n + 1) * sizeof *s->time_ns),
		.weight = weights ? malloc((n + 1) * sizeof *s->weight) : NULL,
	};
	size_t *next = calloc(n_lists + 1, sizeof *next);
	int r = s->start && s->row && s->time_ns && (s->weight || !weights) && next ? 0 : sp_err_nomem(err);
	for (size_t i = 0; r >= 0 && i < v->n_rows; i++)
		s->start[series_list(v, &v->rows[i]) + 1] += v->rows[i].n;
	for (size_t i = 0; r >= 0 && i < n_lists; i++) {
		s->start[i + 1] += s->start[i];
		next[i] = s->start[i];
	}
	if (r >= 0)
		r = fill(s, v, next, n, err);
	free(next);
	if (r < 0)
		series_deinit(s);
	return r;
}

void series_deinit(struct series *s)
{
	free(s->start);
	free(s->row);
	free(s->time_ns);
	free(s->weight);
	*s = (struct series){0};
}
