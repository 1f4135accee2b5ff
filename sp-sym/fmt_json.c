/* json: everything in one object, for scripts (sp-sym.1, "json"). Tables first, then the samples in
 * time order. What is not known is null, never 0 or -1. */
#include "base/stop.h"
#include "build_id.h"
#include "formats.h"
#include "wait.h"

static void item(struct out *o, size_t index)
{
	out_str(o, index ? ",\n" : "\n");
}

static void write_info(struct view *v, struct out *o)
{
	static const char *const states[] = {"whole", "incomplete", "damaged"};
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	out_str(o, "{\"format\": \"stackpulse\", \"version\": 1,\n\"info\": {\"state\": ");
	out_json(o, states[sp_spool_state(v->spool)]);
	out_str(o, ", \"hostname\": ");
	out_json(o, info->hostname ? info->hostname : "");
	out_str(o, ", \"arch\": ");
	out_json(o, info->arch ? info->arch : "");
	out_str(o, ", \"osrelease\": ");
	out_json(o, info->osrelease ? info->osrelease : "");
	out_str(o, ", \"cmdline\": ");
	out_json(o, info->cmdline ? info->cmdline : "");
	out_printf(o,
		   ", \"start_timestamp_us\": %llu, \"sample_interval_us\": %llu, "
		   "\"first_ns\": %llu, \"last_ns\": %llu, \"samples\": %llu, \"weight\": %llu}",
		   (unsigned long long)info->start_timestamp_us,
		   (unsigned long long)info->sample_interval_us, (unsigned long long)v->first_ns,
		   (unsigned long long)v->last_ns, (unsigned long long)v->n_samples,
		   (unsigned long long)v->weight);
}

static void write_events(struct view *v, struct out *o)
{
	size_t n = sp_spool_n_events(v->spool);
	out_str(o, ",\n\"events\": [");
	for (size_t i = 0; i < n; i++) {
		const struct sp_spool_event *e = sp_spool_event(v->spool, (uint32_t)i);
		item(o, i);
		out_str(o, "{\"name\": ");
		out_json(o, e->name);
		out_printf(o, ", \"unit\": \"%s\"}", e->weight_is_time ? "ns" : "count");
	}
	out_str(o, "],\n\"threads\": [");
	for (size_t i = 0; i < v->n_tasks; i++) {
		const struct view_task *t = &v->tasks[i];
		item(o, i);
		out_printf(o, "{\"pid\": %d, \"tid\": %d, \"name\": ", t->pid, t->tid);
		out_json(o, t->comm);
		out_char(o, '}');
	}
	out_char(o, ']');
}

/* Build-ids are looked for in the files of the modules that frames are in. */
static void write_modules(struct view *v, struct out *o)
{
	struct sp_buf used = {0};
	size_t n = sp_spool_n_modules(v->spool);
	uint8_t *in_use = sp_buf_zero(&used, n + 1);
	for (size_t i = 0; in_use && i < v->n_frames; i++)
		if (v->frames[i].f.module != SP_NONE)
			in_use[v->frames[i].f.module] = 1;
	char hex[2 * SP_BUILD_ID_MAX + 1];
	out_str(o, ",\n\"modules\": [");
	for (size_t i = 0; i < n; i++) {
		const struct sp_spool_module *m = sp_spool_module(v->spool, (uint32_t)i);
		item(o, i);
		out_str(o, "{\"path\": ");
		out_json(o, m->path);
		out_printf(o,
			   ", \"pid\": %d, \"start\": \"0x%llx\", \"end\": \"0x%llx\", "
			   "\"file_offset\": %llu, \"build_id\": ",
			   m->pid, (unsigned long long)m->start, (unsigned long long)m->end,
			   (unsigned long long)m->file_offset);
		bool has_id = in_use && in_use[i] && *view_build_id_hex(v, m, hex);
		out_printf(o, "%s%s%s}", has_id ? "\"" : "", has_id ? hex : "null",
			   has_id ? "\"" : "");
	}
	out_char(o, ']');
	o->buf.failed |= used.failed;
	sp_buf_deinit(&used);
}

static void write_functions(struct view *v, struct out *o)
{
	static const char *const kinds[] = {
		[VIEW_NATIVE] = "native",     [VIEW_PYTHON] = "python",
		[VIEW_JIT] = "jit",           [VIEW_KERNEL] = "kernel",
		[VIEW_ADDRESS] = "address",   [VIEW_TRUNCATED] = "truncated",
		[VIEW_NO_STACK] = "no-stack", [VIEW_GROUP] = "group",
	};
	out_str(o, ",\n\"functions\": [");
	for (size_t i = 0; i < v->n_funcs; i++) {
		const struct view_func *f = &v->funcs[i];
		item(o, i);
		out_str(o, "{\"name\": ");
		out_json(o, f->name);
		out_str(o, ", \"file\": ");
		if (f->file)
			out_json(o, f->file);
		else
			out_str(o, "null");
		out_str(o, ", \"module\": ");
		if (*f->module)
			out_json(o, f->module);
		else
			out_str(o, "null");
		out_printf(o, ", \"kind\": \"%s\"}", kinds[f->kind]);
	}
	out_char(o, ']');
}

