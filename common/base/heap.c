#define _GNU_SOURCE
#include "base/heap.h"

#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEAP_BYTES ((size_t)32 << 20) /* address space: what is not touched costs nothing */
#define HUGE_BYTES ((uintptr_t)2 << 20)

void sp_heap_prepare(void)
{
	mallopt(M_MMAP_THRESHOLD, (int)HEAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_ARENA_MAX, 1); /* workers allocate little but tables */
	mallopt(M_TOP_PAD, (int)HEAP_BYTES);
	uintptr_t from = (uintptr_t)sbrk(0);
	void *volatile first = malloc(1 << 20); /* volatile: the compiler would drop the pair */
	free(first);
	mallopt(M_TOP_PAD, 1 << 20);
	uintptr_t to = (uintptr_t)sbrk(0) & ~(HUGE_BYTES - 1);
	/* A large page took 0.33 ms to fill, a small one 2.4 us (6.18, in a virtual machine): with
	 * 140 of 512 used it pays. What lies before the first boundary, 1 MiB on average, does for
	 * short profiles. */
	from = (from + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	if (from < to && to - from <= 2 * HEAP_BYTES)
		madvise((void *)from, to - from, MADV_HUGEPAGE); /* NOLINT: an address */
}
