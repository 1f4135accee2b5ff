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
	static const uint16_t machines[] = {EM_X86_64, EM_AARCH64};
	static struct image images[2];
	static struct uw_module *modules[2];
	struct uw_insn insn;

	for (unsigned i = 0; i < 2 && !modules[i]; i++) {
		image_new(&images[i], machines[i]);
		image_finish(&images[i]);
		modules[i] = image_module(&images[i]);
		if (!modules[i])
			abort();
	}
	if (uw_insn_decode(data, size, &insn) && (!insn.len || insn.len > size))
		abort();
	if (size > IMAGE_SIZE - IMAGE_EH)
		return 0;
	uint64_t from = IMAGE_SIZE - size;
	for (unsigned i = 0; i < 2; i++) {
		memcpy(images[i].data + from, data, size);
		for (uint64_t at = from; at < IMAGE_SIZE; at++) {
			(void)uw_code_rule(modules[i], at);
			(void)uw_code_call(modules[i], at);
		}
	}
	return 0;
}
