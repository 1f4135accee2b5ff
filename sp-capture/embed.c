#define _GNU_SOURCE
#include "embed.h"

#include <elf.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/file.h"
#include "maps/procs.h"

#define VDSO_MAX (UINT64_C(16) << 20)

static uint64_t own_mapping_bytes(uint64_t start)
{
	struct sp_buf b = {0};
	uint64_t len = 0;
	if (sp_file_read("/proc/self/maps", 64 << 20, &b, NULL) >= 0) {
		const char *p = (const char *)b.data, *end = p + b.len;
		while (p < end && !len) {
			const char *nl = memchr(p, '\n', (size_t)(end - p));
			const char *stop = nl ? nl : end;
			struct sp_perf_mmap m;
			if (sp_maps_line(p, (size_t)(stop - p), &m) && m.start == start)
				len = m.len;
			p = stop + 1;
		}
	}
	sp_buf_deinit(&b);
	return len;
}

void cap_embed_vdso(struct cap_emit *e)
{
	uint64_t start = getauxval(AT_SYSINFO_EHDR);
	uint64_t len = start ? own_mapping_bytes(start) : 0;
	const void *image = (const void *)(uintptr_t)start; /* NOLINT: an address from the kernel */
	if (!len || len > VDSO_MAX || memcmp(image, ELFMAG, SELFMAG) != 0)
		return;
	static const char name[] = "[vdso]";
	struct sp_ext_object o = {
		.kind = SP_OBJECT_FILE,
		.pid = -1,
		.time_ns = e->now_ns,
		.path = name,
		.path_len = sizeof name - 1,
		.data = image,
		.size = len,
	};
	struct sp_buf b = {0};
	sp_ext_object_encode(&b, &o);
	if (!b.failed)
		cap_emit_ext(e, SP_EXT_OBJECT, b.data, b.len);
	sp_buf_deinit(&b);
}
