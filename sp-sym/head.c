#include "head.h"

#include "base/counters.h"
#include "counts.h"

void head_write(struct view *v, struct out *o, const struct term *t)
{
	const struct sp_counters *c = sp_spool_counters(v->spool);
	size_t n_events = sp_spool_n_events(v->spool), shown = 0;
	struct count_summary s = counts_summary(v);
	char buf[24];
	out_printf(o, "%s%llu samples%s of ", term_bold(t), (unsigned long long)v->n_samples,
		   term_end(t));
	for (size_t i = 0; i < n_events; i++) {
		if (!v->event_shown[i])
			continue;
		out_str(o, shown++ ? ", " : "");
		out_text(o, sp_spool_event(v->spool, (uint32_t)i)->name, 0);
	}
	if (!shown)
		out_str(o, "no event");
	if (view_weight_is_time(v) && v->weight)
		out_printf(o, " (%s)", term_duration(buf, v->weight));
	out_printf(o, " in %zu process%s, %zu thread%s over %s", s.n_processes,
		   s.n_processes == 1 ? "" : "es", s.n_threads, s.n_threads == 1 ? "" : "s",
		   term_duration(buf, v->last_ns - v->first_ns));
	if (c && c->v[SP_C_lost_events])
		out_printf(o, "; %llu lost", (unsigned long long)c->v[SP_C_lost_events]);
	if (s.n_truncated)
		out_printf(o, "; %.1f %% of the stacks cut before their root",
			   view_percent(s.n_truncated, v->n_samples));
	out_str(o, "\n");
}
