/* cpu FILE COMMAND [ARG…]: runs a command and writes to FILE what it cost, with all descendants,
 * those that nobody waited for too: user and system CPU seconds, wall seconds, the largest
 * resident set in KiB. Ends as the command did. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double start = now(), wall = 0;
	int status = 1, s;
	struct rusage use;
	FILE *out;
	pid_t child, pid;

	if (argc < 3)
		return 2;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	child = fork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	while ((pid = wait(&s)) > 0 || errno == EINTR) {
		if (pid == child) {
			status = WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
			wall = now() - start;
		}
	}
	getrusage(RUSAGE_CHILDREN, &use);
	out = fopen(argv[1], "w");
	if (!out)
		return 1;
	fprintf(out, "%.6f %.6f %.6f %ld\n", seconds(use.ru_utime), seconds(use.ru_stime), wall,
		use.ru_maxrss);
	return fclose(out) == 0 ? status : 1;
}
