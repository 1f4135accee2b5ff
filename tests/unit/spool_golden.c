/* tests/data/golden-1.spool, a spool of format version 1 with every kind of record: it must read
 * the same for ever. Made by this program: build/unit/spool_golden make >tests/data/golden-1.spool
 * (once; a reader that can't read it is wrong, not the file). Also the layout of the public
 * structs. */
#define _GNU_SOURCE
#include <stddef.h>

#include "spool/format.h"
#include "spool/reader.h"
#include "spool_make.h"
#include "tap.h"

#define GOLDEN "tests/data/golden-1.spool"

/* Sample i: its stack is of kind i % 8. */
#define N_SAMPLES 24u
static const uint64_t base[2] = {0x7f0000000000, 0x7e0000000000};

static uint64_t time_of(uint32_t i)
{
	return i == 23 ? 0 : UINT64_C(1000000000000) + i * UINT64_C(1000000) + i % 3;
}

static const uint8_t id20[] = "0123456789abcdefghij";
static const struct sp_spool_exec execs[] = {
	{.time_ns = 1, .pid = 10, .kind = 0, .on = true, .cmdline = "prog\0-x", .cmdline_len = 7},
	{.time_ns = 2, .pid = 10, .kind = 1, .on = true},
	{.time_ns = 3, .pid = 11, .kind = 2, .on = true},
	{.time_ns = 4, .pid = 11, .kind = 3, .on = true},
	{.time_ns = 5, .pid = 10, .kind = 1, .on = false},
};
static const struct sp_spool_loss losses[] = {
	{.from_ns = 100, .to_ns = 200, .count = 7, .cpu = 1, .kind = 0},
	{.from_ns = 300, .to_ns = 300, .count = 1, .cpu = SP_NONE, .kind = 1},
};

/* --- making it --- */

static void check(int rc)
{
	if (rc < 0)
		abort();
}

static uint32_t make_stack(struct sp_spool_writer *w, uint32_t i, uint32_t set, uint32_t lib,
			   uint32_t twice, uint32_t jit)
{
	uint64_t at = base[i % 2];
	uint32_t s = sp_spool_put_node(w, SP_NONE, sp_spool_put_site(w, set, lib, at + 0x10));
	switch (i % 8) {
	case 0: /* two frames of the file */
		return sp_spool_put_node(w, s, sp_spool_put_site(w, set, lib, at + 0x20 + i));
	case 1: /* the root alone */
		return s;
	case 2: /* the second mapping of the same file */
		return sp_spool_put_node(w, s, sp_spool_put_site(w, set, twice, at + 0x100020));
	case 3:
		return sp_spool_put_node(w, s, sp_spool_put_site(w, set, jit, 0x5000040));
	case 4:
		return sp_spool_put_node(w, s, sp_spool_put_addr(w, 0xdead0, false));
	case 5: /* the kernel on top */
		return sp_spool_put_node(w, s, sp_spool_put_addr(w, 0xffffffff81000123, true));
	case 6: /* cut before its root */
		s = sp_spool_put_node(w, SP_NONE, SP_SPOOL_MARKER);
		return sp_spool_put_node(w, s, sp_spool_put_site(w, set, lib, at + 0x30));
	default:
		return SP_NONE;
	}
}

