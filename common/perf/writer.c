#include "perf/writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "perf/writer_priv.h"

#define WRITER_BATCH ((size_t)1 << 20) /* bytes that leave in one write() */
#define RECORD_MAX 65528u              /* largest u16 that is a multiple of 8 */

int sp_writer_new(struct sp_writer **out, int fd, const char *name, bool as_file,
		  struct sp_err *err)
{
	struct stat st;
	if (as_file && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || lseek(fd, 0, SEEK_CUR) != 0))
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot write %s as a perf.data file: not a new regular file",
				  name);
	struct sp_writer *w = calloc(1, sizeof *w);
	if (!w)
		return sp_err_nomem(err);
	w->fd = fd;
	w->as_file = as_file;
	w->name = strdup(name);
	if (!w->name || !sp_buf_grow(&w->buf, WRITER_BATCH + RECORD_MAX)) {
		sp_writer_abandon(w);
		return sp_err_nomem(err);
	}
	*out = w;
	return 0;
}

void sp_writer_abandon(struct sp_writer *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->n_attrs; i++) {
		free(w->attrs[i].name);
		free(w->attrs[i].ids);
	}
	for (size_t i = 0; i < SP_N_FEATURES; i++)
		sp_buf_deinit(&w->features[i]);
	sp_buf_deinit(&w->build_ids);
	sp_buf_deinit(&w->buf);
	free(w->attrs);
	free(w->name);
	free(w);
}

/* Remember the first failure; later calls return it again. */
static int fail(struct sp_writer *w, int rc, struct sp_err *err)
{
	if (err) {
		if (w->sticky.code == 0)
			w->sticky = *err;
		*err = w->sticky;
	}
	return rc;
}

static int failed(const struct sp_writer *w, struct sp_err *err)
{
	if (w->sticky.code && err)
		*err = w->sticky;
	return w->sticky.code;
}

int sp_writer_flush(struct sp_writer *w, struct sp_err *err)
{
	struct sp_err mine;
	if (w->sticky.code)
		return failed(w, err);
	if (w->buf.failed)
		return fail(w, sp_err_nomem(err ? err : &mine), err ? err : &mine);
	int rc = sp_fd_write(w->fd, w->buf.data, w->buf.len, w->name, &mine);
	if (rc < 0) {
		w->sticky = mine;
		return failed(w, err);
	}
	w->written += w->buf.len;
	w->buf.len = 0;
	return 0;
}

/* Room for size more bytes of records: a file's header comes first, a full buffer leaves. */
static int room(struct sp_writer *w, size_t size, struct sp_err *err)
{
	if (w->sticky.code)
		return failed(w, err);
	if (w->as_file && !w->head_out) {
		int rc = sp_writer_file_head(w, err);
		if (rc < 0)
			return rc;
	}
	if (w->buf.len && w->buf.len + size > WRITER_BATCH)
		return sp_writer_flush(w, err);
	return 0;
}

uint8_t *sp_writer_reserve(struct sp_writer *w, size_t size, struct sp_err *err)
{
	if (room(w, size, err) < 0)
		return NULL;
	if (!sp_buf_reserve(&w->buf, size)) {
		w->buf.failed = false;
		sp_err_set(&w->sticky, SP_ERR_NOMEM, 0, "out of memory");
		failed(w, err);
		return NULL;
	}
	return w->buf.data + w->buf.len;
}

void sp_writer_commit(struct sp_writer *w, size_t used)
{
	w->buf.len += used;
}

int sp_writer_batch(struct sp_writer *w, const void *records, size_t size, struct sp_err *err)
{
	int rc = room(w, size, err);
	if (rc < 0 || size == 0)
		return rc;
	if (size >= WRITER_BATCH) { /* the buffer is empty now */
		struct sp_err mine;
		if (sp_fd_write(w->fd, records, size, w->name, &mine) < 0) {
			w->sticky = mine;
			return failed(w, err);
		}
		w->written += size;
		return 0;
	}
	sp_buf_add(&w->buf, records, size);
	return w->buf.failed ? sp_writer_flush(w, err) : 0;
}

int sp_writer_raw(struct sp_writer *w, const void *record, size_t size, struct sp_err *err)
{
	if (size < 8 || size > SP_MAX_RECORD || sp_get16((const uint8_t *)record + 6) != size)
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot write %s: a record of %zu bytes that claims another size",
				  w->name, size);
	if (w->as_file && sp_get32(record) >= SP_PERF_HEADER_ATTR) {
		if (w->sticky.code)
			return failed(w, err);
		int rc = sp_writer_file_absorb(w, record, size, err);
		if (rc != 0)
			return rc < 0 ? rc : 0;
	}
	return sp_writer_batch(w, record, size, err);
}

