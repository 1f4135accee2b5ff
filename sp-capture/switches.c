#include "switches.h"

#include <linux/perf_event.h>
#include <string.h>

#include "base/file.h"
#include "bpf/record.h"
#include "emit_inner.h"
#include "events.h"
#include "tasks.h"

/* --- threads that end --- */

static bool is_ended(const struct cap_emit *e, int32_t tid)
{
	for (size_t i = 0; i < CAP_WAITS_ENDED; i++)
		if (e->waits.ended[i] == tid)
			return true;
	return false;
}

void cap_switches_ended(struct cap_emit *e, int32_t tid)
{
	e->waits.ended[e->waits.n_ended++ % CAP_WAITS_ENDED] = tid;
}

void cap_switches_born(struct cap_emit *e, int32_t tid)
{
	for (size_t i = 0; i < CAP_WAITS_ENDED; i++)
		if (e->waits.ended[i] == tid)
			e->waits.ended[i] = 0;
}

/* Whether its waits are wanted. The idle task has none, and the last switch of a thread that ended
 * (a CPU's events tell that) begins none. */
static bool is_wanted(struct cap_emit *e, int32_t pid, int32_t tid, uint64_t time_ns)
{
	return tid > 0 && !is_ended(e, tid) && (!e->wants || e->wants(e->arg, pid, true, time_ns));
}

/* --- away and back --- */

static bool may(struct cap_waits *w, uint64_t time_ns, bool is_long)
{
	uint64_t most = (w->max_per_s << SPB_WINDOW_SHIFT) / 1000000000;
	if (w->window != time_ns >> SPB_WINDOW_SHIFT) {
		w->window = time_ns >> SPB_WINDOW_SHIFT;
		w->n_window = 0;
	}
	if (w->n_window >= (is_long ? most : SPB_FOR_SHORT(most)))
		return false;
	w->n_window++;
	return true;
}

static void switch_out(struct cap_emit *e, int32_t pid, int32_t tid, uint64_t time_ns,
		       bool preempted)
{
	struct cap_waits *w = &e->waits;
	struct cap_wait_slot *slot = cap_waits_slot(w, tid);
	if (!slot)
		return;
	/* One that was found asleep had just gone: it is told now when. */
	if (slot->out_ns && slot->out_ns >= w->since_ns && slot->out_ns != w->asleep_ns) {
		w->counts.n_missed++;
		w->counts.missed_ns += time_ns - slot->out_ns;
	}
	cap_waits_begin(slot, time_ns);
	slot->out_ns = time_ns;
	slot->pid = pid;
	slot->state = preempted ? 0 : SP_WAIT_STATE_UNKNOWN;
}

static void end_wait(struct cap_emit *e, struct cap_wait_slot *slot, uint64_t time_ns, uint32_t cpu,
		     size_t cpu_index, bool is_limited)
{
	struct cap_waits *w = &e->waits;
	uint64_t out = slot->out_ns, ns = time_ns - out;
	slot->out_ns = 0;
	if (out < w->since_ns || out > time_ns)
		return;
	if (out < w->lost_ns) { /* it may have come back and gone again meanwhile */
		w->counts.n_missed++;
		w->counts.missed_ns += ns;
	} else if (ns < w->min_ns) {
		w->counts.n_short++;
		w->counts.short_ns += ns;
	} else if (is_limited && !may(w, time_ns, ns >= SPB_LONG_NS)) {
		w->counts.n_over++;
		w->counts.over_ns += ns;
	} else {
		struct spb_sample s = {.time_ns = time_ns,
				       .pid = (uint32_t)slot->pid,
				       .tid = (uint32_t)slot->tid,
				       .cpu = cpu,
				       .kind = SPB_WAIT,
				       .id = out,
				       .period = ns,
				       .state = slot->state};
		cap_waits_end(e, &s, NULL, cpu_index);
	}
}

