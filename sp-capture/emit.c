#include "emit.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "emit_inner.h"
#include "events.h"
#include "switches.h"
#include "tasks.h"

#define MAPS_AGAIN_NS UINT64_C(2000000) /* a process's maps at most 500 times a second */
#define ROUND_NS UINT64_C(1000000000)
/* A reader holds back what it has until the next round ends: less than the caches hold. */
#define ROUND_BYTES (UINT64_C(2) << 20)

/* Offsets in ring records (include/uapi/linux/perf_event.h, with our sample type). */
enum {
	AT_ID = 8,
	AT_CHAIN_COUNT = 56,
	AT_CHAIN = 64,
};

int cap_emit_init(struct cap_emit *e, struct cap_output *out, size_t n_cpus, struct sp_err *err)
{
	*e = (struct cap_emit){.out = out, .n_cpus = n_cpus, .n_late_cpus = n_cpus};
	e->losses = calloc(n_cpus, sizeof *e->losses);
	return e->losses ? 0 : sp_err_nomem(err);
}

void cap_emit_deinit(struct cap_emit *e)
{
	cap_procs_deinit(&e->procs);
	cap_stacks_deinit(&e->stacks);
	cap_waits_deinit(&e->waits);
	cap_throttles_deinit(&e->throttles);
	sp_map64_deinit(&e->kernel_ips);
	sp_map64_deinit(&e->names);
	sp_buf_deinit(&e->scratch);
	sp_buf_deinit(&e->text);
	cap_cmdlines_deinit(&e->cmdlines);
	sp_map64_deinit(&e->late_of);
	free(e->late_ids);
	free(e->dead_ids);
	free(e->losses);
}

bool cap_emit_cpu_add(struct cap_emit *e)
{
	size_t cap = e->n_cpus;
	if (!sp_grow(&e->losses, &cap, e->n_cpus + 1, sizeof *e->losses))
		return false;
	e->losses[e->n_cpus] = (struct cap_loss){0};
	return true;
}

uint8_t *cap_emit_take(struct cap_emit *e, size_t size)
{
	uint8_t *p = cap_output_take(e->out, size, false);
	if (!p)
		cap_emit_gap(e, e->now_ns);
	return p;
}

void cap_emit_gap(struct cap_emit *e, uint64_t from_ns)
{
	if (!e->lost_side_band || from_ns < e->sure_ns)
		e->sure_ns = from_ns;
	e->lost_side_band = true;
}

void cap_emit_lost(struct cap_emit *e, size_t cpu_index, uint64_t from_ns, uint64_t to_ns,
		   uint64_t count)
{
	struct cap_loss *l = &e->losses[cpu_index];
	if (!l->count)
		l->from_ns = from_ns;
	l->to_ns = to_ns;
	l->count += count;
	sp_count(&e->counters, SP_C_lost_events, count);
}

void cap_emit_time(struct cap_emit *e, uint64_t time_ns)
{
	if (time_ns < e->now_ns)
		sp_count(&e->counters, SP_C_out_of_order, 1);
	else
		e->now_ns = time_ns;
}

/* --- records of our own --- */

uint8_t *cap_emit_begin(struct cap_emit *e, uint32_t type, uint16_t misc, size_t size)
{
	uint8_t *p = cap_emit_take(e, size);
	if (p) {
		memset(p, 0, size);
		sp_put32(p, type);
		sp_put16(p + 4, misc);
		sp_put16(p + 6, (uint16_t)size);
	}
	return p;
}

bool cap_emit_part(struct cap_emit *e, enum sp_ext_kind kind, uint64_t object, uint64_t at,
		   uint64_t total, const void *part, size_t n)
{
	e->scratch.len = 0;
	sp_ext_encode_part(&e->scratch, kind, object, at, total, part, n);
	uint8_t *p = e->scratch.failed ? NULL : cap_emit_take(e, e->scratch.len);
	if (p)
		memcpy(p, e->scratch.data, e->scratch.len);
	return p != NULL;
}

bool cap_emit_ext(struct cap_emit *e, enum sp_ext_kind kind, const void *payload, size_t size)
{
	uint64_t object = ++e->object;
	size_t at = 0;
	do {
		size_t part = size - at < SP_EXT_PAYLOAD_MAX ? size - at : SP_EXT_PAYLOAD_MAX;
		if (!cap_emit_part(e, kind, object, at, size,
				   part ? (const uint8_t *)payload + at : NULL, part))
			return false;
		at += part;
	} while (at < size);
	return true;
}

