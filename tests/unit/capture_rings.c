/* sp-capture's rings: scanning, wrapping, order within a ring and over rings, refusal of what
 * cannot be; where a sample's parts lie; ring sizes. unit: sp-capture/ring.c unit:
 * sp-capture/rings.c unit: sp-capture/events.c unit: sp-capture/kernel.c unit: sp-capture/emit.c
 * sp-capture/emit_process.c sp-capture/emit_bpf.c sp-capture/switches.c sp-capture/waits.c
 * sp-capture/throttles.c sp-capture/label.c
 * sp-capture/container.c
 * unit: sp-capture/output.c sp-capture/privileges.c
 * unit: sp-capture/procs.c unit: sp-capture/python.c
 * unit: sp-capture/stacks.c
 * unit: sp-capture/tasks.c sp-capture/cmdlines.c */
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "../../sp-capture/emit.h"
#include "../../sp-capture/events.h"
#include "../../sp-capture/rings.h"
#include "base/le.h"
#include "tap.h"

#define PAGE 4096u
#define DATA 8192u

struct fake {
	struct cap_ring ring;
	uint8_t *mem;
	uint64_t head;
};

static void fake_init(struct fake *f, uint64_t at)
{
	f->mem = calloc(1, PAGE + DATA);
	cap_ring_init(&f->ring, f->mem, DATA, PAGE);
	f->ring.tail = f->ring.scanned = f->head = at;
}

static void fake_free(struct fake *f)
{
	free(f->ring.queue);
	free(f->mem);
}

static struct perf_event_mmap_page *page(struct fake *f)
{
	return f->ring.base;
}

static void put(struct fake *f, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		f->mem[PAGE + ((f->head + i) & (DATA - 1))] = ((const uint8_t *)bytes)[i];
	f->head += n;
	page(f)->data_head = f->head;
}

/* A side-band record of `size` bytes with the time in its sample_id. */
static void put_side(struct fake *f, uint32_t type, uint16_t size, uint64_t time_ns, uint64_t mark)
{
	uint8_t b[256] = {0};
	sp_put32(b, type);
	sp_put16(b + 6, size);
	sp_put64(b + 8, mark);
	sp_put64(b + size - 24, time_ns);
	put(f, b, size);
}

static uint64_t take_mark(struct cap_ring *r)
{
	return cap_ring_u64(r, r->queue[r->at++].pos + 8);
}

static void test_scan(void)
{
	struct fake f;
	struct sp_err err;
	fake_init(&f, 0);
	tap_eq((uint64_t)cap_ring_scan(&f.ring, &err), 0, "an empty ring has nothing new");
	put_side(&f, PERF_RECORD_COMM, 64, 100, 1);
	put_side(&f, PERF_RECORD_COMM, 64, 300, 2);
	put_side(&f, PERF_RECORD_COMM, 64, 200, 3);
	put_side(&f, PERF_RECORD_COMM, 64, 200, 4);
	tap_eq((uint64_t)cap_ring_scan(&f.ring, &err), 4, "four records are new");
	tap_eq(take_mark(&f.ring), 1, "the oldest comes first");
	tap_eq(take_mark(&f.ring), 3, "a record committed late is put in order");
	cap_ring_release(&f.ring);
	tap_eq(page(&f)->data_tail, 64, "memory is given back up to the oldest waiting record");
	tap_eq(take_mark(&f.ring), 4, "equal times keep the ring's order");
	tap_eq(take_mark(&f.ring), 2, "the newest comes last");
	cap_ring_release(&f.ring);
	tap_eq(page(&f)->data_tail, 256, "then all of it");
	fake_free(&f);
}

static void test_wrap(void)
{
	struct fake f;
	struct sp_err err;
	uint8_t out[128], want[128];
	fake_init(&f, DATA - 32);
	for (size_t i = 0; i < sizeof want; i++)
		want[i] = (uint8_t)(i * 7);
	sp_put32(want, PERF_RECORD_COMM);
	sp_put16(want + 4, 0);
	sp_put16(want + 6, sizeof want);
	sp_put64(want + sizeof want - 24, 5);
	put(&f, want, sizeof want);
	tap_eq((uint64_t)cap_ring_scan(&f.ring, &err), 1, "a record over the ring's end is found");
	tap_eq(f.ring.queue[0].time_ns, 5, "with its time");
	cap_ring_copy(&f.ring, f.ring.queue[0].pos, out, sizeof out);
	tap_ok(!memcmp(out, want, sizeof out), "and copied whole");
	fake_free(&f);
}

static void test_refusals(void)
{
	struct fake f;
	struct sp_err err = {0};
	fake_init(&f, 0);
	page(&f)->data_head = DATA + 8;
	tap_ok(cap_ring_scan(&f.ring, &err) == SP_ERR_CORRUPT,
	       "a head beyond the capacity is refused");
	tap_eq(page(&f)->data_tail, 0, "without moving the tail");
	fake_free(&f);
	fake_init(&f, 640);
	page(&f)->data_head = 600;
	tap_ok(cap_ring_scan(&f.ring, &err) == SP_ERR_CORRUPT, "a head that went back is refused");
	fake_free(&f);
}

