#include "perf/attr.h"

#include <stdio.h>
#include <string.h>

enum {
	AT_TYPE = 0,
	AT_SIZE = 4,
	AT_CONFIG = 8,
	AT_PERIOD = 16,
	AT_SAMPLE_TYPE = 24,
	AT_READ_FORMAT = 32,
	AT_FLAGS = 40,
	AT_WAKEUP = 48,
	AT_BP_TYPE = 52,
	AT_CONFIG1 = 56,
	AT_CONFIG2 = 64,
	AT_BRANCH = 72,
	AT_REGS_USER = 80,
	AT_STACK_USER = 88,
	AT_CLOCKID = 92,
	AT_REGS_INTR = 96,
	AT_AUX_WATERMARK = 104,
	AT_MAX_STACK = 108,
	AT_AUX_SAMPLE = 112,
	AT_SIG_DATA = 120,
};

void sp_attr_encode(const struct sp_attr *a, uint8_t out[SP_ATTR_BYTES])
{
	memset(out, 0, SP_ATTR_BYTES);
	sp_put32(out + AT_TYPE, a->type);
	sp_put32(out + AT_SIZE, SP_ATTR_BYTES);
	sp_put64(out + AT_CONFIG, a->config);
	sp_put64(out + AT_PERIOD, a->sample_period);
	sp_put64(out + AT_SAMPLE_TYPE, a->sample_type);
	sp_put64(out + AT_READ_FORMAT, a->read_format);
	sp_put64(out + AT_FLAGS, a->flags);
	sp_put32(out + AT_WAKEUP, a->wakeup);
	sp_put32(out + AT_BP_TYPE, a->bp_type);
	sp_put64(out + AT_CONFIG1, a->config1);
	sp_put64(out + AT_CONFIG2, a->config2);
	sp_put64(out + AT_BRANCH, a->branch_sample_type);
	sp_put64(out + AT_REGS_USER, a->sample_regs_user);
	sp_put32(out + AT_STACK_USER, a->sample_stack_user);
	sp_put32(out + AT_CLOCKID, (uint32_t)a->clockid);
	sp_put64(out + AT_REGS_INTR, a->sample_regs_intr);
	sp_put16(out + AT_MAX_STACK, a->sample_max_stack);
}

static void swap16(uint8_t *p)
{
	sp_put16(p, __builtin_bswap16(sp_get16(p)));
}

static void swap32(uint8_t *p)
{
	sp_put32(p, __builtin_bswap32(sp_get32(p)));
}

static void swap64(uint8_t *p)
{
	sp_put64(p, __builtin_bswap64(sp_get64(p)));
}

/* C bit-fields of a big-endian machine are allocated from the most significant bit: read as bytes,
 * each byte keeps its place and has its bits in reverse. */
static void swap_bits(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned b = p[i];
		b = (b & 0xf0) >> 4 | (b & 0x0f) << 4;
		b = (b & 0xcc) >> 2 | (b & 0x33) << 2;
		b = (b & 0xaa) >> 1 | (b & 0x55) << 1;
		p[i] = (uint8_t)b;
	}
}

static void swap_attr(uint8_t *a)
{
	static const uint8_t words[] = {AT_CONFIG,    AT_PERIOD,  AT_SAMPLE_TYPE, AT_READ_FORMAT,
					AT_CONFIG1,   AT_CONFIG2, AT_BRANCH,      AT_REGS_USER,
					AT_REGS_INTR, AT_SIG_DATA};
	static const uint8_t halves[] = {AT_TYPE,          AT_SIZE,       AT_WAKEUP,
					 AT_BP_TYPE,       AT_STACK_USER, AT_CLOCKID,
					 AT_AUX_WATERMARK, AT_AUX_SAMPLE};
	for (size_t i = 0; i < sizeof words; i++)
		swap64(a + words[i]);
	for (size_t i = 0; i < sizeof halves; i++)
		swap32(a + halves[i]);
	swap16(a + AT_MAX_STACK);
	swap_bits(a + AT_FLAGS, 8);
}

int sp_attr_normalize(uint8_t out[SP_ATTR_BYTES], const uint8_t *p, size_t avail, bool swap,
		      struct sp_err *err)
{
	if (avail < SP_ATTR_MIN_BYTES)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "cannot read event attributes: %zu bytes, fewer than 64", avail);
	uint32_t size = sp_get32(p + AT_SIZE);
	if (swap)
		size = __builtin_bswap32(size);
	if (size == 0)
		size = SP_ATTR_MIN_BYTES;
	if (size < SP_ATTR_MIN_BYTES || size > avail || size % 4)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "cannot read event attributes: they claim %u bytes of %zu", size,
				  avail);
	uint8_t tmp[SP_ATTR_BYTES] = {0};
	memcpy(tmp, p, size < sizeof tmp ? size : sizeof tmp);
	if (swap)
		swap_attr(tmp);
	sp_put32(tmp + AT_SIZE, SP_ATTR_BYTES);
	memcpy(out, tmp, sizeof tmp);
	return (int)size;
}

