/* .gnu_debugdata: an ELF file with the symbols that a distribution stripped, packed with xz. */
#ifndef SP_SYM_MINIDEBUG_H
#define SP_SYM_MINIDEBUG_H

#include "elf/elf_file.h"

/* 1 and *out (over *owned, freed by the caller after closing *out), 0 when there is none,
 * SP_ERR_CORRUPT or SP_ERR_LIMIT. */
int sp_minidebug_open(struct sp_elf *out, void **owned, const struct sp_elf *e, struct sp_err *err);

#endif
