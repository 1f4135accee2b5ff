#include "chain.h"

#include <stdlib.h>

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
	return true;
}
