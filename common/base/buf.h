/* Growing memory: a byte buffer, and arrays that double.
 *
 * A buffer whose allocation failed sets `failed`, drops what follows and stays valid, so that a
 * writer checks once. */
#ifndef SP_BASE_BUF_H
#define SP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sp_buf {
	uint8_t *data; /* owned */
	size_t len, cap;
	bool failed;
};

void sp_buf_deinit(struct sp_buf *b);

/* Room for n more bytes; false (and failed) when there is none. */
bool sp_buf_grow(struct sp_buf *b, size_t n);

static inline bool sp_buf_reserve(struct sp_buf *b, size_t n)
{
	return b->cap - b->len >= n || sp_buf_grow(b, n);
}

static inline void sp_buf_add(struct sp_buf *b, const void *data, size_t n)
{
	if (n && sp_buf_reserve(b, n)) {
		memcpy(b->data + b->len, data, n);
		b->len += n;
	}
}

/* n zero bytes, whose address is returned for filling (NULL when failed). */
uint8_t *sp_buf_zero(struct sp_buf *b, size_t n);

static inline void sp_buf_u8(struct sp_buf *b, uint8_t v)
{
	sp_buf_add(b, &v, 1);
}

static inline void sp_buf_u16(struct sp_buf *b, uint16_t v)
{
	sp_buf_add(b, &v, 2);
}

static inline void sp_buf_u32(struct sp_buf *b, uint32_t v)
{
	sp_buf_add(b, &v, 4);
}

static inline void sp_buf_u64(struct sp_buf *b, uint64_t v)
{
	sp_buf_add(b, &v, 8);
}

static inline void sp_buf_str(struct sp_buf *b, const char *s)
{
	sp_buf_add(b, s, strlen(s));
}

void sp_buf_uleb(struct sp_buf *b, uint64_t v);
void sp_buf_printf(struct sp_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Make *ptr, an array of *cap elements of `size` bytes, hold at least `need`. It doubles, so that
 * appending costs O(1). False when memory ends; the array stays as it was. */
bool sp_grow(void *ptr, size_t *cap, size_t need, size_t size);

/* Gives back what an array, as sp_grow makes it, has beyond n elements. */
void sp_shrink(void *ptr, size_t *cap, size_t n, size_t size);

/* Append one element to an array kept as (T *v; size_t n, cap): SP_PUSH(&x.v, &x.n, &x.cap) gives
 * a pointer to the new, zeroed element, or NULL. */
#define SP_PUSH(v, n, cap)                                                                         \
	(sp_grow((v), (cap), *(n) + 1, sizeof **(v))                                               \
		 ? memset(&(*(v))[(*(n))++], 0, sizeof **(v))                                      \
		 : NULL)

#endif
