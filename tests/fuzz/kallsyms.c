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
	struct sp_kallsyms k;
	const size_t n = sizeof needed / sizeof *needed;
	if (sp_kallsyms_init(&k, needed, n, NULL) < 0)
		return 0;
	sp_kallsyms_add(&k, (const char *)data, size, NULL);
	for (size_t i = 0; i < n; i++) {
		struct sp_kernel_symbol symbol;
		if (sp_kallsyms_find(&k, needed[i], &symbol) && symbol.start > needed[i])
			abort();
	}
	sp_kallsyms_deinit(&k);
	return 0;
}
