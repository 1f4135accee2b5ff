/* Four named threads, each with a chain of its own: worker_N, middle_N, hot_N. The main thread
 * waits, without spending CPU. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

#include "target.h"

static unsigned wanted_ms;

static inline __attribute__((always_inline)) unsigned churn(unsigned x)
{
	for (unsigned i = 0; i < 400000; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

#define WORKER(N)                                                                                  \
	NOINLINE unsigned hot_##N(unsigned x)                                                      \
	{                                                                                          \
		return churn(x + N);                                                               \
	}                                                                                          \
	NOINLINE unsigned middle_##N(unsigned x)                                                   \
	{                                                                                          \
		volatile unsigned room[8 * N];                                                     \
		room[x % (8 * N)] = x;                                                             \
		return keep(hot_##N(room[x % (8 * N)])) + 1;                                       \
	}                                                                                          \
	void *worker_##N(void *arg)                                                                \
	{                                                                                          \
		unsigned x = N;                                                                    \
		pthread_setname_np(pthread_self(), "worker-" #N);                                  \
		while (target_thread_ms() < wanted_ms)                                             \
			x = keep(middle_##N(x));                                                   \
		return x == 1 ? arg : NULL;                                                        \
	}

void *worker_1(void *arg);
void *worker_2(void *arg);
void *worker_3(void *arg);
void *worker_4(void *arg);
WORKER(1)
WORKER(2)
WORKER(3)
WORKER(4)

int main(int argc, char **argv)
{
	static void *(*const workers[])(void *) = {worker_1, worker_2, worker_3, worker_4};
	pthread_t threads[4];

	wanted_ms = target_ms(argc, argv, 300);
	for (int i = 0; i < 4; i++) {
		if (pthread_create(&threads[i], NULL, workers[i], NULL) != 0)
			return 1;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