bool cap_emit_loss(struct cap_emit *e, uint64_t from_ns, uint64_t to_ns, uint32_t cpu,
		   uint32_t kind, uint64_t count)
{
	uint8_t b[32];
	sp_put64(b, from_ns);
	sp_put64(b + 8, to_ns);
	sp_put32(b + 16, cpu);
	sp_put32(b + 20, kind);
	sp_put64(b + 24, count);
	return cap_emit_ext(e, SP_EXT_LOSS, b, sizeof b);
}

/* --- samples --- */

bool cap_sample_layout(const struct cap_ring *r, uint64_t pos, uint32_t size, struct cap_layout *l)
{
	uint64_t n_chain = cap_ring_u64(r, pos + AT_CHAIN_COUNT);
	uint32_t at = AT_CHAIN;
	if (n_chain > (size - at) / 8)
		return false;
	*l = (struct cap_layout){.n_chain = (uint32_t)n_chain, .chain = at};
	at += (uint32_t)n_chain * 8;
	if (size - at < 8)
		return false;
	uint64_t abi = cap_ring_u64(r, pos + at);
	at += 8;
	if (abi) {
		l->regs = at;
		if (size - at < CAP_N_REGS * 8)
			return false;
		at += CAP_N_REGS * 8;
	}
	if (size - at < 8)
		return false;
	l->stack_size = at;
	uint64_t stack = cap_ring_u64(r, pos + at);
	at += 8;
	l->stack = at;
	if (!stack)
		return at == size;
	if (stack % 8 || stack > size - at || size - at - stack != 8)
		return false;
	l->copied = cap_ring_u64(r, pos + at + stack);
	return l->copied <= stack;
}

void cap_emit_check_ip(struct cap_emit *e, int32_t pid, uint64_t ip, uint64_t time_ns)
{
	if (pid <= 0)
		return;
	struct cap_proc *q = cap_procs_find(&e->procs, pid);
	/* One that has ended since is no newcomer: what the stream knows of it is all there is. */
	if (!q && (!sp_process_exists(pid) || !(q = cap_emit_meet(e, pid, time_ns))))
		return;
	if (!q->sampled) {
		q->sampled = true;
		e->on_sampled(e->arg, q, time_ns);
	}
	struct cap_range *r = cap_proc_find(q, ip);
	if (!r && time_ns - q->maps_ns >= MAPS_AGAIN_NS && cap_proc_try_page(q, ip)) {
		if (e->lost_side_band) /* before its names are the old image's */
			cap_emit_missed_exec(e, q, e->sure_ns, time_ns - 1);
		cap_emit_maps(e, q, time_ns - 1, NULL);
		r = cap_proc_find(q, ip);
	}
	if (r && !r->sampled) {
		r->sampled = true;
		if (r->is_anon && !q->runs_jit && e->on_jit)
			e->on_jit(e->arg, q);
		q->runs_jit |= r->is_anon;
	}
}

static void note_kernel(struct cap_emit *e, const struct cap_ring *r, uint64_t pos,
			const struct cap_layout *l)
{
	bool kernel = false;
	for (uint32_t i = 0; i < l->n_chain; i++) {
		uint64_t ip = cap_ring_u64(r, pos + l->chain + i * 8);
		if (ip >= SP_CONTEXT_MAX)
			kernel = ip == SP_CONTEXT_KERNEL;
		else if (kernel && sp_map64_get(&e->kernel_ips, ip) == SP_NOT_FOUND)
			sp_map64_put(&e->kernel_ips, ip, 0);
	}
}

static bool is_dead(const struct cap_emit *e, uint64_t id)
{
	for (size_t i = 0; i < e->n_dead_ids; i++)
		if (e->dead_ids[i] == id)
			return true;
	return false;
}

void cap_emit_late(struct cap_emit *e, int32_t tid, const uint64_t *ids)
{
	if (!sp_grow(&e->late_ids, &e->cap_late, (e->n_late + 1) * e->n_late_cpus,
		     sizeof *e->late_ids) ||
	    !sp_map64_put(&e->late_of, (uint32_t)tid, (uint32_t)e->n_late))
		return;
	memcpy(e->late_ids + e->n_late * e->n_late_cpus, ids, e->n_late_cpus * sizeof *ids);
	e->n_late++;
}

