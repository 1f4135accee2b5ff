/* Samples in, samples out: chains parted and joined, marks, splicing, limits.
 * unit: sp-unwind/worker.c
 * unit: sp-unwind/sample.c
 */
#include "tap.h"

#include <stdlib.h>

#include "base/buf.h"
#include "../../sp-unwind/worker.h"

#define K SP_CONTEXT_KERNEL
#define U SP_CONTEXT_USER
#define PC UINT64_C(0x401000)

/* The engine, of which only the answer matters here: the test says it. */
static struct uw_stack answer;
static struct sp_counters no_counters;

struct uw_walker *uw_walker_new(void)
{
	return (struct uw_walker *)&answer;
}

void uw_walker_free(struct uw_walker *w)
{
	(void)w;
}

void uw_walk(struct uw_walker *w, const struct uw_sample *s, struct uw_stack *out)
{
	(void)w;
	(void)s;
	*out = answer;
}

void uw_walk_ahead(const struct uw_walker *w, const struct uw_sample *s)
{
	(void)w;
	(void)s;
}

const struct sp_counters *uw_walker_counters(const struct uw_walker *w)
{
	(void)w;
	return &no_counters;
}

static struct un_worker worker;
static struct sp_event event;
static const struct uw_space space;
static struct sp_buf raw;

#define BASE (SP_SAMPLE_IP | SP_SAMPLE_TID | SP_SAMPLE_TIME | SP_SAMPLE_CALLCHAIN)
#define FULL (BASE | SP_SAMPLE_REGS_USER | SP_SAMPLE_STACK_USER)

static void set_event(uint64_t type)
{
	static char name[] = "e";
	event = (struct sp_event){.attr = {.size = 128, .sample_type = type}, .name = name};
	event.attr.sample_regs_user = 0x100; /* one register */
}

/* The engine's answer: n frames, 0x401000 and 0x100 more for each caller. */
static void set_answer(uint32_t n, enum uw_stop stop)
{
	memset(&answer, 0, sizeof answer);
	answer.n = n;
	answer.stop = stop;
	for (uint32_t i = 0; i < n; i++) {
		answer.return_addrs[i] = PC + i * 0x100;
		answer.addrs[i] = answer.return_addrs[i] - (i ? 1 : 0);
	}
}

/* A sample record; chain ends in 1 (an address that no test uses). */
static struct sp_record record(unsigned mode, const uint64_t *chain, bool regs, size_t raw_bytes)
{
	uint64_t type = event.attr.sample_type;
	raw.len = 0;
	sp_buf_u32(&raw, SP_PERF_SAMPLE);
	sp_buf_u16(&raw, (uint16_t)mode);
	sp_buf_u16(&raw, 0);
	sp_buf_u64(&raw, mode == SP_CPUMODE_USER ? PC : UINT64_C(0xffffffff81000042));
	sp_buf_u32(&raw, 7);
	sp_buf_u32(&raw, 8);
	sp_buf_u64(&raw, 123456789);
	if (type & SP_SAMPLE_CALLCHAIN) {
		uint64_t n = 0;
		while (chain[n] != 1)
			n++;
		sp_buf_u64(&raw, n);
		sp_buf_add(&raw, chain, n * 8);
	}
	if (type & SP_SAMPLE_RAW) {
		sp_buf_u32(&raw, (uint32_t)raw_bytes);
		sp_buf_zero(&raw, raw_bytes);
	}
	if (type & SP_SAMPLE_REGS_USER) {
		sp_buf_u64(&raw, regs ? 2 : 0);
		if (regs)
			sp_buf_u64(&raw, PC);
	}
	if (type & SP_SAMPLE_STACK_USER) {
		sp_buf_u64(&raw, regs ? 16 : 0);
		if (regs) {
			sp_buf_zero(&raw, 16);
			sp_buf_u64(&raw, 16);
		}
	}
	sp_put16(raw.data + 6, (uint16_t)raw.len);
	const struct sp_event *events[] = {&event};
	struct sp_record rec;
	if (sp_record_parse(&rec, raw.data, raw.len, events, 1, NULL) < 0)
		tap_ok(false, "the record parses");
	return rec;
}

