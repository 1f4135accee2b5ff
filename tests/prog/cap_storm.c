/* Forks and execs itself as often as the argument says, one after the other; the child ends at
 * once. Prints how many there were. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	volatile long n = argc > 1 ? atol(argv[1]) : 1000, done = 0; /* vfork returns twice */
	if (n < 0)
		return 0;
	for (volatile long i = 0; i < n; i++) {
		pid_t pid = vfork();
		if (pid == 0) {
			execl(argv[0], argv[0], "-1", (char *)NULL);
			_exit(127);
		}
		int status;
		done += pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
	}
	printf("%ld\n", done);
	return 0;
}
