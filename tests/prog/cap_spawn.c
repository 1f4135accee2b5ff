/* Three threads that make threads of some ms without end, for the seconds of the argument. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "target.h"

NOINLINE unsigned spawn_hot(unsigned x)
{
	for (unsigned i = 0; i < 3000000; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

static void *work(void *arg)
{
	spawn_hot((unsigned)(size_t)arg);
	return arg;
}

static void *spawner(void *arg)
{
	for (;;) {
		pthread_t t[4];
		for (int i = 0; i < 4; i++)
			if (pthread_create(&t[i], NULL, work, arg))
				exit(1);
		for (int i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;
	for (int i = 0; i < 3; i++)
		if (pthread_create(&t, NULL, spawner, NULL))
			return 1;
	sleep(argc > 1 ? (unsigned)atoi(argv[1]) : 10);
	exit(0);
}