bool cap_emit_is_copy(struct cap_emit *e, uint64_t id, int32_t tid, size_t cpu_index)
{
	uint32_t at = sp_map64_get(&e->late_of, (uint32_t)tid);
	if (at != SP_NOT_FOUND) {
		/* The BPF engine's, which has CPUs that came later, are all the same. */
		size_t cpu = cpu_index < e->n_late_cpus ? cpu_index : 0;
		uint64_t own = e->late_ids[at * e->n_late_cpus + cpu];
		if (own != id && !is_dead(e, own)) {
			uint64_t *slot = SP_PUSH(&e->dead_ids, &e->n_dead_ids, &e->cap_dead_ids);
			if (slot)
				*slot = own;
			if (e->on_copy)
				e->on_copy(e->arg, tid, cpu_index);
		}
	}
	return is_dead(e, id);
}

uint64_t cap_emit_stack_used(struct cap_emit *e, const struct cap_ring *r,
			     const struct cap_entry *en, const struct cap_layout *l, uint64_t sp)
{
	uint64_t task = cap_ring_u64(r, en->pos + CAP_AT_PID);
	int32_t pid = (int32_t)task, tid = (int32_t)(task >> 32);
	uint64_t end = cap_stacks_end(&e->stacks, pid, tid, sp, en->time_ns);
	uint64_t used = cap_stack_used(l->copied, sp, end);
	struct cap_stack_slot *slot =
		end && sp + used == end ? cap_stacks_top(&e->stacks, tid) : NULL;
	if (slot) {
		uint8_t top[CAP_STACK_TOP];
		size_t n = used < sizeof top ? (size_t)used : sizeof top;
		cap_ring_copy(r, en->pos + l->stack + used - n, top, n);
		cap_stack_top_set(slot, top, n);
		used = cap_stack_used(used, sp, slot->hi);
	}
	return used;
}

static void emit_sample(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			size_t cpu_index)
{
	struct cap_layout l;
	uint64_t used = 0, task = cap_ring_u64(r, en->pos + CAP_AT_PID);
	int32_t pid = (int32_t)task, tid = (int32_t)(task >> 32);
	if (e->n_late && cap_emit_is_copy(e, cap_ring_u64(r, en->pos + AT_ID), tid, cpu_index))
		return;
	bool whole = cap_sample_layout(r, en->pos, en->size, &l);
	if (e->wants && whole && !e->wants(e->arg, pid, l.regs != 0, en->time_ns))
		return;
	sp_count(&e->counters, SP_C_sample_events, 1);
	if (!whole) {
		sp_count(&e->counters, SP_C_rejected_samples, 1);
		return;
	}
	if (l.regs) {
		uint64_t sp = cap_ring_u64(r, en->pos + l.regs + CAP_REG_SP * 8);
		cap_emit_check_ip(e, pid, cap_ring_u64(r, en->pos + l.regs + CAP_REG_IP * 8),
				  en->time_ns);
		if (l.copied)
			used = cap_emit_stack_used(e, r, en, &l, sp);
	}
	if (e->kernel_frames)
		note_kernel(e, r, en->pos, &l);
	uint32_t padded = (uint32_t)(used + 7) & ~7u;
	size_t size = l.stack + padded + (padded ? 8 : 0);
	struct cap_pieces x = {.head = l.stack, .tail = size - l.stack - used};
	cap_ring_pieces(r, en->pos + l.stack, used, x.data, x.n);
	uint8_t *tail, *p = cap_output_gather(e->out, &x, &tail);
	if (!p) {
		cap_emit_lost(e, cpu_index, en->time_ns, en->time_ns, 1);
		e->n_dropped++;
		return;
	}
	cap_ring_copy(r, en->pos, p, l.stack_size);
	sp_put16(p + 6, (uint16_t)size);
	sp_put64(p + AT_ID, CAP_EVENT_ID);
	sp_put64(p + l.stack_size, padded);
	if (padded) {
		memset(tail, 0, padded - used);
		sp_put64(tail + padded - used, used);
	}
	sp_count(&e->counters, SP_C_samples, 1);
}

/* --- side-band --- */

const uint8_t *cap_emit_pass(struct cap_emit *e, const struct cap_ring *r,
			     const struct cap_entry *en)
{
	uint8_t *p = cap_emit_take(e, en->size);
	if (p) {
		cap_ring_copy(r, en->pos, p, en->size);
		sp_put64(p + en->size - 8, CAP_EVENT_ID);
	}
	return p;
}

