#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cap_control_open(struct cap_control *c, const char *path, struct sp_err *err)
{
	struct stat st;
	*c = (struct cap_control){.fd = -1, .path = path};
	if (mkfifo(path, 0600) == 0)
		c->made = true;
	else if (errno != EEXIST)
		return sp_err_errno(err, "cannot make the fifo %s", path);
	/* For writing too: then it never reads as ended while nobody has it open. */
	c->fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (c->fd >= 0 && fstat(c->fd, &st) == 0 && S_ISFIFO(st.st_mode))
		return 0;
	int rc = c->fd < 0 ? sp_err_errno(err, "cannot open the fifo %s", path)
			   : sp_err_set(err, SP_ERR_INVALID, 0,
					"cannot take commands from %s: not a fifo", path);
	cap_control_close(c);
	return rc;
}

void cap_control_close(struct cap_control *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->made)
		unlink(c->path);
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

bool cap_control_next(struct cap_control *c, enum cap_command *what, int32_t *pid)
{
	char byte;
	while (c->fd >= 0 && read(c->fd, &byte, 1) == 1) {
		if (byte != '\n') {
			if (c->n < sizeof c->line - 1)
				c->line[c->n++] = byte;
			else
				c->too_long = true;
			continue;
		}
		if (c->n && c->line[c->n - 1] == '\r')
			c->n--;
		c->line[c->n] = 0;
		*what = c->too_long ? CAP_BAD : cap_command_parse(c->line, pid);
		bool empty = c->n == 0;
		c->n = 0;
		c->too_long = false;
		if (!empty)
			return true;
	}
	return false;
}
