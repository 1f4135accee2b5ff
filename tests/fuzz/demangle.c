/* Names for people: bounded in time and length, whatever the name. */
#include <stdlib.h>

#include "sym/demangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_buf name = {0}, out = {0};
	sp_buf_add(&name, data, size);
	sp_buf_u8(&name, 0);
	if (!name.failed && sp_demangle((const char *)name.data, &out) > 0 &&
	    out.len > SP_DEMANGLED_MAX)
		abort();
	sp_buf_deinit(&name);
	sp_buf_deinit(&out);
	return 0;
}
