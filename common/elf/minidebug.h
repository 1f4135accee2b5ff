/* .gnu_debugdata: an ELF file packed with xz that holds the symbols which a distribution stripped
 * and, in Android's oat files, their .debug_frame. */
#ifndef SP_ELF_MINIDEBUG_H
#define SP_ELF_MINIDEBUG_H

#include "elf/elf_file.h"

/* 1 and *out (open), 0 when there is none, SP_ERR_CORRUPT or SP_ERR_LIMIT. */
int sp_minidebug_open(struct sp_elf *out, const struct sp_elf *e, struct sp_err *err);

#endif
