/* deep [CPU SECONDS]: eight functions that call one another 60 to 100 levels down, without frame
 * pointers, one of them with a frame of variable size. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noipa))

static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned keep(unsigned x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

unsigned level(unsigned which, unsigned depth, unsigned x);

NOINLINE unsigned work(unsigned x)
{
	for (int i = 0; i < 20000; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

#define LEVEL(N, ROOM)                                                                             \
	NOINLINE unsigned level_##N(unsigned depth, unsigned x)                                    \
	{                                                                                          \
		volatile char room[ROOM];                                                          \
		room[x % (ROOM)] = (char)x;                                                        \
		return keep(level(x + N, depth - 1, x + (unsigned)room[x % (ROOM)])) + 1;          \
	}

#define DECLARE(N) unsigned level_##N(unsigned depth, unsigned x);
DECLARE(0)
DECLARE(1) DECLARE(2) DECLARE(3) DECLARE(4) DECLARE(5) DECLARE(6) DECLARE(7) LEVEL(0, 16)
	LEVEL(1, 48) LEVEL(2, 80) LEVEL(3, 112) LEVEL(4, 160) LEVEL(5, 32 + x % 64) LEVEL(6, 240)
		LEVEL(7, 8)

			NOINLINE unsigned level(unsigned which, unsigned depth, unsigned x)
{
	static unsigned (*const levels[])(unsigned, unsigned) = {
		level_0, level_1, level_2, level_3, level_4, level_5, level_6, level_7,
	};
	if (depth == 0)
		return work(x);
	return keep(levels[which % 8](depth, x)) + 1;
}

int main(int argc, char **argv)
{
	double wanted = argc > 1 ? atof(argv[1]) : 2;
	unsigned x = 1;

	while (cpu_seconds() < wanted)
		x = level(x, 30 + x % 20, x * 7 + 1);
	return x == 0;
}
