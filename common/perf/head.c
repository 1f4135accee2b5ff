#include "perf/head.h"

#include "perf/attr.h"
#include "perf/feature.h"

/* Features that a stream can carry and that still hold for the output: those that perf synthesizes
 * for a pipe, less those that describe the container. EVENT_DESC is made afresh. */
static bool passes(uint64_t feature)
{
	switch (feature) {
	case SP_FEATURE_HOSTNAME:
	case SP_FEATURE_OSRELEASE:
	case SP_FEATURE_VERSION:
	case SP_FEATURE_ARCH:
	case SP_FEATURE_NRCPUS:
	case SP_FEATURE_CPUDESC:
	case SP_FEATURE_CPUID:
	case SP_FEATURE_TOTAL_MEM:
	case SP_FEATURE_CMDLINE:
	case SP_FEATURE_CPU_TOPOLOGY:
	case SP_FEATURE_NUMA_TOPOLOGY:
	case SP_FEATURE_PMU_MAPPINGS:
	case SP_FEATURE_GROUP_DESC:
	case SP_FEATURE_SAMPLE_TIME:
	case SP_FEATURE_MEM_TOPOLOGY:
	case SP_FEATURE_CLOCKID:
	case SP_FEATURE_CPU_PMU_CAPS:
	case SP_FEATURE_CLOCK_DATA:
	case SP_FEATURE_HYBRID_TOPOLOGY:
	case SP_FEATURE_PMU_CAPS:
		return true;
	default:
		return false;
	}
}

static int write_attrs(struct sp_writer *w, const struct sp_reader *r, unsigned flags,
		       struct sp_err *err)
{
	for (size_t i = 0; i < sp_reader_n_events(r); i++) {
		const struct sp_event *ev = sp_reader_event(r, i);
		uint8_t attr[SP_ATTR_BYTES];
		memcpy(attr, ev->attr_bytes, sizeof attr);
		if (flags & SP_HEAD_UNWOUND)
			sp_attr_bytes_unwound(attr);
		int rc = sp_writer_attr_ids(w, attr, ev->name, ev->ids, ev->n_ids, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int sp_head_tracing_data(struct sp_writer *w, const struct sp_reader *r, struct sp_err *err)
{
	size_t size;
	const uint8_t *data = sp_reader_feature(r, SP_FEATURE_TRACING_DATA, &size);
	return data ? sp_writer_tracing_data(w, data, size, err) : 0;
}

int sp_head_write(struct sp_writer *w, const struct sp_reader *r, unsigned flags,
		  struct sp_err *err)
{
	int rc = sp_writer_begin(w, err);
	if (rc == 0)
		rc = write_attrs(w, r, flags, err);
	for (unsigned i = 0; rc == 0 && i < SP_FEATURE_LAST; i++) {
		size_t size;
		const uint8_t *data = passes(i) ? sp_reader_feature(r, i, &size) : NULL;
		/* perf tells the old forms of CPU_TOPOLOGY by their size, which padding would
		 * change. */
		if (data && (i != SP_FEATURE_CPU_TOPOLOGY || size % 8 == 0))
			rc = sp_writer_feature(w, i, data, size, err);
	}
	if (rc == 0)
		rc = sp_writer_head_end(w, err);
	if (rc == 0)
		rc = sp_head_tracing_data(w, r, err);
	struct sp_build_id_record b;
	for (size_t i = 0; rc == 0 && sp_reader_build_id_at(r, i, &b); i++)
		rc = sp_writer_build_id(w, &b, err);
	return rc;
}

/* --- records of a stream --- */

static int rewrite_attr(struct sp_buf *out, const struct sp_record *rec, unsigned flags,
			struct sp_err *err)
{
	uint8_t attr[SP_ATTR_BYTES];
	int size = sp_attr_normalize(attr, rec->raw + 8, rec->size - 8, false, err);
	if (size < 0)
		return size;
	if (flags & SP_HEAD_UNWOUND)
		sp_attr_bytes_unwound(attr);
	size_t ids = (rec->size - 8 - (size_t)size) & ~(size_t)7;
	size_t total = 8 + sizeof attr + ids;
	if (total > SP_MAX_RECORD) /* a short attr and as many ids as fit: it grows beyond */
		return sp_err_set(err, SP_ERR_LIMIT, 0, "an event has too many ids: %zu", ids / 8);
	sp_buf_u32(out, SP_PERF_HEADER_ATTR);
	sp_buf_u16(out, rec->misc);
	sp_buf_u16(out, (uint16_t)total);
	sp_buf_add(out, attr, sizeof attr);
	sp_buf_add(out, rec->raw + 8 + size, ids);
	return 1;
}

struct desc_arg {
	struct sp_buf *out;
	unsigned flags;
};

static int on_desc(void *arg, const uint8_t *attr, const char *name, const uint8_t *ids,
		   size_t n_ids, struct sp_err *err)
{
	struct desc_arg *d = arg;
	uint8_t copy[SP_ATTR_BYTES];
	(void)err;
	memcpy(copy, attr, sizeof copy);
	if (d->flags & SP_HEAD_UNWOUND)
		sp_attr_bytes_unwound(copy);
	sp_buf_add(d->out, copy, sizeof copy);
	sp_buf_u32(d->out, (uint32_t)n_ids);
	sp_feature_put_string(d->out, name);
	sp_buf_add(d->out, ids, n_ids * 8);
	return 0;
}

static int rewrite_event_desc(struct sp_buf *out, const struct sp_record *rec, unsigned flags)
{
	struct desc_arg d = {.out = out, .flags = flags};
	sp_buf_add(out, rec->raw, 16);
	sp_buf_u32(out, 0); /* the number of events, below */
	sp_buf_u32(out, SP_ATTR_BYTES);
	int n = sp_event_desc_parse(rec->raw + 16, rec->size - 16, false, on_desc, &d, NULL);
	sp_buf_zero(out, (8 - out->len % 8) % 8);
	if (n < 0 || out->len > SP_MAX_RECORD) {
		out->len = 0;
		return 2; /* unreadable: better none than one that contradicts the attrs */
	}
	if (out->failed)
		return 1;
	sp_put16(out->data + 6, (uint16_t)out->len);
	sp_put32(out->data + 16, (uint32_t)n);
	return 1;
}

/* The end mark is the first number that its perf does not use; perf report 6.1 takes no other than
 * its own 32, and no features beyond. */
static int rewrite_last(struct sp_buf *out, const struct sp_record *rec)
{
	if (rec->size != 16)
		return 2;
	sp_buf_add(out, rec->raw, 8);
	sp_buf_u64(out, SP_FEATURE_LAST);
	return 1;
}

int sp_head_rewrite(struct sp_buf *out, const struct sp_record *rec, unsigned flags,
		    struct sp_err *err)
{
	int rc = 0;
	out->len = 0;
	if (rec->type == SP_PERF_HEADER_ATTR) {
		rc = rewrite_attr(out, rec, flags, err);
	} else if (rec->type == SP_PERF_HEADER_FEATURE && rec->size >= 16) {
		uint64_t id = sp_get64(rec->raw + 8);
		if (id == SP_FEATURE_EVENT_DESC)
			rc = rewrite_event_desc(out, rec, flags);
		else if (id >= SP_FEATURE_LAST)
			rc = rewrite_last(out, rec);
		else if (id == SP_FEATURE_COMPRESSED || id == SP_FEATURE_DIR_FORMAT)
			rc = 2;
	}
	return out->failed ? sp_err_nomem(err) : rc;
}
