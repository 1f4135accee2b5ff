/* What every ELF image made by hand begins with. */
#ifndef SP_TESTS_IMAGE_HEAD_H
#define SP_TESTS_IMAGE_HEAD_H

#include <elf.h>
#include <stdint.h>
#include <string.h>

/* The header of a shared object without sections, and behind it n program headers. */
static inline void image_head(uint8_t *data, uint16_t machine, const Elf64_Phdr *p, uint16_t n)
{
	const Elf64_Ehdr e = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = machine,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof e,
		.e_ehsize = sizeof e,
		.e_phentsize = sizeof *p,
		.e_phnum = n,
	};
	memcpy(data, &e, sizeof e);
	memcpy(data + sizeof e, p, n * sizeof *p);
}

#endif
