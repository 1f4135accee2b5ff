#include "base/counters.h"

#include <string.h>

_Static_assert(SP_N_COUNTERS <= 64, "struct sp_counters.known has 64 bits");

static const char *const names[] = {
#define X(name, text) #name,
	SP_COUNTERS(X)
#undef X
};

static const char *const texts[] = {
#define X(name, text) text,
	SP_COUNTERS(X)
#undef X
};

void sp_counters_add(struct sp_counters *a, const struct sp_counters *b)
{
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		a->v[i] += b->v[i];
	a->known |= b->known;
}

const char *sp_counter_name(enum sp_counter which)
{
	return names[which];
}

const char *sp_counter_text(enum sp_counter which)
{
	return texts[which];
}

enum sp_counter sp_counter_find(const char *name)
{
	unsigned i = 0;
	while (i < SP_N_COUNTERS && strcmp(names[i], name) != 0)
		i++;
	return (enum sp_counter)i;
}
