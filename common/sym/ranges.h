/* Half-open address ranges that may nest and overlap, each with a number: collected, sorted once,
 * then asked which ones hold an address, the latest start first (of equal starts, the one added
 * last first). */
#ifndef SP_SYM_RANGES_H
#define SP_SYM_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_range {
	uint64_t lo, hi;
	uint64_t max_hi; /* of this range and all before it: where walking back may stop */
	uint32_t id;
};

struct sp_ranges {
	struct sp_range *v; /* owned */
	size_t n, cap;
};

void sp_ranges_deinit(struct sp_ranges *r);

/* Empty ranges (hi <= lo) are dropped. False when memory ends. */
bool sp_ranges_add(struct sp_ranges *r, uint64_t lo, uint64_t hi, uint32_t id);

/* Room for n more, when their number is known. False when memory ends. */
bool sp_ranges_reserve(struct sp_ranges *r, size_t n);

/* By start, in order of arrival where starts are equal; O(n). False when memory ends. */
bool sp_ranges_sort(struct sp_ranges *r);

/* How many starts are <= addr. */
size_t sp_ranges_upper(const struct sp_ranges *r, uint64_t addr);

/* An iteration over the ranges that hold addr. It looks at no more than SP_RANGES_WALK ranges, so
 * that a file full of overlaps cannot make every look-up linear. */
#define SP_RANGES_WALK 2048
struct sp_ranges_at {
	const struct sp_ranges *r;
	uint64_t addr;
	size_t at;
	unsigned budget;
};

static inline struct sp_ranges_at sp_ranges_at(const struct sp_ranges *r, uint64_t addr)
{
	return (struct sp_ranges_at){
		.r = r, .addr = addr, .at = sp_ranges_upper(r, addr), .budget = SP_RANGES_WALK};
}

/* The next range, or NULL. */
static inline const struct sp_range *sp_ranges_next(struct sp_ranges_at *i)
{
	while (i->at > 0 && i->budget > 0 && i->r->v[i->at - 1].max_hi > i->addr) {
		const struct sp_range *e = &i->r->v[--i->at];
		i->budget--;
		if (e->hi > i->addr)
			return e;
	}
	return NULL;
}

#endif
