/* Strings that stay where they are until the pool ends, each kept once: equal bytes, equal
 * pointers. Not thread-safe. */
#ifndef SP_SYM_STRPOOL_H
#define SP_SYM_STRPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "sym/arena.h"

struct sp_strpool {
	struct sp_arena bytes;
	const char **slots; /* owned; open addressing */
	uint64_t *hashes;   /* owned; parallel to slots */
	size_t n, mask;
};

void sp_strpool_deinit(struct sp_strpool *p);

/* The pool's copy of len bytes, NUL-terminated (bytes that hold a NUL compare by what comes before
 * it); NULL when memory ends. */
const char *sp_strpool_add(struct sp_strpool *p, const char *s, size_t len);

#endif
