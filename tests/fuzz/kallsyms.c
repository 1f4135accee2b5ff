/* Kernel symbols for some addresses. */
#include <stdlib.h>

#include "sym/kallsyms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t needed[] = {1,
					  0x1000,
					  0xffffffff81000000,
					  0xffffffff81000008,
					  0xffffffff81000018,
					  0xffffffffc0000010,
					  UINT64_MAX};
	for (int bisect = 0; bisect < 2; bisect++) {
		struct sp_kallsyms k;
		size_t from = bisect ? 2 : 0, n = sizeof needed / sizeof *needed - from;
		if (sp_kallsyms_init(&k, needed + from, n, NULL) < 0)
			return 0;
		if (bisect)
			sp_kallsyms_add_sorted(&k, (const char *)data, size, needed[from], NULL);
		else
			sp_kallsyms_add(&k, (const char *)data, size, NULL);
		for (size_t i = from; i < from + n; i++) {
			struct sp_kernel_symbol symbol;
			if (sp_kallsyms_find(&k, needed[i], &symbol) && symbol.start > needed[i])
				abort();
		}
		sp_kallsyms_deinit(&k);
	}
	return 0;
}
