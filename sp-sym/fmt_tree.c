/* tree: who calls what, heaviest first. Siblings branch off with lines; an only child stands below
 * its parent in the same column, so that deep stacks fit. */
#include "formats.h"
#include "head.h"
#include "tree.h"

#define TREE_PERCENT 0.5

struct tree_writer {
	const struct tree *t;
	const struct view *v;
	struct out *o;
	const struct term *term;
	struct sp_buf guides; /* for each branch on the way: 1 when more siblings follow */
};

static bool is_branch(const struct tree *t, uint32_t node)
{
	const struct tree_node *n = &t->nodes[node];
	return t->nodes[n->parent].child != node || n->next != TREE_NONE;
}

static const char *mark_of(const struct view *v, const struct tree_node *n)
{
	enum view_kind kind = v->funcs[n->func].kind;
	return n->inlined ? " (inlined)" : kind == VIEW_KERNEL ? " [k]" : "";
}

/* The lines left of a name; returns their columns. */
static size_t write_guides(struct tree_writer *w, bool branch, bool last)
{
	size_t n = w->guides.len, max = w->term->width / 4;
	size_t skip = n > max ? n - max : 0; /* very deep: the outer lines go */
	out_str(w->o, term_dim(w->term));
	for (size_t i = skip; i < n; i++)
		out_str(w->o, w->guides.data[i] ? "│ " : "  ");
	if (branch)
		out_str(w->o, last ? "└─" : "├─");
	out_str(w->o, term_end(w->term));
	return 2 * (n - skip) + (branch ? 2 : 0);
}

static void write_node(struct tree_writer *w, uint32_t node)
{
	const struct tree_node *n = &w->t->nodes[node];
	const struct view_func *f = &w->v->funcs[n->func];
	uint64_t all = w->t->nodes[TREE_ROOT].total;
	double total = view_percent(n->total, all), self = view_percent(n->self, all);
	bool branch = is_branch(w->t, node);
	out_printf(w->o, "%s%8.2f%s ", term_heat(w->term, total), total, term_end(w->term));
	if (n->self)
		out_printf(w->o, "%8.2f  ", self);
	else
		out_printf(w->o, "%8s  ", ".");
	size_t used = 19 + write_guides(w, branch, n->next == TREE_NONE);
	const char *mark = mark_of(w->v, n);
	size_t width = w->term->width > used + strlen(mark) + 10
			       ? w->term->width - used - strlen(mark)
			       : 10;
	if (f->kind == VIEW_GROUP)
		out_str(w->o, term_bold(w->term));
	used += term_shorten(w->o, *f->name ? f->name : "?", width) + strlen(mark);
	if (f->kind == VIEW_GROUP)
		out_str(w->o, term_end(w->term));
	out_str(w->o, mark);
	const char *where = f->file ? view_base(f->file) : f->module;
	if (*where && used + 2 + term_columns(where) <= w->term->width) {
		out_printf(w->o, "  %s", term_dim(w->term));
		out_text(w->o, where, 0);
		out_str(w->o, term_end(w->term));
	}
	out_char(w->o, '\n');
}

/* guides.len at a node is the number of branches above it: kept by walking in depth-first order
 * and remembering it per depth. */
static bool write_nodes(struct tree_writer *w)
{
	struct sp_buf branches = {0}; /* by depth: guides.len below that node, as u32 */
	const struct tree *t = w->t;
	uint32_t *at = (uint32_t *)(void *)sp_buf_zero(&branches, (t->max_depth + 1) * sizeof *at);
	for (uint32_t i = tree_next(t, TREE_ROOT); at && i != TREE_NONE; i = tree_next(t, i)) {
		const struct tree_node *n = &t->nodes[i];
		w->guides.len = at[n->depth - 1];
		write_node(w, i);
		if (is_branch(t, i))
			sp_buf_u8(&w->guides, n->next != TREE_NONE);
		at[n->depth] = (uint32_t)w->guides.len;
	}
	bool ok = at && !w->guides.failed;
	sp_buf_deinit(&branches);
	return ok;
}

int format_tree(struct view *v, struct out *o, struct sp_err *err)
{
	enum view_group group = v->opt->group == GROUP_DEFAULT ? GROUP_COMM : v->opt->group;
	struct term term;
	struct tree t;
	term_init(&term, v, o);
	head_write(v, o, &term);
	if (!v->n_samples)
		return 0;
	int r = tree_build(&t, v, group, err);
	if (r < 0)
		return r;
	size_t before = t.n;
	tree_prune_by_options(&t, v, TREE_PERCENT);
	r = tree_sort(&t, v, false, err);
	struct tree_writer w = {&t, v, o, &term, {0}};
	if (r >= 0) {
		out_printf(o, "\n%s TOTAL %%   SELF %%  FUNCTION%s\n", term_bold(&term),
			   term_end(&term));
		r = write_nodes(&w) ? 0 : sp_err_nomem(err);
		size_t left = 0;
		for (uint32_t i = TREE_ROOT; i != TREE_NONE; i = tree_next(&t, i))
			left++;
		if (left < before)
			out_printf(o,
				   "%s… and %zu nodes that are smaller or deeper (--min-percent, "
				   "--depth)%s\n",
				   term_dim(&term), before - left, term_end(&term));
	}
	sp_buf_deinit(&w.guides);
	tree_deinit(&t);
	return r;
}
