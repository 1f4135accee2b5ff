/* Debug files by build-id from debuginfod servers, and from their cache on this disk.
 *
 * Servers are asked by helper processes that were forked before the sandbox; they load
 * libdebuginfod when they are asked first, so that nothing is linked and nothing is loaded where
 * it is not used. The cache is libdebuginfod's: CACHE/buildid/debuginfo, a miss is an empty file.
 * State of the whole process: for tools; a library's user gives a function of his own. */
#ifndef SP_ELF_DEBUGINFOD_H
#define SP_ELF_DEBUGINFOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sp_debuginfod_mode {
	SP_DEBUGINFOD_AUTO,  /* cache and servers, if DEBUGINFOD_URLS is set */
	SP_DEBUGINFOD_NEVER, /* neither; what holds until start is called */
	SP_DEBUGINFOD_CACHE, /* the cache alone */
};

/* Servers that say nothing for so long in all, before any of them has answered, are given up. */
#define SP_DEBUGINFOD_PATIENCE_S 3

/* Once, in the only thread, before sp_sandbox_enter. STACKPULSE_DEBUGINFOD_CACHE_DIR says where the
 * cache is, else XDG_CACHE_HOME/stackpulse/debuginfod, else ~/.cache/stackpulse/debuginfod.
 * Whether there is anything to ask. */
bool sp_debuginfod_start(enum sp_debuginfod_mode mode);

/* Who is told, some times a second, how much of a file has come. Before threads; called by any. */
typedef void sp_debuginfod_teller(const char *build_id, int64_t done, int64_t total);
void sp_debuginfod_tell(sp_debuginfod_teller *fn);
/* The path of the debug file of a build-id (hex): 1; or 0, at once when there is nobody to ask. As
 * sp_resolver_options.fetch_debug; ctx is not used. Any thread. */
int sp_debuginfod_fetch(void *ctx, const char *build_id, char *path, size_t path_size);

/* Why servers were given up, for one line to the user; NULL when they were not. */
const char *sp_debuginfod_complaint(void);

#endif
