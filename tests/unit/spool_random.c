/* Recordings made by chance, against a model: what was put is what is read, in order. */
#define _GNU_SOURCE
#include "spool_make.h"
#include "tap.h"

static uint64_t state = 1;

static uint64_t rnd(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % below;
}

#define N 3000
#define SETS 12
#define MODS 5
#define DEPTH 24

/* What was put. */
static struct model {
	uint64_t time, weight;
	int32_t pid, tid;
	uint32_t cpu, n;
	char comm[8];
	uint64_t addr[DEPTH];
	uint64_t module[DEPTH]; /* its start, 0: none */
	enum sp_frame_mode mode[DEPTH];
} model[N];

static struct {
	uint32_t id;
	int32_t pid;
	uint64_t start[MODS];
} sets[SETS];

/* Files are mapped more than once in a set, at any of their offsets. */
static void begin_set(struct sp_spool_writer *w, unsigned i)
{
	sets[i].pid = (int32_t)(100 + rnd(4));
	sets[i].id = sp_spool_put_set(w, 0, sets[i].pid, SP_NONE);
	for (uint64_t m = 0; m < MODS; m++)
		sets[i].start[m] = 0x10000000 * (m + 1) + rnd(64) * 0x100000;
}

static uint32_t add_frame(struct sp_spool_writer *w, struct model *p, unsigned set)
{
	uint32_t d = p->n++;
	uint64_t kind = rnd(10);
	p->mode[d] = kind == 0 ? SP_FRAME_KERNEL : SP_FRAME_USER;
	if (kind == 0) {
		p->addr[d] = UINT64_C(0xffffffff80000000) + rnd(1000);
		return sp_spool_put_addr(w, p->addr[d], true);
	}
	if (kind == 1) {
		p->addr[d] = 1 + rnd(100);
		return sp_spool_put_addr(w, p->addr[d], false);
	}
	unsigned m = (unsigned)rnd(MODS);
	char path[32];
	snprintf(path, sizeof path, m == 4 ? "//anon" : "/lib/%u", m % 2);
	struct sp_spool_wfile f = {.path = path, .is_anon = m == 4};
	uint32_t file = sp_spool_put_file(w, &f);
	uint64_t start = sets[set].start[m];
	uint32_t place = sp_spool_put_module(w, sets[set].id, start, start + 0x100000,
					     m / 2 * 0x40000, file);
	p->addr[d] = start + rnd(4000) * 0x101 % 0x100000;
	p->module[d] = start;
	return sp_spool_put_site(w, sets[set].id, place, p->addr[d]);
}

static void put_one(struct sp_spool_writer *w, unsigned i, uint64_t time)
{
	struct model *p = &model[i];
	struct sp_err err;
	memset(p, 0, sizeof *p);
	unsigned set = (unsigned)rnd(SETS);
	if (rnd(50) == 0)
		begin_set(w, set);
	uint64_t n = rnd(12) ? 1 + rnd(DEPTH - 1) : 0;
	bool marked = n && rnd(9) == 0;
	uint32_t frames[DEPTH], stack = marked ? sp_spool_put_node(w, SP_NONE, SP_SPOOL_MARKER)
					       : SP_NONE;
	while (p->n < n) {
		uint32_t frame = add_frame(w, p, set);
		frames[p->n - 1] = frame;
	}
	for (uint32_t d = p->n; d--;)
		stack = sp_spool_put_node(w, stack, frames[d]);
	if (marked)
		p->mode[p->n++] = SP_FRAME_TRUNCATED;
	p->time = time;
	p->weight = rnd(3) ? 1000 : rnd(UINT32_MAX);
	p->pid = sets[set].pid;
	p->tid = (int32_t)(p->pid + (int64_t)rnd(3));
	p->cpu = rnd(5) ? (uint32_t)rnd(4) : UINT32_MAX;
	snprintf(p->comm, sizeof p->comm, "c%u", (unsigned)rnd(3));
	struct sp_spool_wsample s = {
		.time_ns = p->time,
		.weight = p->weight,
		.thread = sp_spool_put_thread(w, 0, p->pid, p->tid),
		.event = sp_spool_put_event(w, "e", false),
		.stack = stack,
		.cpu = p->cpu,
		.comm = sp_spool_put_string(w, p->comm, strlen(p->comm)),
		.set = sets[set].id,
	};
	if (sp_spool_put_sample(w, &s, &err) < 0 || (rnd(200) == 0 && sp_spool_flush(w, &err) < 0))
		abort();
}

