#include "base/cursor.h"

uint64_t sp_cur_uint(struct sp_cursor *c, unsigned size)
{
	switch (size) {
	case 1:
		return sp_cur_u8(c);
	case 2:
		return sp_cur_u16(c);
	case 4:
		return sp_cur_u32(c);
	case 8:
		return sp_cur_u64(c);
	default:
		c->bad = true;
		return 0;
	}
}

uint64_t sp_cur_uleb_slow(struct sp_cursor *c)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t b = sp_cur_u8(c);
		if (c->bad)
			return 0;
		uint64_t part = b & 0x7f;
		if (shift == 63 && part > 1)
			break;
		v |= part << shift;
		if (!(b & 0x80))
			return v;
	}
	c->bad = true;
	return 0;
}

int64_t sp_cur_sleb(struct sp_cursor *c)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t b = sp_cur_u8(c);
		if (c->bad)
			return 0;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			if (shift + 7 < 64 && (b & 0x40))
				v |= ~UINT64_C(0) << (shift + 7);
			return (int64_t)v;
		}
	}
	c->bad = true;
	return 0;
}

const char *sp_cur_str(struct sp_cursor *c)
{
	if (c->bad)
		return NULL;
	const uint8_t *nul = memchr(c->p, 0, sp_cur_left(c));
	if (!nul) {
		c->bad = true;
		return NULL;
	}
	const char *s = (const char *)c->p;
	c->p = nul + 1;
	return s;
}
