#include "spool/writer.h"

#include <stdlib.h>

#include "spool/dict.h"

/* A DATA block leaves at the latest when its columns may have grown to this. One more sample adds
 * at most SP_SPOOL_MAX_DEPTH nodes of 13 bytes, so that SP_SPOOL_RAW_MAX is never reached. */
#define BLOCK_FULL (2u << 20)
/* Of a thread's groups so many are looked at, the newest first, before there is another one: a thread
 * whose set changes with each sample has as many as it has samples, and uses the last one. */
#define GROUPS_TRIED 64u
#define OBJECT_PIECE (1u << 20)

int sp_spool_writer_new(struct sp_spool_writer **out, const struct sp_spool_wopts *opts,
			struct sp_err *err)
{
	struct sp_spool_writer *w = calloc(1, sizeof *w);
	if (!w)
		return sp_err_nomem(err);
	w->opts = *opts;
	if (!w->opts.resolution_ns)
		w->opts.resolution_ns = 1;
	w->seq = opts->seq;
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd || sp_spool_put_string(w, "", 0) == SP_NONE ||
	    sp_intern_add(&w->frames, &(struct sp_wframe){0}, sizeof(struct sp_wframe), NULL) ||
	    !SP_PUSH(&w->frame_out, &w->n_frame_out, &w->cap_frame_out)) {
		sp_spool_writer_free(w);
		return sp_err_nomem(err);
	}
	w->frame_out[0] = 1; /* the marker needs no definition */
	w->out.frames = 1;
	ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, opts->level ? opts->level : 7);
	ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_contentSizeFlag, 0);
	*out = w;
	return 0;
}

void sp_spool_writer_free(struct sp_spool_writer *w)
{
	if (!w)
		return;
	sp_intern_deinit(&w->strings);
	sp_intern_deinit(&w->origins);
	sp_intern_deinit(&w->files);
	sp_intern_deinit(&w->segs);
	sp_intern_deinit(&w->events);
	sp_intern_deinit(&w->threads);
	sp_intern_deinit(&w->frames);
	sp_intern_deinit(&w->waits);
	sp_map64_deinit(&w->node_map);
	for (size_t i = 0; i < w->n_set; i++)
		free(w->set[i].mods);
	for (size_t i = 0; i < 256; i++)
		sp_col_out_deinit(&w->col[i]);
	sp_buf_deinit(&w->info);
	sp_buf_deinit(&w->raw);
	sp_buf_deinit(&w->stored);
	sp_buf_deinit(&w->ev_bytes);
	free(w->file);
	free(w->thread);
	free(w->set);
	free(w->mod_log);
	free(w->node);
	free(w->frame_out);
	free(w->pending);
	free(w->group);
	free(w->last);
	free(w->path);
	free(w->order);
	free(w->at);
	ZSTD_freeCCtx(w->zstd);
	free(w);
}

int sp_spool_nomem(struct sp_spool_writer *w, struct sp_err *err)
{
	if (!w->failed.code)
		sp_err_nomem(&w->failed);
	if (err)
		*err = w->failed;
	return w->failed.code;
}

static int emit(struct sp_spool_writer *w, const void *bytes, size_t n, struct sp_err *err)
{
	int rc = w->opts.sink(w->opts.ctx, bytes, n, &w->failed);
	if (rc < 0) {
		w->failed.code = rc;
		if (err)
			*err = w->failed;
		return rc;
	}
	w->n_bytes += n;
	return 0;
}

/* Lay out header and payload in w->stored, hand it over. */
static int emit_block(struct sp_spool_writer *w, enum sp_block_type type, const void *raw, size_t n,
		      struct sp_err *err)
{
	size_t bound = ZSTD_compressBound(n), head = SP_SPOOL_BLOCK_HEAD;
	size_t file_head = w->begun ? 0 : SP_SPOOL_FILE_HEAD;
	w->stored.len = 0;
	uint8_t *p = sp_buf_zero(&w->stored, file_head + head + bound);
	if (!p || n > SP_SPOOL_RAW_MAX)
		return sp_spool_nomem(w, err);
	if (file_head)
		sp_spool_head_encode(p, w->opts.salt);
	w->begun = true;
	p += file_head;
	struct sp_block b = {
		.type = (uint8_t)type,
		.raw = (uint32_t)n,
		.seq = w->seq++,
		.salt = (uint32_t)w->opts.salt,
	};
	size_t stored = ZSTD_compress2(w->zstd, p + head, bound, raw, n);
	if (ZSTD_isError(stored) || stored >= n || n > SP_SPOOL_RATIO(stored)) {
		stored = n;
		if (n)
			memcpy(p + head, raw, n);
	} else {
		b.flags = SP_BLOCK_ZSTD;
	}
	b.stored = (uint32_t)stored;
	b.crc = sp_spool_crc(p + head, stored);
	sp_block_encode(p, &b);
	return emit(w, w->stored.data, file_head + head + stored, err);
}

