/* Finding the file that a recorded mapping names: by identity, not by name (design.md, section 4).
 *
 * Order: --path-map or --symfs, then the live process (map_files, exe, root + path) when the caller
 * says that it is the recorded one, then the path. (Embedded files come before all of these; the
 * caller has them.) Accepted on build-id, else device + inode, else - both unknown or zero - on the
 * path alone. */
#ifndef SP_ELF_FIND_H
#define SP_ELF_FIND_H

#include "elf/elf_file.h"

struct sp_find_options {
	const char *const *path_maps; /* "OLD=NEW"; whole components, longest OLD first, once */
	size_t n_path_maps;
	const char *symfs; /* or NULL */
};

struct sp_file_query {
	const char *path;
	uint32_t maj, min; /* 0 = unknown */
	uint64_t ino;
	struct sp_build_id build_id;
	int32_t live_pid;    /* ask /proc/PID too; -1 = no */
	uint64_t start, end; /* the mapping, for map_files */
};

enum sp_found {
	SP_FOUND,         /* identity confirmed, or there was none to compare and a path map chose it */
	SP_FOUND_BY_PATH, /* nothing to compare: taken on its path */
	SP_FOUND_NOTHING, /* no such file; why says what was tried */
	SP_FOUND_OTHER,   /* a file is there, but it is another one: not used; why says what differs */
};

/* >= 0: an enum sp_found; *out is open for the first two. why: a short reason. */
int sp_find_elf(struct sp_elf *out, const struct sp_find_options *o, const struct sp_file_query *q,
		char why[200], struct sp_err *err);

/* path with OLD replaced by NEW, into out (size bytes); false when nothing fits. */
bool sp_path_map(const struct sp_find_options *o, const char *path, char *out, size_t size);

#endif
