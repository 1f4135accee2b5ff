#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "stackpulse/process.h"

struct sp_launch {
	pid_t pid;
	int fd; /* owned: our byte lets it run, exec's errno comes back; -1 = it was let go */
	bool ended;
	int status; /* of waitpid, once ended */
	char *name; /* owned */
};

/* Done in the parent: the child may share memory with threads that held the allocator's lock. */
static char **make_env(const char *const *changes)
{
	size_t n = 0, n_changes = 0, to = 0;
	while (environ && environ[n])
		n++;
	while (changes[n_changes])
		n_changes++;
	char **env = calloc(n + n_changes + 1, sizeof *env);
	for (size_t i = 0; env && i < n; i++) {
		bool changed = false;
		size_t len = strcspn(environ[i], "=");
		for (size_t j = 0; j < n_changes; j++)
			changed |= strcspn(changes[j], "=") == len &&
				   !strncmp(changes[j], environ[i], len);
		if (!changed)
			env[to++] = environ[i];
	}
	for (size_t j = 0; env && j < n_changes; j++)
		if (strchr(changes[j], '='))
			memcpy(&env[to++], &changes[j], sizeof *env);
	return env;
}

static _Noreturn void child(const struct sp_launch *l, char *const *argv, char **env, int fd,
			    const struct sp_launch_options *o)
{
	char byte;
	ssize_t n;
	close(l->fd); /* or it would keep itself waiting when we are gone */
	signal(SIGPIPE, SIG_DFL);
	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0); /* the parent has ended */
	if (env)
		environ = env;
	if (!o || !o->in_child || o->in_child(o->arg) >= 0)
		execvp(argv[0], argv);
	int os = errno;
	n = send(fd, &os, sizeof os, MSG_NOSIGNAL);
	_exit(n == sizeof os ? 127 : 126);
}

int sp_launch_new(struct sp_launch **out, char *const *argv,
		  const struct sp_launch_options *options, struct sp_err *err)
{
	int fds[2], rc = 0;
	if (!argv || !argv[0])
		return sp_err_set(err, SP_ERR_INVALID, EINVAL,
				  "cannot launch: there is no command");
	bool has_env = options && options->env;
	struct sp_launch *l = calloc(1, sizeof *l);
	char **env = has_env ? make_env(options->env) : NULL;
	char *name = strdup(argv[0]);
	if (!l || !name || (has_env && !env)) {
		free(l);
		free(env);
		free(name);
		return sp_err_nomem(err);
	}
	*l = (struct sp_launch){.pid = -1, .fd = -1, .name = name};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		rc = sp_err_errno(err, "cannot launch %s: socketpair", name);
	} else {
		l->fd = fds[0];
		l->pid = fork();
		if (l->pid == 0)
			child(l, argv, env, fds[1], options);
		if (l->pid < 0)
			rc = sp_err_errno(err, "cannot launch %s: fork", name);
		close(fds[1]);
	}
	free(env);
	if (rc < 0)
		sp_launch_free(l);
	else
		*out = l;
	return rc;
}

int32_t sp_launch_pid(const struct sp_launch *l)
{
	return l->pid;
}

bool sp_launch_is_suspended(const struct sp_launch *l)
{
	return l->fd >= 0;
}

static void close_fd(struct sp_launch *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static int reap(struct sp_launch *l, int flags)
{
	int status = 0;
	pid_t pid = l->ended ? 0 : waitpid(l->pid, &status, flags);
	if (pid == l->pid) {
		l->ended = true;
		l->status = status;
	}
	return pid < 0 && errno != EINTR ? -1 : 0;
}

int sp_launch_resume(struct sp_launch *l, struct sp_err *err)
{
	int os = 0;
	if (l->fd < 0)
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot launch %s: it runs already",
				  l->name);
	ssize_t n = send(l->fd, "", 1, MSG_NOSIGNAL); /* fails when something killed it */
	if (n == 1)
		do
			n = recv(l->fd, &os, sizeof os, 0);
		while (n < 0 && errno == EINTR);
	close_fd(l);
	if (n <= 0)
		return 0; /* exec closed the socket; an early death shows in its status */
	while (!l->ended && reap(l, 0) == 0)
		;
	return sp_err_set(err, SP_ERR_IO, os, "cannot launch %s: %s", l->name, strerror(os));
}

int sp_launch_wait(struct sp_launch *l, bool block, int *status, struct sp_err *err)
{
	if (reap(l, block ? 0 : WNOHANG) < 0)
		return sp_err_errno(err, "cannot wait for %s: waitpid", l->name);
	if (l->ended)
		*status = l->status;
	return l->ended;
}

void sp_launch_free(struct sp_launch *l)
{
	if (!l)
		return;
	/* Killed, not told: a brother that was forked later holds its socket open too. */
	bool waits = l->fd >= 0 && l->pid > 0 && !l->ended;
	close_fd(l);
	if (waits)
		kill(l->pid, SIGKILL);
	while (waits && !l->ended && reap(l, 0) == 0)
		;
	free(l->name);
	free(l);
}
