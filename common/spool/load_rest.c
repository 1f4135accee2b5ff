/* Blocks that are not samples: facts, events, embedded files, counters, the end. */
#include "spool/decode.h"

#include <stdio.h>
#include <stdlib.h>

const char *sp_load_info(struct sp_spool *s, const uint8_t *payload, size_t n, bool late)
{
	struct sp_cols *c = &s->data.cols;
	if (!sp_cols_parse(c, payload, n))
		return "its columns are malformed";
	const char *why = NULL;
	struct sp_repoch *e = !late	   ? sp_load_epoch(s, s->n_epoch, &why)
			      : s->n_epoch ? &s->epoch[s->n_epoch - 1]
					   : NULL;
	if (!e)
		return why;
	e->shift_ns = (int64_t)sp_cols_u64(c, SP_COL_SHIFT_NS);
	if (s->n_epoch > 1)
		return NULL; /* the first recording's facts stand for the file */
	for (unsigned i = 0; i < 6; i++) {
		size_t len;
		const uint8_t *p = sp_cols_bytes(c, SP_COL_HOSTNAME + i, &len);
		if (!sp_load_text(s, p, len, &s->info_at[i]))
			return "memory ended";
	}
	s->info_known = true;
	s->info.start_timestamp_us = sp_cols_u64(c, SP_COL_START_US);
	s->info.sample_interval_us = sp_cols_u64(c, SP_COL_INTERVAL_US);
	s->info.clock_ns = sp_cols_u64(c, SP_COL_CLOCK_NS);
	s->info.wall_ns = sp_cols_u64(c, SP_COL_WALL_NS);
	s->info.time_resolution_ns = sp_cols_u64(c, SP_COL_RESOLUTION_NS);
	return NULL;
}

const char *sp_load_events(struct sp_spool *s, const uint8_t *payload, size_t n)
{
	struct sp_cols *cols = &s->data.cols;
	if (!sp_cols_parse(cols, payload, n))
		return "its columns are malformed";
	size_t left;
	const uint8_t *text = sp_cols_bytes(cols, SP_COL_EV_BYTES, &left);
	uint64_t count = sp_cols_u64(cols, SP_COL_EV_N);
	if (count > SP_SPOOL_MAX_DEFS || !sp_load_afford(s, count * sizeof *s->exec))
		return "it claims too many events";
	size_t n_loss = s->n_loss, n_exec = s->n_exec;
	const char *why = NULL;
	for (; count && !why; count--) {
		uint64_t v[7];
		for (unsigned i = 0; i < 7; i++)
			v[i] = sp_col_next(&cols->c[SP_COL_EV_KIND + i]);
		if (!(v[0] & 1)) {
			struct sp_spool_loss *l = SP_PUSH(&s->loss, &s->n_loss, &s->cap_loss);
			if (!l)
				return "memory ended";
			*l = (struct sp_spool_loss){.from_ns = v[1], .to_ns = v[1] + v[2],
						    .count = v[3], .cpu = (uint32_t)v[4] - 1,
						    .kind = (uint32_t)(v[0] >> 1)};
			continue;
		}
		struct sp_rexec *e = SP_PUSH(&s->exec, &s->n_exec, &s->cap_exec);
		size_t len = v[5] ? (size_t)(v[5] - 1) : 0;
		if (!e || len > left || !sp_load_text(s, text, len, &e->at))
			why = "a command line is longer than its bytes";
		else
			e->pub = (struct sp_spool_exec){
				.time_ns = v[1],
				.pid = (int32_t)sp_unzigzag(v[2]),
				.kind = (uint32_t)(v[0] >> 1),
				.on = v[4] & 1,
				.cmdline = v[5] ? "" : NULL,
				.cmdline_len = (uint32_t)len,
				.origin = s->n_epoch ? sp_load_origin(&s->epoch[s->n_epoch - 1],
								      v[6])
						     : 0,
			};
		text += len;
		left -= why ? 0 : len;
	}
	for (unsigned i = 0; i < 7 && !why; i++)
		if (cols->c[SP_COL_EV_KIND + i].bad)
			why = "a column is shorter than its entries";
	if (why) {
		s->n_loss = n_loss;
		s->n_exec = n_exec;
	}
	return why;
}

static void drop_object(struct sp_spool *s)
{
	struct sp_robject *o = &s->object[--s->n_object];
	sp_load_complain(s, "an embedded file is incomplete: %s",
			 (const char *)s->bytes.data + o->path_at);
	sp_buf_deinit(&o->data);
}

void sp_load_object_end(struct sp_spool *s)
{
	if (s->n_object && s->object[s->n_object - 1].data.len != s->object[s->n_object - 1].total)
		drop_object(s);
}

