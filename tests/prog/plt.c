/* Calls that go through the PLT, lazily bound: main, run, lib_outer (library), lib_hot (through
 * the library's own PLT), and from there host_tick in the program, again through the PLT, so often
 * that samples fall into PLT stubs too. */
#include "target.h"

unsigned lib_outer(unsigned n);
unsigned host_tick(unsigned x);

NOINLINE unsigned host_tick(unsigned x)
{
	return x * 1664525u + 1013904223u;
}

NOINLINE unsigned run(unsigned n)
{
	return keep(lib_outer(n)) + 1;
}

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 600), x = 0;
	while (target_cpu_ms() < ms)
		x += run(200000);
	return x == 1;
}
