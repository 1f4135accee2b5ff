#include "tree.h"

#include <stdlib.h>

#include "counts.h"

static uint32_t push_node(struct tree *t, uint32_t parent, uint32_t func, bool inlined)
{
	struct tree_node *n = SP_PUSH(&t->nodes, &t->n, &t->cap);
	if (!n)
		return TREE_NONE;
	uint32_t id = (uint32_t)t->n - 1;
	*n = (struct tree_node){.func = func,
				.parent = parent,
				.child = TREE_NONE,
				.next = t->nodes[parent].child,
				.depth = t->nodes[parent].depth + 1,
				.inlined = inlined};
	t->nodes[parent].child = id;
	if (n->depth > t->max_depth)
		t->max_depth = n->depth;
	return id;
}

static bool push_root(struct tree *t)
{
	struct tree_node *root = SP_PUSH(&t->nodes, &t->n, &t->cap);
	if (root)
		*root = (struct tree_node){
			.parent = TREE_NONE, .child = TREE_NONE, .next = TREE_NONE};
	return root != NULL;
}

#define NARROW 8 /* children that are looked through; of a node with more, a table has them */

static uint64_t edge(uint32_t node, uint32_t func, bool inlined)
{
	return (uint64_t)node << 32 | func << 1 | inlined;
}

static uint32_t find_child(const struct tree *t, const struct sp_map64 *wide, uint32_t node,
			   uint32_t func, bool inlined)
{
	if (t->nodes[node].is_wide)
		return sp_map64_get(wide, edge(node, func, inlined));
	uint32_t c = t->nodes[node].child;
	while (c != TREE_NONE && (t->nodes[c].func != func || t->nodes[c].inlined != inlined))
		c = t->nodes[c].next;
	return c;
}

static uint32_t add_child(struct tree *t, struct sp_map64 *wide, uint32_t node, uint32_t func,
			  bool inlined)
{
	uint32_t added = push_node(t, node, func, inlined), n = 0;
	if (added == TREE_NONE)
		return added;
	for (uint32_t c = added; c != TREE_NONE && n <= NARROW; c = t->nodes[c].next)
		n++;
	if (n <= NARROW)
		return added;
	uint32_t c = added;
	do /* all of them once, then the new one */
		if (!sp_map64_put(wide, edge(node, t->nodes[c].func, t->nodes[c].inlined), c))
			return TREE_NONE;
	while (!t->nodes[node].is_wide && (c = t->nodes[c].next) != TREE_NONE);
	t->nodes[node].is_wide = true;
	return added;
}

/* The tree of all distinct stacks, without groups; leaf[stack] is where each ends. Neighbours
 * mostly begin alike, so a stack is compared with the path of the one before it first. */
static bool add_stacks(struct tree *t, const struct view *v, const uint8_t *used, uint32_t *leaf)
{
	struct sp_map64 wide = {0};
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	uint32_t *path = malloc((v->max_levels + 1) * sizeof *path); /* nodes of the one before */
	size_t path_len = 0;
	bool ok = levels && path && push_root(t);
	for (size_t i = 0; ok && i < v->n_stacks; i++) {
		if (!used[i])
			continue;
		uint32_t node = TREE_ROOT;
		size_t n = view_stack_levels(v, (uint32_t)i, levels), j = 0;
		for (; ok && j < n; j++) {
			const struct view_level *l =
				&v->levels[levels[v->opt->reverse ? j : n - 1 - j]];
			if (j < path_len && t->nodes[path[j]].func == l->func &&
			    t->nodes[path[j]].inlined == l->inlined) {
				node = path[j];
				continue;
			}
			path_len = 0; /* what follows is another path */
			uint32_t next = find_child(t, &wide, node, l->func, l->inlined);
			if (next == TREE_NONE)
				next = add_child(t, &wide, node, l->func, l->inlined);
			ok = next != TREE_NONE;
			path[j] = node = next;
		}
		path_len = j;
		leaf[i] = node;
	}
	free(levels);
	free(path);
	sp_map64_deinit(&wide);
	return ok;
}

