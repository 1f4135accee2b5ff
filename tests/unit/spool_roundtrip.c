/* The spool's writer and reader: what goes in comes out, by value. */
#define _GNU_SOURCE
#include "spool_make.h"
#include "tap.h"

#define ok(good, ...)                                                                              \
	do {                                                                                       \
		char name_[600];                                                                   \
		snprintf(name_, sizeof name_, __VA_ARGS__);                                        \
		tap_ok((good), name_);                                                             \
	} while (0)


static void check_wait(const struct sp_spool *s, const struct sp_spool_sample *out, uint32_t i)
{
	struct sp_spool_wait want, got = sp_spool_wait(s, out->wait);
	bool has = make_wait(i, &want);
	ok(has ? out->wait && got.state == want.state && got.waker_pid == want.waker_pid &&
			 got.waker_tid == want.waker_tid && !strcmp(got.waker_comm, want.waker_comm)
	       : !out->wait && !*got.waker_comm,
	   "the wait of sample %u comes back", i);
}

static void check_sample(struct sp_spool *s, uint32_t i, uint64_t resolution)
{
	struct sp_spool_sample out;
	struct sp_err err;
	bool good = sp_spool_next(s, &out, &err) == 1;
	if (good)
		check_wait(s, &out, i);
	uint32_t p = i % 2;
	uint64_t base = 0x7f0000000000 + p * 0x100000;
	const struct sp_spool_thread *t = good ? sp_spool_thread(s, out.thread) : NULL;
	good = good && out.time_ns == make_time(i) / resolution * resolution &&
	       out.weight == (i % 9 == 0 ? 2002002 : 1001001) &&
	       out.cpu == (i % 4 == 3 ? UINT32_MAX : i % 4) &&
	       !strcmp(out.comm, i < 30 ? "before" : "after") && t->pid == (int32_t)(100 + p) &&
	       t->tid == (int32_t)(100 + p + i % 3);
	const struct sp_spool_frame *f;
	size_t n = good ? sp_spool_frames(s, &f) : 0, at = 0;
	if (i == 33) {
		ok(good && n == 0, "sample 33 has the empty stack");
		return;
	}
	good = good && n == 3 + i % 4 + (i % 6 < 3) + (i % 5 == 0);
	if (good && i % 6 == 0) {
		const struct sp_spool_module *m = sp_spool_module(s, f->module);
		good = f->abs_ip == 0x5000010 && f->rel_ip == 0x10 && m->is_anon &&
		       !strcmp(m->path, "//anon") && m->pid == (int32_t)(100 + p);
	} else if (good && i % 6 == 1) {
		good = f->abs_ip == 0x1234 && f->module == SP_NONE && f->mode == SP_FRAME_USER;
	} else if (good && i % 6 == 2) {
		const struct sp_spool_module *m = sp_spool_module(s, f->module);
		good = f->abs_ip == 0xffffffff81000123 && f->mode == SP_FRAME_KERNEL &&
		       m->is_kernel && m->pid == -1;
	}
	at = i % 6 < 3;
	for (uint32_t d = 3 + i % 4; good && d-- > 0; at++) {
		const struct sp_spool_module *m = sp_spool_module(s, f[at].module);
		good = f[at].abs_ip == base + 0x100 + d * 8 + i % 3 &&
		       f[at].rel_ip == 0x2100 + d * 8 + i % 3 && m->start == base &&
		       m->end == base + 0x10000 && m->file_offset == 0x2000 && m->inode == 77 &&
		       m->dev_major == 8 && m->dev_minor == 1 && m->build_id_len == 20 &&
		       !memcmp(m->build_id, "0123456789abcdefghij", 20) &&
		       m->pid == (int32_t)(100 + p);
	}
	if (good && i % 5 == 0)
		good = f[n - 1].mode == SP_FRAME_TRUNCATED && f[n - 1].module == SP_NONE;
	ok(good, "sample %u comes back", i);
}

static void check_waits(struct sp_spool *s)
{
	static const struct {
		uint32_t state;
		const char *word;
	} states[] = {{0, "runnable"},	  {0x2001, "sleeping"}, {2, "disk sleep"}, {0x102, "disk sleep"},
		      {0x402, "idle"},	  {4, "stopped"},	{0x108, "tracing stop"}, {0x40, "parked"},
		      {UINT32_MAX, "unknown"}};
	ok(sp_spool_n_waits(s) == 4, "three kinds of waits and none: %zu", sp_spool_n_waits(s));
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		ok(!strcmp(sp_spool_wait_state(states[i].state), states[i].word), "state %x is %s",
		   states[i].state, states[i].word);
}

