/* Blocks of bytes put aside, to be read again: the first ones in memory, the others in a file
 * without a name. What goes with the number of samples lies here, so that memory does not. */
#ifndef SYM_SCRATCH_H
#define SYM_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SCRATCH_BLOCK 4096u
#define SCRATCH_IN_MEMORY 4096u /* blocks: 16 MiB */
#define SCRATCH_NONE UINT32_MAX /* no number of a block */

struct scratch {
	int fd;           /* borrowed; -1 = all stay in memory */
	uint8_t **blocks; /* owned, and each of them, NULL = in the file */
	size_t n, cap;
};

/* A descriptor of such a file, which goes when it is closed: beside `beside` (a file that is about
 * to be written; NULL and "-" are none), or in TMPDIR or /var/tmp; -1 when there can be none.
 * Before the sandbox. */
int scratch_open(const char *beside);

/* A zeroed struct with fd set is empty. */
void scratch_deinit(struct scratch *s);
/* Puts SCRATCH_BLOCK bytes aside: their number, from 0. A full disk is no error while there is
 * memory. */
int scratch_add(struct scratch *s, const uint8_t *block, uint32_t *id, struct sp_err *err);
/* Those bytes, in buf or where they are: valid until the next call with that buf. */
const uint8_t *scratch_get(const struct scratch *s, uint32_t id, uint8_t buf[SCRATCH_BLOCK],
			   struct sp_err *err);

#endif
