/* The folder of what sp-sym keeps between runs: $XDG_CACHE_HOME/stackpulse/symbols, else
 * ~/.cache/stackpulse/symbols. It is a cache: whatever is missing, damaged, old or not to be
 * trusted in it is passed over in silence and made again, and all of it may be deleted at any time.
 *
 * Only a folder of the user's own, that nobody else can write to, is used, and only such files in
 * it; links are not followed. A file gets its name when it is whole, so that several processes may
 * write at once: the last one stays. It is not forced to the disk: its reader checks a checksum. */
#ifndef SP_SYM_CACHEDIR_H
#define SP_SYM_CACHEDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/file.h"

#define SP_CACHEDIR_BYTES (UINT64_C(512) << 20) /* beyond this the oldest files go */
#define SP_CACHEDIR_FILES 4096u

struct sp_cachedir {
	int fd; /* owned; -1 = there is none to use */
	char path[4096];
};

/* Finds and makes the folder. 1; 0 when there is none that may be used, and then every call below
 * finds nothing and writes nothing. */
int sp_cachedir_open(struct sp_cachedir *d);
void sp_cachedir_close(struct sp_cachedir *d);

/* A file of it: 1 and *out, 0 when there is none. d may be NULL. Threads may share d. */
int sp_cachedir_map(const struct sp_cachedir *d, const char *name, struct sp_map_file *out);
/* Replaces a file, and deletes the oldest ones where there is too much. False when it could not. */
bool sp_cachedir_write(const struct sp_cachedir *d, const char *name, const void *data,
		       size_t size);

#endif
