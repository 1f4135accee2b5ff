/* lines: source files with the samples of each line, where the files are at hand; without them, the
 * lines' numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "counts.h"
#include "elf/find.h"
#include "formats.h"
#include "head.h"
#include "term.h"

#define LINES_FILES 8         /* shown without --file or -n */
#define LINES_CONTEXT 3u      /* lines around one that counts */
#define SOURCE_MAX (8u << 20) /* bytes of a file that are looked at */

struct line {
	const char *file;
	uint32_t number;
	uint64_t self, total;
};

struct source {
	const char *file;
	size_t at, n; /* its lines, by number */
	uint64_t self, total;
};

struct table {
	struct line *lines; /* owned */
	size_t n_lines;
	struct source *sources; /* owned */
	size_t n_sources;
};

static int by_file(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int d = strcmp(x->file, y->file);
	return d ? d : x->number < y->number ? -1 : x->number > y->number;
}

static int by_self(const void *a, const void *b)
{
	const struct source *x = a, *y = b;
	if (x->self != y->self)
		return x->self > y->self ? -1 : 1;
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return strcmp(x->file, y->file);
}

/* The leaf's line counts as self; each line of the stack once as total. */
static bool count_places(struct table *t, const struct view *v)
{
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	size_t *seen = calloc(v->n_places + 1, sizeof *seen);
	t->lines = calloc(v->n_places + 1, sizeof *t->lines);
	bool ok = levels && seen && t->lines;
	for (size_t i = 0; ok && i < v->n_rows; i++) {
		const struct view_row *row = &v->rows[i];
		size_t n = row->n ? view_stack_levels(v, row->stack, levels) : 0;
		uint64_t value = view_value(v, row);
		for (size_t j = 0; j < n; j++) {
			uint32_t place = v->levels[levels[j]].place;
			if (j == 0)
				t->lines[place].self += value;
			if (seen[place] != i + 1)
				t->lines[place].total += value;
			seen[place] = i + 1;
		}
	}
	free(levels);
	free(seen);
	return ok;
}

static bool wanted(const struct view *v, const char *file)
{
	const struct view_words *w = &v->opt->files;
	bool match = w->n == 0;
	for (size_t i = 0; i < w->n; i++)
		match |= view_match(w->v[i], file);
	return match;
}

static bool fill(struct table *t, const struct view *v)
{
	if (!count_places(t, v))
		return false;
	for (size_t i = 0; i < v->n_places; i++) {
		const struct view_place *p = &v->places[i];
		if (!p->file || !p->line || !t->lines[i].total || !wanted(v, p->file))
			continue;
		struct line line = {p->file, p->line, t->lines[i].self, t->lines[i].total};
		t->lines[t->n_lines++] = line;
	}
	qsort(t->lines, t->n_lines, sizeof *t->lines, by_file);
	t->sources = calloc(t->n_lines + 1, sizeof *t->sources);
	for (size_t i = 0; t->sources && i < t->n_lines; i++) {
		struct source *s = t->n_sources ? &t->sources[t->n_sources - 1] : NULL;
		if (!s || strcmp(s->file, t->lines[i].file) != 0) {
			s = &t->sources[t->n_sources++];
			*s = (struct source){.file = t->lines[i].file, .at = i};
		}
		s->n++;
		s->self += t->lines[i].self;
		s->total = t->lines[i].total > s->total ? t->lines[i].total : s->total;
	}
	if (t->sources)
		qsort(t->sources, t->n_sources, sizeof *t->sources, by_self);
	return t->sources != NULL;
}

/* The file's text: where the build left it, or where --path-map and --symfs say. */
static void read_source(const struct view *v, const char *file, struct sp_buf *text)
{
	const struct sp_resolver_options *o = &v->opt->resolver;
	struct sp_find_options find = {.path_maps = o->path_maps, .n_path_maps = o->n_path_maps};
	struct sp_err err;
	char path[4096];
	if (*file != '/')
		return;
	if (!sp_path_map(&find, file, path, sizeof path) &&
	    snprintf(path, sizeof path, "%s%s", o->symfs ? o->symfs : "", file) >= (int)sizeof path)
		return;
	if (sp_file_read(path, SOURCE_MAX, text, &err) < 0)
		text->len = 0;
}

static void write_count(struct out *o, const struct term *t, uint64_t n, uint64_t all)
{
	if (n)
		out_printf(o, "%s%8.2f%s", term_heat(t, view_percent(n, all)), view_percent(n, all),
			   term_end(t));
	else
		out_str(o, "        ");
}

