#include "carry.h"

#include <stdlib.h>

static void free_exec(struct sp_spool_exec *e)
{
	free((void *)(uintptr_t)e->cmdline);
}

static void free_object(struct sp_spool_object *o)
{
	free((void *)(uintptr_t)o->path);
	free((void *)(uintptr_t)o->build_id);
	free((void *)(uintptr_t)o->data);
}

void spool_carry_deinit(struct spool_carry *c)
{
	for (size_t i = 0; i < c->n_exec; i++)
		free_exec(&c->exec[i]);
	for (size_t i = 0; i < c->n_object; i++)
		free_object(&c->object[i]);
	free(c->exec);
	free(c->object);
	*c = (struct spool_carry){0};
}

/* A copy of n bytes, never NULL unless memory ends. */
static void *copy_of(const void *p, size_t n)
{
	uint8_t *copy = malloc(n + 1);
	if (copy && n)
		memcpy(copy, p, n);
	return copy;
}

bool spool_carry_exec(struct spool_carry *c, const struct sp_spool_exec *e)
{
	struct sp_spool_exec one = *e;
	if (e->cmdline && !(one.cmdline = copy_of(e->cmdline, e->cmdline_len)))
		return false;
	struct sp_spool_exec *p = SP_PUSH(&c->exec, &c->n_exec, &c->cap_exec);
	if (p)
		*p = one;
	else
		free_exec(&one);
	return p != NULL;
}

bool spool_carry_object(struct spool_carry *c, const struct sp_spool_object *o)
{
	struct sp_spool_object one = *o;
	one.path = strdup(o->path ? o->path : "");
	one.build_id = copy_of(o->build_id, o->build_id_len);
	one.data = copy_of(o->data, o->size);
	struct sp_spool_object *p =
		one.path && one.build_id && one.data
			? SP_PUSH(&c->object, &c->n_object, &c->cap_object)
			: NULL;
	if (p)
		*p = one;
	else
		free_object(&one);
	return p != NULL;
}

/* Of each process and kind the last marker counts. Keeps their order. */
static bool drop_execs(struct spool_carry *c, const struct spool_intern *x)
{
	struct sp_map64 seen = {0};
	size_t out = c->n_exec;
	bool ok = true;
	for (size_t i = c->n_exec; i--;) {
		struct sp_spool_exec *e = &c->exec[i];
		uint64_t key = (uint64_t)(uint32_t)e->pid << 32 | e->kind;
		if (!spool_intern_runs(x, e->pid) || sp_map64_get(&seen, key) != SP_NOT_FOUND) {
			free_exec(e);
			continue;
		}
		ok = sp_map64_put(&seen, key, 1) && ok;
		c->exec[--out] = *e;
	}
	c->n_exec -= out;
	if (c->n_exec)
		memmove(c->exec, c->exec + out, c->n_exec * sizeof *c->exec);
	sp_map64_deinit(&seen);
	return ok;
}

static void drop_objects(struct spool_carry *c, const struct spool_intern *x)
{
	size_t out = 0;
	for (size_t i = 0; i < c->n_object; i++) {
		if (spool_intern_runs(x, c->object[i].pid))
			c->object[out++] = c->object[i];
		else
			free_object(&c->object[i]);
	}
	c->n_object = out;
}

int spool_carry_put(struct spool_carry *c, const struct spool_intern *x, struct sp_err *err)
{
	if (!drop_execs(c, x))
		return sp_err_nomem(err);
	drop_objects(c, x);
	int rc = 0;
	for (size_t i = 0; i < c->n_exec && rc >= 0; i++)
		rc = sp_spool_put_exec(x->w, &c->exec[i], err);
	for (size_t i = 0; i < c->n_object && rc >= 0; i++) {
		rc = sp_spool_put_object(x->w, &c->object[i], err);
		if (rc == SP_ERR_LIMIT)
			rc = 0; /* it was told when it came */
	}
	return rc;
}
