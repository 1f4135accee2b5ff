/* What a symbolizer's command says to an address (sp-sym.1, SYMBOLIZER COMMANDS): lines in pairs,
 * function and place, the innermost inlined function first, and an empty line. The form is that of
 * llvm-symbolizer; that of its --verbose also tells where functions begin. Pure: bytes in, levels
 * out. */
#ifndef SYM_ANSWER_H
#define SYM_ANSWER_H

#include "base/buf.h"
#include "stackpulse/symbolize.h"

#define ANSWER_MAX ((size_t)1 << 20)
#define ANSWER_LEVELS 512

/* How many of the n bytes are the first answer, its empty line too; 0: that has not come yet. */
size_t answer_length(const char *text, size_t n);

/* The levels of an answer, whose bytes are written into: 1 and *out (levels: room for
 * ANSWER_LEVELS), 0 when it knows nothing, -1 when it is none, or is about another address: a first
 * line of its own with the address that was asked is allowed. */
int answer_parse(char *text, size_t n, uint64_t svma, struct sp_symbol_level *levels,
		 struct sp_symbols *out);

/* The question about an address; false when the path cannot be written in a line. */
bool answer_question(struct sp_buf *b, const char *path, uint64_t svma);

#endif
