/* Address spaces and processes from records: fork, exec, exit, reuse, splitting, snapshots. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "maps/procs.h"
#include "tap.h"

static struct sp_procs *procs;

static int mmap2(int32_t pid, uint64_t start, uint64_t len, uint64_t foff, const char *path)
{
	struct sp_record r = {.type = SP_PERF_MMAP2,
			      .misc = pid == -1 ? SP_CPUMODE_KERNEL : SP_CPUMODE_USER,
			      .pid = pid,
			      .tid = pid};
	r.mmap = (struct sp_perf_mmap){.start = start,
				       .len = len,
				       .pgoff = foff,
				       .ino = 7,
				       .prot = PROT_READ | PROT_EXEC,
				       .path = path,
				       .is_mmap2 = true};
	return sp_procs_apply(procs, &r, NULL);
}

static int comm(int32_t pid, int32_t tid, const char *name, bool exec)
{
	struct sp_record r = {.type = SP_PERF_COMM, .pid = pid, .tid = tid};
	r.comm.comm = name;
	r.comm.is_exec = exec;
	return sp_procs_apply(procs, &r, NULL);
}

static int task(uint32_t type, uint16_t misc, int32_t pid, int32_t ppid, int32_t tid, int32_t ptid)
{
	struct sp_record r = {.type = type, .misc = misc, .pid = pid, .tid = tid};
	r.task.pid = pid;
	r.task.ppid = ppid;
	r.task.tid = tid;
	r.task.ptid = ptid;
	return sp_procs_apply(procs, &r, NULL);
}

static int fork_of(int32_t parent, int32_t child)
{
	return task(SP_PERF_FORK, 0, child, parent, child, parent);
}

/* "path+offset" of an address in a process, or "-". */
static const char *at(int32_t pid, uint64_t addr)
{
	static char text[200];
	const struct sp_mapping *m = sp_space_find(sp_procs_get(procs, pid)->space, addr);
	if (!m)
		return "-";
	snprintf(text, sizeof text, "%s+%llx", sp_procs_file(procs, m->file)->path,
		 (unsigned long long)(addr - m->start + m->foff));
	return text;
}

static void test_mapping(void)
{
	procs = sp_procs_new();
	tap_str(at(1, 0x1000), "-", "an unknown process has no mappings");
	tap_eq((uint64_t)mmap2(1, 0x10000, 0x3000, 0x5000, "/a"), 1, "a mapping is a change");
	tap_str(at(1, 0x10000), "/a+5000", "the first byte is inside");
	tap_str(at(1, 0x12fff), "/a+7fff", "the last byte is inside");
	tap_str(at(1, 0x13000), "-", "the byte after it is outside");
	tap_str(at(1, 0xffff), "-", "the byte before it is outside");
	tap_eq((uint64_t)mmap2(1, 0x11000, 0x1000, 0x6000, "/a"), 0,
	       "the same bytes of the same file again are no change");
	mmap2(1, 0x11000, 0x1000, 0, "/b");
	tap_str(at(1, 0x10fff), "/a+5fff", "an overlay keeps the left piece");
	tap_str(at(1, 0x11008), "/b+8", "an overlay wins inside");
	tap_str(at(1, 0x12010), "/a+7010", "an overlay keeps the right piece with its own offset");
	tap_eq(sp_procs_get(procs, 1)->space->n, 3, "three pieces");
	mmap2(1, 0x10800, 0x2000, 0x100, "/c");
	tap_str(at(1, 0x107ff), "/a+57ff", "an overlay over several cuts the first");
	tap_str(at(1, 0x11000), "/c+900", "an overlay over several covers the middle");
	tap_str(at(1, 0x12800), "/a+7800", "an overlay over several cuts the last");
	tap_eq(sp_procs_get(procs, 1)->space->n, 3, "what is covered is gone");
	mmap2(1, 0, UINT64_MAX, 0, "/all");
	tap_eq(sp_procs_get(procs, 1)->space->n, 1, "one that covers all is alone");
	mmap2(2, UINT64_MAX - 0xfff, 0x100000, 0, "/end");
	tap_str(at(2, UINT64_MAX - 1), "/end+ffe", "an end beyond 2^64 is the last address");
	tap_eq((uint64_t)mmap2(2, 0x1000, 0, 0, "/empty"), 0, "an empty mapping is nothing");
	sp_procs_free(procs);
}

