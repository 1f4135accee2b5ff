#include "reads.h"

#include <stdlib.h>

void spool_reads_deinit(struct spool_reads *x)
{
	sp_intern_deinit(&x->counters);
	free(x->last);
	free(x->gain);
	*x = (struct spool_reads){0};
}

static uint64_t period_of(const struct sp_record *rec)
{
	if (rec->sample.has_period)
		return rec->sample.period;
	const struct sp_event *e = rec->event;
	bool fixed = e && !(e->attr.flags & SP_ATTR_FREQ) && e->attr.sample_period;
	return fixed ? e->attr.sample_period : 1;
}

static bool push(struct spool_reads *x, const struct sp_event *event, uint64_t weight)
{
	struct spool_gain *slot = SP_PUSH(&x->gain, &x->n, &x->cap);
	if (slot)
		*slot = (struct spool_gain){event, weight};
	return slot != NULL;
}

/* Where a counter's last value is kept: NULL when memory ends, or too many are known. An inherited
 * event, which Linux 6.12 lets samples read too, counts for each thread by itself. */
static uint64_t *last_of(struct spool_reads *x, const struct sp_record *rec, uint64_t id)
{
	uint8_t key[12];
	bool is_new;
	sp_put64(key, id);
	sp_put32(key + 8, rec->event->attr.flags & SP_ATTR_INHERIT ? (uint32_t)rec->tid : 0);
	uint32_t i = sp_intern_find(&x->counters, key, sizeof key);
	if (i != SP_NOT_FOUND)
		return &x->last[i];
	if (x->counters.n >= SPOOL_COUNTERS_MAX)
		return NULL;
	i = sp_intern_add(&x->counters, key, sizeof key, &is_new);
	if (i == SP_NOT_FOUND ||
	    !sp_grow(&x->last, &x->cap_last, (size_t)i + 1, sizeof *x->last))
		return NULL;
	x->last[i] = 0;
	return &x->last[i];
}

int spool_reads_sample(struct spool_reads *x, const struct sp_reader *r,
		       const struct sp_record *rec, struct sp_err *err)
{
	struct sp_sample_value v;
	bool known = false;
	x->n = 0;
	for (uint32_t i = 0; i < rec->sample.n_values && sp_sample_value(rec, i, &v); i++) {
		const struct sp_event *event = sp_reader_event_of(r, v.id);
		uint64_t *last = event ? last_of(x, rec, v.id) : NULL;
		if (!last)
			continue;
		uint64_t gained = v.value - *last;
		bool is_back = v.value < *last; /* it was set anew, or the record is late */
		*last = v.value;
		if (is_back)
			continue;
		known = true;
		if (gained && !push(x, event, gained))
			return sp_err_nomem(err);
	}
	bool alone = x->n == 0;
	return alone && !push(x, rec->event, known ? 0 : period_of(rec)) ? sp_err_nomem(err) : 0;
}
