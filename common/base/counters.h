/* Counting (stackpulse/counters.h has the list and the type). */
#ifndef SP_BASE_COUNTERS_H
#define SP_BASE_COUNTERS_H

#include "stackpulse/counters.h"

static inline void sp_count(struct sp_counters *c, enum sp_counter which, uint64_t n)
{
	c->v[which] += n;
	c->known |= UINT64_C(1) << which;
}

/* Add all of b to a. */
void sp_counters_add(struct sp_counters *a, const struct sp_counters *b);

#endif
