/* The walk against a shadow stack: programs are stepped instruction by instruction with ptrace; a
 * call pushes, a return pops, a signal pushes what it interrupts. At every boundary the chain that
 * sp-unwind finds in the registers and the stack bytes must be the shadow's.
 *
 * With arguments it steps that command instead: walk_oracle STEPS [--trap] COMMAND [ARG…]
 * (--trap: from the first `int3` on that it executes, some calls deep); or a thread that runs:
 * walk_oracle STEPS --attach TID, whose process is ended.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/insn.c
 * unit: sp-unwind/golang.c sp-unwind/guess.c sp-unwind/rule.c
 * unit: sp-unwind/reuse.c sp-unwind/walk.c sp-unwind/walk_full.c */
#define _GNU_SOURCE
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/wait.h>

#include "live.h"
#include "torture.h"

#define SHADOW 4096

struct shadow {
	uint64_t pc;   /* return address, or the interrupted instruction */
	uint64_t slot; /* where it was pushed; for an interruption: sp then */
	bool interrupted;
};

struct oracle {
	struct live live;
	struct uw_walker *walker;
	struct uw_stack stack;
	struct shadow shadow[SHADOW];
	size_t depth;
	uint64_t stack_end;
	uint64_t steps, wrong;
	bool stale; /* maps */
	uint64_t unmarked; /* of the wrong ones: those that end as if they were whole */
	/* What differed, by the leaf's place. */
	struct {
		uint64_t pc;
		uint64_t n;
		char text[400];
	} diffs[512];
	size_t n_diffs;
	/* glibc's __longjmp says that its caller is already the place it jumps to, from the
	 * instruction on that loads that place: right, and earlier than the shadow. */
	struct {
		uint64_t pc, step;
		bool unmarked;
	} recent[16];
	uint64_t n_recent, explained, rewritten;
};

static struct oracle o;

/* Length of a call instruction, 0 for others; that of a syscall as -2. */
static int call_length(const uint8_t *p)
{
	int i = 0;
	if (p[0] == 0x0f && p[1] == 0x05)
		return -2;
	while (p[i] == 0x3e || p[i] == 0x66 || p[i] == 0x67 || p[i] == 0xf2)
		i++;
	if ((p[i] & 0xf0) == 0x40)
		i++;
	if (p[i] == 0xe8)
		return i + 5;
	if (p[i] != 0xff || (p[i + 1] >> 3 & 7) != 2)
		return 0;
	int mod = p[i + 1] >> 6, rm = p[i + 1] & 7, base = rm;
	i += 2;
	if (mod == 3)
		return i;
	if (rm == 4)
		base = p[i++] & 7;
	return i + (mod == 1 ? 1 : mod == 2 || base == 5 ? 4 : 0);
}

static void push(uint64_t pc, uint64_t slot, bool interrupted)
{
	if (o.depth < SHADOW)
		o.shadow[o.depth++] = (struct shadow){pc, slot, interrupted};
}

/* Returns, longjmp, and the end of handlers on the same stack: what lies below sp is gone. An
 * interruption stays while its handler may run on a stack of its own. */
static void pop_below(uint64_t sp)
{
	while (o.depth && !o.shadow[o.depth - 1].interrupted && o.shadow[o.depth - 1].slot < sp)
		o.depth--;
}

static void note(const struct user_regs_struct *r, const char *why, size_t at)
{
	o.wrong++;
	o.unmarked += o.stack.stop == UW_END;
	o.recent[o.n_recent % 16].unmarked = o.stack.stop == UW_END;
	o.recent[o.n_recent % 16].pc = r->rip;
	o.recent[o.n_recent++ % 16].step = o.steps;
	for (size_t i = 0; i < o.n_diffs; i++)
		if (o.diffs[i].pc == r->rip) {
			o.diffs[i].n++;
			return;
		}
	if (o.n_diffs == 512)
		return;
	char leaf[200], got[200] = "nothing", want[200] = "the end";
	live_where(&o.live, r->rip, leaf);
	if (at < o.stack.n)
		live_where(&o.live, o.stack.return_addrs[at], got);
	if (at && at <= o.depth)
		live_where(&o.live, o.shadow[o.depth - at].pc, want);
	o.diffs[o.n_diffs].pc = r->rip;
	o.diffs[o.n_diffs].n = 1;
	snprintf(o.diffs[o.n_diffs++].text, 400,
		 "%.80s: %s at frame %zu of %zu: %.80s, not %.80s (stop %d)", leaf, why, at,
		 o.depth + 1, got, want, (int)o.stack.stop);
}

