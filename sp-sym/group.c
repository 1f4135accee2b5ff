#include "group.h"

#include "container.h"
#include "wait.h"

#include <stdlib.h>

/* Digits folded, so that the workers of a pool are one: "worker-12" and "worker-7" are "worker-N".
 */
static void fold_digits(struct sp_buf *b, const char *s)
{
	while (*s) {
		if (*s >= '0' && *s <= '9') {
			while (*s >= '0' && *s <= '9')
				s++;
			sp_buf_u8(b, 'N');
		} else {
			sp_buf_u8(b, (uint8_t)*s++);
		}
	}
}

uint32_t *groups_process_tasks(const struct view *v, struct sp_err *err)
{
	struct sp_map64 first = {0};
	uint32_t *task = malloc((v->n_tasks + 1) * sizeof *task);
	bool ok = task != NULL;
	for (size_t i = 0; ok && i < v->n_tasks; i++) {
		const struct view_task *t = &v->tasks[i];
		uint32_t known = sp_map64_get(&first, (uint32_t)t->pid);
		bool better = known == SP_NOT_FOUND ||
			      (t->tid == t->pid && v->tasks[known].tid != t->pid);
		if (better)
			ok = sp_map64_put(&first, (uint32_t)t->pid, (uint32_t)i);
	}
	for (size_t i = 0; ok && i < v->n_tasks; i++)
		task[i] = sp_map64_get(&first, (uint32_t)v->tasks[i].pid);
	sp_map64_deinit(&first);
	if (!ok) {
		free(task);
		sp_err_nomem(err);
		return NULL;
	}
	return task;
}

static void make_name(enum view_group how, const struct view_task *t,
		      const struct view_task *process, struct sp_buf *b)
{
	b->len = 0;
	switch (how) {
	case GROUP_PROCESS:
		sp_buf_printf(b, "%s-%d", *process->comm ? process->comm : "?", t->pid);
		break;
	case GROUP_THREAD:
		sp_buf_printf(b, "%s-%d/%d", *t->comm ? t->comm : "?", t->pid, t->tid);
		break;
	case GROUP_POOL:
		fold_digits(b, *t->comm ? t->comm : "?");
		break;
	case GROUP_COMM:
		sp_buf_str(b, *t->comm ? t->comm : "?");
		break;
	case GROUP_CONTAINER: /* group_tasks and group_waits name them */
	case GROUP_STATE:
	case GROUP_WAKER:
	case GROUP_NONE:
	case GROUP_DEFAULT:
		break;
	}
}

static void container_of(const struct containers *known, int32_t pid, struct sp_buf *b)
{
	struct container c;
	if (containers_find(known, pid, &c))
		container_name(&c, b);
	else
		sp_buf_str(b, "host");
}

static bool add_name(struct groups *g, const struct sp_buf *name)
{
	char **slot = SP_PUSH(&g->names, &g->n, &g->cap);
	if (slot && (*slot = malloc(name->len + 1))) {
		memcpy(*slot, name->len ? (const char *)name->data : "", name->len);
		(*slot)[name->len] = 0;
		return true;
	}
	return false;
}

/* The group of that name, new or not; SP_NOT_FOUND when memory ends. */
static uint32_t add_group(struct groups *g, struct sp_intern *seen, const struct sp_buf *name)
{
	bool is_new = false;
	uint32_t id = name->failed ? SP_NOT_FOUND
				   : sp_intern_add(seen, name->len ? (const char *)name->data : "",
						   name->len, &is_new);
	return id == SP_NOT_FOUND || (is_new && !add_name(g, name)) ? SP_NOT_FOUND : id;
}

static bool group_tasks(struct groups *g, const struct view *v, enum view_group how,
			struct sp_intern *seen, struct sp_buf *name, struct sp_err *err)
{
	struct containers known = {0};
	uint32_t *process = groups_process_tasks(v, err);
	g->of_task = malloc((v->n_tasks + 1) * sizeof *g->of_task);
	bool ok = g->of_task && process;
	if (ok && how == GROUP_CONTAINER)
		ok = containers_init(&known, v, err) >= 0;
	for (size_t i = 0; ok && i < v->n_tasks; i++) {
		make_name(how, &v->tasks[i], &v->tasks[process[i]], name);
		if (how == GROUP_CONTAINER)
			container_of(&known, v->tasks[i].pid, name);
		g->of_task[i] = add_group(g, seen, name);
		ok = g->of_task[i] != SP_NOT_FOUND;
	}
	free(process);
	containers_deinit(&known);
	return ok;
}

static bool group_waits(struct groups *g, const struct view *v, enum view_group how,
			struct sp_intern *seen, struct sp_buf *name)
{
	bool ok = (g->of_row = malloc((v->n_rows + 1) * sizeof *g->of_row)) != NULL;
	for (size_t i = 0; ok && i < v->n_rows; i++) {
		name->len = 0;
		sp_buf_str(name, how == GROUP_STATE ? wait_state(v, &v->rows[i])
						    : wait_waker(v, &v->rows[i]));
		g->of_row[i] = add_group(g, seen, name);
		ok = g->of_row[i] != SP_NOT_FOUND;
	}
	return ok;
}

int groups_init(struct groups *g, const struct view *v, enum view_group how, struct sp_err *err)
{
	struct sp_intern seen = {0};
	struct sp_buf name = {0};
	*g = (struct groups){0};
	bool ok = how == GROUP_STATE || how == GROUP_WAKER
			  ? group_waits(g, v, how, &seen, &name)
			  : group_tasks(g, v, how, &seen, &name, err);
	sp_intern_deinit(&seen);
	sp_buf_deinit(&name);
	if (ok)
		return 0;
	groups_deinit(g);
	return sp_err_nomem(err);
}

uint32_t groups_of(const struct groups *g, const struct view *v, size_t row)
{
	return g->of_row ? g->of_row[row] : g->of_task[v->rows[row].task];
}

void groups_deinit(struct groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->names[i]);
	free(g->names);
	free(g->of_task);
	free(g->of_row);
	*g = (struct groups){0};
}
