/* Names, lines and inline chains of one ELF file and its debug files, by SVMA. Used by the resolver
 * and by `sp-sym --exe`. Own indexes: sorted symbols; units by address, parsed when first hit. */
#ifndef SP_SYM_SYMFILE_H
#define SP_SYM_SYMFILE_H

#include "elf/debugfile.h"
#include "sym/cachedir.h"
#include "sym/resolver.h"

struct sp_symfile;

struct sp_symfile_options {
	struct sp_debug_dirs debug; /* build-id folders, debuglink names, dwz, dwo, dwp */
	bool no_inline, no_demangle;
	bool no_lines; /* levels have no file and line */
	const struct sp_cachedir *cache; /* answers of earlier runs; or NULL */
};

/* path: for messages and for searching beside it. The file must stay what it was at open. */
int sp_symfile_open(struct sp_symfile **out, const char *path,
		    const struct sp_symfile_options *options, struct sp_err *err);
/* An image in memory (vdso, embedded file), kept alive by the caller. */
int sp_symfile_open_image(struct sp_symfile **out, const void *data, size_t size, const char *name,
			  const struct sp_symfile_options *options, struct sp_err *err);
/* A file that is open: *elf is the symfile's from here on, also when this fails. */
int sp_symfile_open_elf(struct sp_symfile **out, struct sp_elf *elf, const char *path,
			const struct sp_symfile_options *options, struct sp_err *err);
void sp_symfile_close(struct sp_symfile *s);

/* Whether it has DWARF, its own or a debug file's. */
bool sp_symfile_has_dwarf(const struct sp_symfile *s);

const struct sp_elf *sp_symfile_elf(const struct sp_symfile *s);

/* Before the first look-up, or not at all: these n addresses are going to be looked up. They, and
 * few others, are then found without an index of all symbols; the answers are the same. */
int sp_symfile_expect(struct sp_symfile *s, const uint64_t *svmas, size_t n, struct sp_err *err);

/* The levels of one address, innermost first, into *out (owned by s, valid until close). Returns
 * the number of levels; 0 when nothing is known. A level whose function is unknown has function
 * NULL (line info without a name). *func_start: SVMA where the outer function begins. Not
 * thread-safe per symfile. */
int sp_symfile_lookup(struct sp_symfile *s, uint64_t svma, const struct sp_name **out,
		      uint64_t *func_start, struct sp_err *err);

/* What keeps it from naming more: "no symbols", "debug file … has another CRC", or NULL. */
const char *sp_symfile_problem(struct sp_symfile *s);

#endif
