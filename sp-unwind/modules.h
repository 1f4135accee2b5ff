/* Files and address spaces for the engine: what a mapping's file is, opened once per identity, and
 * the maps of a snapshot. Used by the thread that reads the input; what it hands out is immutable.
 *
 * Open files are bounded: those that no living snapshot needs go first, least recently used. */
#ifndef SP_UNWIND_MODULES_H
#define SP_UNWIND_MODULES_H

#include "elf/debugfile.h"
#include "elf/find.h"
#include "maps/procs.h"
#include "perf/ext.h"
#include "walk.h"

struct un_modules_options {
	struct sp_find_options find;
	struct sp_debug_dirs debug_dirs;
	/* Told once per file: level 0 for a file that was refused, 1 for details. May be NULL. */
	void (*say)(int level, const char *path, const char *what);
};

/* What the stream says about where it was made. Set as soon as it is known. */
struct un_origin {
	bool is_live; /* this boot of this machine: processes may be asked (boot id) */
	/* Whether it is this machine's kernel, whose vdso is ours. Asked when a vdso is met that can
	 * be. */
	bool (*is_host)(void *ctx);
	/* Build-id of a file that the recording lists, or NULL. */
	const uint8_t *(*build_id)(void *ctx, const struct sp_file_id *file, uint8_t *len);
	/* Of a file without one: the hash of its content, or NULL. May be NULL. */
	const uint8_t *(*content_hash)(void *ctx, const struct sp_file_id *file);
	void *ctx;
};

struct un_modules;
/* procs must outlive it. NULL when memory ends. */
struct un_modules *un_modules_new(struct sp_procs *procs, const struct un_modules_options *o);
void un_modules_free(struct un_modules *m);
void un_modules_origin(struct un_modules *m, const struct un_origin *origin);

/* Keep an embedded file (SP_OBJECT_FILE); the payload is copied. Bounded as sp_ext_join is. */
int un_modules_embed(struct un_modules *m, const struct sp_ext_object *o, struct sp_err *err);

/* The engine's view of a process's space, built when the space is new, of parts that are built with
 * its chunks and shared as those are; it lives as long as the space is held. time_ns: of the sample
 * that needs it. NULL when memory ends. */
const struct uw_space *un_modules_space(struct un_modules *m, struct sp_space *space, int32_t pid,
					uint64_t time_ns);

/* The machine of the files of a space, EM_NONE when none is open. */
uint16_t un_modules_machine(const struct uw_space *space);

/* How many files were taken on their path alone. */
unsigned un_modules_n_by_path(const struct un_modules *m);

#endif
