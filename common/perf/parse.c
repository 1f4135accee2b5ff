/* Bodies of records. Layouts: perf_event_open(2) and the comments in
 * include/uapi/linux/perf_event.h (enum perf_event_type). */
#include "perf/parse.h"

#include <string.h>

#include "base/cursor.h"

#define SAMPLE_ID_FIELDS                                                                           \
	(SP_SAMPLE_TID | SP_SAMPLE_TIME | SP_SAMPLE_ID | SP_SAMPLE_STREAM_ID | SP_SAMPLE_CPU |     \
	 SP_SAMPLE_IDENTIFIER)

static unsigned count_bits(uint64_t v)
{
	return (unsigned)__builtin_popcountll(v);
}

size_t sp_sample_id_size(const struct sp_attr *a)
{
	return a->flags & SP_ATTR_SAMPLE_ID_ALL ? 8 * count_bits(a->sample_type & SAMPLE_ID_FIELDS)
						: 0;
}

int sp_sample_id_offset(const struct sp_attr *a)
{
	if (a->sample_type & SP_SAMPLE_IDENTIFIER)
		return 8;
	if (!(a->sample_type & SP_SAMPLE_ID))
		return -1;
	return 8 + 8 * (int)count_bits(a->sample_type & (SP_SAMPLE_IP | SP_SAMPLE_TID |
							 SP_SAMPLE_TIME | SP_SAMPLE_ADDR));
}

int sp_trailer_id_offset(const struct sp_attr *a)
{
	if (!(a->flags & SP_ATTR_SAMPLE_ID_ALL))
		return -1;
	if (a->sample_type & SP_SAMPLE_IDENTIFIER)
		return 8;
	if (!(a->sample_type & SP_SAMPLE_ID))
		return -1;
	return 8 + 8 * (int)count_bits(a->sample_type & (SP_SAMPLE_STREAM_ID | SP_SAMPLE_CPU));
}

/* All ones are perf's mark for a record without one (tools/perf/util/evsel.c). */
static uint64_t time_of_word(uint64_t v)
{
	return v == UINT64_MAX ? 0 : v;
}

static void set_time(struct sp_record *rec, uint64_t v)
{
	rec->time_ns = time_of_word(v);
	rec->has_time = v != UINT64_MAX;
}

uint64_t sp_record_time(const uint8_t *raw, size_t size, const struct sp_event *event)
{
	if (!event || !(event->attr.sample_type & SP_SAMPLE_TIME))
		return 0;
	uint64_t type = event->attr.sample_type;
	if (sp_get32(raw) == SP_PERF_SAMPLE) {
		size_t at = 8 + 8 * count_bits(type & (SP_SAMPLE_IDENTIFIER | SP_SAMPLE_IP |
						       SP_SAMPLE_TID));
		return at + 8 <= size ? time_of_word(sp_get64(raw + at)) : 0;
	}
	size_t trailer = sp_sample_id_size(&event->attr);
	if (!trailer || trailer + 8 > size)
		return 0;
	return time_of_word(sp_get64(raw + size - trailer + (type & SP_SAMPLE_TID ? 8 : 0)));
}

/* --- samples --- */

/* Words of one value and its companions; *times: of the two times, which a group has once. */
static unsigned read_words(uint64_t format, unsigned *times)
{
	*times = count_bits(format & (SP_READ_ENABLED | SP_READ_RUNNING));
	return 1 + count_bits(format & (SP_READ_ID | SP_READ_LOST));
}

/* The values of counters, in every combination of read_format. */
static void read_values(struct sp_cursor *c, uint64_t format, struct sp_perf_sample *s)
{
	unsigned times, each = read_words(format, &times);
	if (!(format & SP_READ_GROUP)) {
		s->values = sp_cur_bytes(c, 8 * (uint64_t)(times + each));
		s->n_values = 1;
		return;
	}
	uint64_t n = sp_cur_u64(c);
	sp_cur_skip(c, 8 * (uint64_t)times);
	if (n > sp_cur_left(c) / (8 * each)) {
		c->bad = true;
		return;
	}
	s->values = sp_cur_bytes(c, 8 * n * each);
	s->n_values = (uint32_t)n;
}

