/* folded: one line per call path, root first, for flamegraph.pl, inferno, speedscope and many more.
 * The count is a number of samples (or the weight, with --weight): the Firefox profiler expands it
 * into that many samples. */
#include <stdlib.h>

#include "formats.h"
#include "tree.h"

/* The names as they are shown: most nodes share theirs with many others. */
struct shown {
	struct sp_buf text; /* owned */
	size_t *ends;       /* owned: by function, where its name ends */
};

static bool show_names(struct shown *s, const struct view *v)
{
	struct out text = {.memory = true};
	s->ends = malloc((v->n_funcs + 1) * sizeof *s->ends);
	for (size_t i = 0; s->ends && i < v->n_funcs; i++) {
		const struct view_func *f = &v->funcs[i];
		out_text(&text, *f->name ? f->name : "?",
			 OUT_NO_SEMICOLON | (f->kind == VIEW_GROUP ? OUT_NO_SPACE : 0));
		s->ends[i] = text.buf.len;
	}
	s->text = text.buf;
	return s->ends && !text.buf.failed;
}

static void shown_deinit(struct shown *s)
{
	sp_buf_deinit(&s->text);
	free(s->ends);
}

/* The suffixes are flamegraph.pl's: it colours _[k] (kernel), _[i] (inlined) and _[j] (JIT). */
static void write_node(struct out *line, const struct view *v, const struct shown *s,
		       const struct tree_node *n)
{
	size_t begin = n->func ? s->ends[n->func - 1] : 0;
	out_add(line, s->text.data + begin, s->ends[n->func] - begin);
	if (v->funcs[n->func].kind == VIEW_KERNEL)
		out_str(line, "_[k]");
	else if (n->inlined)
		out_str(line, "_[i]");
	else if (v->funcs[n->func].kind == VIEW_JIT)
		out_str(line, "_[j]");
}

static void write_lines(const struct tree *t, const struct view *v, const struct shown *s,
			struct out *o, struct out *line, size_t *ends)
{
	size_t begin = ends[0] = line->buf.len;
	if (t->nodes[TREE_ROOT].pruned) { /* --min-percent took whole groups away */
		out_add(o, line->buf.data, begin);
		out_str(o, "[smaller] ");
		out_u64(o, t->nodes[TREE_ROOT].pruned);
		out_char(o, '\n');
	}
	for (uint32_t i = tree_next(t, TREE_ROOT); i != TREE_NONE; i = tree_next(t, i)) {
		const struct tree_node *n = &t->nodes[i];
		line->buf.len = ends[n->depth - 1];
		if (n->depth > 1)
			out_char(line, ';');
		write_node(line, v, s, n);
		ends[n->depth] = line->buf.len;
		if (!(n->self + n->pruned))
			continue;
		out_add(o, line->buf.data, line->buf.len);
		out_char(o, ' ');
		out_u64(o, n->self + n->pruned);
		out_char(o, '\n');
	}
}

/* Of one event, if there are several: its name is then the root. */
static int write_tree(struct view *v, struct out *o, const char *event, struct sp_err *err)
{
	enum view_group group = v->opt->group == GROUP_DEFAULT ? GROUP_COMM : v->opt->group;
	struct out line = {.memory = true};
	struct sp_buf ends = {0};
	struct shown shown = {0};
	struct tree t;
	int r = tree_build(&t, v, group, err);
	if (r < 0)
		return r;
	if (v->opt->reverse)
		tree_prune_by_options(&t, v, 0);
	r = tree_sort(&t, v, true, err);
	if (event) {
		out_text(&line, *event ? event : "event", OUT_NO_SEMICOLON | OUT_NO_SPACE);
		out_char(&line, ';');
	}
	uint8_t *room = sp_buf_zero(&ends, (t.max_depth + 1) * sizeof(size_t));
	if (r >= 0 && (!room || !show_names(&shown, v)))
		r = sp_err_nomem(err);
	if (r >= 0)
		write_lines(&t, v, &shown, o, &line, (size_t *)(void *)room);
	if (r >= 0 && line.buf.failed)
		r = sp_err_nomem(err);
	shown_deinit(&shown);
	sp_buf_deinit(&line.buf);
	sp_buf_deinit(&ends);
	tree_deinit(&t);
	return r;
}

int format_folded(struct view *v, struct out *o, struct sp_err *err)
{
	int r = 0;
	if (!v->apart)
		return write_tree(v, o, NULL, err);
	for (uint32_t e = 0; r >= 0 && view_next_event(v, &e); e++) {
		r = view_only(v, e, err);
		if (r >= 0)
			r = write_tree(v, o, sp_spool_event(v->spool, e)->name, err);
	}
	view_all(v);
	return r;
}
