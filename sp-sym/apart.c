/* Events apart: on-CPU time, off-CPU time and page faults do not add up. */
#include <stdlib.h>

#include "view.h"

bool view_is_offcpu(const struct sp_spool_event *e)
{
	return !strncmp(e->name, "offcpu-time", strlen("offcpu-time"));
}

bool view_next_event(const struct view *v, uint32_t *event)
{
	const struct view_rest *rest = &v->rest;
	const struct view_row *rows = rest->rows ? rest->rows : v->rows;
	size_t n_rows = rest->rows ? rest->n_rows : v->n_rows;
	for (; *event < sp_spool_n_events(v->spool); ++*event)
		for (size_t i = 0; i < n_rows; i++)
			if (rows[i].n && rows[i].event == *event)
				return true;
	return false;
}

void view_choose_weight(struct view *v)
{
	v->by_weight = v->opt->weight >= WEIGHT_WEIGHT;
	if (v->opt->weight != WEIGHT_DEFAULT || !v->opt->format->people ||
	    !view_weight_is_time(v))
		return;
	bool offcpu = true;
	for (uint32_t e = 0; view_next_event(v, &e); e++)
		offcpu &= view_is_offcpu(sp_spool_event(v->spool, e));
	v->by_weight = v->apart || offcpu;
}

int view_only(struct view *v, uint32_t event, struct sp_err *err)
{
	size_t n_events = sp_spool_n_events(v->spool);
	view_all(v);
	struct view_row *rows = malloc((v->n_rows + 1) * sizeof *rows);
	uint8_t *shown = calloc(n_events + 1, 1);
	if (!rows || !shown) {
		free(rows);
		free(shown);
		return sp_err_nomem(err);
	}
	v->rest = (struct view_rest){v->rows, v->n_rows, v->event_shown, v->n_samples, v->weight};
	v->rows = rows;
	v->event_shown = shown;
	v->n_rows = v->n_samples = v->weight = 0;
	if (event != SP_NONE)
		shown[event] = 1;
	for (size_t i = 0; i < v->rest.n_rows; i++) {
		const struct view_row *row = &v->rest.rows[i];
		if (!row->n || row->event != event)
			continue;
		rows[v->n_rows++] = *row;
		v->n_samples += row->n;
		v->weight += row->weight;
	}
	view_choose_weight(v);
	return 0;
}

void view_all(struct view *v)
{
	struct view_rest *rest = &v->rest;
	if (!rest->rows)
		return;
	free(v->rows);
	free(v->event_shown);
	v->rows = rest->rows;
	v->n_rows = rest->n_rows;
	v->event_shown = rest->event_shown;
	v->n_samples = rest->n_samples;
	v->weight = rest->weight;
	*rest = (struct view_rest){0};
	view_choose_weight(v);
}
