#include "elf/minidebug.h"

#include <lzma.h>
#include <stdlib.h>

#define MAX_RAW (UINT64_C(256) << 20)
#define MAX_MEMORY (UINT64_C(128) << 20)

int sp_minidebug_open(struct sp_elf *out, const struct sp_elf *e, struct sp_err *err)
{
	const struct sp_section *s = sp_elf_section(e, ".gnu_debugdata");
	const uint8_t *p;
	size_t size;
	void *packed = NULL;
	if (!s || s->type == SHT_NOBITS)
		return 0;
	int rc = sp_elf_section_data(e, s, &p, &size, &packed, err);
	if (rc < 0)
		return rc;
	struct sp_buf raw = {0};
	size_t in_at = 0, out_at = 0;
	uint64_t memory = MAX_MEMORY;
	lzma_ret got = LZMA_BUF_ERROR;
	/* The size is not said up front: 64 KiB, 128 KiB, … until it fits. */
	for (size_t room = 64u << 10; got == LZMA_BUF_ERROR && room <= MAX_RAW; room *= 2) {
		raw.len = in_at = out_at = 0;
		if (!sp_buf_reserve(&raw, room))
			break;
		got = lzma_stream_buffer_decode(&memory, 0, NULL, p, &in_at, size, raw.data,
						&out_at, room);
	}
	free(packed);
	if (raw.failed) {
		rc = sp_err_nomem(err);
	} else if (got != LZMA_OK) {
		rc = sp_err_set(err, got == LZMA_BUF_ERROR ? SP_ERR_LIMIT : SP_ERR_CORRUPT, 0,
				".gnu_debugdata cannot be unpacked");
	} else {
		rc = sp_elf_init(out, raw.data, out_at, err);
		rc = rc < 0 ? rc : 1;
	}
	if (rc == 1)
		out->owned = raw.data;
	else
		sp_buf_deinit(&raw);
	return rc;
}