static void put_samples(struct sp_spool_writer *w)
{
	struct sp_err err;
	struct sp_spool_wfile lib = {.path = "/usr/lib/lib x\n.so",
				     .maj = 8,
				     .min = 2,
				     .ino = 77,
				     .ino_gen = 5,
				     .build_id = id20,
				     .build_id_len = 20};
	struct sp_spool_wfile anon = {.path = "//anon", .is_anon = true};
	struct sp_spool_wfile kern = {.path = "[kernel.kallsyms]", .is_kernel = true};
	uint32_t f = sp_spool_put_file(w, &lib), a = sp_spool_put_file(w, &anon);
	uint32_t events[] = {sp_spool_put_event(w, "cpu-clock", true),
			     sp_spool_put_event(w, "page-faults", false)};
	uint32_t other = sp_spool_put_origin(w, "host2", "boot2");
	uint32_t k = sp_spool_put_file(w, &kern), set[2], l[2], t[2], j[2];
	for (uint32_t p = 0; p < 2; p++) {
		uint32_t ks = sp_spool_put_set(w, p ? other : 0, -1, SP_NONE);
		sp_spool_put_module(w, ks, 0xffffffff81000000, 0xffffffff82000000,
				    0xffffffff81000000, k);
		set[p] = sp_spool_put_set(w, p ? other : 0, 10 + (int32_t)p, SP_NONE);
		l[p] = sp_spool_put_module(w, set[p], base[p], base[p] + 0x10000, 0x2000, f);
		t[p] = sp_spool_put_module(w, set[p], base[p] + 0x100000, base[p] + 0x110000,
					   0x2000, f);
		j[p] = sp_spool_put_module(w, set[p], 0x5000000, 0x5001000, 0, a);
	}
	/* A forked child begins with its parent's modules. */
	uint32_t child = sp_spool_put_set(w, 0, 12, set[0]);
	for (uint32_t i = 0; i < N_SAMPLES; i++) {
		uint32_t p = i % 2;
		bool forked = i == 16;
		struct sp_spool_wsample s = {
			.time_ns = time_of(i),
			.weight = i == 9 ? 5000000 : 1000000,
			.thread =
				sp_spool_put_thread(w, p ? other : 0, forked ? 12 : 10 + (int32_t)p,
						    forked ? 12 : 10 + (int32_t)p + (i % 4 == 2)),
			.event = events[i == 20],
			.cpu = i % 4 ? i % 4 : SP_NONE,
			.comm = i < 12 ? sp_spool_put_string(w, "first", 5)
				       : sp_spool_put_string(w, "second", 6),
			.set = forked ? child : set[p],
		};
		s.stack = make_stack(w, i, s.set, l[p], t[p], j[p]);
		check(sp_spool_put_sample(w, &s, &err));
		if (i % 8 == 7)
			check(sp_spool_flush(w, &err));
	}
}

static void make_epoch(struct sp_buf *out, bool append, uint32_t seq)
{
	struct sp_err err;
	struct sp_spool_writer *w;
	struct sp_spool_wopts opts = {.sink = buf_sink,
				      .ctx = out,
				      .salt = 0x1122334455667788,
				      .append = append,
				      .seq = seq,
				      .epoch = append,
				      .resolution_ns = append ? 1000 : 1,
				      .shift_ns = append ? 1000000000 : 0};
	struct sp_spool_info info = {.hostname = "host",
				     .osrelease = "6.1.0",
				     .arch = "x86_64",
				     .cmdline = "sp-capture -p 10",
				     .boot_id = "boot",
				     .clock = "cpu-clock",
				     .start_timestamp_us = 1700000000000000,
				     .sample_interval_us = 1000,
				     .clock_ns = 1000000000000,
				     .wall_ns = 1700000000000000000};
	struct sp_spool_object map = {.kind = 2,
				      .pid = 11,
				      .time_ns = 9,
				      .path = "/tmp/perf-11.map",
				      .data = (const uint8_t *)"5000040 10 jit\n",
				      .size = 15};
	struct sp_spool_object elf = {.kind = 1,
				      .pid = 10,
				      .start = 1,
				      .end = 2,
				      .inode = 3,
				      .dev_major = 4,
				      .dev_minor = 5,
				      .build_id = id20,
				      .build_id_len = 20,
				      .path = "[vdso]",
				      .data = (const uint8_t *)"\177ELF",
				      .size = 4};
	struct sp_counters c = {0};
	sp_count(&c, SP_C_lost_events, 7);
	sp_count(&c, SP_C_throttled, 1);
	check(sp_spool_writer_new(&w, &opts, &err));
	check(sp_spool_put_info(w, &info, &err));
	if (!append) {
		for (size_t i = 0; i < sizeof execs / sizeof *execs; i++)
			check(sp_spool_put_exec(w, &execs[i], &err));
		for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
			check(sp_spool_put_loss(w, &losses[i], &err));
		check(sp_spool_put_object(w, &map, &err));
		check(sp_spool_put_object(w, &elf, &err));
		check(sp_spool_put_stage(w, "sp-capture", "samples 24\n", 11, &err));
	}
	sp_spool_put_counters(w, &c);
	put_samples(w);
	info.sample_interval_us = 1001; /* learnt late: a FACTS block */
	check(sp_spool_put_info(w, &info, &err));
	check(sp_spool_finish(w, NULL, &err));
	sp_spool_writer_free(w);
}

