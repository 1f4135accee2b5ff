/* One member of a pipeline of short processes: copies standard input to standard output, spending
 * the CPU milliseconds of its argument (default 30) in stage_hot below stage. */
#include <unistd.h>

#include "target.h"

NOINLINE unsigned stage_hot(unsigned n)
{
	unsigned x = n;
	for (unsigned i = 0; i < n; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

NOINLINE unsigned stage(unsigned n)
{
	return keep(stage_hot(n)) + 1;
}

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 30), x = 0;
	char buf[4096];
	ssize_t n;

	while ((n = read(0, buf, sizeof(buf))) > 0) {
		if (write(1, buf, (size_t)n) != n)
			return 1;
	}
	while (target_cpu_ms() < ms)
		x += stage(100000);
	return x == 1;
}