/* A jump that left frames behind: what differed just before, beside it, is explained. */
static void forgive(uint64_t pc)
{
	for (unsigned i = 0; i < 16; i++) {
		if (!o.recent[i].pc || pc - o.recent[i].pc >= 64 || o.steps - o.recent[i].step > 16)
			continue;
		for (size_t j = 0; j < o.n_diffs; j++)
			if (o.diffs[j].pc == o.recent[i].pc)
				o.diffs[j].n--;
		o.recent[i].pc = 0;
		o.wrong--;
		o.unmarked -= o.recent[i].unmarked;
		o.explained++;
	}
}

/* Code that writes another return address into its frame, as V8 does when it goes on in other code
 * of the same function: the one that stands there is the one that will be returned to. */
static bool rewritten(const struct uw_sample *s, uint64_t sp, struct shadow *f)
{
	uint64_t word, at = f->slot - sp;
	if (f->interrupted || f->slot < sp || at > s->stack_bytes - 8)
		return false;
	memcpy(&word, s->stack + at, 8);
	if (word == f->pc)
		return false;
	f->pc = word;
	return true;
}

static void compare(const struct user_regs_struct *r)
{
	if (o.stale || o.steps % 4096 == 0) { /* other threads map too */
		live_maps(&o.live);
		o.stale = false;
	}
	struct uw_sample s = live_sample(&o.live, r, o.stack_end);
	uw_walk(o.walker, &s, &o.stack);
	o.steps++;
	for (size_t i = 1; i <= o.depth && i < UW_MAX_FRAMES; i++) {
		struct shadow *want = &o.shadow[o.depth - i];
		if (i >= o.stack.n)
			return note(r, "too short", i);
		if (o.stack.return_addrs[i] != want->pc)
			o.rewritten += rewritten(&s, r->rsp, want);
		if (o.stack.return_addrs[i] != want->pc)
			return note(r, "another address", i);
		if (o.stack.addrs[i] != want->pc - !want->interrupted)
			return note(r, "another call site", i);
	}
	if (o.stack.n > o.depth + 1)
		return note(r, "too long", o.depth + 1);
	if (o.stack.stop != UW_END)
		return note(r, "no end", o.depth + 1);
}

/* Accounts for one instruction that was executed. */
static void account(const struct user_regs_struct *before, const uint8_t *code,
		    const struct user_regs_struct *after)
{
	int len = call_length(code);
	if (len == -2) {
		long nr = (long)before->rax;
		/* mmap, mprotect, munmap, brk, mremap */
		if (nr == 9 || nr == 10 || nr == 11 || nr == 12 || nr == 25)
			o.stale = true;
		if (nr == 15) { /* rt_sigreturn */
			while (o.depth && !o.shadow[o.depth - 1].interrupted)
				o.depth--;
			if (o.depth)
				o.depth--;
		}
		return;
	}
	if (len > 0 && after->rsp == before->rsp - 8) {
		push(before->rip + (uint64_t)len, after->rsp, false);
		return;
	}
	/* Only returns and jumps leave frames: a `pop` of the return address does not yet. */
	size_t i = code[0] == 0xf2 || code[0] == 0xf3 || code[0] == 0x3e || code[0] == 0x41;
	bool jump = code[i] == 0xff && (code[i + 1] >> 3 & 7) == 4;
	if (code[i] != 0xc3 && code[i] != 0xc2 && !jump)
		return;
	size_t depth = o.depth;
	/* A return to where the last call came from is one frame, wherever sp is: libffi's call of
	 * a function moves its own return address above the arguments. */
	if (!jump && depth && !o.shadow[depth - 1].interrupted &&
	    o.shadow[depth - 1].pc == after->rip) {
		o.depth--;
		return;
	}
	pop_below(after->rsp);
	/* siglongjmp out of a handler: sp is above what the signal interrupted. */
	while (jump && o.depth && o.shadow[o.depth - 1].interrupted &&
	       o.shadow[o.depth - 1].slot < after->rsp) {
		o.depth--;
		pop_below(after->rsp);
	}
	if (jump && o.depth != depth)
		forgive(before->rip);
}

