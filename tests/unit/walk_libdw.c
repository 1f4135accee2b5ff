/* Whole stacks against elfutils' libdwfl: running programs are stopped at any time, and both unwind
 * the same registers and memory, frame by frame.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/insn.c
 * unit: sp-unwind/golang.c sp-unwind/guess.c sp-unwind/rule.c
 * unit: sp-unwind/reuse.c sp-unwind/walk.c sp-unwind/walk_full.c
 * libs: -ldw -lelf */
#define _GNU_SOURCE
#include "tap.h"

#include <elfutils/libdwfl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "live.h"

#define FRAMES 512

struct theirs {
	uint64_t pc[FRAMES];
	bool exact[FRAMES];
	uint32_t n;
};

static int frame(Dwfl_Frame *state, void *arg)
{
	struct theirs *t = arg;
	Dwarf_Addr pc;
	bool exact;
	if (t->n == FRAMES || !dwfl_frame_pc(state, &pc, &exact))
		return DWARF_CB_ABORT;
	t->pc[t->n] = pc;
	t->exact[t->n++] = exact;
	return DWARF_CB_OK;
}

/* libdwfl's chain. False: it could not attach. */
static bool their_walk(pid_t pid, struct theirs *t)
{
	static char *debuginfo_path;
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.debuginfo_path = &debuginfo_path,
	};
	t->n = 0;
	Dwfl *dwfl = dwfl_begin(&callbacks);
	bool good = dwfl && dwfl_linux_proc_report(dwfl, pid) == 0 &&
		    dwfl_report_end(dwfl, NULL, NULL) == 0 &&
		    dwfl_linux_proc_attach(dwfl, pid, true) == 0;
	if (good)
		(void)dwfl_getthread_frames(dwfl, pid, frame, t);
	dwfl_end(dwfl);
	return good;
}

struct tally {
	uint32_t n, equal, longer, ended;
	char first[400];
};

static void compare(struct tally *y, struct live *l, struct uw_walker *w, struct theirs *t)
{
	static struct uw_stack out;
	struct user_regs_struct r;
	if (ptrace(PTRACE_GETREGS, l->pid, 0, &r) < 0 || !their_walk(l->pid, t))
		return;
	live_maps(l);
	struct uw_sample s = live_sample(l, &r, 0);
	uw_walk(w, &s, &out);
	y->n++;
	y->ended += out.stop == UW_END;
	uint32_t i = 0;
	while (i < t->n && i < out.n && t->pc[i] == out.return_addrs[i] &&
	       out.addrs[i] == t->pc[i] - !t->exact[i])
		i++;
	if (i == t->n && i == out.n) {
		y->equal++;
	} else if (i == t->n) { /* libdwfl gives up where there is no CFI */
		y->longer++;
	} else if (!y->first[0]) {
		char ours[200] = "the end", want[200], leaf[200];
		live_where(l, r.rip, leaf);
		if (i < out.n)
			live_where(l, out.return_addrs[i], ours);
		live_where(l, t->pc[i], want);
		snprintf(y->first, sizeof y->first,
			 "frame %u of %u, at %.80s: %.80s, libdwfl %.80s (stop %d)", i, out.n, leaf,
			 ours, want, (int)out.stop);
	}
}

/* Stops a running command `times` times. */
static struct tally run(char **argv, unsigned times)
{
	static struct live l;
	static struct theirs t;
	struct tally y = {0};
	struct uw_walker *w = uw_walker_new();
	memset(&l, 0, sizeof l);
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		(void)!freopen("/dev/null", "w", stdout);
		execvp(argv[0], argv);
		_exit(127);
	}
	int status;
	l.pid = pid;
	if (pid < 0 || !w || waitpid(pid, &status, 0) < 0)
		return y;
	int sig = 0;
	while (y.n < times && WIFSTOPPED(status)) {
		/* How far it gets does not matter, only that it differs from time to time. */
		struct timespec ms = {0, 500000 + (y.n * 7919) % 3000000};
		ptrace(PTRACE_CONT, pid, 0, (void *)(intptr_t)sig);
		nanosleep(&ms, NULL);
		kill(pid, SIGSTOP);
		if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
			break;
		sig = WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
		if (!sig)
			compare(&y, &l, w, &t);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	live_deinit(&l);
	uw_walker_free(w);
	printf("# %s: %u stacks, %u equal, %u longer than libdwfl's, %u to their end\n", argv[0],
	       y.n, y.equal, y.longer, y.ended);
	if (y.first[0])
		printf("# %s\n", y.first);
	return y;
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		(void)run(argv + 2, (unsigned)atoi(argv[1]));
		return 0;
	}
	char *bash[] = {(char[]){"/bin/bash"}, (char[]){"--norc"}, (char[]){"-c"},
			(char[]){"f() { local i=$1; ((i > 0)) && f $((i - 1)); : ${i//1/2}; }; "
				 "while :; do f 9; done"},
			NULL};
	char *python[] = {
		(char[]){"/usr/bin/python3"}, (char[]){"-c"},
		(char[]){"import re, json\n"
			 "def f(n): return f(n - 1) + 1 if n else len(json.dumps([1, {}]))\n"
			 "while 1: f(9); re.sub('a|b', 'c', 'xab' * 9); sorted(map(str, "
			 "range(50)), key=hash)\n"},
		NULL};
	struct tally y = run(bash, 150);
	tap_ok(y.n == 150 && y.equal + y.longer == y.n, "bash's stacks are libdwfl's");
	tap_ok(y.ended == y.n, "and reach their root");
	y = run(python, 150);
	tap_ok(y.n == 150 && y.equal + y.longer == y.n, "python's stacks are libdwfl's");
	tap_ok(y.ended == y.n, "and reach their root");
	return tap_done();
}
