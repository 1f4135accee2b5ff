/* Hash tables: u64 keys to u32 values, and byte strings to dense ids. Open addressing, at most
 * three quarters full; keys can be removed, strings cannot. */
#ifndef SP_BASE_TABLE_H
#define SP_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* A good 64-bit mix of one word; of bytes (not stable between versions: never stored). */
static inline uint64_t sp_mix64(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

uint64_t sp_hash(const void *data, size_t len, uint64_t seed);

struct sp_map64_slot {
	uint64_t key;
	uint32_t value; /* value + 1; 0 = free */
};

struct sp_map64 {
	struct sp_map64_slot *slots; /* owned */
	uint32_t n, mask;            /* mask + 1 slots, or none when slots is NULL */
};

#define SP_NOT_FOUND UINT32_MAX

void sp_map64_deinit(struct sp_map64 *m);
void sp_map64_clear(struct sp_map64 *m);
uint32_t sp_map64_get(const struct sp_map64 *m, uint64_t key); /* or SP_NOT_FOUND */
/* Sets key to value (below SP_NOT_FOUND). False when memory ends. */
bool sp_map64_put(struct sp_map64 *m, uint64_t key, uint32_t value);
/* The room is kept, for the next key. */
void sp_map64_remove(struct sp_map64 *m, uint64_t key);

/* Byte strings to dense ids 0, 1, 2, … in order of arrival. */
struct sp_intern {
	struct sp_buf bytes;             /* all strings, each followed by a NUL */
	struct sp_intern_item {
		uint64_t hash;
		size_t at;
		uint32_t len;
	} *items; /* owned, by id */
	size_t n, cap;
	uint32_t *slots; /* owned; id + 1, 0 = free */
	uint32_t mask;
};

void sp_intern_deinit(struct sp_intern *t);
/* The id of the string, added when new (*is_new says so; may be NULL); SP_NOT_FOUND when memory
 * ends. */
uint32_t sp_intern_add(struct sp_intern *t, const void *data, size_t len, bool *is_new);
uint32_t sp_intern_find(const struct sp_intern *t, const void *data, size_t len);
/* The string of an id that was returned; NUL-terminated; valid until the next add. */
const char *sp_intern_get(const struct sp_intern *t, uint32_t id, size_t *len);

#endif
