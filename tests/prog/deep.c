/* A recursion of argv[1] frames of some 200 bytes each that burns argv[2] CPU ms at its end. With a
 * third argument a page of the stack above them is missing: "hole", one that holds nothing, or "lost",
 * the one that says how main goes on. With a fourth, "naps", it sleeps a millisecond now and then. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "target.h"

static volatile unsigned long sum;
static bool naps;

NOINLINE static void leaf(unsigned until)
{
	do {
		for (int i = 0; i < 100000; i++)
			sum += (unsigned long)i;
		if (naps)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	} while (target_cpu_ms() < until);
}

NOINLINE static void deep(long n, unsigned until)
{
	char frame[160];
	memset(frame, (int)n, sizeof frame);
	__asm__ volatile("" : : "r"(frame) : "memory");
	if (n)
		deep(n - 1, until);
	else
		leaf(until);
	__asm__ volatile("" : : "r"(frame) : "memory");
}

NOINLINE static int below_a_hole(long n, unsigned until, bool lost)
{
	char room[3 * 4096];
	memset(room, (int)n, sizeof room);
	uintptr_t at = lost ? (uintptr_t)__builtin_frame_address(0) : (uintptr_t)room + 4095;
	if (madvise((void *)(at & ~(uintptr_t)4095), 4096, MADV_DONTNEED) < 0)
		return 1;
	deep(n, until);
	if (lost)
		_exit(0);
	return room[0] == 1;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	naps = argc > 4;
	if (argc > 3)
		return below_a_hole(atol(argv[1]), target_cpu_ms() + (unsigned)atol(argv[2]),
				    strcmp(argv[3], "lost") == 0);
	deep(atol(argv[1]), target_cpu_ms() + (unsigned)atol(argv[2]));
	return 0;
}
