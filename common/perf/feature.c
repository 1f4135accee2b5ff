#include "perf/feature.h"

#include <string.h>

#include "base/le.h"
#include "perf/attr.h"

void sp_feature_put_string(struct sp_buf *out, const char *s)
{
	size_t len = strlen(s), padded = (len + 1 + 63) & ~(size_t)63;
	sp_buf_u32(out, (uint32_t)padded);
	sp_buf_add(out, s, len);
	sp_buf_zero(out, padded - len);
}

const char *sp_feature_string(struct sp_cursor *c)
{
	uint32_t len = sp_cur_u32(c);
	const uint8_t *p = sp_cur_bytes(c, len);
	if (!p || !len || !memchr(p, 0, len)) {
		c->bad = true;
		return NULL;
	}
	return (const char *)p;
}

int sp_event_desc_parse(const void *data, size_t size, bool swap, sp_event_desc_fn *fn, void *arg,
			struct sp_err *err)
{
	struct sp_cursor c = sp_cursor(data, size);
	c.swap = swap;
	uint32_t n = sp_cur_u32(&c), attr_size = sp_cur_u32(&c);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t attr[SP_ATTR_BYTES];
		const uint8_t *raw = sp_cur_bytes(&c, attr_size);
		uint32_t n_ids = sp_cur_u32(&c);
		const char *name = sp_feature_string(&c);
		const uint8_t *ids = sp_cur_bytes(&c, (uint64_t)n_ids * 8);
		if (c.bad || sp_attr_normalize(attr, raw, attr_size, swap, NULL) < 0)
			return sp_err_set(err, SP_ERR_CORRUPT, 0,
					  "cannot read EVENT_DESC: event %u of %u is cut or wrong",
					  i, n);
		int rc = fn(arg, attr, name, ids, n_ids, err);
		if (rc < 0)
			return rc;
	}
	return c.bad ? sp_err_set(err, SP_ERR_CORRUPT, 0, "cannot read EVENT_DESC: cut") : (int)n;
}

/* --- the other byte order --- */

static void put_swapped_string(struct sp_buf *out, struct sp_cursor *c)
{
	const char *s = sp_feature_string(c);
	if (s)
		sp_feature_put_string(out, s);
}

struct desc_swap {
	struct sp_buf *out;
};

static int on_desc(void *arg, const uint8_t *attr, const char *name, const uint8_t *ids,
		   size_t n_ids, struct sp_err *err)
{
	struct desc_swap *d = arg;
	(void)err;
	sp_buf_add(d->out, attr, SP_ATTR_BYTES);
	sp_buf_u32(d->out, (uint32_t)n_ids);
	sp_feature_put_string(d->out, name);
	for (size_t i = 0; i < n_ids; i++)
		sp_buf_u64(d->out, __builtin_bswap64(sp_get64(ids + i * 8)));
	return 0;
}

static bool swap_into(struct sp_buf *out, unsigned feature, struct sp_cursor *c)
{
	switch (feature) {
	case SP_FEATURE_HOSTNAME:
	case SP_FEATURE_OSRELEASE:
	case SP_FEATURE_VERSION:
	case SP_FEATURE_ARCH:
	case SP_FEATURE_CPUDESC:
	case SP_FEATURE_CPUID:
		put_swapped_string(out, c);
		return true;
	case SP_FEATURE_CMDLINE: {
		uint32_t n = sp_cur_u32(c);
		sp_buf_u32(out, n);
		for (uint32_t i = 0; i < n && !c->bad; i++)
			put_swapped_string(out, c);
		return true;
	}
	case SP_FEATURE_NRCPUS:
		sp_buf_u32(out, sp_cur_u32(c));
		sp_buf_u32(out, sp_cur_u32(c));
		return true;
	case SP_FEATURE_TOTAL_MEM:
	case SP_FEATURE_CLOCKID:
		sp_buf_u64(out, sp_cur_u64(c));
		return true;
	case SP_FEATURE_SAMPLE_TIME:
		sp_buf_u64(out, sp_cur_u64(c));
		sp_buf_u64(out, sp_cur_u64(c));
		return true;
	case SP_FEATURE_CLOCK_DATA:
		sp_buf_u32(out, sp_cur_u32(c));
		sp_buf_u32(out, sp_cur_u32(c));
		sp_buf_u64(out, sp_cur_u64(c));
		sp_buf_u64(out, sp_cur_u64(c));
		return true;
	case SP_FEATURE_COMPRESSED:
		for (int i = 0; i < 5; i++)
			sp_buf_u32(out, sp_cur_u32(c));
		return true;
	case SP_FEATURE_EVENT_DESC: {
		uint32_t n = sp_cur_u32(c);
		struct sp_cursor whole = *c;
		whole.p -= 4;
		sp_buf_u32(out, n);
		sp_buf_u32(out, SP_ATTR_BYTES);
		struct desc_swap d = {.out = out};
		if (c->bad ||
		    sp_event_desc_parse(whole.p, sp_cur_left(&whole), true, on_desc, &d, NULL) < 0)
			c->bad = true;
		return true;
	}
	default:
		return false;
	}
}

int sp_feature_swap(struct sp_buf *out, unsigned feature, const void *data, size_t size)
{
	size_t before = out->len;
	struct sp_cursor c = sp_cursor(data, size);
	c.swap = true;
	bool known = swap_into(out, feature, &c);
	if (!known || c.bad || out->failed) {
		out->len = before;
		return 0;
	}
	return 1;
}
