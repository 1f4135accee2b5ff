/* Call frame information made by hand: entries, encodings, programs, tables, rules.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_program.c sp-unwind/cfi_table.c */
#include "tap.h"

#include <stdlib.h>

#include "base/buf.h"

#include "../../sp-unwind/cfi_table.h"
#include "base/le.h"

#define SVMA 0x10000u

/* A section under construction. */
static struct sp_buf b;
static struct cfi_section s;

static void begin(bool eh)
{
	b.len = 0;
	s = (struct cfi_section){.svma = SVMA,
				 .text_svma = 0x1000,
				 .data_svma = 0x2000,
				 .addr_bytes = 8,
				 .eh = eh,
				 .bounded = true};
}

static void bytes(const void *p, size_t n)
{
	sp_buf_add(&b, p, n);
}
#define B(...) bytes((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* The length goes in at the end. */
static size_t entry_begin(void)
{
	sp_buf_u32(&b, 0);
	return b.len;
}

static void entry_end(size_t start)
{
	while (b.len % 4)
		sp_buf_u8(&b, 0);
	uint32_t len = (uint32_t)(b.len - start);
	memcpy(b.data + start - 4, &len, 4);
	s.data = b.data;
	s.size = b.len;
}

/* A version 1 CIE; aug and its data; code alignment 1, data alignment -8, column 16; its program
 * is CFA = rsp + 8, return address at CFA - 8. */
static size_t cie(const char *aug, const uint8_t *data, size_t n)
{
	size_t off = b.len, start = entry_begin();
	if (s.eh)
		sp_buf_u32(&b, 0);
	else
		sp_buf_u32(&b, UINT32_MAX);
	sp_buf_u8(&b, 1);
	bytes(aug, strlen(aug) + 1);
	B(1, 0x78, 16);
	if (aug[0] == 'z')
		sp_buf_uleb(&b, n);
	bytes(data, n);
	B(0x0c, 7, 8, 0x90, 1);
	entry_end(start);
	return off;
}

static size_t fde_start;

/* Up to the CIE pointer; the caller adds the addresses and the program. */
static size_t fde(size_t cie_off)
{
	size_t off = b.len;
	fde_start = entry_begin();
	sp_buf_u32(&b, s.eh ? (uint32_t)(b.len - cie_off) : (uint32_t)cie_off);
	return off;
}

/* An FDE with absolute addresses, of a CIE without augmentation. */
static size_t plain_fde(size_t cie_off, uint64_t at, uint64_t len, const void *program, size_t n)
{
	size_t off = fde(cie_off);
	sp_buf_u64(&b, at);
	sp_buf_u64(&b, len);
	bytes(program, n);
	entry_end(fde_start);
	return off;
}
#define FDE(cie_off, at, len, ...)                                                                 \
	plain_fde(cie_off, at, len, (const uint8_t[]){__VA_ARGS__},                                \
		  sizeof((const uint8_t[]){__VA_ARGS__}))