const char *sp_load_object(struct sp_spool *s, const uint8_t *payload, size_t n)
{
	struct sp_cursor c = sp_cursor(payload, n);
	uint64_t no = sp_cur_u64(&c), at = sp_cur_u64(&c), total = sp_cur_u64(&c);
	struct sp_spool_object pub = {
		.kind = sp_cur_u32(&c),
		.pid = (int32_t)sp_cur_u32(&c),
		.time_ns = sp_cur_u64(&c),
		.start = sp_cur_u64(&c),
		.end = sp_cur_u64(&c),
		.inode = sp_cur_u64(&c),
		.dev_major = sp_cur_u32(&c),
		.dev_minor = sp_cur_u32(&c),
		.origin = sp_cur_u32(&c),
	};
	uint16_t path_len = sp_cur_u16(&c);
	pub.build_id_len = sp_cur_u8(&c);
	const uint8_t *id = sp_cur_bytes(&c, pub.build_id_len);
	const uint8_t *path = sp_cur_bytes(&c, path_len);
	if (c.bad)
		return "it is shorter than its head";
	size_t size = sp_cur_left(&c);
	uint32_t epoch = s->n_epoch ? (uint32_t)s->n_epoch - 1 : 0;
	struct sp_robject *o = s->n_object ? &s->object[s->n_object - 1] : NULL;
	bool goes_on = o && o->no == no && o->epoch == epoch && o->data.len != o->total;
	if (!goes_on) {
		sp_load_object_end(s);
		if (at)
			return NULL; /* its beginning was lost */
		o = sp_load_afford(s, sizeof *o) ? SP_PUSH(&s->object, &s->n_object, &s->cap_object)
						 : NULL;
		if (!o)
			return "memory ended";
		pub.origin = s->n_epoch ? sp_load_origin(&s->epoch[epoch], pub.origin) : 0;
		*o = (struct sp_robject){.pub = pub, .no = no, .total = total, .epoch = epoch};
		if (!sp_load_text(s, id, pub.build_id_len, &o->id_at) ||
		    !sp_load_text(s, path, path_len, &o->path_at)) {
			s->n_object--;
			return "memory ended";
		}
	}
	if (at != o->data.len || size > o->total - at ||
	    size > SP_SPOOL_MAX_OBJECTS - s->object_bytes) {
		drop_object(s);
		return "a piece of an embedded file is out of place";
	}
	s->object_bytes += size;
	sp_buf_add(&o->data, c.p, size);
	if (o->data.failed) {
		drop_object(s);
		return "memory ended";
	}
	return NULL;
}

const char *sp_load_stage(struct sp_spool *s, const uint8_t *payload, size_t n)
{
	struct sp_cols *cols = &s->data.cols;
	if (!sp_cols_parse(cols, payload, n))
		return "its columns are malformed";
	size_t name_len, text_len;
	const uint8_t *name = sp_cols_bytes(cols, SP_COL_STAGE_NAME, &name_len);
	const uint8_t *text = sp_cols_bytes(cols, SP_COL_STAGE_TEXT, &text_len);
	struct sp_rstage *g = SP_PUSH(&s->stage, &s->n_stage, &s->cap_stage);
	if (!g)
		return "memory ended";
	g->epoch = s->n_epoch ? (uint32_t)s->n_epoch - 1 : 0;
	if (!sp_load_afford(s, sizeof *g) || !sp_load_text(s, name, name_len, &g->name_at) ||
	    !sp_load_text(s, text, text_len, &g->text_at)) {
		s->n_stage--;
		return "memory ended";
	}
	return NULL;
}

const char *sp_load_end(struct sp_spool *s, const uint8_t *payload, size_t n)
{
	struct sp_cols *cols = &s->data.cols;
	if (!sp_cols_parse(cols, payload, n) || !s->n_epoch)
		return "its columns are malformed";
	struct sp_repoch *e = &s->epoch[s->n_epoch - 1];
	uint64_t total = sp_cols_u64(cols, SP_COL_END_SAMPLES);
	uint64_t known = s->info.n_samples - e->samples;
	if (total > known) {
		s->n_lost += total - known;
		e->samples -= total - known;
	}
	e->ended = true;
	if (!sp_cols_u64(cols, SP_COL_END_CUT))
		return NULL;
	size_t len;
	const uint8_t *why = sp_cols_bytes(cols, SP_COL_END_WHY, &len);
	if (s->state == SP_SPOOL_WHOLE)
		s->state = SP_SPOOL_INCOMPLETE;
	sp_load_complain(s, "the recording is incomplete: %.*s", (int)len, (const char *)why);
	return NULL;
}
