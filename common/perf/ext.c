#include "perf/ext.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"

static const char magic[8] = {'S', 'T', 'K', 'P', 'U', 'L', 'S', 'E'};

#define OBJECT_HEAD 76 /* bytes of an object's payload before its path */
#define CONTENT_HEAD 40 /* of the hash of a file's content */
#define SHARED_BYTES 16u
#define JOIN_MAX ((size_t)512 << 20)
#define JOIN_OPEN_MAX 64 /* objects under way at once */

int sp_ext_parse(const struct sp_record *rec, struct sp_ext *out, struct sp_err *err)
{
	if (rec->type != SP_PERF_HEADER_EVENT_TYPE || rec->size < 8 + sizeof magic ||
	    memcmp(rec->raw + 8, magic, sizeof magic) != 0)
		return 0;
	if (rec->size < SP_EXT_HEAD)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "an extension record has %u bytes, less than its head",
				  rec->size);
	struct sp_ext e = {
		.version = sp_get16(rec->raw + 16),
		.kind = sp_get16(rec->raw + 18),
		.payload_bytes = sp_get32(rec->raw + 20),
		.object = sp_get64(rec->raw + 24),
		.offset = sp_get64(rec->raw + 32),
		.total = sp_get64(rec->raw + 40),
		.payload = rec->raw + SP_EXT_HEAD,
	};
	if (e.payload_bytes > rec->size - SP_EXT_HEAD || e.offset > e.total ||
	    e.payload_bytes > e.total - e.offset)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "an extension record of %u bytes claims %u bytes at %llu of %llu",
				  rec->size, e.payload_bytes, (unsigned long long)e.offset,
				  (unsigned long long)e.total);
	/* A later version may give kinds other contents: unknown here, whatever its number. */
	if (e.version != SP_EXT_VERSION)
		e.kind = 0;
	*out = e;
	return 1;
}

/* Of a record that is zero so far. */
static void put_head(uint8_t *p, size_t size, const struct sp_ext *e)
{
	sp_put32(p, SP_PERF_HEADER_EVENT_TYPE);
	sp_put16(p + 6, (uint16_t)size);
	memcpy(p + 8, magic, sizeof magic);
	sp_put16(p + 16, SP_EXT_VERSION);
	sp_put16(p + 18, e->kind);
	sp_put32(p + 20, e->payload_bytes);
	sp_put64(p + 24, e->object);
	sp_put64(p + 32, e->offset);
	sp_put64(p + 40, e->total);
}

void sp_ext_encode_part(struct sp_buf *out, enum sp_ext_kind kind, uint64_t object, uint64_t offset,
			uint64_t total, const void *part, size_t part_size)
{
	size_t size = (SP_EXT_HEAD + part_size + 7) & ~(size_t)7;
	if (size < SP_EXT_MIN)
		size = SP_EXT_MIN;
	uint8_t *p = sp_buf_zero(out, size);
	if (!p)
		return;
	put_head(p, size,
		 &(struct sp_ext){.kind = (uint16_t)kind,
				  .object = object,
				  .offset = offset,
				  .total = total,
				  .payload_bytes = (uint32_t)part_size});
	if (part_size)
		memcpy(p + SP_EXT_HEAD, part, part_size);
}

int sp_ext_write(struct sp_writer *w, enum sp_ext_kind kind, const void *payload, size_t size,
		 struct sp_err *err)
{
	uint64_t object = sp_writer_next_object(w);
	struct sp_buf one = {0};
	size_t at = 0;
	int rc = 0;
	do { /* a record at a time: the objects may be large */
		size_t part = size - at < SP_EXT_PAYLOAD_MAX ? size - at : SP_EXT_PAYLOAD_MAX;
		one.len = 0;
		sp_ext_encode_part(&one, kind, object, at, size,
				   part ? (const uint8_t *)payload + at : NULL, part);
		rc = one.failed ? sp_err_nomem(err) : sp_writer_raw(w, one.data, one.len, err);
		at += part;
	} while (rc == 0 && at < size);
	sp_buf_deinit(&one);
	return rc;
}

