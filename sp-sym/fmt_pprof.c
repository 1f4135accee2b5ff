/* pprof: google/pprof's profile.proto, gzipped. Its readers ask for more than it says: the main
 * binary is mapping 1, period_type and time are set, and the lines of a location begin with the
 * innermost inlined function. */
#include <stdlib.h>

#include "build_id.h"
#include "container.h"
#include "formats.h"
#include "proto.h"
#include "wait.h"

enum { /* fields of Profile */
       P_SAMPLE_TYPE = 1,
       P_SAMPLE,
       P_MAPPING,
       P_LOCATION,
       P_FUNCTION,
       P_STRING_TABLE,
       P_TIME_NANOS = 9,
       P_DURATION_NANOS,
       P_PERIOD_TYPE,
       P_PERIOD,
       P_COMMENT,
       P_DEFAULT_SAMPLE_TYPE,
};

struct mapping {
	uint32_t module; /* of the spool; SP_NONE: the kernel, when no module of it is known */
	bool functions, files, lines, inlines;
};

struct function {
	uint32_t func, file; /* of the view; string */
};

struct pprof {
	struct view *v;
	struct out *o;
	struct sp_intern strings;
	struct sp_buf msg, sub; /* scratch */
	struct sp_buf text;     /* of a label */
	struct sp_buf labels;   /* encoded, by task: from labels_at[task] to that of the next */
	size_t *labels_at;      /* owned */
	struct sp_map64 by_module, function_ids;
	struct function *functions; /* owned; ids are indexes + 1 */
	size_t n_functions, functions_cap;
	struct mapping *mappings; /* owned; ids are indexes + 1 */
	size_t n_mappings, mappings_cap;
	uint32_t *value_of; /* owned: column of each event of the spool */
	size_t n_values;
};

static uint64_t string(struct pprof *p, const char *s)
{
	uint32_t id = out_text_intern(&p->strings, s);
	p->o->buf.failed |= id == SP_NOT_FOUND;
	return id;
}

/* The message in msg, as one field of Profile. */
static void emit(struct pprof *p, unsigned field)
{
	p->sub.len = 0;
	sp_buf_uleb(&p->sub, (uint64_t)field << 3 | 2);
	sp_buf_uleb(&p->sub, p->msg.len);
	out_add(p->o, p->sub.data, p->sub.len);
	out_add(p->o, p->msg.data, p->msg.len);
	p->msg.len = 0;
}

static void emit_number(struct pprof *p, unsigned field, uint64_t value)
{
	p->sub.len = 0;
	proto_varint(&p->sub, field, value);
	out_add(p->o, p->sub.data, p->sub.len);
}

static void emit_type(struct pprof *p, unsigned field, const char *type, const char *unit)
{
	proto_varint(&p->msg, 1, string(p, type));
	proto_varint(&p->msg, 2, string(p, unit));
	emit(p, field);
}

/* A clock's event is what pprof's readers call cpu. */
static const char *type_name(const struct sp_spool_event *e)
{
	if (!strcmp(e->name, "cpu-clock") || !strcmp(e->name, "task-clock"))
		return "cpu";
	return *e->name ? e->name : "event";
}

static const char *type_unit(const struct sp_spool_event *e)
{
	return e->weight_is_time ? "nanoseconds" : "count";
}

/* The mean weight of an event's samples: their period. */
static uint64_t period_of(const struct view *v, uint32_t event)
{
	uint64_t n = 0, weight = 0;
	for (size_t i = 0; i < v->n_rows; i++) {
		if (v->rows[i].event == event) {
			n += v->rows[i].n;
			weight += v->rows[i].weight;
		}
	}
	return n ? weight / n : sp_spool_info(v->spool)->sample_interval_us * 1000;
}

static bool emit_types(struct pprof *p)
{
	size_t n = sp_spool_n_events(p->v->spool);
	const struct sp_spool_event *first = NULL;
	uint32_t first_index = 0;
	p->value_of = calloc(n + 1, sizeof *p->value_of);
	if (!p->value_of)
		return false;
	emit_type(p, P_SAMPLE_TYPE, "samples", "count");
	p->n_values = 1;
	for (size_t i = 0; i < n; i++) {
		const struct sp_spool_event *e = sp_spool_event(p->v->spool, (uint32_t)i);
		if (!p->v->event_shown[i])
			continue;
		first_index = first ? first_index : (uint32_t)i;
		first = first ? first : e;
		p->value_of[i] = (uint32_t)p->n_values++;
		emit_type(p, P_SAMPLE_TYPE, type_name(e), type_unit(e));
	}
	emit_type(p, P_PERIOD_TYPE, first ? type_name(first) : "samples",
		  first ? type_unit(first) : "count");
	emit_number(p, P_PERIOD, first ? period_of(p->v, first_index) : 1);
	bool time = first && first->weight_is_time;
	emit_number(p, P_DEFAULT_SAMPLE_TYPE, string(p, time ? type_name(first) : "samples"));
	return true;
}

