/* From bytes to records in input order: framing, expansion, byte order, what follows a record. */
#include <string.h>

#include "perf/ext.h"
#include "perf/reader_priv.h"
#include "perf/swap.h"

/* One compressed record expands to a ring buffer's content at most: the feature COMPRESSED says
 * how large they were. */
#define EXPAND_MIN ((uint64_t)64 << 20)

#define SIMPLEPERF_FIRST 32768u
#define SIMPLEPERF_LAST 32800u

size_t sp_reader_frame_size(const struct sp_reader *r, const uint8_t *header)
{
	uint16_t size = sp_get16(header + 6);
	return r->layout.swapped ? __builtin_bswap16(size) : size;
}

uint32_t sp_reader_frame_type(const struct sp_reader *r, const uint8_t *header)
{
	uint32_t type = sp_get32(header);
	return r->layout.swapped ? __builtin_bswap32(type) : type;
}

/* The input has ended where a record should begin or go on. */
void sp_reader_input_ended(struct sp_reader *r)
{
	const struct sp_source *s = &r->in->src;
	unsigned long long pos = s->pos;
	bool is_main = r->in == &r->main;
	const char *it = is_main ? "it" : strrchr(s->name, '/') + 1;
	if (s->stopped)
		sp_reader_complain(r, SP_INPUT_CUT,
				   "reading was stopped by a signal at offset %llu", pos);
	else if (s->at != s->end && s->pos < s->limit)
		sp_reader_complain(r, SP_INPUT_CUT, "%s ends inside a record, at offset %llu", it,
				   pos);
	else if (s->limit != UINT64_MAX && s->pos < s->limit)
		sp_reader_complain(r, SP_INPUT_CUT,
				   "it ends at offset %llu, %llu bytes before its data's end", pos,
				   (unsigned long long)(s->limit - s->pos));
	else if (is_main && !r->layout.is_pipe && r->layout.data.size == 0)
		sp_reader_complain(
			r, SP_INPUT_CUT,
			"its header gives the data no size: the program that wrote it was killed");
	if (r->in->passing || (r->in->decomp && sp_decomp_rest(r->in->decomp)))
		sp_reader_complain(r, SP_INPUT_CUT,
				   "its compressed data ends inside a record, behind that at "
				   "offset %llu",
				   (unsigned long long)r->in->expanding_pos);
	if (r->ev.info.is_ours && !r->end_seen)
		sp_reader_complain(r, SP_INPUT_CUT, "it ends at offset %llu without its end record",
				   pos);
}

/* Features that stand behind the data of a file that came through a pipe. */
static void read_late_features(struct sp_reader *r)
{
	struct sp_source *s = &r->in->src;
	struct sp_file_part part = {.offset = s->pos};
	struct sp_buf tail = {0};
	s->limit = UINT64_MAX;
	if (sp_source_read(s, UINT64_MAX, HEAD_BYTES_MAX, &tail, NULL) >= 0) {
		part.data = tail.data;
		part.size = tail.len;
		sp_reader_features(r, &part);
	}
	sp_buf_deinit(&tail);
}

/* simpleperf's own records, kernel symbols and the like, have the upper half of their size where
 * misc is (simpleperf's record.h, RecordHeader): the bytes to pass over, or 0. */
static uint64_t simpleperf_size(const struct sp_reader *r, const uint8_t *header)
{
	uint32_t type = sp_reader_frame_type(r, header);
	uint16_t upper = sp_get16(header + 4);
	if (type < SIMPLEPERF_FIRST || type > SIMPLEPERF_LAST || !upper)
		return 0;
	if (r->layout.swapped)
		upper = __builtin_bswap16(upper);
	return (uint64_t)upper << 16 | sp_reader_frame_size(r, header);
}

/* Have the next record's header in place; what no record can hold is passed over. */
static int source_header(struct sp_reader *r, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	for (;;) {
		int rc = sp_source_need(s, 8, err);
		uint64_t skip = rc == 1 ? simpleperf_size(r, s->at) : 0;
		if (!skip)
			return rc;
		unsigned long long pos = s->pos;
		sp_count(&r->counters, SP_C_skipped_records, 1);
		rc = sp_source_skip(s, skip, err);
		if (rc == 0)
			sp_reader_complain(r, SP_INPUT_CUT,
					   "it ends inside the record at offset %llu", pos);
		if (rc <= 0)
			return rc;
	}
}

