#define _GNU_SOURCE
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"
#include "base/cli.h"
#include "base/err.h"
#include "base/stop.h"

struct command {
	struct sp_native_factory factory;
	char *line; /* owned */
	int fd;     /* our end of its input and output; -1: it was given up */
	int keeper; /* a socket to the process that ends it */
	bool no_inline;
	struct sp_buf question, answer;
	struct sp_symbol_level levels[ANSWER_LEVELS];
	char complaint[300];
};

/* What a process has mapped, as far as it was found. */
struct view_of {
	struct sp_native_symbolizer base;
	struct command *c;
	struct place {
		uint64_t start, end;
		struct sp_image_base base;
		char *path; /* owned */
	} * places;         /* owned; by start */
	size_t n;
};

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* How it ended, if it did: a shell's 127 is a command that does not exist. */
static const char *how_it_ended(const struct command *c, char *buf, size_t size)
{
	struct pollfd p = {.fd = c->keeper, .events = POLLIN};
	int status;
	if (poll(&p, 1, 1000) <= 0 ||
	    recv(c->keeper, &status, sizeof status, MSG_DONTWAIT) != (ssize_t)sizeof status)
		return "it has closed its output";
	if (status < 0)
		snprintf(buf, size, "it was ended by signal %d", -status);
	else if (status == 127 || status == 126)
		snprintf(buf, size, "it cannot be run");
	else
		snprintf(buf, size, "it has ended with status %d", status);
	return buf;
}

static void stop(struct command *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->keeper >= 0)
		close(c->keeper);
	c->fd = c->keeper = -1;
}

static int give_up(struct command *c, const char *why)
{
	snprintf(c->complaint, sizeof c->complaint,
		 "the symbolizer '%.100s' is not asked any more: %.100s; the built-in one names "
		 "what is left",
		 c->line, why);
	stop(c);
	return 0;
}

/* Waits until the command is ready; false when the time is over or a signal came. */
static bool wait_for(const struct command *c, short events, int64_t until)
{
	for (;;) {
		struct pollfd p = {.fd = c->fd, .events = events};
		int64_t left = until - now_ms();
		if (left <= 0 || sp_stop_level() > 0)
			return false;
		int n = poll(&p, 1, (int)left);
		if (n > 0)
			return true;
		if (n < 0 && errno != EINTR)
			return false;
	}
}

static const char *too_late(void)
{
	return sp_stop_level() > 0 ? "a signal came" : "no answer in time";
}

