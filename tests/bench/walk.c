/* What the engine costs, without reading and writing: walk FILE… of recordings with stacks (of
 * this machine: the files are found as sp-unwind finds them).
 *
 *   hot     ns per frame, warm rules, the sample's stack bytes in the cache: batches of 16 samples,
 *           the least of 7 passes each
 *   cold    whole passes over all samples, least of 3; the stack bytes come from memory
 *   reuse   frames taken over from the thread's last walk, and whether all stacks are the same
 *           without
 *   miss    one FDE found and interpreted (uw_rule_make), for every frame in the recording's order,
 *           as if there were no cache; and over its distinct addresses in random order
 *   open    a module's first rule: file mapped, parsed, one FDE interpreted (page cache warm)
 *
 * walk --dump OUT FILE writes FILE's samples for tests/bench/framehop instead.
 *
 * CPU time of the thread where it is precise enough (cold, miss), else the monotonic clock. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../sp-unwind/modules.h"
#include "../../sp-unwind/rule.h"
#include "base/table.h"
#include "perf/reader.h"

#define MAX_SAMPLES 50000
#define MAX_BYTES (UINT64_C(1) << 30)
#define BATCH 16

struct load {
	struct sp_reader *reader;
	struct sp_procs *procs;
	struct un_modules *modules;
	struct uw_sample *samples;
	size_t n;
	uint64_t bytes;
};

static double now_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void load_sample(struct load *l, const struct sp_record *rec)
{
	const struct sp_perf_sample *s = &rec->sample;
	struct sp_proc *p = sp_procs_get(l->procs, rec->pid);
	size_t n_regs = (size_t)__builtin_popcountll(rec->event->attr.sample_regs_user);
	if (!s->has_regs || !s->regs || !s->stack || !p || l->n == MAX_SAMPLES ||
	    l->bytes + s->stack_bytes > MAX_BYTES)
		return;
	sp_space_hold(p->space);
	const struct uw_space *space =
		un_modules_space(l->modules, p->space, rec->pid, rec->time_ns);
	uint8_t *copy = malloc(n_regs * 8 + s->stack_bytes);
	if (!space || !copy)
		exit(1);
	memcpy(copy, s->regs, n_regs * 8);
	memcpy(copy + n_regs * 8, s->stack, s->stack_bytes);
	l->bytes += s->stack_bytes;
	l->samples[l->n++] = (struct uw_sample){
		.machine = un_modules_machine(space),
		.regs_mask = rec->event->attr.sample_regs_user,
		.regs = copy,
		.regs_abi = s->regs_abi,
		.stack = copy + n_regs * 8,
		.stack_bytes = s->stack_bytes,
		.space = space,
		.thread = (uint64_t)(uint32_t)rec->tid + 1,
	};
}

static bool is_host(void *ctx)
{
	(void)ctx;
	return true;
}

static void load(struct load *l, const char *path)
{
	struct un_modules_options o = {0};
	struct sp_record rec;
	struct sp_err err;
	l->procs = sp_procs_new();
	l->modules = un_modules_new(l->procs, &o);
	l->samples = calloc(MAX_SAMPLES, sizeof *l->samples);
	if (sp_reader_open(&l->reader, path, 0, &err) < 0 || !l->samples || !l->modules) {
		fprintf(stderr, "walk: %s: %s\n", path, err.msg);
		exit(1);
	}
	un_modules_origin(l->modules, &(struct un_origin){.is_host = is_host});
	while (sp_reader_next(l->reader, &rec, &err) > 0) {
		if (rec.malformed)
			continue;
		if (rec.type == SP_PERF_SAMPLE && rec.event)
			load_sample(l, &rec);
		else
			(void)sp_procs_apply(l->procs, &rec, &err);
	}
}

static struct uw_stack out;

static void hot(const struct load *l)
{
	struct uw_walker *w = uw_walker_new();
	double total = 0;
	uint64_t frames = 0, ends = 0;
	for (size_t i = 0; i < l->n; i += BATCH) {
		double least = 1e18;
		size_t end = i + BATCH < l->n ? i + BATCH : l->n;
		for (int pass = 0; pass < 8; pass++) {
			double t = now_ns(CLOCK_MONOTONIC);
			for (size_t j = i; j < end; j++) {
				uw_walk(w, &l->samples[j], &out);
				if (!pass) {
					frames += out.n;
					ends += out.stop == UW_END;
				}
			}
			t = now_ns(CLOCK_MONOTONIC) - t;
			if (pass && t < least)
				least = t;
		}
		total += least;
	}
	printf("  %zu samples, %.1f frames each, %.1f %% to their end\n", l->n,
	       (double)frames / (double)l->n, 100.0 * (double)ends / (double)l->n);
	printf("  hot   %6.1f ns per frame, %5.0f ns per sample\n", total / (double)frames,
	       total / (double)l->n);
	uw_walker_free(w);
}

static void cold(const struct load *l)
{
	struct uw_walker *w = uw_walker_new();
	double least = 1e18, first = 0;
	uint64_t frames = 0;
	const struct sp_counters *c = uw_walker_counters(w);
	uint64_t misses = 0;
	for (int pass = 0; pass < 4; pass++) {
		double t = now_ns(CLOCK_THREAD_CPUTIME_ID);
		uint64_t before = c->v[SP_C_frames];
		misses = c->v[SP_C_rule_misses];
		for (size_t j = 0; j < l->n; j++) {
			if (j + 2 < l->n)
				__builtin_prefetch(l->samples[j + 2].regs + 56);
			if (j + 1 < l->n)
				uw_walk_ahead(w, &l->samples[j + 1]);
			uw_walk(w, &l->samples[j], &out);
		}
		t = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
		misses = c->v[SP_C_rule_misses] - misses;
		frames = c->v[SP_C_frames] - before;
		if (!pass)
			first = t;
		else if (t < least)
			least = t;
		if (!pass)
			printf("  first pass: %.2f %% of the rules made anew\n",
			       100.0 * (double)misses / (double)frames);
	}
	printf("  cold  %6.1f ns per frame, %5.0f ns per sample (first pass %.1f; later ones miss "
	       "%.2f %%)\n",
	       least / (double)frames, least / (double)l->n, first / (double)frames,
	       100.0 * (double)misses / (double)frames);
	uw_walker_free(w);
}

/* Each stack again without what its thread's last walk left: the same? */
static void reuse(const struct load *l)
{
	static struct uw_stack alone;
	struct uw_walker *with = uw_walker_new(), *without = uw_walker_new();
	const struct sp_counters *a = uw_walker_counters(with), *b = uw_walker_counters(without);
	size_t differ = 0;
	for (size_t i = 0; i < l->n; i++) {
		struct uw_sample s = l->samples[i];
		uw_walk(with, &s, &out);
		s.thread = 0;
		uw_walk(without, &s, &alone);
		differ += out.n != alone.n || out.stop != alone.stop ||
			  out.stop_map != alone.stop_map ||
			  memcmp(out.addrs, alone.addrs, out.n * sizeof *out.addrs) != 0 ||
			  memcmp(out.return_addrs, alone.return_addrs, out.n * sizeof *out.addrs) !=
				  0;
	}
	printf("  reuse %6.1f %% of the frames; %zu of %zu stacks differ%s\n",
	       100.0 * (double)a->v[SP_C_reused_frames] / (double)a->v[SP_C_frames], differ, l->n,
	       a->v[SP_C_scanned_frames] == b->v[SP_C_scanned_frames] &&
			       a->v[SP_C_frame_pointer_frames] == b->v[SP_C_frame_pointer_frames]
		       ? ""
		       : ", and the counters");
	uw_walker_free(with);
	uw_walker_free(without);
}

