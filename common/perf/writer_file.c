/* The frame of a perf.data file around the records. Layout as perf writes it: header (104 bytes),
 * ids, attrs, data, the table of feature sections, the sections. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/file.h"
#include "perf/writer_priv.h"

#define FILE_HEADER 104
#define ATTR_ENTRY (SP_ATTR_BYTES + 16) /* attr, then the section of its ids */
#define BUILD_IDS_MAX ((size_t)64 << 20)

/* Ids of all attrs, then the attr entries, as they stand from file offset `at` on. Returns the
 * offset of the entries. */
static uint64_t put_attrs(const struct sp_writer *w, struct sp_buf *out, uint64_t at)
{
	uint64_t ids_at = at;
	for (size_t i = 0; i < w->n_attrs; i++)
		sp_buf_add(out, w->attrs[i].ids, w->attrs[i].n_ids * 8);
	uint64_t attrs_at = at + out->len;
	for (size_t i = 0; i < w->n_attrs; i++) {
		sp_buf_add(out, w->attrs[i].bytes, SP_ATTR_BYTES);
		sp_buf_u64(out, ids_at);
		sp_buf_u64(out, w->attrs[i].n_ids * 8);
		ids_at += w->attrs[i].n_ids * 8;
	}
	return attrs_at;
}

static void put_header(const struct sp_writer *w, uint8_t h[FILE_HEADER], uint64_t data_size)
{
	memset(h, 0, FILE_HEADER);
	memcpy(h, "PERFILE2", 8);
	sp_put64(h + 8, FILE_HEADER);
	sp_put64(h + 16, ATTR_ENTRY);
	sp_put64(h + 24, w->attrs_at);
	sp_put64(h + 32, w->n_attrs_out * ATTR_ENTRY);
	sp_put64(h + 40, w->data_at);
	sp_put64(h + 48, data_size);
	for (size_t i = 1; data_size && i < SP_N_FEATURES; i++)
		if (w->features[i].len)
			h[72 + i / 8] |= (uint8_t)(1u << i % 8);
}

int sp_writer_file_head(struct sp_writer *w, struct sp_err *err)
{
	struct sp_buf attrs = {0};
	w->attrs_at = put_attrs(w, &attrs, FILE_HEADER);
	w->n_attrs_out = w->n_attrs;
	w->data_at = FILE_HEADER + attrs.len;
	uint8_t h[FILE_HEADER];
	put_header(w, h, 0); /* size 0: an unfinished file is read to its end */
	int rc = attrs.failed ? sp_err_nomem(err) : 0;
	if (rc == 0) {
		sp_buf_add(&w->buf, h, sizeof h);
		sp_buf_add(&w->buf, attrs.data, attrs.len);
		w->head_out = true;
		if (w->buf.failed)
			rc = sp_err_nomem(err);
	}
	sp_buf_deinit(&attrs);
	return rc;
}

