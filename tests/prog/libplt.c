/* The library of plt.c. Its functions can be interposed, so its inner calls use its PLT. */
#include "target.h"

unsigned lib_outer(unsigned n);
unsigned lib_hot(unsigned n);
unsigned host_tick(unsigned x);

NOINLINE unsigned lib_hot(unsigned n)
{
	unsigned x = n;
	for (unsigned i = 0; i < n; i++)
		x = host_tick(x);
	return keep(x);
}

NOINLINE unsigned lib_outer(unsigned n)
{
	volatile unsigned room[16];
	room[n % 16] = n;
	return keep(lib_hot(room[n % 16])) + 1;
}
