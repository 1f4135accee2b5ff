/* Symbolizers of the caller's own: which modules each of them sees, and what it answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sym/resolver_impl.h"

#define MAX_LEVELS 1024 /* of inlining that an answer may have */

/* Finds the file with the recorded identity, for its path and its segments. */
static int seek_file(struct sp_resolver *r, struct res_file *f, struct sp_err *err)
{
	const struct sp_spool_module *m = res_module(r, f->module);
	if (f->sought)
		return 0;
	f->sought = true;
	if (!m->path || !*m->path)
		return 0;
	struct sp_find_options fo = res_find_options(r);
	struct sp_file_query q = res_file_query(r, m);
	struct sp_elf e;
	char why[200];
	int rc = sp_find_elf(&e, &fo, &q, why, err);
	if (rc != SP_FOUND && rc != SP_FOUND_BY_PATH)
		return rc < 0 ? rc : 0;
	/* An image in an archive has offsets of its own, which a path does not tell. */
	if (e.path && sp_elf_image_foff(&e) == 0) {
		f->found = sp_strpool_add(&r->names, e.path, strlen(e.path));
		f->layout = (struct sp_elf){.segments = e.segments, .n_segments = e.n_segments};
		e.segments = NULL;
		e.n_segments = 0;
		rc = f->found ? 0 : sp_err_nomem(err);
	}
	sp_elf_close(&e);
	return rc < 0 ? rc : 0;
}

/* The base of a file by its segments: bias is what sp_elf_bias says of a mapping. */
static struct sp_image_base base_of(const struct sp_elf *e, uint64_t bias)
{
	uint64_t svma = UINT64_MAX;
	for (size_t i = 0; i < e->n_segments; i++)
		if (e->segments[i].type == PT_LOAD && e->segments[i].svma < svma)
			svma = e->segments[i].svma;
	svma = svma == UINT64_MAX ? 0 : svma;
	return (struct sp_image_base){.avma = svma + bias, .svma = svma};
}

int sp_image_base_of(const char *path, uint64_t start, uint64_t end, uint64_t file_offset,
		     struct sp_image_base *out, struct sp_err *err)
{
	struct sp_elf e;
	uint64_t bias;
	int rc = end > start ? sp_elf_open(&e, path, err)
			     : sp_err_set(err, SP_ERR_INVALID, 0, "an empty mapping of %s", path);
	if (rc < 0)
		return rc;
	rc = sp_elf_bias(&e, start, end - start, file_offset, &bias);
	if (rc)
		*out = base_of(&e, bias);
	sp_elf_close(&e);
	return rc;
}

static bool overlaps(const struct sp_resolver *r, const struct res_group *g,
		     const struct sp_spool_module *m)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct sp_spool_module *x = res_module(r, g->modules[i]);
		if (x->start < m->end && m->start < x->end)
			return true;
	}
	return false;
}

/* The first group of its process that has room for the module, or a new one. */
static bool add_module(struct sp_resolver *r, uint32_t id)
{
	const struct sp_spool_module *m = res_module(r, id);
	size_t at = 0;
	while (at < r->n_groups && (r->groups[at].pid != m->pid || overlaps(r, &r->groups[at], m)))
		at++;
	if (at == r->n_groups) {
		struct res_group *g = SP_PUSH(&r->groups, &r->n_groups, &r->groups_cap);
		if (!g)
			return false;
		g->pid = m->pid;
	}
	struct res_group *g = &r->groups[at];
	uint32_t *slot = SP_PUSH(&g->modules, &g->n, &g->cap);
	if (!slot)
		return false;
	*slot = id;
	g->is_new = true;
	r->group_of[id] = (uint32_t)at;
	return true;
}

static int add_modules(struct sp_resolver *r, struct sp_err *err)
{
	size_t n = res_n_modules(r);
	if (r->n_group_of == n)
		return 0;
	if (!sp_grow(&r->group_of, &r->group_of_cap, n, sizeof *r->group_of))
		return sp_err_nomem(err);
	for (; r->n_group_of < n; r->n_group_of++) {
		const struct sp_spool_module *m = res_module(r, (uint32_t)r->n_group_of);
		r->group_of[r->n_group_of] = SP_NONE;
		if (!m->is_kernel && !res_is_code_memory(m) &&
		    !add_module(r, (uint32_t)r->n_group_of))
			return sp_err_nomem(err);
	}
	return 0;
}

