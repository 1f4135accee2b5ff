/* The sandbox's helper process; see sandbox.h. */
#ifndef SP_BASE_OPENER_H
#define SP_BASE_OPENER_H

#include <stdbool.h>

/* Fork the helper. False when that fails: then files of other processes are out of reach. */
bool sp_opener_start(void);
/* Whether path is of the kind that the helper opens. */
bool sp_opener_knows(const char *path);

#endif
