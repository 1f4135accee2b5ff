/* firefox: the Firefox profiler's processed format, gzipped JSON. The version that is named below
 * is read by all later ones (their upgraders; firefox-devtools/profiler,
 * docs-developer/CHANGELOG-formats.md). Loading checks little, so indexes are kept in range, a
 * stack's prefix is always an earlier one, and times do not decrease. */
#include <stdio.h>
#include <stdlib.h>

#include "build_id.h"
#include "formats.h"
#include "group.h"
#include "series.h"
#include "wait.h"

#define PROCESSED_VERSION 48
#define GECKO_VERSION 27

/* Categories, in the order of write_meta's list. */
static unsigned category_of(const struct view_func *f)
{
	switch (f->kind) {
	case VIEW_NATIVE:
		return 1;
	case VIEW_KERNEL:
		return 2;
	case VIEW_PYTHON:
		return 3;
	case VIEW_JIT:
		return 4;
	case VIEW_ADDRESS:
	case VIEW_TRUNCATED:
	case VIEW_NO_STACK:
	case VIEW_GROUP:
		break;
	}
	return 0;
}

struct table_func {
	uint32_t name, file, resource; /* strings; SP_NONE = none */
	uint32_t func;                 /* of the view */
};

struct table_frame {
	uint32_t func;  /* of this table */
	uint32_t level; /* of the view */
	uint32_t depth; /* of inlining: 0 is the real function */
	uint64_t offset;
	bool has_offset;
};

struct table_stack {
	uint32_t prefix, frame;
};

/* The tables of one thread: only what its samples need. */
struct tables {
	struct sp_intern strings;
	struct sp_map64 func_ids, resource_ids;
	struct table_func *funcs;
	struct table_frame *frames;
	struct table_stack *stacks;
	uint32_t *libs; /* by resource: the library */
	size_t n_funcs, funcs_cap, n_frames, frames_cap, n_stacks, stacks_cap, n_libs, libs_cap;
};

struct known {
	uint32_t thread, id;
};

struct writer {
	struct view *v;
	struct out *o;
	struct sp_map64 lib_ids; /* by the spool's file number */
	uint32_t *libs;          /* owned; by library: a module of that file */
	size_t n_libs, libs_cap;
	uint32_t thread;         /* the one at hand, from 1 */
	struct node {
		uint32_t parent, frame, level; /* of the view; frame SP_NONE: [no stack] */
		uint32_t thread, id;           /* its number in the last thread that had it */
	} * nodes;                             /* owned */
	size_t n_nodes, nodes_cap;
	struct names {
		uint32_t task, n;
	} * names;             /* owned; by thread of the spool */
	struct known *known_stacks; /* owned; by stack of the view: as known */
	uint32_t *leaf, *path; /* owned; by stack of the view: its node; room for a way to the root */
	struct known *known; /* owned; by level: the frame in the last thread that had it */
	struct sp_map64 pids;           /* those of the threads so far */
	struct series_cursor cursor;
	bool failed;
	struct sp_err *err; /* of what failed when that is not memory: r is not 0 */
	int r;
};

static void tables_deinit(struct tables *t)
{
	sp_intern_deinit(&t->strings);
	sp_map64_deinit(&t->func_ids);
	sp_map64_deinit(&t->resource_ids);
	free(t->funcs);
	free(t->frames);
	free(t->stacks);
	free(t->libs);
}

static uint32_t put(struct writer *w, struct sp_map64 *m, uint64_t key, size_t id)
{
	if (!sp_map64_put(m, key, (uint32_t)id))
		w->failed = true;
	return (uint32_t)id;
}

static uint32_t string(struct writer *w, struct tables *t, const char *s)
{
	uint32_t id = sp_intern_add(&t->strings, s, strlen(s), NULL);
	w->failed |= id == SP_NOT_FOUND;
	return id;
}