int sp_spool_block(struct sp_spool_writer *w, enum sp_block_type type, const void *raw, size_t n,
		   struct sp_err *err)
{
	if (!w->begun) {
		w->begun = w->opts.append; /* the file has its header */
		int rc = emit_block(w, SP_BLOCK_INFO, w->info.data, w->info.len, err);
		if (rc < 0)
			return rc;
	}
	return emit_block(w, type, raw, n, err);
}

void sp_spool_set_shift(struct sp_spool_writer *w, int64_t shift_ns)
{
	w->opts.shift_ns = shift_ns;
}

int sp_spool_put_info(struct sp_spool_writer *w, const struct sp_spool_info *info,
		      struct sp_err *err)
{
	struct sp_buf *b = &w->info;
	b->len = 0;
	const char *const text[] = {info->hostname, info->osrelease, info->arch,
				    info->cmdline,  info->boot_id,   info->clock};
	for (unsigned i = 0; i < 6; i++) {
		size_t n = text[i] ? strlen(text[i]) : 0;
		sp_col_bytes(b, SP_COL_HOSTNAME + i, text[i],
			     n < SP_SPOOL_MAX_STRING ? n : SP_SPOOL_MAX_STRING);
	}
	sp_col_u64(b, SP_COL_START_US, info->start_timestamp_us);
	sp_col_u64(b, SP_COL_INTERVAL_US, info->sample_interval_us);
	sp_col_u64(b, SP_COL_CLOCK_NS, info->clock_ns);
	sp_col_u64(b, SP_COL_WALL_NS, info->wall_ns);
	sp_col_u64(b, SP_COL_RESOLUTION_NS, w->opts.resolution_ns);
	sp_col_u64(b, SP_COL_SHIFT_NS, (uint64_t)w->opts.shift_ns);
	if (b->failed)
		return sp_spool_nomem(w, err);
	return w->begun ? sp_spool_block(w, SP_BLOCK_FACTS, b->data, b->len, err) : 0;
}

static int dead(const struct sp_spool_writer *w, struct sp_err *err)
{
	if (w->failed.code && err)
		*err = w->failed;
	return w->failed.code;
}

/* The pending block's group of a sample, or SP_NONE. */
static uint32_t find_group(struct sp_spool_writer *w, const struct sp_spool_wsample *s)
{
	struct sp_wthread *t = &w->thread[s->thread];
	uint32_t newest = t->block == w->block ? t->group : SP_NONE;
	uint32_t tries = GROUPS_TRIED;
	for (uint32_t g = newest; g != SP_NONE && tries--; g = w->group[g].older - 1) {
		const struct sp_wgroup *p = &w->group[g];
		if (p->comm == s->comm && p->set == s->set && p->event == s->event)
			return g;
	}
	struct sp_wgroup *g = SP_PUSH(&w->group, &w->n_group, &w->cap_group);
	if (!g)
		return SP_NONE;
	*g = (struct sp_wgroup){
		.thread = s->thread,
		.comm = s->comm,
		.set = s->set,
		.event = s->event,
		.older = newest + 1,
		.weight = s->weight,
	};
	t->block = w->block;
	t->group = (uint32_t)w->n_group - 1;
	return t->group;
}

