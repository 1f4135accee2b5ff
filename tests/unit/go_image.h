/* A Go program's image, stripped, made by hand: code at 0x1000, .gopclntab at 0x4008, data at
 * 0x8000, all SVMAs equal to file offsets. Values of its lists, files, lines and inlined calls as
 * Go's linker writes them (cmd/link/internal/ld/pcln.go). */
#ifndef SP_TESTS_GO_IMAGE_H
#define SP_TESTS_GO_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image_head.h"

#define GO_SIZE 0xa000u
#define GO_NOTE 0x380u
#define GO_CODE 0x1000u
#define GO_TEXT 0x1200u /* runtime.text: behind code of C's */
#define GO_TABLE 0x4008u /* Go 1.26 aligns it to no more */
#define GO_TABLE_SIZE 0x3000u
#define GO_MODULE 0x8100u
#define GO_DYNAMIC 0x8800u
#define GO_RELAS 0x9000u

/* Where the address is from which functions are counted. */
enum go_place {
	GO_IN_HEAD,      /* Go 1.18 to 1.25 */
	GO_HEAD_RELOC,   /* the same, of a program that may lie anywhere */
	GO_MODULE_RELOC, /* Go 1.26's */
	GO_MODULE_WORDS, /* Go 1.26's at its final address */
	GO_NOWHERE,
};

struct go_options {
	uint16_t machine;
	bool old;      /* Go 1.18's form */
	bool sections; /* section headers, with .gopclntab */
	bool joined;   /* which is part of .data.rel.ro: there is no section of that name */
	enum go_place place;
};

struct go_func {
	uint32_t entry, size; /* size: without padding */
	const char *name;
	uint8_t flags;
	uint32_t pcsp, pcfile, pcln, inlined; /* lists: go_list; 0: none */
	uint32_t tree;                        /* of its inlined calls, when inlined is a list */
};

struct go_image {
	uint8_t *data; /* owned: GO_SIZE bytes */
	struct go_options o;
	size_t names, units, files, values, inlined; /* ends of what was written, file offsets */
	struct go_func funcs[16];
	unsigned n;
};

/* Parts of the table, from its beginning. */
enum {
	GO_NAMES = 0x100,
	GO_UNITS = 0x400,
	GO_FILES = 0x500,
	GO_VALUES = 0x700,
	GO_FUNCS = 0xc00,
	GO_INLINED = 0x2800, /* go:func.* */
};

static inline void go_u32(struct go_image *m, size_t at, uint32_t v)
{
	memcpy(m->data + at, &v, 4);
}

static inline void go_u64(struct go_image *m, size_t at, uint64_t v)
{
	memcpy(m->data + at, &v, 8);
}

static inline void go_new(struct go_image *m, const struct go_options *o)
{
	*m = (struct go_image){.data = calloc(1, GO_SIZE),
			       .o = *o,
			       .names = GO_TABLE + GO_NAMES,
			       .units = GO_TABLE + GO_UNITS,
			       .files = GO_TABLE + GO_FILES,
			       .values = GO_TABLE + GO_VALUES + 1,
			       .inlined = GO_TABLE + GO_INLINED};
	if (!m->data)
		abort();
}

/* A string behind those of its part; its offset there. */
static inline uint32_t go_string(struct go_image *m, size_t *end, size_t begin, const char *s)
{
	uint32_t off = (uint32_t)(*end - GO_TABLE - begin);
	memcpy(m->data + *end, s, strlen(s) + 1);
	*end += strlen(s) + 1;
	return off;
}

static inline void go_varint(struct go_image *m, uint32_t v)
{
	for (; v >= 0x80; v >>= 7)
		m->data[m->values++] = (uint8_t)(v | 0x80);
	m->data[m->values++] = (uint8_t)v;
}

