/* The engine's views of address spaces: right in every version, and shared as far as the mappings
 * are.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/image.c sp-unwind/live.c sp-unwind/modules.c */
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../sp-unwind/modules.h"

#define STEP 0x3000u
#define MANY 20000u

static struct sp_procs *procs;
static struct un_modules *modules;

static void apply(struct sp_record *rec)
{
	struct sp_err err;
	rec->misc = SP_CPUMODE_USER;
	if (sp_procs_apply(procs, rec, &err) < 0)
		abort();
}

static void map(int32_t pid, uint64_t start, const char *path)
{
	apply(&(struct sp_record){
		.type = SP_PERF_MMAP2,
		.pid = pid,
		.tid = pid,
		.mmap = {.start = start, .len = 0x1000, .prot = 5, .path = path}});
}

static void fork_of(int32_t parent, int32_t child)
{
	apply(&(struct sp_record){
		.type = SP_PERF_FORK,
		.pid = child,
		.tid = child,
		.task = {.pid = child, .tid = child, .ppid = parent, .ptid = parent}});
}

/* The view of a process; *held: its space, with a reference for the caller. */
static const struct uw_space *view(int32_t pid, struct sp_space **held)
{
	struct sp_proc *p = sp_procs_get(procs, pid);
	const struct uw_space *v = p ? un_modules_space(modules, p->space, pid, 0) : NULL;
	if (!v)
		abort();
	*held = p->space;
	sp_space_hold(*held);
	return v;
}

static const struct uw_map *find(const struct uw_space *v, uint64_t addr)
{
	for (uint32_t i = 0; i < v->n; i++)
		for (uint32_t k = 0; k < v->parts[i].n; k++)
			if (addr - v->parts[i].v[k].start < 0x1000)
				return &v->parts[i].v[k];
	return NULL;
}

static uint32_t n_maps(const struct uw_space *v)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < v->n; i++)
		n += v->parts[i].n;
	return n;
}

/* Parts of a that b does not have. */
static uint32_t n_own(const struct uw_space *a, const struct uw_space *b)
{
	uint32_t n = 0;
	for (uint32_t i = 0, k = 0; i < a->n; i++) {
		while (k < b->n && b->parts[k].v->start < a->parts[i].v->start)
			k++;
		n += k == b->n || b->parts[k].v != a->parts[i].v;
	}
	return n;
}

/* Each view is kept until the next one is there, as by a worker. */
static void test_versions(void)
{
	struct sp_space *kept = NULL, *space;
	const struct uw_space *before = NULL;
	uint32_t wrong = 0, most = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		/* From both ends, so that no new mapping is the last one. */
		uint64_t at = i % 2 ? (uint64_t)(MANY + i) * STEP : (uint64_t)(MANY - i) * STEP;
		map(1, at, "//anon");
		const struct uw_space *v = view(1, &space);
		uint32_t own = before ? n_own(v, before) : 0;
		most = own > most ? own : most;
		if (i % 500 == 0) {
			const struct uw_map *m = find(v, at + 5);
			wrong += !m || m->start != at || m->flags != UW_MAP_ANON;
			wrong += n_maps(v) != i + 1 || (before && n_maps(before) != i);
			wrong += before && v->id == before->id;
		}
		sp_space_release(kept);
		kept = space;
		before = v;
	}
	sp_space_release(kept);
	tap_eq(wrong, 0, "every version has the mappings that the process had");
	tap_ok(most && most <= 3, "a change makes the parts around it anew, and no others");
}

static void test_fork(void)
{
	struct sp_space *parents, *childs, *then;
	const struct uw_space *parent = view(1, &parents);
	fork_of(1, 2);
	const struct uw_space *child = view(2, &childs);
	tap_eq(n_own(child, parent), 0, "a child has its parent's parts");
	map(2, 0x1000, "/nowhere/python3");
	const struct uw_space *changed = view(2, &then);
	tap_ok(n_own(changed, parent) <= 2, "all but one after it mapped something");
	const struct uw_map *m = find(changed, 0x1000);
	tap_ok(m && m->flags == UW_MAP_NOFILE && !m->module, "which is there");
	map(2, 0x2000, "/memfd:vmem (deleted)");
	struct sp_space *more;
	m = find(view(2, &more), 0x2000);
	tap_ok(m && m->flags == (UW_MAP_NOFILE | UW_MAP_ANON) && !m->module,
	       "code of a memfd that is no program is a JIT's");
	sp_space_release(more);
	tap_ok(changed->has_python && !child->has_python && !find(child, 0x1000),
	       "and not in the view from before");
	map(2, (uint64_t)3 * MANY * STEP, "//anon");
	sp_space_release(then);
	tap_ok(view(2, &then)->has_python, "Python is known in parts that are shared");
	sp_space_release(then);
	map(2, 0x3000, "/usr/lib/jvm/lib/server/libjvm.so");
	tap_ok(view(2, &then)->has_jvm && !child->has_jvm && !parent->has_jvm,
	       "HotSpot is known in the process that has it");
	sp_space_release(then);
	sp_space_release(parents);
	sp_space_release(childs);
}

/* A file that was not there is looked for once more, in chunks that stay, too. */
static void test_again(void)
{
	static char path[] = "/tmp/sp-modules-XXXXXX";
	struct sp_space *space;
	int fd = mkstemp(path);
	if (fd < 0 || unlink(path) < 0)
		abort();
	map(3, 0x10000, path);
	for (uint32_t i = 0; i < 200; i++)
		map(3, 0x1000000 + i * STEP, "//anon");
	tap_eq(find(view(3, &space), 0x10000)->flags, UW_MAP_NOFILE, "a file that is not there");
	sp_space_release(space);
	char command[200];
	snprintf(command, sizeof command, "cp /proc/%d/exe %s", (int)getpid(), path);
	if (system(command) != 0)
		abort();
	map(3, 0x9000000, "//anon");
	const struct uw_map *m = find(view(3, &space), 0x10000);
	tap_ok(m && m->module && !m->flags, "is found when it is there for the next version");
	sp_space_release(space);
	unlink(path);
	close(fd);
}

int main(void)
{
	const struct un_modules_options options = {0};
	procs = sp_procs_new();
	modules = procs ? un_modules_new(procs, &options) : NULL;
	if (!modules)
		abort();
	test_versions();
	test_fork();
	test_again();
	sp_procs_free(procs);
	un_modules_free(modules);
	return tap_done();
}
