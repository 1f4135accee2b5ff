#define _GNU_SOURCE
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "sudo.h"

/* The sibling's path, when it lies in the folder of `of`. */
static bool beside(const char *of, const char *tool, char out[PATH_MAX])
{
	const char *slash = strrchr(of, '/');
	if (!slash)
		return false;
	int n = snprintf(out, PATH_MAX, "%.*s/%s", (int)(slash - of), of, tool);
	return n > 0 && n < PATH_MAX && access(out, X_OK) == 0;
}

static void find_stage(const char *argv0, const char *tool, char out[PATH_MAX])
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	if (!beside(self, tool, out) && !beside(argv0, tool, out))
		snprintf(out, PATH_MAX, "%s", tool); /* PATH */
}

static pid_t run(char *const *argv, int in, int out)
{
	/* Of the stage until it catches or ignores them: on a busy machine we may record by then. */
	sigset_t ends, before;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, &before);
	pid_t pid = fork();
	if (pid != 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return pid;
	}
	if (dup2(in, STDIN_FILENO) < 0 || (out >= 0 && dup2(out, STDOUT_FILENO) < 0))
		_exit(127);
	signal(SIGPIPE, SIG_DFL);
	/* What goes to a whole process group - a terminal that is closed, timeout(1) - is for us:
	 * the stages end with their input. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN); /* until the stage catches it */
	sigprocmask(SIG_SETMASK, &before, NULL);
	execvp(argv[0], argv);
	fprintf(stderr, "sp-capture: cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int start_pipeline(struct cap_sink *k, const char *argv0, struct sp_err *err)
{
	char unwind[PATH_MAX], spool[PATH_MAX];
	int a[2], b[2];
	find_stage(argv0, "sp-unwind", unwind);
	find_stage(argv0, "sp-spool", spool);
	if (pipe2(a, O_CLOEXEC) < 0)
		return sp_err_errno(err, "cannot run the pipeline: pipe");
	if (pipe2(b, O_CLOEXEC) < 0) {
		close(a[0]);
		close(a[1]);
		return sp_err_errno(err, "cannot run the pipeline: pipe");
	}
	sp_pipe_enlarge(a[1]);
	sp_pipe_enlarge(b[1]);
	char out[] = "-o", quiet[] = "-q";
	char *file = strdup(k->file);
	char *args1[] = {unwind, sp_verbosity < 0 ? quiet : NULL, NULL};
	char *args2[] = {spool, out, file, sp_verbosity < 0 ? quiet : NULL, NULL};
	k->stages[0] = file ? run(args1, a[0], b[1]) : -1;
	k->stages[1] = file ? run(args2, b[0], -1) : -1;
	int os = errno;
	free(file);
	close(a[0]);
	close(b[0]);
	close(b[1]);
	k->fd = a[1];
	k->name = "the pipe to sp-unwind";
	if (k->stages[0] > 0 && k->stages[1] > 0)
		return 0;
	errno = os;
	return sp_err_errno(err, "cannot run the pipeline: fork");
}

/* What sp-spool would refuse too, but before the command runs. */
static int check_place(const char *file, struct sp_err *err)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(file, '/');
	struct stat st;
	snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
	if (stat(file, &st) == 0 && S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (stat(file, &st) == 0 && !S_ISREG(st.st_mode))
		return 0; /* a pipe or device is written to, its folder is not */
	else if (access(dir, W_OK | X_OK) == 0)
		return 0;
	return sp_err_errno(err, "cannot create %s", file);
}

int cap_sink_open(struct cap_sink *k, const struct cap_options *o, const char *argv0,
		  struct sp_err *err)
{
	*k = (struct cap_sink){.fd = STDOUT_FILENO, .name = "standard output", .file = o->output};
	if (o->output_kind == CAP_TO_SPOOL) {
		int rc = check_place(k->file, err);
		return rc < 0 ? rc : start_pipeline(k, argv0, err);
	}
	if (o->output_kind == CAP_TO_STDOUT) {
		sp_pipe_enlarge(k->fd);
		return 0;
	}
	/* Stack bytes of others' programs are in it: for the owner's eyes. */
	k->fd = open(o->output, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
	k->name = o->output;
	return k->fd < 0 ? sp_err_errno(err, "cannot create %s", o->output) : 0;
}

static void give_to_user(const char *file)
{
	int fd = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		cap_sudo_give(fd, file);
	if (fd >= 0)
		close(fd);
}

/* Send a stage a signal, and wait until it has ended; with WUNTRACED, or until it has stopped. */
static void signal_stage(pid_t *stage, int sig, int options)
{
	int status;
	pid_t rc;
	if (*stage <= 0)
		return;
	kill(*stage, sig);
	while ((rc = waitpid(*stage, &status, options)) < 0 && errno == EINTR)
		;
	if (rc < 0 || !WIFSTOPPED(status))
		*stage = 0;
}

void cap_sink_drop_stages(struct cap_sink *k)
{
	/* They ignore SIGTERM. The last one ends first, or it finds its input at an end; meanwhile the
	 * first one stands still, or it finds its reader gone. */
	signal_stage(&k->stages[0], SIGSTOP, WUNTRACED);
	signal_stage(&k->stages[1], SIGKILL, 0);
	signal_stage(&k->stages[0], SIGKILL, 0);
	k->file = NULL; /* not ours: it is as it was */
}

int cap_sink_close(struct cap_sink *k)
{
	static const char *const names[] = {"sp-unwind", "sp-spool"};
	int worst = 0;
	close(k->fd);
	for (int i = 0; i < 2; i++) {
		int status = 0;
		if (k->stages[i] <= 0)
			continue;
		while (waitpid(k->stages[i], &status, 0) < 0 && errno == EINTR)
			;
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE)
			sp_warn("%s was ended by signal %d (%s)", names[i], WTERMSIG(status),
				strsignal(WTERMSIG(status)));
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (code > SP_EXIT_PARTIAL)
			code = SP_EXIT_FAILED;
		if (code == SP_EXIT_FAILED || (worst != SP_EXIT_FAILED && code > worst))
			worst = code;
	}
	if (k->file)
		give_to_user(k->file);
	return worst;
}