void sp_ext_shared_encode(uint8_t out[SP_EXT_MIN], const struct sp_ext_shared *x)
{
	memset(out, 0, SP_EXT_MIN);
	put_head(out, SP_EXT_MIN,
		 &(struct sp_ext){.kind = SP_EXT_SHARED,
				  .total = SHARED_BYTES,
				  .payload_bytes = SHARED_BYTES});
	sp_put32(out + SP_EXT_HEAD, x->slot);
	sp_put32(out + SP_EXT_HEAD + 4, x->offset);
	sp_put32(out + SP_EXT_HEAD + 8, x->bytes);
}

bool sp_ext_shared_decode(struct sp_ext_shared *x, const struct sp_record *rec)
{
	struct sp_ext e;
	if (sp_ext_parse(rec, &e, NULL) != 1 || e.kind != SP_EXT_SHARED ||
	    e.payload_bytes < SHARED_BYTES || e.payload_bytes != e.total)
		return false;
	*x = (struct sp_ext_shared){.slot = sp_get32(e.payload),
				    .offset = sp_get32(e.payload + 4),
				    .bytes = sp_get32(e.payload + 8)};
	return true;
}

const char *sp_ext_value(const uint8_t *payload, size_t size, const char *key, size_t *len)
{
	size_t key_len = strlen(key);
	if (!size)
		return NULL;
	const char *p = (const char *)payload, *end = p + size;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const char *stop = nl ? nl : end;
		if ((size_t)(stop - p) > key_len && p[key_len] == '=' &&
		    memcmp(p, key, key_len) == 0) {
			*len = (size_t)(stop - p) - key_len - 1;
			return p + key_len + 1;
		}
		p = stop + 1;
	}
	return NULL;
}

void sp_ext_object_encode(struct sp_buf *out, const struct sp_ext_object *o)
{
	uint8_t *p = sp_buf_zero(out, OBJECT_HEAD);
	if (!p)
		return;
	uint8_t id_len = o->build_id_len < 20 ? o->build_id_len : 20;
	sp_put32(p, o->kind);
	sp_put32(p + 4, (uint32_t)o->pid);
	sp_put64(p + 8, o->time_ns);
	sp_put64(p + 16, o->start);
	sp_put64(p + 24, o->end);
	sp_put64(p + 32, o->ino);
	sp_put32(p + 40, o->maj);
	sp_put32(p + 44, o->min);
	p[48] = id_len;
	memcpy(p + 49, o->build_id, id_len);
	sp_put32(p + 72, o->path_len);
	sp_buf_add(out, o->path, o->path_len);
	sp_buf_add(out, o->data, o->size);
}

int sp_ext_object_decode(struct sp_ext_object *o, const uint8_t *payload, size_t size,
			 struct sp_err *err)
{
	if (size < OBJECT_HEAD)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "an embedded object has %zu bytes, less than its head", size);
	struct sp_ext_object v = {
		.kind = sp_get32(payload),
		.pid = (int32_t)sp_get32(payload + 4),
		.time_ns = sp_get64(payload + 8),
		.start = sp_get64(payload + 16),
		.end = sp_get64(payload + 24),
		.ino = sp_get64(payload + 32),
		.maj = sp_get32(payload + 40),
		.min = sp_get32(payload + 44),
		.build_id_len = payload[48],
		.path_len = sp_get32(payload + 72),
		.path = (const char *)payload + OBJECT_HEAD,
	};
	if (v.build_id_len > sizeof v.build_id || v.path_len > size - OBJECT_HEAD)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "an embedded object of %zu bytes claims a path of %u", size,
				  v.path_len);
	memcpy(v.build_id, payload + 49, v.build_id_len);
	v.data = payload + OBJECT_HEAD + v.path_len;
	v.size = size - OBJECT_HEAD - v.path_len;
	*o = v;
	return 0;
}

void sp_ext_content_encode(struct sp_buf *out, const struct sp_ext_content *c)
{
	uint8_t *p = sp_buf_zero(out, CONTENT_HEAD);
	if (!p)
		return;
	sp_put32(p, c->maj);
	sp_put32(p + 4, c->min);
	sp_put64(p + 8, c->ino);
	memcpy(p + 16, c->hash, sizeof c->hash);
	sp_buf_add(out, c->path, c->path_len);
	sp_buf_u8(out, 0);
}