static void emit_times(struct pprof *p)
{
	emit_number(p, P_TIME_NANOS, view_wall_ns(p->v, p->v->first_ns));
	emit_number(p, P_DURATION_NANOS, p->v->last_ns - p->v->first_ns);
}

/* The process with the most samples. */
static int32_t main_pid(const struct view *v)
{
	struct sp_map64 slots = {0};
	uint64_t *n = calloc(v->n_tasks + 1, sizeof *n), best = 0;
	int32_t pid = -1;
	for (size_t i = 0; n && i < v->n_rows; i++) {
		int32_t this = v->tasks[v->rows[i].task].pid;
		uint32_t slot = sp_map64_get(&slots, (uint32_t)this);
		if (slot == SP_NOT_FOUND) {
			slot = slots.n;
			if (!sp_map64_put(&slots, (uint32_t)this, slot))
				break;
		}
		n[slot] += v->rows[i].n;
		if (n[slot] > best) {
			best = n[slot];
			pid = this;
		}
	}
	free(n);
	sp_map64_deinit(&slots);
	return pid;
}

/* Its executable: the file with the lowest address that is no shared library (position independent
 * executables lie below the libraries on Linux). */
static uint32_t main_module(const struct view *v)
{
	int32_t pid = main_pid(v);
	uint32_t best = SP_NONE;
	size_t n = sp_spool_n_modules(v->spool);
	for (size_t i = 0; i < n; i++) {
		const struct sp_spool_module *m = sp_spool_module(v->spool, (uint32_t)i);
		if (m->pid != pid || m->is_anon || m->is_kernel || *m->path != '/' ||
		    strstr(view_base(m->path), ".so"))
			continue;
		if (best == SP_NONE || m->start < sp_spool_module(v->spool, best)->start)
			best = m->id;
	}
	return best;
}

static uint32_t add_mapping(struct pprof *p, uint32_t module)
{
	uint32_t id = sp_map64_get(&p->by_module, module);
	if (id != SP_NOT_FOUND)
		return id;
	struct mapping *m = SP_PUSH(&p->mappings, &p->n_mappings, &p->mappings_cap);
	if (!m || !sp_map64_put(&p->by_module, module, (uint32_t)p->n_mappings - 1)) {
		p->o->buf.failed = true;
		return SP_NOT_FOUND;
	}
	m->module = module;
	return (uint32_t)p->n_mappings - 1;
}

/* The mapping of a frame, as an index; SP_NOT_FOUND for those without. */
static uint32_t mapping_of(const struct pprof *p, const struct view_frame *f)
{
	if (f->f.mode == SP_FRAME_TRUNCATED ||
	    (f->f.module == SP_NONE && f->f.mode != SP_FRAME_KERNEL))
		return SP_NOT_FOUND;
	return sp_map64_get(&p->by_module, f->f.module);
}

static void gather_mappings(struct pprof *p)
{
	const struct view *v = p->v;
	uint32_t first = main_module(v);
	if (first != SP_NONE)
		add_mapping(p, first);
	for (size_t i = 0; i < v->n_frames; i++) {
		const struct view_frame *f = &v->frames[i];
		if (f->f.mode == SP_FRAME_TRUNCATED ||
		    (f->f.module == SP_NONE && f->f.mode != SP_FRAME_KERNEL))
			continue;
		uint32_t id = add_mapping(p, f->f.module);
		if (id == SP_NOT_FOUND)
			return;
		struct mapping *m = &p->mappings[id];
		const struct sp_spool_module *module = view_module(v, &f->f);
		bool file = module && !module->is_anon && !module->is_kernel;
		m->functions |= !file || f->origin != SP_ORIGIN_ADDRESS;
		for (uint32_t j = 0; j < f->n_levels; j++) {
			m->files |= view_level_place(v, f->level_at + j)->file != NULL;
			m->lines |= view_level_place(v, f->level_at + j)->line != 0;
			m->inlines |= v->levels[f->level_at + j].inlined;
		}
	}
}

