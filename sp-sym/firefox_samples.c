/* firefox: a thread's samples and its markers. */
#include <stdio.h>

#include "firefox.h"
#include "wait.h"

/* Milliseconds, exact: at most OUT_DIGITS + 7 bytes. */
static uint8_t *put_ms(uint8_t *p, uint64_t ns)
{
	unsigned part = (unsigned)(ns % 1000000);
	p = out_put_u64(p, ns / 1000000);
	if (!part)
		return p;
	*p++ = '.';
	p = out_put_pairs(p, part, 3);
	while (p[-1] == '0')
		p--;
	return p;
}

void firefox_ms(struct out *o, uint64_t ns)
{
	if (out_room(o, OUT_DIGITS + 7))
		o->buf.len = (size_t)(put_ms(o->buf.data + o->buf.len, ns) - o->buf.data);
}

static bool next_sample(struct firefox *w, struct series_sample *x)
{
	int r = series_next(&w->cursor, x, w->err);
	w->r = r < 0 ? r : w->r;
	return r > 0;
}

/* The columns of the marker table. */
struct markers {
	struct out name, data, start, end, phase;
	size_t n;
};

/* to_ns UINT64_MAX: an instant, else an interval. */
static void add_marker(struct firefox *w, struct firefox_tables *t, struct markers *m,
		       const char *name, const char *text, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t base = w->v->first_ns, from = from_ns > base ? from_ns - base : 0;
	uint64_t to = to_ns > base ? to_ns - base : 0;
	bool instant = to_ns == UINT64_MAX;
	const char *sep = m->n++ ? "," : "";
	out_str(&m->name, sep);
	out_u64(&m->name, firefox_string(w, t, name));
	out_str(&m->start, sep);
	firefox_ms(&m->start, from);
	out_str(&m->end, sep);
	if (instant)
		out_str(&m->end, "null");
	else
		firefox_ms(&m->end, to > from ? to : from);
	out_printf(&m->phase, "%s%d", sep, instant ? 0 : 1);
	out_printf(&m->data, "%s{\"type\":\"Text\",\"name\":", sep);
	out_json(&m->data, text);
	out_char(&m->data, '}');
}

static void add_execs(struct firefox *w, struct firefox_tables *t, struct markers *m, int32_t pid)
{
	for (size_t i = 0; i < sp_spool_n_execs(w->v->spool); i++) {
		const struct sp_spool_exec *x = sp_spool_exec(w->v->spool, i);
		struct sp_buf line = {0};
		if (x->pid != pid || x->kind != 0)
			continue;
		/* The words of the command line, with blanks between them. */
		for (uint32_t k = 0; x->cmdline && k < x->cmdline_len; k++)
			sp_buf_u8(&line, x->cmdline[k] ? (uint8_t)x->cmdline[k] : ' ');
		sp_buf_u8(&line, 0);
		add_marker(w, t, m, "exec", line.failed ? "" : (const char *)line.data, x->time_ns,
			   UINT64_MAX);
		sp_buf_deinit(&line);
	}
}

static void add_losses(struct firefox *w, struct firefox_tables *t, struct markers *m)
{
	for (size_t i = 0; i < sp_spool_n_losses(w->v->spool); i++) {
		const struct sp_spool_loss *l = sp_spool_loss(w->v->spool, i);
		char count[24];
		snprintf(count, sizeof count, "%llu", (unsigned long long)l->count);
		add_marker(w, t, m, l->kind ? "throttled" : "lost records", count, l->from_ns,
			   l->to_ns);
	}
}

/* The profiler gives a thread one name: where it had several, a marker for as long as each was
 * seen.
 */
static void add_names(struct firefox *w, struct firefox_tables *t, struct markers *m,
		      const struct series *s, size_t list)
{
	const struct view *v = w->v;
	struct series_sample x, first = s->lists[list].first, last = first;
	size_t before = m->n;
	series_rewind(&w->cursor, s, list);
	while (next_sample(w, &x)) {
		if (v->lanes[x.lane].task != v->lanes[last.lane].task) {
			add_marker(w, t, m, "thread name", v->tasks[v->lanes[last.lane].task].comm,
				   first.time_ns, last.time_ns);
			first = x;
		}
		last = x;
	}
	if (m->n > before) /* else it never had another */
		add_marker(w, t, m, "thread name", v->tasks[v->lanes[last.lane].task].comm,
			   first.time_ns, last.time_ns);
}

/* Off CPU the time counts, with --weight on CPU too; the profiler knows no other weights here. */
static bool has_weights(const struct view *v, uint32_t event)
{
	const struct sp_spool_event *e = sp_spool_event(v->spool, event);
	return e->weight_is_time &&
	       (v->opt->weight == WEIGHT_DEFAULT ? view_is_offcpu(e)
						 : v->opt->weight != WEIGHT_SAMPLES);
}