/* A list: n pairs of a value and of the offset in the function up to which it holds. */
static inline uint32_t go_list(struct go_image *m, const int32_t (*pairs)[2], unsigned n)
{
	uint32_t off = (uint32_t)(m->values - GO_TABLE - GO_VALUES);
	uint32_t quantum = m->o.machine == EM_AARCH64 ? 4 : 1;
	int32_t value = -1, to = 0;
	for (unsigned i = 0; i < n; i++) {
		int32_t delta = pairs[i][0] - value;
		go_varint(m, (uint32_t)delta << 1 ^ (uint32_t)(delta >> 31));
		go_varint(m, (uint32_t)(pairs[i][1] - to) / quantum);
		value = pairs[i][0];
		to = pairs[i][1];
	}
	m->data[m->values++] = 0;
	return off;
}
#define GO_LIST(m, ...)                                                                            \
	go_list(m, (const int32_t[][2]){__VA_ARGS__},                                              \
		sizeof((const int32_t[][2]){__VA_ARGS__}) / sizeof(int32_t[2]))

/* A file of the one compilation unit; its number there. */
static inline int32_t go_file(struct go_image *m, const char *name)
{
	int32_t i = (int32_t)((m->units - GO_TABLE - GO_UNITS) / 4);
	go_u32(m, m->units, go_string(m, &m->files, GO_FILES, name));
	m->units += 4;
	return i;
}

/* An inlined call, behind those before; parent: of an instruction of the caller, in the function.
 */
static inline uint32_t go_inlined(struct go_image *m, const char *name, uint32_t parent)
{
	uint32_t off = (uint32_t)(m->inlined - GO_TABLE - GO_INLINED);
	size_t at = m->inlined + (m->o.old ? 12 : 4);
	go_u32(m, at, go_string(m, &m->names, GO_NAMES, name));
	go_u32(m, at + 4, parent);
	m->inlined += m->o.old ? 20 : 16;
	return off;
}

/* Functions come in ascending order. */
static inline void go_func(struct go_image *m, const struct go_func *f)
{
	m->funcs[m->n++] = *f;
}

static inline void go_write_funcs(struct go_image *m)
{
	size_t ftab = GO_TABLE + GO_FUNCS, at = ftab + 8 * m->n + 8;
	for (unsigned i = 0; i < m->n; i++) {
		const struct go_func *f = &m->funcs[i];
		go_u32(m, ftab + 8 * i, f->entry);
		go_u32(m, ftab + 8 * i + 4, (uint32_t)(at - ftab));
		go_u32(m, at, f->entry);
		go_u32(m, at + 4, go_string(m, &m->names, GO_NAMES, f->name));
		go_u32(m, at + 16, f->pcsp);
		go_u32(m, at + 20, f->pcfile);
		go_u32(m, at + 24, f->pcln);
		go_u32(m, at + 28, f->inlined ? 3 : 0);
		go_u32(m, at + 32, 0); /* the unit */
		at += m->o.old ? 36 : 40;
		m->data[at + 1] = f->flags;
		m->data[at + 3] = f->inlined ? 4 : 0;
		at += 4;
		if (f->inlined) {
			go_u32(m, at + 8, f->inlined);
			memset(m->data + at + 12, 0xff, 12);
			go_u32(m, at + 24, f->tree);
			at += 28;
		}
		at = (at + 7) & ~(size_t)7;
	}
	const struct go_func *last = &m->funcs[m->n - 1];
	go_u32(m, ftab + 8 * m->n, last->entry + last->size);
}

/* A pointer: in its place, or by a relocation. */
static inline void go_pointer(struct go_image *m, unsigned *n_relas, size_t at, uint64_t v)
{
	if (m->o.place != GO_HEAD_RELOC && m->o.place != GO_MODULE_RELOC) {
		go_u64(m, at, v);
		return;
	}
	bool arm = m->o.machine == EM_AARCH64;
	size_t rela = GO_RELAS + 24 * (*n_relas)++;
	go_u64(m, rela, at);
	go_u64(m, rela + 8, arm ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE);
	go_u64(m, rela + 16, v);
}

