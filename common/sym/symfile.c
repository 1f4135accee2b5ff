#include "elf/minidebug.h"
#include "elf/pclntab.h"
#include "sym/symfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "sym/demangle.h"
#include "sym/dwarf.h"
#include "sym/symfile_memo.h"
#include "sym/symtab.h"

#define GO_LEVELS_MAX 64u

struct sp_symfile {
	struct sp_elf elf;
	char *path;                        /* owned */
	struct sp_symfile_options options; /* its pointers are borrowed */
	struct sp_elf debug;
	bool has_debug;
	struct sp_elf mini;
	bool has_mini;
	struct sp_symtab symtab;
	bool symbols_read, symbols_problem;
	struct sp_symfile_memo memo;
	struct sp_dwarf *dwarf; /* owned; NULL when there is none */
	struct sp_pclntab go;   /* of a Go program */
	bool has_go;
	struct sp_dwarf_level *go_levels; /* owned; [GO_LEVELS_MAX], of the last look-up */
	struct sp_map64 shown;            /* address of a raw name: index in names */
	const char **names;               /* owned array; strings in pool */
	size_t n_names, names_cap;
	struct sp_strpool pool;
	struct sp_buf text;
	struct sp_arena answers;
	char problem[200];
};

static bool has_bytes(const struct sp_elf *e, const char *name)
{
	const struct sp_section *s = sp_elf_section(e, name);
	return s && s->type != SHT_NOBITS && s->size;
}

static bool has_dwarf(const struct sp_elf *e)
{
	return has_bytes(e, ".debug_info") || has_bytes(e, ".zdebug_info");
}

static int open_debug_file(struct sp_symfile *s, struct sp_err *err)
{
	if (has_dwarf(&s->elf))
		return 0;
	int rc = sp_debug_file_find(&s->debug, &s->elf, s->path, &s->options.debug, s->problem, err);
	s->has_debug = rc > 0;
	return rc < 0 ? rc : 0;
}

/* Not before they are needed: a cache may have all the answers, and what will be asked is not known
 * at open. */
static int read_symbols(struct sp_symfile *s, struct sp_err *err)
{
	if (s->symbols_read)
		return 0;
	s->symbols_read = true;
	sp_symtab_add(&s->symtab, &s->elf);
	if (s->has_debug)
		sp_symtab_add(&s->symtab, &s->debug);
	if (!sp_elf_section(&s->elf, ".symtab")) {
		struct sp_err why;
		int rc = sp_minidebug_open(&s->mini, &s->elf, &why);
		s->has_mini = rc > 0;
		s->symbols_problem = rc < 0;
		if (rc < 0 && !s->problem[0])
			snprintf(s->problem, sizeof s->problem, "%.150s", why.msg);
		if (s->has_mini)
			sp_symtab_add(&s->symtab, &s->mini);
	}
	s->has_go = sp_pclntab_open(&s->go, &s->elf);
	int rc = sp_symtab_finish(&s->symtab, &s->elf, err);
	if (rc >= 0 && !s->problem[0] && !s->dwarf && !s->has_go && sp_symtab_is_empty(&s->symtab))
		snprintf(s->problem, sizeof s->problem, "no symbols");
	return rc;
}

int sp_symfile_expect(struct sp_symfile *s, const uint64_t *svmas, size_t n, struct sp_err *err)
{
	return s->symbols_read ? 0 : sp_symtab_expect(&s->symtab, svmas, n, err);
}

static int open_dwarf(struct sp_symfile *s, struct sp_err *err)
{
	const struct sp_elf *from = s->has_debug ? &s->debug : &s->elf;
	struct sp_dwarf_options o = {
		.path = s->has_debug ? s->debug.path : s->path,
		.dirs = s->options.debug,
		.code = &s->elf,
		.no_inline = s->options.no_inline,
		.no_lines = s->options.no_lines,
	};
	int rc = sp_dwarf_open(&s->dwarf, from, &o, err);
	return rc < 0 ? rc : 0;
}

