#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cli.h"
#include "sudo.h"

#define TURN_BYTES 1024u /* of the fifo, between two looks at the rings */

/* What root is told to do is not for others to say: a fifo of that name may have been waiting in
 * /tmp. Whoever called sudo may. */
static bool may_command(const struct stat *st)
{
	uint32_t uid, gid;
	if (geteuid() != 0 || st->st_uid == 0)
		return true;
	return cap_sudo_user(&uid, &gid) && uid == st->st_uid;
}

static int open_fifo(struct cap_control *c, const char *path, struct sp_err *err)
{
	struct stat st;
	bool made = mkfifo(path, 0600) == 0;
	if (!made && errno != EEXIST)
		return sp_err_errno(err, "cannot make the fifo %s", path);
	/* For writing too: then it never reads as ended while nobody has it open. */
	c->fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (c->fd < 0)
		return sp_err_errno(err, "cannot open the fifo %s", path);
	if (fstat(c->fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot take commands from %s: not a fifo (a socket's name ends "
				  "in .sock)",
				  path);
	if (!may_command(&st))
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot take commands from %s: it belongs to user %u", path,
				  (unsigned)st.st_uid);
	if (made)
		cap_sudo_give(c->fd, path);
	c->made = made;
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	return 0;
}

int cap_control_open(struct cap_control *c, const char *path, struct sp_err *err)
{
	*c = (struct cap_control){.fd = -1, .listener = -1, .spare = -1, .path = path};
	for (size_t i = 0; i < CAP_CLIENTS; i++)
		c->clients[i].fd = -1;
	int rc = cap_control_is_socket(path) ? cap_control_listen(c, path, err)
					     : open_fifo(c, path, err);
	if (rc < 0)
		cap_control_close(c);
	return rc;
}

void cap_control_close(struct cap_control *c)
{
	struct stat st;
	if (c->fd < 0)
		return;
	/* Not what somebody else has put there since. */
	if (c->made && lstat(c->path, &st) == 0 && st.st_dev == c->dev && st.st_ino == c->ino)
		unlink(c->path);
	if (c->listener >= 0)
		cap_control_hang_up(c);
	close(c->fd);
	c->fd = -1;
	c->made = false;
}

enum cap_command cap_command_parse(const char *line, int32_t *pid)
{
	static const char *const words[] = {"enable",  "disable", "add",
					    "refresh", "summary", "stop"};
	size_t len = strcspn(line, " \t");
	for (int i = 0; i < CAP_BAD; i++) {
		if (strlen(words[i]) != len || memcmp(line, words[i], len) != 0)
			continue;
		const char *rest = line + len + strspn(line + len, " \t");
		if (i != CAP_ADD && i != CAP_REFRESH)
			return *rest ? CAP_BAD : (enum cap_command)i;
		char *end;
		errno = 0;
		long v = strtol(rest, &end, 10);
		if (*rest < '0' || *rest > '9' || *end || errno || v < 1 || v > INT32_MAX)
			return CAP_BAD;
		*pid = (int32_t)v;
		return (enum cap_command)i;
	}
	return CAP_BAD;
}

bool cap_line_add(struct cap_line *l, char byte)
{
	if (byte != '\n') {
		if (l->n < sizeof l->text - 1)
			l->text[l->n++] = byte;
		else
			l->too_long = true;
		return false;
	}
	if (l->n && l->text[l->n - 1] == '\r')
		l->n--;
	l->text[l->n] = 0;
	bool whole = l->n > 0;
	l->n = 0;
	return whole;
}

static bool hear_fifo(struct cap_control *c)
{
	char byte;
	while (c->n_read < TURN_BYTES && read(c->fd, &byte, 1) == 1) {
		c->n_read++;
		if (cap_line_add(&c->line, byte))
			return true;
	}
	c->n_read = 0;
	return false;
}

bool cap_control_next(struct cap_control *c, enum cap_command *what, int32_t *pid)
{
	if (c->fd < 0 || !(c->listener >= 0 ? cap_control_hear(c) : hear_fifo(c)))
		return false;
	*what = c->line.too_long ? CAP_BAD : cap_command_parse(c->line.text, pid);
	c->line.too_long = false;
	return true;
}

void cap_control_say(struct cap_control *c, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(text, sizeof text - 1, fmt, args);
	va_end(args);
	size_t len = n < 0 ? 0 : (size_t)n < sizeof text - 2 ? (size_t)n : sizeof text - 2;
	if (c->listener < 0) {
		sp_note("control: %s", text);
		return;
	}
	text[len++] = '\n';
	cap_control_send(c, text, len);
}
