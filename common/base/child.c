#define _GNU_SOURCE
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static void leave_the_tool(void)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT};
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	signal(SIGALRM, SIG_DFL);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		if (null < 0 || dup2(null, i) < 0)
			close(i);
}

int sp_child_start(void (*serve)(int fd))
{
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		leave_the_tool();
		if (dup2(fds[1], 3) < 0)
			_exit(1);
		close_range(4, ~0u, 0);
		serve(3);
		_exit(0);
	}
	int error = errno;
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		errno = error;
		return -1;
	}
	return fds[0];
}
