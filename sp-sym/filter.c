/* What is shown: samples by time, process, thread, name and event; stacks by module and function;
 * frames by kind. */
#include "view.h"

bool view_match(const char *pattern, const char *name)
{
	if (!strpbrk(pattern, "*?"))
		return strstr(name, pattern) != NULL;
	/* After a '*', what follows is tried at each place in turn; an earlier '*' never has to be
	 * tried again, so the time is at most the product of the lengths. */
	const char *star = NULL, *back = NULL;
	while (*name) {
		if (*pattern == '*') {
			star = ++pattern;
			back = name;
		} else if (*pattern == '?' || *pattern == *name) {
			pattern++;
			name++;
		} else if (star) {
			pattern = star;
			name = ++back;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

static bool match_any(const struct view_words *patterns, const char *name)
{
	for (size_t i = 0; i < patterns->n; i++)
		if (view_match(patterns->v[i], name))
			return true;
	return false;
}

static bool has_id(const struct view_ids *ids, int64_t id)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->v[i] == id)
			return true;
	return ids->n == 0;
}

static uint64_t clock_time(const struct view *v, const struct sp_moment *m)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	struct sp_clock clock = {.first_ns = info->first_ns,
				 .start_ns = info->start_timestamp_us * 1000,
				 .wall_ns = info->wall_ns,
				 .clock_ns = info->clock_ns};
	return sp_moment_ns(m, &clock);
}

bool view_sample_passes(const struct view *v, const struct sp_spool_sample *s)
{
	const struct view_options *o = v->opt;
	if (!v->event_shown[s->event])
		return false;
	if (o->from.kind != SP_MOMENT_OPEN && s->time_ns < clock_time(v, &o->from))
		return false;
	if (o->to.kind != SP_MOMENT_OPEN && s->time_ns > clock_time(v, &o->to))
		return false;
	if (o->comms.n && !match_any(&o->comms, s->comm ? s->comm : ""))
		return false;
	if (!o->pids.n && !o->tids.n)
		return true;
	const struct sp_spool_thread *t = sp_spool_thread(v->spool, s->thread);
	return has_id(&o->pids, t->pid) && has_id(&o->tids, t->tid);
}

static bool frame_shown(const struct view *v, const struct view_frame *f)
{
	const struct view_options *o = v->opt;
	if (o->user_only && f->f.mode == SP_FRAME_KERNEL)
		return false;
	if (o->kernel_only && f->f.mode != SP_FRAME_KERNEL)
		return false;
	const struct view_func *func = &v->funcs[v->levels[f->level_at + f->n_levels - 1].func];
	return !(o->hide_runtime && func->flags & SP_FLAG_HIDDEN_DEFAULT);
}

/* Which frames satisfy --module, and which --function: bits 1 and 2. */
static uint8_t frame_wanted(const struct view *v, const struct view_frame *f)
{
	uint8_t bits = 0;
	for (uint32_t i = 0; i < f->n_levels; i++) {
		const struct view_func *func = view_level_func(v, f->level_at + i);
		bits |= match_any(&v->opt->functions, func->name) ? 2 : 0;
		bits |= match_any(&v->opt->modules, func->module) ? 1 : 0;
	}
	const struct sp_spool_module *m = view_module(v, &f->f);
	if (m && match_any(&v->opt->modules, m->path))
		bits |= 1;
	return bits;
}

/* Frames that are not shown leave their stacks; false when the stack is not wanted. */
static bool shape_stack(struct view *v, struct view_stack *s, const uint8_t *wanted)
{
	const struct view_options *o = v->opt;
	uint8_t need = (uint8_t)((o->modules.n ? 1 : 0) | (o->functions.n ? 2 : 0)), have = 0;
	uint32_t n = 0, before = s->n;
	size_t levels = 0;
	for (uint32_t i = 0; i < before; i++) {
		uint32_t id = v->stack_frames[s->at + i];
		have |= wanted ? wanted[id] : 0;
		if (!frame_shown(v, &v->frames[id]))
			continue;
		v->stack_frames[s->at + n++] = id;
		levels += v->frames[id].n_levels;
	}
	s->n = n;
	if (levels > v->max_levels)
		v->max_levels = levels;
	/* Only-kernel samples under --user (and the like) are left out, as are stacks without what
	 * was asked for. A sample that never had a stack stays. */
	return (have & need) == need && (n || !before);
}

int view_shape(struct view *v, struct sp_err *err)
{
	struct sp_buf wanted = {0}, keep = {0};
	bool by_name = v->opt->modules.n || v->opt->functions.n;
	if (by_name)
		for (size_t i = 0; i < v->n_frames; i++)
			sp_buf_u8(&wanted, frame_wanted(v, &v->frames[i]));
	v->max_levels = 1;
	if (!wanted.failed)
		for (size_t i = 0; i < v->n_stacks; i++)
			sp_buf_u8(&keep, shape_stack(v, &v->stacks[i], wanted.data));
	bool failed = wanted.failed || keep.failed;
	for (size_t i = 0; !failed && i < v->n_rows; i++) {
		struct view_row *r = &v->rows[i];
		if (!keep.data[r->stack])
			r->n = r->weight = 0;
		v->n_samples += r->n;
		v->weight += r->weight;
	}
	sp_buf_deinit(&wanted);
	sp_buf_deinit(&keep);
	uint32_t first = 0, second;
	if (view_next_event(v, &first)) {
		second = first + 1;
		v->apart = view_next_event(v, &second);
	}
	view_choose_weight(v);
	if (v->opt->weight == WEIGHT_TIME && v->n_samples && !view_weight_is_time(v))
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot count time: not all of these events are times; --event "
				  "picks those that are, --weight=weight counts all");
	return failed ? sp_err_nomem(err) : 0;
}
