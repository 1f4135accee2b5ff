/* The bytes of a section, inflated when they are compressed. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "elf/elf_file.h"

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

struct packed {
	const uint8_t *data;
	size_t size;
	uint64_t raw_size;
	uint32_t kind; /* ELFCOMPRESS_*; 0 = not compressed */
};

/* SHF_COMPRESSED has an Elf_Chdr; GNU's older .zdebug_* has "ZLIB" and a big-endian size. */
static bool read_packing(const struct sp_elf *e, const struct sp_section *s, struct packed *p)
{
	struct sp_cursor c = sp_elf_cursor(e, p->data, p->size);
	if (s->flags & SHF_COMPRESSED) {
		p->kind = sp_cur_u32(&c);
		if (e->is64)
			sp_cur_u32(&c);
		p->raw_size = e->is64 ? sp_cur_u64(&c) : sp_cur_u32(&c);
		sp_cur_skip(&c, e->is64 ? 8 : 4);
	} else if (!strncmp(s->name, ".zdebug_", 8) && p->size >= 12 &&
		   !memcmp(p->data, "ZLIB", 4)) {
		p->kind = ELFCOMPRESS_ZLIB;
		sp_cur_skip(&c, 4);
		c.swap = true;
		p->raw_size = sp_cur_u64(&c);
	}
	p->data = c.p;
	p->size = sp_cur_left(&c);
	return !c.bad;
}

/* All of raw, or false. libdeflate inflates whole buffers in a third of zlib's time. */
static bool inflate_zlib(uint8_t *raw, size_t raw_size, const struct packed *p)
{
	struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
	bool ok = d && libdeflate_zlib_decompress(d, p->data, p->size, raw, raw_size, NULL) ==
			       LIBDEFLATE_SUCCESS;
	libdeflate_free_decompressor(d);
	return ok;
}

int sp_elf_section_data(const struct sp_elf *e, const struct sp_section *s, const uint8_t **data,
			size_t *size, void **owned, struct sp_err *err)
{
	struct packed p = {.data = e->data, .size = 0};
	if (s->type != SHT_NOBITS) {
		if (s->foff > e->size || s->size > e->size - s->foff)
			return sp_err_set(err, SP_ERR_CORRUPT, 0,
					  "section %s reaches past the end of the file", s->name);
		p = (struct packed){.data = e->data + s->foff, .size = s->size};
	}
	if (!read_packing(e, s, &p))
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "section %s: its compression header is cut", s->name);
	if (!p.kind) {
		*data = p.data;
		*size = p.size;
		*owned = NULL;
		return 0;
	}
	if (p.kind != ELFCOMPRESS_ZLIB && p.kind != ELFCOMPRESS_ZSTD)
		return sp_err_set(err, SP_ERR_UNSUPPORTED, 0, "section %s: compression kind %u", s->name,
				  p.kind);
	/* zlib reaches 1032:1 at most; zstd more, but not on debug data. A header that promises more
	 * than that lies, and must not reach the allocator. */
	if (p.raw_size > SP_SECTION_MAX || p.raw_size / 1100 > p.size)
		return sp_err_set(err, SP_ERR_LIMIT, 0, "section %s: %llu bytes when inflated",
				  s->name, (unsigned long long)p.raw_size);
	uint8_t *raw = malloc(p.raw_size ? p.raw_size : 1);
	if (!raw)
		return sp_err_nomem(err);
	bool ok = p.kind == ELFCOMPRESS_ZLIB
			  ? inflate_zlib(raw, p.raw_size, &p)
			  : ZSTD_decompress(raw, p.raw_size, p.data, p.size) == p.raw_size;
	if (!ok) {
		free(raw);
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "section %s: its compressed data is damaged", s->name);
	}
	sp_map_file_release(&e->map, p.data, p.size);
	*data = raw;
	*size = p.raw_size;
	*owned = raw;
	return 0;
}