bool sp_sample_value(const struct sp_record *rec, uint32_t i, struct sp_sample_value *out)
{
	const struct sp_perf_sample *s = &rec->sample;
	uint64_t format = rec->event->attr.read_format;
	if (i >= s->n_values || !(format & SP_READ_ID))
		return false;
	unsigned times, each = read_words(format, &times);
	bool group = format & SP_READ_GROUP;
	const uint8_t *p = s->values + (group ? (size_t)i * 8 * each : 0);
	*out = (struct sp_sample_value){sp_get64(p), sp_get64(p + 8 + (group ? 0 : 8 * times))};
	return true;
}

static void read_branches(struct sp_cursor *c, const struct sp_attr *a, struct sp_perf_sample *s)
{
	uint64_t n = sp_cur_u64(c);
	if (a->branch_sample_type & SP_BRANCH_HW_INDEX)
		sp_cur_skip(c, 8);
	if (n > sp_cur_left(c) / 24) {
		c->bad = true;
		return;
	}
	s->branches = sp_cur_bytes(c, n * 24);
	s->n_branches = n;
	if (a->branch_sample_type & SP_BRANCH_COUNTERS)
		sp_cur_skip(c, n * 8);
}

/* An ABI word and, unless it is 0, one word per register of the mask. */
static const uint8_t *read_regs(struct sp_cursor *c, uint64_t mask, uint64_t *abi)
{
	*abi = sp_cur_u64(c);
	return *abi ? sp_cur_bytes(c, 8 * (uint64_t)count_bits(mask)) : NULL;
}

/* size, the bytes, dyn_size: how many of them were really copied. */
static void read_stack(struct sp_cursor *c, struct sp_perf_sample *s)
{
	uint64_t size = sp_cur_u64(c);
	s->has_stack = true;
	if (!size)
		return;
	s->stack = sp_cur_bytes(c, size);
	uint64_t dyn_size = sp_cur_u64(c);
	if (dyn_size > size)
		c->bad = true;
	s->stack_bytes = dyn_size;
}

static void read_user(struct sp_cursor *c, const struct sp_attr *a, struct sp_perf_sample *s,
		      const uint8_t *raw)
{
	s->user_off = (uint16_t)(c->p - raw);
	if (a->sample_type & SP_SAMPLE_REGS_USER) {
		s->regs = read_regs(c, a->sample_regs_user, &s->regs_abi);
		s->has_regs = s->regs != NULL;
	}
	if (a->sample_type & SP_SAMPLE_STACK_USER)
		read_stack(c, s);
	s->user_end = (uint16_t)(c->p - raw);
}

static void read_chain(struct sp_cursor *c, struct sp_perf_sample *s)
{
	uint64_t n = sp_cur_u64(c);
	if (n > sp_cur_left(c) / 8) {
		c->bad = true;
		return;
	}
	s->chain = sp_cur_bytes(c, n * 8);
	s->n_chain = n;
	s->has_chain = true;
}

/* What follows the stack; only some of it is kept. */
static void read_tail(struct sp_cursor *c, const struct sp_attr *a, struct sp_perf_sample *s)
{
	uint64_t type = a->sample_type;
	if (type & SP_SAMPLE_WEIGHT)
		s->weight = sp_cur_u64(c);
	else if (type & SP_SAMPLE_WEIGHT_STRUCT)
		s->weight = sp_cur_u64(c) & UINT32_MAX; /* var1_dw, what WEIGHT was */
	if (type & SP_SAMPLE_DATA_SRC)
		s->data_src = sp_cur_u64(c);
	if (type & SP_SAMPLE_TRANSACTION)
		s->transaction = sp_cur_u64(c);
	if (type & SP_SAMPLE_REGS_INTR) {
		uint64_t abi;
		(void)read_regs(c, a->sample_regs_intr, &abi);
	}
	if (type & SP_SAMPLE_PHYS_ADDR)
		s->phys_addr = sp_cur_u64(c);
	if (type & SP_SAMPLE_CGROUP)
		s->cgroup = sp_cur_u64(c);
	if (type & SP_SAMPLE_DATA_PAGE_SIZE)
		sp_cur_skip(c, 8);
	if (type & SP_SAMPLE_CODE_PAGE_SIZE)
		sp_cur_skip(c, 8);
	if (type & SP_SAMPLE_AUX)
		sp_cur_skip(c, sp_cur_u64(c));
}

