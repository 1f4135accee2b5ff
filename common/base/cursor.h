/* A bounds-checked reader over (pointer, length). The first read past the end sets `bad`, and from
 * then on every read gives 0: parse a whole structure, then test `bad` once. */
#ifndef SP_BASE_CURSOR_H
#define SP_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sp_cursor {
	const uint8_t *p, *end; /* borrowed */
	bool bad;
	bool swap; /* multi-byte integers are in the other byte order */
};

static inline struct sp_cursor sp_cursor(const void *data, size_t len)
{
	/* Nothing is no address to count from, not even by 0. */
	const uint8_t *p = data ? data : (const uint8_t *)"";
	return (struct sp_cursor){.p = p, .end = p + (data ? len : 0)};
}

static inline size_t sp_cur_left(const struct sp_cursor *c)
{
	return (size_t)(c->end - c->p);
}

/* n bytes in place, or NULL (and bad). */
static inline const uint8_t *sp_cur_bytes(struct sp_cursor *c, uint64_t n)
{
	if (c->bad || n > sp_cur_left(c)) {
		c->bad = true;
		return NULL;
	}
	const uint8_t *p = c->p;
	c->p += n;
	return p;
}

static inline void sp_cur_skip(struct sp_cursor *c, uint64_t n)
{
	(void)sp_cur_bytes(c, n);
}

static inline uint8_t sp_cur_u8(struct sp_cursor *c)
{
	const uint8_t *p = sp_cur_bytes(c, 1);
	return p ? *p : 0;
}

static inline uint16_t sp_cur_u16(struct sp_cursor *c)
{
	const uint8_t *p = sp_cur_bytes(c, 2);
	uint16_t v = 0;
	if (p)
		memcpy(&v, p, 2);
	return c->swap ? __builtin_bswap16(v) : v;
}

static inline uint32_t sp_cur_u32(struct sp_cursor *c)
{
	const uint8_t *p = sp_cur_bytes(c, 4);
	uint32_t v = 0;
	if (p)
		memcpy(&v, p, 4);
	return c->swap ? __builtin_bswap32(v) : v;
}

static inline uint64_t sp_cur_u64(struct sp_cursor *c)
{
	const uint8_t *p = sp_cur_bytes(c, 8);
	uint64_t v = 0;
	if (p)
		memcpy(&v, p, 8);
	return c->swap ? __builtin_bswap64(v) : v;
}

/* An unsigned or signed integer of 1, 2, 4 or 8 bytes. */
uint64_t sp_cur_uint(struct sp_cursor *c, unsigned size);

/* LEB128 of at most 10 bytes; a longer one, or one that loses bits, is bad. */
uint64_t sp_cur_uleb_slow(struct sp_cursor *c);
int64_t sp_cur_sleb(struct sp_cursor *c);

static inline uint64_t sp_cur_uleb(struct sp_cursor *c)
{
	if (!c->bad && c->p < c->end && !(*c->p & 0x80))
		return *c->p++;
	return sp_cur_uleb_slow(c);
}

/* A NUL-terminated string in place, or NULL (and bad) when no NUL comes before the end. */
const char *sp_cur_str(struct sp_cursor *c);

#endif
