/* The cache of a symfile: what was asked before is answered from the block that an earlier run
 * left, what is new is added to it at the end. Keyed by the files' identity as stat(2) tells it (a
 * build-id can be forged, and stripping keeps it), named by the build-id. Images in memory, files
 * without symbols, answers for which something was missing and files that were written just now are
 * left out. */
#ifndef SP_SYM_SYMFILE_MEMO_H
#define SP_SYM_SYMFILE_MEMO_H

#include "elf/elf_file.h"
#include "sym/cachedir.h"
#include "sym/dwarf.h"
#include "sym/memo.h"

struct sp_symfile_memo {
	const struct sp_cachedir *dir; /* borrowed; NULL = no cache */
	char name[100];
	struct sp_buf key;
	struct sp_map_file map;
	struct sp_memo memo;
	bool has_memo;
	struct sp_memo_answer *fresh; /* owned; levels are the symfile's */
	size_t n_fresh, fresh_cap;
	struct sp_name levels[SP_MEMO_LEVELS_MAX];
};

/* debug: or NULL. options: a word that names differ by. May be tried with other options where there
 * was no memo. */
void sp_symfile_memo_open(struct sp_symfile_memo *m, const struct sp_cachedir *dir,
			  const struct sp_elf *elf, const struct sp_elf *debug, uint32_t options);
/* As sp_memo_find. */
int sp_symfile_memo_find(struct sp_symfile_memo *m, uint64_t svma, struct sp_memo_answer *out);
void sp_symfile_memo_add(struct sp_symfile_memo *m, const struct sp_memo_answer *a);
/* Writes what is new, unless the answers may not last. dwarf: or NULL. */
void sp_symfile_memo_save(struct sp_symfile_memo *m, const struct sp_elf *elf,
			  const struct sp_elf *debug, const struct sp_dwarf *dwarf);
void sp_symfile_memo_deinit(struct sp_symfile_memo *m);

#endif
