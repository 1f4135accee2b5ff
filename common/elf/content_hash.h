/* What identifies a file that its linker gave no build-id: a hash of its bytes, which is the same
 * on every machine, wherever a copy of the file stands and whatever its times are. */
#ifndef SP_ELF_CONTENT_HASH_H
#define SP_ELF_CONTENT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/build_id.h"

/* Of larger files the first and the last half of so many bytes are hashed, the headers and first
 * code, and the tables of symbols, which stand at the end and have every function's address; and of
 * what is between a page in each MiB. A function that has another size moves all that follows it:
 * two builds whose functions lie at the same places unwind and are named alike. Reading all of a
 * compiler's 150 MB cost more than all samples of a short run. */
#define SP_CONTENT_HASH_MAX ((size_t)8 << 20)

/* The parts of a file that are hashed, in order: where part i (from 0 on) begins; its size, 0 = there
 * are no more. */
size_t sp_content_part(size_t size, size_t i, size_t *at);

/* The hash of a whole file: its size, and its parts as above. Pure; the values are stored in
 * streams and spools and never change. It is made against accidents (another build at the same
 * path), not against people: who can write the file can make two of the same hash.
 *
 * Four lanes of 64 bits, each a multiply and rotate per 8 bytes as in xxHash's XXH64: about 0.1 ns
 * per byte, what reading memory takes. */
void sp_content_hash(const void *data, size_t size, uint8_t out[SP_CONTENT_HASH_BYTES]);
/* Whether a file has the hash. */
bool sp_content_is(const void *data, size_t size, const uint8_t hash[SP_CONTENT_HASH_BYTES]);

#endif