/* Headers lie in memory that nobody has touched, and where the next one is only the last one says:
 * a wait of 400 ns each. Samples have one size, so those that are some records ahead can be asked
 * for meanwhile, with the end of the record before, where a stack's used size is: two at each,
 * until there are enough, for where processes begin other records stand between samples, and a
 * wrong guess costs a little. */
#define RECORDS_AHEAD 6u
#define LARGE_BYTES 1024u /* what is smaller comes with what lies before it */
static void prefetch_ahead(struct sp_source *s, const uint8_t *raw, size_t size)
{
	__builtin_prefetch(s->at);
	if (size < LARGE_BYTES || (size_t)(s->end - s->at) <= RECORDS_AHEAD * size)
		return;
	uint32_t i = raw == s->expected ? s->n_asked - 1 : 0;
	uint32_t to = i + 2 < RECORDS_AHEAD ? i + 2 : RECORDS_AHEAD;
	s->expected = s->at;
	s->n_asked = to;
	for (; i < to; i++) {
		const uint8_t *p = s->at + (i + 1) * size;
		__builtin_prefetch(p - 8);
		__builtin_prefetch(p + 24);
	}
}

static int next_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	int rc = source_header(r, err);
	if (rc == 1) {
		f->size = sp_reader_frame_size(r, s->at);
		if (f->size < 8) {
			sp_reader_complain(r, SP_INPUT_DAMAGED,
					   "the record at offset %llu claims %zu bytes: what "
					   "follows cannot be "
					   "read",
					   (unsigned long long)s->pos, f->size);
			return 0;
		}
		rc = sp_source_need(s, f->size, err);
	}
	if (rc == 0) {
		bool whole_data = r->file_on_pipe && r->layout.data.size && s->pos == s->limit;
		sp_reader_input_ended(r);
		if (whole_data)
			read_late_features(r);
	}
	if (rc <= 0)
		return rc;
	f->raw = s->at;
	f->pos = s->pos;
	f->chunk = s->chunk;
	sp_source_take(s, f->size);
	prefetch_ahead(s, f->raw, f->size);
	return 1;
}

static int source_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	struct sp_source *s = &r->in->src;
	int rc = s->trim.fd >= 0 ? sp_trim_frame(r, f, err) : 0;
	if (rc == 0)
		rc = next_frame(r, f, err);
	if (rc == 1 && s->mapped && s->trim.fd < 0 && s->pos >= s->moved_at)
		sp_source_moved(s);
	return rc;
}

/* Compressed data that cannot be expanded: the stream is lost from here on, what is not compressed
 * goes on. */
static void give_up_expanding(struct sp_reader *r, const char *why)
{
	sp_reader_complain(r, SP_INPUT_DAMAGED, "the compressed record at offset %llu: %s",
			   (unsigned long long)r->in->expanding_pos, why);
	r->in->expanding = false;
	r->in->passing = 0;
	r->in->decomp_broken = true;
	sp_decomp_free(r->in->decomp);
	r->in->decomp = NULL;
}

/* Have the header of the next record that is compressed; what no record can hold is passed over,
 * and may go on in the next compressed one. */
static int expanded_header(struct sp_reader *r, struct frame *f, const uint8_t **p,
			   struct sp_err *err)
{
	struct part *in = r->in;
	for (;;) {
		int rc = sp_decomp_peek(in->decomp, in->passing ? 1 : 8, p, &f->chunk, err);
		if (rc <= 0)
			return rc;
		if (!in->passing) {
			in->passing = simpleperf_size(r, *p);
			if (!in->passing)
				return 1;
			sp_count(&r->counters, SP_C_skipped_records, 1);
		}
		size_t have = sp_decomp_rest(in->decomp);
		size_t n = have < in->passing ? have : (size_t)in->passing;
		sp_decomp_take(in->decomp, n);
		in->passing -= n;
	}
}

