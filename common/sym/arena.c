#include "sym/arena.h"

#include <stdlib.h>

#define CHUNK_BYTES (64u << 10)

struct sp_arena_chunk {
	struct sp_arena_chunk *next; /* owned */
	size_t pad;                  /* bytes begin at a multiple of 16 */
	char bytes[];
};

void sp_arena_deinit(struct sp_arena *a)
{
	while (a->chunks) {
		struct sp_arena_chunk *next = a->chunks->next;
		free(a->chunks);
		a->chunks = next;
	}
	*a = (struct sp_arena){0};
}

void *sp_arena_take(struct sp_arena *a, size_t n, size_t align)
{
	size_t at = (a->used + align - 1) & ~(align - 1);
	if (a->chunks && n <= a->size && at <= a->size - n) {
		a->used = at + n;
		return a->chunks->bytes + at;
	}
	size_t size = n > CHUNK_BYTES / 4 ? n : CHUNK_BYTES;
	if (n > (size_t)-1 - sizeof *a->chunks)
		return NULL;
	struct sp_arena_chunk *c = malloc(sizeof *c + size);
	if (!c)
		return NULL;
	if (size == n && a->chunks) { /* a large piece: the present chunk is filled on */
		c->next = a->chunks->next;
		a->chunks->next = c;
		return c->bytes;
	}
	c->next = a->chunks;
	a->chunks = c;
	a->used = n;
	a->size = size;
	return c->bytes;
}
