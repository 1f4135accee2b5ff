/* Finding the file that a recorded mapping names: by identity, not by name (design.md, section 4).
 *
 * Order: --path-map or --symfs, then the live process (map_files, exe, root + path) when the caller
 * says that it is the recorded one, then the path. (Embedded files come before all of these; the
 * caller has them.) Accepted on build-id, else the hash of its content, else device + inode, else -
 * all unknown or zero - on the path alone. A file that a path map chose is a copy: only its
 * build-id or content is compared. With a content hash, DIR/path comes next for each --debug-dir.
 * Last come the folders of files by build-id, DIR/.build-id/xx/yyyy…: --debug-dir's, then perf's
 * cache ~/.debug (perf buildid-cache, perf archive), then the tarballs of perf archive.
 *
 * Device and inode are compared as the kernel shows them for mappings: stat gives other numbers on
 * overlayfs and btrfs, so that a candidate which differs there is looked up in /proc/self/maps. */
#ifndef SP_ELF_FIND_H
#define SP_ELF_FIND_H

#include "elf/archive.h"
#include "elf/elf_file.h"

struct sp_find_options {
	const char *const *path_maps; /* "OLD=NEW"; whole components, longest OLD first, once */
	size_t n_path_maps;
	const char *symfs; /* or NULL */
	const char *const *debug_dirs; /* searched before ~/.debug */
	size_t n_debug_dirs;
	struct sp_archives *archives; /* borrowed, must outlive what is found in them; or NULL */
};

struct sp_file_query {
	const char *path;
	uint32_t maj, min; /* 0 = unknown */
	uint64_t ino;
	struct sp_build_id build_id;
	/* Borrowed: SP_CONTENT_HASH_BYTES of a file without a build-id; NULL = not known. */
	const uint8_t *content_hash;
	int32_t live_pid;    /* ask /proc/PID too; -1 = no */
	uint64_t start, end; /* the mapping, for map_files */
	uint64_t foff; /* its offset in the file: an ELF image in an archive lies at or below */
	bool sections_later; /* leave the section headers unread, where they can be: elf_file.h */
};

enum sp_found {
	SP_FOUND, /* identity confirmed, or there was none to compare and a path map chose it */
	SP_FOUND_BY_PATH, /* nothing to compare: taken on its path */
	SP_FOUND_NOTHING, /* no such file; why says what was tried */
	SP_FOUND_OTHER,   /* a file is there, but it is another one: not used; why says what differs
			   */
};

/* >= 0: an enum sp_found; *out is open for the first two. why: a short reason; "" when there is
 * nothing to say. */
int sp_find_elf(struct sp_elf *out, const struct sp_find_options *o, const struct sp_file_query *q,
		char why[200], struct sp_err *err);

/* Where the ELF image begins in its file; not 0 for an image inside an archive (an Android APK
 * holds its libraries stored and page-aligned). Offsets of mappings count from the file's start, but
 * for paths of simpleperf's, "base.apk!/lib/arm64-v8a/libx.so", which count from the library's. */
static inline uint64_t sp_elf_image_foff(const struct sp_elf *e)
{
	return e->map.data && !e->is_member ? (uint64_t)(e->data - e->map.data) : 0;
}

/* path with OLD replaced by NEW, into out (size bytes); false when nothing fits. */
bool sp_path_map(const struct sp_find_options *o, const char *path, char *out, size_t size);

#endif
