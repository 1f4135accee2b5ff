/* The samples of a spool, block after block, in time order. */
#include <stdlib.h>

#include "base/err.h"
#include "spool/reader.h"

static void cursor_empty(struct sp_rcursor *c)
{
	free(c->sample);
	free(c->spare);
	free(c->group);
	c->sample = c->spare = NULL;
	c->group = NULL;
	c->n_sample = c->cap_sample = c->cap_spare = c->at = 0;
	c->n_group = c->cap_group = 0;
}

void sp_replay_deinit(struct sp_spool *s)
{
	cursor_empty(&s->first_pass);
	for (size_t i = 0; i < s->n_cursor; i++)
		cursor_empty(&s->cursor[i]);
	free(s->cursor);
}

static int by_first_time(const void *a, const void *b)
{
	const struct sp_rcursor *x = a, *y = b;
	if (x->first_ns != y->first_ns)
		return x->first_ns > y->first_ns ? 1 : -1;
	return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* The cursor of an epoch, made when there is none; NULL when memory ends. */
static struct sp_rcursor *cursor_of(struct sp_spool *s, uint32_t epoch, size_t block)
{
	for (size_t i = s->n_cursor; i--;)
		if (s->cursor[i].epoch == epoch)
			return &s->cursor[i];
	struct sp_rcursor *c = SP_PUSH(&s->cursor, &s->n_cursor, &s->cap_cursor);
	if (c)
		*c = (struct sp_rcursor){.first_block = block, .at_block = block, .epoch = epoch};
	return c;
}

int sp_replay_make(struct sp_spool *s, struct sp_err *err)
{
	struct sp_rcursor *c = NULL;
	cursor_empty(&s->first_pass);
	s->cur = &s->first_pass;
	for (; s->n_block_shown < s->n_block; s->n_block_shown++) {
		size_t b = s->n_block_shown;
		if (!c || c->epoch != s->block[b].epoch)
			c = cursor_of(s, s->block[b].epoch, b);
		if (!c)
			return sp_err_nomem(err);
		c->end_block = b + 1;
	}
	for (size_t i = 0; i < s->n_cursor; i++)
		s->cursor[i].first_ns = s->epoch[s->cursor[i].epoch].first_ns;
	if (s->n_cursor > 1)
		qsort(s->cursor, s->n_cursor, sizeof *s->cursor, by_first_time);
	s->at_cursor = 0;
	return 0;
}

/* Load the cursor's next block that holds samples: 1, or 0 when there is none. */
static int next_block(struct sp_spool *s, struct sp_rcursor *c, struct sp_err *err)
{
	c->at = c->n_sample = 0;
	while (c->at_block < c->end_block) {
		const struct sp_rblock *r = &s->block[c->at_block++];
		struct sp_block b;
		uint64_t at;
		const uint8_t *payload;
		const char *why = "it changed since it was opened";
		s->scan.at = r->at;
		int rc = sp_scan_next(&s->scan, &b, &at, &payload, &why, err);
		if (rc < 0)
			return rc;
		if (rc == SP_SCAN_BLOCK && b.type == SP_BLOCK_DATA) {
			s->cur = c;
			why = sp_load_samples(s, payload, b.raw, r->epoch);
		} else if (rc == SP_SCAN_TAIL || rc == SP_SCAN_END) {
			why = "it shrank";
		}
		if (why)
			return sp_err_set(err, SP_ERR_CORRUPT, 0,
					  "cannot read the spool at offset %llu: %s",
					  (unsigned long long)r->at, why);
		if (c->n_sample)
			return 1;
	}
	if (s->n_cursor > 1)
		cursor_empty(c);
	return 0;
}

/* The cursor whose next sample is the earliest: 1 and s->cur, 0 at the end. Those that begin later
 * than the earliest one found are not touched. */
static int choose(struct sp_spool *s, struct sp_err *err)
{
	struct sp_rcursor *best = NULL;
	for (size_t i = s->at_cursor; i < s->n_cursor; i++) {
		struct sp_rcursor *c = &s->cursor[i];
		if (best && c->first_ns > best->sample[best->at].time)
			break;
		int rc = c->at < c->n_sample ? 1 : next_block(s, c, err);
		if (rc < 0)
			return rc;
		if (rc == 0 && i == s->at_cursor)
			s->at_cursor++;
		if (rc && (!best || c->sample[c->at].time < best->sample[best->at].time))
			best = c;
	}
	s->cur = best ? best : &s->first_pass;
	return best != NULL;
}

int sp_spool_next(struct sp_spool *s, struct sp_spool_sample *out, struct sp_err *err)
{
	for (;;) {
		struct sp_rcursor *c = s->cur;
		if (s->n_cursor != 1 || c->at >= c->n_sample) {
			int rc = choose(s, err);
			if (rc <= 0)
				return rc;
			c = s->cur;
		}
		const struct sp_rsample *p = &c->sample[c->at++];
		const struct sp_rgroup *g = &c->group[p->group];
		if (p->stack == SP_STACK_LOST)
			continue;
		s->cur_stack = p->stack;
		s->cur_set = g->set;
		s->cur_kset = sp_show_kernel_set(s, c->epoch, g->thread);
		if (s->state == SP_SPOOL_DAMAGED &&
		    !sp_load_expand(s, s->cur_stack, s->cur_set, s->cur_kset))
			continue;
		*out = (struct sp_spool_sample){
			.time_ns = p->time,
			.thread = g->thread,
			.event = g->event,
			.stack = p->stack + 1, /* SP_NONE, the empty one, is 0 */
			.maps = g->set,
			.cpu = p->cpu,
			.wait = p->wait,
			.weight = p->weight,
			.comm = sp_show_string(s, g->comm),
		};
		return 1;
	}
}

void sp_spool_rewind(struct sp_spool *s)
{
	for (size_t i = 0; i < s->n_cursor; i++) {
		s->cursor[i].at_block = s->cursor[i].first_block;
		s->cursor[i].at = s->cursor[i].n_sample = 0;
	}
	s->at_cursor = 0;
	s->cur = &s->first_pass;
	s->frames_valid = false;
}
