/* One ELF file: identity, image base, compressed sections, hostile headers. The images are made
 * here, byte by byte, so that every field is known. */
#include "tap.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "elf/elf_file.h"

struct image {
	union {
		uint8_t bytes[16384];
		struct {
			Elf64_Ehdr header;
			Elf64_Phdr segments[8];
		};
	};
};

static void image_init(struct image *im, unsigned n_segments)
{
	memset(im, 0, sizeof *im);
	memcpy(im->header.e_ident, ELFMAG "\2\1\1", 7);
	im->header.e_type = ET_DYN;
	im->header.e_machine = EM_X86_64;
	im->header.e_phoff = 64;
	im->header.e_phentsize = sizeof(Elf64_Phdr);
	im->header.e_phnum = (uint16_t)n_segments;
}

static void load(struct image *im, unsigned i, uint64_t foff, uint64_t svma, uint64_t size,
		 unsigned flags)
{
	im->segments[i] = (Elf64_Phdr){.p_type = PT_LOAD,
				       .p_flags = flags,
				       .p_offset = foff,
				       .p_vaddr = svma,
				       .p_filesz = size,
				       .p_memsz = size};
}

static bool bias_of(struct image *im, uint64_t start, uint64_t len, uint64_t foff, uint64_t *bias)
{
	struct sp_elf e;
	if (sp_elf_init(&e, im->bytes, sizeof im->bytes, NULL) < 0)
		return false;
	bool ok = sp_elf_bias(&e, start, len, foff, bias);
	sp_elf_close(&e);
	return ok;
}

static void test_bias(void)
{
	static struct image im;
	uint64_t bias = 0;
	image_init(&im, 2);
	load(&im, 0, 0, 0, 0x800, PF_R);
	load(&im, 1, 0x1000, 0x2000, 0x900, PF_R | PF_X);
	tap_ok(bias_of(&im, 0x7f0000001000, 0x1000, 0x1000, &bias), "a code mapping has a bias");
	tap_eq(bias, 0x7f0000001000 - 0x2000, "bias is AVMA minus SVMA of the segment");
	image_init(&im, 2);
	load(&im, 0, 0, 0, 0x1100, PF_R);
	load(&im, 1, 0x1100, 0x201100, 0x300, PF_R | PF_X);
	tap_ok(bias_of(&im, 0x555500001000, 0x1000, 0x1000, &bias) &&
		       bias == 0x555500001000 - 0x201000,
	       "of two segments in one page (lld), the one that begins there wins");
	image_init(&im, 2);
	load(&im, 0, 0x1000, 0x1000, 0x400, PF_R | PF_X);
	load(&im, 1, 0x1400, 0x9400, 0x400, PF_R | PF_X);
	tap_ok(!bias_of(&im, 0x7f0000001000, 0x1000, 0x1000, &bias),
	       "two code segments of different bias in one page are not guessed between");
	image_init(&im, 1);
	load(&im, 0, 0x1000, 0x1000, UINT64_MAX, PF_R | PF_X);
	tap_ok(!bias_of(&im, 0x7f0000001000, 0x1000, 0x1000, &bias),
	       "a segment that overflows is ignored");
	image_init(&im, 1);
	load(&im, 0, 0, 0x400000, 0x3000, PF_R | PF_X);
	tap_ok(bias_of(&im, 0x400000, 0x3000, 0, &bias) && bias == 0,
	       "a fixed-address program has bias 0");
	struct sp_elf e;
	uint64_t svma = 0;
	sp_elf_init(&e, im.bytes, sizeof im.bytes, NULL);
	tap_ok(sp_elf_foff_to_svma(&e, 0x1234, &svma) && svma == 0x401234,
	       "a file offset has its SVMA");
	tap_ok(!sp_elf_foff_to_svma(&e, 0x9234, &svma), "an offset in no segment has none");
	sp_elf_close(&e);
}

static void test_hostile(void)
{
	static struct image im;
	struct sp_elf e;
	struct sp_err err;
	image_init(&im, 1);
	tap_ok(sp_elf_init(&e, "\177ELX", 4, &err) == SP_ERR_CORRUPT, "other files are refused");
	bool all = true;
	for (size_t cut = 0; cut < 200; cut++) {
		int rc = sp_elf_init(&e, im.bytes, cut, &err);
		all &= cut < 64 ? rc == SP_ERR_CORRUPT : rc == 0;
		if (rc == 0)
			sp_elf_close(&e);
	}
	tap_ok(all, "a header that is cut is refused, whatever else is cut opens");
	im.header.e_phnum = 0xfffe;
	im.header.e_shoff = UINT64_MAX - 3;
	im.header.e_shnum = 0xfffe;
	im.header.e_shentsize = 64;
	tap_ok(sp_elf_init(&e, im.bytes, sizeof im.bytes, &err) == 0 && e.n_sections == 0 &&
		       e.n_segments == (sizeof im.bytes - 64) / 56,
	       "tables that reach past the file are cut or dropped");
	sp_elf_close(&e);
}

