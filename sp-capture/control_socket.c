/* The socket of --control: one listener and its clients behind one epoll descriptor, so that the
 * loop polls a single one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control.h"
#include "sudo.h"

#define BACKLOG 64 /* connections that no turn has taken yet: beyond it, a client waits */

bool cap_control_is_socket(const char *path)
{
	size_t n = strlen(path);
	return n >= 5 && !strcmp(path + n - 5, ".sock");
}

/* Whether a socket that is there already has nobody behind it. */
static bool is_stale(const char *path, const struct sockaddr_un *at)
{
	struct stat st;
	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	/* A full backlog is EAGAIN: somebody listens. */
	bool refused =
		connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static bool watch(const struct cap_control *c, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	return epoll_ctl(c->fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

static int bind_at(struct cap_control *c, const char *path, const struct sockaddr_un *at,
		   struct sp_err *err)
{
	const struct sockaddr *sa = (const struct sockaddr *)at;
	int rc = bind(c->listener, sa, sizeof *at);
	if (rc < 0 && errno == EADDRINUSE) {
		if (!is_stale(path, at))
			return sp_err_set(err, SP_ERR_INVALID, EADDRINUSE,
					  "cannot make the socket %s: it is there already, and "
					  "somebody listens, or it is no socket",
					  path);
		rc = unlink(path) < 0 ? -1 : bind(c->listener, sa, sizeof *at);
	}
	return rc < 0 ? sp_err_errno(err, "cannot make the socket %s", path) : 0;
}

int cap_control_listen(struct cap_control *c, const char *path, struct sp_err *err)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct stat st;
	size_t n = strlen(path);
	if (n >= sizeof at.sun_path)
		return sp_err_set(
			err, SP_ERR_INVALID, ENAMETOOLONG,
			"cannot make the socket %s: a socket's path has at most %zu bytes", path,
			sizeof at.sun_path - 1);
	memcpy(at.sun_path, path, n);
	c->fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->fd < 0)
		return sp_err_errno(err, "cannot watch the socket %s", path);
	c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* The file that bind makes has this mode: never a wider one (Linux 6.1 net/unix/af_unix.c,
	 * unix_bind_bsd). */
	if (c->listener < 0 || fchmod(c->listener, 0600) < 0)
		return sp_err_errno(err, "cannot make the socket %s", path);
	int rc = bind_at(c, path, &at, err);
	if (rc < 0)
		return rc;
	/* The file that bind made: what lies there now, unless others have put it there. */
	int file = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (file >= 0 && fstat(file, &st) == 0 && S_ISSOCK(st.st_mode)) {
		cap_sudo_give(file, path);
		c->made = true;
		c->dev = st.st_dev;
		c->ino = st.st_ino;
	}
	if (file >= 0)
		close(file);
	c->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (listen(c->listener, BACKLOG) < 0 || !watch(c, c->listener))
		return sp_err_errno(err, "cannot listen on the socket %s", path);
	return 0;
}

static void drop(struct cap_client *l)
{
	close(l->fd); /* and out of the epoll: nobody else has this connection */
	*l = (struct cap_client){.fd = -1};
}

void cap_control_hang_up(struct cap_control *c)
{
	for (size_t i = 0; i < CAP_CLIENTS; i++)
		if (c->clients[i].fd >= 0)
			drop(&c->clients[i]);
	close(c->listener);
	if (c->spare >= 0)
		close(c->spare);
	c->listener = c->spare = -1;
}

/* Room for one more: free, or the one that was quiet the longest. */
static struct cap_client *place(struct cap_control *c)
{
	struct cap_client *best = &c->clients[0];
	for (size_t i = 0; i < CAP_CLIENTS; i++) {
		struct cap_client *l = &c->clients[i];
		if (l->fd < 0)
			return l;
		if (l->active < best->active)
			best = l;
	}
	drop(best);
	return best;
}

static void take_client(struct cap_control *c)
{
	int fd = accept4(c->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && c->spare >= 0) {
		/* Else it would be there to accept again and again. */
		close(c->spare);
		fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		c->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return;
	}
	if (fd < 0)
		return;
	struct cap_client *l = place(c);
	*l = (struct cap_client){.fd = fd, .active = c->turn};
	if (!watch(c, fd))
		drop(l);
}

/* What one client says, up to the end of a line. */
static bool hear_one(struct cap_control *c, struct cap_client *l)
{
	char part[CAP_LINE];
	ssize_t n = recv(l->fd, part, sizeof part, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		drop(l); /* what it began to say is no command */
		return false;
	}
	l->active = c->turn;
	const char *nl = memchr(part, '\n', (size_t)n);
	n = recv(l->fd, part, nl ? (size_t)(nl + 1 - part) : (size_t)n, MSG_DONTWAIT);
	bool whole = false;
	for (ssize_t i = 0; i < n; i++)
		whole = cap_line_add(&l->line, part[i]);
	if (l->line.too_long) {
		cap_control_say(c, "a command has less than %u bytes", CAP_LINE);
		if (l->fd >= 0)
			drop(l);
		return false;
	}
	if (whole)
		memcpy(c->line.text, l->line.text, sizeof c->line.text);
	return whole;
}

bool cap_control_hear(struct cap_control *c)
{
	if (c->at == 0) {
		c->turn++;
		take_client(c);
	}
	while (c->at < CAP_CLIENTS) {
		c->asking = c->at++;
		struct cap_client *l = &c->clients[c->asking];
		if (l->fd >= 0 && hear_one(c, l))
			return true;
	}
	c->at = 0;
	return false;
}

void cap_control_send(struct cap_control *c, const char *text, size_t len)
{
	struct cap_client *l = &c->clients[c->asking];
	if (l->fd >= 0 && send(l->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
		drop(l); /* it does not read its answers */
}
