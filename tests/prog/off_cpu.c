/* Waits whose lengths, states and wakers are known. Prints what it did, times of CLOCK_MONOTONIC in
 * ns; a line for each wait, the innermost function that is on the stack meanwhile first:
 *
 *   naps N                nap TID FROM TO: sleeps of 10 ms
 *   convoy N              enter TID FROM TO MAKER: three threads at one lock, which each holds for
 *                         2 ms; MAKER had it before
 *   pingpong N            pong TID FROM TO OTHER: two threads, two pipes
 *   reads FILE N          block TID FROM TO: reads past the page cache; exits 77 where that cannot be
 *   both MS               both TID FROM TO CPU_NS: sleeps and work in turns
 *   born MS               the same by three threads, one born a fifth of that after the other
 *   storm MS              nothing: two threads, two pipes, as fast as it goes
 *   deadlock N            nothing, for ever: two threads that wait for each other */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "target.h"

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static void sleep_ns(long ns)
{
	struct timespec t = {.tv_nsec = ns};
	nanosleep(&t, NULL);
}

static void tell(const char *what, uint64_t from, uint64_t to, uint64_t more)
{
	printf("%s %d %llu %llu %llu\n", what, (int)gettid(), (unsigned long long)from,
	       (unsigned long long)to, (unsigned long long)more);
}

NOINLINE static void nap(void)
{
	uint64_t from = now_ns();
	sleep_ns(10000000);
	tell("nap", from, now_ns(), 0);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_there;
static int maker, rounds;

NOINLINE static void enter(void)
{
	uint64_t from = now_ns();
	pthread_mutex_lock(&lock);
	uint64_t to = now_ns();
	int before = maker;
	sleep_ns(2000000);
	maker = (int)gettid();
	pthread_mutex_unlock(&lock);
	tell("enter", from, to, (uint64_t)before);
	sleep_ns(100000); /* or the lock is taken again before the next one runs */
}

static void *in_convoy(void *arg)
{
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < rounds; i++)
		enter();
	return arg;
}

static int pipes[2][2], tids[2];

NOINLINE static void pong(int me)
{
	char c = 'x';
	uint64_t from = now_ns();
	if (read(pipes[me][0], &c, 1) != 1)
		exit(1);
	uint64_t to = now_ns();
	tell("pong", from, to, (uint64_t)tids[!me]);
	/* The other one is asleep by the time that it is woken: what is woken otherwise has not
	 * waited at all. */
	sleep_ns(200000);
	if (write(pipes[!me][1], &c, 1) != 1)
		exit(1);
}

static void *in_pingpong(void *arg)
{
	int me = (int)(intptr_t)arg;
	tids[me] = (int)gettid();
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < rounds; i++)
		pong(me);
	return NULL;
}

static void *in_storm(void *arg)
{
	int me = (int)(intptr_t)arg;
	uint64_t end = now_ns() + (uint64_t)rounds * 1000000;
	char c = 'x';
	while (now_ns() < end && read(pipes[me][0], &c, 1) == 1 && write(pipes[!me][1], &c, 1) == 1)
		;
	close(pipes[!me][1]);
	return NULL;
}

static int run_threads(int n, void *(*run)(void *))
{
	pthread_t t[3];
	pthread_barrier_init(&all_there, NULL, (unsigned)n);
	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, run, (void *)(intptr_t)i))
			return 1;
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return 0;
}

NOINLINE static void block(int fd, void *to, off_t at)
{
	uint64_t from = now_ns();
	if (pread(fd, to, 4096, at) != 4096)
		exit(77);
	tell("block", from, now_ns(), 0);
}

static int reads(const char *file)
{
	int fd = open(file, O_RDONLY | O_DIRECT);
	void *to;
	if (fd < 0 || posix_memalign(&to, 4096, 4096))
		return 77;
	for (int i = 0; i < rounds; i++)
		block(fd, to, (off_t)i * 4096);
	return 0;
}

NOINLINE static void work(unsigned ms)
{
	unsigned end = target_thread_ms() + ms, x = 1;
	while (target_thread_ms() < end)
		for (unsigned i = 0; i < 10000; i++)
			x = keep(x * 1664525u + 1013904223u);
}

static void both(unsigned ms)
{
	uint64_t from = now_ns(), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	while (now_ns() - from < ms * UINT64_C(1000000)) {
		work(30);
		sleep_ns(20000000);
	}
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	tell("both", from, now_ns(), cpu);
}

static void *in_both(void *arg)
{
	both((unsigned)rounds);
	return arg;
}

static int born(void)
{
	pthread_t t[3];
	for (int i = 0; i < 3; i++) {
		sleep_ns(rounds * 200000L);
		if (pthread_create(&t[i], NULL, in_both, NULL))
			return 1;
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return 0;
}

static pthread_mutex_t two[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

NOINLINE static void stuck(int me)
{
	pthread_mutex_lock(&two[me]);
	pthread_barrier_wait(&all_there);
	pthread_mutex_lock(&two[!me]);
	keep(0);
}

static void *in_deadlock(void *arg)
{
	stuck((int)(intptr_t)arg);
	return arg;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	static char out[1 << 20]; /* writing is a wait too */
	setvbuf(stdout, out, _IOFBF, sizeof out);
	rounds = argc > 2 ? atoi(argv[argc - 1]) : 0;
	if (!strcmp(what, "naps")) {
		for (int i = 0; i < rounds; i++)
			nap();
	} else if (!strcmp(what, "convoy")) {
		return run_threads(3, in_convoy);
	} else if (!strcmp(what, "pingpong") || !strcmp(what, "storm")) {
		if (pipe(pipes[0]) || pipe(pipes[1]) || write(pipes[0][1], "x", 1) != 1)
			return 1;
		signal(SIGPIPE, SIG_IGN);
		return run_threads(2, what[0] == 's' ? in_storm : in_pingpong);
	} else if (!strcmp(what, "reads")) {
		return reads(argv[2]);
	} else if (!strcmp(what, "born")) {
		return born();
	} else if (!strcmp(what, "deadlock")) {
		return run_threads(2, in_deadlock);
	} else if (!strcmp(what, "both")) {
		both((unsigned)rounds);
	} else {
		return 2;
	}
	return 0;
}
