#include "perf/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/stop.h"
#include "perf/ext.h"
#include "perf/parse.h"
#include "perf/reader_priv.h"
#include "perf/writer.h"

/* Order (stream.md): without FINISHED_ROUND records wait within this many bytes of input; with
 * them within their round, as long as memory allows. */
#define WINDOW_BYTES ((uint64_t)64 << 20)
#define LOOK_AHEAD_BYTES ((uint64_t)1 << 30)
#define QUEUE_CHUNKS_MAX (((size_t)512 << 20) / SP_CHUNK_BYTES)
#define QUEUE_ITEMS_MAX ((size_t)4 << 20)

/* The first complaint is kept; damage outweighs a cut. */
void sp_reader_complain(struct sp_reader *r, enum sp_input_state state, const char *fmt, ...)
{
	if (r->state >= state)
		return;
	r->state = state;
	r->complaint_seq = r->n_given;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(r->complaint, sizeof r->complaint, fmt, ap);
	va_end(ap);
}

/* --- open and close --- */

static int not_perf(struct sp_reader *r, struct sp_err *err)
{
	const struct sp_source *s = &r->in->src;
	return sp_err_set(err, SP_ERR_CORRUPT, 0, "cannot read %s: no perf recording, it is %s",
			  s->name ? s->name : "the input",
			  sp_file_looks_like(s->at, (size_t)(s->end - s->at)));
}

/* The reason that a parser gave, behind the name of the input. */
static int bad_header(const struct sp_reader *r, int rc, const struct sp_err *why,
		      struct sp_err *err)
{
	const char *name = r->main.src.name;
	return sp_err_set(err, rc, 0, "cannot read %s: %s", name ? name : "the input", why->msg);
}

void sp_reader_features(struct sp_reader *r, const struct sp_file_part *part)
{
	const struct sp_file_section *data = &r->layout.data;
	uint64_t end = data->offset + data->size;
	bool lacks = sp_file_features_parse(&r->ev, &r->layout, part) > 0;
	if (lacks && part->offset + part->size >= end) /* else the data is told to be cut */
		sp_reader_complain(r, SP_INPUT_CUT,
				   "it lacks features, which should stand behind its data, from "
				   "offset %llu on",
				   (unsigned long long)end);
}

/* A perf.data file: attrs and features now; through a pipe, features when they come. */
static int open_file(struct sp_reader *r, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	const struct sp_file_layout *l = &r->layout;
	struct sp_err why;
	struct sp_file_part part = {0};
	struct sp_buf head = {0};
	int rc;
	if (s->mapped) {
		part = (struct sp_file_part){s->map.data, 0, s->map.size};
	} else {
		rc = sp_source_read(s, l->data.offset, HEAD_BYTES_MAX, &head, err);
		if (rc < 0) {
			sp_buf_deinit(&head);
			return rc;
		}
		part = (struct sp_file_part){head.data, 0, head.len};
		r->file_on_pipe = true;
	}
	rc = sp_file_attrs_parse(&r->ev, l, &part, &why);
	if (rc > 0)
		sp_reader_complain(r, SP_INPUT_DAMAGED,
				   "ids of its events lie outside of the file, say its attributes "
				   "at offset %llu",
				   (unsigned long long)l->attrs.offset);
	if (rc >= 0 && s->mapped && l->data.size)
		sp_reader_features(r, &part);
	sp_buf_deinit(&head);
	if (rc < 0)
		return bad_header(r, rc, &why, err);
	if (s->mapped) {
		if (l->data.offset > s->map.size)
			return sp_err_set(err, SP_ERR_CORRUPT, 0,
					  "cannot read %s: it is cut before its data", s->name);
		s->at = s->map.data + l->data.offset;
		s->pos = l->data.offset;
	}
	if (l->data.size)
		s->limit = l->data.offset + l->data.size;
	return 0;
}

