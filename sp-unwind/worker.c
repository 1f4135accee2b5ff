#include "worker.h"

#include <stdlib.h>
#include <string.h>

void un_stops_deinit(struct un_stops *s)
{
	sp_map64_deinit(&s->by_tag);
	free(s->rows);
	*s = (struct un_stops){0};
}

/* Statistics only: when memory ends, the file's row is missing, the sum holds. */
static void count_stop(struct un_stops *s, uint32_t tag, enum uw_stop stop, uint64_t n)
{
	s->n[stop] += n;
	if (stop == UW_END)
		return;
	uint32_t i = sp_map64_get(&s->by_tag, tag);
	if (i == SP_NOT_FOUND) {
		i = (uint32_t)s->n_rows;
		struct un_stop_row *row = SP_PUSH(&s->rows, &s->n_rows, &s->cap_rows);
		if (!row)
			return;
		if (!sp_map64_put(&s->by_tag, tag, i)) {
			s->n_rows--;
			return;
		}
		row->tag = tag;
	}
	s->rows[i].n[stop] += n;
}

void un_stops_merge(struct un_stops *into, const struct un_stops *from)
{
	into->n[UW_END] += from->n[UW_END];
	for (size_t i = 0; i < from->n_rows; i++)
		for (unsigned k = 0; k < UW_N_STOPS; k++)
			if (from->rows[i].n[k])
				count_stop(into, from->rows[i].tag, (enum uw_stop)k,
					   from->rows[i].n[k]);
}

bool un_worker_init(struct un_worker *w)
{
	memset(w, 0, offsetof(struct un_worker, stack)); /* the others: as each sample needs them */
	w->walker = uw_walker_new();
	return w->walker != NULL;
}

void un_worker_deinit(struct un_worker *w)
{
	uw_walker_free(w->walker);
	un_stops_deinit(&w->stops);
}

static const enum sp_counter stop_counters[UW_N_STOPS] = {
	[UW_NO_REGS] = SP_C_user_registers_missing,
	[UW_BAD_REGS] = SP_C_native_register_capture,
	[UW_NO_STACK] = SP_C_native_stack_read,
	[UW_STACK_EXHAUSTED] = SP_C_native_stack_truncated,
	[UW_NO_MODULE] = SP_C_no_module_stops,
	[UW_NO_CFI] = SP_C_no_cfi_stops,
	[UW_BAD_CFA] = SP_C_bad_cfa_stops,
	[UW_LOOP] = SP_C_did_not_advance,
	[UW_BACKWARDS] = SP_C_moved_backwards,
	[UW_NULL_RETURN] = SP_C_return_address_null,
	[UW_OVERFLOW] = SP_C_integer_overflow,
	[UW_DEPTH] = SP_C_depth_stops,
};

static uint32_t count_of(const uint64_t *v, uint32_t n, uint64_t x)
{
	uint32_t k = 0;
	for (uint32_t i = 0; i < n; i++)
		k += v[i] == x;
	return k;
}

/* Where the kernel's frame-pointer chain goes on below the last address common to both: its index,
 * or n_user. In recursion the same address stands often: the same turn of it is meant. */
static uint32_t splice_at(const struct uw_stack *s, const struct un_chain *c)
{
	for (uint32_t i = s->n; i-- > 0;) {
		uint64_t addr = s->return_addrs[i];
		uint32_t in_chain = count_of(c->user, c->n_user, addr);
		if (!in_chain)
			continue;
		uint32_t turn = count_of(s->return_addrs, i + 1, addr);
		uint32_t seen = 0;
		for (uint32_t j = 0; j < c->n_user; j++)
			if (c->user[j] == addr && ++seen == (turn < in_chain ? turn : in_chain))
				return j + 1;
	}
	return s->n ? c->n_user : 0; /* no frame at all: the whole chain */
}

/* One frame for a sample without any: where it was. */
static void add_ip(struct un_chain *c, const struct sp_record *rec, struct un_user_chain *user)
{
	unsigned mode = sp_record_cpumode(rec);
	if (!rec->sample.has_ip)
		return;
	if (mode == SP_CPUMODE_USER) {
		c->user[0] = rec->sample.ip;
		c->n_user = 1;
		user->tail = c->user;
		user->n_tail = 1;
	} else if (mode == SP_CPUMODE_KERNEL || mode == SP_CPUMODE_HV) {
		c->kernel[0] = mode == SP_CPUMODE_HV ? SP_CONTEXT_HV : SP_CONTEXT_KERNEL;
		c->kernel[1] = rec->sample.ip;
		c->n_kernel = 2;
	}
}

