#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void sp_buf_deinit(struct sp_buf *b)
{
	free(b->data);
	*b = (struct sp_buf){0};
}

bool sp_buf_grow(struct sp_buf *b, size_t n)
{
	if (b->failed || n > SIZE_MAX / 2 - b->len ||
	    !sp_grow(&b->data, &b->cap, b->len + n, 1)) {
		b->failed = true;
		return false;
	}
	return true;
}

uint8_t *sp_buf_zero(struct sp_buf *b, size_t n)
{
	if (!sp_buf_reserve(b, n))
		return NULL;
	uint8_t *p = b->data + b->len;
	if (n)
		memset(p, 0, n);
	b->len += n;
	return p;
}

void sp_buf_uleb(struct sp_buf *b, uint64_t v)
{
	uint8_t tmp[10];
	size_t n = 0;
	while (v >= 0x80) {
		tmp[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	tmp[n++] = (uint8_t)v;
	sp_buf_add(b, tmp, n);
}

void sp_buf_printf(struct sp_buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n >= 0 && sp_buf_reserve(b, (size_t)n + 1)) {
		vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

bool sp_grow(void *ptr, size_t *cap, size_t need, size_t size)
{
	if (need <= *cap)
		return true;
	size_t want = *cap ? *cap : 64 / size + 4;
	while (want < need) {
		if (want > SIZE_MAX / 2)
			return false;
		want *= 2;
	}
	if (want > SIZE_MAX / size)
		return false;
	void *old;
	memcpy(&old, ptr, sizeof old);
	void *fresh = realloc(old, want * size);
	if (!fresh)
		return false;
	memcpy(ptr, &fresh, sizeof fresh);
	*cap = want;
	return true;
}

void sp_shrink(void *ptr, size_t *cap, size_t n, size_t size)
{
	if (n >= *cap)
		return;
	void *old;
	memcpy(&old, ptr, sizeof old);
	void *fit = realloc(old, (n ? n : 1) * size);
	if (!fit)
		return;
	memcpy(ptr, &fit, sizeof fit);
	*cap = n ? n : 1;
}