static int open_head(struct sp_reader *r, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	int rc = sp_source_need(s, 16, err);
	if (rc < 0)
		return rc;
	if (rc == 1 && memcmp(s->at, "PERF", 4) != 0 && memcmp(s->at, "2ELIFREP", 8) != 0)
		return not_perf(r, err);
	/* a file's header is longer than a stream's: read on only where there is one */
	if (rc == 1 && sp_get64(s->at + 8) != 16 && __builtin_bswap64(sp_get64(s->at + 8)) != 16)
		rc = sp_source_need(s, SP_FILE_HEADER_BYTES, err);
	if (rc < 0)
		return rc;
	struct sp_err why;
	rc = sp_file_header_parse(&r->layout, s->at, (size_t)(s->end - s->at), &why);
	if (rc == 0)
		return not_perf(r, err);
	if (rc < 0)
		return bad_header(r, rc, &why, err);
	r->ev.info.swapped = r->layout.swapped;
	r->ev.info.is_pipe = r->layout.is_pipe;
	if (!r->layout.is_pipe)
		return open_file(r, err);
	sp_source_take(s, 16);
	return 0;
}

static int open_with(struct sp_reader **out, struct sp_reader *r, unsigned flags,
		     struct sp_err *err)
{
	r->flags = flags;
	int rc = open_head(r, err);
	if (rc < 0) {
		sp_reader_close(r);
		return rc;
	}
	sp_trim_begin(r);
	*out = r;
	return 0;
}

static struct sp_reader *reader_new(void)
{
	struct sp_reader *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	sp_events_init(&r->ev);
	r->in = &r->main;
	r->main.src = (struct sp_source){.fd = -1, .map_fd = -1, .trim.fd = -1};
	r->pool = sp_chunk_pool_new();
	if (!r->pool) {
		free(r);
		return NULL;
	}
	return r;
}

int sp_reader_open(struct sp_reader **out, const char *path, unsigned flags, struct sp_err *err)
{
	struct sp_reader *r = reader_new();
	if (!r)
		return sp_err_nomem(err);
	struct stat st;
	bool is_folder = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	int rc = is_folder ? sp_reader_open_folder(r, path, err)
			   : sp_source_open(&r->main.src, path, r->pool, err);
	if (rc < 0) {
		sp_reader_close(r);
		return rc;
	}
	if (flags & SP_READER_SHARE)
		sp_source_share(&r->in->src);
	return open_with(out, r, flags, err);
}

int sp_reader_open_bytes(struct sp_reader **out, const void *data, size_t size, unsigned flags,
			 struct sp_err *err)
{
	struct sp_reader *r = reader_new();
	if (!r)
		return sp_err_nomem(err);
	sp_source_memory(&r->in->src, data, size);
	return open_with(out, r, flags, err);
}

void sp_reader_close(struct sp_reader *r)
{
	if (!r)
		return;
	if (r->cur_held)
		sp_chunk_release(r->cur);
	sp_order_deinit(&r->order);
	sp_chunk_release(r->swap_chunk);
	sp_reader_close_folder(r);
	sp_decomp_free(r->main.decomp);
	sp_events_deinit(&r->ev);
	sp_source_close(&r->main.src);
	sp_chunk_pool_close(r->pool);
	free(r);
}

/* --- records --- */

static bool value_is(const struct sp_ext *ext, const char *key, const char *wanted)
{
	size_t len;
	const char *v = sp_ext_value(ext->payload, ext->payload_bytes, key, &len);
	return v && len == strlen(wanted) && memcmp(v, wanted, len) == 0;
}

/* A stage that got a cut input ends its own stream well, and says there what it got. */
static void note_end(struct sp_reader *r, const struct sp_ext *ext)
{
	r->end_seen = true;
	bool damaged = value_is(ext, "status", "damaged");
	if (!damaged && !value_is(ext, "status", "cut"))
		return;
	size_t len = 0;
	const char *why = sp_ext_value(ext->payload, ext->payload_bytes, "reason", &len);
	static const char said[] = "an earlier stage's input was ";
	bool handed_on = len >= strlen(said) && memcmp(why, said, strlen(said)) == 0;
	sp_reader_complain(
		r, damaged ? SP_INPUT_DAMAGED : SP_INPUT_CUT, "%s%s%s%.*s", handed_on ? "" : said,
		handed_on ? ""
		: damaged ? "damaged"
			  : "cut",
		len && !handed_on ? ": " : "", (int)(len > 200 ? 200 : len), why ? why : "");
}