/* Answers with lines serve who asks for none: then what is new is asked with them too, and kept. */
static void open_memo(struct sp_symfile *s)
{
	const struct sp_elf *debug = s->has_debug ? &s->debug : NULL;
	uint32_t options = s->options.no_inline | s->options.no_demangle << 1;
	sp_symfile_memo_open(&s->memo, s->options.cache, &s->elf, debug, options);
	if (s->memo.has_memo)
		s->options.no_lines = false;
	else if (s->options.no_lines)
		sp_symfile_memo_open(&s->memo, s->options.cache, &s->elf, debug, options | 4);
}

/* s->elf is open. */
static int open_all(struct sp_symfile *s, struct sp_err *err)
{
	int rc = open_debug_file(s, err);
	if (rc >= 0) {
		open_memo(s);
		rc = open_dwarf(s, err);
	}
	return rc;
}

static struct sp_symfile *symfile_new(const char *path, const struct sp_symfile_options *options)
{
	struct sp_symfile *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	if (options)
		s->options = *options;
	s->path = strdup(path);
	if (!s->path) {
		free(s);
		return NULL;
	}
	return s;
}

static int symfile_finish(struct sp_symfile **out, struct sp_symfile *s, int rc, struct sp_err *err)
{
	if (rc < 0) {
		free(s->path);
		free(s);
		return rc;
	}
	rc = open_all(s, err);
	if (rc < 0) {
		sp_symfile_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

int sp_symfile_open(struct sp_symfile **out, const char *path,
		    const struct sp_symfile_options *options, struct sp_err *err)
{
	struct sp_symfile *s = symfile_new(path, options);
	if (!s)
		return sp_err_nomem(err);
	return symfile_finish(out, s, sp_elf_open(&s->elf, path, err), err);
}

int sp_symfile_open_image(struct sp_symfile **out, const void *data, size_t size, const char *name,
			  const struct sp_symfile_options *options, struct sp_err *err)
{
	struct sp_symfile *s = symfile_new(name, options);
	if (!s)
		return sp_err_nomem(err);
	return symfile_finish(out, s, sp_elf_init(&s->elf, data, size, err), err);
}

int sp_symfile_open_elf(struct sp_symfile **out, struct sp_elf *elf, const char *path,
			const struct sp_symfile_options *options, struct sp_err *err)
{
	struct sp_symfile *s = symfile_new(path, options);
	if (!s) {
		sp_elf_close(elf);
		return sp_err_nomem(err);
	}
	s->elf = *elf;
	return symfile_finish(out, s, 0, err);
}

bool sp_symfile_has_dwarf(const struct sp_symfile *s)
{
	return s->dwarf != NULL;
}

void sp_symfile_close(struct sp_symfile *s)
{
	if (!s)
		return;
	/* What the symbol tables could not tell may be told another time. */
	bool lasts = s->dwarf || s->has_go || !sp_symtab_is_empty(&s->symtab);
	if (s->symbols_read && !s->symbols_problem && lasts)
		sp_symfile_memo_save(&s->memo, &s->elf, s->has_debug ? &s->debug : NULL, s->dwarf);
	sp_symfile_memo_deinit(&s->memo);
	sp_dwarf_close(s->dwarf);
	free(s->go_levels);
	sp_symtab_deinit(&s->symtab);
	if (s->has_mini)
		sp_elf_close(&s->mini);
	if (s->has_debug)
		sp_elf_close(&s->debug);
	sp_elf_close(&s->elf);
	sp_map64_deinit(&s->shown);
	free(s->names);
	sp_strpool_deinit(&s->pool);
	sp_buf_deinit(&s->text);
	sp_arena_deinit(&s->answers);
	free(s->path);
	free(s);
}

const struct sp_elf *sp_symfile_elf(const struct sp_symfile *s)
{
	return &s->elf;
}

/* Raw names lie where they are in the files, so their addresses stand for them. */
static const char *show(struct sp_symfile *s, const char *raw)
{
	if (s->options.no_demangle || raw[0] != '_')
		return raw;
	uint32_t at = sp_map64_get(&s->shown, (uintptr_t)raw);
	if (at != SP_NOT_FOUND)
		return s->names[at];
	const char *text = raw;
	if (sp_demangle(raw, &s->text) > 0)
		text = sp_strpool_add(&s->pool, (const char *)s->text.data, s->text.len);
	const char **slot = text ? SP_PUSH(&s->names, &s->n_names, &s->names_cap) : NULL;
	if (!slot)
		return raw;
	*slot = text;
	sp_map64_put(&s->shown, (uintptr_t)raw, (uint32_t)s->n_names - 1);
	return text;
}

static const char *symbol_name(struct sp_symfile *s, const struct sp_symbol *symbol)
{
	const char *name = show(s, symbol->name);
	if (!symbol->is_plt)
		return name;
	s->text.len = 0;
	sp_buf_str(&s->text, name);
	sp_buf_str(&s->text, "@plt");
	return s->text.failed ? NULL
			      : sp_strpool_add(&s->pool, (const char *)s->text.data, s->text.len);
}

static const char *level_name(struct sp_symfile *s, const struct sp_dwarf_level *l)
{
	return l->linkage ? show(s, l->linkage) : l->name;
}

/* The outer function has the symbol table's name, which keeps the marks of the compiler's copies
 * (.cold, .part.0) and tells instances of a template apart. Of several, DWARF chooses; without
 * inlined calls the table's own order does, so that DWARF need not be read for a name. */
static const char *outer_name(struct sp_symfile *s, uint64_t svma, const struct sp_dwarf_level *l,
			      uint64_t *func_start)
{
	struct sp_symbol symbol;
	const char *prefer = !l || s->options.no_inline ? NULL : l->linkage ? l->linkage : l->name;
	if (sp_symtab_find(&s->symtab, svma, prefer, &symbol) ||
	    (!l && sp_symtab_find_trampoline(&s->symtab, svma, &symbol))) {
		*func_start = symbol.start;
		return symbol_name(s, &symbol);
	}
	return l ? level_name(s, l) : NULL;
}

static struct sp_name *new_levels(struct sp_symfile *s, size_t n)
{
	return sp_arena_take(&s->answers, n * sizeof(struct sp_name), _Alignof(struct sp_name));
}

/* A cached answer's levels, which the next question overwrites, kept. */
static int from_memo(struct sp_symfile *s, const struct sp_memo_answer *a,
		     const struct sp_name **out, uint64_t *func_start, struct sp_err *err)
{
	struct sp_name *levels = new_levels(s, a->n_levels);
	if (!levels)
		return sp_err_nomem(err);
	memcpy(levels, a->levels, a->n_levels * sizeof *levels);
	*out = levels;
	*func_start = a->func_start;
	return (int)a->n_levels;
}

/* Where DWARF has nothing to add to what is asked, neither inlined calls nor lines: a debug file of
 * several MB then stays packed. */
static bool is_told_by_symbols(struct sp_symfile *s, uint64_t svma, struct sp_symbol *symbol)
{
	return s->options.no_inline && s->options.no_lines &&
	       sp_symtab_find(&s->symtab, svma, NULL, symbol);
}

/* Go's linker writes the middle dots of some names (type:.eq…·7) as dots into symbol tables. */
static const char *go_name(struct sp_symfile *s, const char *name)
{
	static const char middle_dot[] = "\xc2\xb7";
	const char *dot = name ? strstr(name, middle_dot) : NULL;
	if (!dot)
		return name;
	s->text.len = 0;
	for (; dot; name = dot + strlen(middle_dot), dot = strstr(name, middle_dot)) {
		sp_buf_add(&s->text, name, (size_t)(dot - name));
		sp_buf_str(&s->text, ".");
	}
	sp_buf_str(&s->text, name);
	return s->text.failed ? NULL
			      : sp_strpool_add(&s->pool, (const char *)s->text.data, s->text.len);
}

/* What Go's own table knows: the levels of an address that DWARF does not have, as sp_dwarf_lookup
 * gives them. */
static int ask_go(struct sp_symfile *s, uint64_t svma, const struct sp_dwarf_level **out,
		  uint64_t *func_start, struct sp_err *err)
{
	struct sp_go_func f;
	struct sp_go_level levels[GO_LEVELS_MAX];
	if (!s->has_go || !sp_pclntab_find(&s->go, svma, &f))
		return 0;
	if (!s->go_levels) {
		s->go_levels = calloc(GO_LEVELS_MAX, sizeof *s->go_levels);
		if (!s->go_levels)
			return sp_err_nomem(err);
		if (!s->options.no_inline)
			sp_pclntab_find_inlined(&s->go);
	}
	unsigned max = s->options.no_inline ? 1 : GO_LEVELS_MAX;
	unsigned n = sp_pclntab_levels(&s->go, &f, svma, levels, max);
	if (!levels[n - 1].name)
		return 0;
	for (unsigned i = 0; i < n; i++)
		s->go_levels[i] = (struct sp_dwarf_level){
			.name = go_name(s, levels[i].name),
			.file = s->options.no_lines ? NULL : levels[i].file,
			.line = s->options.no_lines ? 0 : levels[i].line,
		};
	*out = s->go_levels;
	*func_start = f.begin;
	return (int)n;
}

static int ask(struct sp_symfile *s, uint64_t svma, const struct sp_name **out,
	       uint64_t *func_start, struct sp_err *err)
{
	const struct sp_dwarf_level *from = NULL;
	int n = 0;
	uint64_t start = svma;
	struct sp_symbol symbol;
	if (s->dwarf && is_told_by_symbols(s, svma, &symbol)) {
		struct sp_name *level = new_levels(s, 1);
		if (!level)
			return sp_err_nomem(err);
		*level = (struct sp_name){.function = symbol_name(s, &symbol)};
		*out = level;
		*func_start = symbol.start;
		return 1;
	}
	if (s->dwarf && (n = sp_dwarf_lookup(s->dwarf, svma, &from, &start, err)) < 0)
		return n;
	if (!n && (n = ask_go(s, svma, &from, &start, err)) < 0)
		return n;
	const char *outer = outer_name(s, svma, n ? &from[n - 1] : NULL, &start);
	if (!n && !outer)
		return 0;
	size_t n_levels = n ? (size_t)n : 1;
	struct sp_name *levels = new_levels(s, n_levels);
	if (!levels)
		return sp_err_nomem(err);
	for (size_t i = 0; i < n_levels; i++) {
		bool last = i + 1 == n_levels;
		levels[i] = (struct sp_name){
			.function = last ? outer : level_name(s, &from[i]),
			.file = n ? from[i].file : NULL,
			.line = n ? from[i].line : 0,
			.inlined = !last,
		};
	}
	*out = levels;
	*func_start = start;
	return (int)n_levels;
}

int sp_symfile_lookup(struct sp_symfile *s, uint64_t svma, const struct sp_name **out,
		      uint64_t *func_start, struct sp_err *err)
{
	struct sp_memo_answer known;
	if (sp_symfile_memo_find(&s->memo, svma, &known))
		return known.n_levels ? from_memo(s, &known, out, func_start, err) : 0;
	int rc = read_symbols(s, err);
	if (rc >= 0)
		rc = ask(s, svma, out, func_start, err);
	if (rc < 0)
		return rc;
	known = (struct sp_memo_answer){.svma = svma, .n_levels = (uint32_t)rc};
	if (rc) {
		known.levels = *out;
		known.func_start = *func_start;
	}
	sp_symfile_memo_add(&s->memo, &known);
	return rc;
}

const char *sp_symfile_problem(struct sp_symfile *s)
{
	struct sp_err why;
	if (!s->memo.has_memo) /* a memo is of a file with symbols */
		read_symbols(s, &why);
	if (s->problem[0])
		return s->problem;
	return s->dwarf ? sp_dwarf_problem(s->dwarf) : NULL;
}
