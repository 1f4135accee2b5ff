/* Every kind of record in both byte orders, by value; bodies that lie about their lengths. */
#include "tap.h"

#include "perf_enc.h"
#include "perf/reader.h"

static bool be;

static const char *said(const char *what)
{
	static char text[200];
	snprintf(text, sizeof text, "%s, %s-endian", what, be ? "big" : "little");
	return text;
}

#define EQ(got, want, what) tap_eq((uint64_t)(got), (uint64_t)(want), said(what))
#define STR(got, want, what) tap_str((got), (want), said(what))

static struct sp_reader *open_enc(struct enc *e, unsigned flags)
{
	struct sp_reader *r = NULL;
	struct sp_err err = {0};
	if (sp_reader_open_bytes(&r, e->b.data, e->b.len, flags, &err) < 0) {
		tap_ok(false, said("the stream opens"));
		printf("# %s\n", err.msg);
		return NULL;
	}
	return r;
}

/* The next record of a type. */
static bool find(struct sp_reader *r, uint32_t type, struct sp_record *rec)
{
	while (sp_reader_next(r, rec, NULL) == 1)
		if (rec->type == type)
			return true;
	tap_ok(false, said("the record is there"));
	return false;
}

/* --- a sample with every field --- */

#define FULL_TYPE (SP_SAMPLE_KNOWN & ~SP_SAMPLE_WEIGHT)

static struct sp_attr full_attr(void)
{
	struct sp_attr a = e_plain_attr();
	a.sample_type = FULL_TYPE;
	a.read_format = SP_READ_GROUP | SP_READ_ENABLED | SP_READ_ID | SP_READ_LOST;
	a.branch_sample_type = SP_BRANCH_HW_INDEX | SP_BRANCH_COUNTERS;
	a.sample_regs_user = 0xff0fff;
	a.sample_regs_intr = 0x3;
	a.sample_stack_user = 64;
	a.clockid = 1;
	a.flags |= SP_ATTR_USE_CLOCKID;
	return a;
}

static void full_sample(struct enc *e, uint64_t dyn_size)
{
	e_begin(e, SP_PERF_SAMPLE, 1);
	e64(e, 77); /* IDENTIFIER */
	e64(e, 0x400100);
	e32(e, 4000);
	e32(e, 4001);
	e64(e, 123456789);
	e64(e, 0xadd2);
	e64(e, 77); /* ID */
	e64(e, 78); /* STREAM_ID */
	e32(e, 5);
	e32(e, 0);
	e64(e, 999);
	e64(e, 2); /* READ: two counters of a group */
	e64(e, 11);
	for (uint64_t i = 0; i < 6; i++)
		e64(e, 20 + i);
	e64(e, 4); /* CALLCHAIN */
	e64(e, SP_CONTEXT_KERNEL);
	e64(e, 0xffffffff81000001);
	e64(e, SP_CONTEXT_USER);
	e64(e, 0x400100);
	e32(e, 12); /* RAW */
	ebytes(e, "raw bytes 12", 12);
	e64(e, 2); /* BRANCH_STACK */
	e64(e, 9);
	for (uint64_t i = 0; i < 2; i++) {
		e64(e, 0x1000 + i);
		e64(e, 0x2000 + i);
		/* mispredicted, 7 cycles, type 2 */
		e64(e, e->be ? UINT64_C(1) << 63 | UINT64_C(7) << 44 | UINT64_C(2) << 40
			     : 1 | 7 << 4 | 2 << 20);
	}
	e64(e, 5);
	e64(e, 6);
	e64(e, 2); /* REGS_USER */
	for (uint64_t i = 0; i < 20; i++)
		e64(e, 0x7000 + i);
	e64(e, 64); /* STACK_USER */
	for (uint8_t i = 0; i < 64; i++)
		e8(e, i);
	e64(e, dyn_size);
	e64(e, UINT64_C(0x0003000200000042)); /* WEIGHT_STRUCT: 0x42, 2, 3 */
	e64(e, 0xda7a);
	e64(e, 0x77a);
	e64(e, 1); /* REGS_INTR */
	e64(e, 1);
	e64(e, 2);
	e64(e, 0x9a);
	e64(e, 0xc9);
	e64(e, 4096);
	e64(e, 65536);
	e64(e, 8); /* AUX */
	ebytes(e, "aux data", 8);
	e_end(e);
}

