/* firefox: a thread's tables, of stacks, frames, functions, libraries and strings. */
#include "firefox.h"

#include <stdlib.h>

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

void firefox_tables_deinit(struct firefox_tables *t)
{
	sp_intern_deinit(&t->strings);
	sp_map64_deinit(&t->func_ids);
	sp_map64_deinit(&t->resource_ids);
	free(t->funcs);
	free(t->frames);
	free(t->stacks);
	free(t->libs);
}

static uint32_t put(struct firefox *w, struct sp_map64 *m, uint64_t key, size_t id)
{
	if (!sp_map64_put(m, key, (uint32_t)id))
		w->failed = true;
	return (uint32_t)id;
}

uint32_t firefox_string(struct firefox *w, struct firefox_tables *t, const char *s)
{
	uint32_t id = sp_intern_add(&t->strings, s, strlen(s), NULL);
	w->failed |= id == SP_NOT_FOUND;
	return id;
}

static uint32_t lib_of(struct firefox *w, const struct sp_spool_module *m)
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

static uint32_t resource_of(struct firefox *w, struct firefox_tables *t, const struct view_frame *f)
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

static uint32_t func_of(struct firefox *w, struct firefox_tables *t, const struct view_frame *f,
			uint32_t func)
{
	const struct view_func *vf = &w->v->funcs[func];
	uint32_t id = sp_map64_get(&t->func_ids, func);
	if (id != SP_NOT_FOUND)
		return id;
	struct firefox_func *slot = SP_PUSH(&t->funcs, &t->n_funcs, &t->funcs_cap);
	if (!slot) {
		w->failed = true;
		return 0;
	}
	*slot = (struct firefox_func){.name = firefox_string(w, t, *vf->name ? vf->name : "?"),
				      .file = vf->file ? firefox_string(w, t, vf->file) : SP_NONE,
				      .resource = resource_of(w, t, f),
				      .func = func};
	return put(w, &t->func_ids, func, t->n_funcs - 1);
}

/* A frame per level of inlining; level is unique to its frame of the view. */
static uint32_t frame_of(struct firefox *w, struct firefox_tables *t,
			 const struct firefox_node *node)
{
	static const struct view_frame none = {.n_levels = 1, .f = {.mode = SP_FRAME_TRUNCATED}};
	const struct view_frame *f = node->frame == SP_NONE ? &none : &w->v->frames[node->frame];
	uint32_t level = node->level;
	struct firefox_known *known = &w->known[level];
	if (known->thread == w->thread)
		return known->id;
	uint32_t func = func_of(w, t, f, w->v->levels[level].func);
	struct firefox_frame *slot = SP_PUSH(&t->frames, &t->n_frames, &t->frames_cap);
	if (!slot) {
		w->failed = true;
		return 0;
	}
	*slot = (struct firefox_frame){
		.func = func,
		.level = level,
		.depth = f == &none ? 0 : f->n_levels - 1 - (level - f->level_at),
		.offset = f->f.rel_ip,
		.has_offset = t->funcs[func].resource != SP_NONE};
	*known = (struct firefox_known){w->thread, (uint32_t)t->n_frames - 1};
	return known->id;
}

static uint32_t push_node(struct firefox *w, struct sp_map64 *edges, uint32_t parent,
			  uint32_t frame, uint32_t level)
{
	uint64_t key = (uint64_t)parent << 32 | level;
	uint32_t id = sp_map64_get(edges, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct firefox_node *node = SP_PUSH(&w->nodes, &w->n_nodes, &w->nodes_cap);
	if (!node) {
		w->failed = true;
		return SP_NONE;
	}
	*node = (struct firefox_node){.parent = parent, .frame = frame, .level = level};
	return put(w, edges, key, w->n_nodes - 1);
}

void firefox_make_nodes(struct firefox *w)
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

uint32_t firefox_stack(struct firefox *w, struct firefox_tables *t, uint32_t stack)
{
	struct firefox_known *known = &w->known_stacks[stack];
	uint32_t at = w->leaf[stack], prefix = SP_NONE;
	size_t n = 0;
	if (known->thread == w->thread)
		return known->id;
	for (; at != SP_NONE && w->nodes[at].thread != w->thread; at = w->nodes[at].parent)
		w->path[n++] = at;
	if (at != SP_NONE)
		prefix = w->nodes[at].id;
	while (n--) {
		struct firefox_node *node = &w->nodes[w->path[n]];
		struct firefox_stack *slot = SP_PUSH(&t->stacks, &t->n_stacks, &t->stacks_cap);
		if (!slot) {
			w->failed = true;
			return 0;
		}
		*slot = (struct firefox_stack){prefix, frame_of(w, t, node)};
		node->thread = w->thread;
		node->id = prefix = (uint32_t)t->n_stacks - 1;
	}
	*known = (struct firefox_known){w->thread, prefix};
	return prefix;
}

void firefox_column(struct out *o, const char *name)
{
	out_str(o, ",\"");
	out_str(o, name);
	out_str(o, "\":[");
}

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

static void write_frames(const struct view *v, struct out *o, const struct firefox_tables *t)
{
	const struct firefox_frame *f = t->frames;
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

static void write_funcs(struct out *o, const struct firefox_tables *t)
{
	const struct firefox_func *f = t->funcs;
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

void firefox_write_tables(struct firefox *w, struct firefox_tables *t)
{
	const struct view *v = w->v;
	struct out *o = w->o;
	const struct firefox_stack *s = t->stacks;
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
	       out_u64(o, firefox_string(w, t, view_base(m->path))));
	COLUMN(o, "host", n, out_str(o, "null"));
	COLUMN(o, "type", n, out_char(o, '1'));
	out_str(o, "},\n\"nativeSymbols\":{\"length\":0,\"address\":[],\"functionSize\":[],"
		   "\"libIndex\":[],\"name\":[]}");
}

void firefox_write_strings(struct out *o, const struct firefox_tables *t)
{
	out_str(o, ",\n\"stringArray\":[");
	for (size_t i = 0; i < t->strings.n; i++) {
		out_str(o, i ? ",\n" : "");
		out_json(o, sp_intern_get(&t->strings, (uint32_t)i, NULL));
	}
	out_char(o, ']');
}