static uint32_t count_blocks(const struct sp_buf *b, unsigned *kinds)
{
	uint32_t n = 0;
	for (size_t at = SP_SPOOL_FILE_HEAD; at < b->len; n++) {
		struct sp_block k;
		if (!sp_block_decode(&k, b->data + at))
			abort();
		*kinds |= 1u << (k.type < 31 ? k.type : 31);
		at += SP_SPOOL_BLOCK_HEAD + k.stored;
	}
	return n;
}

/* A block of a kind that nobody knows, which may be skipped. */
static void put_unknown(struct sp_buf *out, uint32_t seq)
{
	struct sp_block b = {.type = 200,
			     .stored = 8,
			     .raw = 8,
			     .seq = seq,
			     .salt = 0x55667788,
			     .crc = sp_spool_crc("whatever", 8)};
	uint8_t head[SP_SPOOL_BLOCK_HEAD];
	sp_block_encode(head, &b);
	sp_buf_add(out, head, sizeof head);
	sp_buf_add(out, "whatever", 8);
}

static void make_golden(struct sp_buf *out)
{
	unsigned kinds = 0;
	make_epoch(out, false, 0);
	uint32_t n = count_blocks(out, &kinds);
	put_unknown(out, n);
	make_epoch(out, true, n + 1);
}

/* --- reading it --- */

static void check_frames(struct sp_spool *s, uint32_t i, bool *ok)
{
	const struct sp_spool_frame *f;
	size_t n = sp_spool_frames(s, &f);
	uint64_t at = base[i % 2];
	static const size_t depth[] = {2, 1, 2, 2, 2, 2, 2, 0};
	static const uint64_t top[] = {0x20, 0x10, 0x100020, 0, 0, 0, 0x30};
	uint32_t k = i % 8;
	*ok = *ok && n == depth[k];
	if (!*ok || !n)
		return;
	uint64_t abs = k == 3   ? 0x5000040
		       : k == 4 ? 0xdead0
		       : k == 5 ? 0xffffffff81000123
				: at + top[k];
	uint64_t rel = k == 3   ? 0x40
		       : k == 4 ? 0xdead0
		       : k == 5 ? 0xffffffff81000123
				: (top[k] & 0xffff) + 0x2000;
	abs += k == 0 ? i : 0;
	rel += k == 0 ? i : 0;
	const struct sp_spool_module *m = sp_spool_module(s, f[0].module);
	const char *path = k == 3   ? "//anon"
			   : k == 4 ? "-"
			   : k == 5 ? "[kernel.kallsyms]"
				    : "/usr/lib/lib x\n.so";
	*ok = f[0].abs_ip == abs && f[0].rel_ip == rel && !strcmp(m ? m->path : "-", path) &&
	      f[0].mode == (k == 5 ? SP_FRAME_KERNEL : SP_FRAME_USER);
	if (k == 6)
		*ok = *ok && f[1].mode == SP_FRAME_TRUNCATED;
	else
		*ok = *ok && f[n - 1].abs_ip == at + 0x10 && f[n - 1].rel_ip == 0x2010;
	if (m && k != 3 && k != 5)
		*ok = *ok && m->build_id_len == 20 && !memcmp(m->build_id, id20, 20) &&
		      m->inode == 77 && m->inode_generation == 5 && m->dev_major == 8 &&
		      m->dev_minor == 2 && m->file_offset == 0x2000 &&
		      m->end - m->start == 0x10000 && !m->is_kernel && !m->is_anon &&
		      m->pid == (i == 16 ? 12 : 10 + (int32_t)(i % 2));
}