bool sp_event_is_offcpu_raw(const struct sp_event *event)
{
	const struct sp_attr *a = &event->attr;
	return a->sample_type & SP_SAMPLE_RAW && a->type == 1 && a->config == 10 && event->name &&
	       strcmp(event->name, "offcpu-time") == 0;
}

static void read_offcpu(struct sp_record *rec, struct sp_cursor *c)
{
	struct sp_perf_sample *s = &rec->sample;
	struct sp_cursor raw = sp_cursor(s->raw, s->raw_bytes);
	rec->pid = (int32_t)sp_cur_u32(&raw);
	rec->tid = (int32_t)sp_cur_u32(&raw);
	rec->has_tid = true;
	s->period = sp_cur_u64(&raw);
	s->has_period = true;
	read_chain(&raw, s);
	if (sp_cur_left(&raw) >= 8)
		s->cgroup = sp_cur_u64(&raw);
	for (uint64_t i = 0; !raw.bad && i < s->n_chain; i++) {
		s->ip = sp_get64(s->chain + 8 * i);
		if (s->ip < SP_CONTEXT_MAX)
			break;
	}
	c->bad |= raw.bad;
}

/* What comes before the user's registers. */
static void read_head(struct sp_record *rec, struct sp_cursor *in, const struct sp_event *event)
{
	struct sp_perf_sample *s = &rec->sample;
	const uint8_t *raw = rec->raw;
	struct sp_cursor c = *in;
	const struct sp_attr *a = &event->attr;
	uint64_t type = a->sample_type;

	memset(s, 0, sizeof *s);
	if (type & SP_SAMPLE_IDENTIFIER)
		s->id = sp_cur_u64(&c);
	if (type & SP_SAMPLE_IP) {
		s->ip = sp_cur_u64(&c);
		s->has_ip = true;
	}
	if (type & SP_SAMPLE_TID) {
		rec->pid = (int32_t)sp_cur_u32(&c);
		rec->tid = (int32_t)sp_cur_u32(&c);
		rec->has_tid = true;
	}
	if (type & SP_SAMPLE_TIME)
		set_time(rec, sp_cur_u64(&c));
	if (type & SP_SAMPLE_ADDR)
		s->addr = sp_cur_u64(&c);
	if (type & SP_SAMPLE_ID)
		s->id = sp_cur_u64(&c);
	if (type & SP_SAMPLE_STREAM_ID)
		sp_cur_skip(&c, 8);
	if (type & SP_SAMPLE_CPU) {
		rec->cpu = sp_cur_u32(&c);
		sp_cur_skip(&c, 4);
	}
	if (type & SP_SAMPLE_PERIOD) {
		s->period = sp_cur_u64(&c);
		s->has_period = true;
	}
	if (type & SP_SAMPLE_READ)
		read_values(&c, a->read_format, s);
	s->chain_off = (uint16_t)(c.p - raw);
	if (type & SP_SAMPLE_CALLCHAIN)
		read_chain(&c, s);
	s->chain_end = (uint16_t)(c.p - raw);
	if (type & SP_SAMPLE_RAW) {
		s->raw_bytes = sp_cur_u32(&c);
		s->raw = sp_cur_bytes(&c, s->raw_bytes);
	}
	if (type & SP_SAMPLE_BRANCH_STACK)
		read_branches(&c, a, s);
	*in = c;
}

static bool decode_sample(struct sp_record *rec, const struct sp_event *event)
{
	struct sp_perf_sample *s = &rec->sample;
	const struct sp_attr *a = &event->attr;
	struct sp_cursor c = sp_cursor(rec->raw + 8, rec->size - 8);
	read_head(rec, &c, event);
	read_user(&c, a, s, rec->raw);
	read_tail(&c, a, s);
	if (s->raw && sp_event_is_offcpu_raw(event))
		read_offcpu(rec, &c);
	return !c.bad;
}