static void test_entries(void)
{
	struct cfi_cie c;
	struct cfi_fde f;
	begin(true);
	size_t zr = cie("zR", (const uint8_t[]){0x1b}, 1);
	size_t off = fde(zr);
	uint64_t at = SVMA + b.len;
	sp_buf_u32(&b, (uint32_t)-0x400); /* pcrel sdata4 */
	sp_buf_u32(&b, 0x30);
	B(0, 0x41, 0x0e, 16);
	entry_end(fde_start);
	tap_ok(cfi_fde_parse(&s, off, &f) && f.begin == at - 0x400 && f.end == at - 0x400 + 0x30,
	       "a pc-relative FDE has its address");
	tap_ok(f.cie.off == zr && f.cie.augmented && f.cie.data_align == -8 && f.cie.ra_reg == 16 &&
		       f.cie.fde_enc == 0x1b && !f.cie.signal,
	       "its CIE is understood");
	tap_ok(!cfi_fde_parse(&s, zr, &f) && !cfi_cie_parse(&s, off, &c),
	       "a CIE is no FDE, and the reverse");

	begin(true);
	size_t plr = cie("zPLRS", (const uint8_t[]){0x9b, 1, 2, 3, 4, 0x1b, 0x03}, 7);
	tap_ok(cfi_cie_parse(&s, plr, &c) && c.fde_enc == 0x03 && c.signal,
	       "personality and LSDA are passed over, 'S' marks a signal frame");
	begin(true);
	size_t pac = cie("zRB", (const uint8_t[]){0x1b}, 1);
	tap_ok(cfi_cie_parse(&s, pac, &c) && c.fde_enc == 0x1b, "'B' has no data");
	begin(true);
	size_t odd = cie("zRx", (const uint8_t[]){0x1b, 9, 9}, 3);
	tap_ok(cfi_cie_parse(&s, odd, &c) && c.fde_enc == 0x1b && c.n_ops >= 5 && c.ops[0] == 0x0c,
	       "what stands before an unknown letter is known, the rest is passed over");
	begin(true);
	odd = cie("x", NULL, 0);
	tap_ok(!cfi_cie_parse(&s, odd, &c), "an unknown augmentation without length is refused");
	begin(false);
	size_t bare = cie("SB", NULL, 0);
	tap_ok(cfi_cie_parse(&s, bare, &c) && c.signal && !c.augmented && c.n_ops >= 5 &&
		       c.ops[0] == 0x0c,
	       "letters that never have data need no length: a signal frame of .debug_frame");
	odd = cie("SR", NULL, 0);
	tap_ok(!cfi_cie_parse(&s, odd, &c), "one that has data does");
	bare = cie("armcc+", NULL, 0);
	tap_ok(cfi_cie_parse(&s, bare, &c) && !c.signal, "\"armcc+\" changes nothing");
	begin(true);
	odd = cie("zR", (const uint8_t[]){0x1b}, 1);
	b.data[odd + 8] = 2;
	tap_ok(!cfi_cie_parse(&s, odd, &c), "version 2 is refused");

	begin(false);
	size_t d = b.len, start = entry_begin();
	sp_buf_u32(&b, UINT32_MAX);
	B(4, 0, 8, 0, 4, 0x7c, 0x80, 0x01, 0x0c, 7, 8);
	entry_end(start);
	tap_ok(cfi_cie_parse(&s, d, &c) && c.code_align == 4 && c.data_align == -4 &&
		       c.ra_reg == 128,
	       "a version 4 CIE of .debug_frame");
	off = FDE(d, 0x5000, 0x10, 0);
	tap_ok(cfi_fde_parse(&s, off, &f) && f.begin == 0x5000 && f.end == 0x5010,
	       "an FDE of .debug_frame");
	tap_ok(!cfi_fde_parse(&s, FDE(d + 2, 0x5000, 0x10, 0), &f),
	       "a wrong CIE pointer is refused");
	tap_ok(!cfi_fde_parse(&s, FDE(d, UINT64_MAX - 4, 0x10, 0), &f),
	       "a range that wraps around is refused");

	begin(false); /* 64-bit DWARF */
	sp_buf_u32(&b, UINT32_MAX);
	sp_buf_u64(&b, 8 + 4 + 4);
	sp_buf_u64(&b, UINT64_MAX);
	B(3, 0, 1, 0x78, 16, 0, 0, 0);
	size_t wide = b.len;
	sp_buf_u32(&b, UINT32_MAX);
	sp_buf_u64(&b, 8 + 16);
	sp_buf_u64(&b, 0);
	sp_buf_u64(&b, 0x7000);
	sp_buf_u64(&b, 0x20);
	s.data = b.data;
	s.size = b.len;
	tap_ok(cfi_fde_parse(&s, wide, &f) && f.begin == 0x7000 && f.end == 0x7020,
	       "the 64-bit form");
}

static void test_bounds(void)
{
	struct cfi_fde f;
	begin(true);
	size_t c = cie("", NULL, 0);
	size_t off = FDE(c, 0x5000, 0x10, 0x41, 0x0e, 16);
	size_t whole = s.size;
	bool good = true;
	for (s.size = off + 1; s.size < whole; s.size++)
		good &= !cfi_fde_parse(&s, off, &f);
	tap_ok(good, "an FDE cut at any place is refused");
	s.size = whole;
	sp_buf_u32(&b, 0);
	size_t behind = FDE(c, 0x6000, 0x10, 0);
	struct cfi_code all = {0};
	tap_eq(cfi_count_fdes(&s, &all), 2, "a zero length inside a section does not end it");
	s.bounded = false;
	tap_eq(cfi_count_fdes(&s, &all), 1, "it ends what has no other end");
	(void)behind;
}