static inline void go_write_sections(struct go_image *m)
{
	static const char names[] = "\0.gopclntab\0.go.module\0.shstrtab\0.go.buildinfo";
	const size_t at = 0x200, strings = 0x1c0;
	bool has_module = m->o.place == GO_MODULE_RELOC;
	Elf64_Shdr s[4] = {
		{0},
		{.sh_name = m->o.joined ? 33 : 1,
		 .sh_type = SHT_PROGBITS,
		 .sh_flags = SHF_ALLOC,
		 .sh_addr = GO_TABLE,
		 .sh_offset = GO_TABLE,
		 .sh_size = GO_TABLE_SIZE},
		{.sh_name = has_module ? 12 : 0,
		 .sh_type = SHT_PROGBITS,
		 .sh_flags = SHF_ALLOC | SHF_WRITE,
		 .sh_addr = GO_MODULE,
		 .sh_offset = GO_MODULE,
		 .sh_size = 0x200},
		{.sh_name = 23,
		 .sh_type = SHT_STRTAB,
		 .sh_offset = strings,
		 .sh_size = sizeof names},
	};
	memcpy(m->data + strings, names, sizeof names);
	memcpy(m->data + at, s, sizeof s);
	Elf64_Ehdr *e = (Elf64_Ehdr *)(void *)m->data;
	e->e_shoff = at;
	e->e_shentsize = sizeof *s;
	e->e_shnum = 4;
	e->e_shstrndx = 3;
}

/* Writes the rest. */
static inline void go_finish(struct go_image *m)
{
	const enum go_place place = m->o.place;
	const bool arm = m->o.machine == EM_AARCH64;
	const uint64_t head[] = {m->n,      1,        place == GO_IN_HEAD ? GO_TEXT : 0,
				 GO_NAMES,  GO_UNITS, GO_FILES,
				 GO_VALUES, GO_FUNCS};
	unsigned n_relas = 0;
	go_u32(m, GO_TABLE, m->o.old ? 0xfffffff0 : 0xfffffff1);
	m->data[GO_TABLE + 6] = arm ? 4 : 1;
	m->data[GO_TABLE + 7] = 8;
	memcpy(m->data + GO_TABLE + 8, head, sizeof head);
	go_write_funcs(m);
	if (place == GO_HEAD_RELOC)
		go_pointer(m, &n_relas, GO_TABLE + 24, GO_TEXT);
	if (place != GO_NOWHERE) {
		go_pointer(m, &n_relas, GO_MODULE, GO_TABLE);
		go_pointer(m, &n_relas, GO_MODULE + 8, GO_TABLE + GO_NAMES);
		go_pointer(m, &n_relas, GO_MODULE + 8 * 22, GO_TEXT);
		go_pointer(m, &n_relas, GO_MODULE + 8 * (m->o.old ? 38 : 40),
			   GO_TABLE + GO_INLINED);
	}
	const uint64_t dynamic[] = {DT_RELA, GO_RELAS, DT_RELASZ, 24 * n_relas, DT_NULL, 0};
	memcpy(m->data + GO_DYNAMIC, dynamic, sizeof dynamic);
	/* Go's build-id, of one byte. */
	static const uint8_t note[] = {4, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 'G', 'o', 0, 0, 'x'};
	memcpy(m->data + GO_NOTE, note, sizeof note);
	const Elf64_Phdr p[] = {
		{PT_LOAD, PF_R | PF_X, GO_CODE, GO_CODE, GO_CODE, 0x3000, 0x3000, 0x1000},
		{PT_LOAD, PF_R, 0x4000, 0x4000, 0x4000, 0x4000, 0x4000, 0x1000},
		{PT_LOAD, PF_R | PF_W, 0x8000, 0x8000, 0x8000, 0x2000, 0x2000, 0x1000},
		{PT_DYNAMIC, PF_R, GO_DYNAMIC, GO_DYNAMIC, GO_DYNAMIC, 0x100, 0x100, 8},
		{PT_NOTE, PF_R, GO_NOTE, GO_NOTE, GO_NOTE, sizeof note, sizeof note, 4},
		{m->o.joined ? PT_GNU_RELRO : PT_NULL, PF_R, 0x4000, 0x4000, 0x4000, 0x4000, 0x4000,
		 1},
	};
	image_head(m->data, m->o.machine, p, sizeof p / sizeof *p);
	if (m->o.sections)
		go_write_sections(m);
}

#endif