bool sp_sample_pid(const uint8_t *raw, size_t size, const struct sp_event *event, int32_t *pid)
{
	uint64_t type = event->attr.sample_type;
	size_t at = 8 + 8 * count_bits(type & (SP_SAMPLE_IDENTIFIER | SP_SAMPLE_IP));
	size_t n = count_bits(type & (SP_SAMPLE_TID | SP_SAMPLE_TIME));
	if (n < 2 || at + 16 > size || sp_get64(raw + at + 8) == UINT64_MAX ||
	    sp_event_is_offcpu_raw(event))
		return false;
	*pid = (int32_t)sp_get32(raw + at);
	return true;
}

size_t sp_sample_stack_at(const uint8_t *raw, size_t n, const struct sp_event *event)
{
	const struct sp_attr *a = &event->attr;
	struct sp_record rec = {.raw = raw, .size = (uint32_t)n};
	struct sp_cursor c = sp_cursor(raw + 8, n - 8);
	uint64_t abi;
	read_head(&rec, &c, event);
	if (a->sample_type & SP_SAMPLE_REGS_USER)
		(void)read_regs(&c, a->sample_regs_user, &abi);
	bool has = a->sample_type & SP_SAMPLE_STACK_USER && sp_cur_left(&c) >= 8;
	return has && !c.bad ? (size_t)(c.p - raw) : 0;
}

/* --- all other kernel records --- */

/* The sample_id at the end: TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER, as far as sample_type has
 * them. Returns the bytes of the record before it, or 0 when it does not fit. */
static size_t read_sample_id(struct sp_record *rec, const struct sp_event *event)
{
	size_t trailer = event ? sp_sample_id_size(&event->attr) : 0;
	if (trailer + 8 > rec->size)
		return 0;
	size_t body = rec->size - trailer;
	struct sp_cursor c = sp_cursor(rec->raw + body, trailer);
	uint64_t type = trailer ? event->attr.sample_type : 0;
	if (type & SP_SAMPLE_TID) {
		rec->pid = (int32_t)sp_cur_u32(&c);
		rec->tid = (int32_t)sp_cur_u32(&c);
		rec->has_tid = true;
	}
	if (type & SP_SAMPLE_TIME)
		set_time(rec, sp_cur_u64(&c));
	sp_cur_skip(&c, 8 * (uint64_t)count_bits(type & (SP_SAMPLE_ID | SP_SAMPLE_STREAM_ID)));
	if (type & SP_SAMPLE_CPU)
		rec->cpu = sp_cur_u32(&c);
	return body;
}

static void own_tid(struct sp_record *rec, struct sp_cursor *c)
{
	rec->pid = (int32_t)sp_cur_u32(c);
	rec->tid = (int32_t)sp_cur_u32(c);
	rec->has_tid = true;
}

bool sp_mmap2_has_prot(const uint8_t *p, size_t n)
{
	return n >= 8 && *p < 8 && (n > 8 || *p);
}

static void decode_mmap(struct sp_record *rec, struct sp_cursor *c)
{
	struct sp_perf_mmap *m = &rec->mmap;
	memset(m, 0, sizeof *m);
	own_tid(rec, c);
	m->start = sp_cur_u64(c);
	m->len = sp_cur_u64(c);
	m->pgoff = sp_cur_u64(c);
	m->prot = rec->misc & SP_MISC_MMAP_DATA ? 1 : 4; /* PROT_READ, PROT_EXEC */
	if (rec->type == SP_PERF_MMAP2) {
		m->is_mmap2 = true;
		const uint8_t *file = sp_cur_bytes(c, 24);
		if (file && sp_mmap2_has_prot(c->p, sp_cur_left(c))) {
			m->prot = sp_cur_u32(c);
			m->flags = sp_cur_u32(c);
		}
		if (file && rec->misc & SP_MISC_BUILD_ID) {
			m->build_id_len = file[0] <= 20 ? file[0] : 0;
			memcpy(m->build_id, file + 4, 20);
			c->bad |= file[0] > 20;
		} else if (file) {
			m->maj = sp_get32(file);
			m->min = sp_get32(file + 4);
			m->ino = sp_get64(file + 8);
			m->ino_gen = sp_get64(file + 16);
		}
	}
	m->path = sp_cur_str(c);
}