static void check_sample_fields(const struct sp_record *rec)
{
	const struct sp_perf_sample *s = &rec->sample;
	EQ(rec->misc, 1, "a sample's misc");
	EQ(rec->pid, 4000, "a sample's pid");
	EQ(rec->tid, 4001, "a sample's tid");
	EQ(rec->time_ns, 123456789, "a sample's time");
	EQ(rec->cpu, 5, "a sample's cpu");
	EQ(s->ip, 0x400100, "a sample's ip");
	EQ(s->addr, 0xadd2, "a sample's addr");
	EQ(s->period, 999, "a sample's period");
	EQ(s->id, 77, "a sample's id");
	EQ(s->n_chain, 4, "a chain's length");
	EQ(sp_get64(s->chain), SP_CONTEXT_KERNEL, "a chain's context marker");
	EQ(sp_get64(s->chain + 24), 0x400100, "a chain's last entry");
	EQ(s->raw_bytes, 12, "the size of raw data");
	EQ(memcmp(s->raw, "raw bytes 12", 12), 0, "raw data keeps its bytes");
	EQ(s->n_branches, 2, "a branch stack's length");
	EQ(sp_get64(s->branches + 24), 0x1001, "a branch's from");
	EQ(sp_get64(s->branches + 32), 0x2001, "a branch's to");
	EQ(sp_get64(s->branches + 40), 1 | 7 << 4 | 2 << 20, "a branch's flags");
	EQ(s->regs_abi, 2, "the registers' ABI");
	EQ(sp_get64(s->regs + 19 * 8), 0x7013, "the last register");
	EQ(s->stack_bytes, 40, "a stack is clipped to its dynamic size");
	EQ(s->stack[39], 39, "the stack's bytes");
	EQ(s->weight, 0x42, "the first part of a structured weight");
	EQ(s->data_src, 0xda7a, "a data source");
	EQ(s->transaction, 0x77a, "a transaction");
	EQ(s->phys_addr, 0x9a, "a physical address behind the interrupt's registers");
	EQ(s->cgroup, 0xc9, "a cgroup");
	EQ(sp_get64(rec->raw + s->chain_off), 4, "chain_off points to the chain's count");
	EQ(s->chain_end - s->chain_off, 40, "chain_end lies behind the chain");
	EQ(sp_get64(rec->raw + s->user_off), 2, "user_off points to the registers' ABI");
	EQ(s->user_end - s->user_off, 8 + 160 + 8 + 64 + 8, "user_end lies behind dyn_size");
}

