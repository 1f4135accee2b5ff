/* Inside of embed: runtimes that generate code, their perf maps and jitdumps. */
#ifndef CAP_EMBED_JIT_H
#define CAP_EMBED_JIT_H

#include "embed.h"

void cap_jit_map(struct cap_embed_state *s, struct cap_proc *q, const char *path, size_t len,
		 uint64_t time_ns);
void cap_jits_free(struct cap_embed_state *s);

/* Shared by embed.c. map or bytes (one of them) is taken over. */
void cap_embed_add(struct cap_embed_state *s, const struct sp_ext_object *what,
		   struct sp_map_file *map, struct sp_buf *bytes);
bool cap_embed_may(struct cap_embed_state *s, uint64_t bytes, const char *name);

#endif
