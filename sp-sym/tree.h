/* The call tree: each node is a function called along one path. The base of tree, folded and
 * flamegraph. */
#ifndef SYM_TREE_H
#define SYM_TREE_H

#include "group.h"
#include "view.h"

#define TREE_ROOT 0u
#define TREE_NONE UINT32_MAX

struct tree_node {
	uint32_t func;   /* of the view; meaningless for the root */
	uint32_t parent; /* always a smaller number; the root's is TREE_NONE */
	uint32_t child, next;
	uint32_t depth; /* the root's is 0 */
	bool inlined;
	bool is_wide; /* of the building */
	uint64_t self, total; /* samples, or weight with --weight */
	uint64_t pruned;      /* total of the children that tree_prune took away */
};

struct tree {
	struct tree_node *nodes; /* owned */
	size_t n, cap;
	uint32_t max_depth;
	struct groups groups; /* its names are the group nodes' */
};

/* Gathers the shown rows: root first, or leaf first with --reverse. Group nodes (but for
 * GROUP_NONE) hang under the root. */
int tree_build(struct tree *t, struct view *v, enum view_group group, struct sp_err *err);
void tree_deinit(struct tree *t);

/* Children in order: heaviest first, or by name; ties are settled, so that it is always the same.
 */
int tree_sort(struct tree *t, const struct view *v, bool by_name, struct sp_err *err);

/* Take away the nodes of less than min_total and those deeper than max_depth (0 = any); their
 * parents remember how much that was. Returns the number of nodes that are left. */
size_t tree_prune(struct tree *t, uint64_t min_total, uint64_t max_depth);
/* The same as --min-percent and --depth ask for it, with the format's own default percentage. */
void tree_prune_by_options(struct tree *t, const struct view *v, double min_percent);

/* The node after this one in depth-first order, or TREE_NONE. */
uint32_t tree_next(const struct tree *t, uint32_t node);

#endif
