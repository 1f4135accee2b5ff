/* One ELF file, read by (pointer, length): segments, sections, identity. 32 and 64 bit, either
 * byte order; nothing is trusted, every offset is checked. Immutable after open, so that threads
 * share it; sections are inflated by whoever asks.
 * Sources: the System V gABI; the LSB's note and debuglink chapters. */
#ifndef SP_ELF_ELF_FILE_H
#define SP_ELF_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/build_id.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/file.h"

#define SP_SECTION_MAX (UINT64_C(512) << 20) /* largest inflated section */

struct sp_segment {
	uint32_t type, flags; /* PT_*, PF_* */
	uint64_t foff, svma, filesz, memsz, align;
};

struct sp_section {
	const char *name; /* borrowed from the file's bytes; "" when unreadable */
	uint32_t type;    /* SHT_* */
	uint32_t link, info;
	uint64_t flags; /* SHF_* */
	uint64_t svma, foff, size, entsize, align;
};

struct sp_elf {
	const uint8_t *data; /* borrowed: the whole image */
	size_t size;
	bool is64, swap;  /* swap: other byte order than this machine's */
	uint16_t machine; /* EM_* */
	uint16_t type;    /* ET_* */
	uint64_t entry_svma;
	struct sp_segment *segments; /* owned */
	size_t n_segments;
	struct sp_section *sections; /* owned; index = section number */
	size_t n_sections;
	struct sp_build_id build_id;
	/* Of the ELF header: where the section headers are, for sp_elf_read_sections. */
	bool sections_unread;
	uint64_t shoff;
	uint32_t shnum, shstrndx;
	uint16_t shentsize;
	/* While it is parsed: a copy of the first bytes, or NULL. */
	const uint8_t *head;
	size_t head_bytes;
	/* Set by sp_elf_open only. */
	struct sp_map_file map;
	char *path;  /* owned */
	bool is_member; /* of an archive, by its name: offsets of mappings count from the image */
	void *owned; /* the image itself when it had to be made, freed on close; or NULL */
};

/* Parse an image that the caller keeps alive. A file with broken section headers still opens with
 * n_sections = 0, as long as its ELF header is whole: program headers are what the kernel used. */
int sp_elf_init(struct sp_elf *e, const void *data, size_t size, struct sp_err *err);
/* The same without touching the image, as long as its header, its segments and its build-id lie in
 * `head`, a copy of its first bytes: to touch a mapped file and to give back what the kernel maps
 * around that place costs some 5 us (measured on Linux 6.18). Then sections_unread is set, and
 * there are no sections before one thread has called sp_elf_read_sections, which fails for memory
 * only. */
int sp_elf_init_head(struct sp_elf *e, const void *data, size_t size, const void *head,
		     size_t head_bytes, struct sp_err *err);
int sp_elf_read_sections(struct sp_elf *e, struct sp_err *err);
/* Map and parse a file (offset: an ELF image inside an archive; size 0 = to the end). */
int sp_elf_open(struct sp_elf *e, const char *path, struct sp_err *err);
int sp_elf_open_fd(struct sp_elf *e, int fd, const char *name, struct sp_err *err);
void sp_elf_close(struct sp_elf *e);

const struct sp_section *sp_elf_section(const struct sp_elf *e, const char *name); /* or NULL */
const struct sp_segment *sp_elf_segment(const struct sp_elf *e, uint32_t type); /* first, or NULL */

/* The bytes of a section. Compressed ones (SHF_COMPRESSED zlib and zstd, .zdebug_*) are inflated
 * into *owned, which the caller frees (it is NULL when the bytes are in place). 0 and
 * (*data, *size), also for an empty or SHT_NOBITS section; SP_ERR_CORRUPT, SP_ERR_LIMIT,
 * SP_ERR_UNSUPPORTED (compression kind). */
int sp_elf_section_data(const struct sp_elf *e, const struct sp_section *s, const uint8_t **data,
			size_t *size, void **owned, struct sp_err *err);

/* Bytes of the image at a segment's address, up to the end of the segment's file part. NULL when
 * no PT_LOAD has it. */
const uint8_t *sp_elf_at_svma(const struct sp_elf *e, uint64_t svma, size_t *left);

/* The SVMA of a file offset, by the PT_LOAD that holds it, for mappings of the file at
 * [map_foff, map_foff + map_len). true and *svma, or false when the segments contradict each other
 * or none fits. This is the "image base" rule of the crate's behaviour.md 1.9. */
bool sp_elf_foff_to_svma(const struct sp_elf *e, uint64_t foff, uint64_t *svma);
/* bias = AVMA - SVMA (wrapping) for a mapping of this file; false as above. */
bool sp_elf_bias(const struct sp_elf *e, uint64_t map_start, uint64_t map_len, uint64_t map_foff,
		 uint64_t *bias);

/* Name and CRC of .gnu_debuglink; alt: path and build-id of .gnu_debugaltlink. false = none. */
bool sp_elf_debuglink(const struct sp_elf *e, const char **name, uint32_t *crc);
/* The content of the first note in a PT_NOTE segment of that owner and type, of 1 to max bytes; or
 * NULL. */
const uint8_t *sp_elf_note(const struct sp_elf *e, const char owner[4], uint32_t type, size_t max,
			   size_t *len);
bool sp_elf_altlink(const struct sp_elf *e, const char **name, struct sp_build_id *id);

static inline struct sp_cursor sp_elf_cursor(const struct sp_elf *e, const void *data, size_t len)
{
	struct sp_cursor c = sp_cursor(data, len);
	c.swap = e->swap;
	return c;
}

/* Lower-case hex into out (2 * len + 1 bytes). */
void sp_build_id_hex(const struct sp_build_id *id, char out[2 * SP_BUILD_ID_MAX + 1]);
/* Whether a recording may have `recorded` for a file with that build-id: perf pads short ones with
 * zeros to 20 bytes and cuts long ones. */
bool sp_build_id_recorded(const struct sp_build_id *recorded, const struct sp_build_id *file);

#endif
