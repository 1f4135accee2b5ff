/* Names for the frames of a view. */
#include <stdlib.h>

#include "view.h"

const char *view_base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

/* The key holds the strings, each with its end, and the kind. */
static bool make_key(struct sp_buf *b, const struct view_func *f)
{
	const char *file = f->file ? f->file : "";
	b->len = 0;
	sp_buf_add(b, f->name, strlen(f->name) + 1);
	sp_buf_add(b, f->module, strlen(f->module) + 1);
	sp_buf_add(b, file, strlen(file) + 1);
	sp_buf_u8(b, (uint8_t)f->kind);
	return !b->failed;
}

static uint32_t *recent_slot(struct view *v, const char *name)
{
	return &v->recent_funcs[sp_mix64((uintptr_t)name) % VIEW_RECENT];
}

/* Most frames of a function come with the very texts of the last one. */
static uint32_t recent_func(struct view *v, const struct view_func *f)
{
	uint32_t id = *recent_slot(v, f->name);
	const struct view_func *g = id < v->n_funcs ? &v->funcs[id] : NULL;
	bool same = g && g->name == f->name && g->file == f->file && g->module == f->module &&
		    g->kind == f->kind;
	return same ? id : SP_NOT_FOUND;
}

uint32_t view_func_add(struct view *v, const struct view_func *f)
{
	bool is_new = false;
	uint32_t id = recent_func(v, f);
	if (id != SP_NOT_FOUND)
		return id;
	if (make_key(&v->func_key, f))
		id = sp_intern_add(&v->func_keys, v->func_key.data, v->func_key.len, &is_new);
	if (id != SP_NOT_FOUND && is_new) {
		struct view_func *added = SP_PUSH(&v->funcs, &v->n_funcs, &v->funcs_cap);
		if (added)
			*added = *f;
		else
			id = SP_NOT_FOUND;
		if (added && (f->kind == VIEW_GROUP || f->by_line) &&
		    !(added->name = strdup(f->name))) {
			v->n_funcs--;
			id = SP_NOT_FOUND;
		}
	}
	if (id != SP_NOT_FOUND)
		*recent_slot(v, f->name) = id;
	return id;
}

/* SP_NOT_FOUND when memory ends. */
static uint32_t add_place(struct view *v, const char *file, uint32_t line)
{
	if (!file && !line && v->n_places)
		return 0;
	uint32_t name =
		sp_intern_add(&v->file_names, file ? file : "", file ? strlen(file) : 0, NULL);
	uint64_t key = (uint64_t)name << 32 | line;
	uint32_t id = name == SP_NOT_FOUND ? name : sp_map64_get(&v->place_ids, key);
	if (name == SP_NOT_FOUND || id != SP_NOT_FOUND)
		return id;
	struct view_place *p = SP_PUSH(&v->places, &v->n_places, &v->places_cap);
	id = (uint32_t)v->n_places - 1;
	if (!p || !sp_map64_put(&v->place_ids, key, id))
		return SP_NOT_FOUND;
	*p = (struct view_place){file, line};
	return id;
}

static bool add_level(struct view *v, const struct view_func *f, const char *file, uint32_t line,
		      bool inlined)
{
	uint32_t func = view_func_add(v, f), place = add_place(v, file, line);
	if (func == SP_NOT_FOUND || place == SP_NOT_FOUND)
		return false;
	struct view_level *level = SP_PUSH(&v->levels, &v->n_levels, &v->levels_cap);
	if (!level)
		return false;
	*level = (struct view_level){func, place, inlined};
	return true;
}

static bool add_special(struct view *v, enum view_kind kind, const char *name)
{
	struct view_func f = {.name = name, .module = "", .kind = kind};
	v->special[kind] = (uint32_t)v->n_levels;
	return add_level(v, &f, NULL, 0, false);
}

static enum view_kind kind_of(const struct view_frame *frame, const struct sp_names *names)
{
	if (frame->f.mode == SP_FRAME_KERNEL)
		return VIEW_KERNEL;
	if (names->flags & SP_NAME_PYTHON)
		return VIEW_PYTHON;
	if (names->flags & SP_FLAG_JIT || names->origin == SP_ORIGIN_PERF_MAP)
		return VIEW_JIT;
	return names->origin == SP_ORIGIN_ADDRESS ? VIEW_ADDRESS : VIEW_NATIVE;
}

/* The files where functions begin, by module and the functions' first bytes: of the frames that are
 * there, the one nearest to the beginning tells. */
struct begins {
	struct sp_map64 ids;
	struct begin {
		uint64_t offset;
		const char *file;
	} * v; /* owned */
	size_t n, cap;
};

/* A key for the function of a frame; false when it is in no file. */
static bool begin_key(const struct view *v, const struct view_frame *f,
		      const struct sp_names *names, uint64_t *key)
{
	const struct sp_spool_module *m = view_module(v, &f->f);
	if (!m || names->origin != SP_ORIGIN_ELF || names->function_offset > f->f.rel_ip)
		return false;
	*key = sp_mix64(f->f.rel_ip - names->function_offset) ^ sp_mix64(m->file + UINT64_C(1));
	return true;
}

