#include "wait.h"

static bool is_off(const struct view *v, const struct view_row *row)
{
	return row->wait || view_is_offcpu(sp_spool_event(v->spool, row->event));
}

const char *wait_state(const struct view *v, const struct view_row *row)
{
	if (!is_off(v, row))
		return "on CPU";
	return row->wait ? sp_spool_wait_state(sp_spool_wait(v->spool, row->wait).state)
			 : "unknown";
}

const char *wait_comm(const struct sp_spool_wait *w)
{
	return *w->waker_comm ? w->waker_comm : "?";
}

const char *wait_waker(const struct view *v, const struct view_row *row)
{
	if (!is_off(v, row))
		return "[on CPU]";
	struct sp_spool_wait w = sp_spool_wait(v->spool, row->wait);
	if (w.waker_tid)
		return wait_comm(&w);
	if (!row->wait || w.state == UINT32_MAX)
		return "[unknown]";
	return w.state ? "[interrupt]" : "[nobody]";
}
