/* stackpulse/process.h: launching, descendants, ends. */
#define _GNU_SOURCE
#include "stackpulse/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static char true_word[] = "true";
static char *const true_argv[] = {true_word, NULL};

static int end_of(struct sp_launch *l)
{
	int status = -1;
	struct sp_err err;
	while (sp_launch_wait(l, true, &status, &err) == 0)
		;
	return status;
}

static void test_launch(void)
{
	struct sp_err err = {0};
	struct sp_launch *l = NULL;
	char name[] = "sh", option[] = "-c", script[] = "exit $((A + B + ${HOME+100}0))";
	char *sh[] = {name, option, script, NULL};
	const char *env[] = {"A=3", "B=4", "HOME", NULL};
	struct sp_launch_options o = {.env = env};
	setenv("A", "50", 1);
	tap_ok(sp_launch_new(&l, sh, &o, &err) == 0, "a shell is launched");
	int status = -1;
	tap_ok(sp_launch_is_suspended(l) && sp_launch_wait(l, false, &status, &err) == 0,
	       "it waits");
	tap_ok(kill(sp_launch_pid(l), 0) == 0, "its pid is there already");
	tap_eq(sp_launch_resume(l, &err), 0, "it is let go");
	status = end_of(l);
	tap_ok(WIFEXITED(status), "it ends by itself");
	tap_eq(WEXITSTATUS(status), 7, "it had our environment: replaced, added, removed");
	tap_eq(end_of(l), status, "its status can be had again");
	tap_eq(sp_launch_resume(l, &err), SP_ERR_INVALID, "it is let go once");
	sp_launch_free(l);

	char nowhere[] = "/nonexistent/program";
	char *none[] = {nowhere, NULL};
	tap_eq(sp_launch_new(&l, none, NULL, &err), 0, "what can't be run is launched too");
	tap_eq(sp_launch_resume(l, &err), SP_ERR_IO, "and fails when it is let go");
	tap_eq(err.os, ENOENT, "with exec's errno");
	tap_ok(strstr(err.msg, "/nonexistent/program") != NULL, "and its name");
	tap_ok(waitpid(sp_launch_pid(l), NULL, WNOHANG) == -1 && errno == ECHILD, "it is reaped");
	sp_launch_free(l);

	const char *path_env[] = {"PATH=/nonexistent", NULL};
	o = (struct sp_launch_options){.env = path_env};
	tap_eq(sp_launch_new(&l, true_argv, &o, &err), 0, "another PATH");
	tap_eq(sp_launch_resume(l, &err), SP_ERR_IO, "is the one that is searched");
	sp_launch_free(l);
	char *const empty[] = {NULL};
	tap_eq(sp_launch_new(&l, empty, NULL, &err), SP_ERR_INVALID, "no command is refused");
}

static int refuse(void *arg)
{
	errno = *(int *)arg;
	return -1;
}

static void test_child_hook(void)
{
	struct sp_err err = {0};
	struct sp_launch *l;
	int os = ENOTTY;
	struct sp_launch_options o = {.in_child = refuse, .arg = &os};
	tap_eq(sp_launch_new(&l, true_argv, &o, &err), 0, "a hook in the child");
	tap_eq(sp_launch_resume(l, &err), SP_ERR_IO, "can refuse");
	tap_eq(err.os, ENOTTY, "with its errno");
	sp_launch_free(l);
}

static void test_cancel(void)
{
	struct sp_err err = {0};
	struct sp_launch *first = NULL, *second = NULL;
	tap_ok(sp_launch_new(&first, true_argv, NULL, &err) == 0 &&
		       sp_launch_new(&second, true_argv, NULL, &err) == 0,
	       "two wait");
	int32_t pid = sp_launch_pid(first);
	sp_launch_free(first);
	tap_ok(waitpid(pid, NULL, WNOHANG) == -1 && errno == ECHILD,
	       "the first is ended and reaped while its brother still waits");
	kill(sp_launch_pid(second), SIGKILL);
	tap_eq(sp_launch_resume(second, &err), 0, "one that something killed");
	int status = end_of(second);
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "shows it in its status");
	sp_launch_free(second);
	sp_launch_free(NULL);
}

/* A family: ours -> child -> two grandchildren. Each says on the pipe when it is there. */
static void test_descendants(void)
{
	int up[2];
	struct sp_err err = {0};
	struct sp_process_edge *e = NULL;
	size_t n = 0;
	char ready[3];
	tap_ok(pipe(up) == 0, "a pipe");
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 2; i++)
			if (fork() == 0)
				break;
		if (write(up[1], "r", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	for (size_t got = 0; got < sizeof ready;) {
		ssize_t r = read(up[0], ready + got, sizeof ready - got);
		got += r > 0 ? (size_t)r : 0;
	}
	tap_eq(sp_process_descendants(getpid(), &e, &n, &err), 0, "our descendants");
	tap_eq((int)n, 3, "are three");
	tap_ok(n == 3 && e[0].parent == getpid() && e[0].child == child, "the child comes first");
	tap_ok(n == 3 && e[1].parent == child && e[2].parent == child && e[1].child < e[2].child,
	       "then its children, by pid");

	struct sp_exit_watch w, no_pidfd;
	tap_eq(sp_exit_watch_open(&w, child, &err), 0, "the child is watched");
	no_pidfd = w;
	no_pidfd.fd = -1;
	tap_eq(sp_exit_watch_wait(&w, 0, &err), 0, "it runs");
	tap_eq(sp_exit_watch_wait(&no_pidfd, 30, &err), 0, "it runs, by /proc too");
	tap_ok(sp_process_exists(child), "it exists");
	for (size_t i = 1; i < n; i++)
		sp_process_kill(e[i].child, NULL);
	free(e);
	tap_eq(sp_process_kill(child, &err), 0, "it is killed");
	tap_eq(sp_exit_watch_wait(&w, -1, &err), 1, "its end is seen, as a zombie");
	tap_eq(sp_exit_watch_wait(&no_pidfd, -1, &err), 1, "without a pidfd too");
	tap_ok(!sp_process_exists(child), "a zombie does not exist");
	waitpid(child, NULL, 0);
	tap_eq(sp_exit_watch_wait(&w, 0, &err), 1, "the end stays");
	sp_exit_watch_close(&w);
	tap_eq(sp_exit_watch_open(&w, child, &err), SP_ERR_GONE, "it can't be watched any more");
	tap_eq(sp_process_interrupt(child, &err), SP_ERR_GONE, "nor interrupted");
	n = 9;
	tap_ok(sp_process_descendants(child, &e, &n, &err) == 0 && n == 0, "it has no descendants");
	free(e);
}

static void test_refusals(void)
{
	struct sp_err err = {0};
	struct sp_exit_watch w;
	struct sp_process_edge *e;
	size_t n;
	tap_eq(sp_process_kill(0, &err), SP_ERR_INVALID, "0 is no process: nothing is killed");
	tap_eq(sp_process_kill(-1, &err), SP_ERR_INVALID, "-1 is no process");
	tap_eq(sp_process_interrupt(-1, &err), SP_ERR_INVALID, "nor to be interrupted");
	tap_eq(sp_exit_watch_open(&w, 0, &err), SP_ERR_INVALID, "nor to be watched");
	tap_eq(sp_process_descendants(0, &e, &n, &err), SP_ERR_INVALID, "nor to have children");
	tap_ok(!sp_process_exists(0) && !sp_process_exists(-1), "they do not exist");
}

int main(void)
{
	test_launch();
	test_child_hook();
	test_cancel();
	test_descendants();
	test_refusals();
	return tap_done();
}