static void write_level(const struct view *v, struct out *o, uint32_t level)
{
	const struct view_level *l = &v->levels[level];
	const struct view_func *f = view_level_func(v, level);
	const struct view_place *p = view_level_place(v, level);
	out_printf(o, "{\"function\": %u, \"line\": ", l->func);
	if (p->line)
		out_u64(o, p->line);
	else
		out_str(o, "null");
	if (p->file && (!f->file || strcmp(p->file, f->file) != 0)) {
		out_str(o, ", \"file\": ");
		out_json(o, p->file);
	}
	out_printf(o, ", \"inlined\": %s}", l->inlined ? "true" : "false");
}

static void write_frames(struct view *v, struct out *o)
{
	out_str(o, ",\n\"frames\": [");
	for (size_t i = 0; i < v->n_frames; i++) {
		const struct view_frame *f = &v->frames[i];
		item(o, i);
		if (f->f.mode == SP_FRAME_TRUNCATED)
			out_str(o, "{\"address\": null, \"module\": null, \"offset\": null");
		else
			out_printf(o, "{\"address\": \"0x%llx\", \"module\": ",
				   (unsigned long long)f->f.abs_ip);
		if (f->f.mode != SP_FRAME_TRUNCATED && f->f.module == SP_NONE)
			out_str(o, "null, \"offset\": null");
		else if (f->f.mode != SP_FRAME_TRUNCATED)
			out_printf(o, "%u, \"offset\": \"0x%llx\"", f->f.module,
				   (unsigned long long)f->f.rel_ip);
		out_str(o, ", \"levels\": [");
		for (uint32_t j = 0; j < f->n_levels; j++) {
			out_str(o, j ? ", " : "");
			write_level(v, o, f->level_at + j);
		}
		out_str(o, "]}");
	}
	out_str(o, "],\n\"stacks\": [");
	for (size_t i = 0; i < v->n_stacks; i++) {
		const struct view_stack *s = &v->stacks[i];
		item(o, i);
		out_char(o, '[');
		for (uint32_t j = 0; j < s->n; j++) {
			if (j)
				out_char(o, ',');
			out_u64(o, v->stack_frames[s->at + j]);
		}
		out_char(o, ']');
	}
	out_char(o, ']');
}

static bool has_waits(const struct view *v)
{
	return sp_spool_n_waits(v->spool) > 1;
}

/* The first one stands for nothing known: samples of it have null. */
static void write_waits(const struct view *v, struct out *o)
{
	out_str(o, ",\n\"waits\": [");
	for (size_t i = 0; i < sp_spool_n_waits(v->spool); i++) {
		struct sp_spool_wait w = sp_spool_wait(v->spool, (uint32_t)i);
		item(o, i);
		if (!i) {
			out_str(o, "null");
			continue;
		}
		if (w.state == UINT32_MAX)
			out_str(o, "{\"state\": null");
		else
			out_printf(o, "{\"state\": \"%s\", \"state_bits\": %u",
				   sp_spool_wait_state(w.state), w.state);
		if (w.waker_tid) {
			out_printf(o, ", \"waker\": {\"pid\": %d, \"tid\": %d, \"name\": ",
				   w.waker_pid, w.waker_tid);
			out_json(o, wait_comm(&w));
			out_str(o, "}}");
		} else {
			out_str(o, ", \"waker\": null}");
		}
	}
	out_char(o, ']');
}

static int write_samples(struct view *v, struct out *o, struct sp_err *err)
{
	struct view_sample s;
	int r;
	size_t i = 0;
	bool waits = has_waits(v);
	if (waits)
		write_waits(v, o);
	out_printf(o,
		   ",\n\"sample_columns\": [\"time_ns\", \"thread\", \"event\", \"stack\", "
		   "\"weight\", \"cpu\"%s],\n\"samples\": [",
		   waits ? ", \"wait\"" : "");
	view_rewind(v);
	while ((r = view_next(v, &s, err)) > 0 && sp_stop_level() < 2) {
		const struct view_row *row = &v->rows[s.row];
		const uint64_t columns[] = {s.time_ns, v->lanes[s.lane].task, row->event,
					    row->stack, s.weight};
		item(o, i++);
		if (!out_room(o, 7 * (OUT_DIGITS + 1) + 2))
			break;
		uint8_t *p = o->buf.data + o->buf.len;
		*p++ = '[';
		for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
			p = out_put_u64(p, columns[k]);
			*p++ = ',';
		}
		p = s.cpu == UINT32_MAX ? out_put(p, "null", 4) : out_put_u64(p, s.cpu);
		if (waits && row->wait)
			p = out_put_u64(out_put(p, ",", 1), row->wait);
		else if (waits)
			p = out_put(p, ",null", 5);
		*p++ = ']';
		o->buf.len = (size_t)(p - o->buf.data);
	}
	out_str(o, "]}\n");
	return r < 0 ? r : 0;
}

int format_json(struct view *v, struct out *o, struct sp_err *err)
{
	write_info(v, o);
	write_events(v, o);
	write_modules(v, o);
	write_functions(v, o);
	write_frames(v, o);
	return write_samples(v, o, err);
}
