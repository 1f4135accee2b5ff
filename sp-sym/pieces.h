/* Texts of whole stacks, kept while there is room: what a format repeats with each sample is made
 * once. When the room ends, all are forgotten and made again as they come. */
#ifndef SYM_PIECES_H
#define SYM_PIECES_H

#include "base/table.h"
#include "out.h"

struct pieces {
	struct out text; /* what is being written; .memory must be set */
	struct sp_buf kept;
	struct sp_map64 ids; /* by key: the piece; empty when the keys are the pieces' numbers */
	struct piece {
		size_t at, n; /* in kept; n 0 = it is not there */
	} * v;                /* owned */
	size_t n, cap;
	bool dense;
};

#define PIECES                                                                                     \
	{                                                                                          \
		.text = {.memory = true }                                                          \
	}

/* All keys will be below n: quicker, and v[key] is what pieces_write looks up. False when memory
 * ended. */
bool pieces_dense(struct pieces *p, size_t n);
/* Write that piece again: false when it is not known. Then the caller writes it to p->text, and
 * pieces_end, which is false when memory ended, keeps it and sends it to o. Always the same o,
 * which refers to what is kept: pieces_deinit flushes it. */
bool pieces_write(struct pieces *p, uint64_t key, struct out *o);
bool pieces_end(struct pieces *p, uint64_t key, struct out *o);
void pieces_deinit(struct pieces *p, struct out *o);

#endif