static void test_kinds(void)
{
	procs = sp_procs_new();
	struct sp_record r = {.type = SP_PERF_MMAP, .misc = SP_CPUMODE_USER, .pid = 5, .tid = 5};
	r.mmap = (struct sp_perf_mmap){.start = 0x1000, .len = 0x1000, .path = "/old"};
	tap_eq((uint64_t)sp_procs_apply(procs, &r, NULL), 1, "an MMAP is executable");
	r.misc |= 1 << 13;
	r.mmap.path = "/data";
	tap_eq((uint64_t)sp_procs_apply(procs, &r, NULL), 0, "an MMAP of data is ignored");
	r.type = SP_PERF_MMAP2;
	r.misc = SP_CPUMODE_USER;
	r.mmap.prot = PROT_READ;
	tap_eq((uint64_t)sp_procs_apply(procs, &r, NULL), 0,
	       "an MMAP2 that can be read only is ignored");
	r.mmap.prot = PROT_EXEC;
	r.misc = SP_CPUMODE_GUEST_USER;
	tap_eq((uint64_t)sp_procs_apply(procs, &r, NULL), 0, "a guest's mapping is ignored");
	r.misc = SP_CPUMODE_USER;
	r.malformed = true;
	tap_eq((uint64_t)sp_procs_apply(procs, &r, NULL), 0, "a malformed record is ignored");
	mmap2(-1, 0xffffffff81000000, 0x1000000, 0xffffffff81000000, "[kernel.kallsyms]_text");
	tap_ok(sp_procs_kernel(procs) == sp_procs_get(procs, -1)->space, "pid -1 is the kernel");
	const struct sp_mapping *m = sp_space_find(sp_procs_kernel(procs), 0xffffffff81000010);
	tap_ok(m && m->flags == SP_MAPPING_KERNEL, "a kernel mapping is marked");
	mmap2(5, 0x9000, 0x1000, 0, "//anon");
	m = sp_space_find(sp_procs_get(procs, 5)->space, 0x9000);
	tap_ok(m && m->flags == SP_MAPPING_ANON, "anonymous memory is marked");
	tap_ok(sp_path_is_anon("[heap]") && sp_path_is_anon("[stack:12]") && sp_path_is_anon("") &&
		       !sp_path_is_anon("[vdso]") && !sp_path_is_anon("/memfd:x (deleted)") &&
		       !sp_path_is_anon("[heapless]"),
	       "anonymous names are told from files");
	mmap2(6, 0x1000, 0x1000, 0, "/lib");
	mmap2(7, 0x8000, 0x1000, 0x100, "/lib");
	const struct sp_mapping *a = sp_space_find(sp_procs_get(procs, 6)->space, 0x1000);
	const struct sp_mapping *b = sp_space_find(sp_procs_get(procs, 7)->space, 0x8000);
	tap_ok(a && b && a->file == b->file, "the same file of two processes has one number");
	sp_procs_free(procs);
}

static void test_life(void)
{
	procs = sp_procs_new();
	comm(10, 10, "parent", false);
	mmap2(10, 0x1000, 0x1000, 0, "/bin/a");
	fork_of(10, 11);
	tap_str(at(11, 0x1000), "/bin/a+0", "a fork has its parent's mappings");
	tap_str(sp_procs_comm(procs, 11, 11), "parent", "a fork has its parent's name");
	tap_ok(sp_procs_get(procs, 11)->space == sp_procs_get(procs, 10)->space,
	       "parent and child share one space");
	mmap2(11, 0x1000, 0x1000, 0, "/bin/child");
	tap_str(at(10, 0x1000), "/bin/a+0", "a child's mapping does not change its parent's");
	comm(11, 11, "execed", true);
	tap_str(at(11, 0x1000), "-", "an exec clears the space");
	tap_eq(sp_procs_get(procs, 11)->exec_count, 1, "an exec is counted");
	tap_str(sp_procs_comm(procs, 11, 11), "execed", "an exec renames");
	comm(10, 10, "renamed", false);
	tap_str(at(10, 0x1000), "/bin/a+0", "a rename keeps the space");
	task(SP_PERF_FORK, 0, 10, 10, 15, 10);
	tap_str(sp_procs_comm(procs, 10, 15), "renamed", "a thread has its maker's name");
	comm(10, 15, "worker", false);
	tap_str(sp_procs_comm(procs, 10, 15), "worker", "a thread has its own name");
	tap_str(sp_procs_comm(procs, 10, 10), "renamed", "a thread's name is not its process's");
	task(SP_PERF_FORK, 0, 12, 10, 12, 15);
	tap_str(sp_procs_comm(procs, 12, 12), "worker", "a fork by a thread has the thread's name");
	tap_str(at(12, 0x1000), "/bin/a+0", "a fork by a thread has the process's mappings");
	task(SP_PERF_EXIT, 0, 10, 1, 10, 1);
	tap_ok(!sp_procs_get(procs, 10)->exited, "a leader that ends first leaves its threads");
	task(SP_PERF_EXIT, 0, 10, 10, 15, 10);
	tap_ok(sp_procs_get(procs, 10)->exited, "the last thread ends the process");
	tap_str(at(10, 0x1000), "/bin/a+0", "late samples still find the mappings");
	uint32_t before = sp_procs_get(procs, 10)->generation;
	fork_of(12, 10);
	tap_eq(sp_procs_get(procs, 10)->generation, before + 1, "a reused pid is another process");
	tap_ok(!sp_procs_get(procs, 10)->exited, "a reused pid lives");
	tap_str(at(10, 0x1000), "/bin/a+0", "a reused pid has its own parent's mappings");
	task(SP_PERF_FORK, 1 << 13, 13, 12, 13, 12);
	tap_str(at(13, 0x1000), "-", "a fork that perf made up for a running task clones nothing");
	comm(12, 12, "a name that is longer than sixty-three bytes, as no kernel writes it", false);
	tap_eq(strlen(sp_procs_comm(procs, 12, 12)), 63, "a long name is cut");
	tap_str(sp_procs_comm(procs, 0, 0), "swapper", "the idle thread has the kernel's name for it");
	fork_of(14, 0);
	tap_str(sp_procs_comm(procs, 14, 14), "", "which no fork by an unknown process takes on");
	sp_procs_free(procs);
}

