#include "cmdlines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "kernel.h"

#define MAX_WAITING 4096u
#define SEE_TRIES 4

void cap_cmdlines_deinit(struct cap_cmdlines *c)
{
	while (c->n)
		sp_buf_deinit(&c->v[--c->n].args);
	free(c->v);
	*c = (struct cap_cmdlines){0};
}

static void drop(struct cap_cmdlines *c, size_t at)
{
	sp_buf_deinit(&c->v[at].args);
	c->v[at] = c->v[--c->n];
}

static struct cap_cmdline *add(struct cap_cmdlines *c, int32_t pid, enum cap_cmdline_source source,
			       uint64_t time_ns)
{
	struct cap_cmdline *l = c->n < MAX_WAITING ? SP_PUSH(&c->v, &c->n, &c->cap) : NULL;
	if (l) {
		l->pid = pid;
		l->source = source;
		l->time_ns = time_ns;
	}
	return l;
}

void cap_cmdlines_give(struct cap_cmdlines *c, int32_t pid, char *const *args)
{
	struct cap_cmdline *l = add(c, pid, CAP_CMDLINE_GIVEN, 0);
	for (; l && *args && l->args.len < CAP_CMDLINE_MAX; args++) {
		sp_buf_str(&l->args, *args);
		sp_buf_u8(&l->args, 0);
	}
	if (l && l->args.len > CAP_CMDLINE_MAX)
		l->args.len = CAP_CMDLINE_MAX;
}

void cap_cmdlines_tell(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns, const void *args,
		       size_t len)
{
	struct cap_cmdline *l = add(c, pid, CAP_CMDLINE_EXEC, time_ns);
	if (l)
		sp_buf_add(&l->args, args, len);
}

static void read_proc(struct cap_cmdline *l)
{
	char path[40];
	if (!l)
		return;
	snprintf(path, sizeof path, "/proc/%d/cmdline", l->pid);
	if (sp_file_read(path, CAP_CMDLINE_MAX, &l->args, NULL) < 0 &&
	    l->args.len > CAP_CMDLINE_MAX)
		l->args.len = CAP_CMDLINE_MAX;
}

void cap_cmdlines_look(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns)
{
	read_proc(add(c, pid, CAP_CMDLINE_EXEC, time_ns));
}

/* The line of an exec: the next one told after it, else what was read for it, else what was given;
 * c->n when there is none. */
static size_t find(const struct cap_cmdlines *c, int32_t pid, uint64_t time_ns)
{
	size_t best = c->n;
	for (size_t i = 0; i < c->n; i++) {
		const struct cap_cmdline *l = &c->v[i], *b = best < c->n ? &c->v[best] : NULL;
		if (l->pid != pid || !l->args.len ||
		    (l->source == CAP_CMDLINE_PROC && l->time_ns != time_ns) ||
		    (l->source == CAP_CMDLINE_EXEC && l->time_ns < time_ns))
			continue;
		if (!b || l->source > b->source ||
		    (l->source == b->source && l->time_ns < b->time_ns))
			best = i;
	}
	return best;
}

void cap_cmdlines_read(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns)
{
	size_t at = find(c, pid, time_ns);
	if (at == c->n || c->v[at].source != CAP_CMDLINE_EXEC)
		read_proc(add(c, pid, CAP_CMDLINE_PROC, time_ns));
}

uint64_t cap_cmdlines_see(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns)
{
	struct cap_cmdline now = {.pid = pid}, before = {0};
	uint64_t seen_ns = 0;
	bool same = false;
	read_proc(&now);
	for (int i = 0; i < SEE_TRIES && !same; i++) {
		sp_buf_deinit(&before.args);
		before = now;
		seen_ns = cap_now_ns();
		now = (struct cap_cmdline){.pid = pid};
		read_proc(&now);
		same = now.args.len == before.args.len &&
		       (!now.args.len || !memcmp(now.args.data, before.args.data, now.args.len));
	}
	sp_buf_deinit(&before.args);
	struct cap_cmdline *l =
		find(c, pid, time_ns) == c->n ? add(c, pid, CAP_CMDLINE_PROC, time_ns) : NULL;
	if (l)
		l->args = now.args;
	else
		sp_buf_deinit(&now.args);
	return seen_ns;
}

struct sp_buf cap_cmdlines_take(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns)
{
	struct sp_buf args = {0};
	size_t at = find(c, pid, time_ns);
	if (at == c->n) {
		cap_cmdlines_read(c, pid, time_ns);
		at = find(c, pid, time_ns);
	}
	if (at < c->n) {
		args = c->v[at].args;
		c->v[at].args = (struct sp_buf){0};
		drop(c, at);
	}
	for (size_t i = c->n; i-- > 0;) /* others of the same exec */
		if (c->v[i].pid == pid &&
		    (c->v[i].source == CAP_CMDLINE_GIVEN || c->v[i].time_ns <= time_ns))
			drop(c, i);
	return args;
}

void cap_cmdlines_expire(struct cap_cmdlines *c, uint64_t time_ns)
{
	for (size_t i = c->n; i-- > 0;)
		if (c->v[i].source != CAP_CMDLINE_GIVEN && c->v[i].time_ns <= time_ns)
			drop(c, i);
}