/* One line, its tabs as far as the next eighth column. */
static void write_text(struct out *o, const struct term *t, const char *s, size_t n, size_t used)
{
	struct sp_buf b = {0};
	for (size_t i = 0; i < n && i < 4096; i++) {
		if (s[i] == '\t')
			do
				sp_buf_u8(&b, ' ');
			while (b.len % 8);
		else if (s[i] != '\r' && s[i])
			sp_buf_u8(&b, (uint8_t)s[i]);
	}
	while (b.len && b.data[b.len - 1] == ' ')
		b.len--;
	size_t room = t->width > used + 12 ? t->width - used : 12, at = 0, columns = 0;
	struct sp_buf clean = {0};
	out_text_buf(&clean, b.len ? (const char *)b.data : "", b.len, 0);
	while (at < clean.len) {
		uint32_t c;
		size_t step = out_utf8((const char *)clean.data + at, clean.len - at, &c);
		columns = term_columns_n((const char *)clean.data, at + step);
		if (columns > room)
			break;
		at += step;
	}
	out_add(o, clean.data, at);
	o->buf.failed |= b.failed || clean.failed;
	sp_buf_deinit(&b);
	sp_buf_deinit(&clean);
}

static void write_one(struct out *o, const struct term *t, const struct line *line, uint32_t number,
		      const char *text, size_t n, uint64_t all)
{
	write_count(o, t, line ? line->self : 0, all);
	write_count(o, t, line ? line->total : 0, all);
	out_printf(o, " %6u", number);
	if (n) {
		out_str(o, "  ");
		write_text(o, t, text, n, 25);
	}
	out_char(o, '\n');
}

/* With the text: all lines with --file, else those near one that counts. */
static void write_with_text(const struct view *v, struct out *o, const struct term *t,
			    const struct line *lines, size_t n, const struct sp_buf *text,
			    uint64_t all)
{
	const char *s = (const char *)text->data, *end = s + text->len;
	bool whole = v->opt->files.n > 0;
	uint32_t last = 0;
	size_t i = 0;
	for (uint32_t number = 1; s < end; number++) {
		const char *eol = memchr(s, '\n', (size_t)(end - s));
		size_t len = (size_t)((eol ? eol : end) - s);
		while (i < n && lines[i].number < number)
			i++;
		bool near = (i < n && lines[i].number <= number + LINES_CONTEXT) ||
			    (i > 0 && lines[i - 1].number + LINES_CONTEXT >= number);
		if (whole || near) {
			if (last && number != last + 1)
				out_str(o, "                      …\n");
			bool counts = i < n && lines[i].number == number;
			write_one(o, t, counts ? &lines[i] : NULL, number, s, len, all);
			last = number;
		}
		s += len + 1;
	}
	/* The debug information may know more lines than the file has: another version of it. */
	for (; i < n; i++)
		if (lines[i].number > last)
			write_one(o, t, &lines[i], lines[i].number, NULL, 0, all);
}

static void write_source(const struct view *v, struct out *o, const struct term *t,
			 const struct table *table, const struct source *s, uint64_t all)
{
	struct sp_buf text = {0};
	const struct line *lines = table->lines + s->at;
	read_source(v, s->file, &text);
	out_printf(o, "\n%s", term_bold(t));
	out_text(o, s->file, 0);
	out_printf(o, "%s%s\n%s  SELF %% TOTAL %%   LINE%s\n", term_end(t),
		   text.len ? "" : " (not found: --path-map=OLD=NEW says where it is)", term_dim(t),
		   term_end(t));
	if (text.len)
		write_with_text(v, o, t, lines, s->n, &text, all);
	else
		for (size_t i = 0; i < s->n; i++)
			write_one(o, t, &lines[i], lines[i].number, NULL, 0, all);
	o->buf.failed |= text.failed;
	sp_buf_deinit(&text);
}

int format_lines(struct view *v, struct out *o, struct sp_err *err)
{
	struct table table = {0};
	struct term t;
	uint64_t all = view_total(v);
	bool ok = fill(&table, v);
	size_t limit = v->opt->limit ? v->opt->limit : v->opt->files.n ? SIZE_MAX : LINES_FILES;
	term_init(&t, v, o);
	head_write(v, o, &t);
	for (size_t i = 0; ok && i < table.n_sources && i < limit; i++)
		write_source(v, o, &t, &table, &table.sources[i], all);
	if (ok && table.n_sources > limit)
		out_printf(o, "\n… and %zu more files (-n 0 shows all, --file=NAME one)\n",
			   table.n_sources - limit);
	if (ok && !table.n_sources && v->n_samples)
		out_str(o, v->opt->files.n ? "\nNo sample has a line of that file.\n"
					   : "\nNo sample has a line: the binaries lack debug "
					     "information (--format=stats).\n");
	free(table.lines);
	free(table.sources);
	return ok ? 0 : sp_err_nomem(err);
}
