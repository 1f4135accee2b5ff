/* The cache's block of answers: behind the checksum, which is set right first, anything goes. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "sym/memo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t sum;

static void read_all(const struct sp_memo *m)
{
	static struct sp_name levels[SP_MEMO_LEVELS_MAX];
	struct sp_memo_answer a;
	struct sp_memo_file f;
	for (uint32_t i = 0; i < m->n_files && i < 8; i++)
		if (sp_memo_file(m, i, &f))
			sum += strlen(f.path);
	for (uint64_t svma = 0; svma < 64; svma++) {
		if (!sp_memo_find(m, svma * 0x100, levels, &a))
			continue;
		if (a.n_levels > SP_MEMO_LEVELS_MAX)
			abort();
		for (uint32_t i = 0; i < a.n_levels; i++)
			sum += (a.levels[i].function ? strlen(a.levels[i].function) : 0) +
			       (a.levels[i].file ? strlen(a.levels[i].file) : 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sp_name level = {"f", "g", 1, false};
	struct sp_memo m;
	struct sp_buf merged = {0};
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	size_t key_len = size >= 32 ? sp_get32(copy + 12) : 0;
	if (size >= 32 && key_len <= size - 32) {
		memcpy(copy, "SPMEMO1\n", 8);
		sp_put32(copy + 8, libdeflate_crc32(0, copy + 12, size - 12));
		if (sp_memo_open(&m, copy, size, copy + 32, key_len)) {
			struct sp_memo_answer fresh = {0x1000, 0x1000, &level, 1};
			read_all(&m);
			/* Whatever was in it, what is written from it can be read. */
			if (sp_memo_write(&merged, copy + 32, key_len, NULL, 0, &m, &fresh, 1)) {
				if (!sp_memo_open(&m, merged.data, merged.len, copy + 32, key_len))
					abort();
				read_all(&m);
			}
		}
	}
	sp_buf_deinit(&merged);
	free(copy);
	return 0;
}