size_t sp_writer_pending(const struct sp_writer *w)
{
	return w->buf.len;
}

uint64_t sp_writer_next_object(struct sp_writer *w)
{
	return ++w->next_object;
}

int sp_writer_finish(struct sp_writer *w, struct sp_err *err)
{
	int rc = 0;
	if (w->as_file && !w->head_out)
		rc = room(w, 0, err);
	if (rc == 0)
		rc = sp_writer_flush(w, err);
	if (rc == 0 && w->as_file)
		rc = sp_writer_file_end(w, err);
	sp_writer_abandon(w);
	return rc;
}

/* --- the head --- */

int sp_writer_begin(struct sp_writer *w, struct sp_err *err)
{
	if (w->as_file)
		return failed(w, err);
	uint8_t *p = sp_writer_reserve(w, 16, err);
	if (!p)
		return w->sticky.code;
	memcpy(p, "PERFILE2", 8);
	sp_put64(p + 8, 16);
	sp_writer_commit(w, 16);
	return 0;
}

int sp_writer_add_attr(struct sp_writer *w, const uint8_t *attr, const char *name,
		       const uint64_t *ids, size_t n_ids, struct sp_err *err)
{
	struct writer_attr a = {0};
	memcpy(a.bytes, attr, SP_ATTR_BYTES);
	a.n_ids = n_ids;
	if (n_ids) {
		a.ids = malloc(n_ids * sizeof *ids);
		if (a.ids)
			memcpy(a.ids, ids, n_ids * sizeof *ids);
	}
	if (name)
		a.name = strdup(name);
	struct writer_attr *slot = SP_PUSH(&w->attrs, &w->n_attrs, &w->cap_attrs);
	if (!slot || (n_ids && !a.ids) || (name && !a.name)) {
		free(a.ids);
		free(a.name);
		return sp_err_nomem(err);
	}
	*slot = a;
	return 0;
}

#define ATTR_IDS_MAX ((RECORD_MAX - 8 - SP_ATTR_BYTES) / 8)

int sp_writer_attr_ids(struct sp_writer *w, const uint8_t *attr, const char *name,
		       const uint64_t *ids, size_t n_ids, struct sp_err *err)
{
	size_t at = 0;
	if (w->sticky.code)
		return failed(w, err);
	do {
		size_t n = n_ids - at;
		if (!w->as_file && n > ATTR_IDS_MAX)
			n = ATTR_IDS_MAX;
		int rc = sp_writer_add_attr(w, attr, name, n ? ids + at : NULL, n, err);
		if (rc < 0)
			return rc;
		if (!w->as_file) {
			size_t size = 8 + SP_ATTR_BYTES + n * 8;
			uint8_t *p = sp_writer_reserve(w, size, err);
			if (!p)
				return w->sticky.code;
			sp_put32(p, SP_PERF_HEADER_ATTR);
			sp_put16(p + 4, 0);
			sp_put16(p + 6, (uint16_t)size);
			memcpy(p + 8, attr, SP_ATTR_BYTES);
			if (n)
				memcpy(p + 8 + SP_ATTR_BYTES, ids + at, n * 8);
			sp_writer_commit(w, size);
		}
		at += n;
	} while (at < n_ids);
	return 0;
}

int sp_writer_attr(struct sp_writer *w, const struct sp_attr *attr, const char *name, uint64_t id,
		   struct sp_err *err)
{
	uint8_t bytes[SP_ATTR_BYTES];
	char made[64];
	sp_attr_encode(attr, bytes);
	if (!name) {
		sp_attr_name(attr, made, sizeof made);
		name = made;
	}
	return sp_writer_attr_ids(w, bytes, name, &id, 1, err);
}

int sp_writer_feature(struct sp_writer *w, unsigned feature, const void *data, size_t size,
		      struct sp_err *err)
{
	if (w->sticky.code)
		return failed(w, err);
	if (feature >= SP_N_FEATURES)
		return 0;
	if (w->as_file) {
		struct sp_buf *b = &w->features[feature];
		b->len = 0;
		sp_buf_add(b, data, size);
		return b->failed ? sp_err_nomem(err) : 0;
	}
	size_t total = (16 + size + 7) & ~(size_t)7;
	if (total > RECORD_MAX)
		return 0;
	uint8_t *p = sp_writer_reserve(w, total, err);
	if (!p)
		return w->sticky.code;
	memset(p + 16 + size, 0, total - 16 - size);
	sp_put32(p, SP_PERF_HEADER_FEATURE);
	sp_put16(p + 4, 0);
	sp_put16(p + 6, (uint16_t)total);
	sp_put64(p + 8, feature);
	if (size)
		memcpy(p + 16, data, size);
	sp_writer_commit(w, total);
	return 0;
}