int sp_ext_content_decode(struct sp_ext_content *c, const uint8_t *payload, size_t size,
			  struct sp_err *err)
{
	const char *nul =
		size > CONTENT_HEAD ? memchr(payload + CONTENT_HEAD, 0, size - CONTENT_HEAD) : NULL;
	if (!nul)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "the hash of a file's content has %zu bytes and no path", size);
	*c = (struct sp_ext_content){.maj = sp_get32(payload),
				     .min = sp_get32(payload + 4),
				     .ino = sp_get64(payload + 8),
				     .path = (const char *)payload + CONTENT_HEAD};
	memcpy(c->hash, payload + 16, sizeof c->hash);
	c->path_len = (uint32_t)(nul - c->path);
	return 0;
}

/* --- fragments to objects --- */

struct joining {
	uint16_t kind;
	uint64_t object, total;
	struct sp_buf bytes;
};

struct sp_ext_joiner {
	struct joining open[JOIN_OPEN_MAX];
	size_t n_open, held; /* held: bytes in all open objects and in done */
	struct sp_buf done;  /* what the last call handed out */
};

struct sp_ext_joiner *sp_ext_joiner_new(void)
{
	return calloc(1, sizeof(struct sp_ext_joiner));
}

static void joining_drop(struct sp_ext_joiner *j, struct joining *o)
{
	j->held -= o->bytes.len;
	sp_buf_deinit(&o->bytes);
	/* the order is the order of begin: the oldest is at 0 */
	size_t after = j->n_open - 1 - (size_t)(o - j->open);
	memmove(o, o + 1, after * sizeof *o);
	j->n_open--;
}

void sp_ext_joiner_free(struct sp_ext_joiner *j)
{
	if (!j)
		return;
	for (size_t i = 0; i < j->n_open; i++)
		sp_buf_deinit(&j->open[i].bytes);
	sp_buf_deinit(&j->done);
	free(j);
}

static struct joining *joining_find(struct sp_ext_joiner *j, const struct sp_ext *ext)
{
	for (size_t i = 0; i < j->n_open; i++)
		if (j->open[i].object == ext->object && j->open[i].kind == ext->kind)
			return &j->open[i];
	return NULL;
}

static struct joining *joining_begin(struct sp_ext_joiner *j, const struct sp_ext *ext)
{
	if (j->n_open == JOIN_OPEN_MAX)
		joining_drop(j, &j->open[0]);
	struct joining *o = &j->open[j->n_open++];
	*o = (struct joining){.kind = ext->kind, .object = ext->object, .total = ext->total};
	return o;
}

int sp_ext_join(struct sp_ext_joiner *j, const struct sp_ext *ext, const uint8_t **payload,
		size_t *size, struct sp_err *err)
{
	j->held -= j->done.len;
	sp_buf_deinit(&j->done);

	struct joining *o = joining_find(j, ext);
	if (o && (ext->offset != o->bytes.len || ext->total != o->total)) {
		joining_drop(j, o); /* a fragment is missing, or the number is used again */
		o = NULL;
	}
	if (!o && ext->offset == 0 && ext->payload_bytes == ext->total) {
		*payload = ext->payload;
		*size = ext->payload_bytes;
		return 1;
	}
	if (!o && ext->offset != 0)
		return 0;
	if (ext->total > JOIN_MAX || ext->payload_bytes > JOIN_MAX - j->held) {
		if (o)
			joining_drop(j, o);
		return sp_err_set(err, SP_ERR_LIMIT, 0,
				  "embedded objects under way exceed %zu MiB: one was dropped",
				  JOIN_MAX >> 20);
	}
	if (!o)
		o = joining_begin(j, ext);
	sp_buf_add(&o->bytes, ext->payload, ext->payload_bytes);
	if (o->bytes.failed) {
		joining_drop(j, o);
		return sp_err_nomem(err);
	}
	j->held += ext->payload_bytes;
	if (o->bytes.len < o->total)
		return 0;
	j->done = o->bytes;
	j->held += j->done.len; /* joining_drop takes its share of held away */
	o->bytes.data = NULL;
	joining_drop(j, o);
	*payload = j->done.data;
	*size = j->done.len;
	return 1;
}
