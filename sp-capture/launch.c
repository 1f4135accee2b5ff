#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define N_SIGNALS (sizeof signals / sizeof *signals)
static struct sigaction born_with[N_SIGNALS];
static sigset_t born_mask;

void cap_launch_prepare(void)
{
	for (size_t i = 0; i < N_SIGNALS; i++)
		sigaction(signals[i], NULL, &born_with[i]);
	sigprocmask(SIG_SETMASK, NULL, &born_mask);
}

static bool id_of(const char *name, unsigned *out)
{
	const char *text = getenv(name);
	char *end;
	if (!text || !*text)
		return false;
	unsigned long v = strtoul(text, &end, 10);
	*out = (unsigned)v;
	return !*end && v <= UINT32_MAX - 1;
}

/* Back to the user who called sudo. */
static int become_user(void)
{
	unsigned uid, gid;
	if (geteuid() != 0 || !id_of("SUDO_UID", &uid) || !id_of("SUDO_GID", &gid) || uid == 0)
		return 0;
	const struct passwd *pw = getpwuid(uid);
	if ((pw ? initgroups(pw->pw_name, gid) : setgroups(1, &gid)) < 0 || setgid(gid) < 0 ||
	    setuid(uid) < 0)
		return -1;
	return 0;
}

static _Noreturn void child(char *const *command, int go, int said, bool stdout_to_stderr)
{
	char byte;
	ssize_t n;
	for (size_t i = 0; i < N_SIGNALS; i++)
		sigaction(signals[i], &born_with[i], NULL);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &born_mask, NULL);
	do
		n = read(go, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0); /* cancelled */
	if ((stdout_to_stderr && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) || become_user() < 0)
		goto out;
	execvp(command[0], command);
out:;
	int os = errno;
	n = write(said, &os, sizeof os);
	_exit(n == sizeof os ? 127 : 126);
}

int cap_launch_start(struct cap_launch *l, char *const *command, bool stdout_to_stderr,
		     struct sp_err *err)
{
	int go[2], said[2];
	*l = (struct cap_launch){.pid = -1, .go_fd = -1, .said_fd = -1};
	if (pipe2(go, O_CLOEXEC) < 0)
		return sp_err_errno(err, "cannot launch %s: pipe", command[0]);
	if (pipe2(said, O_CLOEXEC) < 0) {
		close(go[0]);
		close(go[1]);
		return sp_err_errno(err, "cannot launch %s: pipe", command[0]);
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(go[1]); /* or it would keep itself waiting when we are gone */
		child(command, go[0], said[1], stdout_to_stderr);
	}
	close(go[0]);
	close(said[1]);
	l->go_fd = go[1];
	l->said_fd = said[0];
	if (pid < 0) {
		cap_launch_cancel(l);
		return sp_err_errno(err, "cannot launch %s: fork", command[0]);
	}
	l->pid = pid;
	return 0;
}

static void close_fds(struct cap_launch *l)
{
	if (l->go_fd >= 0)
		close(l->go_fd);
	if (l->said_fd >= 0)
		close(l->said_fd);
	l->go_fd = l->said_fd = -1;
}

int cap_launch_go(struct cap_launch *l, const char *name, struct sp_err *err)
{
	int os = 0;
	ssize_t n = write(l->go_fd, "", 1);
	while (n == 1) {
		n = read(l->said_fd, &os, sizeof os);
		if (n >= 0 || errno != EINTR)
			break;
		n = 1;
	}
	close_fds(l);
	if (n <= 0)
		return 0; /* exec closed the pipe; an early death shows in its status */
	cap_launch_wait(l, true);
	return sp_err_set(err, SP_ERR_IO, os, "cannot launch %s: %s", name, strerror(os));
}

bool cap_launch_wait(struct cap_launch *l, bool block)
{
	int status;
	if (l->pid <= 0 || l->ended)
		return l->ended;
	if (waitpid(l->pid, &status, block ? 0 : WNOHANG) == l->pid) {
		l->ended = true;
		l->status = status;
	}
	return l->ended;
}

void cap_launch_cancel(struct cap_launch *l)
{
	bool waits = l->go_fd >= 0;
	close_fds(l);
	while (waits && l->pid > 0 && !cap_launch_wait(l, true))
		;
}