static uint32_t lib_of(struct writer *w, const struct sp_spool_module *m)
{
	uint32_t id = sp_map64_get(&w->lib_ids, m->file);
	if (id != SP_NOT_FOUND)
		return id;
	uint32_t *slot = SP_PUSH(&w->libs, &w->n_libs, &w->libs_cap);
	if (!slot) {
		w->failed = true;
		return SP_NONE;
	}
	*slot = m->id;
	return put(w, &w->lib_ids, m->file, w->n_libs - 1);
}

static uint32_t resource_of(struct writer *w, struct tables *t, const struct view_frame *f)
{
	const struct sp_spool_module *m = view_module(w->v, &f->f);
	if (f->f.mode != SP_FRAME_USER || !m || m->is_anon)
		return SP_NONE;
	uint32_t lib = lib_of(w, m), id = sp_map64_get(&t->resource_ids, lib);
	if (lib == SP_NONE || id != SP_NOT_FOUND)
		return lib == SP_NONE ? SP_NONE : id;
	uint32_t *slot = SP_PUSH(&t->libs, &t->n_libs, &t->libs_cap);
	if (!slot) {
		w->failed = true;
		return SP_NONE;
	}
	*slot = lib;
	return put(w, &t->resource_ids, lib, t->n_libs - 1);
}

static uint32_t func_of(struct writer *w, struct tables *t, const struct view_frame *f,
			uint32_t func)
{
	const struct view_func *vf = &w->v->funcs[func];
	uint32_t id = sp_map64_get(&t->func_ids, func);
	if (id != SP_NOT_FOUND)
		return id;
	struct table_func *slot = SP_PUSH(&t->funcs, &t->n_funcs, &t->funcs_cap);
	if (!slot) {
		w->failed = true;
		return 0;
	}
	*slot = (struct table_func){.name = string(w, t, *vf->name ? vf->name : "?"),
				    .file = vf->file ? string(w, t, vf->file) : SP_NONE,
				    .resource = resource_of(w, t, f),
				    .func = func};
	return put(w, &t->func_ids, func, t->n_funcs - 1);
}

/* A frame per level of inlining; level is unique to its frame of the view. */
static uint32_t frame_of(struct writer *w, struct tables *t, const struct node *node)
{
	static const struct view_frame none = {.n_levels = 1, .f = {.mode = SP_FRAME_TRUNCATED}};
	const struct view_frame *f = node->frame == SP_NONE ? &none : &w->v->frames[node->frame];
	uint32_t level = node->level;
	struct known *known = &w->known[level];
	if (known->thread == w->thread)
		return known->id;
	uint32_t func = func_of(w, t, f, w->v->levels[level].func);
	struct table_frame *slot = SP_PUSH(&t->frames, &t->n_frames, &t->frames_cap);
	if (!slot) {
		w->failed = true;
		return 0;
	}
	*slot = (struct table_frame){
		.func = func,
		.level = level,
		.depth = f == &none ? 0 : f->n_levels - 1 - (level - f->level_at),
		.offset = f->f.rel_ip,
		.has_offset = t->funcs[func].resource != SP_NONE};
	*known = (struct known){w->thread, (uint32_t)t->n_frames - 1};
	return known->id;
}

