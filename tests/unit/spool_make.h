/* A small spool with everything in it, in memory, and reading bytes back as a spool. */
#ifndef SPOOL_MAKE_H
#define SPOOL_MAKE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/counters.h"
#include "spool/writer.h"
#include "stackpulse/spool.h"

static inline int buf_sink(void *ctx, const void *bytes, size_t n, struct sp_err *err)
{
	(void)err;
	sp_buf_add(ctx, bytes, n);
	return 0;
}

/* Opens bytes as a spool, through a memory file. */
static inline int open_bytes(struct sp_spool **out, const void *bytes, size_t n, struct sp_err *err)
{
	char path[64];
	int fd = memfd_create("spool-test", MFD_CLOEXEC);
	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int rc = sp_spool_open(out, path, err);
	close(fd);
	return rc;
}

#define MAKE_SAMPLES 60u

/* What sample i of make_spool() is. */
static inline uint64_t make_time(uint32_t i)
{
	return UINT64_C(5000000000) + i * UINT64_C(1001001) + i % 7 * 311;
}

/* Each fourth sample has a wait; three kinds of them. */
static inline bool make_wait(uint32_t i, struct sp_spool_wait *out)
{
	static const struct sp_spool_wait waits[] = {
		{.state = 1, .waker_pid = 7, .waker_tid = 9, .waker_comm = "waker"},
		{.state = 0x102, .waker_comm = ""},
		{.state = UINT32_MAX, .waker_pid = 100, .waker_tid = 101, .waker_comm = "before"},
	};
	*out = waits[i / 4 % 3];
	return i % 4 == 1;
}

static inline struct sp_spool_writer *make_begin(struct sp_buf *out, uint64_t resolution)
{
	struct sp_spool_writer *w;
	struct sp_err err;
	struct sp_spool_wopts opts = {
		.sink = buf_sink, .ctx = out, .salt = 0x1234567890abcdef,
		.resolution_ns = resolution};
	if (sp_spool_writer_new(&w, &opts, &err) < 0)
		abort();
	return w;
}

/* Two processes with the same file at different places, a kernel frame, an anonymous module, an
 * address outside of all, the marker, the empty stack; blocks of ten samples. */
static inline void make_samples(struct sp_spool_writer *w)
{
	struct sp_err err = {0};
	struct sp_spool_wfile file = {.path = "/usr/lib/libx.so", .maj = 8, .min = 1, .ino = 77,
				      .build_id = (const uint8_t *)"0123456789abcdefghij",
				      .build_id_len = 20};
	struct sp_spool_wfile anon = {.path = "//anon", .is_anon = true};
	struct sp_spool_wfile kern = {.path = "[kernel.kallsyms]_text", .is_kernel = true};
	uint32_t f = sp_spool_put_file(w, &file), a = sp_spool_put_file(w, &anon);
	uint32_t k = sp_spool_put_file(w, &kern);
	uint32_t ev = sp_spool_put_event(w, "cpu-clock", true);
	uint32_t ks = sp_spool_put_set(w, 0, -1, SP_NONE);
	sp_spool_put_module(w, ks, 0xffffffff81000000, 0xffffffff82000000, 0xffffffff81000000, k);
	for (uint32_t i = 0; i < MAKE_SAMPLES; i++) {
		uint32_t p = i % 2, pid = 100 + p;
		static uint32_t set[2];
		uint64_t base = 0x7f0000000000 + p * 0x100000;
		if (i < 2)
			set[p] = sp_spool_put_set(w, 0, (int32_t)pid, SP_NONE);
		uint32_t m = sp_spool_put_module(w, set[p], base, base + 0x10000, 0x2000, f);
		uint32_t j = sp_spool_put_module(w, set[p], 0x5000000, 0x5001000, 0, a);
		uint32_t stack = i % 5 == 0 ? sp_spool_put_node(w, SP_NONE, SP_SPOOL_MARKER) : SP_NONE;
		for (uint32_t d = 0; d < 3 + i % 4; d++)
			stack = sp_spool_put_node(
				w, stack, sp_spool_put_site(w, set[p], m, base + 0x100 + d * 8 + i % 3));
		if (i % 6 == 0)
			stack = sp_spool_put_node(w, stack, sp_spool_put_site(w, set[p], j, 0x5000010));
		if (i % 6 == 1)
			stack = sp_spool_put_node(w, stack, sp_spool_put_addr(w, 0x1234, false));
		if (i % 6 == 2)
			stack = sp_spool_put_node(w, stack,
						  sp_spool_put_addr(w, 0xffffffff81000123, true));
		if (i == 33)
			stack = SP_NONE;
		struct sp_spool_wsample s = {
			.time_ns = make_time(i),
			.weight = i % 9 == 0 ? 2002002 : 1001001,
			.thread = sp_spool_put_thread(w, 0, (int32_t)pid, (int32_t)(pid + i % 3)),
			.event = ev,
			.stack = stack,
			.cpu = i % 4 == 3 ? SP_NONE : i % 4,
			.comm = i < 30 ? sp_spool_put_string(w, "before", 6)
				       : sp_spool_put_string(w, "after", 5),
			.set = set[p],
		};
		struct sp_spool_wait wait;
		if (make_wait(i, &wait))
			s.wait = sp_spool_put_wait(w, wait.state, wait.waker_pid, wait.waker_tid,
						   sp_spool_put_string(w, wait.waker_comm,
								       strlen(wait.waker_comm)));
		if (sp_spool_put_sample(w, &s, &err) < 0 ||
		    (i % 10 == 9 && sp_spool_flush(w, &err) < 0))
			abort();
	}
}

