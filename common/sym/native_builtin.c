/* The built-in naming of files, in the form that external symbolizers have. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "elf/elf_file.h"
#include "sym/resolver_impl.h"
#include "sym/symfile.h"

struct module {
	uint64_t start, end, file_offset;
	char *path; /* owned: where it is opened */
	struct sp_build_id build_id;
	struct sp_symfile *symfile; /* owned */
	bool tried, has_bias;
	uint64_t bias;
};

struct builtin {
	struct sp_native_symbolizer base;
	const struct sp_resolver_options *options; /* borrowed; or NULL */
	struct module *modules;                    /* owned; by start */
	size_t n;
	struct sp_symbol_level *levels; /* owned: the last answer */
	size_t levels_cap;
};

static void free_modules(struct module *modules, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		sp_symfile_close(modules[i].symfile);
		free(modules[i].path);
	}
	free(modules);
}

static int by_start(const void *a, const void *b)
{
	const struct module *x = a, *y = b;
	return x->start < y->start ? -1 : x->start > y->start;
}

static bool fill(struct module *m, const struct sp_native_module *from)
{
	*m = (struct module){.start = from->start,
			     .end = from->end,
			     .file_offset = from->file_offset,
			     .has_bias = from->has_image_base,
			     .bias = from->image_base.avma - from->image_base.svma};
	m->path = strdup(from->found ? from->found : from->path);
	if (from->build_id && from->build_id_len <= SP_BUILD_ID_MAX) {
		m->build_id.len = from->build_id_len;
		memcpy(m->build_id.bytes, from->build_id, from->build_id_len);
	}
	return m->path != NULL;
}

/* What is open stays open. */
static void keep_open(struct module *m, struct module *old, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!old[i].symfile || old[i].start != m->start || old[i].end != m->end ||
		    old[i].file_offset != m->file_offset || strcmp(old[i].path, m->path) != 0)
			continue;
		m->symfile = old[i].symfile;
		m->tried = true;
		m->has_bias = old[i].has_bias;
		m->bias = old[i].bias;
		old[i].symfile = NULL;
		return;
	}
}

static int set_modules(struct sp_native_symbolizer *self, const struct sp_native_module *modules,
		       size_t n, struct sp_err *err)
{
	struct builtin *b = (struct builtin *)self;
	struct module *v = calloc(n + 1, sizeof *v);
	bool ok = v != NULL;
	size_t filled = 0;
	while (ok && filled < n) {
		ok = fill(&v[filled], &modules[filled]);
		filled++;
	}
	if (!ok) {
		if (v)
			free_modules(v, filled);
		return sp_err_nomem(err);
	}
	for (size_t i = 0; i < n; i++)
		keep_open(&v[i], b->modules, b->n);
	free_modules(b->modules, b->n);
	qsort(v, n, sizeof *v, by_start);
	b->modules = v;
	b->n = n;
	return 0;
}

static struct module *find(struct builtin *b, uint64_t avma)
{
	size_t lo = 0, hi = b->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (b->modules[mid].start <= avma)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && avma < b->modules[lo - 1].end ? &b->modules[lo - 1] : NULL;
}

/* A file of another build is not used. */
static void open_module(const struct builtin *b, struct module *m)
{
	const struct sp_resolver_options *o = b->options;
	struct sp_symfile_options options = {0};
	struct sp_err why;
	if (o)
		options = (struct sp_symfile_options){.debug = res_debug_dirs(o),
						      .no_inline = o->no_inline,
						      .no_demangle = o->no_demangle,
						      .no_lines = o->no_lines};
	m->tried = true;
	if (sp_symfile_open(&m->symfile, m->path, &options, &why) < 0)
		return;
	const struct sp_elf *e = sp_symfile_elf(m->symfile);
	bool other = m->build_id.len && !sp_build_id_equal(&m->build_id, &e->build_id);
	if (!m->has_bias)
		m->has_bias = sp_elf_bias(e, m->start, m->end - m->start, m->file_offset, &m->bias);
	if (other || !m->has_bias) {
		sp_symfile_close(m->symfile);
		m->symfile = NULL;
	}
}

static int symbolize_one(struct sp_native_symbolizer *self, uint64_t avma, struct sp_symbols *out,
			 struct sp_err *err)
{
	struct builtin *b = (struct builtin *)self;
	struct module *m = find(b, avma);
	const struct sp_name *levels;
	uint64_t start, svma;
	if (m && !m->tried)
		open_module(b, m);
	if (!m || !m->symfile)
		return 0;
	svma = avma - m->bias;
	int n = sp_symfile_lookup(m->symfile, svma, &levels, &start, err);
	if (n <= 0)
		return n;
	if (!sp_grow(&b->levels, &b->levels_cap, (size_t)n, sizeof *b->levels))
		return sp_err_nomem(err);
	for (int i = 0; i < n; i++)
		b->levels[i] = (struct sp_symbol_level){levels[i].function, levels[i].file,
							levels[i].line};
	*out = (struct sp_symbols){b->levels, (size_t)n, svma - start};
	return 1;
}

static void builtin_free(struct sp_native_symbolizer *self)
{
	struct builtin *b = (struct builtin *)self;
	free_modules(b->modules, b->n);
	free(b->levels);
	free(b);
}

static int make(void *ctx, int32_t pid, struct sp_native_symbolizer **out, struct sp_err *err)
{
	struct builtin *b = calloc(1, sizeof *b);
	(void)pid;
	if (!b)
		return sp_err_nomem(err);
	b->base = (struct sp_native_symbolizer){set_modules, symbolize_one, builtin_free};
	b->options = ctx;
	*out = &b->base;
	return 0;
}

struct sp_native_factory sp_native_factory_builtin(const struct sp_resolver_options *options)
{
	return (struct sp_native_factory){.make = make,
					  .ctx = (void *)(uintptr_t)options, /* only read */
					  .fall_back = false};
}