static void test_sections(void)
{
	static uint8_t packed[4096];
	uint8_t raw[2000];
	memset(raw, 'a', sizeof raw);
	Elf64_Chdr head = {.ch_type = ELFCOMPRESS_ZLIB, .ch_size = sizeof raw, .ch_addralign = 1};
	memcpy(packed, &head, sizeof head);
	struct libdeflate_compressor *z = libdeflate_alloc_compressor(6);
	size_t room = libdeflate_zlib_compress(z, raw, sizeof raw, packed + sizeof head,
					       sizeof packed - sizeof head);
	libdeflate_free_compressor(z);
	struct sp_elf e = {.data = packed, .size = sizeof head + room, .is64 = true};
	struct sp_section s = {
		.name = ".debug_x", .type = SHT_PROGBITS, .flags = SHF_COMPRESSED, .size = e.size};
	const uint8_t *data;
	size_t size;
	void *owned = NULL;
	struct sp_err err;
	tap_ok(sp_elf_section_data(&e, &s, &data, &size, &owned, &err) == 0 && size == sizeof raw &&
		       !memcmp(data, raw, size),
	       "a zlib section inflates to its bytes");
	free(owned);
	head.ch_size = UINT64_C(1) << 40;
	memcpy(packed, &head, sizeof head);
	tap_ok(sp_elf_section_data(&e, &s, &data, &size, &owned, &err) == SP_ERR_LIMIT,
	       "a section that claims a terabyte is refused before it is allocated");
	head.ch_size = sizeof raw + 1;
	memcpy(packed, &head, sizeof head);
	tap_ok(sp_elf_section_data(&e, &s, &data, &size, &owned, &err) == SP_ERR_CORRUPT,
	       "a section that lies about its size is refused");
	s.foff = 1;
	tap_ok(sp_elf_section_data(&e, &s, &data, &size, &owned, &err) == SP_ERR_CORRUPT,
	       "a section past the end of the file is refused");
}

static void test_self(const char *path)
{
	struct sp_elf e;
	struct sp_err err;
	if (!tap_ok(sp_elf_open(&e, path, &err) == 0, "the test itself opens"))
		return;
	const struct sp_section *text = sp_elf_section(&e, ".text");
	size_t left = 0;
	tap_ok(text && sp_elf_at_svma(&e, text->svma, &left) == e.data + text->foff &&
		       left >= text->size,
	       "an address leads to the bytes of its section");
	tap_ok(sp_elf_segment(&e, PT_GNU_EH_FRAME) && e.is64, "its segments are read");
	sp_elf_close(&e);
}

/* The first bytes are enough for all but the sections; the image is one that nobody may touch. */
static void test_head(const char *path)
{
	struct sp_elf e, h;
	struct sp_err err;
	uint8_t head[4096];
	if (!tap_ok(sp_elf_open(&e, path, &err) == 0 && e.size > sizeof head, "the test opens again"))
		return;
	memcpy(head, e.data, sizeof head);
	void *closed = mmap(NULL, e.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	tap_ok(sp_elf_init_head(&h, closed, e.size, head, sizeof head, &err) == 0 &&
		       h.n_segments == e.n_segments && h.entry_svma == e.entry_svma &&
		       h.build_id.len && sp_build_id_equal(&h.build_id, &e.build_id),
	       "segments and build-id lie in the head");
	tap_ok(h.sections_unread && !h.n_sections, "then no section is read");
	sp_elf_close(&h);

	size_t differ = 0;
	tap_ok(sp_elf_init_head(&h, e.data, e.size, head, sizeof head, &err) == 0 &&
		       sp_elf_read_sections(&h, &err) == 0 && h.n_sections == e.n_sections,
	       "they are when they are asked for");
	for (size_t i = 0; i < h.n_sections && i < e.n_sections; i++)
		differ += strcmp(h.sections[i].name, e.sections[i].name) != 0 ||
			  h.sections[i].svma != e.sections[i].svma;
	tap_ok(!differ && h.n_sections && !h.sections_unread, "and are the same");
	sp_elf_close(&h);
	tap_ok(sp_elf_init_head(&h, e.data, e.size, head, 70, &err) == 0 &&
		       h.n_segments == e.n_segments &&
		       sp_build_id_equal(&h.build_id, &e.build_id),
	       "what a short head has not is read in the image");
	sp_elf_close(&h);
	munmap(closed, e.size);
	sp_elf_close(&e);

	static struct image im;
	image_init(&im, 1);
	load(&im, 0, 0, 0, 0x800, PF_R);
	tap_ok(sp_elf_init_head(&h, im.bytes, sizeof im.bytes, im.bytes, 4096, &err) == 0 &&
		       !h.sections_unread,
	       "without a build-id sections do not wait: it may be there");
	sp_elf_close(&h);
}

int main(int argc, char **argv)
{
	(void)argc;
	test_bias();
	test_hostile();
	test_sections();
	test_self(argv[0]);
	test_head(argv[0]);
	return tap_done();
}
