/* steady SECONDS: four threads, each busy 64 frames deep in one place: the case in which a sample
 * should cost least. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static double seconds;

static double cpu_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned spin(void)
{
	unsigned x = 1;
	for (int i = 0; i < 100000000; i++)
		__asm__ volatile("" : "+r"(x));
	return x;
}

__attribute__((noinline)) static unsigned down(int depth)
{
	unsigned x = 0;
	if (depth) {
		x = down(depth - 1);
		__asm__ volatile("" : "+r"(x)); /* a call, not a jump */
		return x + 1;
	}
	while (cpu_time() < seconds)
		x += spin();
	return x;
}

static void *run(void *arg)
{
	(void)arg;
	return (void *)(size_t)down(60);
}

int main(int argc, char **argv)
{
	pthread_t t[4];
	seconds = argc == 2 ? atof(argv[1]) : 3;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, run, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return 0;
}
