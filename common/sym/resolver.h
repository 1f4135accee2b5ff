/* Names for addresses: the sources in order (perf map, ELF with DWARF, kallsyms, bare address),
 * each distinct address once. Results are interned: equal pointers, equal names; they live as long
 * as the resolver. */
#ifndef SP_SYM_RESOLVER_H
#define SP_SYM_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "elf/elf_file.h"
#include "stackpulse/spool.h"

enum sp_origin { SP_ORIGIN_ADDRESS, SP_ORIGIN_ELF, SP_ORIGIN_PERF_MAP, SP_ORIGIN_KERNEL };

#define SP_NAME_PYTHON_RUNTIME 1u
#define SP_NAME_HIDDEN_DEFAULT 4u
#define SP_NAME_JIT 8u
#define SP_NAME_TRUNCATED 16u
#define SP_NAME_PYTHON 32u /* a Python function from a perf map: file is its source */

/* One level: innermost inline first. */
struct sp_name {
	const char
		*function; /* demangled; "[libfoo.so+0x1234]" for SP_ORIGIN_ADDRESS; never NULL */
	const char *file;  /* NULL = unknown */
	uint32_t line;     /* 0 = unknown */
	bool inlined;      /* inlined into the next level */
};

struct sp_names {
	const struct sp_name *levels; /* n_levels >= 1; the last one is the real function */
	uint32_t n_levels;
	enum sp_origin origin;
	uint32_t flags;           /* SP_NAME_* */
	const char *module;       /* base name of the file, "[kernel]", "[vdso]", or "[unknown]" */
	uint64_t function_offset; /* of the address in the function */
};

struct sp_cachedir;

struct sp_resolver_options {
	const char *const *path_maps; /* "OLD=NEW" each; longest OLD first, whole components */
	size_t n_path_maps;
	const char *symfs; /* prefix for all paths, or NULL */
	const char *const *debug_dirs;
	size_t n_debug_dirs;
	const char *perf_map_dir; /* NULL: embedded, /proc/PID/root/tmp, /tmp, the spool's folder */
	const char *spool_dir; /* where the spool lies; perf maps are sought there too; or NULL */
	/* Whose: of processes that ever carried a runtime's mark, of none, of all, of the one that
	 * was marked last, of those listed. */
	enum {
		SP_PERF_MAPS_MARKED,
		SP_PERF_MAPS_NONE,
		SP_PERF_MAPS_ANY,
		SP_PERF_MAPS_LAST,
		SP_PERF_MAPS_LISTED,
	} perf_maps;
	const int64_t *perf_map_pids;
	size_t n_perf_map_pids;
	bool no_inline, no_demangle;
	const struct sp_cachedir *cache; /* what earlier runs found; NULL = none */
	unsigned n_workers;              /* 0 = all cores */
	void (*progress)(void *ctx, size_t done, size_t total);
	void *progress_ctx;
};

struct sp_resolver;
/* A resolver over a spool's modules and embedded objects; the spool must outlive it. */
int sp_resolver_new(struct sp_resolver **out, struct sp_spool *spool,
		    const struct sp_resolver_options *options, struct sp_err *err);
void sp_resolver_free(struct sp_resolver *r);

/* Collect: remember that this frame of that pid will be asked. Then resolve all that were added
 * (sorted per module, modules in parallel). sp_resolver_get resolves on the spot what was not. */
int sp_resolver_add(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
		    struct sp_err *err);
int sp_resolver_run(struct sp_resolver *r, struct sp_err *err);
const struct sp_names *sp_resolver_get(struct sp_resolver *r, int32_t pid,
				       const struct sp_spool_frame *f);

/* Why a module has no names ("file not found", "build-id differs", "no symbols", …) or NULL; for
 * the statistics. */
const char *sp_resolver_module_problem(struct sp_resolver *r, uint32_t module);

#endif