static uint32_t *group_funcs(struct tree *t, struct view *v)
{
	uint32_t *funcs = malloc((t->groups.n + 1) * sizeof *funcs);
	for (size_t i = 0; funcs && i < t->groups.n; i++) {
		struct view_func f = {
			.name = t->groups.names[i], .module = "", .kind = VIEW_GROUP};
		funcs[i] = view_func_add(v, &f);
		if (funcs[i] == SP_NOT_FOUND) {
			free(funcs);
			return NULL;
		}
	}
	return funcs;
}

/* The nodes of the tree without groups as they are in one group, one group after the other. */
struct copies {
	const struct tree *plain;
	uint32_t *group; /* owned: by node, the last group that has it, and its node there */
	uint32_t *node;  /* owned */
	uint32_t *missing; /* owned */
};

/* The copy of a node in a group: made with all that is missing above it. */
static uint32_t copy_node(struct tree *t, struct copies *c, uint32_t group, uint32_t group_node,
			  uint32_t node)
{
	size_t n = 0;
	uint32_t at = group_node;
	for (; node != TREE_ROOT; node = c->plain->nodes[node].parent) {
		if (c->group[node] == group) {
			at = c->node[node];
			break;
		}
		c->missing[n++] = node;
	}
	while (n-- && at != TREE_NONE) {
		const struct tree_node *p = &c->plain->nodes[c->missing[n]];
		at = push_node(t, at, p->func, p->inlined);
		c->group[c->missing[n]] = group;
		c->node[c->missing[n]] = at;
	}
	return at;
}

/* The numbers of the shown rows, those of a group in a row; ends: by group, zeroed. */
static void sort_rows(const struct tree *t, const struct view *v, uint32_t *order, uint32_t *ends)
{
	for (size_t i = 0; i < v->n_rows; i++)
		ends[groups_of(&t->groups, v, i)] += v->rows[i].n > 0;
	uint32_t at = 0;
	for (size_t g = 0; g < t->groups.n; g++) {
		uint32_t n = ends[g];
		ends[g] = at;
		at += n;
	}
	for (size_t i = 0; i < v->n_rows; i++)
		if (v->rows[i].n)
			order[ends[groups_of(&t->groups, v, i)]++] = (uint32_t)i;
}

static bool add_groups(struct tree *t, struct view *v, const struct tree *plain,
		       const uint32_t *leaf)
{
	uint32_t *funcs = group_funcs(t, v);
	uint32_t *order = malloc((v->n_rows + 1) * sizeof *order);
	uint32_t *ends = calloc(t->groups.n + 1, sizeof *ends);
	struct copies c = {plain, malloc(plain->n * sizeof *c.group),
			   malloc(plain->n * sizeof *c.node),
			   malloc((plain->max_depth + 1) * sizeof *c.missing)};
	bool ok = funcs && order && ends && c.group && c.node && c.missing && push_root(t);
	if (ok) {
		memset(c.group, 0xff, plain->n * sizeof *c.group);
		sort_rows(t, v, order, ends);
	}
	for (uint32_t g = 0, i = 0; ok && g < t->groups.n; g++) {
		uint32_t top = i < ends[g] ? push_node(t, TREE_ROOT, funcs[g], false) : TREE_ROOT;
		ok = top != TREE_NONE;
		for (; ok && i < ends[g]; i++) {
			const struct view_row *row = &v->rows[order[i]];
			uint32_t node = copy_node(t, &c, g, top, leaf[row->stack]);
			ok = node != TREE_NONE;
			if (ok)
				t->nodes[node].self += view_value(v, row);
		}
	}
	free(funcs);
	free(order);
	free(ends);
	free(c.group);
	free(c.node);
	free(c.missing);
	return ok;
}

/* Which stacks have shown rows. */
static uint8_t *used_stacks(const struct view *v)
{
	uint8_t *used = calloc(v->n_stacks + 1, 1);
	for (size_t i = 0; used && i < v->n_rows; i++)
		if (v->rows[i].n)
			used[v->rows[i].stack] = 1;
	return used;
}

