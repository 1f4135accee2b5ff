/* Processes that map, fork, exec and end at random: every frame comes back with the address that it
 * had and the module that was mapped there then.
 * unit: sp-spool/chain.c
 * unit: sp-spool/intern.c */
#define _GNU_SOURCE
#include "../../sp-spool/intern.h"
#include "spool_make.h"
#include "tap.h"

#define N 20000
#define PIDS 12
#define DEPTH 8

static uint64_t state = 88172645463325252;

static uint64_t rnd(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % below;
}

static struct model {
	int32_t pid;
	uint32_t n;
	char comm[16];
	struct {
		uint64_t addr, start, foff; /* start 0: no module */
		char path[24];
	} f[DEPTH];
} model[N];
static unsigned n_model;

static struct spool_intern in;
static struct sp_procs *truth;
static struct sp_spool_writer *w;

static void apply(const struct sp_record *rec)
{
	struct sp_err err;
	if (spool_intern_record(&in, rec, &err) < 0 || sp_procs_apply(truth, rec, &err) < 0)
		abort();
}

static struct sp_record base(uint32_t type, int32_t pid)
{
	return (struct sp_record){.type = type, .misc = SP_CPUMODE_USER, .pid = pid, .tid = pid,
				  .has_tid = true, .has_time = true, .cpu = 0};
}

static void map(int32_t pid)
{
	static const char *const paths[] = {"/lib/a.so", "/lib/b.so", "/bin/c", "//anon"};
	struct sp_record r = base(SP_PERF_MMAP2, pid);
	unsigned file = (unsigned)rnd(4);
	r.mmap = (struct sp_perf_mmap){
		.start = 0x100000 + rnd(24) * 0x2000, /* neighbours overlap */
		.len = 0x1000 * (1 + rnd(4)),
		.pgoff = file == 3 ? 0 : rnd(3) * 0x1000,
		.maj = 8, .ino = file == 3 ? 0 : 100 + file, .prot = 5, .flags = 2,
		.path = paths[file], .is_mmap2 = true};
	apply(&r);
}

static void life(int32_t pid)
{
	struct sp_record r = base(SP_PERF_COMM, pid);
	uint64_t what = rnd(3);
	if (what == 0) { /* a child */
		r.type = SP_PERF_FORK;
		r.task.ppid = r.task.ptid = pid;
		r.task.pid = r.task.tid = r.pid = r.tid = (int32_t)(1 + rnd(PIDS));
		if (r.pid == pid)
			return;
	} else if (what == 1) {
		r.type = SP_PERF_EXIT;
		r.task.pid = r.task.tid = pid;
		r.task.ppid = r.task.ptid = pid;
	} else {
		r.comm.comm = rnd(2) ? "one" : "two";
		r.comm.is_exec = rnd(2);
		r.misc |= r.comm.is_exec ? SP_MISC_COMM_EXEC : 0;
	}
	apply(&r);
}

static void sample(int32_t pid)
{
	struct model *m = &model[n_model++];
	struct sp_err err;
	uint64_t chain[DEPTH + 1] = {(uint64_t)-512};
	m->pid = pid;
	m->n = (uint32_t)(1 + rnd(DEPTH));
	const struct sp_space *space = sp_procs_get(truth, pid)->space;
	snprintf(m->comm, sizeof m->comm, "%s", sp_procs_comm(truth, pid, pid));
	for (uint32_t i = 0; i < m->n; i++) {
		uint64_t addr = chain[i + 1] = 0x100000 + rnd(0x60) * 0x800 + rnd(3);
		const struct sp_mapping *p = sp_space_find(space, addr);
		m->f[i].addr = addr;
		if (!p)
			continue;
		m->f[i].start = p->start;
		m->f[i].foff = addr - p->start + p->foff;
		snprintf(m->f[i].path, sizeof m->f[i].path, "%s", sp_procs_file(truth, p->file)->path);
	}
	struct sp_record r = base(SP_PERF_SAMPLE, pid);
	r.sample.has_chain = true;
	r.sample.chain = (const uint8_t *)chain;
	r.sample.n_chain = m->n + 1;
	struct spool_placed p;
	if (spool_intern_sample(&in, &r, &p, &err) < 0)
		abort();
	struct sp_spool_wsample s = {.time_ns = n_model, .thread = p.thread, .comm = p.comm,
				     .set = p.set, .stack = p.stack, .cpu = SP_NONE,
				     .event = sp_spool_put_event(w, "e", false)};
	if (sp_spool_put_sample(w, &s, &err) < 0 || (rnd(300) == 0 && sp_spool_flush(w, &err) < 0))
		abort();
}

static bool same(struct sp_spool *s, const struct sp_spool_sample *got, const struct model *m)
{
	const struct sp_spool_frame *f;
	if (sp_spool_thread(s, got->thread)->pid != m->pid || strcmp(got->comm, m->comm) != 0 ||
	    sp_spool_frames(s, &f) != m->n)
		return false;
	for (uint32_t i = 0; i < m->n; i++) {
		const struct sp_spool_module *p =
			f[i].module == SP_NONE ? NULL : sp_spool_module(s, f[i].module);
		if (f[i].abs_ip != m->f[i].addr || (p ? p->start : 0) != m->f[i].start ||
		    (p && (strcmp(p->path, m->f[i].path) != 0 || f[i].rel_ip != m->f[i].foff ||
			   p->pid != m->pid)))
			return false;
	}
	return true;
}

int main(void)
{
	struct sp_buf b = {0};
	struct sp_err err;
	struct sp_reader *reader;
	static const uint8_t head[16] = "PERFILE2\x10";
	const uint64_t seed[2] = {1, 2};
	w = make_begin(&b, 1);
	truth = sp_procs_new();
	if (!truth || sp_reader_open_bytes(&reader, head, sizeof head, 0, &err) < 0 ||
	    spool_intern_init(&in, w, reader, seed, &err) < 0)
		abort();
	in.site = true;
	while (n_model < N) {
		int32_t pid = (int32_t)(1 + rnd(PIDS));
		uint64_t what = rnd(40);
		if (what == 0)
			life(pid);
		else if (what < 4)
			map(pid);
		else
			sample(pid);
	}
	struct sp_spool *s;
	if (sp_spool_finish(w, NULL, &err) < 0 || open_bytes(&s, b.data, b.len, &err) < 0)
		abort();
	unsigned good = 0;
	struct sp_spool_sample got;
	for (unsigned i = 0; i < N && sp_spool_next(s, &got, &err) == 1; i++)
		good += same(s, &got, &model[i]);
	tap_eq(good, N, "every frame has the address and the module that it had");
	tap_ok(sp_spool_state(s) == SP_SPOOL_WHOLE, "and the spool is whole");
	sp_spool_close(s);
	spool_intern_deinit(&in);
	sp_procs_free(truth);
	sp_reader_close(reader);
	sp_spool_writer_free(w);
	sp_buf_deinit(&b);
	return tap_done();
}
