/* Kernel names: the text mapping for the stream's head, and the lines of /proc/kallsyms that the
 * sampled addresses need. */
#ifndef CAP_KALLSYMS_H
#define CAP_KALLSYMS_H

#include "embed.h"

/* The kernel's own MMAP of pid -1, as perf writes it; nothing when addresses are hidden. */
void cap_kernel_map_emit(struct cap_emit *e, uint64_t time_ns);

/* The lines around the sampled kernel addresses, as one object. */
void cap_kallsyms_embed(struct cap_embed_state *s);

/* --- the pure part --- */

/* Append the lines of text that name the symbol at or before each address (all aliases of its
 * address) and the one line after it, in the order of the text; _text, _stext and _etext too. The
 * addresses are sorted. Lines may come in any order. */
bool cap_kallsyms_pick(const char *text, size_t len, const uint64_t *addrs, size_t n,
		       struct sp_buf *out);

#endif
