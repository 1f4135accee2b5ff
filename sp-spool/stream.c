#define _GNU_SOURCE
#include "stream.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/cursor.h"
#include "base/stop.h"

#define FLUSH_SECONDS 1
#define PATIENCE_NS 50000000L /* for the main thread to flush by itself */

int spool_stream_open(struct spool_stream *s, const char *path, const struct sp_spool_info *first,
		      struct sp_err *err)
{
	*s = (struct spool_stream){.first = first};
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &attr);
	pthread_condattr_destroy(&attr);
	s->joiner = sp_ext_joiner_new();
	int rc = s->joiner ? sp_reader_open(&s->r, path, 0, err) : sp_err_nomem(err);
	if (rc < 0)
		spool_stream_close(s);
	return rc;
}

void spool_stream_set_writer(struct spool_stream *s, struct sp_spool_writer *w)
{
	s->w = w;
}

void spool_stream_close(struct spool_stream *s)
{
	spool_intern_deinit(&s->in);
	spool_carry_deinit(&s->carry);
	spool_waits_deinit(&s->waits);
	spool_reads_deinit(&s->reads);
	sp_ext_joiner_free(s->joiner);
	sp_reader_close(s->r);
	sp_buf_deinit(&s->start);
	free(s->event);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	*s = (struct spool_stream){0};
}

/* --- the facts --- */

