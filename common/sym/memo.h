/* Answers that a file's symbols gave before, as one block of bytes: what the cache keeps of a
 * module. Sorted by address, looked up in place. It is only used when its key, which says of which
 * files, options and version of this program the answers are, equals the asker's byte for byte.
 *
 * Layout, all little-endian: magic "SPMEMO1\n"; u32 CRC-32 of what follows; u32 sizes: bytes of the
 * key, number of files, of answers, of levels, bytes of strings; the key, padded to 8; files (u64
 * dev, ino, size, mtime ns, ctime ns; u32 path; u32 0), answers (u64 address, u64 start of the
 * function, u32 first level, u32 levels), levels (u32 function, u32 file, u32 line, u32 inlined),
 * strings. Strings are named by their offset, each ends with a NUL, and the first byte is one: 0
 * stands for none.
 *
 * Pure, and nothing in it is trusted: every offset is checked where it is used. */
#ifndef SP_SYM_MEMO_H
#define SP_SYM_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "sym/resolver.h"

#define SP_MEMO_MAX ((size_t)32 << 20) /* bytes; a larger one is begun anew */
#define SP_MEMO_LEVELS_MAX 200u        /* of an answer */
#define SP_MEMO_FILES_MAX 1024u

/* Which state of which file: what stat(2) tells. */
struct sp_memo_file {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
	const char *path; /* borrowed from the block */
};

struct sp_memo_answer {
	uint64_t svma, func_start;
	const struct sp_name *levels; /* borrowed */
	uint32_t n_levels;            /* 0: nothing is known of the address */
};

struct sp_memo {
	const uint8_t *data; /* borrowed */
	size_t size, files, answers, levels, strings; /* offsets in it */
	uint32_t n_files, n_answers, n_levels, n_strings;
};

/* 1 when data is whole and has that key, 0 when not. data must outlive m. */
int sp_memo_open(struct sp_memo *m, const void *data, size_t size, const void *key, size_t key_len);
/* The i-th other file that the answers rest on (split DWARF, dwz); false when it cannot be read. */
bool sp_memo_file(const struct sp_memo *m, uint32_t i, struct sp_memo_file *out);
/* 1, levels[0 … n_levels-1] and the rest of *out (whose levels points there); 0 when the address
 * was never asked. The strings are the block's. */
int sp_memo_find(const struct sp_memo *m, uint64_t svma, struct sp_name levels[SP_MEMO_LEVELS_MAX],
		 struct sp_memo_answer *out);

/* Writes a block: the answers of old (or NULL) and the fresh ones, which are sorted in place; of
 * two for an address one is kept. False when memory ends or it would be too large. */
bool sp_memo_write(struct sp_buf *out, const void *key, size_t key_len,
		   const struct sp_memo_file *files, size_t n_files, const struct sp_memo *old,
		   struct sp_memo_answer *fresh, size_t n_fresh);

#endif
