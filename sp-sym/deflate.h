/* A gzip member of any length in bounded memory, quickly (RFC 1951, RFC 1952): what libdeflate,
 * which wants all of it at once, cannot do. About its level 1. */
#ifndef SYM_DEFLATE_H
#define SYM_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct deflate;

/* NULL when memory ends. */
struct deflate *deflate_new(void);
void deflate_free(struct deflate *d);
/* Takes n bytes; what is compressed so far is appended to out, a block at a time. */
void deflate_add(struct deflate *d, const void *data, size_t n, struct sp_buf *out);
/* The rest, and the member's end. */
void deflate_end(struct deflate *d, struct sp_buf *out);

#endif
