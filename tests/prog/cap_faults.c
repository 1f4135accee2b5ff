/* cap_faults N DEPTH: prints "ready", waits for a byte of standard input, then touches N fresh pages, one
 * page fault each, with DEPTH bytes on its stack; prints "done" and waits to be ended.
 *
 * Nothing else of it faults meanwhile: all other pages are locked. The faults are 40 us apart, so
 * that an event at 100,000 Hz has no reason to take fewer than all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "target.h"

#define PAGE 4096u
#define APART_NS 40000

static long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static NOINLINE void fault(volatile char *fresh, long n)
{
	for (long i = 0; i < n; i++) {
		fresh[i * PAGE] = 1;
		/* From here on: a turn that ended before the fault brings it no closer to the next. */
		long long next = now_ns() + APART_NS;
		while (now_ns() < next)
			;
	}
}

static NOINLINE unsigned deep(volatile char *fresh, long n, size_t depth)
{
	volatile char *room = __builtin_alloca(depth + 1);
	char byte;
	for (size_t i = 0; i <= depth; i++)
		room[i] = 1;
	/* Everything that is run and touched from here on is there, but for the fresh pages. */
	now_ns();
	if (mlockall(MCL_CURRENT) < 0)
		return 1;
	if (write(1, "ready\n", 6) != 6 || read(0, &byte, 1) != 1)
		return 1;
	if (munlock((const void *)fresh, (size_t)n * PAGE) < 0 ||
	    madvise((void *)fresh, (size_t)n * PAGE, MADV_DONTNEED) < 0)
		return 1;
	fault(fresh, n);
	if (write(1, "done\n", 5) != 5)
		return 1;
	pause();
	return keep((unsigned)room[0]);
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 1000;
	size_t depth = argc > 2 ? (size_t)atol(argv[2]) : 0;
	char *fresh = mmap(NULL, (size_t)n * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (fresh == MAP_FAILED || madvise(fresh, (size_t)n * PAGE, MADV_NOHUGEPAGE) < 0) {
		perror("mmap");
		return 1;
	}
	return (int)deep(fresh, n, depth);
}