static bool block_is_full(const struct sp_spool_writer *w)
{
	const struct sp_wstored *o = &w->out;
	size_t strings = w->strings.n - o->strings;
	size_t string_bytes =
		strings ? w->strings.bytes.len - w->strings.items[o->strings].at : 0;
	return w->n_pending >= SP_SPOOL_MAX_SAMPLES / 2 ||
	       w->n_pending * 37 + (w->waits.n - o->waits) * 16 + w->n_group * 25 + (w->n_node - w->nodes_before) * 13 +
			       string_bytes + strings * 3 + w->n_mod_log * 16 +
			       (w->n_file - o->files) * 100 + (w->segs.n - o->segs) * 20 +
			       (w->n_thread - o->threads) * 14 + (w->n_set - o->sets) * 14 >=
		       BLOCK_FULL;
}

int sp_spool_put_sample(struct sp_spool_writer *w, const struct sp_spool_wsample *s,
			struct sp_err *err)
{
	if (w->failed.code)
		return dead(w, err);
	if (s->thread >= w->n_thread || s->comm >= w->strings.n || s->event >= w->events.n ||
	    (s->set != SP_NONE && s->set >= w->n_set) ||
	    (s->stack != SP_NONE && s->stack >= w->n_node) || s->wait > w->waits.n)
		return sp_err_set(err, SP_ERR_INVALID, 0, "a sample refers to nothing");
	uint32_t group = find_group(w, s);
	if (group == SP_NONE ||
	    !sp_grow(&w->pending, &w->cap_pending, w->n_pending + 1, sizeof *w->pending))
		return sp_spool_nomem(w, err);
	w->group[group].n++;
	w->pending[w->n_pending++] = (struct sp_wpending){
		.time = w->opts.resolution_ns > 1 ? s->time_ns / w->opts.resolution_ns : s->time_ns,
		.weight = s->weight,
		.group = group,
		.stack = s->stack,
		.cpu = s->cpu,
		.wait = s->wait,
	};
	w->n_samples++;
	return block_is_full(w) ? sp_spool_encode(w, err) : 0;
}

static int flush_events(struct sp_spool_writer *w, struct sp_err *err)
{
	if (!w->n_ev)
		return 0;
	w->raw.len = 0;
	for (unsigned id = SP_COL_EV_KIND; id <= SP_COL_EV_ORIGIN; id++)
		sp_col_flush(&w->raw, id, &w->col[id]);
	sp_col_bytes(&w->raw, SP_COL_EV_BYTES, w->ev_bytes.data, w->ev_bytes.len);
	/* Events may be all zeros: their number is told by itself. */
	sp_col_u64(&w->raw, SP_COL_EV_N, w->n_ev);
	w->n_ev = 0;
	w->ev_bytes.len = 0;
	if (w->raw.failed || w->ev_bytes.failed)
		return sp_spool_nomem(w, err);
	return sp_spool_block(w, SP_BLOCK_EVENTS, w->raw.data, w->raw.len, err);
}

static int put_event(struct sp_spool_writer *w, const uint64_t v[7], struct sp_err *err)
{
	if (w->failed.code)
		return dead(w, err);
	for (unsigned i = 0; i < 7; i++)
		sp_col_push(&w->col[SP_COL_EV_KIND + i], v[i]);
	w->n_ev++;
	return w->n_ev >= 16384 || w->ev_bytes.len >= (1u << 20) ? flush_events(w, err) : 0;
}

int sp_spool_put_loss(struct sp_spool_writer *w, const struct sp_spool_loss *l, struct sp_err *err)
{
	const uint64_t v[7] = {(uint64_t)l->kind << 1, l->from_ns, l->to_ns - l->from_ns, l->count,
			       (uint32_t)(l->cpu + 1)};
	return put_event(w, v, err);
}

int sp_spool_put_exec(struct sp_spool_writer *w, const struct sp_spool_exec *e, struct sp_err *err)
{
	uint32_t n = e->cmdline_len < SP_SPOOL_MAX_STRING ? e->cmdline_len : SP_SPOOL_MAX_STRING;
	if (e->cmdline)
		sp_buf_add(&w->ev_bytes, e->cmdline, n);
	const uint64_t v[7] = {(uint64_t)e->kind << 1 | 1, e->time_ns, sp_zigzag(e->pid), 0, e->on,
			       e->cmdline ? n + 1 : 0, e->origin};
	return put_event(w, v, err);
}

