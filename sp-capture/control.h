/* --control: commands from a fifo or a socket while recording. One a line:
 *
 *   enable | disable        sampling on and off; what was mapped meanwhile is read on enable
 *   add PID                 one more process
 *   refresh PID             read its mappings and threads' names again; with -f attach descendants
 *   summary                 counters so far
 *   stop                    end the recording
 *
 * Each is answered by one line: on standard error for a fifo, on its own connection for a socket.
 *
 * A socket (see control_socket.c) has up to CAP_CLIENTS connections; one more takes the place of
 * the one that was quiet the longest. Nobody is waited for: a turn reads at most one line of each,
 * a line that is too long or an answer that finds no room ends its connection. */
#ifndef CAP_CONTROL_H
#define CAP_CONTROL_H

#include <sys/types.h>

#include "session.h"

#define CAP_CLIENTS 8u
#define CAP_LINE 256u

struct cap_line {
	char text[CAP_LINE]; /* with a NUL once it is whole */
	size_t n;
	bool too_long;
};

struct cap_client {
	int fd;          /* owned; -1 = none */
	uint64_t active; /* number of the turn that heard of it last */
	struct cap_line line;
};

struct cap_control {
	int fd;       /* owned: the fifo, or an epoll of the socket and its clients; -1 = none */
	int listener; /* owned; -1 = a fifo */
	int spare;    /* owned: given up to refuse a client when descriptors end */
	const char *path; /* borrowed */
	bool made;        /* what stands at path is ours to remove: this device and inode */
	dev_t dev;
	ino_t ino;
	struct cap_line line; /* of the fifo; of either: the last command */
	struct cap_client clients[CAP_CLIENTS];
	size_t at;     /* the client that is next in this turn */
	size_t asking; /* the client whose command was last */
	uint64_t turn;
	uint32_t n_read; /* bytes of the fifo in this turn */
};

/* Open path: a socket when its name ends in ".sock", made; else a fifo, made when it is not there.
 */
int cap_control_open(struct cap_control *c, const char *path, struct sp_err *err);
void cap_control_close(struct cap_control *c);

enum cap_command { CAP_ENABLE, CAP_DISABLE, CAP_ADD, CAP_REFRESH, CAP_SUMMARY, CAP_STOP, CAP_BAD };

/* The next whole line as a command (*pid for add and refresh), its text in c->line; false when
 * there is none yet, or enough in one turn: then c->fd stays readable. */
bool cap_control_next(struct cap_control *c, enum cap_command *what, int32_t *pid);
/* Answer the last command. */
void cap_control_say(struct cap_control *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* --- control_socket.c --- */
bool cap_control_is_socket(const char *path);
int cap_control_listen(struct cap_control *c, const char *path, struct sp_err *err);
/* One turn over the clients: true with a line that one of them said. */
bool cap_control_hear(struct cap_control *c);
void cap_control_send(struct cap_control *c, const char *text, size_t len);
void cap_control_hang_up(struct cap_control *c);

/* --- the pure part --- */
enum cap_command cap_command_parse(const char *line, int32_t *pid);
/* One more byte; true when it ends a line that is not empty: its text then has no end of line. The
 * next byte begins another. */
bool cap_line_add(struct cap_line *l, char byte);

#endif
