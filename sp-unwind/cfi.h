/* Call frame information as data: entries (CIE, FDE), their programs, and the rows these make.
 * Pure over (pointer, length); nothing is allocated, nothing is trusted.
 *
 * Sources: DWARF 5, section 6.4; LSB Core 5.0, chapter 10.6 (.eh_frame, .eh_frame_hdr); the
 * AArch64 DWARF ABI (0x2b to 0x2d); gcc 12's unwind-dw2.c and binutils' dwarf.c for what is
 * written nowhere else. */
#ifndef SP_UNWIND_CFI_H
#define SP_UNWIND_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"

/* Pointer encodings (DW_EH_PE_*): format in the low four bits, base in the next three. */
enum {
	CFI_PE_ABSPTR = 0x00,
	CFI_PE_ULEB = 0x01,
	CFI_PE_UDATA2 = 0x02,
	CFI_PE_UDATA4 = 0x03,
	CFI_PE_UDATA8 = 0x04,
	CFI_PE_SLEB = 0x09,
	CFI_PE_SDATA2 = 0x0a,
	CFI_PE_SDATA4 = 0x0b,
	CFI_PE_SDATA8 = 0x0c,
	CFI_PE_PCREL = 0x10,
	CFI_PE_TEXTREL = 0x20,
	CFI_PE_DATAREL = 0x30,
	CFI_PE_FUNCREL = 0x40,
	CFI_PE_ALIGNED = 0x50,
	CFI_PE_INDIRECT = 0x80,
	CFI_PE_OMIT = 0xff,
};

struct cfi_cie;

struct cfi_section {
	const uint8_t *data; /* borrowed; NULL: no such section */
	size_t size;
	uint64_t svma;      /* of data[0] */
	uint64_t text_svma; /* base of textrel pointers */
	uint64_t data_svma; /* base of datarel pointers (the GOT) */
	uint8_t addr_bytes; /* 4 or 8 */
	bool swap;
	bool eh;      /* .eh_frame's form, else .debug_frame's */
	bool bounded; /* size is the section's own: a zero length does not end it */
	/* CIEs that were parsed already, so that few FDEs need to do it; borrowed. */
	const struct cfi_cie *known;
	unsigned n_known;
};

struct cfi_cie {
	size_t off; /* in the section */
	uint64_t code_align;
	int64_t data_align;
	uint32_t ra_reg;
	uint8_t fde_enc; /* pointer encoding of its FDEs */
	uint8_t addr_bytes;
	bool augmented;     /* 'z': FDEs carry a length of augmentation data */
	bool signal;        /* 'S' */
	const uint8_t *ops; /* borrowed from the section */
	size_t n_ops;
	/* The row that its program makes, in the small form for the ABI's frame pointer, made once
	 * by whoever keeps the CIE (cfi_cie_row); or NULL. Borrowed. */
	const struct cfi_row *small_row;
};

struct cfi_fde {
	struct cfi_cie cie;
	size_t off;
	uint64_t begin, end; /* SVMA, end exclusive */
	const uint8_t *ops;
	size_t n_ops;
	/* No other entry is in force anywhere in its range, as far as whoever looked for it knows. */
	bool alone;
};

enum cfi_kind {
	CFI_END, /* no entry here or behind */
	CFI_CIE,
	CFI_FDE,
	CFI_SKIP, /* an entry of length 0 */
};

/* The head of the entry at off. */
struct cfi_entry {
	enum cfi_kind kind;
	size_t off, next;      /* next: offset of the following entry */
	size_t cie_off;        /* of an FDE */
	struct sp_cursor body; /* behind the CIE pointer or id */
	bool dwarf64;
};

struct cfi_entry cfi_entry_at(const struct cfi_section *s, size_t off);

/* Longer entries are refused, so that no input makes a single look-up slow: the longest program of
 * a Debian 12 system, in cc1plus, has 20,064 bytes. */
#define CFI_ENTRY_MAX (UINT32_C(128) << 10)

/* False: malformed, or of a version or augmentation that can't be read. */
bool cfi_cie_parse(const struct cfi_section *s, size_t off, struct cfi_cie *out);
bool cfi_fde_parse(const struct cfi_section *s, size_t off, struct cfi_fde *out);
/* Same for a scan, which knows the entry and keeps the last CIE in out->cie (out->cie.ops NULL:
 * none yet). */