/* Our own records tell whether the stream is ours and whole. */
static void note_ext(struct sp_reader *r, const struct sp_record *rec)
{
	struct sp_ext ext;
	int rc = sp_ext_parse(rec, &ext, NULL);
	if (rc < 0)
		sp_reader_complain(r, SP_INPUT_DAMAGED, "an extension record contradicts itself");
	if (rc != 1)
		return;
	if (ext.kind == SP_EXT_START && !r->kernel_record_seen) {
		r->ev.info.is_ours = true;
		r->ev.info.chain_is_site = value_is(&ext, "chain", "site");
	} else if (ext.kind == SP_EXT_END) {
		note_end(r, &ext);
	} else if (ext.kind == SP_EXT_CONTENT && ext.payload_bytes == ext.total) {
		struct sp_ext_content c;
		if (sp_ext_content_decode(&c, ext.payload, ext.payload_bytes, NULL) == 0)
			sp_events_content(&r->ev, &c);
	}
}

static void count_record(struct sp_reader *r, const struct sp_record *rec)
{
	switch (rec->type) {
	case SP_PERF_LOST:
		sp_count(&r->counters, SP_C_lost_events, rec->lost.lost);
		break;
	case SP_PERF_LOST_SAMPLES:
		sp_count(&r->counters, SP_C_lost_samples, rec->lost.lost);
		break;
	case SP_PERF_THROTTLE:
		sp_count(&r->counters, SP_C_throttled, 1);
		break;
	default:
		if (!sp_record_is_known(rec->type))
			sp_count(&r->counters, SP_C_skipped_records, 1);
	}
}

static void complain_of(struct sp_reader *r, uint32_t type, size_t size, uint64_t pos)
{
	sp_reader_complain(r, SP_INPUT_DAMAGED,
			   "the record at offset %llu (type %u, %zu bytes) cannot be parsed",
			   (unsigned long long)(pos & ~SP_TRIM_MARK), type, size);
}

static bool decode(struct sp_record *rec, const uint8_t *raw, size_t size,
		   const struct sp_event *event, uint64_t pos)
{
	if (!sp_record_decode(rec, raw, size, event))
		return false;
	if (pos & SP_TRIM_MARK)
		sp_trim_decoded(&rec->sample);
	return true;
}

bool sp_late_decode(struct sp_record *rec, const struct sp_late *late)
{
	return decode(rec, late->raw, late->size, late->event, late->pos);
}

void sp_reader_reject(struct sp_reader *r, const struct sp_late *late)
{
	/* The complaint is of the one that was given first. */
	if (r->state == SP_INPUT_DAMAGED && r->complaint_seq < late->seq)
		return;
	r->state = SP_INPUT_WHOLE;
	complain_of(r, SP_PERF_SAMPLE, late->whole, late->pos);
	r->complaint_seq = late->seq;
}

static void set_late(const struct sp_reader *r, struct sp_record *rec,
		     const struct order_item *item)
{
	rec->is_late = true;
	rec->late = (struct sp_late){.raw = item->raw,
				     .event = item->event,
				     .pos = item->pos,
				     .seq = r->n_given,
				     .size = item->size,
				     .whole = item->whole};
}

/* A record that is to be given now. */
static int give(struct sp_reader *r, struct sp_record *rec, const struct order_item *item)
{
	r->cur = item->chunk;
	r->n_given++;
	if (item->is_late) {
		/* Field by field: to clear the whole record takes longer than all of this. */
		rec->type = SP_PERF_SAMPLE;
		rec->size = item->size;
		rec->misc = item->misc;
		rec->has_time = true;
		rec->has_tid = rec->malformed = false;
		rec->raw = item->raw;
		rec->event = item->event;
		rec->pid = item->pid;
		rec->tid = -1;
		rec->time_ns = item->time_ns;
		rec->cpu = UINT32_MAX;
		set_late(r, rec, item);
		return 1;
	}
	if (!decode(rec, item->raw, item->size, item->event, item->pos))
		complain_of(r, rec->type, item->whole, item->pos);
	else if (rec->type != SP_PERF_SAMPLE)
		count_record(r, rec);
	else if (r->flags & SP_READER_LATE)
		set_late(r, rec, item);
	return 1;
}

static int give_queued(struct sp_reader *r, struct sp_record *rec)
{
	struct order_item item = sp_order_pop(&r->order);
	if (item.time_ns > r->given_time)
		r->given_time = item.time_ns;
	r->cur_held = !item.chunk->n_queued;
	return give(r, rec, &item);
}