struct place {
	const struct uw_module *module;
	uint64_t svma;
};

static const struct uw_map *find(const struct uw_space *s, uint64_t addr)
{
	for (uint32_t i = 0; i < s->n; i++)
		for (uint32_t k = 0; k < s->parts[i].n; k++)
			if (addr - s->parts[i].v[k].start <
			    s->parts[i].v[k].end - s->parts[i].v[k].start)
				return &s->parts[i].v[k];
	return NULL;
}

/* The recording's distinct addresses with a module. */
static size_t places(const struct load *l, struct place *v, size_t max)
{
	struct uw_walker *w = uw_walker_new();
	struct sp_map64 seen = {0};
	size_t n = 0;
	for (size_t i = 0; i < l->n; i++) {
		uw_walk(w, &l->samples[i], &out);
		for (uint32_t j = 0; j < out.n && n < max; j++) {
			const struct uw_map *m = find(l->samples[i].space, out.addrs[j]);
			if (!m || !m->module)
				continue;
			uint64_t svma = out.addrs[j] - m->bias;
			uint64_t key = sp_mix64(svma) ^ uw_module_id(m->module);
			if (sp_map64_get(&seen, key) != SP_NOT_FOUND)
				continue;
			(void)sp_map64_put(&seen, key, 1);
			v[n++] = (struct place){m->module, svma};
		}
	}
	sp_map64_deinit(&seen);
	uw_walker_free(w);
	return n;
}

