/* The plugin of dlopen.c. */
#include "target.h"

unsigned plug_entry(unsigned n);

static NOINLINE unsigned plug_hot(unsigned n)
{
	unsigned x = n;
	for (unsigned i = 0; i < n; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

unsigned plug_entry(unsigned n)
{
	return keep(plug_hot(n)) + 1;
}