static void check_samples(struct sp_spool *s)
{
	struct sp_spool_sample p;
	struct sp_err err;
	bool times = true, ids = true, rest = true, frames = true;
	/* In order of time; a sample without one stays where it was. */
	for (uint32_t k = 0; k < 2 * N_SAMPLES; k++) {
		uint32_t i = k % N_SAMPLES, second = k / N_SAMPLES;
		if (sp_spool_next(s, &p, &err) != 1) {
			times = false;
			break;
		}
		uint64_t want = time_of(i);
		if (second && want)
			want = want / 1000 * 1000 + 1000000000;
		times = times && p.time_ns == want;
		const struct sp_spool_thread *t = sp_spool_thread(s, p.thread);
		bool forked = i == 16;
		struct sp_spool_origin o = sp_spool_origin(s, t->origin);
		ids = ids && t->pid == (forked ? 12 : 10 + (int32_t)(i % 2)) &&
		      t->tid == t->pid + (i % 4 == 2) &&
		      !strcmp(o.hostname, i % 2 ? "host2" : "host") &&
		      !strcmp(o.boot_id, i % 2 ? "boot2" : "boot");
		const struct sp_spool_event *e = sp_spool_event(s, p.event);
		rest = rest && p.weight == (i == 9 ? 5000000 : 1000000) &&
		       p.cpu == (i % 4 ? i % 4 : SP_NONE) &&
		       !strcmp(p.comm, i < 12 ? "first" : "second") &&
		       !strcmp(e->name, i == 20 ? "page-faults" : "cpu-clock") &&
		       e->weight_is_time == (i != 20);
		check_frames(s, i, &frames);
	}
	tap_ok(times && sp_spool_next(s, &p, &err) == 0,
	       "golden: times of two recordings, on one clock");
	tap_ok(ids, "golden: processes, threads, hosts");
	tap_ok(rest, "golden: weights, cpus, names, events");
	tap_ok(frames, "golden: frames of every kind, with their modules");
}

static void check_rest(struct sp_spool *s)
{
	const struct sp_spool_info *i = sp_spool_info(s);
	tap_ok(sp_spool_state(s) == SP_SPOOL_WHOLE && sp_spool_n_unknown_blocks(s) == 1,
	       "golden: whole; an unknown block is skipped");
	tap_ok(i->version == 1 && !strcmp(i->hostname, "host") && !strcmp(i->osrelease, "6.1.0") &&
		       !strcmp(i->arch, "x86_64") && !strcmp(i->cmdline, "sp-capture -p 10") &&
		       !strcmp(i->boot_id, "boot") && !strcmp(i->clock, "cpu-clock") &&
		       i->start_timestamp_us == 1700000000000000 && i->sample_interval_us == 1001 &&
		       i->clock_ns == 1000000000000 && i->wall_ns == 1700000000000000000 &&
		       i->time_resolution_ns == 1 && i->n_samples == 2 * N_SAMPLES &&
		       !i->n_lost_samples,
	       "golden: the facts, with those that were learnt late");
	bool ok = sp_spool_n_execs(s) == 5;
	for (size_t k = 0; ok && k < 5; k++) {
		const struct sp_spool_exec *a = sp_spool_exec(s, k), *b = &execs[k];
		ok = a->time_ns == b->time_ns && a->pid == b->pid && a->kind == b->kind &&
		     a->on == b->on && a->cmdline_len == b->cmdline_len &&
		     !a->cmdline == !b->cmdline &&
		     (!b->cmdline || !memcmp(a->cmdline, b->cmdline, b->cmdline_len));
	}
	tap_ok(ok, "golden: exec and runtime markers");
	ok = sp_spool_n_losses(s) == 2;
	for (size_t k = 0; ok && k < 2; k++) {
		const struct sp_spool_loss *a = sp_spool_loss(s, k), *b = &losses[k];
		ok = a->from_ns == b->from_ns && a->to_ns == b->to_ns && a->count == b->count &&
		     a->cpu == b->cpu && a->kind == b->kind;
	}
	tap_ok(ok, "golden: losses");
	const struct sp_spool_object *m = sp_spool_object(s, 0), *e = sp_spool_object(s, 1);
	tap_ok(m && e && m->kind == 2 && m->pid == 11 && m->time_ns == 9 && m->size == 15 &&
		       !memcmp(m->data, "5000040 10 jit\n", 15) &&
		       !strcmp(m->path, "/tmp/perf-11.map") && e->kind == 1 && e->pid == 10 &&
		       e->start == 1 && e->end == 2 && e->inode == 3 && e->dev_major == 4 &&
		       e->dev_minor == 5 && e->build_id_len == 20 &&
		       !memcmp(e->build_id, id20, 20) && !strcmp(e->path, "[vdso]") &&
		       e->size == 4 && !memcmp(e->data, "\177ELF", 4),
	       "golden: embedded files");
	const char *text = "", *name = sp_spool_n_stages(s) ? sp_spool_stage(s, 0, &text) : "";
	tap_ok(!strcmp(name, "sp-capture") && !strcmp(text, "samples 24\n"),
	       "golden: a stage's words");
	const struct sp_counters *c = sp_spool_counters(s);
	tap_ok(c->v[SP_C_lost_events] == 14 && c->v[SP_C_throttled] == 2 &&
		       c->v[SP_C_samples] == 48,
	       "golden: counters of both recordings");
	const uint64_t *k;
	tap_ok(sp_spool_kernel_frame_addresses(s, &k) == 1 && k[0] == 0xffffffff81000123,
	       "golden: kernel addresses");
}

