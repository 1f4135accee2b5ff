/* How large a recording may grow: --max-size, and the room that it leaves on the file system it is
 * written to (--min-free). A recording that nobody ends must not fill the disk. */
#ifndef CAP_LIMIT_H
#define CAP_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "options.h"

enum cap_limit_state {
	CAP_WITHIN,
	CAP_MAX_SIZE, /* what is written has the size that was asked for */
	CAP_LOW,      /* the file system has less room than must be left */
};

struct cap_limit {
	const struct cap_options *o; /* borrowed */
	int fd;                      /* borrowed: where the stream goes */
	char *dir;                   /* owned; of a spool, else NULL */
	bool on_disk;                /* fd is a file */
	struct cap_limit_old {       /* a spool that was there before, until it is replaced */
		dev_t dev;
		ino_t ino;
		off_t size;
		int64_t mtime_ns;
	} old;
	uint64_t looked_ns, looked_bytes, free_bytes, min_free_bytes; /* at the last look */
	enum cap_limit_state state;
};

/* Before anything is written to fd. An error when the room is short already; cure: what helps. */
int cap_limit_init(struct cap_limit *l, const struct cap_options *o, int fd, char cure[200],
		   struct sp_err *err);
/* Whether it is time to end; looks when that is due. stream_bytes: of the stream so far. */
bool cap_limit_reached(struct cap_limit *l, uint64_t stream_bytes, uint64_t now_ns);
/* Say why it ended, if it did so here. */
void cap_limit_say(const struct cap_limit *l);
void cap_limit_deinit(struct cap_limit *l);

/* --- the pure part --- */

/* The room that is left by default on a file system of that size: a hundredth, at most 512 MiB. */
uint64_t cap_limit_min_free(uint64_t size_bytes);
/* Whether to look: ten times a second, and when half the room may be used up since the last look. */
bool cap_limit_is_due(const struct cap_limit *l, uint64_t stream_bytes, uint64_t now_ns);

#endif
