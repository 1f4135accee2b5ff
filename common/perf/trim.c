#include "perf/trim.h"

#include <unistd.h>

#include "perf/parse.h"
#include "perf/reader_priv.h"

/* Of a record what is read at once: registers, chain and the leaf's side of the stack. Beyond this
 * one sample in ten goes on. When other threads decode it is less: what they need beyond they read
 * themselves, side by side, and need not fetch from this CPU's cache. */
#define HEAD_BYTES ((size_t)4096)
#define HEAD_BYTES_SPLIT ((size_t)2048)
#define KEPT_MIN ((size_t)256) /* of the stack */
#define FAR_BYTES ((size_t)24) /* u64 used size, descriptor, offset of the stack in the file */
/* What may stand behind a stack: its used size, then fields of a word each. */
#define TAIL_MAX ((size_t)256)
#define MISSES_MAX 64u

void sp_trim_begin(struct sp_reader *r)
{
	struct sp_source *s = &r->in->src;
	bool pays = false;
	for (size_t i = 0; i < r->ev.n; i++)
		pays |= r->ev.v[i]->attr.sample_type & SP_SAMPLE_STACK_USER &&
			r->ev.v[i]->attr.sample_stack_user >= SP_TRIM_STACK_MIN;
	s->trim.head = r->flags & SP_READER_SPLIT ? HEAD_BYTES_SPLIT : HEAD_BYTES;
	bool can = r->flags & SP_READER_TRIM && s->mapped && s->map_fd >= 0 && !r->parts &&
		   !r->layout.swapped;
	s->trim.fd = can && pays ? s->map_fd : -1;
	atomic_store_explicit(&s->window.wanted, s->mapped && s->name && s->trim.fd < 0,
			      memory_order_relaxed);
}

/* Room for n bytes behind those in hand; they move into a fresh chunk where it ends. */
static bool make_room(struct sp_reader *r, size_t n)
{
	struct sp_trim *t = &r->in->src.trim;
	if (t->chunk && (size_t)(t->chunk->data + SP_CHUNK_BYTES - t->at) >= t->n + n)
		return true;
	struct sp_chunk *c = sp_chunk_get(r->pool);
	if (!c)
		return false;
	if (t->n)
		memcpy(c->data, t->at, t->n);
	sp_chunk_release(t->chunk);
	t->chunk = c;
	t->at = c->data;
	return true;
}

static size_t read_at(const struct sp_trim *t, uint8_t *to, size_t n, uint64_t pos)
{
	ssize_t got = pread(t->fd, to, n, (off_t)pos);
	return got > 0 ? (size_t)got : 0;
}

/* The begin of the record at the source's offset, as much as is read at once. */
static int read_head(struct sp_reader *r, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	struct sp_trim *t = &s->trim;
	if (t->n)
		t->at += t->n;
	t->n = 0;
	if (!make_room(r, t->head))
		return sp_err_nomem(err);
	t->n = read_at(t, t->at, t->head, s->pos);
	t->pos = s->pos;
	return 0;
}

/* The record is given; the next one's begin lies `used` bytes behind it in memory. */
static void advance(struct sp_source *s, struct frame *f, size_t used, size_t next)
{
	struct sp_trim *t = &s->trim;
	f->whole = f->size;
	f->pos = s->pos;
	f->chunk = t->chunk;
	sp_source_take(s, f->size);
	f->size = sp_get16(f->raw + 6);
	t->at += used;
	t->n = next;
	t->pos = s->pos;
	t->n_misses = 0;
}

/* A sample that is longer than what is in hand. f->size: its size in the file. */
static int trim_sample(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	struct sp_trim *t = &s->trim;
	const struct sp_event *event = sp_events_of(&r->ev, t->at, t->n);
	size_t at = event ? sp_sample_stack_at(t->at, t->n, event) : 0;
	if (!at || at + 8 + KEPT_MIN > t->n)
		return 0;
	size_t data = at + 8, kept = (t->n - data) & ~(size_t)7;
	uint64_t size = sp_get64(t->at + at);
	if (size > f->size || data + size + 8 > f->size || f->size - data - size > TAIL_MAX ||
	    size < kept + FAR_BYTES)
		return 0;
	size_t tail = f->size - data - size, end = data + kept + FAR_BYTES;
	if (!make_room(r, FAR_BYTES + TAIL_MAX + t->head))
		return sp_err_nomem(err);
	size_t got = read_at(t, t->at + end, tail + t->head, s->pos + f->size - tail);
	uint64_t used = got >= tail ? sp_get64(t->at + end) : UINT64_MAX;
	if (used > size) /* the file is shorter by now, or says what cannot be: as it stands there */
		return 0;
	sp_put64(t->at + at, kept + FAR_BYTES);
	sp_put64(t->at + data + kept, used);
	sp_put64(t->at + data + kept + 8, (uint64_t)t->fd);
	sp_put64(t->at + data + kept + 16, s->pos + data);
	sp_put64(t->at + end, used < kept ? used : kept);
	sp_put16(t->at + 6, (uint16_t)(end + tail));
	f->raw = t->at;
	advance(s, f, end + tail, got - tail);
	f->pos |= SP_TRIM_MARK;
	return 1;
}

/* What is taken from the map; where that is every record, reading ahead ends. */
static int miss(struct sp_source *s)
{
	if (++s->trim.n_misses > MISSES_MAX) {
		s->trim.fd = -1;
		atomic_store_explicit(&s->window.wanted, true, memory_order_relaxed);
	}
	return 0;
}

int sp_trim_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	struct sp_trim *t = &s->trim;
	bool fresh = t->pos != s->pos;
	int rc = fresh ? read_head(r, err) : 0;
	if (rc == 0 && !fresh && (t->n < 8 || sp_get16(t->at + 6) > t->n) && t->n < t->head)
		rc = read_head(r, err);
	if (rc < 0)
		return rc;
	if (t->n < 8)
		return miss(s);
	f->size = sp_get16(t->at + 6);
	uint32_t type = sp_get32(t->at);
	bool in_file = s->limit - s->pos >= f->size && (size_t)(s->end - s->at) >= f->size;
	if (f->size < 8 || type > SP_PERF_COMPRESSED2 || !in_file)
		return miss(s);
	if (f->size <= t->n) {
		f->raw = t->at;
		advance(s, f, f->size, t->n - f->size);
		return 1;
	}
	rc = type == SP_PERF_SAMPLE ? trim_sample(r, f, err) : 0;
	return rc ? rc : miss(s);
}

void sp_trim_decoded(struct sp_perf_sample *s)
{
	uint64_t kept = s->stack ? sp_get64(s->stack - 8) - FAR_BYTES : 0;
	uint64_t used = s->stack ? sp_get64(s->stack + kept) : 0;
	if (used <= kept)
		return;
	s->stack_bytes = used;
	s->stack_here = (uint16_t)kept;
}
