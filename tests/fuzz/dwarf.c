/* DWARF sections alone, in an ELF file that is always sound: the fuzzer's bytes reach the readers
 * of abbreviations, entries, ranges and lines without first having to look like ELF. Input: a
 * 16-bit length for each section, then their bytes in that order. Code is at 0x1000 to 0x3000. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/le.h"
#include "sym/symfile.h"

static const char *const names[] = {".debug_info",     ".debug_abbrev",   ".debug_line",
				    ".debug_str",      ".debug_line_str", ".debug_ranges",
				    ".debug_rnglists", ".debug_addr",     ".debug_str_offsets",
				    ".debug_aranges",  ".debug_sup"};
#define N_DEBUG (sizeof names / sizeof *names)
#define N_SECTIONS (N_DEBUG + 3) /* null, .text and .shstrtab besides */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void section(struct sp_buf *b, uint32_t name, uint32_t type, uint64_t flags, uint64_t svma,
		    uint64_t foff, uint64_t n)
{
	Elf64_Shdr s = {.sh_name = name,
			.sh_type = type,
			.sh_flags = flags,
			.sh_addr = svma,
			.sh_offset = foff,
			.sh_size = n};
	sp_buf_add(b, &s, sizeof s);
}

static void make_elf(struct sp_buf *b, const uint8_t *data, size_t size)
{
	struct sp_buf strings = {0};
	Elf64_Ehdr e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
			.e_type = ET_DYN,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_ehsize = sizeof e,
			.e_shoff = sizeof e,
			.e_shentsize = sizeof(Elf64_Shdr),
			.e_shnum = N_SECTIONS,
			.e_shstrndx = 2};
	size_t strings_at = sizeof e + N_SECTIONS * sizeof(Elf64_Shdr);
	uint32_t name_at[N_DEBUG];
	sp_buf_add(&strings, "\0.text\0.shstrtab", 17);
	for (size_t i = 0; i < N_DEBUG; i++) {
		name_at[i] = (uint32_t)strings.len;
		sp_buf_add(&strings, names[i], strlen(names[i]) + 1);
	}
	sp_buf_add(b, &e, sizeof e);
	section(b, 0, SHT_NULL, 0, 0, 0, 0);
	section(b, 1, SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, 0x1000, 0, 0x2000);
	section(b, 7, SHT_STRTAB, 0, 0, strings_at, strings.len);
	size_t at = 2 * N_DEBUG, left = size - at;
	for (size_t i = 0; i < N_DEBUG; i++) {
		size_t n = sp_get16(data + 2 * i);
		n = n < left ? n : left;
		section(b, name_at[i], SHT_PROGBITS, 0, 0,
			strings_at + strings.len + (at - 2 * N_DEBUG), n);
		at += n;
		left -= n;
	}
	sp_buf_add(b, strings.data, strings.len);
	sp_buf_add(b, data + 2 * N_DEBUG, at - 2 * N_DEBUG);
	sp_buf_deinit(&strings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_buf b = {0};
	struct sp_symfile *s = NULL;
	if (size < 2 * N_DEBUG)
		return 0;
	make_elf(&b, data, size);
	if (!b.failed && sp_symfile_open_image(&s, b.data, b.len, "fuzz", NULL, NULL) >= 0) {
		for (uint64_t svma = 0x1000; svma < 0x3000; svma += 0x35) {
			const struct sp_name *levels;
			uint64_t start;
			int n = sp_symfile_lookup(s, svma, &levels, &start, NULL);
			for (int i = 0; i < n; i++)
				if (levels[i].file && !*levels[i].file)
					abort();
		}
	}
	sp_symfile_close(s);
	sp_buf_deinit(&b);
	return 0;
}