static void test_pointers(void)
{
	static const struct {
		const char *name;
		uint8_t enc, data[9];
		uint64_t want;
	} t[] = {
		{"absptr", 0x00, {1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201},
		{"uleb128", 0x01, {0xe5, 0x8e, 0x26}, 624485},
		{"udata2", 0x02, {0xfe, 0xff}, 0xfffe},
		{"udata4", 0x03, {0xfe, 0xff, 0xff, 0xff}, 0xfffffffe},
		{"udata8", 0x04, {1, 0, 0, 0, 0, 0, 0, 0x80}, 0x8000000000000001},
		{"sleb128", 0x09, {0x7f}, UINT64_MAX},
		{"sdata2", 0x0a, {0xfe, 0xff}, UINT64_MAX - 1},
		{"sdata4", 0x0b, {0xfe, 0xff, 0xff, 0xff}, UINT64_MAX - 1},
		{"sdata8", 0x0c, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, UINT64_MAX - 1},
		{"pcrel sdata4", 0x1b, {0xf0, 0xff, 0xff, 0xff}, 0x12345 - 16},
		{"textrel udata2", 0x22, {5, 0}, 0x1005},
		{"datarel sdata4", 0x3b, {0xfc, 0xff, 0xff, 0xff}, 0x1ffc},
		{"funcrel udata4", 0x43, {8, 0, 0, 0}, 0x9008},
		{"aligned", 0x50, {0xff, 0xff, 0xff, 1, 2, 0, 0, 0, 0}, 0}, /* below */
	};
	struct sp_cursor c;
	uint64_t v;
	begin(true);
	for (size_t i = 0; i + 1 < sizeof t / sizeof *t; i++) {
		c = sp_cursor(t[i].data, 9);
		tap_ok(cfi_pointer(&c, t[i].enc, &s, 8, 0x12345, 0x9000, &v) && v == t[i].want,
		       t[i].name);
	}
	const uint8_t aligned[] = {0xff, 0xff, 0xff, 1, 2, 0, 0, 0, 0, 0, 0};
	c = sp_cursor(aligned, sizeof aligned);
	tap_ok(cfi_pointer(&c, 0x50, &s, 8, 0x12345, 0, &v) && v == 0x201, "aligned");
	c = sp_cursor(aligned, sizeof aligned);
	tap_ok(!cfi_pointer(&c, 0x9b, &s, 8, 0, 0, &v), "an indirect pointer can't be followed");
	tap_ok(!cfi_pointer(&c, 0xff, &s, 8, 0, 0, &v), "an omitted pointer is none");
	tap_ok(!cfi_pointer(&c, 0x05, &s, 8, 0, 0, &v), "an unknown format is refused");
	c = sp_cursor(aligned, 3);
	tap_ok(!cfi_pointer(&c, 0x03, &s, 8, 0, 0, &v), "a pointer that is cut off is refused");
	c = sp_cursor(t[9].data, 4);
	tap_ok(cfi_pointer(&c, 0x1b, &s, 4, 8, 0, &v) && v == 0xfffffff8,
	       "32-bit addresses wrap at 32 bits");
}

/* One row of a program that starts at 0x5000 and is 0x1000 long. */
static bool row_at(size_t off, uint64_t pc, struct cfi_row *row)
{
	struct cfi_fde f;
	return cfi_fde_parse(&s, off, &f) && cfi_row_full(&s, &f, pc, row);
}

static bool is_off(const struct cfi_reg *r, enum cfi_rule rule, int64_t off)
{
	return r->rule == rule && r->off == off;
}

static void test_rows(void)
{
	struct cfi_row r;
	begin(true);
	size_t c = cie("", NULL, 0);
	size_t off =
		FDE(c, 0x5000, 0x1000, 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x10, 0x0a,
		    0xc6, 0x0c, 7, 8, 0x03, 0x00, 0x01, 0x0b, 0x04, 0, 2, 0, 0, 0x2e, 16, 0x08, 6);
	tap_ok(row_at(off, 0x5000, &r) && r.cfa_reg == 7 && is_off(&r.cfa, CFI_REG, 8) &&
		       is_off(&r.reg[16], CFI_OFFSET, -8) && r.reg[6].rule == CFI_UNSPEC,
	       "the first row is the CIE's");
	tap_ok(row_at(off, 0x5001, &r) && r.cfa.off == 16 && is_off(&r.reg[6], CFI_OFFSET, -16),
	       "advance_loc, def_cfa_offset and offset");
	tap_ok(row_at(off, 0x5003, &r) && r.cfa_reg == 7, "a row holds until the next one begins");
	tap_ok(row_at(off, 0x5004, &r) && r.cfa_reg == 6 && r.cfa.off == 16,
	       "def_cfa_register keeps the offset");
	tap_ok(row_at(off, 0x5014, &r) && r.cfa_reg == 7 && r.cfa.off == 8 &&
		       r.reg[6].rule == CFI_UNSPEC,
	       "restore gives the CIE's rule back");
	tap_ok(row_at(off, 0x5114, &r) && r.cfa_reg == 6 && is_off(&r.reg[6], CFI_OFFSET, -16),
	       "restore_state gives everything back, the CFA too");
	tap_ok(row_at(off, 0x5314, &r) && r.reg[6].rule == CFI_SAME && r.cfa.off == 16,
	       "advance_loc4, same_value; args_size changes nothing");

	off = FDE(c, 0x5000, 0x1000, 0x05, 3, 2, 0x07, 12, 0x09, 13, 2, 0x11, 14, 0x7d, 0x14, 15, 3,
		  0x15, 1, 0x7e, 0x2f, 5, 4, 0x12, 6, 0x7e, 0x13, 0x7d, 0x10, 4, 2, 0x77, 8, 0x16,
		  0, 1, 0x30, 0x06, 3);
	tap_ok(row_at(off, 0x5000, &r), "a program of the rarer operations runs");
	tap_ok(r.reg[3].rule == CFI_UNSPEC, "offset_extended, restore_extended");
	tap_ok(r.reg[12].rule == CFI_UNDEF, "undefined");
	tap_ok(is_off(&r.reg[13], CFI_REG, 2), "register");
	tap_ok(is_off(&r.reg[14], CFI_OFFSET, 24), "offset_extended_sf");
	tap_ok(is_off(&r.reg[15], CFI_VAL_OFFSET, -24), "val_offset");
	tap_ok(is_off(&r.reg[1], CFI_VAL_OFFSET, 16), "val_offset_sf");
	tap_ok(is_off(&r.reg[5], CFI_OFFSET, 32), "GNU_negative_offset_extended");
	tap_ok(r.cfa_reg == 6 && r.cfa.off == 24, "def_cfa_sf, def_cfa_offset_sf");
	tap_ok(r.reg[4].rule == CFI_EXPR && r.reg[4].len == 2 && r.reg[4].expr[0] == 0x77,
	       "expression");
	tap_ok(r.reg[0].rule == CFI_VAL_EXPR && r.reg[0].expr[0] == 0x30, "val_expression");
	off = FDE(c, 0x5000, 0x1000, 0x0f, 1, 0x77, 0x41, 0x0e, 32);
	tap_ok(row_at(off, 0x5000, &r) && r.cfa.rule == CFI_EXPR && r.cfa.len == 1,
	       "def_cfa_expression");
	off = FDE(c, 0x5000, 0x1000, 0x0f, 1, 0x77, 0x41, 0x0d, 6);
	tap_ok(row_at(off, 0x5001, &r) && r.cfa.rule == CFI_REG && r.cfa_reg == 6 && !r.cfa.off,
	       "def_cfa_register behind it: the offset is 0");
	off = FDE(c, 0x5000, 0x1000, 0x2b, 1, 0, 0x44, 0x2b, 0, 0);
	tap_ok(row_at(off, 0x5000, &r) && r.ra_signed && row_at(off, 0x5004, &r) && !r.ra_signed,
	       "set_ra_state");
	off = FDE(c, 0x5000, 0x1000, 0x01, 0x10, 0x50, 0, 0, 0, 0, 0, 0, 0x0e, 48);
	tap_ok(row_at(off, 0x500f, &r) && r.cfa.off == 8 && row_at(off, 0x5010, &r) &&
		       r.cfa.off == 48,
	       "set_loc");
	off = FDE(c, 0x5000, 0x1000, 0x2d, 0x0a, 0x44, 0x2d, 0x44, 0x0b);
	tap_ok(row_at(off, 0x5000, &r) && r.ra_signed && row_at(off, 0x5004, &r) && !r.ra_signed &&
		       row_at(off, 0x5008, &r) && r.ra_signed,
	       "negate_ra_state toggles, and is part of what is remembered");
}

static void test_bad_programs(void)
{
	struct cfi_row r;
	begin(true);
	size_t c = cie("", NULL, 0);
	uint8_t deep[40];
	memset(deep, 0x0a, sizeof deep);
	tap_ok(row_at(plain_fde(c, 0x5000, 0x1000, deep, CFI_REMEMBER), 0x5000, &r),
	       "remember_state has its depth");
	tap_ok(!row_at(plain_fde(c, 0x5000, 0x1000, deep, CFI_REMEMBER + 1), 0x5000, &r),
	       "and no more than that");
	tap_ok(!row_at(FDE(c, 0x5000, 0x1000, 0x0b), 0x5000, &r),
	       "restore_state without remember_state is refused");
	tap_ok(!row_at(FDE(c, 0x5000, 0x1000, 0x3f), 0x5000, &r),
	       "an unknown operation is refused");
	tap_ok(!row_at(FDE(c, 0x5000, 0x1000, 0x0f, 0x7f, 0x77), 0x5000, &r),
	       "an expression longer than the entry is refused");
	tap_ok(!row_at(FDE(c, 0x5000, 0x1000, 0x01, 0, 0x40, 0, 0, 0, 0, 0, 0), 0x5800, &r),
	       "set_loc backwards is refused");
	tap_ok(row_at(FDE(c, 0x5000, 0x1000, 0xbf, 1, 0xff, 0x05, 0x85, 0x10, 1), 0x5000, &r),
	       "registers that nobody tracks are passed over");
}

/* A CIE that remembers a state, and an FDE that restores one: it has none, whichever way the row is
 * made. */
static void test_remembered_in_cie(void)
{
	struct cfi_row r, kept;
	struct cfi_fde f;
	begin(false);
	size_t c = b.len, start = entry_begin();
	sp_buf_u32(&b, UINT32_MAX);
	/* The program: CFA = rsp + 8, advance_loc4 that is of no account, remember_state. */
	B(3, 0, 8, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0x04, 0xff, 0xff, 0xff, 0xff, 0x0a);
	entry_end(start);
	size_t with = FDE(c, 0x5000, 0x1000, 0x41, 0x0b),
	       without = FDE(c, UINT64_MAX - 0x2000, 0x1000, 0x41, 0x0e, 16);
	size_t d = b.len;
	start = entry_begin();
	sp_buf_u32(&b, UINT32_MAX);
	B(3, 0, 8, 0x78, 16, 0x0c, 7, 8, 0x83, 2, 0xc3); /* rbx saved, and restored */
	entry_end(start);
	size_t restored = FDE(d, 0x7000, 0x1000, 0);
	tap_ok(row_at(restored, 0x7000, &r) && r.reg[3].rule == CFI_UNSPEC,
	       "what a CIE restores is as before the CIE");
	tap_ok(row_at(with, 0x5000, &r) && !row_at(with, 0x5008, &r),
	       "what a CIE remembered is forgotten in its FDEs");
	cfi_fde_parse(&s, with, &f);
	tap_ok(cfi_cie_row(&s, &f.cie, 6, &kept), "such a CIE has a row");
	f.cie.small_row = &kept;
	tap_ok(cfi_row_small(&s, &f, 0x5000, 6, NULL, &r) &&
		       !cfi_row_small(&s, &f, 0x5008, 6, NULL, &r),
	       "and with the row kept it is the same");
	tap_ok(row_at(without, UINT64_MAX - 0x1000, &r) && r.cfa.off == 16,
	       "a CIE's advances have no place that could overflow");
}

/* A program as long as an interpreter's: taken up at its marks it gives the rows that it gives from
 * its beginning. */
static void test_marks(void)
{
	struct sp_buf long_one = {0};
	struct cfi_row kept, with, full;
	struct cfi_marks marks;
	struct cfi_fde f;
	uint64_t end = 0x5000;
	for (unsigned i = 0; i < 300; i++) {
		const uint8_t advance = (uint8_t)(0x41 + i % 5), offset = (uint8_t)(i % 100);
		const uint8_t block[] = {advance, 0x0e, 16,   0x86, 2,    0x02, 70,   0x0a, 0x0e,
					 offset,  0x43, 0x0b, 0x44, 0x0d, 6,    0xc6, 0x0d, 7};
		sp_buf_add(&long_one, block, sizeof block);
		end += 1 + i % 5 + 70 + 3 + 4;
	}
	begin(false);
	size_t c = cie("", NULL, 0);
	size_t off = plain_fde(c, 0x5000, end + 16 - 0x5000, long_one.data, long_one.len);
	cfi_fde_parse(&s, off, &f);
	cfi_cie_row(&s, &f.cie, 6, &kept);
	f.cie.small_row = &kept;
	tap_ok(cfi_marks_make(&f, 6, &marks) && marks.n > 20, "a long program has marks");
	unsigned differ = 0;
	for (uint64_t pc = 0x5000; pc < f.end; pc++)
		differ += !cfi_row_small(&s, &f, pc, 6, &marks, &with) ||
			  !cfi_row_full(&s, &f, pc, &full) || with.cfa_reg != full.cfa_reg ||
			  with.cfa.off != full.cfa.off ||
			  with.reg[CFI_SMALL_FP].rule != full.reg[6].rule ||
			  with.reg[CFI_SMALL_FP].off != full.reg[6].off ||
			  with.reg[CFI_SMALL_RA].off != full.reg[16].off;
	tap_eq(differ, 0, "with them every address has the row that it has without");
	cfi_marks_deinit(&marks);
	f.n_ops = 30;
	tap_ok(cfi_marks_make(&f, 6, &marks) && marks.n == 0, "a short program has none");
	cfi_marks_deinit(&marks);
	sp_buf_deinit(&long_one);
}

static void test_iteration(void)
{
	begin(true);
	size_t c = cie("", NULL, 0);
	size_t off =
		FDE(c, 0x5000, 0x20, 0x41, 0x0e, 16, 0x40, 0x0e, 24, 0x5e, 0x0e, 8, 0x4f, 0x0e, 64);
	struct cfi_fde f;
	static struct cfi_rows rows;
	uint64_t from[4] = {0}, to[4] = {0};
	int64_t cfa[4] = {0};
	size_t n = 0;
	(void)cfi_fde_parse(&s, off, &f);
	cfi_rows_start(&rows, &s, &f);
	int rc;
	while ((rc = cfi_rows_next(&rows, &from[n], &to[n])) > 0 && n < 3)
		cfa[n++] = rows.row.cfa.off;
	tap_ok(rc == 0 && n == 3, "three rows, then the end");
	tap_ok(from[0] == 0x5000 && to[0] == 0x5001 && cfa[0] == 8, "the first");
	tap_ok(from[1] == 0x5001 && to[1] == 0x501f && cfa[1] == 24,
	       "an advance by 0 makes no row of its own");
	tap_ok(from[2] == 0x501f && to[2] == 0x5020 && cfa[2] == 8,
	       "what lies behind the function's end is no row");
}

static void test_index(void)
{
	begin(true);
	size_t c = cie("", NULL, 0);
	size_t late = FDE(c, 0x6000, 0x100, 0);
	size_t outer = FDE(c, 0x5000, 0x100, 0), inner = FDE(c, 0x5040, 0x10, 0);
	size_t twin = FDE(c, 0x6000, 0x100, 0);
	(void)FDE(c, 0x9000, 0x10, 0); /* no code there */
	(void)FDE(c, 0, 0x10, 0);      /* dropped by the linker */
	(void)FDE(c, 0x5200, 0, 0);
	const struct cfi_code_range range = {0x1000, 0x8000};
	const struct cfi_code code = {64, &range, 1};
	struct cfi_index x;
	tap_ok(cfi_index_build(&x, &s, &code, NULL) == 0, "an index is built");
	tap_eq(x.n, 4, "overlapping ranges are cut, empty and foreign ones left out");
	const struct cfi_range *r = cfi_index_find(&x, 0x503f);
	tap_ok(r && r->off == outer && r->end == 0x5040, "the outer range up to the inner");
	r = cfi_index_find(&x, 0x5040);
	tap_ok(r && r->off == inner && r->end == 0x5050, "the inner range");
	r = cfi_index_find(&x, 0x5050);
	tap_ok(r && r->off == outer && r->end == 0x5100, "the outer range goes on");
	r = cfi_index_find(&x, 0x60ff);
	tap_ok(r && r->off == late && r->off != twin, "of two equal ranges the first one counts");
	tap_ok(!cfi_index_find(&x, 0x5100) && !cfi_index_find(&x, 0x4fff) &&
		       !cfi_index_find(&x, 0x6100),
	       "gaps are gaps");
	cfi_index_deinit(&x);
}

static void test_table(void)
{
	struct cfi_table t;
	struct cfi_table_entry e;
	begin(true);
	const int32_t words[] = {-0x1000, 0x100, -0x800, 0x120, 0x40, 0x90};
	uint8_t hdr[64] = {1, 0x1b, 0x03, 0x3b, 0xfc, 0, 0, 0, 3};
	memcpy(hdr + 12, words, sizeof words);
	cfi_table_init(&t, &s, hdr, 12 + sizeof words, 0x20000);
	tap_ok(t.n == 3 && t.eh_frame_svma == 0x20100, "a header is understood");
	tap_ok(cfi_table_find(&t, 0x1f7ff, 0, &e) && e.begin == 0x1f000 && e.fde_svma == 0x20100 &&
		       e.next == 0x1f800,
	       "the entry at or before an address");
	tap_ok(cfi_table_find(&t, 0x1f800, 0, &e) && e.begin == 0x1f800 && e.fde_svma == 0x20120,
	       "an entry's own address");
	tap_ok(cfi_table_find(&t, UINT64_MAX, 0, &e) && e.fde_svma == 0x20090 && e.next == UINT64_MAX,
	       "the last entry");
	tap_ok(!cfi_table_find(&t, 0x1efff, 0, &e), "nothing lies before the first");
	tap_ok(cfi_table_sorted(&t), "it ascends");
	struct cfi_code all = {0};
	size_t c = cie("", NULL, 0);
	FDE(c, 0x5000, 0x10, 0);
	FDE(c, 0x6000, 0x10, 0);
	FDE(c, 0x7000, 0, 0);
	FDE(c, 0x8000, 0x10, 0);
	tap_ok(cfi_table_whole(&t, &s, &all), "it is whole: one of four FDEs covers nothing");
	FDE(c, 0x9000, 0x10, 0);
	tap_ok(!cfi_table_whole(&t, &s, &all), "one entry too few is seen");
	cfi_table_init(&t, &s, hdr, 11 + sizeof words, 0x20000);
	tap_ok(t.n == 0 && t.eh_frame_svma == 0x20100, "a count beyond the section: no table");
	hdr[12 + 3] = 0x7f; /* the first address becomes the greatest */
	cfi_table_init(&t, &s, hdr, 12 + sizeof words, 0x20000);
	tap_ok(t.n == 0, "a short table that does not ascend: none");
	hdr[0] = 2;
	cfi_table_init(&t, &s, hdr, 12 + sizeof words, 0x20000);
	tap_ok(t.n == 0 && t.eh_frame_svma == 0, "an unknown version: nothing");
	hdr[0] = 1;
	hdr[3] = 0x1b;
	cfi_table_init(&t, &s, hdr, 12 + sizeof words, 0x20000);
	tap_ok(t.n == 0, "an encoding that can't be searched: no table");
}

/* From a place near by, in a table with gaps and with crowds, the same entry is found. */
static void test_places(void)
{
	enum { N = 200 };
	struct cfi_table t;
	struct cfi_table_entry want, got;
	uint8_t hdr[12 + 8 * N] = {1, 0x1b, 0x03, 0x3b, 0xfc, 0, 0, 0, N};
	unsigned differ = 0;
	begin(true);
	for (uint32_t i = 0, at = 0x100; i < N; i++, at += i % 20 < 15 ? 16 : 1500) {
		sp_put32(hdr + 12 + 8 * i, at);
		sp_put32(hdr + 16 + 8 * i, i);
	}
	cfi_table_init(&t, &s, hdr, sizeof hdr, 0x20000);
	for (uint64_t pc = 0x20000; pc < 0x20000 + 1500 * N / 3; pc += 7) {
		bool found = cfi_table_find(&t, pc, 0, &want);
		for (uint64_t before = 0; before < 4096; before += 500) {
			size_t from = cfi_table_place(&t, pc - before);
			differ += cfi_table_find(&t, pc, from, &got) != found ||
				  (found && memcmp(&want, &got, sizeof want) != 0);
		}
	}
	tap_ok(t.n == N && !differ, "an entry is found from a place before it");
}

int main(void)
{
	test_entries();
	test_bounds();
	test_pointers();
	test_rows();
	test_bad_programs();
	test_remembered_in_cie();
	test_marks();
	test_iteration();
	test_index();
	test_table();
	test_places();
	sp_buf_deinit(&b);
	return tap_done();
}