static void test_sample(void)
{
	struct enc e = {.be = be};
	struct sp_attr a = full_attr();
	uint64_t id = 77;
	e_pipe(&e);
	e_head_attr(&e, &a, 128, &id, 1);
	full_sample(&e, 40);
	full_sample(&e, 65);
	struct sp_reader *r = open_enc(&e, 0);
	struct sp_record rec;
	if (r && find(r, SP_PERF_SAMPLE, &rec)) {
		EQ(rec.malformed, 0, "a sample with every field is understood");
		check_sample_fields(&rec);
		const struct sp_attr *got = &sp_reader_event(r, 0)->attr;
		EQ(got->sample_type, a.sample_type, "an attr's sample_type");
		EQ(got->flags, a.flags, "an attr's flags");
		EQ(got->branch_sample_type, a.branch_sample_type, "an attr's branch type");
		EQ(got->sample_stack_user, 64, "an attr's stack size");
		EQ(sp_reader_info(r)->clockid, 1, "the clock");
		EQ(sp_reader_info(r)->swapped, be, "the byte order is told");
	}
	if (r && find(r, SP_PERF_SAMPLE, &rec)) {
		EQ(rec.malformed, 1, "a dynamic size beyond the size is malformed");
		EQ(rec.sample.stack_bytes <= 64 || rec.malformed, 1, "and gives no stack");
		sp_reader_next(r, &rec, NULL);
		EQ(sp_reader_state(r), SP_INPUT_DAMAGED, "and counts as damage");
		char size[32];
		snprintf(size, sizeof size, "%u bytes)", rec.size);
		tap_ok(strstr(sp_reader_complaint(r), "offset ") != NULL,
		       said("and is told with its offset"));
		tap_ok(strstr(sp_reader_complaint(r), size) != NULL, said("and its size"));
	}
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* perf 6.15's off-CPU samples: all that counts is in the raw data. */
static void test_offcpu(void)
{
	struct enc e = {.be = be};
	struct sp_attr a = e_plain_attr();
	uint64_t id = 5;
	a.config = 10;
	a.sample_type = E_SAMPLE_TYPE | SP_SAMPLE_RAW;
	e_pipe(&e);
	e_head_attr(&e, &a, 128, &id, 1);
	e_begin(&e, SP_PERF_EVENT_UPDATE, 0);
	e64(&e, 2), e64(&e, id), estr(&e, "offcpu-time", 8);
	e_end(&e);
	for (uint64_t n_chain = 3; n_chain < 20; n_chain += 16) {
		e_sample(&e, id, 10, 0);
		e32(&e, 60);
		e32(&e, 40), e32(&e, 41), e64(&e, 123456), e64(&e, n_chain);
		e64(&e, SP_CONTEXT_USER), e64(&e, 0x401000), e64(&e, 0x402000);
		e64(&e, 77), e32(&e, 0);
		e_end(&e);
	}
	struct sp_reader *r = open_enc(&e, 0);
	struct sp_record rec;
	if (r && find(r, SP_PERF_SAMPLE, &rec)) {
		EQ(rec.pid, 40, "an off-CPU sample's pid");
		EQ(rec.tid, 41, "an off-CPU sample's tid");
		EQ(rec.sample.period, 123456, "an off-CPU sample's time");
		EQ(rec.sample.n_chain, 3, "an off-CPU sample's chain");
		EQ(rec.sample.ip, 0x401000, "an off-CPU sample's ip is the chain's first");
		EQ(rec.sample.cgroup, 77, "an off-CPU sample's cgroup");
	}
	if (r && find(r, SP_PERF_SAMPLE, &rec))
		EQ(rec.malformed, 1, "a chain beyond the raw data is malformed");
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* --- values of counters, in all formats --- */

/* As test_read_formats writes them: 1000, 1001, … word by word. */
static bool values_are(const struct sp_record *rec, unsigned times, unsigned each)
{
	uint64_t format = rec->event->attr.read_format;
	bool group = format & SP_READ_GROUP;
	struct sp_sample_value v;
	if (rec->sample.n_values != (group ? 3u : 1u))
		return false;
	for (uint32_t i = 0; i < rec->sample.n_values; i++) {
		if (!(format & SP_READ_ID))
			return !sp_sample_value(rec, i, &v);
		uint64_t first = 1000 + (group ? times + i * each : 0);
		if (!sp_sample_value(rec, i, &v) || v.value != first ||
		    v.id != first + 1 + (group ? 0 : times))
			return false;
	}
	return !sp_sample_value(rec, rec->sample.n_values, &v);
}

static void test_read_formats(void)
{
	unsigned good = 0, by_value = 0;
	for (unsigned format = 0; format < 32; format++) {
		struct enc e = {.be = be};
		struct sp_attr a = e_plain_attr();
		uint64_t id = 1;
		a.sample_type = SP_SAMPLE_IDENTIFIER | SP_SAMPLE_READ | SP_SAMPLE_CALLCHAIN;
		a.read_format = format;
		e_pipe(&e);
		e_head_attr(&e, &a, 112, &id, 1);
		e_begin(&e, SP_PERF_SAMPLE, 2);
		e64(&e, 1);
		unsigned times = (format & 1) + (format >> 1 & 1);
		unsigned each = 1 + (format >> 2 & 1) + (format >> 4 & 1);
		bool group = format & SP_READ_GROUP;
		if (group)
			e64(&e, 3);
		for (unsigned i = 0; i < times + each * (group ? 3 : 1); i++)
			e64(&e, 1000 + i);
		e64(&e, 1);
		e64(&e, 0xc4a1);
		e_end(&e);
		struct sp_reader *r = open_enc(&e, 0);
		struct sp_record rec;
		bool is_there = r && find(r, SP_PERF_SAMPLE, &rec) && !rec.malformed;
		good += is_there && rec.sample.n_chain == 1 &&
			sp_get64(rec.sample.chain) == 0xc4a1;
		by_value += is_there && values_are(&rec, times, each);
		sp_reader_close(r);
		sp_buf_deinit(&e.b);
	}
	EQ(good, 32, "the chain is found behind counters of all 32 read formats");
	EQ(by_value, 32, "and their values with their ids, where there are any");
}

/* --- the other records of the kernel --- */

static const uint8_t build_id[20] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
				     11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

static void put_others(struct enc *e)
{
	e_begin(e, SP_PERF_MMAP, 2);
	e32(e, 10), e32(e, 11), e64(e, 0x400000), e64(e, 0x1000), e64(e, 0x2000);
	estr(e, "/bin/old", 8);
	e_sid(e, 10, 11, 1001, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_MMAP2, 2);
	e32(e, 12), e32(e, 13), e64(e, 0x500000), e64(e, 0x3000), e64(e, 0x4000);
	e32(e, 8), e32(e, 1), e64(e, 4711), e64(e, 9);
	e32(e, 5), e32(e, 2);
	estr(e, "/lib/new.so", 8);
	e_sid(e, 12, 13, 1002, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_MMAP2, 2 | SP_MISC_BUILD_ID);
	e32(e, 14), e32(e, 15), e64(e, 0x600000), e64(e, 0x5000), e64(e, 0x6000);
	e8(e, 20), e8(e, 0), e16(e, 0), ebytes(e, build_id, 20);
	e32(e, 5), e32(e, 2);
	estr(e, "/lib/id.so", 8);
	e_sid(e, 14, 15, 1003, 7, 77);
	e_end(e);
	for (int exe = 0; exe < 2; exe++) { /* Linux 3.12's form */
		e_begin(e, SP_PERF_MMAP2, exe ? 2 : 2 | SP_MISC_MMAP_DATA);
		e32(e, 14), e32(e, 15), e64(e, 0x700000), e64(e, 0x5000), e64(e, 0x7000);
		e32(e, 8), e32(e, 1), e64(e, 4712), e64(e, 9);
		estr(e, exe ? "/lib/3.12.so" : "[stack]", 8);
		e_sid(e, 14, 15, 1003, 7, 77);
		e_end(e);
	}
	e_begin(e, SP_PERF_COMM, SP_MISC_COMM_EXEC);
	e32(e, 16), e32(e, 17);
	estr(e, "named", 8);
	e_sid(e, 16, 17, 1004, 7, 77);
	e_end(e);
	for (uint32_t type = SP_PERF_EXIT; type <= SP_PERF_FORK; type += 3) {
		e_begin(e, type, 0);
		e32(e, 20), e32(e, 18), e32(e, 21), e32(e, 19), e64(e, 1005);
		e_sid(e, 18, 19, 1005, 7, 77);
		e_end(e);
	}
	e_begin(e, SP_PERF_LOST, 0);
	e64(e, 77), e64(e, 6);
	e_sid(e, 22, 23, 1006, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_LOST_SAMPLES, 0);
	e64(e, 5);
	e_sid(e, 22, 23, 1007, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_THROTTLE, 0);
	e64(e, 1008), e64(e, 77), e64(e, 77);
	e_sid(e, 22, 23, 1008, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_NAMESPACES, 0);
	e32(e, 24), e32(e, 25), e64(e, 1), e64(e, 3), e64(e, 4026531840);
	e_sid(e, 24, 25, 1009, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_KSYMBOL, 0);
	e64(e, 0xffffffffc0000000), e32(e, 64), e16(e, 1), e16(e, 0);
	estr(e, "bpf_prog_1", 8);
	e_sid(e, 24, 25, 1010, 7, 77);
	e_end(e);
	e_begin(e, SP_PERF_SWITCH_CPU_WIDE, 0);
	e32(e, 26), e32(e, 27);
	e_sid(e, 28, 29, 1011, 7, 77);
	e_end(e);
	e_begin(e, 40, 0); /* of a kernel to come */
	e64(e, 1);
	e_sid(e, 30, 31, 1012, 7, 77);
	e_end(e);
}

static void check_maps(struct sp_reader *r)
{
	struct sp_record rec;
	if (find(r, SP_PERF_MMAP, &rec)) {
		EQ(rec.pid, 10, "MMAP's pid");
		EQ(rec.tid, 11, "MMAP's tid");
		EQ(rec.time_ns, 1001, "MMAP's time from its sample_id");
		EQ(rec.cpu, 7, "MMAP's cpu from its sample_id");
		EQ(rec.mmap.start, 0x400000, "MMAP's start");
		EQ(rec.mmap.len, 0x1000, "MMAP's length");
		EQ(rec.mmap.pgoff, 0x2000, "MMAP's offset");
		EQ(rec.mmap.prot, 4, "an old MMAP is executable");
		STR(rec.mmap.path, "/bin/old", "MMAP's path");
	}
	if (find(r, SP_PERF_MMAP2, &rec)) {
		EQ(rec.mmap.is_mmap2, 1, "MMAP2 is told apart");
		EQ(rec.mmap.maj, 8, "MMAP2's major");
		EQ(rec.mmap.min, 1, "MMAP2's minor");
		EQ(rec.mmap.ino, 4711, "MMAP2's inode");
		EQ(rec.mmap.ino_gen, 9, "MMAP2's generation");
		EQ(rec.mmap.prot, 5, "MMAP2's protection");
		EQ(rec.mmap.flags, 2, "MMAP2's flags");
		EQ(rec.mmap.build_id_len, 0, "MMAP2 without build-id");
		STR(rec.mmap.path, "/lib/new.so", "MMAP2's path");
	}
	if (find(r, SP_PERF_MMAP2, &rec)) {
		EQ(rec.mmap.build_id_len, 20, "MMAP2's build-id length");
		EQ(memcmp(rec.mmap.build_id, build_id, 20), 0, "MMAP2's build-id");
		EQ(rec.mmap.ino, 0, "MMAP2 with build-id has no inode");
		EQ(rec.mmap.start, 0x600000, "its start");
		STR(rec.mmap.path, "/lib/id.so", "its path");
	}
	if (find(r, SP_PERF_MMAP2, &rec)) {
		STR(rec.mmap.path, "[stack]", "MMAP2 without protection and flags: its path");
		EQ(rec.mmap.prot, 1, "as data it is readable");
	}
	if (find(r, SP_PERF_MMAP2, &rec)) {
		STR(rec.mmap.path, "/lib/3.12.so", "and the other one's path");
		EQ(rec.mmap.prot, 4, "else executable");
		EQ(rec.mmap.ino, 4712, "its inode");
		EQ(rec.tid, 15, "its sample_id");
	}
}

static void check_others(struct sp_reader *r)
{
	struct sp_record rec;
	if (find(r, SP_PERF_COMM, &rec)) {
		EQ(rec.comm.is_exec, 1, "COMM at exec");
		EQ(rec.tid, 17, "COMM's tid");
		STR(rec.comm.comm, "named", "COMM's name");
	}
	for (uint32_t type = SP_PERF_EXIT; type <= SP_PERF_FORK; type += 3)
		if (find(r, type, &rec)) {
			EQ(rec.pid, 20, "FORK's and EXIT's own pid");
			EQ(rec.task.tid, 21, "their tid");
			EQ(rec.task.ppid, 18, "their parent");
			EQ(rec.task.ptid, 19, "their parent's thread");
			EQ(rec.task.time_ns, 1005, "their time");
		}
	if (find(r, SP_PERF_LOST, &rec)) {
		EQ(rec.lost.id, 77, "LOST's id");
		EQ(rec.lost.lost, 6, "LOST's count");
		EQ(rec.pid, 22, "LOST's pid from the sample_id");
	}
	if (find(r, SP_PERF_LOST_SAMPLES, &rec))
		EQ(rec.lost.lost, 5, "LOST_SAMPLES' count");
	if (find(r, SP_PERF_THROTTLE, &rec))
		EQ(rec.time_ns, 1008, "THROTTLE's time");
	if (find(r, SP_PERF_NAMESPACES, &rec)) {
		EQ(rec.tid, 25, "NAMESPACES' tid");
		EQ(sp_get64(rec.raw + 8 + 24), 4026531840, "NAMESPACES' inode in native order");
	}
	if (find(r, SP_PERF_KSYMBOL, &rec))
		EQ(sp_get32(rec.raw + 16), 64, "KSYMBOL's length in native order");
	if (find(r, SP_PERF_SWITCH_CPU_WIDE, &rec)) {
		EQ(rec.pid, 28, "SWITCH_CPU_WIDE's own pid is the sample_id's");
		EQ(sp_get32(rec.raw + 8), 26, "SWITCH_CPU_WIDE's partner in native order");
	}
	if (!be && find(r, 40, &rec)) /* what cannot be swapped is left out */
		EQ(rec.time_ns, 1012, "an unknown record has its sample_id");
}

/* The head of a stream whose records end with a sample_id of TID, TIME, CPU, IDENTIFIER. */
static void put_trailer_head(struct enc *e)
{
	struct sp_attr a = full_attr();
	uint64_t id = 77;
	a.sample_type &= ~(SP_SAMPLE_ID | SP_SAMPLE_STREAM_ID);
	e_pipe(e);
	e_head_attr(e, &a, 136, &id, 1);
}

static void test_others(void)
{
	struct enc e = {.be = be};
	put_trailer_head(&e);
	put_others(&e);
	struct sp_reader *r = open_enc(&e, 0);
	if (r) {
		check_maps(r);
		check_others(r);
		struct sp_record rec;
		while (sp_reader_next(r, &rec, NULL) == 1)
			;
		const struct sp_counters *c = sp_reader_counters(r);
		EQ(sp_reader_state(r), SP_INPUT_WHOLE, "all of it is understood");
		EQ(c->v[SP_C_lost_events], 6, "LOST is counted");
		EQ(c->v[SP_C_lost_samples], 5, "LOST_SAMPLES is counted apart");
		EQ(c->v[SP_C_throttled], 1, "a throttle period is counted");
		EQ(c->v[SP_C_skipped_records], 1, "an unknown kind is counted");
	}
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* --- records that are passed on: every word must be native --- */

static const struct {
	uint32_t type;
	const char *widths; /* of the body's fields, in bytes; their values are 1, 2, 3, … */
	bool counted;       /* field 1 is a number of groups: 1 */
} passed[] = {
	{SP_PERF_AUX, "888", false},
	{SP_PERF_ITRACE_START, "44", false},
	{SP_PERF_LOST_SAMPLES, "8", false},
	{SP_PERF_SWITCH, "", false},
	{SP_PERF_SWITCH_CPU_WIDE, "44", false},
	{SP_PERF_NAMESPACES, "44188", true},
	{SP_PERF_KSYMBOL, "84221", false},
	{SP_PERF_BPF_EVENT, "224", false},
	{SP_PERF_CGROUP, "81", false},
	{SP_PERF_TEXT_POKE, "822", false},
	{SP_PERF_AUX_OUTPUT_HW_ID, "8", false},
	{SP_PERF_THROTTLE, "888", false},
	{SP_PERF_UNTHROTTLE, "888", false},
	{SP_PERF_READ, "44888", false},
	{SP_PERF_ID_INDEX, "18888", true},
	{SP_PERF_THREAD_MAP, "18", true},
	{SP_PERF_STAT_CONFIG, "188", true},
	{SP_PERF_STAT, "844888", false},
	{SP_PERF_STAT_ROUND, "88", false},
	{SP_PERF_TIME_CONV, "888888", false},
	{SP_PERF_AUXTRACE_INFO, "44888", false},
};

static void put_passed(struct enc *e, size_t k)
{
	e_begin(e, passed[k].type, 0);
	unsigned value = 0, at = 0;
	for (const char *w = passed[k].widths; *w; w++) {
		value++;
		bool count = passed[k].counted && *w == '1';
		unsigned width = count ? 8 : (unsigned)(*w - '0');
		uint64_t v = count ? 1 : value;
		if (width == 8)
			e64(e, v);
		else if (width == 4)
			e32(e, (uint32_t)v);
		else if (width == 2)
			e16(e, (uint16_t)v);
		else
			e8(e, (uint8_t)v);
		at += width;
	}
	sp_buf_zero(&e->b, (8 - at % 8) % 8);
	if (passed[k].type == SP_PERF_THREAD_MAP)
		sp_buf_zero(&e->b, 16);
	if (passed[k].type < SP_PERF_HEADER_ATTR)
		e_sid(e, 28, 29, 1000 + k, 7, 77);
	e_end(e);
}

static bool is_native(const uint8_t *p, size_t k)
{
	uint64_t value = 0;
	for (const char *w = passed[k].widths; *w; w++) {
		value++;
		bool count = passed[k].counted && *w == '1';
		unsigned width = count ? 8 : (unsigned)(*w - '0');
		uint64_t got = width == 8   ? sp_get64(p)
			       : width == 4 ? sp_get32(p)
			       : width == 2 ? sp_get16(p)
					    : *p;
		if (got != (count ? 1 : value))
			return false;
		p += width;
	}
	return true;
}

static void test_passed(void)
{
	struct enc e = {.be = be};
	put_trailer_head(&e);
	for (size_t k = 0; k < sizeof passed / sizeof *passed; k++)
		put_passed(&e, k);
	struct sp_reader *r = open_enc(&e, SP_READER_UNORDERED);
	for (size_t k = 0; r && k < sizeof passed / sizeof *passed; k++) {
		struct sp_record rec;
		char what[64];
		snprintf(what, sizeof what, "every word of type %u is native", passed[k].type);
		bool found = find(r, passed[k].type, &rec);
		EQ(found && is_native(rec.raw + 8, k), 1, what);
		bool has_id = passed[k].type < SP_PERF_HEADER_ATTR;
		EQ(has_id ? rec.time_ns : 0, has_id ? 1000 + k : 0, "and it has its time");
	}
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* Of a type from the future nothing is known, its end neither. */
static void test_unknown(void)
{
	struct enc e = {.be = be};
	put_trailer_head(&e);
	e_begin(&e, SP_PERF_HEADER_ATTR - 1, 0);
	e_end(&e);
	e_begin(&e, SP_PERF_COMM, 0);
	e_end(&e);
	struct sp_reader *r = open_enc(&e, 0);
	struct sp_record rec;
	if (r && sp_reader_next(r, &rec, NULL) >= 0) {
		EQ(sp_reader_state(r), SP_INPUT_WHOLE, "an unknown record may be a header alone");
		while (sp_reader_next(r, &rec, NULL) == 1)
			;
		EQ(sp_reader_counters(r)->v[SP_C_skipped_records], 1, "and is counted as skipped");
		EQ(sp_reader_state(r), SP_INPUT_DAMAGED, "a known one may not");
	}
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* Before IDENTIFIER (Linux 3.12) ids stood behind ADDR in samples, and before STREAM_ID and CPU at
 * the end of others: two events are told apart there. */
static void test_old_ids(void)
{
	struct enc e = {.be = be};
	struct sp_attr a = e_plain_attr();
	static const uint64_t ids[2] = {5, 6};
	a.sample_type = SP_SAMPLE_IP | SP_SAMPLE_TID | SP_SAMPLE_TIME | SP_SAMPLE_ADDR |
			SP_SAMPLE_ID | SP_SAMPLE_STREAM_ID | SP_SAMPLE_CPU;
	e_pipe(&e);
	e_head_attr(&e, &a, 72, &ids[0], 1);
	a.config = 2;
	e_head_attr(&e, &a, 72, &ids[1], 1);
	for (unsigned i = 0; i < 2; i++) {
		e_begin(&e, SP_PERF_COMM, 0);
		e32(&e, 1), e32(&e, 2);
		estr(&e, "named", 8);
		e32(&e, 1), e32(&e, 2), e64(&e, 100 + i), e64(&e, ids[i]), e64(&e, 9), e32(&e, 3),
			e32(&e, 0);
		e_end(&e);
		e_begin(&e, SP_PERF_SAMPLE, 2);
		e64(&e, 0x1000), e32(&e, 1), e32(&e, 2), e64(&e, 200 + i), e64(&e, 0x77),
			e64(&e, ids[i]), e64(&e, 9), e32(&e, 3), e32(&e, 0);
		e_end(&e);
	}
	struct sp_reader *r = open_enc(&e, SP_READER_UNORDERED);
	for (unsigned i = 0; r && i < 2; i++) {
		struct sp_record rec;
		if (find(r, SP_PERF_COMM, &rec)) {
			EQ(rec.event->index, i, "a COMM's event is found by the id before CPU");
			EQ(rec.time_ns, 100 + i, "its time");
		}
		if (find(r, SP_PERF_SAMPLE, &rec)) {
			EQ(rec.event->index, i, "a sample's event is found by the id behind ADDR");
			EQ(rec.sample.addr, 0x77, "its address");
			EQ(rec.cpu, 3, "its processor");
		}
	}
	sp_reader_close(r);
	sp_buf_deinit(&e.b);
}

/* --- bodies that lie --- */

enum lie {
	CHAIN_COUNT,
	BRANCH_COUNT,
	STACK_SIZE,
	RAW_SIZE,
	AUX_SIZE,
	REGS_CUT,
	READ_COUNT,
	N_LIES
};

static void put_lie(struct enc *e, enum lie lie)
{
	static const uint64_t types[N_LIES] = {
		SP_SAMPLE_CALLCHAIN, SP_SAMPLE_BRANCH_STACK, SP_SAMPLE_STACK_USER, SP_SAMPLE_RAW,
		SP_SAMPLE_AUX,       SP_SAMPLE_REGS_USER,    SP_SAMPLE_READ};
	struct sp_attr a = e_plain_attr();
	uint64_t id = 1;
	a.sample_type = SP_SAMPLE_IDENTIFIER | types[lie];
	a.sample_regs_user = UINT64_MAX;
	a.read_format = SP_READ_GROUP | SP_READ_ID;
	e_pipe(e);
	e_head_attr(e, &a, 128, &id, 1);
	static const uint64_t huge[] = {3,          UINT64_C(1) << 60,   UINT64_C(1) << 61,
					UINT64_MAX, UINT64_MAX / 24 + 1, UINT64_C(1) << 32};
	for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
		e_begin(e, SP_PERF_SAMPLE, 2);
		e64(e, 1);
		if (lie == RAW_SIZE)
			e32(e, i ? (uint32_t)(huge[i] >> 8) | 64 : 64);
		else
			e64(e, lie == REGS_CUT ? 2 : i == 0 ? 9 : huge[i]);
		e64(e, 0);
		if (lie == REGS_CUT)
			for (int k = 0; k < 62; k++)
				e64(e, 0);
		e_end(e);
	}
}

static void test_lies(void)
{
	unsigned malformed = 0, n = 0;
	for (unsigned lie = 0; lie < N_LIES; lie++) {
		struct enc e = {.be = be};
		put_lie(&e, lie);
		struct sp_reader *r = open_enc(&e, 0);
		struct sp_record rec;
		while (r && sp_reader_next(r, &rec, NULL) == 1)
			if (rec.type == SP_PERF_SAMPLE) {
				n++;
				malformed += rec.malformed;
			}
		sp_reader_close(r);
		sp_buf_deinit(&e.b);
	}
	EQ(n, 6 * N_LIES, "samples that lie about lengths are given");
	EQ(malformed, 6 * N_LIES, "and marked as malformed");
}

static void test_pure_entry(void)
{
	struct enc e = {0};
	struct sp_event one = {.attr = e_plain_attr()}, two = one;
	uint64_t ids[2] = {5, 6};
	one.ids = &ids[0], two.ids = &ids[1];
	one.n_ids = two.n_ids = 1;
	const struct sp_event *events[] = {&one, &two};
	struct sp_record rec;
	e_sample(&e, 6, 1, 0x1234);
	tap_eq(sp_record_parse(&rec, e.b.data, e.b.len, events, 2, NULL), 0,
	       "one record is parsed");
	tap_ok(rec.event == &two, "by the event of its id");
	tap_eq(rec.sample.ip, 0x1234, "with its values");
	unsigned refused = 0;
	for (size_t n = 0; n < e.b.len; n++) {
		struct sp_record cut;
		uint8_t *copy = memcpy((uint8_t[128]){0}, e.b.data, n);
		if (n >= 8)
			sp_put16(copy + 6, (uint16_t)n);
		refused += sp_record_parse(&cut, copy, n, events, 2, NULL) == SP_ERR_CORRUPT &&
			   cut.malformed;
	}
	tap_eq(refused, e.b.len, "every shorter form of it is refused");
	tap_ok(sp_record_parse(&rec, e.b.data, e.b.len, NULL, 0, NULL) == SP_ERR_CORRUPT,
	       "a sample without an event is refused");
	sp_buf_deinit(&e.b);
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		be = i;
		test_sample();
		test_offcpu();
		test_read_formats();
		test_others();
		test_passed();
		test_unknown();
		test_old_ids();
		test_lies();
	}
	test_pure_entry();
	return tap_done();
}
