/* Inside of the resolver: what is known of a spool's files, processes and kernel. */
#ifndef SP_SYM_RESOLVER_IMPL_H
#define SP_SYM_RESOLVER_IMPL_H

#include <pthread.h>

#include "base/table.h"
#include "elf/find.h"
#include "sym/arena.h"
#include "sym/jitmap.h"
#include "sym/kallsyms.h"
#include "sym/resolver.h"
#include "sym/strpool.h"
#include "sym/symfile.h"

/* One question: an address of a file, and the answer as the file's symbols give it. */
struct res_ask {
	uint64_t key;
	struct sp_spool_frame frame;
	const struct sp_name *levels; /* the symfile's */
	uint64_t func_offset;
	uint32_t n_levels;
	uint32_t file; /* index in files */
	int32_t pid;
	uint64_t time_ns; /* for code that was replaced */
	bool is_done; /* an external symbolizer has answered */
};

/* A distinct file of the spool's modules. */
struct res_file {
	uint32_t module; /* one that maps it */
	bool tried;
	struct sp_symfile *symfile; /* owned; NULL when there is none */
	uint64_t image_foff;        /* where the ELF image begins in the file */
	char problem[200];
	const char *base; /* what is shown: in names */
	bool is_python;
	size_t first_ask, n_asks; /* among the ordered asks, while running */
	/* What an external symbolizer is told (resolver_native.c). */
	bool sought;
	const char *found;    /* in names; NULL: not found */
	struct sp_elf layout; /* its segments, without the bytes */
};

/* An external symbolizer and its modules. */
struct res_group {
	int32_t pid;
	struct sp_native_symbolizer *symbolizer; /* owned; NULL: none could be made */
	uint32_t *modules;                       /* owned */
	size_t n, cap;
	bool is_new; /* set_modules is due */
};

/* What a module's path says of it: it is no file, or one that may hold code of the process's own. */
#define RES_CODE_MEMORY 1u
#define RES_CODE_MEMFD 2u

/* Code made at run time by a process. */
struct res_jit {
	int32_t pid;
	struct sp_jitmap map;
	struct sp_map64 variants; /* number of a frame and entry: number among all variants */
};

/* What a list of modules has in place of a spool: copies. */
struct res_list {
	struct sp_spool_module *modules; /* owned; ids dense; paths and build-ids in the arena */
	uint32_t *ids;                   /* owned: the caller's, by module */
	size_t n;
	struct sp_map64 by_id; /* the caller's id: module */
	struct sp_spool_info info;
};

/* A process's modules by address, for frames that don't say theirs. */
struct res_space {
	int32_t pid;
	struct sp_ranges ranges; /* id: module */
};

/* A frame of a process as it is shown: one for each of its levels, innermost first. */
struct res_shown {
	const struct sp_resolved_frame *levels; /* in memory */
	const struct sp_names *names;           /* what they were made of */
	uint64_t abs_ip;
	uint32_t frame_id, n_levels;
	int32_t pid;
	uint32_t next;  /* of the same hash, or SP_NONE */
	uint32_t round; /* when it was looked at last */
};

/* A stack that was asked: which frames it has. */
struct res_stack {
	uint32_t stack, maps;
	int32_t pid;
	int n_levels;
	size_t at;     /* in levels */
	uint32_t next; /* of the same hash, or SP_NONE */
};

struct sp_resolver {
	struct sp_spool *spool;             /* borrowed; or NULL: then */
	struct res_list list;               /* of modules */
	struct sp_resolver_options options; /* its pointers are borrowed */
	enum { BOOT_UNKNOWN, BOOT_OTHER, BOOT_SAME } boot; /* of the recording, against this one */
	bool same_host;         /* by its name; what BOOT_UNKNOWN has to do with */
	struct res_file *files; /* owned */
	size_t n_files, files_cap;
	uint32_t *file_of; /* owned: by module id, index in files */
	size_t n_file_of, file_of_cap;
	uint8_t *is_code; /* owned: by module id, RES_CODE_* */
	size_t is_code_cap;
	struct sp_map64 file_by_number; /* the modules' file: index in files */
	struct res_jit **jits; /* owned */
	size_t n_jits, jits_cap;
	struct sp_map64 jit_of; /* pid: index in jits */
	struct sp_map64 dumped; /* pids that have a jitdump */
	bool dumped_known;
	uint32_t n_variants;
	struct sp_kallsyms kallsyms;
	bool kallsyms_read, kallsyms_all;
	char kernel_problem[200];
	struct res_ask *asks; /* owned: what was added and not resolved yet */
	size_t n_asks, asks_cap;
	struct sp_map64 known;     /* key: index in results, or QUEUED */
	struct sp_names **results; /* owned array; in memory */
	size_t n_results, results_cap;
	struct sp_arena memory;
	struct sp_strpool names;
	struct sp_map64 seen; /* address of a symfile's string: index in shown */
	const char **shown;   /* owned array; strings in names */
	size_t n_shown, shown_cap;
	struct sp_buf text;
	uint8_t *stale; /* owned: by result, whether it is to be tried again */
	size_t n_stale, stale_cap;
	uint64_t *kernel_addresses; /* owned: what kallsyms was read for */

	struct res_group *groups; /* owned */
	size_t n_groups, groups_cap;
	uint32_t *group_of; /* owned: by module, index in groups or SP_NONE */
	size_t n_group_of, group_of_cap;