static uint32_t push_node(struct writer *w, struct sp_map64 *edges, uint32_t parent, uint32_t frame,
			  uint32_t level)
{
	uint64_t key = (uint64_t)parent << 32 | level;
	uint32_t id = sp_map64_get(edges, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct node *node = SP_PUSH(&w->nodes, &w->n_nodes, &w->nodes_cap);
	if (!node) {
		w->failed = true;
		return SP_NONE;
	}
	*node = (struct node){.parent = parent, .frame = frame, .level = level};
	return put(w, edges, key, w->n_nodes - 1);
}

/* The tree of all stacks, of which each thread's table has a part. */
static void make_nodes(struct writer *w)
{
	const struct view *v = w->v;
	struct sp_map64 edges = {0};
	for (size_t i = 0; i < v->n_stacks && !w->failed; i++) {
		const struct view_stack *s = &v->stacks[i];
		uint32_t at = SP_NONE;
		for (uint32_t k = s->n; k-- > 0 && !w->failed;) {
			uint32_t frame = v->stack_frames[s->at + k];
			const struct view_frame *f = &v->frames[frame];
			for (uint32_t j = f->n_levels; j-- > 0;)
				at = push_node(w, &edges, at, frame, f->level_at + j);
		}
		if (!s->n)
			at = push_node(w, &edges, at, SP_NONE, v->special[VIEW_NO_STACK]);
		w->leaf[i] = at;
	}
	sp_map64_deinit(&edges);
}

/* The stack's number in the thread's table: what is missing of its way from the root is added. */
static uint32_t stack_of(struct writer *w, struct tables *t, uint32_t stack)
{
	struct known *known = &w->known_stacks[stack];
	uint32_t at = w->leaf[stack], prefix = SP_NONE;
	size_t n = 0;
	if (known->thread == w->thread)
		return known->id;
	for (; at != SP_NONE && w->nodes[at].thread != w->thread; at = w->nodes[at].parent)
		w->path[n++] = at;
	if (at != SP_NONE)
		prefix = w->nodes[at].id;
	while (n--) {
		struct node *node = &w->nodes[w->path[n]];
		struct table_stack *slot = SP_PUSH(&t->stacks, &t->n_stacks, &t->stacks_cap);
		if (!slot) {
			w->failed = true;
			return 0;
		}
		*slot = (struct table_stack){prefix, frame_of(w, t, node)};
		node->thread = w->thread;
		node->id = prefix = (uint32_t)t->n_stacks - 1;
	}
	*known = (struct known){w->thread, prefix};
	return prefix;
}

static void begin(struct out *o, const char *name)
{
	out_str(o, ",\"");
	out_str(o, name);
	out_str(o, "\":[");
}

/* One column; index_or_null: SP_NONE is null. */
#define COLUMN(o, name, n, ...)                                                                    \
	do {                                                                                       \
		begin(o, name);                                                                    \
		for (size_t i = 0; i < (n); i++) {                                                 \
			if (i)                                                                     \
				out_char(o, ',');                                                  \
			__VA_ARGS__;                                                               \
		}                                                                                  \
		out_char(o, ']');                                                                  \
	} while (0)

static void index_or(struct out *o, uint32_t index, const char *none)
{
	if (index == SP_NONE)
		out_str(o, none);
	else
		out_u64(o, index);
}

/* Lines are of the function's file; those of another file are left out. */
static uint32_t line_in_file(const struct view *v, uint32_t level)
{
	const struct view_place *p = view_level_place(v, level);
	const char *file = view_level_func(v, level)->file;
	return file && p->file && !strcmp(file, p->file) ? p->line : 0;
}

static void write_frames(const struct view *v, struct out *o, const struct tables *t)
{
	const struct table_frame *f = t->frames;
	size_t n = t->n_frames;
	out_printf(o, ",\n\"frameTable\":{\"length\":%zu", n);
	COLUMN(o, "address", n, if (f[i].has_offset) out_u64(o, f[i].offset);
	       else out_str(o, "-1"));
	COLUMN(o, "inlineDepth", n, out_u64(o, f[i].depth));
	COLUMN(o, "category", n, out_u64(o, category_of(view_level_func(v, f[i].level))));
	COLUMN(o, "subcategory", n, out_char(o, '0'));
	COLUMN(o, "func", n, out_u64(o, f[i].func));
	COLUMN(o, "nativeSymbol", n, out_str(o, "null"));
	COLUMN(o, "innerWindowID", n, out_char(o, '0'));
	COLUMN(o, "implementation", n, out_str(o, "null"));
	COLUMN(o, "line", n, uint32_t line = line_in_file(v, f[i].level);
	       index_or(o, line ? line : SP_NONE, "null"));
	COLUMN(o, "column", n, out_str(o, "null"));
	COLUMN(o, "optimizations", n, out_str(o, "null"));
	out_char(o, '}');
}

static void write_funcs(struct out *o, const struct tables *t)
{
	const struct table_func *f = t->funcs;
	size_t n = t->n_funcs;
	out_printf(o, ",\n\"funcTable\":{\"length\":%zu", n);
	COLUMN(o, "name", n, out_u64(o, f[i].name));
	COLUMN(o, "isJS", n, out_str(o, "false"));
	COLUMN(o, "relevantForJS", n, out_str(o, "false"));
	COLUMN(o, "resource", n, index_or(o, f[i].resource, "-1"));
	COLUMN(o, "fileName", n, index_or(o, f[i].file, "null"));
	COLUMN(o, "lineNumber", n, out_str(o, "null"));
	COLUMN(o, "columnNumber", n, out_str(o, "null"));
	out_char(o, '}');
}

static void write_tables(struct writer *w, struct tables *t)
{
	const struct view *v = w->v;
	struct out *o = w->o;
	const struct table_stack *s = t->stacks;
	size_t n = t->n_stacks;
	out_printf(o, ",\n\"stackTable\":{\"length\":%zu", n);
	COLUMN(o, "prefix", n, index_or(o, s[i].prefix, "null"));
	COLUMN(o, "frame", n, out_u64(o, s[i].frame));
	COLUMN(o, "category", n,
	       out_u64(o, category_of(view_level_func(v, t->frames[s[i].frame].level))));
	COLUMN(o, "subcategory", n, out_char(o, '0'));
	out_char(o, '}');
	write_frames(v, o, t);
	write_funcs(o, t);
	/* A resource is a library (type 1) under its base name. */
	n = t->n_libs;
	out_printf(o, ",\n\"resourceTable\":{\"length\":%zu", n);
	COLUMN(o, "lib", n, out_u64(o, t->libs[i]));
	COLUMN(o, "name", n,
	       const struct sp_spool_module *m = sp_spool_module(v->spool, w->libs[t->libs[i]]);
	       out_u64(o, string(w, t, view_base(m->path))));
	COLUMN(o, "host", n, out_str(o, "null"));
	COLUMN(o, "type", n, out_char(o, '1'));
	out_str(o, "},\n\"nativeSymbols\":{\"length\":0,\"address\":[],\"functionSize\":[],"
		   "\"libIndex\":[],\"name\":[]}");
}

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

static void write_ms(struct out *o, uint64_t ns)
{
	if (out_room(o, OUT_DIGITS + 7))
		o->buf.len = (size_t)(put_ms(o->buf.data + o->buf.len, ns) - o->buf.data);
}

static bool next_sample(struct writer *w, struct series_sample *x)
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
static void add_marker(struct writer *w, struct tables *t, struct markers *m, const char *name,
		       const char *text, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t base = w->v->first_ns, from = from_ns > base ? from_ns - base : 0;
	uint64_t to = to_ns > base ? to_ns - base : 0;
	bool instant = to_ns == UINT64_MAX;
	const char *sep = m->n++ ? "," : "";
	out_str(&m->name, sep);
	out_u64(&m->name, string(w, t, name));
	out_str(&m->start, sep);
	write_ms(&m->start, from);
	out_str(&m->end, sep);
	if (instant)
		out_str(&m->end, "null");
	else
		write_ms(&m->end, to > from ? to : from);
	out_printf(&m->phase, "%s%d", sep, instant ? 0 : 1);
	out_printf(&m->data, "%s{\"type\":\"Text\",\"name\":", sep);
	out_json(&m->data, text);
	out_char(&m->data, '}');
}

static void add_execs(struct writer *w, struct tables *t, struct markers *m, int32_t pid)
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

static void add_losses(struct writer *w, struct tables *t, struct markers *m)
{
	for (size_t i = 0; i < sp_spool_n_losses(w->v->spool); i++) {
		const struct sp_spool_loss *l = sp_spool_loss(w->v->spool, i);
		char count[24];
		snprintf(count, sizeof count, "%llu", (unsigned long long)l->count);
		add_marker(w, t, m, l->kind ? "throttled" : "lost records", count, l->from_ns,
			   l->to_ns);
	}
}

/* The profiler gives a thread one name: where it had several, a marker for as long as each was seen.
 */
static void add_names(struct writer *w, struct tables *t, struct markers *m, const struct series *s,
		      size_t list)
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
static void add_waits(struct writer *w, struct tables *t, struct markers *m, const struct series *s,
		      size_t list)
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

/* Names; in the first thread of each process its execs, in that of the file the losses. */
static void write_markers(struct writer *w, struct tables *t, const struct series *s, size_t list,
			  bool first_of_pid, bool first)
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
		begin(o, columns[i].key);
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
static void write_column(struct writer *w, struct tables *t, const struct series *s, size_t list,
			 enum sample_column which)
{
	static const char *const names[] = {"weight", "stack", "time"};
	struct out *o = w->o;
	struct series_sample x;
	uint64_t last = 0;
	bool first = true;
	begin(o, names[which]);
	series_rewind(&w->cursor, s, list);
	while (next_sample(w, &x) && out_room(o, OUT_DIGITS + 8)) {
		uint8_t *p = o->buf.data + o->buf.len;
		*p = ',';
		p += !first;
		first = false;
		if (which == COLUMN_STACK)
			p = out_put_u64(p, stack_of(w, t, x.stack));
		else
			p = put_ms(p, which == COLUMN_TIME ? time_in(w->v, &x, &last) : x.weight);
		o->buf.len = (size_t)(p - o->buf.data);
	}
	out_char(o, ']');
}

static void write_samples(struct writer *w, struct tables *t, const struct series *s, size_t list)
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

static void write_strings(struct out *o, const struct tables *t)
{
	out_str(o, ",\n\"stringArray\":[");
	for (size_t i = 0; i < t->strings.n; i++) {
		out_str(o, i ? ",\n" : "");
		out_json(o, sp_intern_get(&t->strings, (uint32_t)i, NULL));
	}
	out_char(o, ']');
}

/* Of each thread of the spool, the name that most of its samples have, and how many names it had. */
static bool name_threads(struct writer *w)
{
	const struct view *v = w->v;
	uint64_t *n = calloc(v->n_tasks + 1, sizeof *n);
	w->names = calloc(sp_spool_n_threads(v->spool) + 1, sizeof *w->names);
	for (size_t i = 0; n && i < v->n_lanes; i++)
		n[v->lanes[i].task] += v->lanes[i].n;
	for (size_t i = 0; n && w->names && i < v->n_tasks; i++) {
		struct names *names = &w->names[v->tasks[i].thread];
		if (!n[i])
			continue;
		if (!names->n++ || n[i] > n[names->task])
			names->task = (uint32_t)i;
	}
	free(n);
	return n && w->names;
}

/* Where events are apart, a thread stands once for each: their names tell them apart, and a tid that
 * is a text (as the format allows) where there would be two of one number. */
static void write_names(const struct view *v, struct out *o, const struct view_task *task,
			const struct sp_spool_event *event, bool again)
{
	struct out name = {.memory = true};
	out_str(&name, *task->comm ? task->comm : "?");
	if (v->apart) {
		out_str(&name, " (");
		out_str(&name, event->name);
		out_char(&name, ')');
	}
	out_char(&name, 0);
	out_json(o, name.buf.failed ? "?" : (const char *)name.buf.data);
	if (again) {
		name.buf.len = 0;
		out_printf(&name, "%d ", task->tid);
		out_str(&name, event->name);
		out_char(&name, 0);
		out_str(o, ",\"tid\":");
		out_json(o, name.buf.failed ? "?" : (const char *)name.buf.data);
	} else {
		out_printf(o, ",\"tid\":%d", task->tid);
	}
	sp_buf_deinit(&name.buf);
}

static void write_thread(struct writer *w, const struct series *s, size_t list,
			 const uint32_t *process)
{
	struct out *o = w->o;
	const struct view *v = w->v;
	struct tables t = {0};
	const struct view_lane *lane = &v->lanes[s->lists[list].first.lane];
	const struct names *names = &w->names[v->tasks[lane->task].thread];
	const struct view_task *task = &v->tasks[names->task];
	const struct view_task *main = &v->tasks[process[task - v->tasks]];
	size_t n_events = v->apart ? sp_spool_n_events(v->spool) : 1;
	bool again = false; /* the thread has an earlier list */
	for (size_t i = list - list % n_events; i < list; i++)
		again |= s->lists[i].n > 0;
	bool first = w->thread++ == 0, is_main = task->tid == task->pid && !again;
	bool first_of_pid = sp_map64_get(&w->pids, (uint32_t)task->pid) == SP_NOT_FOUND;
	put(w, &w->pids, (uint32_t)task->pid, 0);
	out_str(o, first ? "\n{\"name\":" : ",\n{\"name\":");
	write_names(v, o, task, sp_spool_event(v->spool, lane->event), again);
	out_str(o, ",\"processName\":");
	out_json(o, *main->comm ? main->comm : "?");
	out_printf(o,
		   ",\"isMainThread\":%s,\"pid\":\"%d\",\"processType\":\"default\","
		   "\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,"
		   "\"unregisterTime\":null,\"pausedRanges\":[],\"showMarkersInTimeline\":true,\n",
		   is_main ? "true" : "false", task->pid);
	write_samples(w, &t, s, list);
	write_tables(w, &t);
	write_markers(w, &t, s, list, first_of_pid, first);
	write_strings(o, &t);
	out_char(o, '}');
	tables_deinit(&t);
}

static void write_meta(struct view *v, struct out *o)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	static const char *const categories[][2] = {{"Other", "grey"},
						    {"User", "yellow"},
						    {"Kernel", "orange"},
						    {"Python", "green"},
						    {"JIT", "blue"}};
	uint64_t start_us = info->start_timestamp_us ? sp_spool_timestamp_us(v->spool, v->first_ns)
						     : view_wall_ns(v, v->first_ns) / 1000;
	uint64_t interval_us = info->sample_interval_us ? info->sample_interval_us : 1000;
	out_str(o, "{\"meta\":{\"categories\":[");
	for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
		out_printf(o, "%s{\"name\":\"%s\",\"color\":\"%s\",\"subcategories\":[\"Other\"]}",
			   i ? "," : "", categories[i][0], categories[i][1]);
	out_str(o, "],\"debug\":false,\"extensions\":{\"baseURL\":[],\"id\":[],\"length\":0,"
		   "\"name\":[]},\"interval\":");
	write_ms(o, interval_us * 1000);
	out_printf(o,
		   ",\"preprocessedProfileVersion\":%d,\"version\":%d,\"processType\":0,"
		   "\"stackwalk\":1,\"startTime\":%llu.%03llu,\"symbolicated\":true,"
		   "\"usesOnlyOneStackType\":true,\"doesNotUseFrameImplementation\":true,"
		   "\"sourceCodeIsNotOnSearchfox\":true,\"markerSchema\":[],\"importedFrom\":"
		   "\"stackpulse\",\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\","
		   "\"threadCPUDelta\":\"ns\"},\"product\":",
		   PROCESSED_VERSION, GECKO_VERSION, (unsigned long long)(start_us / 1000),
		   (unsigned long long)(start_us % 1000));
	out_json(o, info->cmdline && *info->cmdline ? info->cmdline : "stackpulse");
	out_str(o, ",\"platform\":\"Linux\",\"oscpu\":");
	out_json(o, info->osrelease ? info->osrelease : "");
	out_str(o, "}");
}

