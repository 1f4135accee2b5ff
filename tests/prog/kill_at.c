/* kill_at main|keeper|watch HOLD N COMMAND…: runs sp-capture --stop and kills it at one of the instants
 * of a hold, which begins with the HOLDth socketpair(2) and ends when sp-capture has waited for the
 * process that holds. Where ptrace is refused, the second is the one by SIGSTOP.
 *
 * main N: SIGKILL to sp-capture at the Nth stop (entry or exit of a system call) of its own.
 * keeper N: SIGKILL to sp-capture at the Nth such stop of the process that holds.
 * watch N: SIGKILL to that process there; sp-capture goes on.
 *
 * Exit status 0: killed there; 1: the hold was over before; 2: it went wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
#define WITH_CHILD (OPTIONS | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK)

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* On until the next stop; the system call, or -1 when it is another kind of stop. False: ended. */
static bool next_stop(pid_t pid, long *call, bool *is_exit, int *event)
{
	static int sig; /* of the stop before: to be delivered */
	struct __ptrace_syscall_info info;
	int status;
	if (ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)sig) < 0 && errno != ESRCH)
		die("PTRACE_SYSCALL");
	sig = 0;
	*call = -1;
	*event = 0;
	if (waitpid(pid, &status, __WALL) < 0)
		die("waitpid");
	if (!WIFSTOPPED(status))
		return false;
	*event = status >> 16;
	if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
		sig = *event || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		return true;
	}
	static long inside = -1; /* the exit does not say of what */
	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) < 0)
		die("PTRACE_GET_SYSCALL_INFO");
	*is_exit = info.op == PTRACE_SYSCALL_INFO_EXIT;
	if (!*is_exit)
		inside = (long)info.entry.nr;
	*call = inside;
	return true;
}

static pid_t start(char **command)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		execvp(command[0], command);
		die(command[0]);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)OPTIONS) < 0)
		die("cannot trace");
	return pid;
}

int main(int argc, char **argv)
{
	long call = -1, n = 0, at = argc > 4 ? atol(argv[3]) : 0, holds = argc > 4 ? atol(argv[2]) : 0;
	bool is_exit = false;
	int event, status;
	if (argc < 5)
		return 2;
	bool of_keeper = strcmp(argv[1], "main") != 0;
	pid_t pid = start(argv + 4), keeper = 0;
	while (holds) {
		if (!next_stop(pid, &call, &is_exit, &event))
			return 2;
		holds -= call == SYS_socketpair && is_exit;
	}
	if (of_keeper && ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)WITH_CHILD) < 0)
		die("PTRACE_SETOPTIONS");
	while (!of_keeper && n < at) {
		if (!next_stop(pid, &call, &is_exit, &event))
			return 2;
		n++;
		if (call == SYS_wait4 && is_exit)
			break;
	}
	while (of_keeper && !keeper) {
		unsigned long child = 0;
		if (!next_stop(pid, &call, &is_exit, &event))
			return 2;
		if (event && ptrace(PTRACE_GETEVENTMSG, pid, NULL, &child) == 0)
			keeper = (pid_t)child;
	}
	if (of_keeper) {
		/* sp-capture itself runs free from here. */
		if (waitpid(keeper, &status, __WALL) < 0 || ptrace(PTRACE_DETACH, pid, NULL, NULL) < 0)
			die("cannot trace the keeper");
		while (n < at && next_stop(keeper, &call, &is_exit, &event))
			n++;
	}
	bool there = n == at;
	pid_t victim = there && !strcmp(argv[1], "watch") ? keeper : pid;
	if (kill(victim, SIGKILL) < 0)
		die("kill");
	/* The parent of the process that holds must be dead before that one goes on. */
	while (victim == pid && waitpid(pid, &status, __WALL) == pid && !WIFSIGNALED(status))
		;
	if (victim == pid && keeper)
		ptrace(PTRACE_DETACH, keeper, NULL, NULL);
	else if (keeper && (waitpid(keeper, &status, __WALL) < 0 ||
			    waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)))
		die("the end of sp-capture");
	return there ? 0 : 1;
}