static void emit_mapping(struct pprof *p, size_t index)
{
	const struct mapping *m = &p->mappings[index];
	const struct sp_spool_module *module =
		m->module == SP_NONE ? NULL : sp_spool_module(p->v->spool, m->module);
	char build_id[2 * SP_BUILD_ID_MAX + 1] = "";
	if (module)
		view_build_id_hex(p->v, module, build_id);
	bool kernel = !module || module->is_kernel;
	proto_varint(&p->msg, 1, index + 1);
	proto_varint(&p->msg, 2, module ? module->start : UINT64_C(1) << 63);
	proto_varint(&p->msg, 3, module ? module->end : UINT64_MAX);
	proto_varint(&p->msg, 4, module && !kernel ? module->file_offset : 0);
	proto_varint(&p->msg, 5, string(p, kernel ? "[kernel.kallsyms]" : module->path));
	proto_varint(&p->msg, 6, string(p, build_id));
	proto_varint(&p->msg, 7, m->functions);
	proto_varint(&p->msg, 8, m->files);
	proto_varint(&p->msg, 9, m->lines);
	proto_varint(&p->msg, 10, m->inlines);
	emit(p, P_MAPPING);
}

/* The function of a level, as an id: one for each file that its lines are in. */
static uint64_t function_of(struct pprof *p, uint32_t level)
{
	uint32_t func = p->v->levels[level].func;
	const char *file = view_level_place(p->v, level)->file;
	file = file ? file : p->v->funcs[func].file;
	uint64_t file_id = file ? string(p, file) : 0, key = (uint64_t)func << 32 | file_id;
	uint32_t id = sp_map64_get(&p->function_ids, key);
	if (id != SP_NOT_FOUND)
		return id + UINT64_C(1);
	struct function *slot = SP_PUSH(&p->functions, &p->n_functions, &p->functions_cap);
	id = (uint32_t)p->n_functions - 1;
	if (!slot || !sp_map64_put(&p->function_ids, key, id)) {
		p->o->buf.failed = true;
		return 1;
	}
	*slot = (struct function){func, (uint32_t)file_id};
	return id + UINT64_C(1);
}

static void add_line(struct pprof *p, uint32_t level)
{
	p->sub.len = 0;
	proto_varint(&p->sub, 1, function_of(p, level));
	proto_varint(&p->sub, 2, view_level_place(p->v, level)->line);
	proto_bytes(&p->msg, 4, p->sub.data, p->sub.len);
}

/* Without any name in its file, a location has no lines: pprof then looks for names itself. */
static void emit_location(struct pprof *p, size_t index)
{
	const struct view_frame *f = &p->v->frames[index];
	uint32_t mapping = mapping_of(p, f);
	proto_varint(&p->msg, 1, index + 1);
	proto_varint(&p->msg, 2, mapping == SP_NOT_FOUND ? 0 : (uint64_t)mapping + 1);
	proto_varint(&p->msg, 3, f->f.mode == SP_FRAME_TRUNCATED ? 0 : f->f.abs_ip);
	if (mapping == SP_NOT_FOUND || p->mappings[mapping].functions)
		for (uint32_t j = 0; j < f->n_levels; j++)
			add_line(p, f->level_at + j);
	emit(p, P_LOCATION);
}

static void emit_functions(struct pprof *p)
{
	for (size_t i = 0; i < p->n_functions; i++) {
		const struct view_func *f = &p->v->funcs[p->functions[i].func];
		uint64_t name = string(p, *f->name ? f->name : "?");
		proto_varint(&p->msg, 1, i + 1);
		proto_varint(&p->msg, 2, name);
		proto_varint(&p->msg, 3, name);
		proto_varint(&p->msg, 4, p->functions[i].file);
		emit(p, P_FUNCTION);
	}
}

static void add_label(struct pprof *p, struct sp_buf *to, const char *key, const char *text,
		      int64_t number)
{
	p->sub.len = 0;
	proto_varint(&p->sub, 1, string(p, key));
	if (text)
		proto_varint(&p->sub, 2, string(p, text));
	else
		proto_varint(&p->sub, 3, (uint64_t)number);
	proto_bytes(to, 3, p->sub.data, p->sub.len);
}

static void add_container(struct pprof *p, const struct containers *known, int32_t pid)
{
	struct container c;
	if (!containers_find(known, pid, &c))
		return;
	add_label(p, &p->labels, "cgroup", c.cgroup, 0);
	if (*c.id)
		add_label(p, &p->labels, "container_id", c.id, 0);
	if (!*c.id && !*c.name)
		return;
	p->text.len = 0;
	container_name(&c, &p->text);
	sp_buf_u8(&p->text, 0);
	if (!p->text.failed)
		add_label(p, &p->labels, "container", (const char *)p->text.data, 0);
}