/* A debug id as Breakpad makes it of a build-id: its first 16 bytes as a GUID, and an age of 0. */
static void write_breakpad(struct out *o, const struct sp_build_id *id)
{
	static const uint8_t order[16] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
	for (size_t i = 0; i < 16; i++)
		out_printf(o, "%02X", order[i] < id->len ? id->bytes[order[i]] : 0);
	out_char(o, '0');
}

static void write_libs(struct writer *w)
{
	struct out *o = w->o;
	out_str(o, ",\n\"libs\":[");
	for (size_t i = 0; i < w->n_libs; i++) {
		const struct sp_spool_module *m = sp_spool_module(w->v->spool, w->libs[i]);
		struct sp_build_id id;
		char hex[2 * SP_BUILD_ID_MAX + 1] = "";
		view_build_id(w->v, m, &id);
		sp_build_id_hex(&id, hex);
		out_str(o, i ? ",\n{\"name\":" : "\n{\"name\":");
		out_json(o, view_base(m->path));
		out_str(o, ",\"path\":");
		out_json(o, m->path);
		out_str(o, ",\"debugName\":");
		out_json(o, view_base(m->path));
		out_str(o, ",\"debugPath\":");
		out_json(o, m->path);
		out_str(o, ",\"breakpadId\":\"");
		write_breakpad(o, &id);
		out_printf(o, "\",\"codeId\":%s%s%s,\"arch\":null}", id.len ? "\"" : "",
			   id.len ? hex : "null", id.len ? "\"" : "");
	}
	out_char(o, ']');
}