/* The next record out of the compressed one under way: 1, or 0 when it is used up. */
static int expanded_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	struct sp_err why;
	const uint8_t *p;
	int rc = expanded_header(r, f, &p, &why);
	if (rc == 1) {
		f->size = sp_reader_frame_size(r, p);
		uint32_t type = sp_reader_frame_type(r, p);
		if (f->size < 8 || type == SP_PERF_COMPRESSED || type == SP_PERF_COMPRESSED2 ||
		    type == SP_PERF_AUXTRACE || type == SP_PERF_HEADER_TRACING_DATA) {
			give_up_expanding(r, "what it holds are no records");
			return 0;
		}
		rc = sp_decomp_peek(r->in->decomp, f->size, &p, &f->chunk, &why);
	}
	if (rc == 1) {
		f->raw = p;
		f->pos = r->in->expanding_pos;
		sp_decomp_take(r->in->decomp, f->size);
		return 1;
	}
	if (rc == 0) {
		r->in->expanding = false;
		return 0;
	}
	if (rc == SP_ERR_NOMEM)
		return sp_err_nomem(err);
	give_up_expanding(r, why.msg);
	return 0;
}

static int begin_expanding(struct sp_reader *r, const struct frame *f, uint32_t type,
			   struct sp_err *err)
{
	const uint8_t *data = f->raw + 8;
	size_t size = f->size - 8;
	r->in->expanding_pos = f->pos;
	if (type == SP_PERF_COMPRESSED2) { /* u64 data_size; padded behind */
		uint64_t said = size >= 8 ? sp_get64(data) : UINT64_MAX;
		if (r->layout.swapped && size >= 8)
			said = __builtin_bswap64(said);
		if (size < 8 || said > size - 8) {
			give_up_expanding(r, "its size contradicts itself");
			return 0;
		}
		data += 8;
		size = (size_t)said;
	}
	if (r->in->decomp_broken) {
		sp_count(&r->counters, SP_C_skipped_records, 1);
		return 0;
	}
	if (!r->in->decomp)
		r->in->decomp = sp_decomp_new(r->pool);
	if (!r->in->decomp)
		return sp_err_nomem(err);
	uint64_t limit = r->ev.comp_mmap_len > EXPAND_MIN ? r->ev.comp_mmap_len : EXPAND_MIN;
	sp_decomp_feed(r->in->decomp, data, size, limit);
	r->in->expanding = true;
	return 0;
}

static int cut_in_payload(struct sp_reader *r, const struct frame *f)
{
	sp_reader_complain(r, SP_INPUT_CUT, "it ends inside the data of the record at offset %llu",
			   (unsigned long long)f->pos);
	return 0;
}

/* Records that lie in memory which we offered to the writer: true when f was the place of such, and
 * is not to be given. */
static bool enter_shared(struct sp_reader *r, const struct frame *f)
{
	const struct sp_record rec = {
		.type = SP_PERF_HEADER_EVENT_TYPE, .raw = f->raw, .size = (uint32_t)f->size};
	struct sp_ext_shared x;
	if (r->layout.swapped || !sp_ext_shared_decode(&x, &rec))
		return false;
	if (!sp_source_enter(&r->in->src, x.slot, x.offset, x.bytes))
		sp_reader_complain(r, SP_INPUT_DAMAGED,
				   "the records at offset %llu lie in memory that is not shared",
				   (unsigned long long)f->pos);
	return true;
}

/* AUX data follows its record, outside of the size that this states. */
static int skip_aux(struct sp_reader *r, const struct frame *f, struct sp_err *err)
{
	uint64_t n = f->size >= 16 ? sp_get64(f->raw + 8) : 0;
	n = r->layout.swapped ? __builtin_bswap64(n) : n;
	sp_count(&r->counters, SP_C_skipped_records, 1);
	int rc = sp_source_skip(&r->in->src, n, err);
	return rc == 0 ? cut_in_payload(r, f) : rc;
}

/* So does tracing data, the formats of tracepoints: it becomes the feature that it is in a file,
 * and the record stands for it: 1 and a native frame, 0 at the end. */
