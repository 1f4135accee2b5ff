#include "scope.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cli.h"
#include "tasks.h"

#define MAX_PIPES 64u     /* more stages than anybody writes */
#define MAX_ANCESTORS 32u /* up from us */

/* The pipe that a process has open as fd; false when that is none. */
static bool pipe_at(int32_t pid, int fd, struct cap_pipe *out)
{
	char path[40];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
	if (stat(path, &st) < 0 || !S_ISFIFO(st.st_mode))
		return false;
	*out = (struct cap_pipe){.dev = st.st_dev, .ino = st.st_ino};
	return true;
}

static bool is_known(const struct cap_scopes *s, const struct cap_pipe *p)
{
	for (size_t i = 0; i < s->n_pipes; i++)
		if (s->pipes[i].ino == p->ino && s->pipes[i].dev == p->dev)
			return true;
	return false;
}

/* Whether what the last stage writes to is the pipe of a larger command line that ours stands in:
 * then those who started us write there too. */
static bool is_outer(const struct cap_pipe *p)
{
	int32_t pid = (int32_t)getppid();
	for (unsigned i = 0; pid > 1 && i < MAX_ANCESTORS; i++) {
		struct cap_pipe theirs;
		struct sp_stat st;
		if (pipe_at(pid, STDOUT_FILENO, &theirs) && theirs.ino == p->ino &&
		    theirs.dev == p->dev)
			return true;
		pid = sp_stat_read(pid, pid, &st) ? st.ppid : 0;
	}
	return false;
}

static bool pipe_add(struct cap_scopes *s, const struct cap_pipe *p)
{
	if (s->n_pipes == MAX_PIPES || is_known(s, p))
		return false;
	struct cap_pipe *slot = SP_PUSH(&s->pipes, &s->n_pipes, &s->cap_pipes);
	if (slot)
		*slot = *p;
	return slot != NULL;
}

/* A stage: what it writes to belongs to the pipeline too. True when that is news. */
static bool stage_add(struct cap_scopes *s, int32_t pid)
{
	struct cap_pipe out;
	return pipe_at(pid, STDOUT_FILENO, &out) && !is_known(s, &out) && !is_outer(&out) &&
	       pipe_add(s, &out);
}

/* From pipe to reader to pipe, over all processes there are. */
static void chase(struct cap_scopes *s)
{
	struct reader {
		int32_t pid;
		struct cap_pipe in;
	} *readers = NULL;
	int32_t *pids = NULL;
	size_t n_pids = 0, cap_pids = 0, n = 0, cap = 0;
	sp_processes_list(&pids, &n_pids, &cap_pids, NULL);
	for (size_t i = 0; i < n_pids; i++) {
		struct cap_pipe in;
		struct reader *r = pipe_at(pids[i], STDIN_FILENO, &in)
					   ? SP_PUSH(&readers, &n, &cap)
					   : NULL;
		if (r)
			*r = (struct reader){.pid = pids[i], .in = in};
	}
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < n; i++)
			if (is_known(s, &readers[i].in) && stage_add(s, readers[i].pid))
				more = true;
	}
	free(readers);
	free(pids);
}

void cap_scopes_init(struct cap_scopes *s, const struct cap_options *o, int out_fd)
{
	struct stat st;
	*s = (struct cap_scopes){.o = o};
	if (fstat(out_fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return;
	pipe_add(s, &(struct cap_pipe){.dev = st.st_dev, .ino = st.st_ino});
	chase(s);
}

void cap_scopes_deinit(struct cap_scopes *s)
{
	free(s->pipes);
	*s = (struct cap_scopes){0};
}

enum cap_scope cap_scopes_sort(struct cap_scopes *s, int32_t pid, bool *more_pipes)
{
	struct sp_stat st;
	struct cap_pipe in;
	*more_pipes = false;
	for (size_t i = 0; i < s->o->n_excluded; i++)
		if (s->o->excluded[i] == pid)
			return CAP_EXCLUDED;
	if (pid == getpid())
		return CAP_OWN;
	if (!sp_stat_read(pid, pid, &st))
		return CAP_WANTED;
	if (st.flags & SP_PF_KTHREAD)
		return CAP_KERNEL;
	if (!s->n_pipes || !pipe_at(pid, STDIN_FILENO, &in) || !is_known(s, &in))
		return CAP_WANTED;
	*more_pipes = stage_add(s, pid);
	sp_detail("process %d is left out: a stage of this pipeline", pid);
	return CAP_OWN;
}

bool cap_scopes_keep(const struct cap_scopes *s, enum cap_scope scope)
{
	return scope == CAP_WANTED || scope == CAP_UNSORTED ||
	       (scope == CAP_KERNEL && s->o->kernel_threads);
}
