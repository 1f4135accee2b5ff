#include "perf/swap.h"

#include <string.h>

#include "base/le.h"
#include "perf/parse.h"

/* A position in a record being swapped; past the end nothing happens any more. */
struct swapper {
	uint8_t *p, *end;
	bool bad;
};

static bool fits(struct swapper *s, uint64_t n)
{
	if (s->bad || n > (size_t)(s->end - s->p))
		s->bad = true;
	return !s->bad;
}

static uint64_t word(struct swapper *s)
{
	if (!fits(s, 8))
		return 0;
	uint64_t v = __builtin_bswap64(sp_get64(s->p));
	sp_put64(s->p, v);
	s->p += 8;
	return v;
}

static void words(struct swapper *s, uint64_t n)
{
	for (; n && !s->bad; n--)
		word(s);
}

static uint32_t half(struct swapper *s)
{
	if (!fits(s, 4))
		return 0;
	uint32_t v = __builtin_bswap32(sp_get32(s->p));
	sp_put32(s->p, v);
	s->p += 4;
	return v;
}

static void halves(struct swapper *s, unsigned n)
{
	for (; n && !s->bad; n--)
		half(s);
}

static void quarter(struct swapper *s)
{
	if (!fits(s, 2))
		return;
	sp_put16(s->p, __builtin_bswap16(sp_get16(s->p)));
	s->p += 2;
}

static void bytes(struct swapper *s, uint64_t n)
{
	if (fits(s, n))
		s->p += n;
}

void sp_swap_header(uint8_t *rec)
{
	struct swapper s = {.p = rec, .end = rec + 8};
	half(&s);
	quarter(&s);
	quarter(&s);
}

static unsigned count_bits(uint64_t v)
{
	return (unsigned)__builtin_popcountll(v);
}

static void swap_read(struct swapper *s, uint64_t format)
{
	unsigned times = count_bits(format & (SP_READ_ENABLED | SP_READ_RUNNING));
	unsigned each = 1 + count_bits(format & (SP_READ_ID | SP_READ_LOST));
	if (format & SP_READ_GROUP) {
		uint64_t n = word(s);
		words(s, times);
		for (; n && !s->bad; n--)
			words(s, each);
	} else {
		words(s, times + each);
	}
}

/* Flags of a branch entry are bit-fields; a big-endian machine allocates them from the top:
 * mispred, predicted, in_tx, abort (1 bit each), cycles (16), type (4), spec (2), new_type (4),
 * priv (3). */
static uint64_t branch_flags(uint64_t be)
{
	static const uint8_t widths[] = {1, 1, 1, 1, 16, 4, 2, 4, 3};
	uint64_t out = 0;
	unsigned at = 0;
	for (size_t i = 0; i < sizeof widths; i++) {
		uint64_t field = be << at >> (64 - widths[i]);
		out |= field << at;
		at += widths[i];
	}
	return out;
}

static void swap_branches(struct swapper *s, uint64_t branch_type)
{
	uint64_t n = word(s);
	if (branch_type & SP_BRANCH_HW_INDEX)
		word(s);
	for (uint64_t i = 0; i < n && !s->bad; i++) {
		words(s, 2);
		uint64_t flags = word(s);
		if (!s->bad)
			sp_put64(s->p - 8, branch_flags(flags));
	}
	if (branch_type & SP_BRANCH_COUNTERS)
		words(s, n);
}

static void swap_regs(struct swapper *s, uint64_t mask)
{
	if (word(s))
		words(s, count_bits(mask));
}

/* Raw data is the producer's; only the form that is a sample itself can be known. */
static void swap_raw(struct swapper *s, const struct sp_event *event)
{
	uint32_t size = half(s);
	if (size < 8 || !sp_event_is_offcpu_raw(event)) {
		bytes(s, size);
		return;
	}
	halves(s, 2);
	words(s, (size - 8) / 8);
	bytes(s, (size - 8) % 8);
}

