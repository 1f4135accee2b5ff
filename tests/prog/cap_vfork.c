/* A parent in vfork: it cannot be stopped while its child sleeps, for the seconds of the argument. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct timespec t = {.tv_sec = argc > 1 ? atoi(argv[1]) : 5};
	if (vfork() == 0) {
		nanosleep(&t, NULL);
		_exit(0);
	}
	for (;;)
		pause();
}