static inline void make_spool(struct sp_buf *out, uint64_t resolution)
{
	struct sp_err err = {0};
	struct sp_spool_writer *w = make_begin(out, resolution);
	struct sp_spool_info info = {.hostname = "host", .osrelease = "6.1.0", .arch = "x86_64",
				     .cmdline = "sp-capture -p 1", .boot_id = "b00t",
				     .clock = "cpu-clock", .start_timestamp_us = 1700000000000000,
				     .sample_interval_us = 1001, .clock_ns = 5000000000,
				     .wall_ns = 1700000000000000000};
	struct sp_spool_loss loss = {.from_ns = 10, .to_ns = 20, .count = 3, .cpu = SP_NONE, .kind = 1};
	struct sp_spool_loss loss2 = {.from_ns = 30, .to_ns = 30, .count = 4, .cpu = 2};
	struct sp_spool_exec exec = {.time_ns = 55, .pid = 100, .kind = 0, .on = true,
				     .cmdline = "a\0b", .cmdline_len = 3};
	struct sp_spool_exec py = {.time_ns = 56, .pid = 101, .kind = 1, .on = true};
	struct sp_spool_object obj = {.kind = 2, .pid = 100, .time_ns = 9, .path = "/tmp/perf-100.map",
				      .data = (const uint8_t *)"5000000 10 jit\n", .size = 15};
	struct sp_counters c = {0};
	sp_count(&c, SP_C_lost_events, 7);
	sp_count(&c, SP_C_throttled, 0);
	if (sp_spool_put_info(w, &info, &err) < 0 || sp_spool_put_loss(w, &loss, &err) < 0 ||
	    sp_spool_put_loss(w, &loss2, &err) < 0 || sp_spool_put_exec(w, &exec, &err) < 0 ||
	    sp_spool_put_exec(w, &py, &err) < 0 || sp_spool_put_object(w, &obj, &err) < 0 ||
	    sp_spool_put_stage(w, "sp-capture", "samples 60\n", 11, &err) < 0)
		abort();
	sp_spool_put_counters(w, &c);
	make_samples(w);
	if (sp_spool_finish(w, NULL, &err) < 0)
		abort();
	sp_spool_writer_free(w);
}

#endif
