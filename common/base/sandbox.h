/* What a tool that reads untrusted bytes gives up before it reads the first one (design.md,
 * Hostile input): new privileges, and - where the kernel has Landlock - every file access but
 * reading, except below the folders it writes to; executing; network connections.
 *
 * Landlock also forbids to look into processes outside of the sandbox, and /proc/PID/exe, root and
 * map_files count as that (security/landlock/ptrace.c of Linux 5.13 and later). A helper process
 * that was forked before opens those for us: sp_file_open() asks it by itself. */
#ifndef SP_BASE_SANDBOX_H
#define SP_BASE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct sp_sandbox {
	const char *const *write_dirs; /* existing folders; NULL entries are skipped */
	size_t n_write_dirs;
	bool network; /* keep it: for a tool that asks servers in its own process */
	bool exec;    /* keep it */
};

/* Call once, in the only thread, after opening the outputs and before reading input. Open
 * descriptors stay usable. Returns 1 when Landlock holds, 0 when the kernel cannot (new privileges
 * are given up all the same); never fails for that. */
int sp_sandbox_enter(const struct sp_sandbox *s);

/* For sp_file_open: whether path must be asked from the helper, and its answer: a descriptor, or -1
 * with errno. */
bool sp_opener_wants(const char *path);
int sp_opener_open(const char *path, int open_flags);

#endif
