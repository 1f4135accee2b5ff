/* Inside of the resolver: what is known of a spool's files, processes and kernel. */
#ifndef SP_SYM_RESOLVER_IMPL_H
#define SP_SYM_RESOLVER_IMPL_H

#include <pthread.h>

#include "base/table.h"
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
	size_t first_ask, n_asks; /* in asks, while running */
};

/* Code made at run time by a process. */
struct res_jit {
	int32_t pid;
	struct sp_jitmap map;
};

struct sp_resolver {
	struct sp_spool *spool;                            /* borrowed */
	struct sp_resolver_options options;                /* its pointers are borrowed */
	enum { BOOT_UNKNOWN, BOOT_OTHER, BOOT_SAME } boot; /* of the recording, against this one */
	bool same_host;         /* by its name; what BOOT_UNKNOWN has to do with */
	struct res_file *files; /* owned */
	size_t n_files, files_cap;
	uint32_t *file_of;     /* owned: by module id, index in files */
	struct res_jit **jits; /* owned */
	size_t n_jits, jits_cap;
	struct sp_map64 jit_of; /* pid: index in jits */
	struct sp_kallsyms kallsyms;
	bool kallsyms_read, has_kallsyms;
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
};

/* resolver_file.c: opens the symbols of a file once; never fails for want of them. */
int res_file_open(struct sp_resolver *r, struct res_file *f, struct sp_err *err);
/* Fills the answer; n_levels stays 0 when nothing names the address. */
int res_file_ask(struct sp_resolver *r, struct res_file *f, struct res_ask *a, struct sp_err *err);
const char *res_base_name(const char *path, size_t *len);

/* resolver_jit.c: what the process's perf map or jitdump says. */
int res_jit_find(struct sp_resolver *r, int32_t pid, uint64_t avma, struct sp_jit_found *out,
		 struct sp_err *err);
/* Whether /proc/pid is the process of the recording. */
bool res_is_live(const struct sp_resolver *r, int32_t pid);

/* resolver_kernel.c */
int res_kernel_read(struct sp_resolver *r, struct sp_err *err);

#endif
