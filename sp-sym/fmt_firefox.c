/* firefox: the Firefox profiler's processed format, gzipped JSON. The version that is named below
 * is read by all later ones (their upgraders; firefox-devtools/profiler,
 * docs-developer/CHANGELOG-formats.md). Loading checks little, so indexes are kept in range, a
 * stack's prefix is always an earlier one, and times do not decrease. */
#include <stdlib.h>

#include "build_id.h"
#include "formats.h"
#include "group.h"
#include "series.h"

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
	struct sp_map64 func_ids, frame_ids, stack_ids, resource_ids, of_stack;
	struct table_func *funcs;
	struct table_frame *frames;
	struct table_stack *stacks;
	uint32_t *libs; /* by resource: the library */
	size_t n_funcs, funcs_cap, n_frames, frames_cap, n_stacks, stacks_cap, n_libs, libs_cap;
};

struct writer {
	struct view *v;
	struct out *o;
	struct sp_map64 lib_ids; /* by the spool's file number */
	uint32_t *libs;          /* owned; by library: a module of that file */
	size_t n_libs, libs_cap;
	bool failed;
};

static void tables_deinit(struct tables *t)
{
	sp_intern_deinit(&t->strings);
	sp_map64_deinit(&t->func_ids);
	sp_map64_deinit(&t->frame_ids);
	sp_map64_deinit(&t->stack_ids);
	sp_map64_deinit(&t->resource_ids);
	sp_map64_deinit(&t->of_stack);
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
static uint32_t frame_of(struct writer *w, struct tables *t, const struct view_frame *f, uint32_t i)
{
	uint32_t level = f->level_at + i, id = sp_map64_get(&t->frame_ids, level);
	if (id != SP_NOT_FOUND)
		return id;
	uint32_t func = func_of(w, t, f, w->v->levels[level].func);
	struct table_frame *slot = SP_PUSH(&t->frames, &t->n_frames, &t->frames_cap);
	if (!slot) {
		w->failed = true;
		return 0;
	}
	*slot = (struct table_frame){.func = func,
				     .level = level,
				     .depth = f->n_levels - 1 - i,
				     .offset = f->f.rel_ip,
				     .has_offset = t->funcs[func].resource != SP_NONE};
	return put(w, &t->frame_ids, level, t->n_frames - 1);
}

static uint32_t push_stack(struct writer *w, struct tables *t, uint32_t prefix, uint32_t frame)
{
	uint64_t key = (uint64_t)prefix << 32 | frame;
	uint32_t id = sp_map64_get(&t->stack_ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct table_stack *slot = SP_PUSH(&t->stacks, &t->n_stacks, &t->stacks_cap);
	if (!slot) {
		w->failed = true;
		return 0;
	}
	*slot = (struct table_stack){prefix, frame};
	return put(w, &t->stack_ids, key, t->n_stacks - 1);
}

/* The stack's number in the thread's table. */
static uint32_t stack_of(struct writer *w, struct tables *t, uint32_t stack)
{
	static const struct view_frame none = {.n_levels = 1, .f = {.mode = SP_FRAME_TRUNCATED}};
	const struct view *v = w->v;
	const struct view_stack *s = &v->stacks[stack];
	uint32_t id = sp_map64_get(&t->of_stack, stack), prefix = SP_NONE;
	if (id != SP_NOT_FOUND)
		return id;
	for (uint32_t i = s->n; i-- > 0 && !w->failed;) {
		const struct view_frame *f = &v->frames[v->stack_frames[s->at + i]];
		for (uint32_t j = f->n_levels; j-- > 0;)
			prefix = push_stack(w, t, prefix, frame_of(w, t, f, j));
	}
	if (!s->n) {
		struct view_frame f = none;
		f.level_at = v->special[VIEW_NO_STACK];
		prefix = push_stack(w, t, prefix, frame_of(w, t, &f, 0));
	}
	return put(w, &t->of_stack, stack, prefix);
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

static void write_ms(struct out *o, uint64_t ns)
{
	out_printf(o, "%llu.%06llu", (unsigned long long)(ns / 1000000),
		   (unsigned long long)(ns % 1000000));
}

/* Execs of the process, and in the first thread of the file the losses. */
static void write_markers(struct writer *w, struct tables *t, int32_t pid, bool main, bool first)
{
	const struct view *v = w->v;
	struct out *o = w->o;
	uint64_t base = v->first_ns;
	size_t n = 0, n_exec = main ? sp_spool_n_execs(v->spool) : 0;
	size_t n_loss = first ? sp_spool_n_losses(v->spool) : 0;
	struct out name = {.memory = true}, data = {.memory = true}, start = {.memory = true},
		   end = {.memory = true}, phase = {.memory = true};
	for (size_t i = 0; i < n_exec + n_loss; i++) {
		const struct sp_spool_exec *x = i < n_exec ? sp_spool_exec(v->spool, i) : NULL;
		const struct sp_spool_loss *l = x ? NULL : sp_spool_loss(v->spool, i - n_exec);
		if (x && (x->pid != pid || x->kind != 0))
			continue;
		uint64_t from = x ? x->time_ns : l->from_ns, to = x ? from : l->to_ns;
		from = from > base ? from - base : 0;
		to = to > base ? to - base : 0;
		const char *sep = n++ ? "," : "";
		out_str(&name, sep);
		out_u64(&name, string(w, t, x ? "exec" : l->kind ? "throttled" : "lost records"));
		out_str(&start, sep);
		write_ms(&start, from);
		out_str(&end, sep);
		if (x)
			out_str(&end, "null");
		else
			write_ms(&end, to > from ? to : from);
		out_printf(&phase, "%s%d", sep, x ? 0 : 1);
		out_printf(&data, "%s{\"type\":\"Text\",\"name\":", sep);
		if (x) {
			/* The words of the command line, with blanks between them. */
			struct sp_buf line = {0};
			for (uint32_t k = 0; x->cmdline && k < x->cmdline_len; k++)
				sp_buf_u8(&line, x->cmdline[k] ? (uint8_t)x->cmdline[k] : ' ');
			sp_buf_u8(&line, 0);
			out_json(&data, line.failed ? "" : (const char *)line.data);
			sp_buf_deinit(&line);
		} else {
			out_printf(&data, "\"%llu\"", (unsigned long long)l->count);
		}
		out_char(&data, '}');
	}
	struct {
		const char *key;
		struct out *column;
	} columns[] = {{"name", &name},
		       {"data", &data},
		       {"startTime", &start},
		       {"endTime", &end},
		       {"phase", &phase}};
	out_printf(o, ",\n\"markers\":{\"length\":%zu", n);
	for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
		begin(o, columns[i].key);
		out_add(o, columns[i].column->buf.data, columns[i].column->buf.len);
		out_char(o, ']');
		w->failed |= columns[i].column->buf.failed;
		sp_buf_deinit(&columns[i].column->buf);
	}
	COLUMN(o, "category", n, out_char(o, '0'));
	out_char(o, '}');
}

static void write_samples(struct writer *w, struct tables *t, const struct series *s, size_t a,
			  size_t b)
{
	struct out *o = w->o;
	size_t n = b - a;
	out_printf(o, "\"samples\":{\"length\":%zu,\"weightType\":\"samples\",\"weight\":null", n);
	COLUMN(o, "stack", n, out_u64(o, stack_of(w, t, w->v->rows[s->row[a + i]].stack)));
	begin(o, "time");
	uint64_t last = 0;
	for (size_t i = a; i < b; i++) {
		uint64_t time = s->time_ns[i] > w->v->first_ns ? s->time_ns[i] - w->v->first_ns : 0;
		last = time > last ? time : last;
		out_str(o, i > a ? "," : "");
		write_ms(o, last);
	}
	out_str(o, "]}");
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

/* The name that most of the thread's samples have. */
static const struct view_task *thread_task(const struct view *v, const struct series *s, size_t a,
					   size_t b, uint64_t *counts)
{
	uint32_t best = v->rows[s->row[a]].task;
	for (size_t i = a; i < b; i++) {
		uint32_t task = v->rows[s->row[i]].task;
		counts[task]++;
		if (counts[task] > counts[best])
			best = task;
	}
	return &v->tasks[best];
}

static void write_thread(struct writer *w, const struct series *s, uint32_t thread,
			 const uint32_t *process, uint64_t *counts, bool first)
{
	struct out *o = w->o;
	struct tables t = {0};
	size_t a = s->start[thread], b = s->start[thread + 1];
	const struct view_task *task = thread_task(w->v, s, a, b, counts);
	const struct view_task *main = &w->v->tasks[process[task - w->v->tasks]];
	out_str(o, first ? "\n{\"name\":" : ",\n{\"name\":");
	out_json(o, *task->comm ? task->comm : "?");
	out_str(o, ",\"processName\":");
	out_json(o, *main->comm ? main->comm : "?");
	out_printf(o,
		   ",\"isMainThread\":%s,\"pid\":\"%d\",\"tid\":%d,\"processType\":\"default\","
		   "\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,"
		   "\"unregisterTime\":null,\"pausedRanges\":[],\"showMarkersInTimeline\":true,\n",
		   task->tid == task->pid ? "true" : "false", task->pid, task->tid);
	write_samples(w, &t, s, a, b);
	write_tables(w, &t);
	write_markers(w, &t, task->pid, task->tid == task->pid, first);
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
	uint64_t start_us =
		info->start_timestamp_us ? sp_spool_timestamp_us(v->spool, v->first_ns) : 0;
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

int format_firefox(struct view *v, struct out *o, struct sp_err *err)
{
	struct writer w = {.v = v, .o = o};
	struct series s;
	int r = out_gzip(o, v->n_samples > 1000000 ? 1 : 6, err);
	if (r >= 0)
		r = series_init(&s, v, err);
	if (r < 0)
		return r;
	uint32_t *process = groups_process_tasks(v, err);
	uint64_t *counts = calloc(v->n_tasks + 1, sizeof *counts);
	w.failed = !process || !counts;
	bool first = true;
	if (!w.failed) {
		write_meta(v, o);
		out_str(o, ",\n\"pages\":[],\"counters\":[],\"profilerOverhead\":[],\"threads\":[");
		for (size_t t = 0; t < s.n_threads && !w.failed; t++) {
			if (s.start[t] == s.start[t + 1])
				continue;
			write_thread(&w, &s, (uint32_t)t, process, counts, first);
			first = false;
		}
		out_char(o, ']');
		write_libs(&w);
		out_str(o, "}\n");
	}
	if (v->n_samples > 10000000)
		v->note = "the Firefox profiler reads files up to about 500 MB unpacked: --time, "
			  "--pid "
			  "or --tid make it shorter";
	free(process);
	free(counts);
	free(w.libs);
	sp_map64_deinit(&w.lib_ids);
	series_deinit(&s);
	return w.failed ? sp_err_nomem(err) : 0;
}