static void put_sample(struct un_worker *w, struct un_batch *b, const struct sp_record *rec,
		       const struct un_user_chain *user)
{
	if (!sp_buf_reserve(&b->out, UN_SAMPLE_MAX))
		return;
	uint32_t size = un_sample_encode(b->out.data + b->out.len, rec, &w->chain, user);
	b->out.len += size;
	if (!size)
		sp_count(&w->counters, SP_C_rejected_samples, 1);
	if (user->cut)
		sp_count(&w->counters, SP_C_truncated_frame_markers, 1);
}

static void convert(struct un_worker *w, struct un_batch *b, const struct sp_record *rec)
{
	struct un_chain *c = &w->chain;
	bool unwinds = un_attr_unwinds(&rec->event->attr);
	struct un_user_chain user = {.tail = c->user};
	un_chain_parse(c, rec->sample.chain, rec->sample.n_chain, sp_record_cpumode(rec));
	user.n_tail = c->n_user;
	/* Kernel threads have no user side; a user task without registers stops at once. */
	if (unwinds && sp_record_cpumode(rec) == SP_CPUMODE_USER) {
		sp_count(&w->counters, SP_C_user_registers_missing, 1);
		user.cut = !c->n_user;
	}
	if (unwinds && !c->n_kernel && !c->n_user)
		add_ip(c, rec, &user);
	put_sample(w, b, rec, &user);
}

static struct uw_sample sample_of(const struct un_worker *w, const struct sp_record *rec,
				  const struct uw_space *space)
{
	struct uw_sample s = {
		.machine = w->machine,
		.regs_mask = rec->event->attr.sample_regs_user,
		.regs = rec->sample.regs,
		.regs_abi = rec->sample.regs_abi,
		.stack = rec->sample.stack,
		.stack_bytes = rec->sample.stack_bytes,
		.space = space,
		.thread = (uint64_t)(uint32_t)rec->tid + 1,
	};
	if (rec->sample.stack_here) {
		s.stack_here = rec->sample.stack_here;
		sp_sample_far(&rec->sample, &s.stack_fd, &s.stack_foff);
	}
	return s;
}

static void walk(struct un_worker *w, struct un_batch *b, const struct sp_record *rec,
		 const struct uw_space *space)
{
	struct un_chain *c = &w->chain;
	struct uw_stack *s = &w->stack;
	const struct uw_sample sample = sample_of(w, rec, space);
	un_chain_parse(c, rec->sample.chain, rec->sample.n_chain, sp_record_cpumode(rec));
	uw_walk(w->walker, &sample, s);
	count_stop(&w->stops, s->stop_map ? s->stop_map->tag : UINT32_MAX, s->stop, 1);

	struct un_user_chain user = {
		.addrs = s->addrs, .n = s->n, .cut = s->stop != UW_END && s->stop != UW_GUESSED};
	if (c->n_user && user.cut) {
		uint32_t at = splice_at(s, c);
		user.tail = c->user + at;
		user.n_tail = c->n_user - at;
		if (user.n_tail)
			sp_count(&w->counters, SP_C_spliced_samples, 1);
	}
	if (c->n_user > user.n_tail)
		sp_count(&w->counters, SP_C_ignored_user_callchain_frames, c->n_user - user.n_tail);
	if (user.cut)
		sp_count(&w->counters, stop_counters[s->stop], 1);
	/* Without a kernel chain by the attr, the place in the kernel would be lost. */
	bool kernel_ip =
		!c->n_kernel && !rec->sample.has_chain && sp_record_cpumode(rec) != SP_CPUMODE_USER;
	if (kernel_ip || (!user.n && !user.n_tail && !c->n_kernel))
		add_ip(c, rec, &user);
	put_sample(w, b, rec, &user);
}

struct un_batch *un_batch_new(void)
{
	struct un_batch *b = aligned_alloc(_Alignof(struct un_batch), sizeof *b);
	if (!b)
		return NULL;
	memset(b, 0, offsetof(struct un_batch, items)); /* the others: when they are used */
	(void)sp_buf_reserve(&b->out, UN_BATCH_OUT);    /* pages of its own: to grow moves no bytes */
	return b;
}

void un_batch_free(struct un_batch *b)
{
	if (!b)
		return;
	un_batch_release(b);
	sp_buf_deinit(&b->out);
	free(b);
}

