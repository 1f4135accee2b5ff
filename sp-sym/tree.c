#include "tree.h"

#include <stdlib.h>

#include "counts.h"

static uint32_t child(struct tree *t, uint32_t parent, uint32_t func, bool inlined)
{
	uint64_t key = (uint64_t)parent << 32 | func << 1 | inlined;
	uint32_t id = sp_map64_get(&t->edges, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct tree_node *n = SP_PUSH(&t->nodes, &t->n, &t->cap);
	id = (uint32_t)t->n - 1;
	if (!n || !sp_map64_put(&t->edges, key, id))
		return TREE_NONE;
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

static uint32_t *group_funcs(struct tree *t, struct view *v)
{
	uint32_t *funcs = malloc((t->groups.n + 1) * sizeof *funcs);
	for (size_t i = 0; funcs && i < t->groups.n; i++) {
		struct view_func f = {t->groups.names[i], NULL, "", VIEW_GROUP, 0};
		funcs[i] = view_func_add(v, &f);
		if (funcs[i] == SP_NOT_FOUND) {
			free(funcs);
			return NULL;
		}
	}
	return funcs;
}

static bool add_rows(struct tree *t, const struct view *v, const uint32_t *group, uint32_t *levels)
{
	for (size_t i = 0; i < v->n_rows; i++) {
		const struct view_row *row = &v->rows[i];
		if (!row->n)
			continue;
		size_t n = view_stack_levels(v, row->stack, levels);
		uint32_t node = TREE_ROOT;
		if (group)
			node = child(t, node, group[t->groups.of_task[row->task]], false);
		for (size_t j = 0; j < n && node != TREE_NONE; j++) {
			const struct view_level *l =
				&v->levels[levels[v->opt->reverse ? j : n - 1 - j]];
			node = child(t, node, l->func, l->inlined);
		}
		if (node == TREE_NONE)
			return false;
		t->nodes[node].self += view_value(v, row);
	}
	return true;
}

int tree_build(struct tree *t, struct view *v, enum view_group how, struct sp_err *err)
{
	*t = (struct tree){0};
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels), *group = NULL;
	struct tree_node *root = SP_PUSH(&t->nodes, &t->n, &t->cap);
	bool ok = levels && root && groups_init(&t->groups, v, how, err) >= 0;
	if (ok) {
		*root = (struct tree_node){.parent = TREE_NONE, .child = TREE_NONE, .next = TREE_NONE};
		group = how == GROUP_NONE ? NULL : group_funcs(t, v);
		ok = (how == GROUP_NONE || group) && add_rows(t, v, group, levels);
	}
	free(levels);
	free(group);
	sp_map64_deinit(&t->edges);
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
	sp_map64_deinit(&t->edges);
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
			*slot = (struct order){&v->funcs[node->func], node->total, c, node->inlined};
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
