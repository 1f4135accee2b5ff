/* Where functions begin and end according to .eh_frame: bounds for symbols without a size. */
#ifndef SP_SYM_FDE_H
#define SP_SYM_FDE_H

#include "elf/elf_file.h"
#include "sym/ranges.h"

struct sp_fdes {
	struct sp_ranges v;
};

void sp_fdes_deinit(struct sp_fdes *f);
/* Reads the whole section; what cannot be read is left out. False when memory ends. */
bool sp_fdes_read(struct sp_fdes *f, const struct sp_elf *e);
/* True when the code at svma belongs to another function than the code at start, which is below
 * it: an FDE begins between them, or the one of start ends. */
bool sp_fdes_separate(const struct sp_fdes *f, uint64_t start, uint64_t svma);

#endif