/* Each time off the CPU of which more than its length is known: as long as it was. */
static void add_waits(struct firefox *w, struct firefox_tables *t, struct markers *m,
		      const struct series *s, size_t list)
{
	const struct view *v = w->v;
	struct sp_buf text = {0};
	struct series_sample x;
	if (!has_weights(v, v->lanes[s->lists[list].first.lane].event))
		return;
	series_rewind(&w->cursor, s, list);
	while (next_sample(w, &x)) {
		const struct view_lane *lane = &v->lanes[x.lane];
		const struct view_row row = {.event = lane->event, .wait = lane->wait};
		if (!row.wait)
			continue;
		struct sp_spool_wait wait = sp_spool_wait(v->spool, row.wait);
		text.len = 0;
		sp_buf_str(&text, wait_state(v, &row));
		if (wait.waker_tid)
			sp_buf_printf(&text, ", woken by %s (%d/%d)", wait_comm(&wait),
				      wait.waker_pid, wait.waker_tid);
		sp_buf_u8(&text, 0);
		uint64_t from = x.weight < x.time_ns ? x.time_ns - x.weight : 0;
		add_marker(w, t, m, "off CPU", text.failed ? "" : (const char *)text.data, from,
			   x.time_ns);
	}
	w->failed |= text.failed;
	sp_buf_deinit(&text);
}

void firefox_write_markers(struct firefox *w, struct firefox_tables *t, const struct series *s,
			   size_t list, bool first_of_pid, bool first)
{
	struct out *o = w->o;
	struct markers m = {.name = {.memory = true},
			    .data = {.memory = true},
			    .start = {.memory = true},
			    .end = {.memory = true},
			    .phase = {.memory = true}};
	const struct view_task *task = &w->v->tasks[w->v->lanes[s->lists[list].first.lane].task];
	if (w->names[task->thread].n > 1)
		add_names(w, t, &m, s, list);
	add_waits(w, t, &m, s, list);
	if (first_of_pid)
		add_execs(w, t, &m, task->pid);
	if (first)
		add_losses(w, t, &m);
	struct {
		const char *key;
		struct out *column;
	} columns[] = {{"name", &m.name},
		       {"data", &m.data},
		       {"startTime", &m.start},
		       {"endTime", &m.end},
		       {"phase", &m.phase}};
	out_printf(o, ",\n\"markers\":{\"length\":%zu", m.n);
	for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
		firefox_column(o, columns[i].key);
		out_add(o, columns[i].column->buf.data, columns[i].column->buf.len);
		out_char(o, ']');
		w->failed |= columns[i].column->buf.failed;
		sp_buf_deinit(&columns[i].column->buf);
	}
	COLUMN(o, "category", m.n, out_char(o, '0'));
	out_char(o, '}');
}

/* Times do not decrease. */
static uint64_t time_in(const struct view *v, const struct series_sample *x, uint64_t *last)
{
	uint64_t time = x->time_ns > v->first_ns ? x->time_ns - v->first_ns : 0;
	*last = time > *last ? time : *last;
	return *last;
}

enum sample_column { COLUMN_WEIGHT, COLUMN_STACK, COLUMN_TIME };

/* One column of all samples of the list. */
static void write_column(struct firefox *w, struct firefox_tables *t, const struct series *s,
			 size_t list, enum sample_column which)
{
	static const char *const names[] = {"weight", "stack", "time"};
	struct out *o = w->o;
	struct series_sample x;
	uint64_t last = 0;
	bool first = true;
	firefox_column(o, names[which]);
	series_rewind(&w->cursor, s, list);
	while (next_sample(w, &x) && out_room(o, OUT_DIGITS + 8)) {
		uint8_t *p = o->buf.data + o->buf.len;
		*p = ',';
		p += !first;
		first = false;
		if (which == COLUMN_STACK)
			p = out_put_u64(p, firefox_stack(w, t, x.stack));
		else
			p = put_ms(p, which == COLUMN_TIME ? time_in(w->v, &x, &last) : x.weight);
		o->buf.len = (size_t)(p - o->buf.data);
	}
	out_char(o, ']');
}

void firefox_write_samples(struct firefox *w, struct firefox_tables *t, const struct series *s,
			   size_t list)
{
	struct out *o = w->o;
	const struct series_list *l = &s->lists[list];
	bool weights = has_weights(w->v, w->v->lanes[l->first.lane].event);
	out_printf(o, "\"samples\":{\"length\":%llu,\"weightType\":\"%s\"",
		   (unsigned long long)l->n, weights ? "tracing-ms" : "samples");
	if (weights)
		write_column(w, t, s, list, COLUMN_WEIGHT);
	else
		out_str(o, ",\"weight\":null");
	write_column(w, t, s, list, COLUMN_STACK);
	write_column(w, t, s, list, COLUMN_TIME);
	out_char(o, '}');
}
