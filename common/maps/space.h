/* How an address space changes; inside common/maps only. All functions run in the thread that
 * applies records; others may hold and release. */
#ifndef SP_MAPS_SPACE_H
#define SP_MAPS_SPACE_H

#include "maps/procs.h"

struct sp_mapping_list {
	struct sp_mapping *v; /* owned */
	size_t n, cap;
};

/* An empty space with one reference; NULL when memory ends. */
struct sp_space *sp_space_new(uint64_t generation);

/* Put m into *s, splitting what it overlaps. When others hold *s, it is copied first and *s is the
 * copy. 1 changed, 0 it was known already or the space is full, SP_ERR_NOMEM (*s is unchanged).
 * *generations counts versions. replaced: what m overlaps, as it was, when the result is 1. */
int sp_space_insert(struct sp_space **s, const struct sp_mapping *m, uint64_t *generations,
		    struct sp_mapping_list *replaced);

#endif
