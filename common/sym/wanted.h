/* Addresses that are going to be asked, as intervals: which of a file's many ranges matter. */
#ifndef SP_SYM_WANTED_H
#define SP_SYM_WANTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_wanted {
	struct sp_wanted_interval {
		uint64_t first, last; /* both are in it */
	} *v; /* owned */
	size_t n, cap;
	uint32_t *first_in; /* owned: by place, the first interval that ends there or behind */
	unsigned shift;     /* a place is that many bits of addresses */
};

void sp_wanted_deinit(struct sp_wanted *w);

/* False when memory ends, or there are 2^31. */
bool sp_wanted_add(struct sp_wanted *w, uint64_t first, uint64_t last);
/* Once, behind the last add: sorts them and joins those that touch. False when memory ends. */
bool sp_wanted_finish(struct sp_wanted *w);

/* The first interval that ends at addr or behind, w->n when there is none; O(log of those that are
 * near). */
static inline size_t sp_wanted_at(const struct sp_wanted *w, uint64_t addr)
{
	if (!w->n || addr > w->v[w->n - 1].last)
		return w->n;
	if (addr <= w->v[0].last)
		return 0;
	size_t place = (size_t)((addr - w->v[0].last) >> w->shift);
	size_t lo = w->first_in[place], hi = w->first_in[place + 1];
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (w->v[mid].last < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Whether one interval holds all from first to last. */
static inline bool sp_wanted_covers(const struct sp_wanted *w, uint64_t first, uint64_t last)
{
	size_t i = sp_wanted_at(w, first);
	return i < w->n && w->v[i].first <= first && last <= w->v[i].last;
}

#endif