static uint64_t start_u64(const struct spool_stream *s, const char *key)
{
	size_t len;
	const char *v = s->start.len ? sp_ext_value(s->start.data, s->start.len, key, &len) : NULL;
	uint64_t n = 0;
	for (size_t i = 0; v && i < len && v[i] >= '0' && v[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(v[i] - '0');
	return n;
}

static void start_text(const struct spool_stream *s, const char *key, char *out, size_t size)
{
	size_t len = 0;
	const char *v = s->start.len ? sp_ext_value(s->start.data, s->start.len, key, &len) : NULL;
	snprintf(out, size, "%.*s", v ? (int)(len < size ? len : size - 1) : 0, v ? v : "");
}

/* Put what is known of the recording; again when more has become known. */
static int put_info(struct spool_stream *s, struct sp_err *err)
{
	const struct sp_perf_info *p = sp_reader_info(s->r);
	struct sp_spool_info i = {
		.hostname = p->hostname,
		.osrelease = p->osrelease,
		.arch = p->arch,
		.cmdline = p->cmdline,
		.start_timestamp_us = start_u64(s, "start_time_us"),
		.sample_interval_us = start_u64(s, "interval_us"),
		.clock_ns = start_u64(s, "start_ns"),
		.wall_ns = start_u64(s, "wall_ns"),
	};
	start_text(s, "boot_id", s->boot_id, sizeof s->boot_id);
	start_text(s, "clock", s->clock, sizeof s->clock);
	const struct sp_event *e = sp_reader_n_events(s->r) ? sp_reader_event(s->r, 0) : NULL;
	if (!s->clock[0] && e)
		snprintf(s->clock, sizeof s->clock, "%s", e->name);
	i.boot_id = s->boot_id;
	i.clock = s->clock;
	uint64_t rate = start_u64(s, "rate_hz");
	if (!rate && e && e->attr.flags & SP_ATTR_FREQ)
		rate = e->attr.sample_period;
	if (!i.sample_interval_us && rate)
		i.sample_interval_us = 1000000 / rate;
	if (!i.wall_ns && p->wall_ns) {
		i.clock_ns = p->clock_ns;
		i.wall_ns = p->wall_ns;
	}
	if (!i.start_timestamp_us && i.wall_ns && s->first_sample_ns)
		i.start_timestamp_us = (i.wall_ns + (s->first_sample_ns - i.clock_ns)) / 1000;
	/* The start is that of the first sample in the file. */
	if (i.start_timestamp_us && s->first_sample_ns && s->file_first_ns > s->first_sample_ns)
		i.start_timestamp_us += (s->file_first_ns - s->first_sample_ns) / 1000;
	const struct sp_spool_info *o = &s->info;
	bool same = s->info_put && o->hostname == i.hostname && o->osrelease == i.osrelease &&
		    o->arch == i.arch && o->cmdline == i.cmdline &&
		    o->start_timestamp_us == i.start_timestamp_us && o->wall_ns == i.wall_ns &&
		    o->sample_interval_us == i.sample_interval_us;
	if (same)
		return 0;
	const struct sp_spool_info *f = s->first;
	if (f && f->wall_ns && i.wall_ns && strcmp(f->boot_id, i.boot_id) != 0)
		sp_spool_set_shift(s->w, (int64_t)((i.wall_ns - i.clock_ns) -
						   (f->wall_ns - f->clock_ns)));
	if (f && !s->info_put && (strcmp(f->boot_id, i.boot_id) != 0 ||
				  strcmp(f->hostname, i.hostname ? i.hostname : "") != 0)) {
		s->in.origin = sp_spool_put_origin(s->w, i.hostname ? i.hostname : "", i.boot_id);
		if (s->in.origin == SP_NONE)
			return sp_err_nomem(err);
	}
	s->info = i;
	s->info_put = true;
	return sp_spool_put_info(s->w, &i, err);
}

/* Before anything is put: the facts that stand in the stream's head. */
static int need_info(struct spool_stream *s, struct sp_err *err)
{
	return s->info_put ? 0 : put_info(s, err);
}

/* --- counters --- */

/* The reader's counters that we take over. */
static const enum sp_counter seen[SPOOL_N_SEEN] = {SP_C_lost_events, SP_C_lost_samples,
						   SP_C_throttled, SP_C_out_of_order,
						   SP_C_skipped_records};

/* The flushing thread must not look into the reader, which may be at work. */
static void note_seen(struct spool_stream *s)
{
	const struct sp_counters *r = sp_reader_counters(s->r);
	for (size_t i = 0; i < SPOOL_N_SEEN; i++)
		s->seen[i] = r->v[seen[i]];
}

struct sp_counters spool_stream_counters(const struct spool_stream *s)
{
	struct sp_counters c = s->own;
	for (size_t i = 0; i < SPOOL_N_SEEN; i++)
		sp_count(&c, seen[i], s->seen[i]);
	if (s->has_loss_records || s->filter)
		c.v[SP_C_lost_events] = s->lost_told;
	if (s->filter) {
		struct sp_counters told = spool_filter_counters(&s->told);
		told.v[SP_C_samples] = told.v[SP_C_sample_events] = 0;
		sp_counters_add(&c, &told);
		return c;
	}
	/* A stage counts what it passes on as we do: what both know is one number, and the larger
	 * one has seen more. */
	for (unsigned i = 0; i < SP_N_COUNTERS; i++) {
		if (i == SP_C_samples || i == SP_C_sample_events || !sp_counter_known(&s->told, i))
			continue;
		if (s->told.v[i] > c.v[i])
			c.v[i] = s->told.v[i];
		c.known |= UINT64_C(1) << i;
	}
	return c;
}

/* "stage NAME", then "counter value" lines. */
static int take_stage(struct spool_stream *s, const uint8_t *p, size_t n, struct sp_err *err)
{
	const char *at = (const char *)p, *end = at + n;
	char name[64] = "?";
	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		const char *stop = nl ? nl : end;
		char line[160];
		snprintf(line, sizeof line, "%.*s", (int)(stop - at < 159 ? stop - at : 159), at);
		char *blank = strchr(line, ' ');
		if (blank)
			*blank++ = 0;
		enum sp_counter which = blank ? sp_counter_find(line) : SP_N_COUNTERS;
		if (blank && !strcmp(line, "stage")) {
			snprintf(name, sizeof name, "%.63s", blank);
		} else if (which != SP_N_COUNTERS) {
			uint64_t v = strtoull(blank, NULL, 10);
			if (v > s->told.v[which])
				s->told.v[which] = v;
			s->told.known |= UINT64_C(1) << which;
		}
		at = stop + 1;
	}
	int rc = need_info(s, err);
	return rc < 0 ? rc : sp_spool_put_stage(s->w, name, p, n, err);
}

/* --- our own records --- */

static int take_loss(struct spool_stream *s, struct sp_cursor c, struct sp_err *err)
{
	struct sp_spool_loss l = {.from_ns = sp_cur_u64(&c), .to_ns = sp_cur_u64(&c)};
	l.cpu = sp_cur_u32(&c);
	l.kind = sp_cur_u32(&c);
	l.count = sp_cur_u64(&c);
	if (c.bad)
		return 0;
	if (l.kind == 0 && !s->has_loss_records) {
		s->has_loss_records = true;
		s->lost_told = 0; /* of LOST records: these say the same better */
	}
	if (s->filter && !spool_filter_wants_time(s->filter, l.from_ns, l.to_ns))
		return 0;
	if (l.kind == 0)
		s->lost_told += l.count;
	int rc = need_info(s, err);
	return rc < 0 ? rc : sp_spool_put_loss(s->w, &l, err);
}

static int put_exec(struct spool_stream *s, const struct sp_spool_exec *e, struct sp_err *err)
{
	if (s->filter && !spool_filter_wants_pid(s->filter, e->pid))
		return 0;
	if (s->next_file && !spool_carry_exec(&s->carry, e))
		return sp_err_nomem(err);
	int rc = need_info(s, err);
	return rc < 0 ? rc : sp_spool_put_exec(s->w, e, err);
}

static int take_exec(struct spool_stream *s, unsigned kind, struct sp_cursor c, struct sp_err *err)
{
	struct sp_spool_exec e = {.time_ns = sp_cur_u64(&c), .pid = (int32_t)sp_cur_u32(&c),
				  .on = true, .origin = s->in.origin};
	uint32_t a = sp_cur_u32(&c);
	if (kind == SP_EXT_RUNTIME) {
		e.kind = a;
		e.on = sp_cur_u32(&c) != 0;
		sp_cur_u32(&c);
		if (e.kind == 4 && sp_cur_left(&c)) { /* the control group's strings */
			e.cmdline = (const char *)c.p;
			e.cmdline_len = (uint32_t)sp_cur_left(&c);
		}
	} else if (sp_cur_left(&c)) {
		e.cmdline = (const char *)c.p;
		e.cmdline_len = (uint32_t)sp_cur_left(&c);
	}
	return c.bad ? 0 : put_exec(s, &e, err);
}

static int take_object(struct spool_stream *s, const uint8_t *p, size_t n, struct sp_err *err)
{
	struct sp_ext_object o;
	if (sp_ext_object_decode(&o, p, n, NULL) < 0 ||
	    (s->filter && !spool_filter_wants_pid(s->filter, o.pid)))
		return 0;
	char *path = strndup(o.path, o.path_len);
	if (!path)
		return sp_err_nomem(err);
	struct sp_spool_object out = {
		.kind = o.kind,
		.pid = o.pid,
		.time_ns = o.time_ns,
		.start = o.start,
		.end = o.end,
		.inode = o.ino,
		.dev_major = o.maj,
		.dev_minor = o.min,
		.build_id = o.build_id,
		.build_id_len = o.build_id_len,
		.path = path,
		.data = o.data,
		.size = o.size,
		.origin = s->in.origin,
	};
	int rc = need_info(s, err);
	if (rc >= 0)
		rc = sp_spool_put_object(s->w, &out, err);
	if (rc >= 0 && s->next_file && !spool_carry_object(&s->carry, &out))
		rc = sp_err_nomem(err);
	free(path);
	if (rc == SP_ERR_LIMIT) {
		s->objects_refused++;
		rc = 0;
	}
	return rc;
}

static int take_ext(struct spool_stream *s, const struct sp_record *rec, struct sp_err *err)
{
	struct sp_ext ext;
	const uint8_t *p;
	size_t n;
	if (sp_ext_parse(rec, &ext, NULL) != 1 || ext.kind == 0)
		return 0;
	int rc = sp_ext_join(s->joiner, &ext, &p, &n, err);
	if (rc == SP_ERR_NOMEM)
		return rc;
	if (rc != 1)
		return 0;
	switch (ext.kind) {
	case SP_EXT_START:
		s->start.len = 0;
		sp_buf_add(&s->start, p, n);
		return s->start.failed ? sp_err_nomem(err) : 0;
	case SP_EXT_EXEC:
	case SP_EXT_RUNTIME:
		return take_exec(s, ext.kind, sp_cursor(p, n), err);
	case SP_EXT_OBJECT:
		return take_object(s, p, n, err);
	case SP_EXT_LOSS:
		return take_loss(s, sp_cursor(p, n), err);
	case SP_EXT_COUNTERS:
		return take_stage(s, p, n, err);
	case SP_EXT_WAIT:
		return spool_waits_add(&s->waits, sp_cursor(p, n)) ? 0 : sp_err_nomem(err);
	default:
		return 0;
	}
}

/* --- perf's records --- */

/* Weights in ns: the kernel's clocks, and off-CPU time. */
static bool is_clock(const struct sp_event *e)
{
	return (e->attr.type == 1 && e->attr.config <= 1) || !strncmp(e->name, "offcpu-time", 11);
}

static uint32_t event_of(struct spool_stream *s, const struct sp_event *e)
{
	size_t at = e ? e->index + 1 : 0;
	if (at >= s->n_event) {
		if (!sp_grow(&s->event, &s->cap_event, at + 1, sizeof *s->event))
			return SP_NONE;
		memset(s->event + s->n_event, 0, (at + 1 - s->n_event) * sizeof *s->event);
		s->n_event = at + 1;
	}
	if (!s->event[at]) {
		uint32_t id = sp_spool_put_event(s->w, e ? e->name : "unknown", e && is_clock(e));
		if (id == SP_NONE)
			return SP_NONE;
		s->event[at] = id + 1;
	}
	return s->event[at] - 1;
}

/* What is missing in a sample: at most one counter moves, in this order. */
static void count_sample(struct spool_stream *s, const struct sp_record *rec,
			 const struct spool_placed *p)
{
	struct sp_counters *c = &s->own;
	sp_count(c, SP_C_sample_events, 1);
	sp_count(c, SP_C_samples, 1);
	if (!rec->has_tid || rec->pid < 0)
		sp_count(c, SP_C_missing_pid_samples, 1);
	else if (rec->tid < 0)
		sp_count(c, SP_C_missing_tid_samples, 1);
	else if (rec->tid == 0)
		sp_count(c, SP_C_idle_tid_samples, 1);
	else if (!rec->has_time)
		sp_count(c, SP_C_missing_timestamp_samples, 1);
	else if (p->stack == SP_NONE)
		sp_count(c, SP_C_empty_stack_samples, 1);
	if (p->truncated)
		sp_count(c, SP_C_truncated_frame_markers, 1);
	if (p->n_zeros)
		sp_count(c, SP_C_zero_chain_entries, p->n_zeros);
	if (!s->in.site && rec->sample.has_stack && rec->sample.stack_bytes)
		sp_count(c, SP_C_not_unwound_samples, 1);
}

static int begin_samples(struct spool_stream *s, uint64_t time_ns, struct sp_err *err)
{
	s->has_samples = true;
	s->first_sample_ns = time_ns;
	s->in.site = sp_reader_info(s->r)->chain_is_site;
	int rc = put_info(s, err);
	if (rc == 0 && s->filter)
		spool_filter_begin(s->filter, &s->info, time_ns);
	return rc;
}

static bool is_wanted(const struct spool_stream *s, const struct sp_record *rec, uint64_t time_ns)
{
	int32_t pid = rec->has_tid && rec->pid >= 0 ? rec->pid : -1;
	int32_t tid = rec->has_tid && rec->tid >= 0 ? rec->tid : -1;
	return spool_filter_wants(s->filter, time_ns, pid, tid,
				  pid < 0 ? "" : sp_procs_comm(s->in.procs, pid, tid));
}

/* --- rotation --- */

static bool is_full(const struct spool_stream *s, uint64_t time_ns)
{
	if (!sp_spool_written_samples(s->w))
		return false;
	if (s->rotate_ns)
		return s->file_first_ns && time_ns >= s->file_first_ns &&
		       time_ns - s->file_first_ns >= s->rotate_ns;
	return sp_spool_written_bytes(s->w) >= s->rotate_bytes;
}

/* The counters of the file at hand. */
static struct sp_counters file_counters(const struct spool_stream *s)
{
	struct sp_counters c = spool_stream_counters(s);
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		if (i != SP_C_kernel_enabled && i != SP_C_minimum_ring_buffer_bytes &&
		    i != SP_C_maximum_ring_buffer_bytes)
			c.v[i] -= s->before.v[i] < c.v[i] ? s->before.v[i] : c.v[i];
	return c;
}

/* Complete this file, and go on in another one, which begins with what it needs to be read alone. */
static int rotate(struct spool_stream *s, struct sp_err *err)
{
	struct sp_counters c = file_counters(s);
	sp_spool_put_counters(s->w, &c);
	s->before = spool_stream_counters(s);
	int rc = s->next_file(s->next_ctx, &s->w, err);
	if (rc < 0)
		return rc;
	spool_intern_restart(&s->in, s->w);
	memset(s->event, 0, s->n_event * sizeof *s->event);
	s->info_put = false;
	s->file_first_ns = 0;
	rc = need_info(s, err);
	return rc < 0 ? rc : spool_carry_put(&s->carry, &s->in, err);
}

static int take_sample(struct spool_stream *s, const struct sp_record *rec, struct sp_err *err)
{
	if (rec->malformed) {
		sp_count(&s->own, SP_C_sample_events, 1);
		sp_count(&s->own, SP_C_rejected_samples, 1);
		return 0;
	}
	uint64_t time_ns = rec->has_time ? rec->time_ns : 0;
	int rc = s->has_samples ? 0 : begin_samples(s, time_ns, err);
	struct spool_placed p;
	if (rc == 0) /* of those that are left out too: the next one gains since then */
		rc = spool_reads_sample(&s->reads, s->r, rec, err);
	if (rc == 0 && s->filter && !is_wanted(s, rec, time_ns)) {
		s->n_left_out++;
		return 0;
	}
	if (rc == 0 && s->next_file && is_full(s, time_ns))
		rc = rotate(s, err);
	if (rc == 0 && (!s->info_put || !s->file_first_ns)) {
		s->file_first_ns = time_ns;
		rc = put_info(s, err);
	}
	if (rc == 0)
		rc = spool_intern_sample(&s->in, rec, &p, err);
	if (rc < 0)
		return rc;
	struct sp_spool_wsample out = {
		.time_ns = time_ns,
		.thread = p.thread,
		.stack = p.stack,
		.cpu = rec->cpu,
		.comm = p.comm,
		.set = p.set,
	};
	rc = spool_waits_join(&s->waits, &s->in, rec, &out, err);
	for (size_t i = 0; rc == 0 && i < s->reads.n; i++) {
		count_sample(s, rec, &p);
		out.weight = s->reads.gain[i].weight;
		out.event = event_of(s, s->reads.gain[i].event);
		rc = out.event == SP_NONE ? sp_err_nomem(err)
					  : sp_spool_put_sample(s->w, &out, err);
	}
	return rc;
}

/* Whether the recording was made by sp-capture, whose own records say more than the kernel's. */
static bool is_captured(const struct spool_stream *s)
{
	size_t len;
	const char *tool =
		s->start.len ? sp_ext_value(s->start.data, s->start.len, "tool", &len) : NULL;
	return tool && len == 10 && !memcmp(tool, "sp-capture", 10);
}

/* LOST and THROTTLE with their times, unless loss records say the same better. */
static int take_lost(struct spool_stream *s, const struct sp_record *rec, struct sp_err *err)
{
	bool lost = rec->type == SP_PERF_LOST;
	if (rec->malformed ||
	    (is_captured(s) && (!lost || start_u64(s, "exact_loss") == 1)))
		return 0;
	struct sp_spool_loss l = {
		.from_ns = rec->time_ns,
		.to_ns = rec->time_ns,
		.count = lost ? rec->lost.lost : 1,
		.cpu = rec->cpu,
		.kind = !lost,
	};
	if (s->filter && !spool_filter_wants_time(s->filter, l.from_ns, l.to_ns))
		return 0;
	if (lost && !s->has_loss_records)
		s->lost_told += l.count;
	int rc = need_info(s, err);
	return rc < 0 ? rc : sp_spool_put_loss(s->w, &l, err);
}

static int take_task(struct spool_stream *s, const struct sp_record *rec, struct sp_err *err)
{
	int rc = rec->malformed ? 0 : spool_intern_record(&s->in, rec, err);
	if (rc < 0 || rec->malformed || rec->type != SP_PERF_COMM || !rec->comm.is_exec ||
	    is_captured(s))
		return rc;
	struct sp_spool_exec e = {.time_ns = rec->time_ns, .pid = rec->pid, .on = true};
	return put_exec(s, &e, err);
}

static int take(struct spool_stream *s, const struct sp_record *rec, struct sp_err *err)
{
	switch (rec->type) {
	case SP_PERF_SAMPLE:
		return take_sample(s, rec, err);
	case SP_PERF_MMAP:
	case SP_PERF_MMAP2:
	case SP_PERF_COMM:
	case SP_PERF_FORK:
	case SP_PERF_EXIT:
		return take_task(s, rec, err);
	case SP_PERF_LOST:
	case SP_PERF_THROTTLE:
		return take_lost(s, rec, err);
	case SP_PERF_HEADER_EVENT_TYPE:
		return take_ext(s, rec, err);
	default:
		return 0;
	}
}

/* --- flushing by time --- */

static int flush(struct spool_stream *s, struct sp_err *err)
{
	atomic_store_explicit(&s->flush_due, false, memory_order_relaxed);
	if (!s->info_put)
		return 0; /* nothing has come that could be written */
	struct sp_counters c = file_counters(s);
	sp_spool_put_counters(s->w, &c);
	return sp_spool_flush(s->w, err);
}

static void wait_ns(struct spool_stream *s, long ns)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ns % 1000000000;
	t.tv_sec += ns / 1000000000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	while (!s->ending && pthread_cond_timedwait(&s->wake, &s->lock, &t) == 0)
		;
}