int tree_build(struct tree *t, struct view *v, enum view_group how, struct sp_err *err)
{
	struct tree plain = {0};
	*t = (struct tree){0};
	uint32_t *leaf = malloc((v->n_stacks + 1) * sizeof *leaf);
	uint8_t *used = used_stacks(v);
	bool ok = leaf && used && add_stacks(&plain, v, used, leaf);
	if (ok && how == GROUP_NONE) {
		*t = plain;
		plain = (struct tree){0};
		for (size_t i = 0; i < v->n_rows; i++)
			if (v->rows[i].n)
				t->nodes[leaf[v->rows[i].stack]].self += view_value(v, &v->rows[i]);
	} else if (ok) {
		ok = groups_init(&t->groups, v, how, err) >= 0 && add_groups(t, v, &plain, leaf);
	}
	free(leaf);
	free(used);
	tree_deinit(&plain);
	if (!ok) {
		tree_deinit(t);
		return sp_err_nomem(err);
	}
	for (size_t i = t->n; i-- > 0;) {
		struct tree_node *n = &t->nodes[i];
		n->total += n->self;
		if (n->parent != TREE_NONE)
			t->nodes[n->parent].total += n->total;
	}
	return 0;
}

void tree_deinit(struct tree *t)
{
	free(t->nodes);
	groups_deinit(&t->groups);
	*t = (struct tree){0};
}

struct order {
	const struct view_func *func;
	uint64_t total;
	uint32_t node;
	bool inlined;
};

static int compare_names(const void *a, const void *b)
{
	const struct order *x = a, *y = b;
	int d = counts_compare_funcs(x->func, y->func);
	return d ? d : (int)x->inlined - (int)y->inlined;
}

static int compare_totals(const void *a, const void *b)
{
	const struct order *x = a, *y = b;
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return compare_names(a, b);
}

int tree_sort(struct tree *t, const struct view *v, bool by_name, struct sp_err *err)
{
	struct order *list = NULL;
	size_t cap = 0;
	for (size_t i = 0; i < t->n; i++) {
		size_t n = 0;
		for (uint32_t c = t->nodes[i].child; c != TREE_NONE; c = t->nodes[c].next) {
			struct order *slot = SP_PUSH(&list, &n, &cap);
			if (!slot) {
				free(list);
				return sp_err_nomem(err);
			}
			const struct tree_node *node = &t->nodes[c];
			*slot = (struct order){&v->funcs[node->func], node->total, c,
					       node->inlined};
		}
		if (n < 2)
			continue;
		qsort(list, n, sizeof *list, by_name ? compare_names : compare_totals);
		t->nodes[i].child = list[0].node;
		for (size_t j = 0; j < n; j++)
			t->nodes[list[j].node].next = j + 1 < n ? list[j + 1].node : TREE_NONE;
	}
	free(list);
	return 0;
}

size_t tree_prune(struct tree *t, uint64_t min_total, uint64_t max_depth)
{
	t->max_depth = 0;
	for (size_t i = 0; i < t->n; i++) {
		struct tree_node *n = &t->nodes[i];
		/* What hangs below a pruned node is never reached again. */
		uint32_t *link = &n->child;
		while (*link != TREE_NONE) {
			struct tree_node *c = &t->nodes[*link];
			if (c->total < min_total || (max_depth && c->depth > max_depth)) {
				n->pruned += c->total;
				*link = c->next;
			} else {
				link = &c->next;
			}
		}
	}
	size_t left = 0;
	for (uint32_t i = TREE_ROOT; i != TREE_NONE; i = tree_next(t, i), left++)
		if (t->nodes[i].depth > t->max_depth)
			t->max_depth = t->nodes[i].depth;
	return left;
}

void tree_prune_by_options(struct tree *t, const struct view *v, double min_percent)
{
	double percent = v->opt->min_percent >= 0 ? v->opt->min_percent : min_percent;
	double least = (double)t->nodes[TREE_ROOT].total * percent / 100;
	uint64_t min_total = (uint64_t)least;
	if ((double)min_total < least)
		min_total++;
	if (min_total || v->opt->depth)
		tree_prune(t, min_total, v->opt->depth);
}

uint32_t tree_next(const struct tree *t, uint32_t node)
{
	if (t->nodes[node].child != TREE_NONE)
		return t->nodes[node].child;
	while (node != TREE_NONE && t->nodes[node].next == TREE_NONE)
		node = t->nodes[node].parent;
	return node == TREE_NONE ? TREE_NONE : t->nodes[node].next;
}