static int n_dropped;

static void drop(void *attached)
{
	(void)attached;
	n_dropped++;
}

static void test_snapshots(void)
{
	procs = sp_procs_new();
	mmap2(20, 0x1000, 0x1000, 0, "/a");
	struct sp_space *held = sp_procs_get(procs, 20)->space;
	sp_space_hold(held);
	held->attached = &n_dropped;
	held->drop = drop;
	uint64_t generation = held->generation;
	mmap2(20, 0x3000, 0x1000, 0, "/b");
	comm(20, 20, "x", true);
	mmap2(20, 0x1000, 0x1000, 0, "/c");
	tap_eq(held->n, 1, "a held space does not change");
	tap_eq(held->generation, generation, "a held space keeps its generation");
	tap_str(sp_procs_file(procs, sp_space_next(held, &(struct sp_space_at){0})->file)->path, "/a",
		"a held space keeps files");
	tap_ok(sp_procs_get(procs, 20)->space->generation != generation, "the new one has another");
	tap_eq((uint64_t)n_dropped, 0, "what is attached stays while the space is held");
	sp_space_release(held);
	tap_eq((uint64_t)n_dropped, 1, "what is attached goes with the space");
	held = sp_procs_get(procs, 20)->space;
	held->attached = &n_dropped;
	held->drop = drop;
	mmap2(20, 0x1000, 0x1000, 0, "/c");
	tap_eq((uint64_t)n_dropped, 1, "a repeated mapping keeps what is attached");
	mmap2(20, 0x8000, 0x1000, 0, "/c");
	tap_eq((uint64_t)n_dropped, 2, "a change drops what is attached");
	sp_procs_free(procs);
}

static void test_replaced(void)
{
	size_t n;
	procs = sp_procs_new();
	mmap2(40, 0x1000, 0x1000, 0, "/a");
	mmap2(40, 0x2000, 0x3000, 0, "/b");
	sp_procs_replaced(procs, &n);
	tap_eq(n, 0, "a mapping in a free place replaces nothing");
	mmap2(40, 0x1800, 0x1000, 0, "/c");
	const struct sp_mapping *m = sp_procs_replaced(procs, &n);
	tap_eq(n, 2, "one that overlaps two others replaces two");
	tap_ok(n == 2 && m[0].start == 0x1000 && m[0].end == 0x2000 && m[1].start == 0x2000 &&
		       m[1].end == 0x5000,
	       "they are told as they were");
	mmap2(40, 0x1800, 0x1000, 0, "/c");
	sp_procs_replaced(procs, &n);
	tap_eq(n, 0, "a repeated mapping replaces nothing");
	mmap2(-1, 0x1000, 0x1000, 0, "k");
	mmap2(-1, 0x1000, 0x1000, 0, "l");
	sp_procs_replaced(procs, &n);
	tap_eq(n, 0, "what the kernel replaces in its own space is not told");
	sp_procs_free(procs);
}

#define PAGES 4096u

