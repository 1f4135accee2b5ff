/* Spins in spin_a, then replaces itself by itself and spins in spin_b; with "thread" as second
 * argument, the exec is called by a thread that is not the first. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target.h"

NOINLINE unsigned spin_a(unsigned x)
{
	for (unsigned i = 0; i < 400000; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

NOINLINE unsigned spin_b(unsigned x)
{
	for (unsigned i = 0; i < 400000; i++)
		x = x * 22695477u + 1u;
	return keep(x);
}

static char **args;

static void *again(void *arg)
{
	char *argv[] = {args[0], args[1], (char *)"b", NULL};
	execv("/proc/self/exe", argv);
	_exit(1);
	return arg;
}

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 200), x = 0;
	int second = argc > 2 && !strcmp(argv[2], "b");
	while (target_cpu_ms() < ms * (second ? 2 : 1))
		x += second ? spin_b(x) : spin_a(x);
	if (second)
		return x == 1;
	args = argv;
	if (argc < 3)
		again(NULL);
	pthread_t t;
	if (pthread_create(&t, NULL, again, NULL))
		return 1;
	for (;;)
		pause();
}
