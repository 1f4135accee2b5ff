/* Perf maps and jitdumps: parsed, asked, their names split. */
#include <stdlib.h>

#include "sym/jitmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_jitmap m = {0};
	sp_jitmap_add_jitdump(&m, data, size, NULL);
	sp_jitmap_add_perf_map(&m, data, size, NULL);
	sp_jitmap_sort(&m, NULL);
	for (size_t i = 0; i < m.ranges.n; i++) {
		struct sp_jit_found found;
		const char *function, *file;
		size_t function_len, file_len;
		uint64_t lo = m.ranges.v[i].lo;
		/* The first address of an entry belongs to it or to one that begins there too; where
		 * there are times, to any that holds it. */
		if (!sp_jitmap_find(&m, lo, UINT64_MAX, &found) || found.start > lo ||
		    (!m.n_changes && found.start != lo))
			abort();
		if (!sp_jitmap_find(&m, lo, m.entries[m.ranges.v[i].id].from_ns, &found) ||
		    sp_jitmap_epoch(&m, 0) > sp_jitmap_epoch(&m, UINT64_MAX))
			abort();
		sp_python_name(found.name, &function, &function_len, &file, &file_len);
	}
	sp_jitmap_deinit(&m);
	return 0;
}
