/* otlp: OpenTelemetry profiles, in the layout of opentelemetry-proto 1.45's v1development package,
 * uncompressed, as a collector takes it at /v1development/profiles. Experimental: the layout has
 * changed with most releases. Item 0 of each table is the null entry. A profile per event. */
#include <stdlib.h>

#include "build_id.h"
#include "formats.h"
#include "proto.h"
#include "wait.h"

enum { /* fields of ProfilesDictionary */
       D_MAPPING = 1,
       D_LOCATION,
       D_FUNCTION,
       D_STRING = 5,
       D_ATTRIBUTE,
       D_STACK,
};

struct otlp {
	struct view *v;
	struct sp_intern strings, attributes; /* an attribute is kept as its encoded message */
	struct sp_map64 by_module, function_ids;
	struct sp_buf mappings, locations, functions, stacks, profiles; /* encoded */
	struct sp_buf msg, sub, val;                                    /* scratch */
	uint32_t n_mappings, n_functions;
	uint32_t *stack_index; /* owned; by stack of the view */
	bool failed;
};

static uint32_t string(struct otlp *p, const char *s)
{
	uint32_t id = out_text_intern(&p->strings, s);
	p->failed |= id == SP_NOT_FOUND;
	return id;
}

static void move_message(struct sp_buf *to, unsigned field, struct sp_buf *msg)
{
	proto_bytes(to, field, msg->data, msg->len);
	msg->len = 0;
}

/* A KeyValueAndUnit with an AnyValue: a text (field 1) or a number (field 3). */
static uint32_t attribute(struct otlp *p, const char *key, const char *text, int64_t number)
{
	struct sp_buf clean = {0};
	p->sub.len = p->val.len = 0;
	proto_varint(&p->sub, 1, string(p, key));
	if (text) {
		out_text_buf(&clean, text, strlen(text), 0);
		proto_bytes(&p->val, 1, clean.data, clean.len);
	} else {
		sp_buf_uleb(&p->val, 3 << 3);
		sp_buf_uleb(&p->val, (uint64_t)number);
	}
	proto_bytes(&p->sub, 2, p->val.data, p->val.len);
	uint32_t id = sp_intern_add(&p->attributes, p->sub.data, p->sub.len, NULL);
	p->failed |= clean.failed || id == SP_NOT_FOUND;
	sp_buf_deinit(&clean);
	return id;
}

static void fixed64(struct sp_buf *b, unsigned field, uint64_t value)
{
	sp_buf_uleb(b, (uint64_t)field << 3 | 1);
	sp_buf_u64(b, value);
}

static uint32_t mapping_of(struct otlp *p, const struct view_frame *f)
{
	if (f->f.mode == SP_FRAME_TRUNCATED || f->f.module == SP_NONE)
		return 0;
	uint32_t id = sp_map64_get(&p->by_module, f->f.module);
	if (id != SP_NOT_FOUND)
		return id;
	const struct sp_spool_module *m = sp_spool_module(p->v->spool, f->f.module);
	char build_id[2 * SP_BUILD_ID_MAX + 1];
	view_build_id_hex(p->v, m, build_id);
	uint32_t at = *build_id ? attribute(p, "process.executable.build_id.gnu", build_id, 0) : 0;
	proto_varint(&p->msg, 1, m->start);
	proto_varint(&p->msg, 2, m->end);
	proto_varint(&p->msg, 3, m->is_kernel ? 0 : m->file_offset);
	proto_varint(&p->msg, 4, string(p, m->is_kernel ? "[kernel.kallsyms]" : m->path));
	if (at) {
		p->sub.len = 0;
		sp_buf_uleb(&p->sub, at);
		proto_bytes(&p->msg, 5, p->sub.data, p->sub.len);
	}
	move_message(&p->mappings, D_MAPPING, &p->msg);
	p->failed |= !sp_map64_put(&p->by_module, f->f.module, ++p->n_mappings);
	return p->n_mappings;
}