/* Random overlays, against an array of pages that says who was mapped there last. */
static void test_overlays(void)
{
	static uint32_t foff[PAGES]; /* in pages + 1; 0: nothing */
	uint64_t state = 88172645463325252;
	unsigned wrong = 0, unsorted = 0;
	procs = sp_procs_new();
	for (uint32_t i = 1; i <= 20000; i++) {
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
		uint32_t page = (uint32_t)(state >> 40) % PAGES;
		uint32_t len = 1 + (uint32_t)(state >> 33) % (i % 1000 ? 4 : PAGES / 2);
		len = len < PAGES - page ? len : PAGES - page;
		mmap2(50, (uint64_t)page << 12, (uint64_t)len << 12, (uint64_t)i << 24, "/a");
		for (uint32_t k = 0; k < len; k++)
			foff[page + k] = (i << 12) + k + 1;
		if (i % 500)
			continue;
		const struct sp_space *s = sp_procs_get(procs, 50)->space;
		for (uint32_t k = 0; k < PAGES; k++) {
			const struct sp_mapping *m = sp_space_find(s, (uint64_t)k << 12);
			uint64_t got = m ? (m->foff + ((uint64_t)k << 12) - m->start) / 4096 + 1 : 0;
			wrong += got != foff[k];
		}
		struct sp_space_at at = {0};
		uint64_t end = 0;
		uint32_t n = 0;
		for (const struct sp_mapping *m; (m = sp_space_next(s, &at)); n++) {
			unsorted += m->start < end || m->end <= m->start;
			end = m->end;
		}
		unsorted += n != s->n;
	}
	tap_eq(wrong, 0, "20,000 random overlays: each page is what was mapped there last");
	tap_eq(unsorted, 0, "the mappings are counted, in order and disjoint");
	sp_procs_free(procs);
}

/* Chunks of b that are not a's. */
static size_t unshared(const struct sp_space *a, const struct sp_space *b)
{
	size_t n = 0, at = 0;
	for (size_t i = 0; i < b->n_chunks; i++) {
		while (at < a->n_chunks && a->chunks[at]->maps[0].start < b->chunks[i]->maps[0].start)
			at++;
		n += at == a->n_chunks || a->chunks[at] != b->chunks[i];
	}
	return n;
}

/* Forked children that map something of their own: 100 million mappings, were they copied. */
static void test_forks(void)
{
	procs = sp_procs_new();
	for (uint64_t i = 0; i < 5000; i++)
		mmap2(60, (1 + i * 7919 % 5000) << 16, 0x1000, i << 12, "/lib");
	size_t most = 0;
	for (int32_t i = 0; i < 20000; i++) {
		fork_of(60, 1000 + i);
		mmap2(1000 + i, (1 + (uint64_t)i % 5000) << 16 | 0x8000, 0x1000, 0, "/own");
		size_t n = unshared(sp_procs_get(procs, 60)->space,
				    sp_procs_get(procs, 1000 + i)->space);
		most = n > most ? n : most;
	}
	tap_ok(most && most <= 3, "a child that maps something shares all but 3 chunks with its parent");
	tap_str(at(20999, UINT64_C(1) << 16), at(60, UINT64_C(1) << 16), "it sees what its parent has");
	tap_str(at(1000, 0x18000), "/own+0", "it sees its own");
	tap_str(at(60, 0x18000), "-", "its parent does not");
	sp_procs_free(procs);
}

static double cpu_seconds(void)
{
	return (double)clock() / CLOCKS_PER_SEC;
}

