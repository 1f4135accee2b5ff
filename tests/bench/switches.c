/* What sampling and switching cost the program that is looked at, told by itself.
 *
 *   switches pingpong MS   two threads on one CPU, two pipes: ns per switch
 *   switches gaps MS       a loop that looks at the clock: the median of its gaps beyond 2 us, in ns */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CPU time of the process: on a busy machine that of others does not count. */
static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int pipes[2][2];

static void *echo(void *arg)
{
	char c;
	while (read(pipes[0][0], &c, 1) == 1 && c == 'x')
		if (write(pipes[1][1], &c, 1) != 1)
			break;
	return arg;
}

static int pingpong(uint64_t ms)
{
	cpu_set_t one;
	pthread_t t;
	char c = 'x';
	unsigned long n = 0;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof one, &one);
	if (pipe(pipes[0]) || pipe(pipes[1]) || pthread_create(&t, NULL, echo, NULL))
		return 1;
	uint64_t end = now_ns() + ms * 1000000, from = cpu_ns();
	while (now_ns() < end)
		for (int i = 0; i < 100; i++, n++)
			if (write(pipes[0][1], &c, 1) != 1 || read(pipes[1][0], &c, 1) != 1)
				return 1;
	printf("%.1f\n", (double)(cpu_ns() - from) / (2.0 * (double)n));
	c = 'q';
	return write(pipes[0][1], &c, 1) != 1 || pthread_join(t, NULL);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static int gaps(uint64_t ms)
{
	static uint64_t seen[200000];
	size_t n = 0;
	uint64_t last = now_ns(), end = last + ms * 1000000;
	while (last < end) {
		uint64_t now = now_ns();
		if (now - last > 2000 && n < sizeof seen / sizeof *seen)
			seen[n++] = now - last;
		last = now;
	}
	qsort(seen, n, sizeof *seen, by_value);
	printf("%llu\n", n ? (unsigned long long)seen[n / 2] : 0ull);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t ms = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	if (ms && !strcmp(argv[1], "pingpong"))
		return pingpong(ms);
	if (ms && !strcmp(argv[1], "gaps"))
		return gaps(ms);
	return 2;
}
