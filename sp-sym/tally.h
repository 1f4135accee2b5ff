/* Samples by (stack, lane), counted where they are found: the loop over all samples touches one
 * cache line of a large table, not two. */
#ifndef SYM_TALLY_H
#define SYM_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/table.h"

struct tally_slot {
	uint64_t key, weight;
	uint32_t n;
	uint32_t row; /* row + 1; 0 = free */
};

struct tally {
	struct tally_slot *slots; /* owned */
	size_t n, mask;           /* mask + 1 slots, or none when slots is NULL */
};

void tally_deinit(struct tally *t);
/* Where the slot of that key is sought first, to prefetch it. (A function that prefetches itself is
 * taken for one without effect, and dropped, by gcc 12.) */
static inline const void *tally_place(const struct tally *t, uint64_t key)
{
	return t->slots ? &t->slots[sp_mix64(key) & t->mask] : NULL;
}

/* The slot of that key, or NULL. */
struct tally_slot *tally_find(const struct tally *t, uint64_t key);
/* A new one, for a key that is not there; NULL when memory ends. */
struct tally_slot *tally_add(struct tally *t, uint64_t key, uint32_t row);

#endif