static void check_rest(struct sp_spool *s)
{
	const struct sp_spool_info *i = sp_spool_info(s);
	ok(!strcmp(i->hostname, "host") && !strcmp(i->osrelease, "6.1.0") &&
		   !strcmp(i->arch, "x86_64") && !strcmp(i->cmdline, "sp-capture -p 1") &&
		   !strcmp(i->boot_id, "b00t") && !strcmp(i->clock, "cpu-clock") &&
		   i->start_timestamp_us == 1700000000000000 && i->sample_interval_us == 1001 &&
		   i->clock_ns == 5000000000 && i->wall_ns == 1700000000000000000 &&
		   i->n_samples == MAKE_SAMPLES && i->version == 1,
	   "the facts come back");
	ok(i->first_ns == make_time(0) && i->last_ns == make_time(MAKE_SAMPLES - 1),
	   "first and last time");
	const struct sp_spool_loss *l = sp_spool_loss(s, 0);
	ok(sp_spool_n_losses(s) == 2 && l->from_ns == 10 && l->to_ns == 20 && l->count == 3 &&
		   l->cpu == SP_NONE && l->kind == 1 && sp_spool_loss(s, 1)->cpu == 2 &&
		   sp_spool_loss(s, 1)->count == 4,
	   "losses come back");
	const struct sp_spool_exec *e = sp_spool_exec(s, 0);
	ok(sp_spool_n_execs(s) == 2 && e->time_ns == 55 && e->pid == 100 && e->kind == 0 &&
		   e->cmdline_len == 3 && !memcmp(e->cmdline, "a\0b", 3) &&
		   sp_spool_exec(s, 1)->kind == 1 && sp_spool_exec(s, 1)->on &&
		   !sp_spool_exec(s, 1)->cmdline,
	   "exec and runtime markers come back");
	const struct sp_spool_object *o = sp_spool_object(s, 0);
	ok(sp_spool_n_objects(s) == 1 && o->kind == 2 && o->pid == 100 && o->time_ns == 9 &&
		   !strcmp(o->path, "/tmp/perf-100.map") && o->size == 15 &&
		   !memcmp(o->data, "5000000 10 jit\n", 15),
	   "an embedded file comes back");
	const struct sp_counters *c = sp_spool_counters(s);
	ok(c->v[SP_C_lost_events] == 7 && c->v[SP_C_samples] == MAKE_SAMPLES &&
		   c->v[SP_C_sample_events] == MAKE_SAMPLES && sp_counter_known(c, SP_C_throttled) &&
		   !sp_counter_known(c, SP_C_out_of_order),
	   "counters come back, unknown ones stay unknown");
	const uint64_t *k;
	ok(sp_spool_kernel_frame_addresses(s, &k) == 1 && k[0] == 0xffffffff81000123,
	   "the kernel addresses");
	ok(sp_spool_n_events(s) == 1 && !strcmp(sp_spool_event(s, 0)->name, "cpu-clock") &&
		   sp_spool_event(s, 0)->weight_is_time,
	   "the event");
	ok(sp_spool_timestamp_us(s, make_time(0) + 5000) == 1700000000000005, "the timeline");
}

static void check_shared_frames(struct sp_spool *s)
{
	struct sp_spool_sample out;
	struct sp_err err;
	uint32_t id[2] = {0};
	sp_spool_rewind(s);
	/* Samples 3 and 9 are of one kind (i % 6 == 3, i % 3 == 0), both of process 101; sample 6
	 * of process 100 has the same outer frames. */
	for (uint32_t i = 0; i <= 6 && sp_spool_next(s, &out, &err) == 1; i++) {
		const struct sp_spool_frame *f;
		size_t n = sp_spool_frames(s, &f);
		if (i == 3 || i == 6)
			id[i == 6] = f[n - 1].frame_id;
	}
	ok(id[0] == id[1] && id[0], "processes share a file's frames");
}

/* A sample of process 7, whose only thread and event it puts. */
static struct sp_spool_wsample plain_sample(struct sp_spool_writer *w, uint32_t set, uint32_t stack)
{
	return (struct sp_spool_wsample){
		.weight = 1,
		.thread = sp_spool_put_thread(w, 0, 7, 7),
		.event = sp_spool_put_event(w, "cpu-clock", true),
		.stack = stack,
		.cpu = SP_NONE,
		.comm = sp_spool_put_string(w, "x", 1),
		.set = set,
	};
}