/* The labels of all tasks: the same for each of a task's samples. */
static bool make_labels(struct pprof *p)
{
	const struct view *v = p->v;
	struct containers known;
	p->labels_at = malloc((v->n_tasks + 1) * sizeof *p->labels_at);
	if (!p->labels_at || containers_init(&known, v, NULL) < 0)
		return false;
	for (size_t i = 0; i < v->n_tasks; i++) {
		const struct view_task *t = &v->tasks[i];
		p->labels_at[i] = p->labels.len;
		add_label(p, &p->labels, "thread", *t->comm ? t->comm : "?", 0);
		add_label(p, &p->labels, "tid", NULL, t->tid);
		add_label(p, &p->labels, "pid", NULL, t->pid);
		add_container(p, &known, t->pid);
	}
	containers_deinit(&known);
	p->labels_at[v->n_tasks] = p->labels.len;
	return !p->labels.failed;
}

static void add_wait(struct pprof *p, const struct view_row *row)
{
	struct sp_spool_wait w = sp_spool_wait(p->v->spool, row->wait);
	add_label(p, &p->msg, "state", wait_state(p->v, row), 0);
	if (!w.waker_tid)
		return;
	add_label(p, &p->msg, "waker", wait_comm(&w), 0);
	add_label(p, &p->msg, "waker_tid", NULL, w.waker_tid);
	add_label(p, &p->msg, "waker_pid", NULL, w.waker_pid);
}

static void emit_sample(struct pprof *p, const struct view_row *row)
{
	const struct view_stack *s = &p->v->stacks[row->stack];
	p->sub.len = 0;
	for (uint32_t i = 0; i < s->n; i++)
		sp_buf_uleb(&p->sub, (uint64_t)p->v->stack_frames[s->at + i] + 1);
	if (!s->n) /* the location that stands for no stack */
		sp_buf_uleb(&p->sub, p->v->n_frames + 1);
	proto_bytes(&p->msg, 1, p->sub.data, p->sub.len);
	p->sub.len = 0;
	for (size_t i = 0; i < p->n_values; i++)
		sp_buf_uleb(&p->sub, i == 0                         ? row->n
				     : i == p->value_of[row->event] ? row->weight
								    : 0);
	proto_bytes(&p->msg, 2, p->sub.data, p->sub.len);
	size_t at = p->labels_at[row->task];
	sp_buf_add(&p->msg, p->labels.data + at, p->labels_at[row->task + 1] - at);
	if (row->wait)
		add_wait(p, row);
	emit(p, P_SAMPLE);
}

static void emit_strings(struct pprof *p)
{
	for (size_t i = 0; i < p->strings.n; i++) {
		size_t len;
		const char *s = sp_intern_get(&p->strings, (uint32_t)i, &len);
		sp_buf_add(&p->msg, s, len);
		emit(p, P_STRING_TABLE);
	}
}

static void emit_comment(struct pprof *p, const char *text)
{
	if (text && *text)
		emit_number(p, P_COMMENT, string(p, text));
}

int format_pprof(struct view *v, struct out *o, struct sp_err *err)
{
	struct pprof p = {.v = v, .o = o};
	int r = out_gzip(o, err);
	if (r < 0)
		return r;
	string(&p, ""); /* string 0 is the empty one */
	bool ok = emit_types(&p);
	if (ok) {
		emit_times(&p);
		gather_mappings(&p);
		for (size_t i = 0; i < p.n_mappings; i++)
			emit_mapping(&p, i);
		for (size_t i = 0; i < v->n_frames; i++)
			emit_location(&p, i);
		proto_varint(&p.msg, 1, v->n_frames + 1);
		add_line(&p, v->special[VIEW_NO_STACK]);
		emit(&p, P_LOCATION);
		emit_functions(&p);
		ok = make_labels(&p);
		for (size_t i = 0; ok && i < v->n_rows; i++)
			if (v->rows[i].n)
				emit_sample(&p, &v->rows[i]);
		emit_comment(&p, sp_spool_info(v->spool)->cmdline);
		emit_comment(&p, sp_spool_info(v->spool)->hostname);
		emit_strings(&p);
	}
	ok = ok && !p.msg.failed && !p.sub.failed && !o->buf.failed;
	sp_intern_deinit(&p.strings);
	sp_buf_deinit(&p.msg);
	sp_buf_deinit(&p.sub);
	sp_buf_deinit(&p.labels);
	sp_buf_deinit(&p.text);
	free(p.labels_at);
	sp_map64_deinit(&p.by_module);
	sp_map64_deinit(&p.function_ids);
	free(p.functions);
	free(p.mappings);
	free(p.value_of);
	return ok ? 0 : sp_err_nomem(err);
}
