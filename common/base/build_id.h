/* The identity that linkers give a file: .note.gnu.build-id. Where they gave none, a hash of its
 * content (elf/content_hash.h). */
#ifndef SP_BASE_BUILD_ID_H
#define SP_BASE_BUILD_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SP_BUILD_ID_MAX 64
#define SP_CONTENT_HASH_BYTES 20

struct sp_build_id {
	uint8_t len; /* 0 = none */
	uint8_t bytes[SP_BUILD_ID_MAX];
};

static inline bool sp_build_id_equal(const struct sp_build_id *a, const struct sp_build_id *b)
{
	return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

#endif