static bool make_columns(struct writer *w)
{
	const struct view *v = w->v;
	w->known_stacks = calloc(v->n_stacks + 1, sizeof *w->known_stacks);
	w->known = calloc(v->n_levels + 1, sizeof *w->known);
	w->leaf = calloc(v->n_stacks + 1, sizeof *w->leaf);
	w->path = calloc(v->max_levels + 1, sizeof *w->path);
	return w->known_stacks && w->known && w->leaf && w->path;
}

int format_firefox(struct view *v, struct out *o, struct sp_err *err)
{
	struct writer w = {.v = v, .o = o, .err = err};
	struct series s = {0};
	uint32_t *process = NULL;
	w.r = out_gzip(o, err);
	if (w.r >= 0)
		w.r = series_init(&s, v, err);
	if (w.r >= 0) {
		process = groups_process_tasks(v, err);
		w.failed = !process || !name_threads(&w) || !make_columns(&w);
	}
	if (w.r >= 0 && !w.failed)
		make_nodes(&w);
	if (w.r >= 0 && !w.failed) {
		write_meta(v, o);
		out_str(o, ",\n\"pages\":[],\"counters\":[],\"profilerOverhead\":[],\"threads\":[");
		for (size_t i = 0; i < s.n_lists && w.r >= 0 && !w.failed; i++)
			if (s.lists[i].n)
				write_thread(&w, &s, i, process);
		out_char(o, ']');
		write_libs(&w);
		out_str(o, "}\n");
	}
	if (v->n_samples > 10000000)
		v->note = "the Firefox profiler reads files up to about 500 MB unpacked: --time, "
			  "--pid "
			  "or --tid make it shorter";
	free(process);
	free(w.libs);
	free(w.known);
	free(w.nodes);
	free(w.leaf);
	free(w.path);
	free(w.names);
	free(w.known_stacks);
	sp_map64_deinit(&w.lib_ids);
	sp_map64_deinit(&w.pids);
	series_deinit(&s);
	return w.r < 0 ? w.r : w.failed ? sp_err_nomem(err) : 0;
}