/* A loss record for what is not told yet; it stays so when there is no room. */
static void tell_losses(struct cap_emit *e, const struct cap_ring *r, size_t cpu_index)
{
	struct cap_loss *l = &e->losses[cpu_index];
	if (l->count && cap_emit_loss(e, l->from_ns, l->to_ns, r->cpu, 0, l->count))
		l->count = 0;
}

static void emit_lost(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *en,
		      size_t cpu_index)
{
	uint64_t count = cap_ring_u64(r, en->pos + 16);
	if (e->all_side_band) { /* anybody's; no sample is among it */
		r->lost += count;
		cap_emit_gap(e, r->last_ns);
		return;
	}
	uint8_t *p = cap_emit_take(e, en->size);
	if (p) {
		cap_ring_copy(r, en->pos, p, en->size);
		sp_put64(p + 8, CAP_EVENT_ID);
		sp_put64(p + en->size - 8, CAP_EVENT_ID);
	}
	r->lost += count;
	if (!r->of_switches) {
		cap_emit_gap(e, r->last_ns);
		e->waits.lost_ns = en->time_ns;
	}
	cap_emit_lost(e, cpu_index, r->last_ns, en->time_ns, count);
	tell_losses(e, r, cpu_index);
}

/* The least size at which a record's fields are all there. */
static uint32_t least_size(uint32_t type)
{
	switch (type) {
	case PERF_RECORD_MMAP2:
		return CAP_AT_MMAP2_PATH + 8 + SP_SAMPLE_ID_BYTES;
	case PERF_RECORD_COMM:
	case PERF_RECORD_LOST:
		return 24 + SP_SAMPLE_ID_BYTES;
	case PERF_RECORD_SWITCH_CPU_WIDE:
		return 16 + SP_SAMPLE_ID_BYTES;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		return 32 + SP_SAMPLE_ID_BYTES;
	default:
		return 0;
	}
}

/* A record of a process that nobody asked for. */
static bool is_stranger(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	uint64_t at = en->type == PERF_RECORD_SAMPLE ? CAP_AT_PID : en->size - SP_SAMPLE_ID_BYTES;
	return !cap_procs_find(&e->procs, (int32_t)cap_ring_u64(r, en->pos + at));
}

void cap_emit_record(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *en,
		     size_t cpu_index)
{
	if (en->size < least_size(en->type)) {
		sp_count(&e->counters, SP_C_skipped_records, 1);
		return;
	}
	if ((e->known_only || e->all_side_band) && en->type != PERF_RECORD_LOST &&
	    is_stranger(e, r, en)) {
		r->last_ns = en->time_ns;
		return;
	}
	switch (en->type) {
	case PERF_RECORD_SAMPLE:
		if (r->of_switches)
			cap_switches_stack(e, r, en);
		else
			emit_sample(e, r, en, cpu_index);
		break;
	case PERF_RECORD_SWITCH:
	case PERF_RECORD_SWITCH_CPU_WIDE:
		cap_switches_record(e, r, en, cpu_index);
		break;
	case PERF_RECORD_MMAP2:
		cap_emit_mmap2_record(e, r, en);
		break;
	case PERF_RECORD_COMM:
		cap_emit_comm_record(e, r, en, (uint16_t)(cap_ring_u64(r, en->pos) >> 32));
		break;
	case PERF_RECORD_FORK:
		cap_emit_fork(e, r, en);
		break;
	case PERF_RECORD_EXIT:
		cap_emit_exit(e, r, en);
		break;
	case PERF_RECORD_LOST:
		emit_lost(e, r, en, cpu_index);
		break;
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		cap_throttles_record(e, r, en);
		break;
	default:
		cap_emit_pass(e, r, en);
		break;
	}
	cap_emit_time(e, en->time_ns);
	r->last_ns = en->time_ns;
}

void cap_emit_round(struct cap_emit *e, const struct cap_ring *rings, bool always)
{
	uint64_t bytes = cap_output_bytes(e->out);
	if (!always && e->now_ns - e->round_ns < ROUND_NS && bytes - e->round_bytes < ROUND_BYTES)
		return;
	for (size_t i = 0; i < e->n_cpus; i++)
		tell_losses(e, &rings[i], i);
	if (cap_emit_begin(e, SP_PERF_FINISHED_ROUND, 0, 8)) {
		e->round_ns = e->now_ns;
		e->round_bytes = bytes;
	}
}
