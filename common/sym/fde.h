/* Where functions begin and end according to .eh_frame: bounds for symbols without a size. */
#ifndef SP_SYM_FDE_H
#define SP_SYM_FDE_H

#include "elf/elf_file.h"
#include "sym/ranges.h"

struct sp_fdes {
	const struct sp_elf *elf; /* borrowed */
	/* The sorted table of .eh_frame_hdr: pairs of 32-bit distances from its start; or NULL. */
	const uint8_t *table;
	size_t n;
	uint64_t table_svma; /* what the distances count from */
	struct sp_ranges v;  /* without a table: all of .eh_frame */
};

void sp_fdes_deinit(struct sp_fdes *f);
/* Finds the table, else reads the whole section; what cannot be read is left out. e must outlive f.
 * False when memory ends. */
bool sp_fdes_read(struct sp_fdes *f, const struct sp_elf *e);
/* True when the code at svma belongs to another function than the code at start, which is below
 * it: an FDE begins between them, or the one of start ends. */
bool sp_fdes_separate(const struct sp_fdes *f, uint64_t start, uint64_t svma);

#endif