static void miss(const struct load *l)
{
	enum { MAX = 100000 };
	struct place *v = calloc(MAX, sizeof *v);
	size_t n = v ? places(l, v, MAX) : 0;
	uint64_t seed = 1, sum = 0;
	for (size_t i = n; i > 1; i--) {
		seed = seed * UINT64_C(6364136223846793005) + 1;
		size_t j = (size_t)((seed >> 33) % i);
		struct place p = v[i - 1];
		v[i - 1] = v[j];
		v[j] = p;
	}
	double least = 1e18, first = 0;
	for (int pass = 0; pass < 30 && n; pass++) {
		double t = now_ns(CLOCK_THREAD_CPUTIME_ID);
		for (size_t i = 0; i < n; i++)
			sum += uw_rule_make(v[i].module, v[i].svma, NULL).kind;
		t = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
		if (!pass)
			first = t;
		else if (t < least)
			least = t;
	}
	if (n)
		printf("  miss  %6.1f ns per rule in random order (first time %.1f; %zu addresses, "
		       "sum %llu)\n",
		       least / (double)n, first / (double)n, n, (unsigned long long)sum);
	free(v);
}

/* Every frame's rule made anew, in the recording's order. */
static void lazy(const struct load *l)
{
	enum { MAX = 200000 };
	struct place *v = calloc(MAX, sizeof *v);
	struct uw_walker *w = uw_walker_new();
	size_t n = 0;
	uint64_t sum = 0;
	for (size_t i = 0; i < l->n && v; i++) {
		uw_walk(w, &l->samples[i], &out);
		for (uint32_t j = 0; j < out.n && n < MAX; j++) {
			const struct uw_map *m = find(l->samples[i].space, out.addrs[j]);
			if (m && m->module)
				v[n++] = (struct place){m->module, out.addrs[j] - m->bias};
		}
	}
	double least = 1e18;
	for (int pass = 0; pass < 10 && n; pass++) {
		double t = now_ns(CLOCK_THREAD_CPUTIME_ID);
		for (size_t i = 0; i < n; i++)
			sum += uw_rule_make(v[i].module, v[i].svma, NULL).kind;
		t = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
		if (t < least)
			least = t;
	}
	if (n)
		printf("  miss  %6.1f ns per rule in the recording's order (%zu frames, sum "
		       "%llu)\n",
		       least / (double)n, n, (unsigned long long)sum);
	uw_walker_free(w);
	free(v);
}

/* --- for other engines --- */

static void put(FILE *f, uint64_t v)
{
	fwrite(&v, 8, 1, f);
}

static void put_section(FILE *f, const struct sp_elf *e, const char *name)
{
	const struct sp_section *s = sp_elf_section(e, name);
	put(f, s ? s->svma : 0);
	put(f, s && s->type != SHT_NOBITS ? s->size : 0);
	put(f, s ? s->foff : 0);
}

static const char *path_of(const struct uw_map *m)
{
	return m->module ? uw_module_elf(m->module)->path : NULL;
}

static void put_map(FILE *f, const struct uw_map *m)
{
	const char *path = path_of(m);
	if (!path)
		return;
	const struct sp_elf *e = uw_module_elf(m->module);
	uw_module_ready(m->module);
	put(f, m->start);
	put(f, m->end);
	put(f, m->bias);
	put(f, strlen(path));
	fputs(path, f);
	put_section(f, e, ".text");
	put_section(f, e, ".eh_frame");
	put_section(f, e, ".eh_frame_hdr");
}

