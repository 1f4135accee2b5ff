/* A recursion of argv[1] frames of some 200 bytes each that burns argv[2] CPU ms at its end. */
#include <string.h>

#include "target.h"

static volatile unsigned long sum;

NOINLINE static void leaf(unsigned until)
{
	do {
		for (int i = 0; i < 100000; i++)
			sum += (unsigned long)i;
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

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	deep(atol(argv[1]), target_cpu_ms() + (unsigned)atol(argv[2]));
	return 0;
}