	/* resolver_frames.c */
	struct sp_map64 frame_of; /* hash: index in frames */
	uint32_t frames_round;    /* of refreshes */
	struct res_shown *frames; /* owned */
	size_t n_frames, frames_cap;
	struct sp_map64 stack_of; /* hash: index in stacks */
	struct res_stack *stacks; /* owned */
	size_t n_stacks, stacks_cap;
	const struct sp_resolved_frame **levels; /* owned: of the stacks, then the last answer */
	size_t n_kept, levels_cap;               /* n_kept: those of the stacks */
	struct sp_map64 site_ids; /* of frames without a number: a hash, the index in sites */
	struct res_site {
		uint64_t where; /* of the file, or of the process */
		uint64_t at;
		uint32_t next;
	} * sites; /* owned */
	size_t n_sites, sites_cap;
	struct res_space *spaces; /* owned */
	size_t n_spaces, spaces_cap;
	struct sp_map64 space_of; /* pid: index in spaces */
};

static inline const struct sp_spool_info *res_info(const struct sp_resolver *r)
{
	return r->spool ? sp_spool_info(r->spool) : &r->list.info;
}

static inline size_t res_n_modules(const struct sp_resolver *r)
{
	return r->spool ? sp_spool_n_modules(r->spool) : r->list.n;
}

static inline const struct sp_spool_module *res_module(const struct sp_resolver *r, uint32_t id)
{
	return r->spool ? sp_spool_module(r->spool, id) : &r->list.modules[id];
}

static inline size_t res_n_objects(const struct sp_resolver *r)
{
	return r->spool ? sp_spool_n_objects(r->spool) : 0;
}

static inline const struct sp_spool_object *res_object(const struct sp_resolver *r, size_t i)
{
	return sp_spool_object(r->spool, i);
}

static inline size_t res_n_execs(const struct sp_resolver *r)
{
	return r->spool ? sp_spool_n_execs(r->spool) : 0;
}

static inline const struct sp_spool_exec *res_exec(const struct sp_resolver *r, size_t i)
{
	return sp_spool_exec(r->spool, i);
}

/* resolver_list.c: also what a spool's resolver needs for frames of the caller's own. */
int res_list_init(struct sp_resolver *r, const struct sp_spool_module *modules, size_t n,
		  const struct sp_spool_info *info, struct sp_err *err);
void res_list_deinit(struct sp_resolver *r);
void res_list_refresh(struct sp_resolver *r);
/* From the caller's number of a module to ours; false when there is none. */
bool res_module_id(const struct sp_resolver *r, uint32_t *id);
/* Makes a frame of the caller's whole: our module, the offset in its file, a number. */
int res_frame_fix(struct sp_resolver *r, int32_t pid, struct sp_spool_frame *f,
		  struct sp_err *err);

/* resolver_frames.c */
void res_frames_deinit(struct sp_resolver *r);
/* Frames without a name are made anew when they are asked next, and so are all stacks. */
void res_frames_refresh(struct sp_resolver *r);

/* resolver.c */
bool res_is_code_memory(const struct sp_spool_module *m);

/* resolver_file.c: opens the symbols of a file once; never fails for want of them. */
int res_file_open(struct sp_resolver *r, struct res_file *f, struct sp_err *err);
/* What a file will be asked, before it is: opens it too. n > 0. */
int res_file_expect(struct sp_resolver *r, struct res_file *f, struct res_ask *const *asks,
		    size_t n, struct sp_err *err);
/* Fills the answer; n_levels stays 0 when nothing names the address. */
int res_file_ask(struct sp_resolver *r, struct res_file *f, struct res_ask *a, struct sp_err *err);

/* As the spool tells of a module, for finding its file. */
struct sp_file_query res_file_query(const struct sp_resolver *r, const struct sp_spool_module *m);
struct sp_find_options res_find_options(const struct sp_resolver *r);
struct sp_debug_dirs res_debug_dirs(const struct sp_resolver_options *o);

/* resolver_native.c: asks the external symbolizer, if there is one; a->is_done says that nobody
 * else is to be asked. */
int res_native_ask(struct sp_resolver *r, struct res_ask *a, struct sp_err *err);
void res_native_deinit(struct sp_resolver *r);

/* resolver_jit.c: what the process's perf map or jitdump says. */
int res_jit_find(struct sp_resolver *r, int32_t pid, uint64_t avma, uint64_t time_ns,
		 struct sp_jit_found *out, struct sp_err *err);
/* Whether names of the process's code depend on the time. */
bool res_jit_has_times(struct sp_resolver *r, int32_t pid);
/* Whether /proc/pid is the process of the recording. */
bool res_is_live(const struct sp_resolver *r, int32_t pid);

/* Forget what may have grown since; code that has no name then is looked for again. */
void res_jit_refresh(struct sp_resolver *r);

/* resolver_kernel.c: 1 and *out, or 0. */
int res_kernel_find(struct sp_resolver *r, uint64_t avma, struct sp_kernel_symbol *out,
		    struct sp_err *err);
void res_kernel_refresh(struct sp_resolver *r);
/* resolver_sysmap.c: 1 when a System.map was used, 0 when not. */
int res_sysmap_read(struct sp_resolver *r, struct sp_err *err);

#endif