/* What it says without being asked would be taken for an answer. */
static bool is_babbling(const struct command *c)
{
	char byte;
	return c->answer.len || recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* The answer to the question, in c->answer: its length, 0 when the command was given up. */
static size_t ask(struct command *c)
{
	char buf[80];
	int64_t until = now_ms() + COMMAND_PATIENCE_S * 1000;
	for (size_t at = 0; at < c->question.len;) {
		ssize_t n = send(c->fd, c->question.data + at, c->question.len - at,
				 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			at += (size_t)n;
		else if (errno != EAGAIN && errno != EINTR)
			return (size_t)give_up(c, how_it_ended(c, buf, sizeof buf));
		else if (!wait_for(c, POLLOUT, until))
			return (size_t)give_up(c, too_late());
	}
	for (;;) {
		size_t n = answer_length((const char *)c->answer.data, c->answer.len);
		if (n)
			return n;
		if (c->answer.len > ANSWER_MAX || !sp_buf_reserve(&c->answer, 4096))
			return (size_t)give_up(c, "its answer does not end");
		if (!wait_for(c, POLLIN, until))
			return (size_t)give_up(c, too_late());
		ssize_t got = recv(c->fd, c->answer.data + c->answer.len, 4096, MSG_DONTWAIT);
		if (got > 0)
			c->answer.len += (size_t)got;
		else if (got == 0 || (errno != EAGAIN && errno != EINTR))
			return (size_t)give_up(c, how_it_ended(c, buf, sizeof buf));
	}
}

static const struct place *find(const struct view_of *v, uint64_t avma)
{
	size_t lo = 0, hi = v->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (v->places[mid].start <= avma)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && avma < v->places[lo - 1].end ? &v->places[lo - 1] : NULL;
}

/* Without inlined levels: the function, where the innermost one is. */
static void drop_inlined(struct command *c, struct sp_symbols *s)
{
	if (!c->no_inline || s->n < 2)
		return;
	c->levels[0].name = c->levels[s->n - 1].name;
	s->n = 1;
}

static int symbolize_one(struct sp_native_symbolizer *self, uint64_t avma, struct sp_symbols *out,
			 struct sp_err *err)
{
	struct view_of *v = (struct view_of *)self;
	struct command *c = v->c;
	const struct place *p = find(v, avma);
	(void)err;
	if (!p || c->fd < 0)
		return 0;
	uint64_t svma = sp_image_base_svma(&p->base, avma);
	if (!answer_question(&c->question, p->path, svma))
		return 0;
	if (is_babbling(c))
		return give_up(c, "it says more than it was asked");
	size_t n = ask(c);
	if (!n)
		return 0;
	if (n != c->answer.len)
		return give_up(c, "it says more than it was asked");
	c->answer.len = 0;
	int rc = answer_parse((char *)c->answer.data, n, svma, c->levels, out);
	if (rc < 0)
		return give_up(c, "its answer is not in the form of llvm-symbolizer's");
	drop_inlined(c, out);
	return rc;
}

static void free_places(struct view_of *v)
{
	for (size_t i = 0; i < v->n; i++)
		free(v->places[i].path);
	free(v->places);
	v->places = NULL;
	v->n = 0;
}

static int by_start(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	return x->start < y->start ? -1 : x->start > y->start;
}

static int set_modules(struct sp_native_symbolizer *self, const struct sp_native_module *modules,
		       size_t n, struct sp_err *err)
{
	struct view_of *v = (struct view_of *)self;
	free_places(v);
	v->places = calloc(n + 1, sizeof *v->places);
	if (!v->places)
		return sp_err_nomem(err);
	for (size_t i = 0; i < n; i++) {
		const struct sp_native_module *m = &modules[i];
		if (!m->found || !m->has_image_base)
			continue;
		struct place *p = &v->places[v->n];
		*p = (struct place){m->start, m->end, m->image_base, strdup(m->found)};
		if (!p->path)
			return sp_err_nomem(err);
		v->n++;
	}
	qsort(v->places, v->n, sizeof *v->places, by_start);
	return 0;
}

static void free_view(struct sp_native_symbolizer *self)
{
	free_places((struct view_of *)self);
	free(self);
}

static int make(void *ctx, int32_t pid, struct sp_native_symbolizer **out, struct sp_err *err)
{
	struct view_of *v = calloc(1, sizeof *v);
	(void)pid;
	if (!v)
		return sp_err_nomem(err);
	v->base = (struct sp_native_symbolizer){set_modules, symbolize_one, free_view};
	v->c = ctx;
	*out = &v->base;
	return 0;
}

static _Noreturn void run(int fd, const char *line)
{
	/* A group of its own: Ctrl-C is the tool's, and what it starts ends with it. */
	setpgid(0, 0);
	if (sp_verbosity < 1) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (null >= 0)
			dup2(null, STDERR_FILENO);
	}
	if (dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0)
		_exit(126);
	close_range(3, ~0u, 0);
	execl("/bin/sh", "sh", "-c", line, (char *)NULL);
	_exit(127);
}

/* Tells how the command ended, which stays a zombie so that its number stays its own. */
static void report(pid_t pid, int keeper)
{
	siginfo_t info = {0};
	if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0)
		return;
	int status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
	(void)!send(keeper, &status, sizeof status, MSG_NOSIGNAL);
}

/* The process between the tool and the command: from its sandbox the tool could not end the
 * command (Landlock's scope for signals, Linux 6.12), so this does when the tool's socket closes.
 */
static _Noreturn void keep(int keeper, int fd, const char *line)
{
	pid_t pid = fork();
	if (pid == 0)
		run(fd, line);
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT};
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	setpgid(pid, pid);
	close(fd);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		if (null < 0 || dup2(null, i) < 0)
			close(i);
	struct pollfd p[2] = {
		{.fd = keeper, .events = POLLIN},
		{.fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1, .events = POLLIN}};
	while (poll(p, 2, -1) >= 0 || errno == EINTR) {
		if (p[0].revents)
			break;
		if (p[1].revents)
			report(pid, keeper);
		if (p[1].revents)
			p[1].fd = -1;
	}
	if (pid > 0)
		kill(-pid, SIGKILL);
	_exit(0);
}

int command_start(struct command **out, const char *line, bool no_inline, struct sp_err *err)
{
	struct command *c = calloc(1, sizeof *c);
	int io[2] = {-1, -1}, life[2] = {-1, -1};
	pid_t pid = -1;
	if (!c || !(c->line = strdup(line))) {
		free(c);
		return sp_err_nomem(err);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, io) == 0 &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, life) == 0)
		pid = fork();
	if (pid == 0) {
		close(io[0]);
		close(life[0]);
		keep(life[1], io[1], line);
	}
	c->fd = io[0];
	c->keeper = life[0];
	if (pid < 0)
		sp_err_errno(err, "cannot start '%.200s'", line);
	if (io[1] >= 0)
		close(io[1]);
	if (life[1] >= 0)
		close(life[1]);
	if (pid < 0) {
		command_free(c);
		return SP_ERR_IO;
	}
	c->no_inline = no_inline;
	c->factory = (struct sp_native_factory){.make = make, .ctx = c, .fall_back = true};
	*out = c;
	return 0;
}

void command_free(struct command *c)
{
	if (!c)
		return;
	stop(c);
	sp_buf_deinit(&c->question);
	sp_buf_deinit(&c->answer);
	free(c->line);
	free(c);
}

const struct sp_native_factory *command_factory(const struct command *c)
{
	return &c->factory;
}

const char *command_complaint(const struct command *c)
{
	return c && c->complaint[0] ? c->complaint : NULL;
}