static bool add_begin(struct begins *b, const struct view *v, const struct view_frame *f,
		      const struct sp_names *names)
{
	const char *file = names->levels[names->n_levels - 1].file;
	uint64_t key, offset = names->function_offset;
	if (!file || !begin_key(v, f, names, &key))
		return true;
	uint32_t id = sp_map64_get(&b->ids, key);
	if (id == SP_NOT_FOUND) {
		struct begin *slot = SP_PUSH(&b->v, &b->n, &b->cap);
		if (!slot || !sp_map64_put(&b->ids, key, (uint32_t)b->n - 1))
			return false;
		*slot = (struct begin){offset, file};
	} else if (offset < b->v[id].offset) {
		b->v[id] = (struct begin){offset, file};
	}
	return true;
}

static bool add_names(struct view *v, struct view_frame *frame, const struct sp_names *names,
		      const struct begins *begins)
{
	uint64_t key;
	frame->level_at = (uint32_t)v->n_levels;
	frame->n_levels = names->n_levels;
	frame->function_offset = names->function_offset;
	frame->origin = names->origin;
	for (uint32_t i = 0; i < names->n_levels; i++) {
		const struct sp_name *l = &names->levels[i];
		struct view_func f = {.name = l->function,
				      .file = l->file,
				      .module = names->module ? names->module : "",
				      .kind = kind_of(frame, names),
				      .flags = names->flags};
		bool last = i + 1 == names->n_levels;
		if (last && l->file && begin_key(v, frame, names, &key))
			f.file = begins->v[sp_map64_get(&begins->ids, key)].file;
		if (!add_level(v, &f, l->file, l->line, l->inlined && !last))
			return false;
	}
	return true;
}

static bool add_all_names(struct view *v)
{
	struct begins begins = {0};
	const struct sp_names **all = malloc((v->n_frames + 1) * sizeof *all);
	bool ok = all != NULL;
	for (size_t i = 0; ok && i < v->n_frames; i++) {
		const struct view_frame *f = &v->frames[i];
		if (f->f.mode == SP_FRAME_TRUNCATED)
			continue;
		all[i] = sp_resolver_get(v->resolver, f->pid, &f->f, f->time_ns);
		ok = all[i] && add_begin(&begins, v, f, all[i]);
	}
	for (size_t i = 0; ok && i < v->n_frames; i++) {
		struct view_frame *f = &v->frames[i];
		if (f->f.mode == SP_FRAME_TRUNCATED) {
			f->level_at = v->special[VIEW_TRUNCATED];
			f->n_levels = 1;
			continue;
		}
		ok = add_names(v, f, all[i], &begins);
	}
	free(all);
	sp_map64_deinit(&begins.ids);
	free(begins.v);
	return ok;
}

int view_resolve(struct view *v, struct sp_err *err)
{
	int r = 0;
	for (size_t i = 0; r >= 0 && i < v->n_frames; i++)
		if (v->frames[i].f.mode != SP_FRAME_TRUNCATED)
			r = sp_resolver_add_at(v->resolver, v->frames[i].pid, &v->frames[i].f,
					       v->frames[i].time_ns, err);
	if (r >= 0)
		r = sp_resolver_run(v->resolver, err);
	if (r < 0)
		return r;
	bool ok = add_place(v, NULL, 0) == 0 && add_special(v, VIEW_TRUNCATED, "[truncated]") &&
		  add_special(v, VIEW_NO_STACK, "[no stack]") && add_all_names(v);
	return ok ? 0 : sp_err_nomem(err);
}

int view_by_line(struct view *v, struct sp_err *err)
{
	struct sp_buf name = {0};
	bool ok = true;
	for (size_t i = 0; ok && i < v->n_levels; i++) {
		struct view_level *l = &v->levels[i];
		const struct view_place *p = &v->places[l->place];
		if (!p->line)
			continue;
		struct view_func f = v->funcs[l->func];
		name.len = 0;
		sp_buf_str(&name, *f.name ? f.name : "?");
		if (p->file && (!f.file || strcmp(p->file, f.file) != 0))
			sp_buf_printf(&name, ":%s", view_base(p->file));
		sp_buf_printf(&name, ":%u", p->line);
		sp_buf_u8(&name, 0);
		f.name = (const char *)name.data;
		f.by_line = true;
		uint32_t id = name.failed ? SP_NOT_FOUND : view_func_add(v, &f);
		ok = id != SP_NOT_FOUND;
		l->func = id;
	}
	sp_buf_deinit(&name);
	return ok ? 0 : sp_err_nomem(err);
}

size_t view_stack_levels(const struct view *v, uint32_t stack, uint32_t *out)
{
	const struct view_stack *s = &v->stacks[stack];
	size_t n = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		const struct view_frame *f = &v->frames[v->stack_frames[s->at + i]];
		for (uint32_t j = 0; j < f->n_levels; j++)
			out[n++] = f->level_at + j;
	}
	if (!n)
		out[n++] = v->special[VIEW_NO_STACK];
	return n;
}

bool view_weight_is_time(const struct view *v)
{
	size_t n = sp_spool_n_events(v->spool), shown = 0;
	for (size_t i = 0; i < n; i++) {
		if (!v->event_shown[i])
			continue;
		shown++;
		if (!sp_spool_event(v->spool, (uint32_t)i)->weight_is_time)
			return false;
	}
	return shown > 0;
}