int sp_attr_decode(struct sp_attr *a, const uint8_t *p, size_t avail, bool swap, struct sp_err *err)
{
	uint8_t b[SP_ATTR_BYTES];
	int size = sp_attr_normalize(b, p, avail, swap, err);
	if (size < 0)
		return size;
	*a = (struct sp_attr){
		.type = sp_get32(b + AT_TYPE),
		.size = (uint32_t)size,
		.config = sp_get64(b + AT_CONFIG),
		.sample_period = sp_get64(b + AT_PERIOD),
		.sample_type = sp_get64(b + AT_SAMPLE_TYPE),
		.read_format = sp_get64(b + AT_READ_FORMAT),
		.flags = sp_get64(b + AT_FLAGS),
		.branch_sample_type = sp_get64(b + AT_BRANCH),
		.sample_regs_user = sp_get64(b + AT_REGS_USER),
		.sample_regs_intr = sp_get64(b + AT_REGS_INTR),
		.config1 = sp_get64(b + AT_CONFIG1),
		.config2 = sp_get64(b + AT_CONFIG2),
		.sample_stack_user = sp_get32(b + AT_STACK_USER),
		.wakeup = sp_get32(b + AT_WAKEUP),
		.bp_type = sp_get32(b + AT_BP_TYPE),
		.clockid = (int32_t)sp_get32(b + AT_CLOCKID),
		.sample_max_stack = sp_get16(b + AT_MAX_STACK),
	};
	return size;
}

void sp_attr_bytes_unwound(uint8_t *attr)
{
	uint64_t sample_type = sp_get64(attr + AT_SAMPLE_TYPE);
	if (!(sample_type & (SP_SAMPLE_REGS_USER | SP_SAMPLE_STACK_USER)))
		return;
	sample_type &= ~(SP_SAMPLE_REGS_USER | SP_SAMPLE_STACK_USER);
	sp_put64(attr + AT_SAMPLE_TYPE, sample_type | SP_SAMPLE_CALLCHAIN);
	sp_put64(attr + AT_FLAGS, sp_get64(attr + AT_FLAGS) & ~SP_ATTR_EXCLUDE_CALLCHAIN_USER);
	sp_put64(attr + AT_REGS_USER, 0);
	sp_put32(attr + AT_STACK_USER, 0);
}

/* Names as perf prints them: tools/perf/util/evsel.c, perf_event_open(2). */
static const char *const hardware[] = {
	"cycles",
	"instructions",
	"cache-references",
	"cache-misses",
	"branches",
	"branch-misses",
	"bus-cycles",
	"stalled-cycles-frontend",
	"stalled-cycles-backend",
	"ref-cycles",
};
static const char *const software[] = {
	"cpu-clock",        "task-clock",   "page-faults",  "context-switches",
	"cpu-migrations",   "minor-faults", "major-faults", "alignment-faults",
	"emulation-faults", "dummy",        "bpf-output",   "cgroup-switches",
};
static const char *const caches[] = {"L1-dcache", "L1-icache", "LLC", "dTLB",
				     "iTLB",      "branch",    "node"};
static const char *const cache_ops[] = {"load", "store", "prefetch"};

static void cache_name(uint64_t config, char *out, size_t size)
{
	uint64_t cache = config & 0xff, op = config >> 8 & 0xff, miss = config >> 16 & 0xff;
	if (cache >= sizeof caches / sizeof *caches || op > 2 || miss > 1)
		snprintf(out, size, "cache 0x%llx", (unsigned long long)config);
	else if (miss)
		snprintf(out, size, "%s-%s-misses", caches[cache], cache_ops[op]);
	else
		snprintf(out, size, "%s-%s%s", caches[cache], cache_ops[op], op == 2 ? "es" : "s");
}

void sp_attr_name(const struct sp_attr *a, char *out, size_t size)
{
	unsigned long long config = a->config;
	switch (a->type) {
	case 0: /* PERF_TYPE_HARDWARE; hybrid machines put a PMU number into the upper half */
		if ((uint32_t)config < sizeof hardware / sizeof *hardware)
			snprintf(out, size, "%s", hardware[(uint32_t)config]);
		else
			snprintf(out, size, "hardware 0x%llx", config);
		return;
	case 1:
		if (config < sizeof software / sizeof *software)
			snprintf(out, size, "%s", software[config]);
		else
			snprintf(out, size, "software 0x%llx", config);
		return;
	case 2:
		snprintf(out, size, "tracepoint %llu", config);
		return;
	case 3:
		cache_name(config & 0xffffffff, out, size);
		return;
	case 4:
		snprintf(out, size, "raw 0x%llx", config);
		return;
	case 5:
		snprintf(out, size, "mem:0x%llx%s%s%s%s", (unsigned long long)a->config1,
			 a->bp_type ? ":" : "", a->bp_type & 1 ? "r" : "",
			 a->bp_type & 2 ? "w" : "", a->bp_type & 4 ? "x" : "");
		return;
	default:
		snprintf(out, size, "pmu%u/0x%llx/", a->type, config);
	}
}
