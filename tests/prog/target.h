/* What the target programs share. They spend a fixed amount of CPU time, so that the number of
 * samples does not depend on the machine's load. */
#ifndef TARGET_H
#define TARGET_H

#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
#if defined(__GNUC__) && !defined(__clang__)
#undef NOINLINE
#define NOINLINE __attribute__((noipa))
#endif

/* The value, and a promise to the compiler that it may have been looked at: no tail calls. */
static inline unsigned keep(unsigned x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

/* CPU milliseconds of the whole process, of this thread. */
static inline unsigned target_clock_ms(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (unsigned)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

static inline unsigned target_cpu_ms(void)
{
	return target_clock_ms(CLOCK_PROCESS_CPUTIME_ID);
}

static inline unsigned target_thread_ms(void)
{
	return target_clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

static inline unsigned target_ms(int argc, char **argv, unsigned usual)
{
	return argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : usual;
}

#endif