int sp_spool_put_object(struct sp_spool_writer *w, const struct sp_spool_object *o,
			struct sp_err *err)
{
	if (w->failed.code)
		return dead(w, err);
	size_t path_len = o->path ? strlen(o->path) : 0;
	if (path_len > SP_SPOOL_MAX_STRING)
		path_len = SP_SPOOL_MAX_STRING;
	if (o->size > SP_SPOOL_MAX_OBJECTS - w->object_bytes)
		return sp_err_set(err, SP_ERR_LIMIT, 0,
				  "cannot embed '%.200s': embedded files are limited to %llu MiB",
				  o->path ? o->path : "",
				  (unsigned long long)(SP_SPOOL_MAX_OBJECTS >> 20));
	w->object_bytes += o->size;
	size_t at = 0;
	do {
		size_t n = o->size - at < OBJECT_PIECE ? o->size - at : OBJECT_PIECE;
		struct sp_buf *b = &w->raw;
		b->len = 0;
		sp_buf_u64(b, w->object_no);
		sp_buf_u64(b, at);
		sp_buf_u64(b, o->size);
		sp_buf_u32(b, o->kind);
		sp_buf_u32(b, (uint32_t)o->pid);
		sp_buf_u64(b, o->time_ns);
		sp_buf_u64(b, o->start);
		sp_buf_u64(b, o->end);
		sp_buf_u64(b, o->inode);
		sp_buf_u32(b, o->dev_major);
		sp_buf_u32(b, o->dev_minor);
		sp_buf_u32(b, o->origin);
		sp_buf_u16(b, (uint16_t)path_len);
		uint8_t id_len = o->build_id && o->build_id_len <= 64 ? o->build_id_len : 0;
		sp_buf_u8(b, id_len);
		sp_buf_add(b, o->build_id, id_len);
		sp_buf_add(b, o->path, path_len);
		sp_buf_add(b, o->data + at, n);
		if (b->failed)
			return sp_spool_nomem(w, err);
		int rc = sp_spool_block(w, SP_BLOCK_OBJECT, b->data, b->len, err);
		if (rc < 0)
			return rc;
		at += n;
	} while (at < o->size);
	w->object_no++;
	return 0;
}

void sp_spool_put_counters(struct sp_spool_writer *w, const struct sp_counters *c)
{
	w->counters = *c;
}

int sp_spool_put_stage(struct sp_spool_writer *w, const char *name, const void *text, size_t n,
		       struct sp_err *err)
{
	if (w->failed.code)
		return dead(w, err);
	w->raw.len = 0;
	sp_col_bytes(&w->raw, SP_COL_STAGE_NAME, name, strnlen(name, SP_SPOOL_MAX_STRING));
	sp_col_bytes(&w->raw, SP_COL_STAGE_TEXT, text, n < (1u << 20) ? n : 1u << 20);
	if (w->raw.failed)
		return sp_spool_nomem(w, err);
	return sp_spool_block(w, SP_BLOCK_STAGE, w->raw.data, w->raw.len, err);
}

int sp_spool_flush(struct sp_spool_writer *w, struct sp_err *err)
{
	int rc = dead(w, err);
	if (rc == 0)
		rc = flush_events(w, err);
	if (rc == 0)
		rc = sp_spool_encode(w, err);
	return rc;
}

int sp_spool_finish(struct sp_spool_writer *w, const char *cut, struct sp_err *err)
{
	int rc = sp_spool_flush(w, err);
	if (rc < 0)
		return rc;
	w->raw.len = 0;
	sp_col_u64(&w->raw, SP_COL_END_SAMPLES, w->n_samples);
	sp_col_u64(&w->raw, SP_COL_END_BLOCKS, w->seq);
	if (cut) {
		sp_col_u64(&w->raw, SP_COL_END_CUT, 1);
		sp_col_bytes(&w->raw, SP_COL_END_WHY, cut, strnlen(cut, 400));
	}
	if (w->raw.failed)
		return sp_spool_nomem(w, err);
	return sp_spool_block(w, SP_BLOCK_END, w->raw.data, w->raw.len, err);
}

uint64_t sp_spool_written_bytes(const struct sp_spool_writer *w)
{
	return w->n_bytes;
}

uint64_t sp_spool_written_samples(const struct sp_spool_writer *w)
{
	return w->n_samples;
}
