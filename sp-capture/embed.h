/* Files that would be gone, or of others, when the profile is looked at: into the stream. */
#ifndef CAP_EMBED_H
#define CAP_EMBED_H

#include "emit.h"

/* The vdso image of this machine, from our own memory: it is the same in every 64-bit process. */
void cap_embed_vdso(struct cap_emit *e);

#endif
