/* --group: what stands above the roots of the stacks. */
#ifndef SYM_GROUP_H
#define SYM_GROUP_H

#include "view.h"

/* The groups of a view's tasks, or of its rows. */
struct groups {
	char **names; /* owned, by group; any bytes */
	size_t n, cap;
	uint32_t *of_task; /* owned: the group of each of the view's tasks, or NULL */
	uint32_t *of_row;  /* owned: with GROUP_STATE and GROUP_WAKER, of each of its rows */
};

/* With GROUP_NONE all tasks have the one group "". */
int groups_init(struct groups *g, const struct view *v, enum view_group how, struct sp_err *err);
uint32_t groups_of(const struct groups *g, const struct view *v, size_t row);
void groups_deinit(struct groups *g);

/* The name of a task's process: its main thread's, else that of the thread seen first. */
uint32_t *groups_process_tasks(const struct view *v, struct sp_err *err);

#endif