/* Steps a stopped child that has just executed its program. */
static int step_all(pid_t pid, uint64_t max_steps)
{
	struct user_regs_struct before, after;
	int status, sig = 0;
	o.live.pid = pid;
	o.stale = true;
	ptrace(PTRACE_GETREGS, pid, 0, &before);
	o.stack_end = o.depth ? o.shadow[0].slot + 64 : before.rsp + 64;
	compare(&before);
	while (o.steps < max_steps) {
		uint8_t code[16] = {0};
		(void)live_read(pid, before.rip, code, sizeof code);
		if (ptrace(PTRACE_SINGLESTEP, pid, 0, (void *)(intptr_t)sig) < 0 ||
		    waitpid(pid, &status, __WALL) < 0)
			return -1;
		if (WIFEXITED(status) || WIFSIGNALED(status))
			return status;
		int delivered = sig;
		sig = 0;
		ptrace(PTRACE_GETREGS, pid, 0, &after);
		if (delivered && after.rip != before.rip) {
			/* The step went into the handler: nothing was executed yet. Its caller is
			 * the trampoline whose address lies at sp. */
			uint64_t restorer = 0;
			(void)live_read(pid, after.rsp, &restorer, 8);
			uint64_t red_zone = before.rsp - 128;
			if (after.rsp < red_zone || after.rsp > before.rsp) {
				push(before.rip, before.rsp, true);
				push(restorer, after.rsp, false);
			}
		} else if (!delivered) {
			account(&before, code, &after);
		}
		if (WSTOPSIG(status) != SIGTRAP)
			sig = WSTOPSIG(status);
		compare(&after);
		before = after;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, __WALL);
	return 0;
}

/* Takes the shadow of this moment from the walk itself. The slots are the words above each other
 * that hold the return addresses. */
static bool take_shadow(pid_t pid)
{
	struct user_regs_struct r;
	ptrace(PTRACE_GETREGS, pid, 0, &r);
	o.live.pid = pid;
	live_maps(&o.live);
	struct uw_sample s = live_sample(&o.live, &r, 0);
	uw_walk(o.walker, &s, &o.stack);
	size_t at = 0;
	for (uint32_t i = 1; i < o.stack.n; i++) {
		uint64_t word = 0;
		for (; at + 8 <= s.stack_bytes; at += 8) {
			memcpy(&word, o.live.stack + at, 8);
			if (word == o.stack.return_addrs[i])
				break;
		}
		if (word != o.stack.return_addrs[i])
			return false;
		o.shadow[o.stack.n - 1 - i] = (struct shadow){word, r.rsp + at, false};
		at += 8;
	}
	o.depth = o.stack.n - 1;
	return o.depth >= 3 && o.stack.stop == UW_END;
}

/* Lets the child run to its `int3`. */
static bool run_to_trap(pid_t pid)
{
	int status;
	int sig = 0;
	do { /* other signals are the program's own */
		ptrace(PTRACE_CONT, pid, 0, (void *)(intptr_t)sig);
		if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
			return false;
		sig = WSTOPSIG(status);
	} while (sig != SIGTRAP);
	return take_shadow(pid);
}

/* What came of it. The share of instruction boundaries that were right, in parts of 100,000. */
static double report(const char *of)
{
	printf("# %s: %llu instructions, %llu differ (%llu say that they are whole), %llu in a longjmp, "
	       "%llu return addresses written anew\n",
	       of, (unsigned long long)o.steps, (unsigned long long)o.wrong,
	       (unsigned long long)o.unmarked, (unsigned long long)o.explained,
	       (unsigned long long)o.rewritten);
	for (size_t i = 0; i < o.n_diffs; i++)
		if (o.diffs[i].n)
			printf("# %6llu x %s\n", (unsigned long long)o.diffs[i].n, o.diffs[i].text);
	live_deinit(&o.live);
	uw_walker_free(o.walker);
	return o.steps ? 100000.0 * (double)(o.steps - o.wrong) / (double)o.steps : 0;
}

/* Runs a command under the oracle, from its first instruction, or from its `int3`. The share of
 * instruction boundaries that were right, in parts of 100,000; the child must end with status 0
 * when it ends. */