static void swap_sample(struct swapper *s, const struct sp_event *event)
{
	const struct sp_attr *a = &event->attr;
	uint64_t type = a->sample_type;
	words(s, count_bits(type & (SP_SAMPLE_IDENTIFIER | SP_SAMPLE_IP)));
	if (type & SP_SAMPLE_TID)
		halves(s, 2);
	words(s, count_bits(type & (SP_SAMPLE_TIME | SP_SAMPLE_ADDR | SP_SAMPLE_ID |
				    SP_SAMPLE_STREAM_ID)));
	if (type & SP_SAMPLE_CPU)
		halves(s, 2);
	if (type & SP_SAMPLE_PERIOD)
		word(s);
	if (type & SP_SAMPLE_READ)
		swap_read(s, a->read_format);
	if (type & SP_SAMPLE_CALLCHAIN)
		words(s, word(s));
	if (type & SP_SAMPLE_RAW)
		swap_raw(s, event);
	if (type & SP_SAMPLE_BRANCH_STACK)
		swap_branches(s, a->branch_sample_type);
	if (type & SP_SAMPLE_REGS_USER)
		swap_regs(s, a->sample_regs_user);
	if (type & SP_SAMPLE_STACK_USER) { /* the stack's bytes stay as the machine had them */
		uint64_t size = word(s);
		bytes(s, size);
		if (size)
			word(s);
	}
	/* The parts of WEIGHT_STRUCT are laid out so that one word's swap is right for it too. */
	words(s, count_bits(type & (SP_SAMPLE_WEIGHT | SP_SAMPLE_WEIGHT_STRUCT |
				    SP_SAMPLE_DATA_SRC | SP_SAMPLE_TRANSACTION)));
	if (type & SP_SAMPLE_REGS_INTR)
		swap_regs(s, a->sample_regs_intr);
	words(s, count_bits(type & (SP_SAMPLE_PHYS_ADDR | SP_SAMPLE_CGROUP |
				    SP_SAMPLE_DATA_PAGE_SIZE | SP_SAMPLE_CODE_PAGE_SIZE)));
	if (type & SP_SAMPLE_AUX)
		bytes(s, word(s));
}

static void swap_sample_id(struct swapper *s, const struct sp_attr *a)
{
	uint64_t type = a->sample_type;
	if (type & SP_SAMPLE_TID)
		halves(s, 2);
	words(s, count_bits(type & (SP_SAMPLE_TIME | SP_SAMPLE_ID | SP_SAMPLE_STREAM_ID)));
	if (type & SP_SAMPLE_CPU)
		halves(s, 2);
	if (type & SP_SAMPLE_IDENTIFIER)
		word(s);
}

/* Bodies of the kernel's records other than samples, without their sample_id. */
static bool swap_kernel(struct swapper *s, uint32_t type, uint16_t misc)
{
	switch (type) {
	case SP_PERF_MMAP:
	case SP_PERF_MMAP2:
		halves(s, 2);
		words(s, 3);
		if (type == SP_PERF_MMAP)
			return true;
		if (misc & SP_MISC_BUILD_ID) {
			bytes(s, 24);
		} else {
			halves(s, 2);
			words(s, 2);
		}
		if (!s->bad && sp_mmap2_has_prot(s->p, (size_t)(s->end - s->p)))
			halves(s, 2);
		return true;
	case SP_PERF_LOST:
	case SP_PERF_AUX:
		words(s, type == SP_PERF_LOST ? 2 : 3);
		return true;
	case SP_PERF_COMM:
	case SP_PERF_ITRACE_START:
	case SP_PERF_SWITCH_CPU_WIDE:
		halves(s, 2);
		return true;
	case SP_PERF_FORK:
	case SP_PERF_EXIT:
		halves(s, 4);
		word(s);
		return true;
	case SP_PERF_THROTTLE:
	case SP_PERF_UNTHROTTLE:
		words(s, 3);
		return true;
	case SP_PERF_READ:
		halves(s, 2);
		words(s, (uint64_t)(s->end - s->p) / 8);
		return true;
	case SP_PERF_LOST_SAMPLES:
	case SP_PERF_CGROUP:
	case SP_PERF_AUX_OUTPUT_HW_ID:
		word(s);
		return true;
	case SP_PERF_SWITCH:
		return true;
	case SP_PERF_NAMESPACES:
		halves(s, 2);
		words(s, 2 * word(s));
		return true;
	case SP_PERF_KSYMBOL:
		word(s);
		half(s);
		quarter(s);
		quarter(s);
		return true;
	case SP_PERF_BPF_EVENT:
		quarter(s);
		quarter(s);
		half(s);
		return true;
	case SP_PERF_TEXT_POKE:
		word(s);
		quarter(s);
		quarter(s);
		return true;
	default:
		return false;
	}
}