/* What the kernel would not write does not end a recording. */
static void test_wrong_sizes(void)
{
	static const uint16_t sizes[] = {0, 7, 8, 39, 44, 65528};
	struct fake f;
	struct sp_err err = {0};
	bool skipped = true, goes_on = true;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint8_t b[64] = {0};
		fake_init(&f, 0);
		put_side(&f, PERF_RECORD_COMM, 64, 100, 1);
		sp_put32(b, PERF_RECORD_COMM);
		sp_put16(b + 6, sizes[i]);
		put(&f, b, sizeof b);
		put_side(&f, PERF_RECORD_COMM, 64, 200, 2);
		skipped &= cap_ring_scan(&f.ring, &err) == 1 && f.ring.skipped == 128 &&
			   f.ring.wrong_size == sizes[i] && take_mark(&f.ring) == 1;
		cap_ring_release(&f.ring);
		put_side(&f, PERF_RECORD_COMM, 64, 300, 3);
		goes_on &= page(&f)->data_tail == 192 && cap_ring_scan(&f.ring, &err) == 1 &&
			   take_mark(&f.ring) == 3;
		fake_free(&f);
	}
	tap_ok(skipped, "from a record on that is too short, not aligned or longer than what was "
			"written all is skipped");
	tap_ok(goes_on, "and what comes then is found");
}

static void test_merge(void)
{
	struct fake f[3];
	struct cap_ring rings[3];
	struct sp_err err;
	for (int i = 0; i < 3; i++)
		fake_init(&f[i], 0);
	put_side(&f[0], PERF_RECORD_COMM, 64, 50, 10);
	put_side(&f[0], PERF_RECORD_COMM, 64, 70, 11);
	put_side(&f[1], PERF_RECORD_MMAP2, 128, 49, 20);
	put_side(&f[1], PERF_RECORD_COMM, 64, 70, 21);
	put_side(&f[2], PERF_RECORD_COMM, 64, 90, 30);
	for (int i = 0; i < 3; i++) {
		cap_ring_scan(&f[i].ring, &err);
		rings[i] = f[i].ring;
	}
	static const uint64_t want[] = {20, 10, 11, 21};
	bool same = true;
	for (int i = 0; i < 4; i++) {
		size_t next = cap_rings_next(rings, 3, 80);
		same &= next < 3 && take_mark(&rings[next]) == want[i];
	}
	tap_ok(same, "rings merge by time, equal times by ring");
	tap_eq(cap_rings_next(rings, 3, 80), 3, "nothing leaves before its time");
	tap_eq(cap_rings_next(rings, 3, 90), 2, "and it does then");
	for (int i = 0; i < 3; i++) {
		f[i].ring = rings[i];
		fake_free(&f[i]);
	}
}

/* A sample with n_chain entries, registers (abi) and a stack of size with dyn used. */
static uint16_t make_sample(uint8_t *b, uint64_t n_chain, uint64_t abi, uint64_t stack,
			    uint64_t dyn)
{
	size_t at = 64;
	memset(b, 0, 4096);
	sp_put32(b, PERF_RECORD_SAMPLE);
	sp_put64(b + 56, n_chain);
	at += n_chain * 8;
	sp_put64(b + at, abi);
	at += 8 + (abi ? CAP_N_REGS * 8 : 0);
	sp_put64(b + at, stack);
	at += 8;
	if (stack) {
		at += stack;
		sp_put64(b + at, dyn);
		at += 8;
	}
	sp_put16(b + 6, (uint16_t)at);
	return (uint16_t)at;
}

static bool layout(uint8_t *b, uint16_t size, struct cap_layout *l)
{
	struct fake f;
	struct sp_err err;
	fake_init(&f, 0);
	put(&f, b, size);
	bool ok = cap_ring_scan(&f.ring, &err) == 1 && cap_sample_layout(&f.ring, 0, size, l);
	fake_free(&f);
	return ok;
}

static void test_layout(void)
{
	static uint8_t b[4096];
	struct cap_layout l;
	uint16_t size = make_sample(b, 3, 2, 512, 200);
	tap_ok(layout(b, size, &l) && l.n_chain == 3 && l.regs == 96 && l.copied == 200 &&
		       l.stack == 96 + CAP_N_REGS * 8 + 8,
	       "a sample's chain, registers and stack are found");
	size = make_sample(b, 0, 0, 0, 0);
	tap_ok(layout(b, size, &l) && l.regs == 0 && l.copied == 0,
	       "a sample without registers and stack is whole");
	size = make_sample(b, 1, 2, 512, 513);
	tap_ok(!layout(b, size, &l), "more bytes copied than reserved: refused");
	size = make_sample(b, 1, 2, 512, 0);
	sp_put64(b + 56, UINT64_C(1) << 60);
	tap_ok(!layout(b, size, &l), "a chain of 2^60 entries: refused");
	size = make_sample(b, 1, 2, 512, 0);
	sp_put64(b + 56, 60);
	tap_ok(!layout(b, size, &l), "a chain that runs into the stack: refused");
	size = make_sample(b, 0, 2, 512, 0);
	sp_put64(b + 64 + 8 + CAP_N_REGS * 8, 1024);
	tap_ok(!layout(b, size, &l), "a stack beyond the record: refused");
}

static void test_sizes(void)
{
	tap_eq(cap_ring_size(0, 999, 60 << 10, 4096), 16 << 20,
	       "999 Hz and 60 KiB: 16 MiB hold 250 ms");
	tap_eq(cap_ring_size(0, 4999, 60 << 10, 4096), 64 << 20,
	       "4999 Hz: the default's limit, 64 MiB");
	tap_eq(cap_ring_size(0, 1, 1024, 4096), 32 << 10, "a slow rate: at least 16 samples");
	tap_eq(cap_ring_size(3 << 20, 999, 1024, 4096), 2 << 20,
	       "--ring is rounded down to a power of two");
	tap_eq(cap_ring_size(100, 999, 1024, 65536), 65536, "and is a page at least");
	tap_ok(cap_sample_bytes(61440) <= 61696,
	       "a sample of 60 KiB takes what the kernel was seen to take");
}

int main(void)
{
	test_scan();
	test_wrap();
	test_refusals();
	test_wrong_sizes();
	test_merge();
	test_layout();
	test_sizes();
	return tap_done();
}