static bool same(struct sp_spool *s, const struct sp_spool_sample *got, const struct model *p)
{
	const struct sp_spool_frame *f;
	const struct sp_spool_thread *t = sp_spool_thread(s, got->thread);
	if (got->time_ns != p->time || got->weight != p->weight || got->cpu != p->cpu ||
	    t->pid != p->pid || t->tid != p->tid || strcmp(got->comm, p->comm) != 0 ||
	    sp_spool_frames(s, &f) != p->n)
		return false;
	for (uint32_t d = 0; d < p->n; d++) {
		const struct sp_spool_module *m =
			f[d].module == SP_NONE ? NULL : sp_spool_module(s, f[d].module);
		if (f[d].mode != p->mode[d] || f[d].abs_ip != p->addr[d] ||
		    (m ? m->start : 0) != p->module[d] || (m && m->pid != p->pid) ||
		    (m && f[d].rel_ip != p->addr[d] - m->start + m->file_offset) ||
		    f[d].frame_id >= sp_spool_n_frames(s))
			return false;
	}
	return true;
}

/* order: 0 rising times, 1 with ties, 2 any. */
static void round_trip(unsigned order, const char *name)
{
	struct sp_buf b = {0};
	struct sp_err err = {0};
	struct sp_spool *s;
	struct sp_spool_writer *w = make_begin(&b, 1);
	for (unsigned i = 0; i < SETS; i++)
		begin_set(w, i);
	uint64_t time = 1000;
	for (unsigned i = 0; i < N; i++) {
		time += order == 0 ? 1 + rnd(100000) : order == 1 ? rnd(3) : 0;
		put_one(w, i, order == 2 ? 1 + rnd(1000000) : time);
	}
	if (sp_spool_finish(w, NULL, &err) < 0 || open_bytes(&s, b.data, b.len, &err) < 0)
		abort();
	unsigned good = 0;
	struct sp_spool_sample got;
	for (unsigned i = 0; i < N && sp_spool_next(s, &got, &err) == 1; i++)
		good += same(s, &got, &model[i]);
	tap_eq(good, N, name);
	tap_ok(sp_spool_state(s) == SP_SPOOL_WHOLE, "and the spool is whole");
	sp_spool_close(s);
	sp_spool_writer_free(w);
	sp_buf_deinit(&b);
}

/* Stacks as deep as may be, and one deeper. */
static void deep(void)
{
	struct sp_buf b = {0};
	struct sp_err err;
	struct sp_spool *s;
	struct sp_spool_sample got;
	const struct sp_spool_frame *f;
	struct sp_spool_writer *w = make_begin(&b, 1);
	uint32_t frame = sp_spool_put_addr(w, 0x55, false), stack = SP_NONE;
	for (unsigned d = 0; d < 65000; d++)
		stack = sp_spool_put_node(w, stack, frame);
	tap_ok(stack != SP_NONE && sp_spool_put_node(w, stack, frame) == SP_NONE,
	       "65,000 frames are the most");
	struct sp_spool_wsample p = {.time_ns = 1, .stack = stack, .set = SP_NONE, .cpu = SP_NONE,
				     .thread = sp_spool_put_thread(w, 0, 1, 1),
				     .event = sp_spool_put_event(w, "e", false)};
	for (unsigned i = 0; i < 40000; i++) {
		p.time_ns += 7;
		if (sp_spool_put_sample(w, &p, &err) < 0)
			abort();
	}
	if (sp_spool_finish(w, NULL, &err) < 0 || open_bytes(&s, b.data, b.len, &err) < 0)
		abort();
	unsigned n = 0;
	while (sp_spool_next(s, &got, &err) == 1)
		n += sp_spool_frames(s, &f) == 65000;
	tap_eq(n, 40000, "and they come back");
	tap_ok(b.len < 100000, "in few bytes");
	sp_spool_close(s);
	sp_spool_writer_free(w);
	sp_buf_deinit(&b);
}

int main(void)
{
	round_trip(0, "samples at rising times come back");
	round_trip(1, "samples at equal times come back in the order they had");
	round_trip(2, "samples at any times come back in the order they had");
	deep();
	return tap_done();
}
