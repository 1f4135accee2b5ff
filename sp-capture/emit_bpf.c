/* Samples of the BPF programs as perf records, in the layout that the perf engine's have. */
#include <linux/perf_event.h>
#include <string.h>

#include "base/file.h"
#include "bpf/record.h"
#include "emit.h"
#include "events.h"

_Static_assert(SPB_N_REGS == CAP_N_REGS, "the programs and the attr agree on the registers");

#define SAMPLE_MAX 65528u
#define TAIL_HEAD 24u /* of a stack tail: time, pid, tid, offset */

/* What of a stack is inside the thread's stack; copied: its bytes in the ring. */
static uint64_t used_of(struct cap_emit *e, const struct spb_sample *s)
{
	uint64_t sp = s->regs[CAP_REG_SP];
	if (s->flags & SPB_CLIPPED || !s->stack_bytes)
		return s->stack_bytes;
	return cap_stack_used(
		s->stack_bytes, sp,
		cap_stacks_end(&e->stacks, (int32_t)s->pid, (int32_t)s->tid, sp, s->time_ns));
}

/* The part of a stack that a record has no room for: one object of our own, before its sample. */
static bool emit_tail(struct cap_emit *e, const struct spb_sample *s, const uint8_t *stack,
		      uint64_t at, uint64_t used)
{
	uint8_t head[TAIL_HEAD];
	uint64_t object = ++e->object, total = TAIL_HEAD + used - at;
	sp_put64(head, s->time_ns);
	sp_put32(head + 8, s->pid);
	sp_put32(head + 12, s->tid);
	sp_put64(head + 16, at);
	for (uint64_t done = 0; done < total;) {
		uint64_t n = total - done < SP_EXT_PAYLOAD_MAX ? total - done : SP_EXT_PAYLOAD_MAX;
		uint8_t part[SP_EXT_PAYLOAD_MAX];
		uint64_t before = done < TAIL_HEAD ? TAIL_HEAD - done : 0;
		memcpy(part, head, before);
		memcpy(part + before, stack + at + done + before - TAIL_HEAD, n - before);
		e->scratch.len = 0;
		sp_ext_encode_part(&e->scratch, SP_EXT_STACK_TAIL, object, done, total, part, n);
		uint8_t *p =
			e->scratch.failed ? NULL : cap_output_take(e->out, e->scratch.len, true);
		if (!p)
			return false;
		memcpy(p, e->scratch.data, e->scratch.len);
		done += n;
	}
	return true;
}

static void note_kernel(struct cap_emit *e, const uint8_t *chain, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ip;
		memcpy(&ip, chain + i * 8, 8);
		if (sp_map64_get(&e->kernel_ips, ip) == SP_NOT_FOUND)
			sp_map64_put(&e->kernel_ips, ip, 0);
	}
}

static void put_sample(uint8_t *p, size_t size, const struct spb_sample *s, uint64_t id,
		       const uint8_t *chain, const uint8_t *stack, uint32_t used, uint32_t padded)
{
	uint16_t misc = s->flags & SPB_IN_KERNEL ? PERF_RECORD_MISC_KERNEL : PERF_RECORD_MISC_USER;
	sp_put32(p, PERF_RECORD_SAMPLE);
	sp_put16(p + 4, misc);
	sp_put16(p + 6, (uint16_t)size);
	sp_put64(p + 8, id);
	sp_put64(p + 16, s->ip);
	sp_put32(p + 24, s->pid);
	sp_put32(p + 28, s->tid);
	sp_put64(p + 32, s->time_ns);
	sp_put64(p + 40, s->cpu);
	sp_put64(p + 48, s->period);
	sp_put64(p + 56, s->n_kernel ? s->n_kernel + 1 : 0);
	p += 64;
	if (s->n_kernel) {
		sp_put64(p, PERF_CONTEXT_KERNEL);
		memcpy(p + 8, chain, s->n_kernel * 8);
		p += 8 + s->n_kernel * 8;
	}
	if (s->flags & SPB_HAS_REGS) {
		sp_put64(p,
			 s->flags & SPB_COMPAT ? PERF_SAMPLE_REGS_ABI_32 : PERF_SAMPLE_REGS_ABI_64);
		memcpy(p + 8, s->regs, sizeof s->regs);
		p += 8 + sizeof s->regs;
	} else {
		sp_put64(p, PERF_SAMPLE_REGS_ABI_NONE);
		p += 8;
	}
	sp_put64(p, padded);
	if (!padded)
		return;
	memcpy(p + 8, stack, used);
	memset(p + 8 + used, 0, padded - used);
	sp_put64(p + 8 + padded, used);
}

void cap_emit_parts(struct cap_emit *e, const struct spb_sample *s, const uint8_t *chain,
		    const uint8_t *stack, uint64_t id, size_t cpu_index)
{
	sp_count(&e->counters, SP_C_sample_events, 1);
	if (s->flags & SPB_HAS_REGS)
		cap_emit_check_ip(e, (int32_t)s->pid, s->regs[CAP_REG_IP], s->time_ns);
	if (e->kernel_frames)
		note_kernel(e, chain, s->n_kernel);
	size_t fixed = 64 + (s->n_kernel ? 8 + s->n_kernel * 8 : 0) + 8 +
		       (s->flags & SPB_HAS_REGS ? sizeof s->regs : 0) + 16;
	uint64_t whole = used_of(e, s);
	uint32_t used =
		whole < SAMPLE_MAX - fixed ? (uint32_t)whole : (uint32_t)(SAMPLE_MAX - fixed);
	uint32_t padded = (used + 7) & ~7u;
	size_t size = fixed - 8 + padded + (padded ? 8 : 0);
	uint8_t *p = used < whole && !emit_tail(e, s, stack, used, whole)
			     ? NULL
			     : cap_output_take(e->out, size, true);
	if (!p) {
		cap_emit_lost(e, cpu_index, s->time_ns, s->time_ns, 1);
		e->n_dropped++;
		return;
	}
	put_sample(p, size, s, id, chain, stack, used, padded);
	sp_count(&e->counters, SP_C_samples, 1);
	cap_emit_time(e, s->time_ns);
}

void cap_emit_bpf(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *en,
		  size_t cpu_index)
{
	struct spb_sample s;
	const uint8_t *raw = r->data + (en->pos & (r->size - 1));
	memcpy(&s, raw, sizeof s);
	uint64_t room = en->size - sizeof s;
	r->last_ns = s.time_ns;
	if (s.kind == SPB_ON_CPU && e->n_late &&
	    cap_emit_is_copy(e, s.id, (int32_t)s.tid, cpu_index))
		return;
	if (e->known_only && !cap_procs_find(&e->procs, (int32_t)s.pid))
		return;
	if (s.n_kernel > SPB_MAX_CHAIN || (uint64_t)s.n_kernel * 8 > room ||
	    s.stack_bytes > room - s.n_kernel * 8) {
		sp_count(&e->counters, SP_C_sample_events, 1);
		sp_count(&e->counters, SP_C_rejected_samples, 1);
		return;
	}
	if (e->wants && !e->wants(e->arg, (int32_t)s.pid,
				  s.kind != SPB_ON_CPU || s.flags & SPB_HAS_REGS, s.time_ns))
		return;
	const uint8_t *chain = raw + sizeof s, *stack = chain + s.n_kernel * 8;
	if (s.kind == SPB_WAIT)
		cap_waits_end(e, &s, chain, cpu_index);
	else if (s.kind == SPB_STACK)
		cap_waits_stack(e, &s, chain, cpu_index);
	else
		cap_emit_parts(e, &s, chain, stack, CAP_EVENT_ID, cpu_index);
}
