/* Reading and writing of integers at any address, in a stated byte order. */
#ifndef SP_BASE_LE_H
#define SP_BASE_LE_H

#include <stdint.h>
#include <string.h>

static inline uint16_t sp_get16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static inline uint32_t sp_get32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static inline uint64_t sp_get64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static inline void sp_put16(void *p, uint16_t v)
{
	memcpy(p, &v, sizeof v);
}

static inline void sp_put32(void *p, uint32_t v)
{
	memcpy(p, &v, sizeof v);
}

static inline void sp_put64(void *p, uint64_t v)
{
	memcpy(p, &v, sizeof v);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "stackpulse runs on little-endian machines (it reads big-endian recordings)"
#endif

#endif
