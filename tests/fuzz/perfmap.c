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
		/* The first address of an entry belongs to it or to one that begins there too. */
		if (!sp_jitmap_find(&m, m.ranges.v[i].lo, &found) ||
		    found.start != m.ranges.v[i].lo)
			abort();
		sp_python_name(found.name, &function, &function_len, &file, &file_len);
	}
	sp_jitmap_deinit(&m);
	return 0;
}