static int take_tracing_data(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	uint32_t n = f->size >= 12 ? sp_get32(f->raw + 8) : 0;
	n = r->layout.swapped ? __builtin_bswap32(n) : n;
	sp_count(&r->counters, SP_C_skipped_records, 1);
	struct sp_buf data = {0};
	struct sp_source *s = &r->in->src;
	if (n && f->size - 12 >= n) { /* simpleperf once had it inside of the record */
		sp_events_feature(&r->ev, SP_FEATURE_TRACING_DATA, f->raw + 12, n);
	} else if (n > HEAD_BYTES_MAX) {
		int skipped = sp_source_skip(s, n, err);
		if (skipped <= 0)
			return skipped == 0 ? cut_in_payload(r, f) : skipped;
	} else {
		uint64_t end = s->pos + n;
		int rc = sp_source_read(s, end, HEAD_BYTES_MAX, &data, err);
		if (rc == 0 && s->pos == end)
			sp_events_feature(&r->ev, SP_FEATURE_TRACING_DATA, data.data, data.len);
		sp_buf_deinit(&data);
		if (rc < 0)
			return rc;
		if (s->pos != end)
			return cut_in_payload(r, f);
	}
	uint8_t *head = r->tracing_head;
	sp_put32(head, SP_PERF_HEADER_TRACING_DATA);
	sp_put16(head + 4, 0);
	sp_put16(head + 6, SP_TRACING_HEAD_BYTES);
	sp_put32(head + 8, n);
	sp_put32(head + 12, 0);
	f->raw = head;
	f->size = SP_TRACING_HEAD_BYTES;
	f->chunk = s->chunk;
	return 1;
}

/* Room for n bytes of a native copy. */
static uint8_t *swap_room(struct sp_reader *r, size_t n)
{
	if (!r->swap_chunk || SP_CHUNK_BYTES - r->swap_used < n) {
		struct sp_chunk *c = sp_chunk_get(r->pool);
		if (!c)
			return NULL;
		sp_chunk_release(r->swap_chunk);
		r->swap_chunk = c;
		r->swap_used = 0;
	}
	uint8_t *p = r->swap_chunk->data + r->swap_used;
	r->swap_used += (n + 7) & ~(size_t)7;
	return p;
}

/* A foreign frame into a native copy: 1, 0 when it has to be left out, or an error. */
static int native(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	uint8_t *copy = swap_room(r, SP_MAX_RECORD + 1);
	if (!copy)
		return sp_err_nomem(err);
	r->swap_used -= SP_MAX_RECORD + 1;
	memcpy(copy, f->raw, f->size);
	sp_swap_header(copy);
	uint32_t type = sp_get32(copy);
	if (type == SP_PERF_HEADER_ATTR || type == SP_PERF_HEADER_FEATURE) {
		struct sp_buf whole = {0};
		int known = sp_swap_head_record(&whole, copy, f->size);
		if (known) {
			memcpy(copy, whole.data, whole.len);
			f->size = whole.len;
		} else {
			sp_count(&r->counters, SP_C_skipped_records, 1);
		}
		sp_buf_deinit(&whole);
		if (!known)
			return 0;
	} else if (!sp_swap_body(copy, f->size, &r->ev)) {
		sp_count(&r->counters, SP_C_skipped_records, 1);
		return 0;
	}
	r->swap_used += (f->size + 7) & ~(size_t)7;
	f->raw = copy;
	f->chunk = r->swap_chunk;
	return 1;
}

int sp_reader_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	return r->parts ? sp_reader_merged_frame(r, f, err) : sp_reader_part_frame(r, f, err);
}

int sp_reader_part_frame(struct sp_reader *r, struct frame *f, struct sp_err *err)
{
	for (;;) {
		int rc = r->in->expanding ? expanded_frame(r, f, err) : 0;
		if (rc == 0 && !r->in->expanding) {
			rc = source_frame(r, f, err);
			if (rc <= 0)
				return rc;
			uint32_t type = sp_reader_frame_type(r, f->raw);
			if (type == SP_PERF_COMPRESSED || type == SP_PERF_COMPRESSED2) {
				rc = begin_expanding(r, f, type, err);
				if (rc < 0)
					return rc;
				continue;
			}
			if (type == SP_PERF_HEADER_EVENT_TYPE && enter_shared(r, f))
				continue;
			if (type == SP_PERF_HEADER_TRACING_DATA)
				return take_tracing_data(r, f, err);
			if (type == SP_PERF_AUXTRACE) {
				rc = skip_aux(r, f, err);
				if (rc <= 0)
					return rc;
				continue;
			}
		}
		if (rc == 1 && r->layout.swapped)
			rc = native(r, f, err);
		if (rc != 0)
			return rc;
	}
}
