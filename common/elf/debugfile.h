/* Separate debug files of an ELF file: build-id folders, .gnu_debuglink (CRC checked), dwz
 * alternates. Roots: the given folders, then STACKPULSE_DEBUG_DIRS (":"-separated, empty =
 * default), else /usr/lib/debug. */
#ifndef SP_ELF_DEBUGFILE_H
#define SP_ELF_DEBUGFILE_H

#include "elf/elf_file.h"

struct sp_debug_dirs {
	const char *const *dirs;
	size_t n;
	/* Who is asked for a file that no folder has, or NULL: as sp_resolver_options.fetch_debug. */
	int (*fetch)(void *ctx, const char *build_id, char *path, size_t path_size);
	void *fetch_ctx;
};

/* 1 and *out (open) when the debug file of e was found, 0 when not; why (may be NULL) says what was
 * refused ("debug file … has another CRC"). path: where e lies, for searching beside it. */
int sp_debug_file_find(struct sp_elf *out, const struct sp_elf *e, const char *path,
		       const struct sp_debug_dirs *dirs, char why[200], struct sp_err *err);
/* The file of a build-id, from the same folders: the program or library itself
 * (.build-id/xx/rest), or, unless whole is set, its debug file (….debug), whose segments may have
 * no bytes. 1 and *out, or 0. */
int sp_file_of_build_id(struct sp_elf *out, const struct sp_build_id *id, bool whole,
			const struct sp_debug_dirs *dirs, struct sp_err *err);
/* Same for the file that .gnu_debugaltlink names. */
int sp_alt_file_find(struct sp_elf *out, const struct sp_elf *e, const char *path,
		     const struct sp_debug_dirs *dirs, char why[200], struct sp_err *err);

#endif
