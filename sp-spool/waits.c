#include "waits.h"

#include <stdlib.h>

void spool_waits_deinit(struct spool_waits *w)
{
	free(w->v);
	*w = (struct spool_waits){0};
}

/* Drop the first ones, and take their room again once it is half of all. */
static void drop(struct spool_waits *w, size_t n)
{
	w->first += n;
	if (w->first * 2 < w->n)
		return;
	w->n -= w->first;
	if (w->n)
		memmove(w->v, w->v + w->first, w->n * sizeof *w->v);
	w->first = 0;
}

bool spool_waits_add(struct spool_waits *w, struct sp_cursor c)
{
	struct spool_wait one = {.time_ns = sp_cur_u64(&c),
				 .pid = (int32_t)sp_cur_u32(&c),
				 .tid = (int32_t)sp_cur_u32(&c)};
	sp_cur_u64(&c); /* its length is the sample's weight */
	one.state = sp_cur_u32(&c);
	one.waker_pid = (int32_t)sp_cur_u32(&c);
	one.waker_tid = (int32_t)sp_cur_u32(&c);
	sp_cur_u32(&c);
	if (c.bad)
		return true;
	if (sp_cur_left(&c) >= SPOOL_COMM_BYTES)
		memcpy(one.waker_comm, sp_cur_bytes(&c, SPOOL_COMM_BYTES), SPOOL_COMM_BYTES);
	if (sp_cur_left(&c) >= 8)
		one.end_ns = sp_cur_u64(&c);
	if (w->n - w->first >= SPOOL_WAITS_MAX)
		drop(w, 1);
	struct spool_wait *slot = SP_PUSH(&w->v, &w->n, &w->cap);
	if (slot)
		*slot = one;
	return slot != NULL;
}

/* Those of earlier samples will not be asked for again; of one moment there are few. */
static bool take(struct spool_waits *w, const struct sp_record *rec, struct spool_wait *out)
{
	size_t at = w->first;
	while (at < w->n && w->v[at].time_ns < rec->time_ns)
		at++;
	drop(w, at - w->first);
	for (at = w->first; at < w->n && w->v[at].time_ns == rec->time_ns; at++) {
		struct spool_wait *p = &w->v[at];
		if (p->tid != rec->tid || p->pid != rec->pid)
			continue;
		*out = *p;
		p->tid = -1; /* a second one of this thread and moment is another sample's */
		return true;
	}
	return false;
}

int spool_waits_join(struct spool_waits *w, struct spool_intern *in, const struct sp_record *rec,
		     struct sp_spool_wsample *out, struct sp_err *err)
{
	struct spool_wait one;
	if (w->first == w->n || !rec->has_time || !rec->has_tid || !take(w, rec, &one))
		return 0;
	const char *comm = one.waker_comm;
	if (!*comm && one.waker_tid)
		comm = sp_procs_comm(in->procs, one.waker_pid, one.waker_tid);
	uint32_t id = sp_spool_put_string(in->w, comm,
					  comm == one.waker_comm ? strnlen(comm, SPOOL_COMM_BYTES)
								 : strlen(comm));
	if (id != SP_NONE)
		id = sp_spool_put_wait(in->w, one.state, one.waker_pid, one.waker_tid, id);
	if (id == SP_NONE)
		return sp_err_nomem(err);
	out->wait = id;
	if (one.end_ns && one.end_ns < one.time_ns)
		out->time_ns = one.end_ns;
	return 0;
}