bool cfi_fde_read(const struct cfi_section *s, const struct cfi_entry *e, struct cfi_fde *out);

/* Reads one encoded pointer. at: SVMA of the cursor's current byte; func: base of funcrel. False
 * (or c->bad) when it can't be known: omitted, indirect, unknown format. */
bool cfi_pointer(struct sp_cursor *c, uint8_t enc, const struct cfi_section *s, uint8_t addr_bytes,
		 uint64_t at, uint64_t func, uint64_t *out);

/* --- rows --- */

enum cfi_rule {
	CFI_UNSPEC, /* nothing was said: the ABI's default holds */
	CFI_UNDEF,
	CFI_SAME,
	CFI_OFFSET,     /* saved at CFA + off */
	CFI_VAL_OFFSET, /* is CFA + off */
	CFI_REG,        /* is in register off */
	CFI_EXPR,       /* saved at the expression's address */
	CFI_VAL_EXPR,   /* is the expression's value */
};

struct cfi_reg {
	uint8_t rule; /* enum cfi_rule */
	uint32_t len; /* of expr */
	union {
		int64_t off;
		const uint8_t *expr; /* borrowed from the section */
	};
};

#define CFI_REGS 40              /* registers 0 … 39 have rows of their own */
#define CFI_SLOTS (CFI_REGS + 1) /* the last one: a return address column beyond them */
#define CFI_REMEMBER 16          /* depth of remember_state; no compiler goes below 2 */

/* cfa.rule: CFI_UNSPEC (none), CFI_REG (register cfa_reg + cfa.off), CFI_EXPR. */
struct cfi_row {
	struct cfi_reg cfa;
	uint32_t cfa_reg;
	bool ra_signed; /* AArch64: RA_SIGN_STATE */
	struct cfi_reg reg[CFI_SLOTS];
	uint64_t begin, end; /* where it is in force; cfi_row_small's alone */
};

/* Which registers a run keeps. Small: the return address in reg[CFI_SMALL_RA], the frame pointer
 * in reg[CFI_SMALL_FP], nothing else. Full: reg[n], and cfi_ra_slot(). */
enum { CFI_SMALL_RA, CFI_SMALL_FP, CFI_SMALL_SLOTS };

static inline unsigned cfi_ra_slot(const struct cfi_cie *cie)
{
	return cie->ra_reg < CFI_REGS ? cie->ra_reg : CFI_REGS;
}

/* Where a long program can be taken up: interpreters and parsers have functions of 20,000 bytes of
 * program, which would be 10 us of interpreting for each address at their end. */
struct cfi_marks {
	struct cfi_mark *v; /* owned; by location */
	size_t n;
};
#define CFI_MARKS_FROM 256u /* bytes of program from which marks are worth it */

/* fde->cie must have its small_row. False when memory ends. */
bool cfi_marks_make(const struct cfi_fde *fde, uint32_t fp_reg, struct cfi_marks *out);
void cfi_marks_deinit(struct cfi_marks *m);

/* The row in force at pc (begin <= pc < end). fp_reg: the frame pointer's DWARF number. marks: of
 * this program, or NULL. False: the program is malformed, or uses what nobody knows. ~30-60 ns. */
bool cfi_row_small(const struct cfi_section *s, const struct cfi_fde *fde, uint64_t pc,
		   uint32_t fp_reg, const struct cfi_marks *marks, struct cfi_row *out);
bool cfi_row_full(const struct cfi_section *s, const struct cfi_fde *fde, uint64_t pc,
		  struct cfi_row *out);

/* The small row that a CIE's program makes. */
bool cfi_cie_row(const struct cfi_section *s, const struct cfi_cie *cie, uint32_t fp_reg,
		 struct cfi_row *out);

/* All rows of one FDE in turn. cfi_rows_next: 1 and a row in force over [start, end); 0 at the end;
 * -1 malformed (what came before stays true). */
struct cfi_rows {
	const struct cfi_section *section;
	const struct cfi_fde *fde;
	const uint8_t *ops; /* where the program goes on */
	uint64_t loc, next_loc;
	unsigned depth; /* of saved */
	bool started;
	struct cfi_row row, initial, saved[CFI_REMEMBER];
};
void cfi_rows_start(struct cfi_rows *r, const struct cfi_section *s, const struct cfi_fde *fde);
int cfi_rows_next(struct cfi_rows *r, uint64_t *start, uint64_t *end);

#endif
