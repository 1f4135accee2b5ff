/* Rules from code without CFI: the input is what stands at the end of a file's code, so that nothing
 * behind it may be read.
 *
 * fuzz: sp-unwind/[a-z]*.c */
#include "../unit/image.h"

#include "../../sp-unwind/code.h"
#include "../../sp-unwind/insn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct image image;
	static struct uw_module *module;
	struct uw_insn insn;

	if (!module) {
		image_new(&image, EM_X86_64);
		image_finish(&image);
		module = image_module(&image);
		if (!module)
			abort();
	}
	if (uw_insn_decode(data, size, &insn) && (!insn.len || insn.len > size))
		abort();
	if (size > IMAGE_SIZE - IMAGE_EH)
		return 0;
	uint64_t from = IMAGE_SIZE - size;
	memcpy(image.data + from, data, size);
	for (uint64_t at = from; at < IMAGE_SIZE; at++) {
		(void)uw_code_rule(module, at);
		(void)uw_code_call(module, at);
	}
	return 0;
}
