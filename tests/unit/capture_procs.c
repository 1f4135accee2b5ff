/* sp-capture's processes: mappings that overlap, fork, exec, reused pids.
 * unit: sp-capture/procs.c */
#include <stdlib.h>
#include <sys/mman.h>

#include "../../sp-capture/procs.h"
#include "tap.h"

static bool map(struct cap_procs *p, struct cap_proc *q, uint64_t start, uint64_t end,
		uint64_t foff, const char *path)
{
	struct sp_perf_mmap m = {
		.start = start, .len = end - start, .pgoff = foff, .ino = 7, .prot = PROT_EXEC};
	return cap_proc_map(p, q, &m, path, strlen(path), 100);
}

static bool is_at(struct cap_proc *q, uint64_t ip, uint64_t start, uint64_t end, uint64_t foff)
{
	const struct cap_range *r = cap_proc_find(q, ip);
	return r && r->start == start && r->end == end && r->foff == foff;
}

static void test_overlap(void)
{
	struct cap_procs p = {0};
	struct cap_proc *q = cap_procs_get(&p, 10);
	map(&p, q, 0x1000, 0x5000, 0x100000, "/a");
	map(&p, q, 0x2000, 0x3000, 0, "/b");
	tap_ok(is_at(q, 0x1800, 0x1000, 0x2000, 0x100000), "the left piece survives");
	tap_ok(is_at(q, 0x2800, 0x2000, 0x3000, 0), "the middle is the new file");
	tap_ok(is_at(q, 0x4800, 0x3000, 0x5000, 0x102000), "the right piece has its own offset");
	map(&p, q, 0x1800, 0x4000, 0x7000, "/c");
	tap_ok(is_at(q, 0x1000, 0x1000, 0x1800, 0x100000) &&
		       is_at(q, 0x1800, 0x1800, 0x4000, 0x7000) &&
		       is_at(q, 0x4000, 0x4000, 0x5000, 0x103000) && q->n == 3,
	       "a mapping over several cuts the outer ones and removes the inner ones");
	tap_ok(!cap_proc_find(q, 0x5000) && !cap_proc_find(q, 0xfff), "ends are exclusive");
	struct sp_perf_mmap m = {.start = UINT64_MAX - 10, .len = 100, .prot = PROT_EXEC};
	tap_ok(cap_proc_map(&p, q, &m, "/d", 2, 0) && cap_proc_find(q, UINT64_MAX - 1),
	       "an end beyond the address space saturates");
	cap_procs_deinit(&p);
}

static void test_known(void)
{
	struct cap_procs p = {0};
	struct cap_proc *q = cap_procs_get(&p, 10);
	struct sp_perf_mmap m = {
		.start = 0x1000, .len = 0x1000, .pgoff = 0x2000, .ino = 9, .prot = PROT_EXEC};
	cap_proc_map(&p, q, &m, "/a", 2, 0);
	tap_ok(cap_proc_knows(&p, q, &m, "/a", 2), "an equal mapping is known");
	tap_ok(!cap_proc_knows(&p, q, &m, "/b", 2), "another path is not");
	m.ino = 8;
	tap_ok(!cap_proc_knows(&p, q, &m, "/a", 2), "nor another inode");
	struct sp_perf_mmap anon = {
		.start = 0x9000, .len = 0x1000, .pgoff = 0x9000, .prot = PROT_EXEC};
	cap_proc_map(&p, q, &anon, "//anon", 6, 0);
	anon.pgoff = 0;
	tap_ok(cap_proc_knows(&p, q, &anon, "[anon:jit]", 10),
	       "anonymous memory has no offset to compare");
	tap_ok(cap_proc_try_page(q, 0x50010) && !cap_proc_try_page(q, 0x50ff0) &&
		       cap_proc_try_page(q, 0x51000),
	       "a page without a mapping is asked for once");
	cap_proc_map(&p, q, &m, "/c", 2, 0);
	tap_ok(cap_proc_try_page(q, 0x50010), "and again when the mappings changed");
	cap_procs_deinit(&p);
}

static void test_lives(void)
{
	struct cap_procs p = {0};
	struct cap_proc *q = cap_procs_get(&p, 10);
	map(&p, q, 0x1000, 0x2000, 0, "/a");
	struct cap_proc *child = cap_procs_fork(&p, 11, 10);
	tap_ok(is_at(child, 0x1000, 0x1000, 0x2000, 0), "a child has its parent's mappings");
	cap_proc_exec(child);
	tap_ok(!cap_proc_find(child, 0x1000) && child->exec_count == 1 && cap_proc_find(q, 0x1000),
	       "exec ends the child's and not the parent's");
	cap_procs_fork(&p, 11, 10);
	tap_ok(is_at(cap_procs_find(&p, 11), 0x1000, 0x1000, 0x2000, 0) && p.n_alive == 2,
	       "a reused pid is a new process");
	cap_procs_remove(&p, 11);
	tap_ok(!cap_procs_find(&p, 11) && p.n_alive == 1, "an ended one is gone");
	for (int32_t pid = 100; pid < 5000; pid++) {
		cap_procs_fork(&p, pid, 10);
		cap_procs_remove(&p, pid);
	}
	tap_ok(p.n <= 3, "thousands of short processes leave no slots behind");
	cap_procs_deinit(&p);
}