/* Does a FINISHED_ROUND follow within reach in a mapped file? Heads of records only are read. */
static bool round_ahead(const struct sp_reader *r)
{
	const struct sp_source *s = &r->in->src;
	if (!s->mapped)
		return false;
	uint64_t left = (uint64_t)(s->end - s->at);
	if (left > s->limit - s->pos)
		left = s->limit - s->pos;
	if (left > LOOK_AHEAD_BYTES)
		left = LOOK_AHEAD_BYTES;
	const uint8_t *p = s->at;
	while (left >= 8) {
		uint64_t size = sp_reader_frame_size(r, p);
		uint32_t type = sp_reader_frame_type(r, p);
		if (type == SP_PERF_FINISHED_ROUND)
			return true;
		if (type == SP_PERF_AUXTRACE && left >= 16) {
			uint64_t n = sp_get64(p + 8);
			n = r->layout.swapped ? __builtin_bswap64(n) : n;
			size += n < left ? n : left;
		}
		if (size < 8 || size > left)
			return false;
		p += size;
		left -= size;
	}
	return false;
}

/* Must the earliest record go although its round is not over? */
static bool queue_is_full(struct sp_reader *r)
{
	const struct sp_order *o = &r->order;
	if (o->n_chunks > QUEUE_CHUNKS_MAX || o->n > QUEUE_ITEMS_MAX)
		return true;
	if (r->rounds_seen || o->bytes <= WINDOW_BYTES)
		return false;
	if (!r->looked_ahead) {
		r->looked_ahead = true;
		r->rounds_seen = round_ahead(r);
	}
	return !r->rounds_seen;
}

static struct order_item item_of(const struct frame *f)
{
	return (struct order_item){.raw = f->raw,
				   .chunk = f->chunk,
				   .pos = f->pos,
				   .size = (uint16_t)f->size,
				   .whole = (uint16_t)(f->pos & SP_TRIM_MARK ? f->whole : f->size),
				   .misc = sp_get16(f->raw + 4)};
}

/* perf's own record: 1 when it is to be given at once (*rec is set), 0 when it waits. */
static int take_head(struct sp_reader *r, struct sp_record *rec, const struct frame *f,
		     bool ordered, struct sp_err *err)
{
	uint32_t type = sp_get32(f->raw);
	if (type == SP_PERF_FINISHED_ROUND && ordered) {
		r->rounds_seen = r->flushing = true;
		r->flush_limit = r->next_limit;
		r->round = *f;
		sp_source_round(&r->in->src);
		return 0;
	}
	int rc = sp_events_record(&r->ev, f->raw, f->size, err);
	if (rc == SP_ERR_NOMEM)
		return rc;
	if (rc < 0)
		sp_reader_complain(r, SP_INPUT_DAMAGED,
				   "the record at offset %llu: bad attributes",
				   (unsigned long long)f->pos);
	const struct order_item item = item_of(f);
	rc = give(r, rec, &item);
	if (type == SP_PERF_HEADER_EVENT_TYPE)
		note_ext(r, rec);
	return rc;
}

/* What one frame means: as take_head. */
static int take_frame(struct sp_reader *r, struct sp_record *rec, const struct frame *f,
		      struct sp_err *err)
{
	uint32_t type = sp_get32(f->raw);
	bool ordered = !(r->flags & SP_READER_UNORDERED) && !r->ev.info.is_ours;
	if (type >= SP_PERF_HEADER_ATTR)
		return take_head(r, rec, f, ordered, err);
	r->kernel_record_seen = true;
	struct order_item item = item_of(f);
	item.event = sp_events_of(&r->ev, f->raw, f->size);
	uint64_t time = item.time_ns = sp_record_time(f->raw, f->size, item.event);
	if (r->flags & SP_READER_LATE && type == SP_PERF_SAMPLE && item.event)
		item.is_late = sp_sample_pid(f->raw, f->size, item.event, &item.pid);
	if (r->flags & SP_READER_UNORDERED)
		return give(r, rec, &item);
	if (time && time < r->given_time)
		sp_count(&r->counters, SP_C_out_of_order, 1);
	if (!ordered || !time) { /* without a time: before all that wait */
		if (time > r->given_time)
			r->given_time = time;
		return give(r, rec, &item);
	}
	if (time > r->max_time)
		r->max_time = time;
	return sp_order_push(&r->order, &item) ? 0 : sp_err_nomem(err);
}

/* A stage that reads a file ends at the first signal; a pipe's reading ends in the source. */
static bool stop_asked(const struct sp_reader *r)
{
	return sp_stop_level() > (r->in->src.mapped ? 0 : 1);
}

