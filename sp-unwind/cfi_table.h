/* From an address to its FDE: the sorted table of .eh_frame_hdr, or an index of our own. */
#ifndef SP_UNWIND_CFI_TABLE_H
#define SP_UNWIND_CFI_TABLE_H

#include "base/err.h"
#include "cfi.h"

/* .eh_frame_hdr (LSB Core 5.0, 10.6.2). n = 0: it has no table that can be searched. */
struct cfi_table {
	const uint8_t *entries; /* borrowed: pairs of (address, FDE's address), sorted */
	size_t n;
	uint64_t base;      /* added to both words */
	uint8_t word_bytes; /* 4 (signed) or 8 */
	bool swap;
	uint64_t eh_frame_svma; /* 0 = not said, or not directly */
};

/* Never fails: what can't be read leaves n = 0 and eh_frame_svma = 0. Cost: a few entries of the
 * first page are looked at; an order that is wrong elsewhere shows when a search fails. */
void cfi_table_init(struct cfi_table *t, const struct cfi_section *s, const uint8_t *hdr,
		    size_t size, uint64_t hdr_svma);
/* Whether all entries ascend. ~0.5 ns each. */
bool cfi_table_sorted(const struct cfi_table *t);
/* An entry of the table. */
struct cfi_table_entry {
	uint64_t begin, fde_svma;
	uint64_t next; /* the following entry's begin, UINT64_MAX: there is none */
	uint64_t next_fde_svma;
};
/* How many entries have an address <= pc. */
size_t cfi_table_place(const struct cfi_table *t, uint64_t pc);
/* The last entry with address <= pc. False: pc lies before all. from: the place of an address not
 * far below pc, or 0. Of a table that is not sorted it may be any entry. */
bool cfi_table_find(const struct cfi_table *t, uint64_t pc, size_t from,
		    struct cfi_table_entry *out);

/* Addresses that hold code. FDEs elsewhere are of functions that the linker dropped: .debug_frame
 * keeps them, at 0 or at -1. */
struct cfi_code {
	uint64_t first; /* the lowest address */
	const struct cfi_code_range {
		uint64_t begin, end;
	} * v; /* borrowed; n = 0: anything from first on is code */
	size_t n;
};

/* Ranges, sorted and disjoint: of FDEs that overlap, the one that begins last is in force. */
struct cfi_index {
	struct cfi_range {
		uint64_t begin, end;
		size_t off; /* of the FDE in its section */
	} * v;              /* owned */
	size_t n;
};

#define CFI_INDEX_MAX (UINT32_C(1) << 23)

int cfi_index_build(struct cfi_index *x, const struct cfi_section *s, const struct cfi_code *code,
		    struct sp_err *err);
void cfi_index_deinit(struct cfi_index *x);
/* The range that holds pc, or NULL. */
const struct cfi_range *cfi_index_find(const struct cfi_index *x, uint64_t pc);
/* FDEs with a range in code, as cfi_index_build would take them. ~20 ns each. */
size_t cfi_count_fdes(const struct cfi_section *s, const struct cfi_code *code);
/* Whether the table of this .eh_frame is sorted and has no fewer entries than there are such FDEs.
 * ~3 ns each, when it is. */
bool cfi_table_whole(const struct cfi_table *t, const struct cfi_section *s,
		     const struct cfi_code *code);

#endif