static bool is_replaced(struct cap_procs *p, struct cap_proc *q, const char *maps)
{
	return cap_proc_is_replaced(p, q, maps, strlen(maps), 100);
}

static void test_replaced(void)
{
	struct cap_procs p = {0};
	struct cap_proc *q = cap_procs_get(&p, 10);
	tap_ok(!is_replaced(&p, q, "1000-2000 r-xp 00000000 00:00 7 /a\n"),
	       "nothing known, nothing replaced");
	map(&p, q, 0x1000, 0x3000, 0x4000, "/usr/bin/a");
	map(&p, q, 0x9000, 0xa000, 0, "/lib/ld.so");
	tap_ok(!is_replaced(&p, q,
			    "5000-6000 r-xp 00000000 00:00 8 /b\n"
			    "9000-a000 r-xp 00000000 00:00 7 /lib/ld.so\n"),
	       "one file that is where it was: the same image");
	tap_ok(is_replaced(&p, q,
			   "5000-6000 r-xp 00000000 00:00 7 /usr/bin/a\n"
			   "9000-a000 r-xp 00000000 00:00 8 /lib/other.so\n"),
	       "all elsewhere, or others: a new image");
	tap_ok(!is_replaced(&p, q,
			    "7ffe000000-7ffe021000 rwxp 00000000 00:00 0 [stack]\n"
			    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"),
	       "an exec under way, with no code yet, says nothing: its record comes later");
	tap_ok(!is_replaced(&p, q, "") && !is_replaced(&p, q, "5000-6000 r-xp 0000"),
	       "nor does an empty or a cut text");
	tap_ok(!is_replaced(&p, q, "1000-3000 r-xp 00004000 00:2f 99 /over/upper/a (deleted)\n"),
	       "a file of overlayfs: same place, same name, another inode and folder");
	tap_ok(is_replaced(&p, q, "1000-3000 r-xp 00004000 00:2f 99 /usr/bin/aa\n") &&
		       is_replaced(&p, q, "1000-3000 r-xp 00005000 00:2f 99 /usr/bin/a\n") &&
		       is_replaced(&p, q, "1000-2000 r-xp 00004000 00:2f 99 /usr/bin/a\n"),
	       "another name, offset or size there: another image");
	cap_procs_deinit(&p);
}

/* A mapping of file ino, whose record is of that time. */
static void map_at(struct cap_procs *p, struct cap_proc *q, uint64_t start, uint64_t ino,
		   uint64_t seen_ns)
{
	struct sp_perf_mmap m = {.start = start, .len = 0x1000, .ino = ino, .prot = PROT_EXEC};
	char path[] = {'/', (char)('a' + ino)};
	cap_proc_map(p, q, &m, path, sizeof path, seen_ns);
}

/* The record of an exec is lost after 100; those of what it maps are not. */
static void test_exec_lost(void)
{
	static const char now[] = "20000-21000 r-xp 00000000 00:00 3 /d\n"
				  "70000-71000 r-xp 00000000 00:00 4 /e\n";
	struct cap_procs p = {0};
	struct cap_proc *q = cap_procs_get(&p, 10);
	map_at(&p, q, 0x10000, 1, 50);
	map_at(&p, q, 0x60000, 2, 50);
	map_at(&p, q, 0x20000, 3, 150);
	map_at(&p, q, 0x70000, 4, 150);
	tap_ok(is_replaced(&p, q, now), "what was mapped since says nothing: a new image");
	tap_ok(!cap_proc_is_replaced(&p, q, now, strlen(now), 150), "unless it was before the loss");
	struct cap_proc *child = cap_procs_fork(&p, 11, 10);
	tap_ok(is_replaced(&p, child, now), "a child's too");
	/* At fixed addresses the new program lies where the old one did. */
	cap_proc_exec(q);
	map_at(&p, q, 0x20000, 1, 50);
	map_at(&p, q, 0x20000, 3, 150);
	tap_ok(is_replaced(&p, q, now), "another program at the old one's place: a new image");
	/* A second exec, of which all was told, after the loss began: its program is known. */
	cap_proc_exec(q);
	map_at(&p, q, 0x20000, 3, 120);
	map_at(&p, q, 0x60000, 4, 120);
	tap_ok(!is_replaced(&p, q, now), "the program of an exec that was told since is where it was");
	map_at(&p, q, 0x80000, 5, 150);
	tap_ok(is_replaced(&p, q, "80000-81000 r-xp 00000000 00:00 5 /f\n"),
	       "and is not after one more, which was lost");
	/* A program that moves its own code elsewhere stays itself. */
	cap_proc_exec(q);
	map_at(&p, q, 0x20000, 3, 50);
	map_at(&p, q, 0x70000, 4, 50);
	tap_ok(!is_replaced(&p, q, "70000-71000 r-xp 00000000 00:00 4 /e\n"),
	       "a library where it was before the loss, the program moved away: the same image");
	cap_procs_deinit(&p);
}

int main(void)
{
	test_overlap();
	test_known();
	test_lives();
	test_replaced();
	test_exec_lost();
	return tap_done();
}
