#include "throttles.h"

#include <linux/perf_event.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/le.h"
#include "emit_inner.h"

/* Offsets in the record (include/uapi/linux/perf_event.h). */
enum { AT_ID = 16, AT_STREAM_ID = 24 };

void cap_throttles_deinit(struct cap_throttles *t)
{
	free(t->now);
	*t = (struct cap_throttles){0};
}

/* One period is over: into the stream. */
static void take_out(struct cap_emit *e, size_t at, uint64_t time_ns)
{
	struct cap_throttles *t = &e->throttles;
	struct cap_throttled x = t->now[at];
	t->now[at] = t->now[--t->n];
	if (time_ns < x.from_ns)
		time_ns = x.from_ns;
	t->total_ns += time_ns - x.from_ns;
	cap_emit_loss(e, x.from_ns, time_ns, x.cpu, 1, 1);
}

static void end_event(struct cap_emit *e, uint64_t stream_id, uint64_t time_ns)
{
	for (size_t i = 0; i < e->throttles.n; i++) {
		if (e->throttles.now[i].stream_id != stream_id)
			continue;
		take_out(e, i, time_ns);
		return;
	}
}

static void begin_event(struct cap_emit *e, const struct cap_throttled *x)
{
	struct cap_throttles *t = &e->throttles;
	sp_count(&e->counters, SP_C_throttled, 1);
	struct cap_throttled *slot = SP_PUSH(&t->now, &t->n, &t->cap);
	if (slot)
		*slot = *x;
}

void cap_throttles_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	uint64_t stream_id = cap_ring_u64(r, en->pos + AT_STREAM_ID);
	uint64_t task = cap_ring_u64(r, en->pos + en->size - SP_SAMPLE_ID_BYTES);
	uint8_t *p = cap_emit_take(e, en->size);
	if (p) {
		cap_ring_copy(r, en->pos, p, en->size);
		sp_put64(p + AT_ID, CAP_EVENT_ID);
		sp_put64(p + AT_STREAM_ID, CAP_EVENT_ID);
		sp_put64(p + en->size - 8, CAP_EVENT_ID);
	}
	end_event(e, stream_id, en->time_ns);
	if (en->type == PERF_RECORD_UNTHROTTLE)
		return;
	struct cap_throttled x = {.stream_id = stream_id,
				  .from_ns = en->time_ns,
				  .cpu = r->cpu,
				  .tid = e->wants ? 0 : (int32_t)(task >> 32)};
	begin_event(e, &x);
}

void cap_throttles_limit(struct cap_emit *e, const uint32_t *cpus, size_t n, bool is_below,
			 uint64_t time_ns)
{
	if (is_below == (e->throttles.n > 0))
		return;
	if (!is_below)
		cap_throttles_end(e, time_ns);
	for (size_t i = 0; is_below && i < n; i++) {
		struct cap_throttled x = {.from_ns = time_ns, .cpu = cpus[i]};
		begin_event(e, &x);
	}
}

void cap_throttles_ended(struct cap_emit *e, int32_t tid, uint64_t time_ns)
{
	for (size_t i = e->throttles.n; i > 0; i--)
		if (e->throttles.now[i - 1].tid == tid)
			take_out(e, i - 1, time_ns);
}

void cap_throttles_end(struct cap_emit *e, uint64_t time_ns)
{
	while (e->throttles.n)
		take_out(e, e->throttles.n - 1, time_ns);
}