static double run(char **argv, bool to_trap, uint64_t max_steps, int *status)
{
	memset(&o, 0, sizeof o);
	o.walker = uw_walker_new();
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		(void)personality(ADDR_NO_RANDOMIZE);
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		/* What the command prints is no TAP. */
		(void)!freopen("/dev/null", "w", stdout);
		execvp(argv[0], argv);
		_exit(127);
	}
	*status = -1;
	if (pid < 0 || waitpid(pid, status, 0) < 0 || !WIFSTOPPED(*status))
		return 0;
	if (to_trap && !run_to_trap(pid)) {
		kill(pid, SIGKILL);
		waitpid(pid, status, 0);
		return 0;
	}
	*status = step_all(pid, max_steps);
	return report(argv[0]);
}

/* Steps a thread of a process that runs, from the first instruction on that has a whole stack. */
static void run_attached(pid_t tid, uint64_t max_steps)
{
	int status;
	memset(&o, 0, sizeof o);
	o.walker = uw_walker_new();
	if (ptrace(PTRACE_ATTACH, tid, 0, 0) < 0 || waitpid(tid, &status, __WALL) != tid)
		return perror("attach");
	for (unsigned i = 0; !take_shadow(tid); i++) {
		if (i == 1000 || ptrace(PTRACE_SINGLESTEP, tid, 0, 0) < 0 ||
		    waitpid(tid, &status, __WALL) != tid)
			return (void)printf("# no whole stack to begin with\n");
	}
	(void)step_all(tid, max_steps);
	report("attached");
}

static void *nothing(void *arg)
{
	return arg;
}

/* A thread is stopped before its first instruction: is that one frame, the root? */
static bool first_instruction(struct live *l)
{
	struct user_regs_struct r;
	unsigned long tid = 0;
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		pthread_t t;
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return false;
	l->pid = pid;
	bool good = ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE) == 0 &&
		    ptrace(PTRACE_CONT, pid, 0, 0) == 0 && waitpid(pid, &status, 0) == pid &&
		    status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8) &&
		    ptrace(PTRACE_GETEVENTMSG, pid, 0, &tid) == 0 &&
		    waitpid((pid_t)tid, &status, __WALL) == (pid_t)tid && WIFSTOPPED(status) &&
		    ptrace(PTRACE_GETREGS, (pid_t)tid, 0, &r) == 0;
	if (good) {
		struct uw_walker *w = uw_walker_new();
		live_maps(l);
		struct uw_sample s = live_sample(l, &r, 0);
		uw_walk(w, &s, &o.stack);
		uw_walker_free(w);
		char text[200];
		printf("# %s: %u frames, stop %d\n", live_where(l, r.rip, text), o.stack.n,
		       (int)o.stack.stop);
	}
	kill(pid, SIGKILL);
	while (waitpid(-1, &status, __WALL) > 0)
		;
	return good && o.stack.n == 1 && o.stack.stop == UW_END;
}

int main(int argc, char **argv)
{
	int status;
	if (argc == 2 && !strcmp(argv[1], "--torture"))
		_exit(torture()); /* no leak checker, which refuses to be traced */
	if (argc > 2) {
		bool to_trap = argc > 3 && !strcmp(argv[2], "--trap");
		if (argc > 3 && !strcmp(argv[2], "--attach")) {
			run_attached((pid_t)atoi(argv[3]), strtoull(argv[1], NULL, 10));
			return 0;
		}
		double share =
			run(argv + 2 + to_trap, to_trap, strtoull(argv[1], NULL, 10), &status);
		printf("# %.3f %%, status %#x\n", share / 1000, (unsigned)status);
		return 0;
	}
	char *self[] = {argv[0], (char[]){"--torture"}, NULL};
	double share = run(self, true, 250000, &status);
	tap_ok(status == 0, "the torture program runs to its end under the stepper");
	tap_ok(share >= 99980, "99.98 % of the torture program's instruction boundaries are right");
	char *bash[] = {
		(char[]){"/bin/bash"}, (char[]){"--norc"}, (char[]){"-c"},
		(char[]){"f() { local i; for i in a b c; do case $i in b) echo ${i^^};; esac; "
			 "done; }; trap : USR1; kill -USR1 $$; f; g=$((1+2)); printf '%s\\n' $g"},
		NULL};
	share = run(bash, false, 150000, &status);
	tap_ok(share >= 99990, "99.99 % of bash's instruction boundaries are right");
	static struct live live;
	tap_ok(first_instruction(&live), "a new thread's first instruction is its root");
	live_deinit(&live);
	return tap_done();
}
