#include "container.h"

#define MARKER_CGROUP 4u
#define SHORT_ID 12 /* digits, as container tools show them */

int containers_init(struct containers *c, const struct view *v, struct sp_err *err)
{
	*c = (struct containers){.spool = v->spool};
	for (size_t i = 0; i < sp_spool_n_execs(v->spool); i++) {
		const struct sp_spool_exec *x = sp_spool_exec(v->spool, i);
		if (x->kind != MARKER_CGROUP)
			continue;
		if (!sp_map64_put(&c->by_pid, (uint32_t)x->pid, (uint32_t)i)) {
			containers_deinit(c);
			return sp_err_nomem(err);
		}
	}
	return 0;
}

void containers_deinit(struct containers *c)
{
	sp_map64_deinit(&c->by_pid);
	*c = (struct containers){0};
}

/* The next of a marker's strings; "" when it is not there. */
static const char *take(const char **at, const char *end)
{
	const char *nul = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
	const char *text = *at;
	if (!nul)
		return "";
	*at = nul + 1;
	return text;
}

bool containers_find(const struct containers *c, int32_t pid, struct container *out)
{
	uint32_t i = sp_map64_get(&c->by_pid, (uint32_t)pid);
	if (i == SP_NOT_FOUND)
		return false;
	const struct sp_spool_exec *x = sp_spool_exec(c->spool, i);
	const char *at = x->cmdline, *end = at ? at + x->cmdline_len : NULL;
	if (!at)
		return false;
	out->cgroup = take(&at, end);
	out->runtime = take(&at, end);
	out->id = take(&at, end);
	out->name = take(&at, end);
	return *out->cgroup != 0;
}

void container_name(const struct container *c, struct sp_buf *out)
{
	if (*c->name)
		sp_buf_str(out, c->name);
	else if (*c->id)
		sp_buf_printf(out, "%s:%.*s", *c->runtime ? c->runtime : "container", SHORT_ID,
			      c->id);
	else
		sp_buf_str(out, c->cgroup);
}
