/* The helper that opens files of other processes for a sandboxed one. One request at a time: the
 * open flags and the path in one packet; the answer is an errno, with a descriptor when it is 0. */
#define _GNU_SOURCE
#include "base/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/sandbox.h"

#define PATH_SIZE 8192
#define OPEN_FLAGS (O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW)

static int helper_fd = -1; /* our end of the socket; set before there are threads */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct request {
	int32_t flags;
	char path[PATH_SIZE];
};

union control { /* aligned for a cmsghdr */
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* "/proc/PID/exe", "/proc/PID/root/…", "/proc/PID/map_files/…" */
bool sp_opener_knows(const char *path)
{
	if (strncmp(path, "/proc/", 6) != 0)
		return false;
	size_t digits = strspn(path + 6, "0123456789");
	const char *rest = path + 6 + digits;
	return digits && (!strcmp(rest, "/exe") || !strncmp(rest, "/root/", 6) ||
			  !strncmp(rest, "/map_files/", 11));
}

static void answer(int fd, int32_t error, int file)
{
	union control control = {0};
	struct iovec part = {.iov_base = &error, .iov_len = sizeof error};
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
	if (file >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof control;
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof file);
		memcpy(CMSG_DATA(&control.head), &file, sizeof file);
	}
	while (sendmsg(fd, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static void serve(int fd)
{
	static struct request r;
	for (;;) {
		ssize_t n = recv(fd, &r, sizeof r, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= (ssize_t)sizeof r.flags)
			_exit(0); /* the tool has ended */
		r.path[n - (ssize_t)sizeof r.flags - 1] = '\0';
		int file = -1, error = EACCES;
		if (sp_opener_knows(r.path)) {
			file = open(r.path, O_RDONLY | O_CLOEXEC | (r.flags & OPEN_FLAGS));
			error = file < 0 ? errno : 0;
		}
		answer(fd, error, file);
		if (file >= 0)
			close(file);
	}
}

bool sp_opener_start(void)
{
	helper_fd = sp_child_start(serve);
	return helper_fd >= 0;
}

bool sp_opener_wants(const char *path)
{
	return helper_fd >= 0 && sp_opener_knows(path);
}

static int ask(const struct request *r, size_t size)
{
	ssize_t n;
	while ((n = send(helper_fd, r, size, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	if (n < 0)
		return -1;
	int32_t error = EIO;
	union control control = {0};
	struct iovec part = {.iov_base = &error, .iov_len = sizeof error};
	struct msghdr msg = {.msg_iov = &part,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof control};
	while ((n = recvmsg(helper_fd, &msg, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	int file = -1;
	const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	if (n == (ssize_t)sizeof error && head && head->cmsg_type == SCM_RIGHTS)
		memcpy(&file, CMSG_DATA(&control.head), sizeof file);
	if (file < 0)
		errno = n == (ssize_t)sizeof error && error ? error : EIO;
	return file;
}

int sp_opener_open(const char *path, int open_flags)
{
	struct request r = {.flags = open_flags};
	size_t len = strlen(path) + 1;
	if (len > sizeof r.path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(r.path, path, len);
	pthread_mutex_lock(&lock);
	int fd = ask(&r, sizeof r.flags + len);
	pthread_mutex_unlock(&lock);
	return fd;
}