/* Run one sample and tell its outgoing chain: "K" and "U" for the markers, addresses in hex. */
static const char *chain_of(struct sp_record rec, enum un_action action)
{
	static char text[4096];
	static struct un_batch b;
	b.out.len = 0;
	b.n = 1;
	b.items[0] = (struct un_item){
		.late = {.raw = rec.raw, .event = &event, .size = rec.size},
		.space = &space,
		.action = action,
	};
	memset(&worker.counters, 0, sizeof worker.counters);
	un_worker_run(&worker, &b);
	struct sp_event after = event;
	if (action != UN_PASS)
		after.attr.sample_type = (event.attr.sample_type | SP_SAMPLE_CALLCHAIN) &
					 ~(uint64_t)(SP_SAMPLE_REGS_USER | SP_SAMPLE_STACK_USER);
	const struct sp_event *events[] = {&after};
	struct sp_record out;
	if (!b.out.len)
		return "nothing";
	if (sp_get16(b.out.data + 6) != b.out.len ||
	    sp_record_parse(&out, b.out.data, b.out.len, events, 1, NULL) < 0 || out.pid != 7 ||
	    out.tid != 8 || out.time_ns != 123456789)
		return "not a sample";
	size_t at = 0;
	text[0] = '\0';
	for (uint64_t i = 0; i < out.sample.n_chain && at < sizeof text - 24; i++) {
		uint64_t v = sp_get64(out.sample.chain + i * 8);
		char hex[24];
		snprintf(hex, sizeof hex, "%llx", (unsigned long long)v);
		const char *word = v == K ? "K" : v == U ? "U" : hex;
		at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "", word);
	}
	return text;
}

/* Of a batch's samples whose bodies end too early, among others. */
static void test_malformed(void)
{
	static const uint64_t chain[] = {U, PC, 1};
	static struct un_batch b;
	const struct sp_record rec = record(SP_CPUMODE_USER, chain, false, 0);
	b.n = 100;
	for (uint32_t i = 0; i < b.n; i++)
		b.items[i] = (struct un_item){
			.late = {.raw = rec.raw,
				 .event = &event,
				 .seq = i,
				 .size = i % 10 == 7 ? rec.size - 8 : rec.size},
			.action = i % 3 ? UN_SAMPLE : UN_PASS,
		};
	memset(&worker.counters, 0, sizeof worker.counters);
	un_worker_run(&worker, &b);
	tap_eq(worker.counters.v[SP_C_rejected_samples], 7, "malformed samples are counted");
	tap_eq(b.bad.seq, 7, "and the first is told");
	tap_eq(b.out.len, 90 * rec.size + 3 * (rec.size - 8), "all others leave");
	sp_buf_deinit(&b.out);
}

static const uint64_t none[] = {1};
static const uint64_t kernel[] = {K, 0xffffffff81000042, 0xffffffff81000100, 1};
static const uint64_t fp[] = {U, PC, PC + 0x100, PC + 0x800, PC + 0x900, 1};

static void test_marks(void)
{
	set_event(FULL);
	set_answer(3, UW_END);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 0), UN_SAMPLE),
		"U 401000 4010ff 4011ff", "a whole stack has no mark");
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, kernel, true, 0), UN_SAMPLE),
		"K ffffffff81000042 ffffffff81000100 U 401000 4010ff 4011ff",
		"the kernel's part stays as it came, before the user's");
	set_answer(3, UW_GUESSED);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 0), UN_SAMPLE),
		"U 401000 4010ff 4011ff", "nor has one that reached its root over a guess");
	tap_eq(worker.stops.n[UW_GUESSED], 1, "which is counted");
	set_answer(2, UW_NO_CFI);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 0), UN_SAMPLE), "U 401000 4010ff 0",
		"a stop before the root is marked");
	tap_eq(worker.counters.v[SP_C_no_cfi_stops], 1, "and counted by its reason");
	tap_eq(worker.counters.v[SP_C_truncated_frame_markers], 1, "and as a mark");
	set_answer(0, UW_BAD_REGS);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 0), UN_SAMPLE), "U 401000 0",
		"no frame at all: the place of the sample");
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, kernel, true, 0), UN_SAMPLE),
		"K ffffffff81000042 ffffffff81000100 U 0", "in the kernel: its part, and the mark");
}