/* Sizes at which a quadratic step would take minutes: the test would not end. */
static void test_sizes(void)
{
	double start = cpu_seconds();
	procs = sp_procs_new();
	for (uint64_t i = 0; i < 100000; i++) /* top-down, as the kernel places mappings */
		mmap2(30, UINT64_C(0x7f0000000000) - i * 0x2000, 0x1000, 0, "/lib");
	tap_eq(sp_procs_get(procs, 30)->space->n, 100000, "100,000 falling mappings are kept");
	for (uint64_t i = 0; i < 100000; i++)
		mmap2(31, 0x1000 + i * 0x2000, 0x1000, 0, "/lib");
	tap_eq(sp_procs_get(procs, 31)->space->n, 100000, "100,000 rising mappings are kept");
	for (int32_t i = 0; i < 3000; i++)
		fork_of(30, 1000 + i);
	tap_ok(sp_procs_get(procs, 3999)->space == sp_procs_get(procs, 30)->space,
	       "3,000 forks of a large process share its space");
	for (int32_t i = 0; i < 200000; i++) {
		fork_of(31, 10000 + i);
		comm(10000 + i, 10000 + i, "sh", true);
		mmap2(10000 + i, 0x1000, 0x1000, 0, "/bin/sh");
		task(SP_PERF_EXIT, 0, 10000 + i, 31, 10000 + i, 31);
	}
	tap_str(at(10000, 0x1000), "-", "of 200,000 processes that ended the first is forgotten");
	tap_str(at(209999, 0x1000), "/bin/sh+0", "of 200,000 processes the last is known");
	for (int32_t i = 0; i < 200000; i++) {
		task(SP_PERF_FORK, 0, 31, 31, 500000 + i, 31);
		task(SP_PERF_EXIT, 0, 31, 31, 500000 + i, 31);
	}
	tap_str(at(31, 0x1000), "/lib+0", "200,000 threads come and go");
	for (uint32_t i = 0; i < SP_SPACE_MAPPINGS + 10; i++)
		mmap2(32, 0x1000 + (uint64_t)i * 0x1000, 0x1000, i * 7, "/lib");
	tap_eq(sp_procs_get(procs, 32)->space->n, SP_SPACE_MAPPINGS, "a space has a limit");
	for (int32_t i = 0; i < (int32_t)SP_PROCS_LIVE + 100; i++)
		sp_procs_get(procs, 1000000 + i);
	tap_ok(sp_procs_get(procs, 5), "a million asked pids are bounded");
	printf("# %.2f s of CPU\n", cpu_seconds() - start);
	sp_procs_free(procs);
}

/* The line as sp_maps_line said it back, or "bad". */
static const char *line(const char *text)
{
	static char out[300];
	struct sp_perf_mmap m;
	if (!sp_maps_line(text, strlen(text), &m))
		return "bad";
	snprintf(out, sizeof out, "%llx %llx %llx %u:%u %llu prot %u flags %u '%s'",
		 (unsigned long long)m.start, (unsigned long long)m.len,
		 (unsigned long long)m.pgoff, m.maj, m.min, (unsigned long long)m.ino, m.prot,
		 m.flags, m.path);
	return out;
}

static void test_lines(void)
{
	tap_str(line("7f6e4a000000-7f6e4a021000 r-xp 00026000 fe:01 1835023                    "
		     "/usr/lib/x86_64-linux-gnu/libc.so.6"),
		"7f6e4a000000 21000 26000 254:1 1835023 prot 5 flags 2 "
		"'/usr/lib/x86_64-linux-gnu/libc.so.6'",
		"a line of a file");
	tap_str(line("7fff0000-7fff1000 rw-s 00000000 00:05 12   /tmp/a b  (deleted)"),
		"7fff0000 1000 0 0:5 12 prot 3 flags 1 '/tmp/a b  (deleted)'",
		"blanks inside of a path stay");
	tap_str(line("7fff0000-7fff1000 rwxp 00000000 00:00 0 "),
		"7fff0000 1000 0 0:0 0 prot 7 flags 2 ''", "a line without a path");
	tap_str(line("7fff0000-7fff1000 rwxp 00000000 00:00 0"),
		"7fff0000 1000 0 0:0 0 prot 7 flags 2 ''", "a line that ends in the inode");
	tap_str(line("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]"),
		"ffffffffff600000 1000 0 0:0 0 prot 4 flags 2 '[vsyscall]'", "the vsyscall page");
	tap_str(line("1000-2000 r-xp 00000000 08:01 5 /tmp/a\\012b"),
		"1000 1000 0 8:1 5 prot 5 flags 2 '/tmp/a\\012b'", "an escape stays as it is");
	static const char *const bad[] = {
		"",
		"1000",
		"1000-",
		"1000-2000",
		"2000-1000 r-xp 00000000 08:01 5 /a",
		"1000-1000 r-xp 00000000 08:01 5 /a",
		"1000-2000 r-x 00000000 08:01 5 /a",
		"1000-2000 zzzz 00000000 08:01 5 /a",
		"1000-2000 r-xp 00000000 0801 5 /a",
		"1000-2000 r-xp 00000000 08:01 x /a",
		"1000-11112222333344445 r-xp 0 08:01 5 /a",
		"1000-2000 r-xp 0 08:1ffffffff 5 /a",
		"-2000 r-xp 00000000 08:01 5 /a",
		"1000-2000 r-xp 00000000 08:01 ",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char name[100];
		snprintf(name, sizeof name, "refused: '%s'", bad[i]);
		tap_str(line(bad[i]), "bad", name);
	}
}

int main(void)
{
	test_mapping();
	test_kinds();
	test_life();
	test_snapshots();
	test_replaced();
	test_overlays();
	test_forks();
	test_sizes();
	test_lines();
	return tap_done();
}