void un_batch_release(struct un_batch *b)
{
	for (uint32_t i = 0; i < b->n_chunks; i++)
		sp_chunk_release(b->chunks[i]);
	for (uint32_t i = 0; i < b->n_spaces; i++)
		sp_space_release(b->spaces[i]);
	for (uint32_t i = 0; i < b->n_stacks; i++)
		free(b->stacks[i].data);
	b->n = b->n_chunks = b->n_spaces = b->n_stacks = 0;
	b->bytes = 0;
}

/* Samples lie in memory that this thread has not touched, and is slow to come: the lines that
 * decoding reads are asked for some samples ahead, then the stack's, whose place they tell. */
#define RAW_AHEAD 8u
#define STACK_AHEAD 2u
#define LINES_AHEAD 5u /* of a record's begin: perf's registers end there */

/* Each sample has pages of its own, which no TLB has. Of such a page a prefetch for writing asks
 * for the line all the same; the one for reading does not (Zen 4: 5 % of all CPU time). */
static inline void prefetch_far(const uint8_t *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*p));
#else
	__builtin_prefetch(p);
#endif
}

static void ask(const struct sp_late *late)
{
	for (uint32_t i = 0; i < LINES_AHEAD; i++)
		prefetch_far(late->raw + 64 * i);
	prefetch_far(late->raw + late->size - 16); /* a stack's used size */
}

static bool walks(const struct un_item *item, const struct sp_record *rec)
{
	return item->space && !rec->malformed && rec->sample.regs && rec->sample.regs_abi;
}

static struct sp_record *ahead_of(struct un_worker *w, uint32_t i)
{
	return &w->ahead[i % (UN_DECODED_AHEAD + 1)];
}

/* Item i is decoded; how far what is before it has come is told by where the loop is. */
static void decode(struct un_worker *w, struct un_batch *b, uint32_t i)
{
	const struct un_item *item = &b->items[i];
	if (i + RAW_AHEAD < b->n && b->items[i + RAW_AHEAD].action != UN_PASS)
		ask(&b->items[i + RAW_AHEAD].late);
	if (item->action != UN_PASS)
		sp_late_decode(ahead_of(w, i), &item->late);
}

static void look_ahead(struct un_worker *w, const struct un_batch *b, uint32_t i)
{
	const struct un_item *item = &b->items[i];
	if (item->action == UN_PASS || !walks(item, ahead_of(w, i)))
		return;
	const struct uw_sample next = sample_of(w, ahead_of(w, i), item->space);
	uw_walk_ahead(w->walker, &next);
}

static void run_sample(struct un_worker *w, struct un_batch *b, const struct un_item *item,
		       struct sp_record *rec, const struct un_joined *joined)
{
	if (rec->malformed) {
		sp_count(&w->counters, SP_C_rejected_samples, 1);
		if (!b->bad.raw)
			b->bad = item->late;
		return;
	}
	w->had_chains |= rec->sample.n_chain > 0;
	if (joined) {
		rec->sample.stack = joined->data;
		rec->sample.stack_bytes = joined->size;
		rec->sample.stack_here = 0;
	}
	bool unwinds = un_attr_unwinds(&rec->event->attr);
	if (walks(item, rec))
		walk(w, b, rec, item->space);
	else if (unwinds || (item->action == UN_CHAIN && rec->sample.has_chain))
		convert(w, b, rec);
	else
		sp_buf_add(&b->out, rec->raw, rec->size);
}

void un_worker_run(struct un_worker *w, struct un_batch *b)
{
	const struct un_joined *joined = b->stacks;
	b->bad.raw = NULL;
	for (uint32_t i = 0; i < RAW_AHEAD && i < b->n; i++)
		if (b->items[i].action != UN_PASS)
			ask(&b->items[i].late);
	for (uint32_t i = 0; i < UN_DECODED_AHEAD && i < b->n; i++)
		decode(w, b, i);
	for (uint32_t i = 0; i < b->n; i++) {
		const struct un_item *item = &b->items[i];
		if (i + UN_DECODED_AHEAD < b->n)
			decode(w, b, i + UN_DECODED_AHEAD);
		if (i + STACK_AHEAD < b->n)
			look_ahead(w, b, i + STACK_AHEAD);
		if (item->action == UN_PASS)
			sp_buf_add(&b->out, item->late.raw, item->late.size);
		else
			run_sample(w, b, item, ahead_of(w, i), item->is_joined ? joined++ : NULL);
	}
	un_batch_release(b);
}
