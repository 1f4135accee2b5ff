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
/* What a short profile needs: a large page that is used in part costs more than small ones, and
 * much more where a hypervisor has to find the memory first. */
#define SMALL_BYTES ((uintptr_t)2 << 20)

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
	from = (from + SMALL_BYTES + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	if (from < to && to - from <= 2 * HEAP_BYTES)
		madvise((void *)from, to - from, MADV_HUGEPAGE); /* NOLINT: an address */
}