int sp_writer_tracing_data(struct sp_writer *w, const void *data, size_t size, struct sp_err *err)
{
	if (w->as_file)
		return sp_writer_feature(w, SP_FEATURE_TRACING_DATA, data, size, err);
	size_t padding = -size & 7;
	if (size > UINT32_MAX - 8)
		return 0;
	uint8_t *p = sp_writer_reserve(w, SP_TRACING_HEAD_BYTES, err);
	if (!p)
		return w->sticky.code;
	sp_put32(p, SP_PERF_HEADER_TRACING_DATA);
	sp_put16(p + 4, 0);
	sp_put16(p + 6, SP_TRACING_HEAD_BYTES);
	sp_put32(p + 8, (uint32_t)(size + padding));
	sp_put32(p + 12, 0);
	sp_writer_commit(w, SP_TRACING_HEAD_BYTES);
	int rc = sp_writer_batch(w, data, size, err);
	return rc < 0 ? rc : sp_writer_batch(w, (const uint8_t[8]){0}, padding, err);
}

void sp_writer_event_desc(const struct sp_writer *w, struct sp_buf *out, bool with_ids)
{
	sp_buf_u32(out, (uint32_t)w->n_attrs);
	sp_buf_u32(out, SP_ATTR_BYTES);
	for (size_t i = 0; i < w->n_attrs; i++) {
		const struct writer_attr *a = &w->attrs[i];
		struct sp_attr decoded;
		char made[64] = "";
		const char *name = a->name;
		if (!name && sp_attr_decode(&decoded, a->bytes, SP_ATTR_BYTES, false, NULL) >= 0) {
			sp_attr_name(&decoded, made, sizeof made);
			name = made;
		}
		size_t n = with_ids ? a->n_ids : 0;
		sp_buf_add(out, a->bytes, SP_ATTR_BYTES);
		sp_buf_u32(out, (uint32_t)n);
		sp_feature_put_string(out, name ? name : "");
		sp_buf_add(out, a->ids, n * 8);
	}
}

/* EVENT_UPDATE of type NAME. */
static int event_update(struct sp_writer *w, const struct writer_attr *a, struct sp_err *err)
{
	size_t len = strlen(a->name), size = (24 + len + 1 + 7) & ~(size_t)7;
	if (size > RECORD_MAX)
		return 0;
	uint8_t *p = sp_writer_reserve(w, size, err);
	if (!p)
		return w->sticky.code;
	memset(p, 0, size);
	sp_put32(p, SP_PERF_EVENT_UPDATE);
	sp_put16(p + 6, (uint16_t)size);
	sp_put64(p + 8, 2); /* PERF_EVENT_UPDATE__NAME */
	sp_put64(p + 16, a->n_ids ? a->ids[0] : 0);
	memcpy(p + 24, a->name, len);
	sp_writer_commit(w, size);
	return 0;
}

int sp_writer_head_end(struct sp_writer *w, struct sp_err *err)
{
	int rc = 0;
	if (!w->as_file) {
		struct sp_buf desc = {0};
		sp_writer_event_desc(w, &desc, true);
		if (16 + desc.len > RECORD_MAX) { /* many ids: HEADER_ATTR has them all */
			desc.len = 0;
			sp_writer_event_desc(w, &desc, false);
		}
		rc = desc.failed ? sp_err_nomem(err)
				 : sp_writer_feature(w, SP_FEATURE_EVENT_DESC, desc.data, desc.len,
						     err);
		sp_buf_deinit(&desc);
		if (rc == 0)
			rc = sp_writer_feature(w, SP_FEATURE_LAST, NULL, 0, err);
	}
	/* Without an id the update would meet the first event, whichever was meant. */
	for (size_t i = 0; rc == 0 && i < w->n_attrs; i++)
		if (w->attrs[i].name && (i == 0 || w->attrs[i].n_ids))
			rc = event_update(w, &w->attrs[i], err);
	return rc;
}