/* Each second a flush is due. The main thread sees that between two records; when it does not,
 * it waits for input, without the lock, and the flush is made here. */
static void *run_flusher(void *arg)
{
	struct spool_stream *s = arg;
	pthread_mutex_lock(&s->lock);
	while (!s->ending) {
		wait_ns(s, FLUSH_SECONDS * 1000000000L - PATIENCE_NS);
		atomic_store_explicit(&s->flush_due, true, memory_order_relaxed);
		wait_ns(s, PATIENCE_NS);
		if (!s->ending && atomic_load_explicit(&s->flush_due, memory_order_relaxed) &&
		    s->flush_rc == 0)
			s->flush_rc = flush(s, &s->flush_err);
		if (s->flush_rc < 0)
			pthread_kill(s->main, SIGTERM); /* it may wait for input */
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void start_flusher(struct spool_stream *s)
{
	/* Signals are for the main thread, whose read they interrupt. */
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	s->flusher_runs = pthread_create(&s->flusher, NULL, run_flusher, s) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void end_flusher(struct spool_stream *s)
{
	if (!s->flusher_runs)
		return;
	s->ending = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->flusher, NULL);
	pthread_mutex_lock(&s->lock);
	s->flusher_runs = false;
}

static bool must_stop(struct spool_stream *s)
{
	if (s->from_file && sp_stop_level())
		return true;
	uint64_t bytes = s->is_over ? sp_spool_written_bytes(s->w) : s->asked_at_bytes;
	if (bytes == s->asked_at_bytes)
		return false;
	s->asked_at_bytes = bytes;
	return s->is_over(s->next_ctx);
}

int spool_stream_run(struct spool_stream *s, const uint64_t seed[2], struct sp_err *err)
{
	int rc = spool_intern_init(&s->in, s->w, s->r, seed, err);
	if (rc < 0)
		return rc;
	s->main = pthread_self();
	sp_count(&s->own, SP_C_samples, 0);
	sp_count(&s->own, SP_C_sample_events, 0);
	pthread_mutex_lock(&s->lock);
	start_flusher(s);
	while (rc == 0) {
		struct sp_record rec;
		pthread_mutex_unlock(&s->lock);
		int got = sp_reader_next(s->r, &rec, err);
		pthread_mutex_lock(&s->lock);
		if (s->flush_rc < 0) {
			*err = s->flush_err;
			rc = s->flush_rc;
			break;
		}
		if (got <= 0) {
			rc = got;
			break;
		}
		note_seen(s);
		rc = take(s, &rec, err);
		if (rc == 0 && atomic_load_explicit(&s->flush_due, memory_order_relaxed))
			rc = flush(s, err);
		if (rc == 0 && must_stop(s)) {
			s->stopped = true;
			break;
		}
	}
	end_flusher(s);
	note_seen(s);
	if (rc == 0)
		rc = put_info(s, err);
	if (rc == 0)
		rc = flush(s, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}