/* Frame-pointer chains that came along. */
static void test_frame_pointers(void)
{
	set_answer(2, UW_STACK_EXHAUSTED);
	tap_str(chain_of(record(SP_CPUMODE_USER, fp, true, 0), UN_SAMPLE),
		"U 401000 4010ff 4017ff 4018ff 0",
		"it goes on below the last address common to both");
	tap_eq(worker.counters.v[SP_C_spliced_samples], 1, "which is counted");
	tap_eq(worker.counters.v[SP_C_ignored_user_callchain_frames], 2, "the rest is ignored");
	set_answer(3, UW_END);
	tap_str(chain_of(record(SP_CPUMODE_USER, fp, true, 0), UN_SAMPLE), "U 401000 4010ff 4011ff",
		"a whole stack needs none of it");
	tap_eq(worker.counters.v[SP_C_ignored_user_callchain_frames], 4, "all of it is ignored");
	set_answer(0, UW_BAD_REGS);
	tap_str(chain_of(record(SP_CPUMODE_USER, fp, true, 0), UN_SAMPLE),
		"U 401000 4010ff 4017ff 4018ff 0", "without any frame it is used whole");
	static const uint64_t turns[] = {U, PC, PC, PC, PC, PC + 0x900, 1};
	set_answer(2, UW_STACK_EXHAUSTED);
	answer.return_addrs[1] = PC;
	answer.addrs[1] = PC - 1;
	tap_str(chain_of(record(SP_CPUMODE_USER, turns, true, 0), UN_SAMPLE),
		"U 401000 400fff 400fff 400fff 4018ff 0", "in recursion the same turn is meant");
	static const uint64_t strange[] = {U, 0x500000, 0x500100, 1};
	set_answer(2, UW_STACK_EXHAUSTED);
	tap_str(chain_of(record(SP_CPUMODE_USER, strange, true, 0), UN_SAMPLE), "U 401000 4010ff 0",
		"a chain with nothing in common is not used");
}

/* Samples with nothing to unwind. */
static void test_nothing(void)
{
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, kernel, false, 0), UN_CHAIN),
		"K ffffffff81000042 ffffffff81000100", "a kernel thread: no mark");
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, none, false, 0), UN_CHAIN), "K ffffffff81000042",
		"without a chain, where it was");
	tap_str(chain_of(record(SP_CPUMODE_USER, none, false, 0), UN_CHAIN), "U 401000 0",
		"a user task without registers: one frame and the mark");
	tap_eq(worker.counters.v[SP_C_user_registers_missing], 1, "counted");
	static const uint64_t zeros[] = {K, 0xffffffff81000042, U, PC, 0x402001, 0, 1};
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, zeros, false, 0), UN_CHAIN),
		"K ffffffff81000042 U 401000 402000",
		"the kernel's user chain: call sites, its zeros mean nothing");
	static const uint64_t empty[] = {K, U, (uint64_t)-4000, 0x1234, U, PC, 1};
	tap_str(chain_of(record(SP_CPUMODE_USER, empty, false, 0), UN_CHAIN), "U 401000",
		"empty and unknown contexts are left out");
	static const uint64_t deferred[] = {K, 0xffffffff81000042, (uint64_t)-640, 99, 1};
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, deferred, false, 0), UN_CHAIN),
		"K ffffffff81000042", "a deferred chain's cookie is no address");
	set_event(BASE);
	tap_str(chain_of(record(SP_CPUMODE_USER, fp, false, 0), UN_CHAIN),
		"U 401000 4010ff 4017ff 4018ff", "an event without stacks: its chain, no mark");
}

/* An attr without chains, and records near their limit. */
static void test_limits(void)
{
	set_event(FULL & ~(uint64_t)SP_SAMPLE_CALLCHAIN);
	set_answer(2, UW_END);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 0), UN_SAMPLE), "U 401000 4010ff",
		"an attr without chains gets one");
	tap_str(chain_of(record(SP_CPUMODE_KERNEL, none, true, 0), UN_SAMPLE),
		"K ffffffff81000042 U 401000 4010ff", "and the place in the kernel");
	set_event(FULL | SP_SAMPLE_RAW);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 65404), UN_SAMPLE), "U 401000 4010ff",
		"large raw data leave little room");
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 65428), UN_SAMPLE), "U 401000 4010ff",
		"the chain just fits");
	set_answer(10, UW_END);
	tap_str(chain_of(record(SP_CPUMODE_USER, none, true, 65428), UN_SAMPLE),
		"U 401000 4010ff 4011ff 4012ff 4013ff 0",
		"a chain without room loses its root and is marked");
	set_event(BASE);
	tap_str(chain_of(record(SP_CPUMODE_USER, fp, false, 0), UN_SAMPLE), "U 401000 401100 401800 401900",
		"an event that does not unwind keeps its chain");
}

int main(void)
{
	if (!un_worker_init(&worker))
		return 1;
	test_marks();
	test_frame_pointers();
	test_nothing();
	test_limits();
	test_malformed();
	un_worker_deinit(&worker);
	sp_buf_deinit(&raw);
	return tap_done();
}
