/* Memory that is given out in pieces and freed as a whole; pieces stay where they are. */
#ifndef SP_SYM_ARENA_H
#define SP_SYM_ARENA_H

#include <stddef.h>

struct sp_arena_chunk;

struct sp_arena {
	struct sp_arena_chunk *chunks; /* owned */
	size_t used, size;             /* of the first chunk */
};

void sp_arena_deinit(struct sp_arena *a);
/* n bytes, aligned to `align` (a power of two up to 16), or NULL when memory ends. */
void *sp_arena_take(struct sp_arena *a, size_t n, size_t align);

#endif
