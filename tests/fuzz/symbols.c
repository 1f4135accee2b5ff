/* Symbols, lines and inlines of an ELF file: the addresses asked are its own and some beside. */
#include "elf/elf_file.h"
#include "sym/symfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_symfile *s = NULL;
	const struct sp_name *names;
	const struct sp_elf *elf;
	uint64_t start;
	struct sp_err err;

	if (sp_symfile_open_image(&s, data, size, "fuzz", NULL, &err) < 0)
		return 0;
	elf = sp_symfile_elf(s);
	for (size_t i = 0; i < elf->n_sections && i < 64; i++) {
		uint64_t svma = elf->sections[i].svma;

		for (uint64_t step = 0; step < 8; step++)
			sp_symfile_lookup(s, svma + step * (elf->sections[i].size / 8 + 1), &names,
					  &start, &err);
	}
	sp_symfile_close(s);
	return 0;
}
