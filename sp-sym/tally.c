#define _GNU_SOURCE
#include "tally.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20)

/* All free. A large one lies in huge pages where the kernel has them for who asks: each sample is
 * another place of it, and the walk through the page tables costs more than the slot. */
static struct tally_slot *new_slots(size_t n)
{
	size_t size = n * sizeof(struct tally_slot);
	if (size < 2 * HUGE_PAGE)
		return calloc(n, sizeof(struct tally_slot));
	size = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	struct tally_slot *slots = aligned_alloc(HUGE_PAGE, size);
	if (slots) {
		madvise(slots, size, MADV_HUGEPAGE); /* a wish: without it all works as well */
		memset(slots, 0, size);
	}
	return slots;
}

void tally_deinit(struct tally *t)
{
	free(t->slots);
	*t = (struct tally){0};
}

static struct tally_slot *place(const struct tally *t, uint64_t key)
{
	size_t i = sp_mix64(key) & t->mask;
	while (t->slots[i].row && t->slots[i].key != key)
		i = (i + 1) & t->mask;
	return &t->slots[i];
}

struct tally_slot *tally_find(const struct tally *t, uint64_t key)
{
	struct tally_slot *s = t->slots ? place(t, key) : NULL;
	return s && s->row ? s : NULL;
}

static bool grow(struct tally *t)
{
	size_t size = t->slots ? (t->mask + 1) * 2 : 256;
	struct tally bigger = {new_slots(size), t->n, size - 1};
	if (!bigger.slots)
		return false;
	for (size_t i = 0; t->slots && i <= t->mask; i++)
		if (t->slots[i].row)
			*place(&bigger, t->slots[i].key) = t->slots[i];
	free(t->slots);
	*t = bigger;
	return true;
}

struct tally_slot *tally_add(struct tally *t, uint64_t key, uint32_t row)
{
	if ((!t->slots || t->n * 4 >= (t->mask + 1) * 3) && !grow(t))
		return NULL;
	struct tally_slot *s = place(t, key);
	*s = (struct tally_slot){.key = key, .row = row + 1};
	t->n++;
	return s;
}
