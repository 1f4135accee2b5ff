#include "series.h"

#include <stdlib.h>

static int fill(struct series *s, struct view *v, size_t *next, size_t n, struct sp_err *err)
{
	struct view_sample x;
	size_t seen = 0;
	int r;
	view_rewind(v);
	while ((r = view_next(v, &x, err)) > 0) {
		size_t at = next[v->tasks[v->rows[x.row].task].thread]++;
		if (++seen > n)
			return sp_err_set(
				err, SP_ERR_CORRUPT, 0,
				"cannot read the samples a second time: the spool changed");
		s->row[at] = x.row;
		s->time_ns[at] = x.time_ns;
		s->weight[at] = x.weight;
	}
	return r;
}

int series_init(struct series *s, struct view *v, struct sp_err *err)
{
	size_t n = (size_t)v->n_samples, n_threads = sp_spool_n_threads(v->spool);
	*s = (struct series){
		.n_threads = n_threads,
		.start = calloc(n_threads + 1, sizeof *s->start),
		.row = malloc((n + 1) * sizeof *s->row),
		.time_ns = malloc((n + 1) * sizeof *s->time_ns),
		.weight = malloc((n + 1) * sizeof *s->weight),
	};
	size_t *next = calloc(n_threads + 1, sizeof *next);
	int r = s->start && s->row && s->time_ns && s->weight && next ? 0 : sp_err_nomem(err);
	for (size_t i = 0; r >= 0 && i < v->n_rows; i++)
		s->start[v->tasks[v->rows[i].task].thread + 1] += v->rows[i].n;
	for (size_t i = 0; r >= 0 && i < n_threads; i++) {
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