void cap_switches_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			 size_t cpu_index)
{
	uint64_t end = en->pos + en->size, task = cap_ring_u64(r, end - SP_SAMPLE_ID_BYTES);
	int32_t pid = (int32_t)task, tid = (int32_t)(task >> 32);
	uint16_t misc = (uint16_t)(cap_ring_u64(r, en->pos) >> 32);
	if (e->n_late && cap_emit_is_copy(e, cap_ring_u64(r, end - 8), tid, cpu_index))
		return;
	if (!is_wanted(e, pid, tid, en->time_ns))
		return;
	if (misc & PERF_RECORD_MISC_SWITCH_OUT) {
		switch_out(e, pid, tid, en->time_ns, misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
		return;
	}
	struct cap_wait_slot *slot = cap_waits_slot(&e->waits, tid);
	if (slot && slot->out_ns)
		end_wait(e, slot, en->time_ns, r->cpu, cpu_index, true);
	if (slot)
		slot->in_ns = en->time_ns;
}

void cap_switches_asleep(struct cap_emit *e, int32_t pid, int32_t tid, uint32_t state,
			 uint64_t since_ns)
{
	struct cap_wait_slot *slot = cap_waits_slot(&e->waits, tid);
	uint64_t last = !slot ? 0 : slot->in_ns > slot->out_ns ? slot->in_ns : slot->out_ns;
	/* What was seen before waits were switched off tells nothing. */
	if (!slot || (last && last >= e->waits.since_ns))
		return;
	slot->out_ns = since_ns;
	slot->pid = pid;
	slot->state = state;
}

/* --- stacks --- */

/* The kernel's chain, less what is of the scheduler: so the kernel has it itself, and BPF from it
 * (kernel/stacktrace.c, stack_trace_save_tsk: in_sched_functions). */
static uint32_t kernel_part(const struct cap_emit *e, const struct cap_ring *r, uint64_t pos,
			    const struct cap_layout *l, uint64_t chain[SPB_MAX_CHAIN])
{
	uint32_t n = 0;
	if (!l->n_chain || cap_ring_u64(r, pos + l->chain) != SP_CONTEXT_KERNEL)
		return 0;
	for (uint64_t i = 1; i < l->n_chain && n < SPB_MAX_CHAIN; i++) {
		uint64_t ip = cap_ring_u64(r, pos + l->chain + i * 8);
		if (ip >= SP_CONTEXT_MAX)
			break;
		if (ip < e->waits.sched_from || ip >= e->waits.sched_to)
			chain[n++] = ip;
	}
	return n;
}

void cap_switches_stack(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	struct cap_layout l;
	if (!cap_sample_layout(r, en->pos, en->size, &l)) {
		sp_count(&e->counters, SP_C_rejected_samples, 1);
		return;
	}
	uint64_t task = cap_ring_u64(r, en->pos + 24);
	int32_t pid = (int32_t)task, tid = (int32_t)(task >> 32);
	struct cap_wait_slot *slot =
		is_wanted(e, pid, tid, en->time_ns) ? cap_waits_slot(&e->waits, tid) : NULL;
	if (!slot)
		return;
	uint64_t chain[SPB_MAX_CHAIN];
	struct spb_sample s = {.time_ns = en->time_ns,
			       .pid = (uint32_t)pid,
			       .tid = (uint32_t)tid,
			       .cpu = r->cpu,
			       .kind = SPB_STACK,
			       .n_kernel = kernel_part(e, r, en->pos, &l, chain)};
	if (l.regs) {
		s.flags = SPB_HAS_REGS | SPB_CLIPPED;
		if (cap_ring_u64(r, en->pos + l.regs - 8) == PERF_SAMPLE_REGS_ABI_32)
			s.flags |= SPB_COMPAT;
		cap_ring_copy(r, en->pos + l.regs, s.regs, sizeof s.regs);
		s.ip = s.regs[CAP_REG_IP];
		s.stack_bytes =
			(uint32_t)(l.copied ? cap_emit_stack_used(e, r, en, &l, s.regs[CAP_REG_SP])
					    : 0);
	}
	uint8_t *to = cap_waits_room(&e->waits, slot, &s);
	if (!to)
		return;
	memcpy(to, chain, s.n_kernel * 8);
	cap_ring_copy(r, en->pos + l.stack, to + s.n_kernel * 8, s.stack_bytes);
}

static bool is_alive(const struct cap_wait_slot *slot)
{
	struct sp_stat st;
	return sp_stat_read(slot->pid, slot->tid, &st) && st.state != 'Z';
}

void cap_switches_unfinished(struct cap_emit *e, uint64_t now_ns)
{
	for (size_t i = 0; i < e->waits.n; i++) {
		struct cap_wait_slot *slot = &e->waits.slots[i];
		if (slot->tid && slot->out_ns && is_alive(slot))
			end_wait(e, slot, now_ns, 0, 0, false);
	}
}
