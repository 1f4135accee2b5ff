/* What a sandboxed tool can and cannot do any more. */
#define _GNU_SOURCE
#include "tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sandbox.h"

static char dir[] = "/tmp/sp-sandbox-XXXXXX";

static int try_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	return error;
}

/* The errno of executing a program in a child, 0 when it ran. */
static int try_exec(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(errno);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void test_landlock(const char *inside, const char *outside, pid_t other)
{
	tap_eq((uint64_t)try_open("/etc/passwd", O_RDONLY), 0, "files can be read");
	tap_eq((uint64_t)try_open(inside, O_WRONLY | O_CREAT), 0,
	       "the output's folder can be written");
	tap_eq((uint64_t)try_open(outside, O_WRONLY | O_CREAT), EACCES, "no other folder can");
	tap_eq((uint64_t)try_exec(), EACCES, "no program can be executed");
	char path[60];
	snprintf(path, sizeof path, "/proc/%d/exe", other);
	tap_eq((uint64_t)try_open(path, O_RDONLY), EACCES, "other processes are out of reach");
	struct sp_err err;
	int fd = sp_file_open(path, 0, &err);
	tap_ok(fd >= 0, "but for the helper, which opens their files");
	char bytes[4] = "";
	tap_ok(fd >= 0 && read(fd, bytes, 4) == 4 &&
		       !memcmp(bytes,
			       "\x7f"
			       "ELF",
			       4),
	       "and gives the right ones");
	close(fd);
	snprintf(path, sizeof path, "/proc/%d/root/etc/passwd", other);
	fd = sp_file_open(path, 0, &err);
	tap_ok(fd >= 0, "their root folder too");
	close(fd);
	snprintf(path, sizeof path, "/proc/%d/root/none", other);
	tap_ok(sp_file_open(path, 0, &err) < 0 && err.os == ENOENT, "its errors are passed on");
	snprintf(path, sizeof path, "/proc/%d/mem", other);
	tap_ok(sp_file_open(path, 0, &err) < 0, "it opens nothing else");
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = connect(sock, (const struct sockaddr *)&to, sizeof to);
	tap_ok(rc < 0 && (errno == EACCES || errno == ECONNREFUSED), "no server answers");
	close(sock);
}

int main(void)
{
	int ready[2];
	if (!mkdtemp(dir) || pipe2(ready, O_CLOEXEC) < 0)
		return 1;
	pid_t other = fork();
	if (other == 0) {
		pause();
		_exit(0);
	}
	char inside[100], outside[100];
	snprintf(inside, sizeof inside, "%s/file", dir);
	snprintf(outside, sizeof outside, "%s-outside", dir);
	const char *const dirs[] = {NULL, dir, "/nonexistent"};
	pid_t tool = fork();
	if (tool == 0) {
		int landlock = sp_sandbox_enter(
			&(struct sp_sandbox){.write_dirs = dirs, .n_write_dirs = 3});
		tap_eq((uint64_t)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1,
		       "new privileges are given up");
		if (landlock)
			test_landlock(inside, outside, other);
		else
			tap_ok(true, "Landlock # SKIP the kernel has none");
		_exit(tap_done());
	}
	int status = 0;
	waitpid(tool, &status, 0);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	unlink(inside);
	unlink(outside);
	rmdir(dir);
	return status != 0;
}