/* perf's own records, as far as fixed layouts go. */
static bool swap_own(struct swapper *s, const uint8_t *rec, size_t size, uint32_t type)
{
	if (type == SP_PERF_HEADER_BUILD_ID && sp_build_id_lacks_pid(rec, size))
		return true;
	switch (type) {
	case SP_PERF_HEADER_EVENT_TYPE:
		word(s);
		return true;
	case SP_PERF_HEADER_TRACING_DATA:
	case SP_PERF_HEADER_BUILD_ID:
		half(s);
		return true;
	case SP_PERF_FINISHED_ROUND:
	case SP_PERF_FINISHED_INIT:
	case SP_PERF_COMPRESSED:
		return true;
	case SP_PERF_COMPRESSED2:
		word(s);
		return true;
	case SP_PERF_ID_INDEX:
		words(s, 4 * word(s));
		return true;
	case SP_PERF_AUXTRACE_INFO:
		halves(s, 2);
		words(s, (uint64_t)(s->end - s->p) / 8);
		return true;
	case SP_PERF_AUXTRACE:
		words(s, 3);
		halves(s, 4);
		return true;
	case SP_PERF_THREAD_MAP:
		for (uint64_t n = word(s); n && !s->bad; n--) {
			word(s);
			bytes(s, 16);
		}
		return true;
	case SP_PERF_STAT_CONFIG:
		words(s, 2 * word(s));
		return true;
	case SP_PERF_STAT:
		word(s);
		halves(s, 2);
		words(s, 3);
		return true;
	case SP_PERF_STAT_ROUND:
		words(s, 2);
		return true;
	case SP_PERF_EVENT_UPDATE:
		words(s, 2);
		return true;
	case SP_PERF_TIME_CONV:
		words(s, (uint64_t)(s->end - s->p) / 8);
		return true;
	default:
		return false;
	}
}

/* The event of a record that is still foreign: its id is read through the swap. */
static const struct sp_event *event_of(const struct sp_events *e, const uint8_t *rec, size_t size)
{
	if (e->n < 2)
		return e->n ? e->v[0] : NULL;
	bool sample = sp_get32(rec) == SP_PERF_SAMPLE;
	int at = sample ? e->sample_id_at : e->trailer_id_at;
	if (at < 0 || (size_t)at + 8 > size)
		return e->v[0];
	uint64_t id = __builtin_bswap64(sp_get64(sample ? rec + at : rec + size - at));
	const struct sp_event *ev = sp_events_find(e, id);
	return ev ? ev : e->v[0];
}

bool sp_swap_body(uint8_t *rec, size_t size, const struct sp_events *e)
{
	uint32_t type = sp_get32(rec);
	struct swapper s = {.p = rec + 8, .end = rec + size};
	if (type >= SP_PERF_HEADER_ATTR)
		return swap_own(&s, rec, size, type);
	const struct sp_event *ev = event_of(e, rec, size);
	if (type == SP_PERF_SAMPLE) {
		if (ev)
			swap_sample(&s, ev);
		return true;
	}
	size_t trailer = ev ? sp_sample_id_size(&ev->attr) : 0;
	if (trailer + 8 > size)
		return true;
	s.end -= trailer;
	bool known = swap_kernel(&s, type, sp_get16(rec + 4));
	if (trailer) {
		struct swapper id = {.p = rec + size - trailer, .end = rec + size};
		swap_sample_id(&id, &ev->attr);
	}
	return known;
}

int sp_swap_head_record(struct sp_buf *out, const uint8_t *rec, size_t size)
{
	uint32_t type = sp_get32(rec);
	size_t start = out->len;
	uint8_t *head = sp_buf_zero(out, 8);
	if (!head)
		return 0;
	sp_put32(head, type);
	if (type == SP_PERF_HEADER_ATTR) {
		uint8_t attr[SP_ATTR_BYTES];
		int used = sp_attr_normalize(attr, rec + 8, size - 8, true, NULL);
		if (used < 0)
			goto no;
		sp_buf_add(out, attr, sizeof attr);
		for (size_t at = 8 + (size_t)used; at + 8 <= size; at += 8)
			sp_buf_u64(out, __builtin_bswap64(sp_get64(rec + at)));
	} else if (type == SP_PERF_HEADER_FEATURE && size >= 16) {
		uint64_t id = __builtin_bswap64(sp_get64(rec + 8));
		sp_buf_u64(out, id);
		if (id < SP_FEATURE_LAST &&
		    !sp_feature_swap(out, (unsigned)id, rec + 16, size - 16))
			goto no;
	} else {
		goto no;
	}
	sp_buf_zero(out, (8 - (out->len - start) % 8) % 8);
	if (out->failed || out->len - start > SP_MAX_RECORD)
		goto no;
	sp_put16(out->data + start + 6, (uint16_t)(out->len - start));
	return 1;
no:
	out->len = start;
	return 0;
}
