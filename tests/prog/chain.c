/* A call chain that is known from the source: main, alpha, beta, gamma_fn, hot. Runs for the CPU
 * milliseconds of its argument (default 600), nearly all of them in hot(). Nothing is inlined,
 * merged, cloned or tail-called, whatever the compiler. */
#include "target.h"

NOINLINE unsigned hot(unsigned n)
{
	unsigned x = n;
	for (unsigned i = 0; i < n; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

NOINLINE unsigned gamma_fn(unsigned n)
{
	return keep(hot(n)) + 3;
}

NOINLINE unsigned beta(unsigned n)
{
	/* An array makes the frame larger than any neighbour's: a wrong CFA does not go unseen. */
	volatile unsigned room[64];
	room[n % 64] = n;
	return keep(gamma_fn(room[n % 64])) + 2;
}

NOINLINE unsigned alpha(unsigned n)
{
	return keep(beta(n)) + 1;
}

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 600), x = 0;
	while (target_cpu_ms() < ms)
		x += alpha(400000);
	return x == 1;
}
