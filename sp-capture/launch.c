#define _GNU_SOURCE
#include "launch.h"

#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "sudo.h"

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ};
#define N_SIGNALS (sizeof signals / sizeof *signals)
static struct sigaction born_with[N_SIGNALS];
static sigset_t born_mask;

void cap_launch_prepare(void)
{
	for (size_t i = 0; i < N_SIGNALS; i++)
		sigaction(signals[i], NULL, &born_with[i]);
	sigprocmask(SIG_SETMASK, NULL, &born_mask);
}

/* Back to the user who called sudo. */
static int become_user(void)
{
	uint32_t uid, gid;
	if (!cap_sudo_user(&uid, &gid) || gid == CAP_NO_GID)
		return 0;
	const struct passwd *pw = getpwuid(uid);
	if ((pw ? initgroups(pw->pw_name, gid) : setgroups(1, &gid)) < 0 || setgid(gid) < 0 ||
	    setuid(uid) < 0)
		return -1;
	return 0;
}

static int in_child(void *arg)
{
	const bool *stdout_to_stderr = arg;
	for (size_t i = 0; i < N_SIGNALS; i++)
		sigaction(signals[i], &born_with[i], NULL);
	sigprocmask(SIG_SETMASK, &born_mask, NULL);
	if (*stdout_to_stderr && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return -1;
	return become_user();
}

int cap_launch_start(struct cap_launch *l, char *const *command, bool stdout_to_stderr,
		     struct sp_err *err)
{
	struct sp_launch_options o = {.in_child = in_child, .arg = &stdout_to_stderr};
	*l = (struct cap_launch){.pid = -1};
	int rc = sp_launch_new(&l->child, command, &o, err);
	if (rc >= 0)
		l->pid = sp_launch_pid(l->child);
	return rc;
}

bool cap_launch_is_suspended(const struct cap_launch *l)
{
	return l->child && sp_launch_is_suspended(l->child);
}

int cap_launch_go(struct cap_launch *l, struct sp_err *err)
{
	return sp_launch_resume(l->child, err);
}

bool cap_launch_wait(struct cap_launch *l, bool block)
{
	if (l->child && !l->ended)
		l->ended = sp_launch_wait(l->child, block, &l->status, NULL) > 0;
	return l->ended;
}

void cap_launch_close(struct cap_launch *l)
{
	sp_launch_free(l->child);
	l->child = NULL;
}