static int describe(struct sp_resolver *r, uint32_t id, struct sp_native_module *out,
		    struct sp_err *err)
{
	const struct sp_spool_module *m = res_module(r, id);
	struct res_file *f = &r->files[r->file_of[id]];
	int rc = seek_file(r, f, err);
	uint64_t bias;
	*out = (struct sp_native_module){.id = r->spool ? id : r->list.ids[id],
					 .path = m->path,
					 .found = f->found,
					 .start = m->start,
					 .end = m->end,
					 .file_offset = m->file_offset,
					 .build_id = m->build_id,
					 .build_id_len = m->build_id_len};
	if (rc >= 0 && f->found &&
	    sp_elf_bias(&f->layout, m->start, m->end - m->start, m->file_offset, &bias)) {
		out->has_image_base = true;
		out->image_base = base_of(&f->layout, bias);
	}
	return rc;
}

/* Makes the group's symbolizer when it is asked first, and tells it of modules that are new. */
static int prepare(struct sp_resolver *r, struct res_group *g, struct sp_err *err)
{
	if (!g->is_new)
		return 0;
	g->is_new = false;
	const struct sp_native_factory *factory = r->options.native;
	int rc = g->symbolizer ? 0 : factory->make(factory->ctx, g->pid, &g->symbolizer, err);
	struct sp_native_module *modules = calloc(g->n + 1, sizeof *modules);
	if (!modules)
		return sp_err_nomem(err);
	for (size_t i = 0; rc >= 0 && i < g->n; i++)
		rc = describe(r, g->modules[i], &modules[i], err);
	if (rc >= 0 && g->symbolizer)
		rc = g->symbolizer->set_modules(g->symbolizer, modules, g->n, err);
	free(modules);
	return rc == SP_ERR_NOMEM ? rc : 0;
}

/* Copies the answer: its strings are the symbolizer's. */
static int take(struct sp_resolver *r, const struct sp_symbols *s, struct res_ask *a,
		struct sp_err *err)
{
	size_t n = s->n < MAX_LEVELS ? s->n : MAX_LEVELS, skip = s->n - n;
	struct sp_name *levels =
		sp_arena_take(&r->memory, n * sizeof *levels, _Alignof(struct sp_name));
	if (!levels)
		return sp_err_nomem(err);
	for (size_t i = 0; i < n; i++) {
		const struct sp_symbol_level *from = &s->levels[skip + i];
		levels[i] = (struct sp_name){.line = from->line, .inlined = i + 1 < n};
		if (from->name)
			levels[i].function =
				sp_strpool_add(&r->names, from->name, strlen(from->name));
		if (from->file)
			levels[i].file = sp_strpool_add(&r->names, from->file, strlen(from->file));
		if ((from->name && !levels[i].function) || (from->file && !levels[i].file))
			return sp_err_nomem(err);
	}
	a->levels = levels;
	a->n_levels = (uint32_t)n;
	a->func_offset = s->function_offset;
	return 0;
}

int res_native_ask(struct sp_resolver *r, struct res_ask *a, struct sp_err *err)
{
	if (!r->options.native || a->file == UINT32_MAX)
		return 0;
	int rc = add_modules(r, err);
	if (rc < 0)
		return rc;
	a->is_done = !r->options.native->fall_back;
	uint32_t group = r->group_of[a->frame.module];
	struct sp_symbols symbols = {0};
	if (group == SP_NONE)
		return 0;
	struct res_group *g = &r->groups[group];
	rc = prepare(r, g, err);
	if (rc < 0 || !g->symbolizer)
		return rc;
	rc = g->symbolizer->symbolize_one(g->symbolizer, a->frame.abs_ip, &symbols, err);
	if (rc <= 0 || !symbols.n || !symbols.levels)
		return rc == SP_ERR_NOMEM ? rc : 0;
	a->is_done = true;
	return take(r, &symbols, a, err);
}

void res_native_deinit(struct sp_resolver *r)
{
	for (size_t i = 0; i < r->n_groups; i++) {
		if (r->groups[i].symbolizer)
			r->groups[i].symbolizer->free(r->groups[i].symbolizer);
		free(r->groups[i].modules);
	}
	free(r->groups);
	free(r->group_of);
	for (size_t i = 0; i < r->n_files; i++)
		sp_elf_close(&r->files[i].layout);
}
