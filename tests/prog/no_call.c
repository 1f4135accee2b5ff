/* no_call ptrace|bpf|getdents64 EPERM|ENOSYS|EIO COMMAND [ARG…]: runs a command for which a system call
 * is refused. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 4)
		return 125;
	unsigned call = !strcmp(argv[1], "bpf")          ? SYS_bpf
			: !strcmp(argv[1], "getdents64") ? SYS_getdents64
							 : SYS_ptrace;
	unsigned refusal = !strcmp(argv[2], "ENOSYS") ? ENOSYS
			   : !strcmp(argv[2], "EIO")  ? EIO
						      : EPERM;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | refusal),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0) {
		perror("no_call");
		return 125;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 127;
}
