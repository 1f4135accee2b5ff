/* Lives of processes that recorders get wrong. It begins once a byte comes on standard input, and
 * spins for the CPU milliseconds of the second argument:
 *   daemon   in a grandchild in a session of its own, whose parents have gone
 *   leader   in a second thread, after the first has exited */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "target.h"

static unsigned ms;

NOINLINE unsigned daemon_hot(unsigned x)
{
	for (unsigned i = 0; i < 400000; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

NOINLINE unsigned orphan_hot(unsigned x)
{
	for (unsigned i = 0; i < 400000; i++)
		x = x * 22695477u + 1u;
	return keep(x);
}

static void *orphan(void *arg)
{
	unsigned x = 0;
	/* After the first has ended. */
	pthread_join(*(pthread_t *)arg, NULL);
	while (target_thread_ms() < ms)
		x += orphan_hot(x);
	_exit(x == 1);
	return NULL;
}

static int as_daemon(void)
{
	unsigned x = 0;
	if (fork())
		_exit(0);
	setsid();
	if (fork())
		_exit(0);
	while (target_cpu_ms() < ms)
		x += daemon_hot(x);
	return x == 1;
}

int main(int argc, char **argv)
{
	static pthread_t first;
	pthread_t t;
	char byte;
	ms = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 200;
	if (argc < 2 || read(0, &byte, 1) != 1)
		return 2;
	if (!strcmp(argv[1], "daemon"))
		return as_daemon();
	first = pthread_self();
	if (pthread_create(&t, NULL, orphan, &first))
		return 1;
	pthread_exit(NULL);
}
