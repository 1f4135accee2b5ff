/* The pages of a mapped input that are in memory: brought in ahead of the reader and let go behind
 * it. Both cost more than reading the records (0.4 to 1 us for a record of 16 KiB whose file is in
 * the page cache, Linux 6.18), and any thread may do them that has time. Bytes stay the same
 * whoever does what, and when: pages that are let go come back from the file when they are read. */
#ifndef SP_PERF_WINDOW_H
#define SP_PERF_WINDOW_H

#include <stdatomic.h>

#include "base/file.h"

struct sp_window { /* zeroed: at the file's begin; offsets in the file */
	_Atomic uint64_t reading; /* where the reader is */
	_Atomic uint64_t needed;  /* records from here on still wait for their turn */
	_Atomic uint64_t asked;   /* up to here pages are in memory, or are being brought */
	_Atomic uint64_t dropped; /* and below here they are gone */
	_Atomic bool helped;      /* by other threads than the reader's */
	_Atomic bool wanted;      /* the reader goes through the map: threads may help */
	_Atomic bool ended;       /* nobody looks at records any more: all may go */
};

/* The reader is at offset `at`: bring in what it needs next, unless somebody did. The offset at
 * which it is to call again. */
uint64_t sp_window_move(struct sp_window *w, const struct sp_map_file *map, uint64_t at);
/* Any thread but the reader's, with nothing better to do: bring in a piece more, or let some go.
 * False: there is enough. */
bool sp_window_help(struct sp_window *w, const struct sp_map_file *map);
/* Whether it is worth waking a thread for it. */
bool sp_window_wants(const struct sp_window *w, const struct sp_map_file *map);

#endif
