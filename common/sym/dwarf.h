/* DWARF 2 to 5 of one ELF file, by address: functions, inline chains, files and lines. 32- and
 * 64-bit DWARF, split (dwo, dwp) and supplementary files (dwz), either byte order.
 *
 * Nothing is read before it is needed: the first look-up builds an index of the units by address,
 * a unit's functions and line rows are read when an address hits it, and the inline tree of a
 * function when an address hits that. Work is bounded by a multiple of the sections' sizes, so that
 * sections that refer to themselves a million times end.
 * Sources: the DWARF 5 standard; gcc's wiki pages on DebugFission and DwarfExtensions for the
 * GNU forms. */
#ifndef SP_SYM_DWARF_H
#define SP_SYM_DWARF_H

#include "base/err.h"
#include "elf/debugfile.h"
#include "elf/elf_file.h"

struct sp_dwarf;

struct sp_dwarf_level {
	const char *linkage; /* mangled name, or NULL */
	const char *name;    /* else the name with its scope ("ns::Class::fn"), or NULL */
	const char *file;    /* or NULL */
	uint32_t line;       /* 0 = unknown */
};

struct sp_dwarf_options {
	const char *path; /* of the ELF file; dwo, dwp and dwz files are sought beside it */
	struct sp_debug_dirs dirs; /* and in these */
	const struct sp_elf *code; /* whose executable sections decide what is an address of code */
	bool no_inline;
	bool no_lines; /* levels have no file and line; line tables are not read */
};

/* 1 and *out when e has DWARF that can be used, 0 when not. e and the options' pointers must
 * outlive the reader. */
int sp_dwarf_open(struct sp_dwarf **out, const struct sp_elf *e,
		  const struct sp_dwarf_options *options, struct sp_err *err);
void sp_dwarf_close(struct sp_dwarf *d);

/* Innermost level first, in *out (valid until the next look-up; strings until close). Returns the
 * number of levels, 0 when the address is in no unit; the last level has no name when no function
 * has the address but a line row has it. *func_start: where the function begins; unset for such. */
int sp_dwarf_lookup(struct sp_dwarf *d, uint64_t svma, const struct sp_dwarf_level **out,
		    uint64_t *func_start, struct sp_err *err);

/* Files that were needed and not found or refused, or NULL. */
const char *sp_dwarf_problem(const struct sp_dwarf *d);

/* The other files that answers came from (dwo, dwp, dwz): their number, at most max; -1 when there
 * are more, when one was missing, or when work was left undone: the same question may get another
 * answer another time. */
int sp_dwarf_files(const struct sp_dwarf *d, const struct sp_elf **out, size_t max);

#endif
