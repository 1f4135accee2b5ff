/* What `perf archive` packs beside a recording, FILE.tar.bz2, read in place: the recorded programs
 * and the kernel's symbols under their build-ids, in the layout of perf's cache (…/HEX/elf,
 * …/HEX/vdso, …/HEX/kallsyms; before perf 4.10 …/HEX is the file itself).
 *
 * A tarball is unpacked when something is first asked of it, whole, since bzip2 gives no way to one
 * member; what is no file of a build-id is dropped at once. At most SP_ARCHIVE_MAX bytes are kept
 * of all tarballs together. Any thread may ask; the rest is for one. */
#ifndef SP_ELF_ARCHIVE_H
#define SP_ELF_ARCHIVE_H

#include <stddef.h>

#include "base/build_id.h"
#include "base/err.h"

#define SP_ARCHIVE_MAX ((size_t)1 << 30)

struct sp_archives;

void sp_archives_free(struct sp_archives *a);

/* Ask this tarball too, after the others: tar packed by bzip2, or plain. *a is made for the first
 * one, when it is NULL. false: no memory. */
bool sp_archives_add(struct sp_archives **a, const char *path);

/* What a user gave as a folder of debug files: 1 when it is a tarball, by its first bytes, 0 when
 * it is a folder; else why it is neither. */
int sp_archives_is_tarball(const char *path, struct sp_err *err);

/* The file of a build-id, name being "elf", "vdso" or "kallsyms": 1 and its bytes, which live as
 * long as a; 0: no tarball has it, and why (left alone otherwise) names one that could not be read
 * whole; SP_ERR_NOMEM. a may be NULL. */
int sp_archives_find(struct sp_archives *a, const struct sp_build_id *id, const char *name,
		     const uint8_t **data, size_t *size, char why[200], struct sp_err *err);

/* What is wrong with a tarball that was asked, i counting those that something is wrong with; NULL
 * beyond the last. a may be NULL. */
const char *sp_archives_problem(const struct sp_archives *a, size_t i);

#endif