static int put_at(struct sp_writer *w, const void *data, size_t n, uint64_t at, struct sp_err *err)
{
	const uint8_t *p = data;
	while (n) {
		ssize_t put = pwrite(w->fd, p, n, (off_t)at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return sp_err_errno(err, "cannot write %s", w->name);
		p += put;
		at += (uint64_t)put;
		n -= (size_t)put;
	}
	return 0;
}

static void put_features(struct sp_writer *w, struct sp_buf *out, uint64_t at)
{
	size_t n = 0, k = 0;
	for (size_t i = 1; i < SP_N_FEATURES; i++)
		n += w->features[i].len != 0;
	sp_buf_zero(out, n * 16);
	for (size_t i = 1; i < SP_N_FEATURES; i++) {
		const struct sp_buf *f = &w->features[i];
		if (!f->len)
			continue;
		if (!out->failed) {
			sp_put64(out->data + k * 16, at + out->len);
			sp_put64(out->data + k * 16 + 8, f->len);
		}
		k++;
		sp_buf_add(out, f->data, f->len);
	}
}

/* All data is flushed: w->written is the end of the data section. */
int sp_writer_file_end(struct sp_writer *w, struct sp_err *err)
{
	uint64_t end = w->written, data_size = end - w->data_at;
	struct sp_buf tail = {0}, *desc = &w->features[SP_FEATURE_EVENT_DESC];
	desc->len = 0;
	sp_writer_event_desc(w, desc, true);
	if (w->build_ids.len) {
		sp_buf_deinit(&w->features[SP_FEATURE_BUILD_ID]);
		w->features[SP_FEATURE_BUILD_ID] = w->build_ids;
		w->build_ids = (struct sp_buf){0};
	}
	put_features(w, &tail, end);
	if (w->n_attrs != w->n_attrs_out) { /* attrs that came after the first record */
		struct sp_buf attrs = {0};
		w->attrs_at = put_attrs(w, &attrs, end + tail.len);
		w->n_attrs_out = w->n_attrs;
		sp_buf_add(&tail, attrs.data, attrs.len);
		tail.failed |= attrs.failed;
		sp_buf_deinit(&attrs);
	}
	int rc = tail.failed || desc->failed ? sp_err_nomem(err)
					     : put_at(w, tail.data, tail.len, end, err);
	sp_buf_deinit(&tail);
	uint8_t h[FILE_HEADER];
	put_header(w, h, data_size);
	return rc == 0 ? put_at(w, h, sizeof h, 0, err) : rc;
}

/* --- records that describe events, in a file --- */

static int set_name(struct writer_attr *a, const char *name, struct sp_err *err)
{
	char *copy = strdup(name);
	if (!copy)
		return sp_err_nomem(err);
	free(a->name);
	a->name = copy;
	return 0;
}

static struct writer_attr *attr_of_id(struct sp_writer *w, uint64_t id)
{
	for (size_t i = 0; i < w->n_attrs; i++)
		for (size_t k = 0; k < w->attrs[i].n_ids; k++)
			if (w->attrs[i].ids[k] == id)
				return &w->attrs[i];
	return NULL;
}

struct desc_arg {
	struct sp_writer *w;
	size_t index;
};

static int on_desc(void *arg, const uint8_t *attr, const char *name, const uint8_t *ids,
		   size_t n_ids, struct sp_err *err)
{
	struct desc_arg *d = arg;
	(void)attr;
	struct writer_attr *a = n_ids ? attr_of_id(d->w, sp_get64(ids)) : NULL;
	if (!a && d->index < d->w->n_attrs)
		a = &d->w->attrs[d->index];
	d->index++;
	return a ? set_name(a, name, err) : 0;
}

static int absorb_attr(struct sp_writer *w, const uint8_t *rec, size_t size, struct sp_err *err)
{
	uint8_t attr[SP_ATTR_BYTES];
	int attr_size = sp_attr_normalize(attr, rec + 8, size - 8, false, err);
	if (attr_size < 0)
		return attr_size;
	size_t n_ids = (size - 8 - (size_t)attr_size) / 8;
	uint64_t *ids = malloc((n_ids + 1) * 8);
	if (!ids)
		return sp_err_nomem(err);
	memcpy(ids, rec + 8 + attr_size, n_ids * 8);
	int rc = sp_writer_add_attr(w, attr, NULL, ids, n_ids, err);
	free(ids);
	return rc < 0 ? rc : 1;
}

/* Features that say something about the stream that this file is not. */
static bool feature_fits(uint64_t id)
{
	return id < SP_N_FEATURES && id != SP_FEATURE_LAST && id != SP_FEATURE_TRACING_DATA &&
	       id != SP_FEATURE_BUILD_ID && id != SP_FEATURE_AUXTRACE &&
	       id != SP_FEATURE_DIR_FORMAT && id != SP_FEATURE_COMPRESSED;
}

int sp_writer_file_absorb(struct sp_writer *w, const uint8_t *rec, size_t size, struct sp_err *err)
{
	switch (sp_get32(rec)) {
	case SP_PERF_HEADER_ATTR:
		return absorb_attr(w, rec, size, err);
	case SP_PERF_HEADER_BUILD_ID:
		if (w->build_ids.len + size <= BUILD_IDS_MAX)
			sp_buf_add(&w->build_ids, rec, size);
		return w->build_ids.failed ? sp_err_nomem(err) : 1;
	case SP_PERF_EVENT_UPDATE: /* stays in the data too, for an unfinished file */
		if (size > 24 && sp_get64(rec + 8) == 2 && memchr(rec + 24, 0, size - 24)) {
			struct writer_attr *a = attr_of_id(w, sp_get64(rec + 16));
			if (!a && w->n_attrs == 1)
				a = &w->attrs[0];
			return a ? set_name(a, (const char *)rec + 24, err) : 0;
		}
		return 0;
	case SP_PERF_HEADER_FEATURE:
		if (size < 16)
			return 1;
		uint64_t id = sp_get64(rec + 8);
		if (id == SP_FEATURE_EVENT_DESC) {
			struct desc_arg d = {.w = w};
			int rc = sp_event_desc_parse(rec + 16, size - 16, false, on_desc, &d, err);
			return rc < 0 ? rc : 1;
		}
		if (!feature_fits(id))
			return 1;
		int rc = sp_writer_feature(w, (unsigned)id, rec + 16, size - 16, err);
		return rc < 0 ? rc : 1;
	default:
		return 0;
	}
}
