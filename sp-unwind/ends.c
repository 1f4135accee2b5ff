#include "ends.h"

#include "base/cli.h"
#include "perf/head.h"
#include "sample.h"

int un_ends_begin(struct un_ends *e, struct sp_writer *w, const struct sp_reader *r,
		  struct sp_err *err)
{
	*e = (struct un_ends){.w = w, .r = r};
	return sp_reader_info(r)->is_pipe ? sp_writer_begin(w, err)
					  : sp_head_write(w, r, SP_HEAD_UNWOUND, err);
}

void un_ends_deinit(struct un_ends *e)
{
	sp_buf_deinit(&e->end);
	sp_buf_deinit(&e->scratch);
}

bool un_ends_takes(const struct sp_record *rec)
{
	switch (rec->type) {
	case SP_PERF_HEADER_ATTR:
	case SP_PERF_HEADER_FEATURE:
	case SP_PERF_HEADER_BUILD_ID:
	case SP_PERF_EVENT_UPDATE:
	case SP_PERF_HEADER_TRACING_DATA:
		return true;
	default:
		return false;
	}
}

int un_ends_head(struct un_ends *e, const struct sp_record *rec, struct sp_err *err)
{
	if (rec->malformed) /* the reader says that the input is damaged */
		return 0;
	if (rec->type == SP_PERF_HEADER_TRACING_DATA)
		return sp_head_tracing_data(e->w, e->r, err);
	int rc = sp_head_rewrite(&e->scratch, rec, SP_HEAD_UNWOUND, err);
	if (rc == 1)
		return sp_writer_raw(e->w, e->scratch.data, e->scratch.len, err);
	return rc == 0 ? sp_writer_raw(e->w, rec->raw, rec->size, err) : rc < 0 ? rc : 0;
}

static void put_line(struct sp_buf *b, const char *key, uint64_t value)
{
	if (value)
		sp_buf_printf(b, "%s=%llu\n", key, (unsigned long long)value);
}

/* What a foreign recording says, in the start record's words. */
static void put_facts(struct sp_buf *b, const struct sp_reader *r)
{
	const struct sp_perf_info *info = sp_reader_info(r);
	const struct sp_event *e = sp_reader_n_events(r) ? sp_reader_event(r, 0) : NULL;
	sp_buf_str(b, "producer=perf\n");
	put_line(b, "start_ns", info->clock_ns);
	put_line(b, "wall_ns", info->wall_ns);
	if (!e)
		return;
	sp_buf_printf(b, "clock=%.200s\n", e->name);
	put_line(b, "stack_bytes", e->attr.sample_stack_user);
	if (e->attr.flags & SP_ATTR_FREQ)
		put_line(b, "rate_hz", e->attr.sample_period);
	sp_buf_printf(b, "kernel=%d\n", !(e->attr.flags & SP_ATTR_EXCLUDE_KERNEL));
}

/* The lines of a record that do not set one of our keys. */
static void put_others(struct sp_buf *b, const uint8_t *text, size_t size)
{
	static const char *const ours[] = {"chain=", "unwinder=", "status=", "reason="};
	const char *p = (const char *)text, *end = size ? p + size : p; /* text may be NULL then */
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((nl ? nl : end) - p);
		bool skip = len == 0 || memchr(p, 0, len);
		for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
			skip |= len >= strlen(ours[i]) && !memcmp(p, ours[i], strlen(ours[i]));
		if (!skip) {
			sp_buf_add(b, p, len);
			sp_buf_u8(b, '\n');
		}
		p += len + 1;
	}
}

static int put_record(struct un_ends *e, enum sp_ext_kind kind, struct sp_err *err)
{
	const struct sp_buf *b = &e->scratch;
	return b->failed ? sp_err_nomem(err) : sp_ext_write(e->w, kind, b->data, b->len, err);
}

int un_ends_start(struct un_ends *e, const uint8_t *from, size_t size, struct sp_err *err)
{
	e->site = sp_reader_info(e->r)->chain_is_site;
	for (size_t i = 0; i < sp_reader_n_events(e->r); i++)
		e->site |= un_attr_unwinds(&sp_reader_event(e->r, i)->attr);
	e->started = true;
	struct sp_buf *b = &e->scratch;
	b->len = 0;
	sp_buf_printf(b, "chain=%s\nunwinder=sp-unwind %s\n", e->site ? "site" : "return",
		      SP_VERSION);
	if (from)
		put_others(b, from, size);
	else
		put_facts(b, e->r);
	return put_record(e, SP_EXT_START, err);
}

void un_ends_keep(struct un_ends *e, const uint8_t *payload, size_t size)
{
	e->end.len = 0;
	sp_buf_add(&e->end, payload, size);
}

/* How much a worker found in its caches depends on how many there are; the stream must not. */
static bool of_caches(unsigned counter)
{
	return counter == SP_C_rule_hits || counter == SP_C_rule_misses ||
	       counter == SP_C_reused_frames;
}

int un_ends_finish(struct un_ends *e, const struct sp_counters *c, enum sp_input_state state,
		   const char *complaint, struct sp_err *err)
{
	static const char *const states[] = {
		[SP_INPUT_WHOLE] = "whole", [SP_INPUT_CUT] = "cut", [SP_INPUT_DAMAGED] = "damaged"};
	struct sp_buf *b = &e->scratch;
	int rc = e->started ? 0 : un_ends_start(e, NULL, 0, err);
	b->len = 0;
	sp_buf_str(b, "stage sp-unwind\n");
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		if (sp_counter_known(c, (enum sp_counter)i) && !of_caches(i))
			sp_buf_printf(b, "%s %llu\n", sp_counter_name((enum sp_counter)i),
				      (unsigned long long)c->v[i]);
	if (rc == 0)
		rc = put_record(e, SP_EXT_COUNTERS, err);
	b->len = 0;
	sp_buf_printf(b, "status=%s\n", states[state]);
	if (state != SP_INPUT_WHOLE && *complaint && !strchr(complaint, '\n'))
		sp_buf_printf(b, "reason=%s\n", complaint);
	put_others(b, e->end.data, e->end.len);
	return rc == 0 ? put_record(e, SP_EXT_END, err) : rc;
}
