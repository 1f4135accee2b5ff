#include "chain.h"

#include <stdlib.h>

#include "perf/attr.h"

#define BRANCH_BYTES 24u /* from, to, flags */

void spool_chain_deinit(struct spool_chain *c)
{
	free(c->v);
	*c = (struct spool_chain){0};
}

/* The mode of what follows a marker (include/uapi/linux/perf_event.h, enum perf_callchain_context);
 * unknown markers leave it to the address. */
static enum spool_mode mode_of_marker(uint64_t marker, enum spool_mode now)
{
	switch ((int64_t)marker) {
	case -32:   /* HV */
	case -128:  /* KERNEL */
	case -2048: /* GUEST */
	case -2176: /* GUEST_KERNEL */
		return SPOOL_KERNEL;
	case -512: /* USER */
		return SPOOL_USER;
	case -2560: /* GUEST_USER */
		return SPOOL_GUEST;
	default:
		return now;
	}
}

static enum spool_mode mode_of_record(const struct sp_record *rec)
{
	switch (sp_record_cpumode(rec)) {
	case SP_CPUMODE_USER:
		return SPOOL_USER;
	case SP_CPUMODE_KERNEL:
	case SP_CPUMODE_HV:
	case SP_CPUMODE_GUEST_KERNEL:
		return SPOOL_KERNEL;
	case SP_CPUMODE_GUEST_USER:
		return SPOOL_GUEST;
	default:
		return rec->sample.ip >> 63 ? SPOOL_KERNEL : SPOOL_USER;
	}
}

bool spool_chain_has_calls(const struct sp_record *rec)
{
	return rec->event && rec->sample.n_branches &&
	       rec->event->attr.branch_sample_type & SP_BRANCH_CALL_STACK;
}

static uint64_t branch_from(const struct sp_perf_sample *s, uint64_t i)
{
	return sp_get64(s->branches + i * BRANCH_BYTES);
}

static bool is_user_call(uint64_t from)
{
	return from && !(from >> 63);
}

/* Put the calls under way in place of the user part of the chain, if they are more. The hardware
 * keeps calls of user space only; `from` is the call itself, so that nothing is subtracted. */
static bool use_calls(struct spool_chain *c, const struct sp_record *rec)
{
	const struct sp_perf_sample *s = &rec->sample;
	size_t kernel = 0, n = 0;
	while (kernel < c->n && c->v[kernel].mode == SPOOL_KERNEL)
		kernel++;
	for (uint64_t i = 0; i < s->n_branches; i++)
		n += is_user_call(branch_from(s, i));
	if (n == 0 || n + 1 <= c->n - kernel)
		return true;
	if (!sp_grow(&c->v, &c->cap, kernel + n + 1, sizeof *c->v))
		return false;
	if (c->n == kernel) /* no exact leaf: the entry of the innermost function */
		c->v[kernel] =
			(struct spool_entry){.addr = sp_get64(s->branches + 8), .mode = SPOOL_USER};
	c->n = kernel + 1;
	for (uint64_t i = 0; i < s->n_branches; i++) {
		uint64_t from = branch_from(s, i);
		if (is_user_call(from))
			c->v[c->n++] = (struct spool_entry){.addr = from, .mode = SPOOL_USER};
	}
	c->truncated = false;
	return true;
}

bool spool_chain_fill(struct spool_chain *c, const struct sp_record *rec, bool site)
{
	const struct sp_perf_sample *s = &rec->sample;
	size_t n = s->has_chain ? (size_t)s->n_chain : 0;
	c->n = 0;
	c->n_zeros = 0;
	c->truncated = false;
	if (!sp_grow(&c->v, &c->cap, n + 1, sizeof *c->v))
		return false;
	enum spool_mode mode = mode_of_record(rec);
	bool first = true, marked = false;
	for (size_t i = 0; i < n; i++) {
		uint64_t addr = sp_get64(s->chain + i * 8);
		if (addr >= SP_CONTEXT_MAX) {
			mode = mode_of_marker(addr, mode);
			first = marked = true;
			continue;
		}
		bool kernel = mode == SPOOL_KERNEL;
		if (addr == 0) {
			if (site && !kernel && i == n - 1)
				c->truncated = true;
			else
				c->n_zeros++;
			first = false;
			continue;
		}
		if (!marked) /* a chain without contexts: tell them apart by address */
			kernel = addr >> 63;
		bool is_return = !first && (kernel || !site);
		c->v[c->n++] = (struct spool_entry){
			.addr = addr - is_return,
			.mode = !marked && kernel ? SPOOL_KERNEL : mode,
		};
		first = false;
	}
	if (c->n == 0 && s->has_ip && s->ip)
		c->v[c->n++] = (struct spool_entry){.addr = s->ip, .mode = mode_of_record(rec)};
	return spool_chain_has_calls(rec) ? use_calls(c, rec) : true;
}
