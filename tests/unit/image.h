/* An ELF image with CFI, made by hand: code at 0x1000, .eh_frame_hdr at 0x4000, .eh_frame at
 * 0x5000, all SVMAs equal to file offsets; no section headers. */
#ifndef SP_TESTS_IMAGE_H
#define SP_TESTS_IMAGE_H

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sp-unwind/walk.h"
#include "image_head.h"

#define IMAGE_SIZE 0x8000
#define IMAGE_HDR 0x4000
#define IMAGE_EH 0x5000
#define IMAGE_FDES 64

struct image {
	uint8_t *data;
	size_t at, cie, cie_signal; /* in data */
	struct {
		int32_t begin, fde;
	} table[IMAGE_FDES];
	size_t n;
};

static inline void image_bytes(struct image *m, const void *p, size_t n)
{
	memcpy(m->data + m->at, p, n);
	m->at += n;
}

static inline void image_u32(struct image *m, uint32_t v)
{
	image_bytes(m, &v, 4);
}

/* CIE "zR" or "zRS", pc-relative sdata4; program: CFA = sp + first, and on x86-64 the return
 * address at CFA - 8. */
static inline size_t image_cie(struct image *m, bool arm, bool signal)
{
	size_t off = m->at;
	const uint8_t head[] = {1, 'z', 'R'};
	const uint8_t x86[] = {1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1};
	const uint8_t arm64[] = {4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0};
	image_u32(m, 0);
	image_u32(m, 0);
	image_bytes(m, head, 3);
	image_bytes(m, signal ? "S" : "", signal ? 2 : 1);
	image_bytes(m, arm ? arm64 : x86, 10);
	while (m->at % 4)
		m->data[m->at++] = 0;
	uint32_t len = (uint32_t)(m->at - off - 4);
	memcpy(m->data + off, &len, 4);
	return off;
}

static inline void image_new(struct image *m, uint16_t machine)
{
	*m = (struct image){.data = calloc(1, IMAGE_SIZE), .at = IMAGE_EH};
	const Elf64_Phdr p[] = {
		{PT_LOAD, PF_R | PF_X, 0, 0, 0, IMAGE_SIZE, IMAGE_SIZE, 0x1000},
		{PT_GNU_EH_FRAME, PF_R, IMAGE_HDR, IMAGE_HDR, IMAGE_HDR, 0x1000, 0x1000, 4},
	};
	image_head(m->data, machine, p, sizeof p / sizeof *p);
	m->cie = image_cie(m, machine == EM_AARCH64, false);
	m->cie_signal = image_cie(m, machine == EM_AARCH64, true);
}

/* A function; give them in ascending order. */
static inline void image_fde(struct image *m, bool signal, uint32_t begin, uint32_t len,
			     const void *program, size_t n)
{
	size_t off = m->at;
	image_u32(m, 0);
	image_u32(m, (uint32_t)(m->at - (signal ? m->cie_signal : m->cie)));
	image_u32(m, begin - (uint32_t)m->at);
	image_u32(m, len);
	m->data[m->at++] = 0;
	image_bytes(m, program, n);
	while (m->at % 4)
		m->data[m->at++] = 0;
	uint32_t size = (uint32_t)(m->at - off - 4);
	memcpy(m->data + off, &size, 4);
	m->table[m->n].begin = (int32_t)begin - IMAGE_HDR;
	m->table[m->n++].fde = (int32_t)off - IMAGE_HDR;
}
#define IMAGE_FDE(m, signal, begin, len, ...)                                                      \
	image_fde(m, signal, begin, len, (const uint8_t[]){__VA_ARGS__},                           \
		  sizeof((const uint8_t[]){__VA_ARGS__}))

/* The functions that every x86-64 image has, before its own. */
enum {
	LEAF = 0x1000,   /* CFA = rsp + 8 */
	PUSHED = 0x1100, /* rbp pushed: CFA = rsp + 16, rbp at CFA - 16 */
	FRAMED = 0x1200, /* CFA = rbp + 16, rbp at CFA - 16 */
	ROOT = 0x1300,   /* return address undefined */
};

static inline void image_x86_basics(struct image *m)
{
	IMAGE_FDE(m, false, LEAF, 0x100, 0);
	IMAGE_FDE(m, false, PUSHED, 0x100, 0x0e, 16, 0x86, 2);
	IMAGE_FDE(m, false, FRAMED, 0x100, 0x0c, 6, 16, 0x86, 2);
	IMAGE_FDE(m, false, ROOT, 0x100, 0x07, 16);
}

/* Writes the header. */
static inline void image_finish(struct image *m)
{
	uint8_t *h = m->data + IMAGE_HDR;
	const uint8_t head[] = {1, 0x1b, 0x03, 0x3b};
	int32_t eh = IMAGE_EH - IMAGE_HDR - 4;
	memcpy(h, head, 4);
	memcpy(h + 4, &eh, 4);
	uint32_t n = (uint32_t)m->n;
	memcpy(h + 8, &n, 4);
	memcpy(h + 12, m->table, m->n * sizeof *m->table);
}

/* NULL and a message when it can't be opened. */
static inline struct uw_module *image_module(const struct image *m)
{
	struct sp_elf *e = calloc(1, sizeof *e);
	struct uw_module *out = NULL;
	struct sp_err err;
	if (!e || sp_elf_init(e, m->data, IMAGE_SIZE, &err) < 0 ||
	    uw_module_new(&out, e, NULL, &err) < 0)
		printf("# %s\n", err.msg);
	return out;
}

#endif
