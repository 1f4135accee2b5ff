/* Perf streams made by hand, in either byte order, for the tests of common/perf. */
#ifndef SP_TESTS_PERF_ENC_H
#define SP_TESTS_PERF_ENC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/le.h"
#include "perf/attr.h"
#include "perf/ext.h"
#include "perf/record.h"

struct enc {
	struct sp_buf b;
	bool be;
	size_t start; /* of the record under way */
};

static inline void e8(struct enc *e, uint8_t v)
{
	sp_buf_u8(&e->b, v);
}

static inline void e16(struct enc *e, uint16_t v)
{
	sp_buf_u16(&e->b, e->be ? __builtin_bswap16(v) : v);
}

static inline void e32(struct enc *e, uint32_t v)
{
	sp_buf_u32(&e->b, e->be ? __builtin_bswap32(v) : v);
}

static inline void e64(struct enc *e, uint64_t v)
{
	sp_buf_u64(&e->b, e->be ? __builtin_bswap64(v) : v);
}

static inline void ebytes(struct enc *e, const void *p, size_t n)
{
	sp_buf_add(&e->b, p, n);
}

/* A string with its NUL, padded to a multiple of pad. */
static inline void estr(struct enc *e, const char *s, size_t pad)
{
	size_t n = strlen(s) + 1;
	ebytes(e, s, n);
	sp_buf_zero(&e->b, (pad - n % pad) % pad);
}

static inline void e_begin(struct enc *e, uint32_t type, uint16_t misc)
{
	e->start = e->b.len;
	e32(e, type);
	e16(e, misc);
	e16(e, 0);
}

static inline void e_end(struct enc *e)
{
	uint16_t size = (uint16_t)(e->b.len - e->start);
	sp_put16(e->b.data + e->start + 6, e->be ? __builtin_bswap16(size) : size);
}

static inline void e_pipe(struct enc *e)
{
	ebytes(e, e->be ? "2ELIFREP" : "PERFILE2", 8);
	e64(e, 16);
}

/* The bit-field of flags: a big-endian machine fills each byte from its top. */
static inline void e_flags(struct enc *e, uint64_t flags)
{
	uint8_t bytes[8] = {0};
	for (unsigned i = 0; i < 64; i++)
		if (flags >> i & 1)
			bytes[i / 8] |= (uint8_t)(1u << (e->be ? 7 - i % 8 : i % 8));
	ebytes(e, bytes, 8);
}

/* size bytes of an attr. */
static inline void e_attr(struct enc *e, const struct sp_attr *a, uint32_t size)
{
	size_t before = e->b.len;
	e32(e, a->type);
	e32(e, size);
	e64(e, a->config);
	e64(e, a->sample_period);
	e64(e, a->sample_type);
	e64(e, a->read_format);
	e_flags(e, a->flags);
	e32(e, a->wakeup);
	e32(e, a->bp_type);
	e64(e, a->config1);
	e64(e, a->config2);
	e64(e, a->branch_sample_type);
	e64(e, a->sample_regs_user);
	e32(e, a->sample_stack_user);
	e32(e, (uint32_t)a->clockid);
	e64(e, a->sample_regs_intr);
	e32(e, 0);
	e16(e, a->sample_max_stack);
	e16(e, 0);
	if (size > e->b.len - before)
		sp_buf_zero(&e->b, size - (e->b.len - before));
	e->b.len = before + size;
}

static inline void e_head_attr(struct enc *e, const struct sp_attr *a, uint32_t size,
			       const uint64_t *ids, size_t n_ids)
{
	e_begin(e, SP_PERF_HEADER_ATTR, 0);
	e_attr(e, a, size);
	for (size_t i = 0; i < n_ids; i++)
		e64(e, ids[i]);
	e_end(e);
}

/* A sample_id of TID, TIME, CPU, IDENTIFIER. */
static inline void e_sid(struct enc *e, uint32_t pid, uint32_t tid, uint64_t time, uint32_t cpu,
			 uint64_t id)
{
	e32(e, pid);
	e32(e, tid);
	e64(e, time);
	e32(e, cpu);
	e32(e, 0);
	e64(e, id);
}

/* The attr of e_sample's records, with ids. */
#define E_SAMPLE_TYPE                                                                              \
	(SP_SAMPLE_IDENTIFIER | SP_SAMPLE_IP | SP_SAMPLE_TID | SP_SAMPLE_TIME | SP_SAMPLE_CPU |    \
	 SP_SAMPLE_PERIOD)

static inline struct sp_attr e_plain_attr(void)
{
	return (struct sp_attr){.type = 1,
				.sample_period = 1000,
				.sample_type = E_SAMPLE_TYPE,
				.flags = SP_ATTR_SAMPLE_ID_ALL | SP_ATTR_COMM | SP_ATTR_MMAP};
}

static inline void e_sample(struct enc *e, uint64_t id, uint64_t time, uint64_t ip)
{
	e_begin(e, SP_PERF_SAMPLE, 2);
	e64(e, id);
	e64(e, ip);
	e32(e, 100);
	e32(e, 101);
	e64(e, time);
	e32(e, 3);
	e32(e, 0);
	e64(e, 1000);
	e_end(e);
}

static inline void e_comm(struct enc *e, uint64_t id, uint64_t time, const char *comm)
{
	e_begin(e, SP_PERF_COMM, 0);
	e32(e, 100);
	e32(e, 101);
	estr(e, comm, 8);
	e_sid(e, 100, 101, time, 3, id);
	e_end(e);
}

static inline void e_round(struct enc *e)
{
	e_begin(e, SP_PERF_FINISHED_ROUND, 0);
	e_end(e);
}

/* An object of our own, whole or in fragments. */
static inline void e_ext(struct sp_buf *out, enum sp_ext_kind kind, uint64_t object,
			 const void *payload, size_t size)
{
	size_t at = 0;
	do {
		size_t part = size - at < SP_EXT_PAYLOAD_MAX ? size - at : SP_EXT_PAYLOAD_MAX;
		sp_ext_encode_part(out, kind, object, at, size, (const uint8_t *)payload + at,
				   part);
		at += part;
	} while (at < size);
}

#endif
