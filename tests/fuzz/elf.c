/* ELF files: headers, segments, sections (inflated too), links to debug files, address arithmetic.
 */
#include <stdlib.h>

#include "elf/elf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_elf e;
	struct sp_err err;
	struct sp_build_id id;
	const char *name;
	uint32_t crc;
	uint64_t out;
	size_t left;

	if (sp_elf_init(&e, data, size, &err) < 0)
		return 0;
	for (size_t i = 0; i < e.n_sections; i++) {
		const uint8_t *bytes;
		void *owned = NULL;
		size_t n;

		/* Inflating megabytes for each input would make the fuzzer slow, not thorough. */
		if (e.sections[i].size > 1u << 20)
			continue;
		if (sp_elf_section_data(&e, &e.sections[i], &bytes, &n, &owned, &err) >= 0 &&
		    n > 0) {
			volatile uint8_t touch = (uint8_t)(bytes[0] + bytes[n - 1]);
			(void)touch;
		}
		free(owned);
	}
	for (size_t i = 0; i < e.n_segments; i++) {
		const struct sp_segment *s = &e.segments[i];
		const uint8_t *at = sp_elf_at_svma(&e, s->svma, &left);

		if (at && left > 0) {
			volatile uint8_t touch = (uint8_t)(at[0] + at[left - 1]);
			(void)touch;
		}
		sp_elf_foff_to_svma(&e, s->foff, &out);
		sp_elf_bias(&e, 0x7f0000000000, s->filesz, s->foff, &out);
	}
	sp_elf_debuglink(&e, &name, &crc);
	sp_elf_altlink(&e, &name, &id);
	sp_elf_close(&e);
	return 0;
}