/* The public structs, on 64 bits: programs were compiled against these. */
static void check_layout(void)
{
	static const struct {
		const char *name;
		size_t got, want;
	} v[] = {
		{"sp_err", sizeof(struct sp_err), 408},
		{"sp_spool_module", sizeof(struct sp_spool_module), 96},
		{"sp_spool_frame", sizeof(struct sp_spool_frame), 32},
		{"sp_spool_frame.abs_ip", offsetof(struct sp_spool_frame, abs_ip), 24},
		{"sp_spool_thread", sizeof(struct sp_spool_thread), 16},
		{"sp_spool_event", sizeof(struct sp_spool_event), 16},
		{"sp_spool_sample", sizeof(struct sp_spool_sample), 48},
		{"sp_spool_sample.weight", offsetof(struct sp_spool_sample, weight), 32},
		{"sp_spool_sample.comm", offsetof(struct sp_spool_sample, comm), 40},
		{"sp_spool_info", sizeof(struct sp_spool_info), 128},
		{"sp_spool_loss", sizeof(struct sp_spool_loss), 32},
		{"sp_spool_exec", sizeof(struct sp_spool_exec), 40},
		{"sp_spool_object", sizeof(struct sp_spool_object), 96},
		{"sp_spool_origin", sizeof(struct sp_spool_origin), 16},
	};
	for (size_t i = 0; i < sizeof v / sizeof *v; i++)
		tap_eq(v[i].got, v[i].want, v[i].name);
}

int main(int argc, char **argv)
{
	struct sp_buf made = {0};
	struct sp_spool *s;
	struct sp_err err = {0};
	make_golden(&made);
	if (argc == 2 && !strcmp(argv[1], "make"))
		return fwrite(made.data, 1, made.len, stdout) != made.len;
	unsigned kinds = 0;
	count_blocks(&made, &kinds);
	tap_eq(kinds, 0xfe | 1u << 31, "the golden file has every kind of block");
	int rc = sp_spool_open(&s, GOLDEN, &err);
	if (!tap_ok(rc == 0, "golden: " GOLDEN " opens")) {
		printf("# %s\n", err.msg);
		return tap_done();
	}
	check_samples(s);
	check_rest(s);
	sp_spool_close(s);
	/* What is written today reads the same, too. */
	if (open_bytes(&s, made.data, made.len, &err) < 0)
		abort();
	check_samples(s);
	check_rest(s);
	sp_spool_close(s);
	sp_buf_deinit(&made);
	check_layout();
	return tap_done();
}
