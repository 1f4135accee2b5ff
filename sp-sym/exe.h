/* sp-sym --exe: names for addresses of one ELF file, in the block shape of addr2line -afiC. */
#ifndef SYM_EXE_H
#define SYM_EXE_H

#include <stddef.h>

#include "sym/symfile.h"

/* Writes to standard output; addresses come from standard input when n_addresses is 0. Returns the
 * exit status. */
int sym_exe_main(const char *file, const struct sp_symfile_options *options, char *const *addresses,
		 size_t n_addresses);

#endif