/* 0, number of maps; each start, end, bias, length of path, path, and of .text, .eh_frame and
 * .eh_frame_hdr address, size, offset in the file. */
static void put_space(FILE *f, const struct uw_space *s)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < s->n; i++)
		for (uint32_t k = 0; k < s->parts[i].n; k++)
			n += path_of(&s->parts[i].v[k]) != NULL;
	put(f, 0);
	put(f, n);
	for (uint32_t i = 0; i < s->n; i++)
		for (uint32_t k = 0; k < s->parts[i].n; k++)
			put_map(f, &s->parts[i].v[k]);
}

static uint64_t reg(const struct uw_sample *s, unsigned perf)
{
	uint64_t below = s->regs_mask & ((UINT64_C(1) << perf) - 1);
	return sp_get64(s->regs + 8 * (size_t)__builtin_popcountll(below));
}

/* Words of 64 bits, little-endian. A space comes before its samples: 1, the space's number, pc, sp,
 * fp, the stack's length and bytes. */
static int dump(const struct load *l, const char *path)
{
	FILE *f = fopen(path, "w");
	struct sp_map64 spaces = {0};
	uint32_t n_spaces = 0;
	for (size_t i = 0; i < l->n && f; i++) {
		const struct uw_sample *s = &l->samples[i];
		uint32_t space = sp_map64_get(&spaces, (uintptr_t)s->space);
		if (space == SP_NOT_FOUND) {
			space = n_spaces++;
			(void)sp_map64_put(&spaces, (uintptr_t)s->space, space);
			put_space(f, s->space);
		}
		put(f, 1);
		put(f, space);
		put(f, reg(s, 8));
		put(f, reg(s, 7));
		put(f, reg(s, 6));
		put(f, s->stack_bytes);
		fwrite(s->stack, 1, s->stack_bytes, f);
	}
	sp_map64_deinit(&spaces);
	if (!f || fclose(f) != 0) {
		perror(path);
		return 1;
	}
	return 0;
}

static void open_module(const char *path)
{
	double least = 1e18, first = 0;
	struct sp_err err;
	for (int pass = 0; pass < 8; pass++) {
		double t = now_ns(CLOCK_MONOTONIC);
		struct sp_elf *e = calloc(1, sizeof *e);
		struct uw_module *m;
		if (!e || sp_elf_open(e, path, &err) < 0 || uw_module_new(&m, e, NULL, &err) < 0) {
			fprintf(stderr, "walk: %s: %s\n", path, err.msg);
			return;
		}
		const struct cfi_code_range *code = &m->code.v[0];
		struct uw_rule r = uw_rule_make(m, (code->begin + code->end) / 2, NULL);
		t = now_ns(CLOCK_MONOTONIC) - t;
		if (!pass)
			first = t;
		else if (t < least)
			least = t;
		if (r.kind == UW_RULE_BAD)
			puts("  a bad rule");
		uw_module_free(m);
	}
	printf("open %s: %.1f us, first time %.1f us\n", path, least / 1000, first / 1000);
}

int main(int argc, char **argv)
{
	sp_map_guard(); /* map files, as the tools do */
	if (argc == 4 && !strcmp(argv[1], "--dump")) {
		struct load l = {0};
		load(&l, argv[3]);
		return dump(&l, argv[2]);
	}
	static const char *const large[] = {"/proc/self/exe", /* our own code's first run */
					    "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
					    "/lib/x86_64-linux-gnu/libc.so.6"};
	for (size_t i = 0; i < sizeof large / sizeof *large; i++)
		open_module(large[i]);
	for (int i = 1; i < argc; i++) {
		struct load l = {0};
		printf("%s\n", argv[i]);
		load(&l, argv[i]);
		if (!l.n) {
			puts("  no samples with stacks");
			continue;
		}
		hot(&l);
		cold(&l);
		reuse(&l);
		lazy(&l);
		miss(&l);
	}
	return 0;
}
