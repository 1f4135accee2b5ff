/* --min-percent and --depth for all formats but top and tree: what is too small or too deep leaves
 * the stacks, and its samples count for the caller. With --reverse the formats' own trees are
 * pruned instead. */
#include <stdlib.h>

#include "tree.h"

/* How many levels of a stack, from the root on, lie on nodes of the pruned tree. */
static size_t kept_levels(const struct sp_map64 *edges, const struct view *v,
			  const uint32_t *levels, size_t n)
{
	uint32_t node = TREE_ROOT;
	for (size_t j = 0; j < n; j++) {
		const struct view_level *l = &v->levels[levels[n - 1 - j]];
		uint64_t key = (uint64_t)node << 32 | l->func << 1 | l->inlined;
		node = sp_map64_get(edges, key);
		if (node == SP_NOT_FOUND)
			return j;
	}
	return n;
}

/* Frames go whole: one whose outer levels stay keeps its inlined ones. The root always stays. */
static void cut_stack(struct view *v, struct view_stack *s, size_t kept)
{
	uint32_t n = 0;
	for (size_t levels = 0; n < s->n && (levels < kept || !n); n++)
		levels += v->frames[v->stack_frames[s->at + s->n - 1 - n]].n_levels;
	s->at += s->n - n;
	s->n = n;
}

static bool index_edges(const struct tree *t, struct sp_map64 *edges)
{
	for (uint32_t i = tree_next(t, TREE_ROOT); i != TREE_NONE; i = tree_next(t, i)) {
		const struct tree_node *n = &t->nodes[i];
		uint64_t key = (uint64_t)n->parent << 32 | n->func << 1 | n->inlined;
		if (!sp_map64_put(edges, key, i))
			return false;
	}
	return true;
}

int view_prune(struct view *v, struct sp_err *err)
{
	struct sp_map64 edges = {0};
	struct tree t;
	if (v->opt->reverse || (!v->opt->depth && v->opt->min_percent <= 0))
		return 0;
	int r = tree_build(&t, v, GROUP_NONE, err);
	if (r < 0)
		return r;
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	tree_prune_by_options(&t, v, 0);
	bool ok = levels && index_edges(&t, &edges);
	for (size_t i = 0; ok && i < v->n_stacks; i++) {
		size_t n = view_stack_levels(v, (uint32_t)i, levels);
		size_t kept = kept_levels(&edges, v, levels, n);
		if (kept < n)
			cut_stack(v, &v->stacks[i], kept);
	}
	free(levels);
	sp_map64_deinit(&edges);
	tree_deinit(&t);
	return ok ? 0 : sp_err_nomem(err);
}
