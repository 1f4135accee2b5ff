/* What a symbolizer's command says. fuzz: sp-sym/answer.c */
#include <stdlib.h>

#include "../../sp-sym/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sp_symbol_level levels[ANSWER_LEVELS];
	size_t n = size ? answer_length((const char *)data, size) : 0;
	if (n > size)
		abort();
	char *text = malloc(n + 1);
	struct sp_symbols s = {0};
	if (!text)
		return 0;
	if (n)
		memcpy(text, data, n);
	int rc = n ? answer_parse(text, n, 0x10, levels, &s) : 0;
	/* What is used lies within the answer, and ends there. */
	for (size_t i = 0; rc > 0 && i < s.n; i++) {
		const char *parts[] = {s.levels[i].name, s.levels[i].file};
		for (size_t k = 0; k < 2; k++)
			if (parts[k] && (parts[k] < text || parts[k] >= text + n ||
					 !memchr(parts[k], 0, (size_t)(text + n - parts[k]))))
				abort();
	}
	if (rc > 0 && !s.n)
		abort();
	free(text);
	return 0;
}