int sp_reader_next(struct sp_reader *r, struct sp_record *rec, struct sp_err *err)
{
	if (r->cur_held)
		sp_chunk_release(r->cur);
	r->cur_held = false;
	r->cur = NULL;
	for (;;) {
		if (r->order.n &&
		    (r->flush_all ||
		     (r->flushing && sp_order_first_ns(&r->order) <= r->flush_limit) ||
		     queue_is_full(r)))
			return give_queued(r, rec);
		if (r->flushing) {
			r->flushing = false;
			r->next_limit = r->max_time;
			const struct order_item round = item_of(&r->round);
			return give(r, rec, &round);
		}
		if (r->flush_all) {
			if (r->pending_rc < 0 && err)
				*err = r->pending;
			return r->pending_rc;
		}
		struct frame f;
		int rc;
		if (stop_asked(r)) {
			r->in->src.stopped = true;
			sp_reader_input_ended(r);
			rc = 0;
		} else {
			rc = sp_reader_frame(r, &f, &r->pending);
		}
		if (rc > 0) {
			rc = take_frame(r, rec, &f, &r->pending);
			if (rc > 0)
				return rc;
			if (rc == 0)
				continue;
		}
		if (rc < 0)
			sp_reader_complain(r, SP_INPUT_CUT, "%s", r->pending.msg);
		r->pending_rc = rc;
		r->flush_all = true;
	}
}

/* --- what it knows --- */

struct sp_chunk *sp_reader_chunk(struct sp_reader *r)
{
	return r->cur;
}

enum sp_input_state sp_reader_state(const struct sp_reader *r)
{
	return r->state;
}

const char *sp_reader_complaint(const struct sp_reader *r)
{
	return r->complaint;
}

const struct sp_perf_info *sp_reader_info(const struct sp_reader *r)
{
	return &r->ev.info;
}

size_t sp_reader_n_events(const struct sp_reader *r)
{
	return r->ev.n;
}

const struct sp_event *sp_reader_event(const struct sp_reader *r, size_t index)
{
	return index < r->ev.n ? r->ev.v[index] : NULL;
}

const struct sp_event *sp_reader_event_of(const struct sp_reader *r, uint64_t id)
{
	return sp_events_find(&r->ev, id);
}

const struct sp_counters *sp_reader_counters(const struct sp_reader *r)
{
	return &r->counters;
}

const uint8_t *sp_reader_feature(const struct sp_reader *r, unsigned feature, size_t *size)
{
	if (feature >= SP_N_FEATURES || !r->ev.raw_features[feature].len)
		return NULL;
	*size = r->ev.raw_features[feature].len;
	return r->ev.raw_features[feature].data;
}

const uint8_t *sp_reader_build_id(const struct sp_reader *r, const char *path, uint32_t maj,
				  uint32_t min, uint64_t ino, uint8_t *len)
{
	const struct events_build_id *b = sp_events_find_build_id(&r->ev, path, maj, min, ino);
	if (!b)
		return NULL;
	*len = b->len;
	return b->id;
}

const uint8_t *sp_reader_content_hash(const struct sp_reader *r, const char *path, uint32_t maj,
				      uint32_t min, uint64_t ino)
{
	return sp_events_find_content(&r->ev, path, maj, min, ino);
}

bool sp_reader_build_id_at(const struct sp_reader *r, size_t i, struct sp_build_id_record *out)
{
	if (i >= r->ev.paths.n)
		return false;
	const struct events_build_id *b = &r->ev.build_ids[i];
	*out = (struct sp_build_id_record){.path = sp_intern_get(&r->ev.paths, (uint32_t)i, NULL),
					   .pid = b->pid,
					   .misc = b->misc,
					   .len = b->len,
					   .maj = b->maj,
					   .min = b->min,
					   .ino = b->ino};
	memcpy(out->id, b->id, sizeof out->id);
	return true;
}

uint64_t sp_reader_n_waits(const struct sp_reader *r)
{
	return r->in->src.n_waits;
}

bool sp_reader_help(struct sp_reader *r)
{
	return !r->parts && sp_source_help(&r->main.src);
}

void sp_reader_done(struct sp_reader *r)
{
	sp_source_done(&r->main.src);
}

bool sp_reader_wants_help(const struct sp_reader *r)
{
	return !r->parts && sp_source_wants_help(&r->main.src);
}

void sp_reader_on_help(struct sp_reader *r, void (*wake)(void *ctx), void *ctx)
{
	r->main.src.wake = wake;
	r->main.src.wake_ctx = ctx;
}