static void decode_task(struct sp_record *rec, struct sp_cursor *c)
{
	memset(&rec->task, 0, sizeof rec->task);
	rec->task.pid = (int32_t)sp_cur_u32(c);
	rec->task.ppid = (int32_t)sp_cur_u32(c);
	rec->task.tid = (int32_t)sp_cur_u32(c);
	rec->task.ptid = (int32_t)sp_cur_u32(c);
	rec->task.time_ns = sp_cur_u64(c);
	rec->pid = rec->task.pid;
	rec->tid = rec->task.tid;
	rec->has_tid = true;
}

static bool decode_other(struct sp_record *rec, const struct sp_event *event)
{
	size_t body = read_sample_id(rec, event);
	if (!body) /* of a type that nobody here knows this may be all */
		return !sp_record_is_known(rec->type);
	struct sp_cursor c = sp_cursor(rec->raw + 8, body - 8);
	switch (rec->type) {
	case SP_PERF_MMAP:
	case SP_PERF_MMAP2:
		decode_mmap(rec, &c);
		break;
	case SP_PERF_COMM:
		own_tid(rec, &c);
		rec->comm.comm = sp_cur_str(&c);
		rec->comm.is_exec = rec->misc & SP_MISC_COMM_EXEC;
		break;
	case SP_PERF_FORK:
	case SP_PERF_EXIT:
		decode_task(rec, &c);
		break;
	case SP_PERF_LOST:
		rec->lost.id = sp_cur_u64(&c);
		rec->lost.lost = sp_cur_u64(&c);
		break;
	case SP_PERF_LOST_SAMPLES:
		rec->lost.id = 0;
		rec->lost.lost = sp_cur_u64(&c);
		break;
	case SP_PERF_READ:
	case SP_PERF_ITRACE_START:
	case SP_PERF_NAMESPACES:
		own_tid(rec, &c);
		break;
	default: /* no fields that anybody here asks for */
		break;
	}
	return !c.bad;
}

bool sp_record_decode(struct sp_record *rec, const uint8_t *raw, size_t size,
		      const struct sp_event *event)
{
	rec->type = sp_get32(raw);
	rec->misc = sp_get16(raw + 4);
	rec->size = (uint32_t)size;
	rec->raw = raw;
	rec->event = rec->type < SP_PERF_HEADER_ATTR ? event : NULL;
	rec->time_ns = 0;
	rec->pid = rec->tid = -1;
	rec->cpu = UINT32_MAX;
	rec->has_time = rec->has_tid = false;
	rec->malformed = rec->is_late = false;
	bool ok = true;
	if (rec->type == SP_PERF_SAMPLE)
		ok = event && decode_sample(rec, event);
	else if (rec->type < SP_PERF_HEADER_ATTR)
		ok = decode_other(rec, event);
	if (!ok) {
		rec->malformed = true;
		rec->time_ns = 0;
		rec->pid = rec->tid = -1;
		rec->cpu = UINT32_MAX;
		rec->has_time = rec->has_tid = false;
	}
	return ok;
}

/* --- the pure entry --- */

static const struct sp_event *find_event(const uint8_t *raw, size_t size,
					 const struct sp_event *const *events, size_t n_events)
{
	if (n_events < 2)
		return n_events ? events[0] : NULL;
	bool sample = sp_get32(raw) == SP_PERF_SAMPLE;
	int at = sample ? sp_sample_id_offset(&events[0]->attr)
			: sp_trailer_id_offset(&events[0]->attr);
	if (at < 0 || (size_t)at + 8 > size)
		return events[0];
	uint64_t id = sp_get64(sample ? raw + at : raw + size - at);
	for (size_t i = 0; i < n_events; i++)
		for (size_t k = 0; k < events[i]->n_ids; k++)
			if (events[i]->ids[k] == id)
				return events[i];
	return events[0];
}

int sp_record_parse(struct sp_record *rec, const uint8_t *raw, size_t size,
		    const struct sp_event *const *events, size_t n_events, struct sp_err *err)
{
	if (size < 8 || sp_get16(raw + 6) != size) {
		*rec = (struct sp_record){.malformed = true, .pid = -1, .tid = -1};
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "a record of %zu bytes claims another size", size);
	}
	if (!sp_record_decode(rec, raw, size, find_event(raw, size, events, n_events)))
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "a record of type %u and %zu bytes cannot be parsed", rec->type,
				  size);
	return 0;
}