/* Files by build-id, by content, by neither; two that their content alone tells apart. */
static void check_content(void)
{
	static const char *const hashes[] = {"abcdefghij0123456789", NULL, "ABCDEFGHIJ0123456789", NULL};
	struct sp_buf b = {0};
	struct sp_spool *s;
	struct sp_err err = {0};
	struct sp_spool_info info = {.hostname = "h"};
	struct sp_spool_writer *w = make_begin(&b, 1);
	int rc = sp_spool_put_info(w, &info, &err);
	uint32_t set = sp_spool_put_set(w, 0, 7, SP_NONE), stack = SP_NONE;
	for (uint32_t i = 0; i < 4; i++) {
		struct sp_spool_wfile f = {.path = "/x", .maj = 8, .ino = 5,
					   .build_id = (const uint8_t *)"id", .build_id_len = i == 1 ? 2 : 0,
					   .content_hash = (const uint8_t *)hashes[i]};
		uint64_t at = 0x10000 * (i + 1);
		uint32_t file = sp_spool_put_file(w, &f);
		ok(file == i && sp_spool_put_file(w, &f) == i, "file %u is one of its own", i);
		uint32_t m = sp_spool_put_module(w, set, at, at + 0x1000, 0, file);
		stack = sp_spool_put_node(w, stack, sp_spool_put_site(w, set, m, at + 16));
	}
	struct sp_spool_wsample sample = plain_sample(w, set, stack);
	if (rc >= 0)
		rc = sp_spool_put_sample(w, &sample, &err);
	ok(rc >= 0 && sp_spool_finish(w, NULL, &err) >= 0, "contents are written: %s", err.msg);
	sp_spool_writer_free(w);
	ok(open_bytes(&s, b.data, b.len, &err) == 0, "opens: %s", err.msg);
	ok(sp_spool_n_modules(s) == 4, "four modules");
	for (uint32_t i = 0; i < sp_spool_n_modules(s); i++) {
		const struct sp_spool_module *m = sp_spool_module(s, i);
		uint64_t n = m->start / 0x10000 - 1;
		const uint8_t *hash = sp_spool_content_hash(s, i);
		ok(m->build_id_len == (n == 1 ? 2 : 0), "the build-id of module %u", i);
		ok(n < 4 && (hashes[n] ? hash && !memcmp(hash, hashes[n], 20) : !hash),
		   "the content of module %u", i);
		for (uint32_t k = 0; k < i; k++)
			ok(sp_spool_module(s, k)->file != m->file, "another file than %u's", k);
	}
	ok(!sp_spool_content_hash(s, 4), "none of a module that is not there");
	sp_spool_close(s);
	sp_buf_deinit(&b);
}

/* Blocks that fill by themselves, between events that wait for their own. */
static void check_full_blocks(void)
{
	enum { SAMPLES = 150000, EVERY = 1000 };
	struct sp_buf b = {0};
	struct sp_spool *s;
	struct sp_err err = {0};
	struct sp_spool_info info = {.hostname = "h"};
	struct sp_spool_writer *w = make_begin(&b, 1);
	int rc = sp_spool_put_info(w, &info, &err);
	struct sp_spool_wsample sample =
		plain_sample(w, sp_spool_put_set(w, 0, 7, SP_NONE), SP_NONE);
	for (uint32_t i = 0; i < SAMPLES && rc >= 0; i++) {
		struct sp_spool_exec exec = {.time_ns = i, .pid = (int32_t)i + 1, .kind = 1, .on = true};
		struct sp_spool_loss loss = {.from_ns = i, .to_ns = i, .count = i + 1, .cpu = 1};
		sample.time_ns = i;
		rc = sp_spool_put_sample(w, &sample, &err);
		if (i % EVERY == 0 && rc >= 0)
			rc = sp_spool_put_exec(w, &exec, &err);
		if (i % EVERY == 1 && rc >= 0)
			rc = sp_spool_put_loss(w, &loss, &err);
	}
	ok(rc >= 0 && sp_spool_finish(w, NULL, &err) >= 0, "full blocks are written: %s", err.msg);
	sp_spool_writer_free(w);
	ok(open_bytes(&s, b.data, b.len, &err) == 0, "opens: %s", err.msg);
	ok(sp_spool_state(s) == SP_SPOOL_WHOLE, "is whole: %s", sp_spool_complaint(s));
	ok(sp_spool_n_execs(s) == SAMPLES / EVERY && sp_spool_n_losses(s) == SAMPLES / EVERY,
	   "has all events: %zu, %zu", sp_spool_n_execs(s), sp_spool_n_losses(s));
	bool right = true;
	for (uint32_t i = 0; i < sp_spool_n_execs(s); i++)
		right &= sp_spool_exec(s, i)->pid == (int32_t)(i * EVERY) + 1;
	for (uint32_t i = 0; i < sp_spool_n_losses(s); i++)
		right &= sp_spool_loss(s, i)->count == i * EVERY + 2;
	ok(right, "each with its own values");
	sp_spool_close(s);
	sp_buf_deinit(&b);
}

int main(void)
{
	check_content();
	check_full_blocks();
	for (uint64_t resolution = 1; resolution <= 1000; resolution *= 1000) {
		struct sp_buf b = {0};
		struct sp_spool *s;
		struct sp_err err = {0};
		make_spool(&b, resolution);
		ok(open_bytes(&s, b.data, b.len, &err) == 0, "opens: %s", err.msg);
		ok(sp_spool_state(s) == SP_SPOOL_WHOLE && !*sp_spool_complaint(s), "is whole: %s",
		   sp_spool_complaint(s));
		for (uint32_t i = 0; i < MAKE_SAMPLES; i++)
			check_sample(s, i, resolution);
		struct sp_spool_sample out;
		ok(sp_spool_next(s, &out, &err) == 0, "then it ends");
		if (resolution == 1) {
			check_rest(s);
			check_waits(s);
			check_shared_frames(s);
		}
		sp_spool_close(s);
		sp_buf_deinit(&b);
	}
	return tap_done();
}