static uint32_t function_of(struct otlp *p, uint32_t level)
{
	uint32_t func = p->v->levels[level].func;
	const char *file = view_level_place(p->v, level)->file;
	file = file ? file : p->v->funcs[func].file;
	uint32_t file_id = file ? string(p, file) : 0;
	uint64_t key = (uint64_t)func << 32 | file_id;
	uint32_t id = sp_map64_get(&p->function_ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct sp_buf msg = {0};
	const char *text = p->v->funcs[func].name;
	uint32_t name = string(p, *text ? text : "?");
	proto_varint(&msg, 1, name);
	proto_varint(&msg, 2, name);
	proto_varint(&msg, 3, file_id);
	proto_bytes(&p->functions, D_FUNCTION, msg.data, msg.len);
	p->failed |= msg.failed || !sp_map64_put(&p->function_ids, key, ++p->n_functions);
	sp_buf_deinit(&msg);
	return p->n_functions;
}

static void add_location(struct otlp *p, uint32_t mapping, uint64_t address, uint32_t level_at,
			 uint32_t n_levels)
{
	proto_varint(&p->msg, 1, mapping);
	proto_varint(&p->msg, 2, address);
	for (uint32_t j = 0; j < n_levels; j++) {
		p->sub.len = 0;
		proto_varint(&p->sub, 1, function_of(p, level_at + j));
		proto_varint(&p->sub, 2, view_level_place(p->v, level_at + j)->line);
		proto_bytes(&p->msg, 3, p->sub.data, p->sub.len);
	}
	move_message(&p->locations, D_LOCATION, &p->msg);
}

/* Location i + 1 is frame i; the last one stands for no stack. */
static void add_locations(struct otlp *p)
{
	const struct view *v = p->v;
	for (size_t i = 0; i < v->n_frames; i++) {
		const struct view_frame *f = &v->frames[i];
		uint32_t mapping = mapping_of(p, f);
		add_location(p, mapping, f->f.mode == SP_FRAME_TRUNCATED ? 0 : f->f.abs_ip,
			     f->level_at, f->n_levels);
	}
	add_location(p, 0, 0, v->special[VIEW_NO_STACK], 1);
}

static void add_stacks(struct otlp *p)
{
	const struct view *v = p->v;
	uint32_t n = 0;
	for (size_t i = 0; i < v->n_rows; i++) {
		const struct view_stack *s = &v->stacks[v->rows[i].stack];
		if (!v->rows[i].n || p->stack_index[v->rows[i].stack])
			continue;
		p->stack_index[v->rows[i].stack] = ++n;
		p->sub.len = 0;
		for (uint32_t j = 0; j < s->n; j++)
			sp_buf_uleb(&p->sub, (uint64_t)v->stack_frames[s->at + j] + 1);
		if (!s->n)
			sp_buf_uleb(&p->sub, v->n_frames + 1);
		proto_bytes(&p->msg, 1, p->sub.data, p->sub.len);
		move_message(&p->stacks, D_STACK, &p->msg);
	}
}

/* Attributes of a task, packed: thread.id, thread.name, process.pid. */
static void task_attributes(struct otlp *p, const struct view_task *t, struct sp_buf *out)
{
	out->len = 0;
	sp_buf_uleb(out, attribute(p, "process.pid", NULL, t->pid));
	sp_buf_uleb(out, attribute(p, "thread.id", NULL, t->tid));
	sp_buf_uleb(out, attribute(p, "thread.name", *t->comm ? t->comm : "?", 0));
}

static void wait_attributes(struct otlp *p, const struct view_row *row, struct sp_buf *out)
{
	struct sp_spool_wait w = sp_spool_wait(p->v->spool, row->wait);
	sp_buf_uleb(out, attribute(p, "thread.state", wait_state(p->v, row), 0));
	if (!w.waker_tid)
		return;
	sp_buf_uleb(out, attribute(p, "waker.process.pid", NULL, w.waker_pid));
	sp_buf_uleb(out, attribute(p, "waker.thread.id", NULL, w.waker_tid));
	sp_buf_uleb(out, attribute(p, "waker.thread.name", wait_comm(&w), 0));
}

static void value_type(struct otlp *p, struct sp_buf *to, unsigned field, const char *type,
		       const char *unit)
{
	p->sub.len = 0;
	proto_varint(&p->sub, 1, string(p, type));
	proto_varint(&p->sub, 2, string(p, unit));
	proto_bytes(to, field, p->sub.data, p->sub.len);
}

/* The samples of one event as a Profile: their number, or their weight with --weight. */
static void add_profile(struct otlp *p, uint32_t event, bool weight)
{
	const struct view *v = p->v;
	const struct sp_spool_event *e = sp_spool_event(v->spool, event);
	struct sp_buf profile = {0}, attributes = {0};
	uint64_t n = 0, sum = 0;
	uint8_t id[16] = "stackpulse-prof";
	const char *name = *e->name ? e->name : "event";
	const char *unit = e->weight_is_time ? "nanoseconds" : "count";
	value_type(p, &profile, 1, weight ? name : "samples", weight ? unit : "count");
	for (size_t i = 0; i < v->n_rows; i++) {
		const struct view_row *row = &v->rows[i];
		if (!row->n || row->event != event)
			continue;
		n += row->n;
		sum += row->weight;
		task_attributes(p, &v->tasks[row->task], &attributes);
		if (row->wait)
			wait_attributes(p, row, &attributes);
		proto_varint(&p->msg, 1, p->stack_index[row->stack]);
		proto_bytes(&p->msg, 2, attributes.data, attributes.len);
		p->sub.len = 0;
		sp_buf_uleb(&p->sub, weight ? row->weight : row->n);
		proto_bytes(&p->msg, 4, p->sub.data, p->sub.len);
		move_message(&profile, 2, &p->msg);
	}
	fixed64(&profile, 3, view_wall_ns(v, v->first_ns));
	proto_varint(&profile, 4, v->last_ns - v->first_ns);
	value_type(p, &profile, 5, name, unit);
	proto_varint(&profile, 6, n ? sum / n : 0);
	uint64_t mixed = sp_mix64(view_wall_ns(v, v->first_ns) ^ sp_mix64(event + 1)) ^ sum;
	memcpy(id, &mixed, sizeof mixed);
	proto_bytes(&profile, 7, id, sizeof id);
	if (n)
		proto_bytes(&p->profiles, 2, profile.data, profile.len);
	p->failed |= profile.failed || attributes.failed;
	sp_buf_deinit(&profile);
	sp_buf_deinit(&attributes);
}

/* ResourceProfiles: the host, one scope, all profiles. */
static void write_profiles(struct otlp *p, struct out *o)
{
	static const char *const keys[] = {"host.name", "os.type"};
	const char *values[] = {sp_spool_info(p->v->spool)->hostname, "linux"};
	struct sp_buf resource = {0}, scope = {0}, all = {0};
	for (size_t i = 0; i < 2; i++) {
		struct sp_buf clean = {0};
		out_text_buf(&clean, values[i] ? values[i] : "", values[i] ? strlen(values[i]) : 0,
			     0);
		p->val.len = p->sub.len = 0;
		proto_bytes(&p->val, 1, clean.data, clean.len);
		proto_bytes(&p->sub, 1, keys[i], strlen(keys[i]));
		proto_bytes(&p->sub, 2, p->val.data, p->val.len);
		proto_bytes(&resource, 1, p->sub.data, p->sub.len);
		p->failed |= clean.failed;
		sp_buf_deinit(&clean);
	}
	p->sub.len = 0;
	proto_bytes(&p->sub, 1, "stackpulse", 10);
	proto_bytes(&scope, 1, p->sub.data, p->sub.len);
	sp_buf_add(&scope, p->profiles.data, p->profiles.len);
	proto_bytes(&all, 1, resource.data, resource.len);
	proto_bytes(&all, 2, scope.data, scope.len);
	p->sub.len = 0;
	proto_bytes(&p->sub, 1, all.data, all.len);
	out_add(o, p->sub.data, p->sub.len);
	p->failed |= resource.failed || scope.failed || all.failed;
	sp_buf_deinit(&resource);
	sp_buf_deinit(&scope);
	sp_buf_deinit(&all);
}

static void write_dictionary(struct otlp *p, struct out *o)
{
	struct sp_buf d = {0};
	sp_buf_add(&d, p->mappings.data, p->mappings.len);
	sp_buf_add(&d, p->locations.data, p->locations.len);
	sp_buf_add(&d, p->functions.data, p->functions.len);
	proto_bytes(&d, 4, "", 0); /* the one link */
	for (size_t i = 0; i < p->strings.n; i++) {
		size_t len;
		const char *s = sp_intern_get(&p->strings, (uint32_t)i, &len);
		proto_bytes(&d, D_STRING, s, len);
	}
	for (size_t i = 0; i < p->attributes.n; i++) {
		size_t len;
		const char *s = sp_intern_get(&p->attributes, (uint32_t)i, &len);
		proto_bytes(&d, D_ATTRIBUTE, s, len);
	}
	sp_buf_add(&d, p->stacks.data, p->stacks.len);
	p->sub.len = 0;
	proto_bytes(&p->sub, 2, d.data, d.len);
	out_add(o, p->sub.data, p->sub.len);
	p->failed |= d.failed;
	sp_buf_deinit(&d);
}

/* The null entry of each table. */
static void add_nulls(struct otlp *p)
{
	string(p, "");
	p->failed |= sp_intern_add(&p->attributes, "", 0, NULL) != 0;
	proto_bytes(&p->mappings, D_MAPPING, "", 0);
	proto_bytes(&p->locations, D_LOCATION, "", 0);
	proto_bytes(&p->functions, D_FUNCTION, "", 0);
	proto_bytes(&p->stacks, D_STACK, "", 0);
}

int format_otlp(struct view *v, struct out *o, struct sp_err *err)
{
	struct otlp p = {.v = v, .stack_index = calloc(v->n_stacks + 1, sizeof *p.stack_index)};
	int r = out_binary(o, err);
	if (r >= 0 && !p.stack_index)
		r = sp_err_nomem(err);
	if (r >= 0) {
		add_nulls(&p);
		add_locations(&p);
		add_stacks(&p);
		for (uint32_t i = 0; i < sp_spool_n_events(v->spool); i++)
			if (v->event_shown[i])
				add_profile(&p, i,
					    v->by_weight ||
						    (v->opt->weight == WEIGHT_DEFAULT &&
						     view_is_offcpu(sp_spool_event(v->spool, i))));
		write_profiles(&p, o);
		write_dictionary(&p, o);
		p.failed |= p.mappings.failed || p.locations.failed || p.functions.failed ||
			    p.stacks.failed || p.profiles.failed || p.msg.failed || p.sub.failed ||
			    p.val.failed;
		r = p.failed ? sp_err_nomem(err) : 0;
		v->note = "otlp is experimental: the layout of opentelemetry-proto 1.45 "
			  "(v1development), which other versions may not read";
	}
	struct sp_buf *bufs[] = {&p.mappings, &p.locations, &p.functions, &p.stacks,
				 &p.profiles, &p.msg,       &p.sub,       &p.val};
	for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
		sp_buf_deinit(bufs[i]);
	sp_intern_deinit(&p.strings);
	sp_intern_deinit(&p.attributes);
	sp_map64_deinit(&p.by_module);
	sp_map64_deinit(&p.function_ids);
	free(p.stack_index);
	return r;
}