static int feature_string(struct sp_writer *w, unsigned feature, const char *s, struct sp_err *err)
{
	if (!s)
		return 0;
	struct sp_buf b = {0};
	sp_feature_put_string(&b, s);
	int rc = b.failed ? sp_err_nomem(err) : sp_writer_feature(w, feature, b.data, b.len, err);
	sp_buf_deinit(&b);
	return rc;
}

static int feature_cmdline(struct sp_writer *w, const struct sp_writer_features *f,
			   struct sp_err *err)
{
	struct sp_buf b = {0};
	sp_buf_u32(&b, (uint32_t)f->n_cmdline);
	for (size_t i = 0; i < f->n_cmdline; i++)
		sp_feature_put_string(&b, f->cmdline[i]);
	int rc = b.failed ? sp_err_nomem(err)
			  : sp_writer_feature(w, SP_FEATURE_CMDLINE, b.data, b.len, err);
	sp_buf_deinit(&b);
	return rc;
}

int sp_writer_features(struct sp_writer *w, const struct sp_writer_features *f, struct sp_err *err)
{
	uint8_t b[24];
	int rc = feature_string(w, SP_FEATURE_HOSTNAME, f->hostname, err);
	if (rc == 0)
		rc = feature_string(w, SP_FEATURE_OSRELEASE, f->osrelease, err);
	if (rc == 0)
		rc = feature_string(w, SP_FEATURE_VERSION, f->version, err);
	if (rc == 0)
		rc = feature_string(w, SP_FEATURE_ARCH, f->arch, err);
	if (rc == 0 && f->n_cpus_avail) {
		sp_put32(b, f->n_cpus_avail); /* perf writes the available ones first */
		sp_put32(b + 4, f->n_cpus_online);
		rc = sp_writer_feature(w, SP_FEATURE_NRCPUS, b, 8, err);
	}
	if (rc == 0 && f->n_cmdline)
		rc = feature_cmdline(w, f, err);
	if (rc == 0 && f->clockid >= 0) {
		sp_put64(b, 1); /* resolution in ns */
		rc = sp_writer_feature(w, SP_FEATURE_CLOCKID, b, 8, err);
	}
	if (rc == 0 && f->clockid >= 0 && f->wall_ns) {
		sp_put32(b, 1); /* version */
		sp_put32(b + 4, (uint32_t)f->clockid);
		sp_put64(b + 8, f->wall_ns);
		sp_put64(b + 16, f->clock_ns);
		rc = sp_writer_feature(w, SP_FEATURE_CLOCK_DATA, b, 24, err);
	}
	return rc == 0 ? sp_writer_head_end(w, err) : rc;
}

size_t sp_build_id_encode(uint8_t out[SP_BUILD_ID_RECORD_MAX], const struct sp_build_id_record *b)
{
	size_t path_len = strlen(b->path), size = (36 + path_len + 1 + 63) & ~(size_t)63;
	if (b->len > 20 || path_len >= 4096 - 64) /* perf reads names into PATH_MAX bytes */
		return 0;
	size_t total = size + (b->ino ? SP_BUILD_ID_FILE_BYTES : 0);
	memset(out, 0, total);
	sp_put32(out, SP_PERF_HEADER_BUILD_ID);
	sp_put16(out + 4, b->misc | SP_MISC_BUILD_ID_SIZE);
	sp_put16(out + 6, (uint16_t)total);
	sp_put32(out + 8, (uint32_t)b->pid);
	memcpy(out + 12, b->id, b->len);
	out[32] = b->len;
	memcpy(out + 36, b->path, path_len);
	if (b->ino) {
		memcpy(out + size, SP_BUILD_ID_FILE_MAGIC, 8);
		sp_put32(out + size + 8, b->maj);
		sp_put32(out + size + 12, b->min);
		sp_put64(out + size + 16, b->ino);
	}
	return total;
}

int sp_writer_build_id(struct sp_writer *w, const struct sp_build_id_record *b, struct sp_err *err)
{
	uint8_t rec[SP_BUILD_ID_RECORD_MAX];
	size_t size = sp_build_id_encode(rec, b);
	return size ? sp_writer_raw(w, rec, size, err) : 0;
}

/* --- records that the tools make --- */

void sp_sample_id_put(uint8_t out[SP_SAMPLE_ID_BYTES], const struct sp_sample_id *sid)
{
	sp_put32(out, (uint32_t)sid->pid);
	sp_put32(out + 4, (uint32_t)sid->tid);
	sp_put64(out + 8, sid->time_ns);
	sp_put32(out + 16, sid->cpu);
	sp_put32(out + 20, 0);
	sp_put64(out + 24, sid->id);
}
