/* stackpulse/symbolize.h - names for the addresses of a profile.
 *
 * A resolver turns raw frames into frames that can be shown. It is made over a spool's reader, or
 * over a list of modules, and asked for the stack of a sample or for frames of the caller's own:
 *
 *     struct sp_resolver *r;
 *     const struct sp_resolved_frame *const *f;
 *     sp_resolver_new(&r, spool, NULL, &err);
 *     while (sp_spool_next(spool, &sample, &err) > 0) {
 *             int n = sp_resolver_sample(r, &sample, &f, &err);
 *             for (int i = 0; i < n; i++)
 *                     puts(f[i]->func_name);
 *     }
 *
 * Sources, in this order: the symbols of the mapped file (embedded in the spool, else found by its
 * identity: build-id, else content, else device and inode) with its debug files; for code that is
 * in no file the process's perf map or jitdump; for the kernel the recorded kallsyms, or the
 * running kernel's when it is the recorded one. What nobody names stays an address: a wrong name is
 * worse than none.
 *
 * Files, maps and spools may be hostile. Nothing prints, exits, changes signals, forks, talks to
 * the network or keeps state outside of the resolver. Files are read into memory, not mapped. A
 * resolver serves one thread at a time (it uses threads of its own in sp_resolver_run); different
 * resolvers over different readers are independent.
 *
 * Errors are values (stackpulse/error.h); only memory that ends, and a caller's mistake, are
 * errors: what has no name is an address, not a failure. */
#ifndef STACKPULSE_SYMBOLIZE_H
#define STACKPULSE_SYMBOLIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stackpulse/error.h"
#include "stackpulse/spool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What a frame is ---------------------------------------------------------------------- */

enum sp_frame_kind {
	SP_KIND_UNKNOWN, /* an address in no module, or the marker of a stack that was cut */
	SP_KIND_NATIVE,
	SP_KIND_PYTHON,
	SP_KIND_KERNEL,
};

enum sp_origin {
	SP_ORIGIN_ADDRESS, /* no name: the address alone */
	SP_ORIGIN_ELF,     /* a file's symbols, debug information or Go function table, or an
			      external symbolizer */
	SP_ORIGIN_PERF_MAP, /* a perf map or a jitdump */
	SP_ORIGIN_KERNEL,   /* kallsyms */
};

#define SP_FLAG_PYTHON_RUNTIME 1u   /* native code of the interpreter itself */
#define SP_FLAG_HIDDEN_DEFAULT 4u   /* machinery: a view leaves it out unless asked */
#define SP_FLAG_JIT 8u              /* code made at run time */
#define SP_FLAG_TRUNCATED_STACK 16u /* a marker: the stack goes on towards its root, unseen */

/* A Python function, from CPython's perf map. What the map does not tell is -1, or false. */
struct sp_python_frame {
	const char *file_name; /* as the interpreter named it; "~" when it named none */
	const char *base_name; /* within file_name */
	const char *func_name;
	int32_t line, end_line, column, end_column;
	int32_t opcode;
	bool is_entry;
};

struct sp_native_frame {
	uint64_t pc;               /* AVMA, as it was looked up */
	const char *symbol;        /* demangled; NULL: address only */
	const char *module;        /* base name, "[kernel]", "[ext4]", "[vdso]", or "[unknown]" */
	uint64_t function_offset;  /* of pc in the function; 0 when there is none */
	uint64_t module_offset;    /* of pc in the module's file; pc itself for the kernel */
	const char *file;          /* source file, or NULL */
	uint32_t line;             /* 0 = unknown */
	uint32_t inline_depth;     /* 0: the function itself; n: inlined, n levels inside it */
	bool is_python_runtime;    /* as the flag */
	bool is_eval_frame;        /* where the interpreter runs a Python function */
	bool should_ignore;        /* of the runtime, and not an eval frame: beside Python frames it
				      tells nothing */
};

struct sp_resolved_frame {
	enum sp_frame_kind kind;
	enum sp_origin origin;
	uint32_t flags;        /* SP_FLAG_* */
	const char *func_name; /* never NULL: a Python or a native function; "[libfoo.so+0x1234]",
				  "[kernel+0xffff…]", "<0x7f…>" for bare addresses;
				  "<stack truncated>" */
	union {
		struct sp_python_frame python; /* kind is SP_KIND_PYTHON */
		struct sp_native_frame native; /* all other kinds */
	};
};

/* ---- A symbolizer of the caller's own ------------------------------------------------------- */

/* Where an ELF file lies in a process, against the addresses that it was linked for:
 * SVMA = AVMA - avma + svma (wrapping). svma is that of the file's first segment. */
struct sp_image_base {
	uint64_t avma, svma;
};

static inline uint64_t sp_image_base_svma(const struct sp_image_base *b, uint64_t avma)
{
	return avma - b->avma + b->svma;
}

/* The image base of a file that is mapped at [start, end) from file_offset on: 1 and *out; 0 when
 * the file's segments do not say (no such mapping can be of this file). SP_ERR_*: not readable, or
 * no ELF file. */
int sp_image_base_of(const char *path, uint64_t start, uint64_t end, uint64_t file_offset,
		     struct sp_image_base *out, struct sp_err *err);

/* A module as an external symbolizer sees it. Pointers are valid during the call. */
struct sp_native_module {
	uint32_t id;
	const char *path;       /* as recorded */
	const char *found;      /* where the file with the recorded identity is now, or NULL */
	uint64_t start, end;    /* AVMA */
	uint64_t file_offset;   /* of start */
	const uint8_t *build_id; /* build_id_len bytes, or NULL */
	uint8_t build_id_len;
	bool has_image_base;    /* false when the file was not found */
	struct sp_image_base image_base;
};

/* An answer: the levels of inlining, innermost first; the last one is the function itself. */
struct sp_symbol_level {
	const char *name; /* NULL = unknown */
	const char *file; /* NULL = unknown */
	uint32_t line;    /* 0 = unknown */
};

struct sp_symbols {
	const struct sp_symbol_level *levels; /* the symbolizer's, until its next call */
	size_t n;
	uint64_t function_offset; /* of the address in the function; 0 = unknown */
};

/* Put it first in a struct of your own. All calls come from the thread that calls the resolver. */
struct sp_native_symbolizer {
	/* What the process has mapped; again, with all of them, when that changes. They do not
	 * overlap: modules that did not exist at the same time go to different symbolizers. */
	int (*set_modules)(struct sp_native_symbolizer *self,
			   const struct sp_native_module *modules, size_t n, struct sp_err *err);
	/* One address within one of these modules: 1 and *out, or 0: not known. Called once for
	 * each distinct address of a file. An error is taken for 0, but for SP_ERR_NOMEM. */
	int (*symbolize_one)(struct sp_native_symbolizer *self, uint64_t avma,
			     struct sp_symbols *out, struct sp_err *err);
	void (*free)(struct sp_native_symbolizer *self);
};

/* Makes symbolizers: one for each process and each group of modules that don't overlap. */
struct sp_native_factory {
	int (*make)(void *ctx, int32_t pid, struct sp_native_symbolizer **out, struct sp_err *err);
	void *ctx;
	bool fall_back; /* what it does not know is asked of the built-in one */
};

/* The built-in one as a factory, for symbolizers that stand in front of it: ELF symbols, DWARF and
 * separate debug files of what is found at path (or found). options (may be NULL) and what it
 * points to must outlive what it makes; of them debug_dirs, fetch_debug, no_inline, no_demangle and
 * no_lines are used. */
struct sp_resolver_options;
struct sp_native_factory sp_native_factory_builtin(const struct sp_resolver_options *options);

/* ---- The resolver -------------------------------------------------------------------------- */

/* Whose perf maps are used. */
enum sp_perf_maps {
	SP_PERF_MAPS_MARKED, /* processes that ever carried a runtime's mark (over a list: all) */
	SP_PERF_MAPS_NONE,
	SP_PERF_MAPS_ANY,
	SP_PERF_MAPS_LAST,   /* the process that was marked last */
	SP_PERF_MAPS_LISTED, /* those of perf_map_pids */
};

struct sp_cachedir;
struct sp_archives;

/* Zeros are the defaults. Pointers are borrowed until the resolver is freed. */
struct sp_resolver_options {
	const char *const *path_maps; /* "OLD=NEW" each; longest OLD first, whole components */
	size_t n_path_maps;
	const char *symfs; /* prefix for all paths, or NULL */
	/* Folders of debug files, before those of STACKPULSE_DEBUG_DIRS or /usr/lib/debug: build-id
	 * folders, names of .gnu_debuglink, dwz, dwo and dwp. */
	const char *const *debug_dirs;
	size_t n_debug_dirs;
	/* Who is asked for a debug file that no folder has, or NULL: nobody. Given a build-id in
	 * hex, it puts the file's path where there is room for path_size bytes and returns 1, or
	 * returns 0. Any of the resolver's threads calls it, several at a time, and waits for it.
	 * What it brings is used only if it bears that build-id. The library itself asks no server;
	 * a function that calls debuginfod_find_debuginfo (libdebuginfod) does, with a client for
	 * each thread. */
	int (*fetch_debug)(void *ctx, const char *build_id, char *path, size_t path_size);
	void *fetch_ctx;
	struct sp_archives *archives; /* tarballs of perf archive: sp-sym's; NULL = none */
	const char *perf_map_dir; /* NULL: embedded, /proc/PID/root/tmp, /tmp, the spool's folder */
	const char *spool_dir; /* where the spool lies; perf maps are sought there too; or NULL */
	enum sp_perf_maps perf_maps;
	const int64_t *perf_map_pids;
	size_t n_perf_map_pids;
	bool no_inline, no_demangle;
	bool no_lines; /* files and lines are not asked for: those of native code stay unknown */
	const struct sp_cachedir *cache; /* what earlier runs found: sp-sym's; NULL = none */
	unsigned n_workers;              /* of sp_resolver_run; 0 = all cores */
	void (*progress)(void *ctx, size_t done, size_t total);
	void *progress_ctx;
	const struct sp_native_factory *native; /* who names files, or NULL: the built-in one */
	/* Stacks that sp_resolver_sample remembers: 0 = 16384; all are forgotten when it is full.
	 * SP_NONE remembers none: for callers that keep the frames of a stack themselves. */
	uint32_t max_stacks;
};

struct sp_resolver;

/* Over a spool, which must outlive it. */
int sp_resolver_new(struct sp_resolver **out, struct sp_spool *spool,
		    const struct sp_resolver_options *options, struct sp_err *err);

/* Over a list of modules (copied), whose ids are the caller's: any numbers, each once; fields that
 * are not known are 0. info (may be NULL, copied) says where they come from: with this machine's
 * boot_id the files and maps of processes that live are asked in /proc; without one the files are
 * taken on their paths and identities, perf maps from /tmp. SP_ERR_INVALID: an id comes twice. */
int sp_resolver_new_modules(struct sp_resolver **out, const struct sp_spool_module *modules,
			    size_t n, const struct sp_spool_info *info,
			    const struct sp_resolver_options *options, struct sp_err *err);
void sp_resolver_free(struct sp_resolver *r);

/* The frames of a sample of the resolver's spool, leaf first, inlined ones innermost first, as an
 * array of pointers: the number of frames and *out. The array is the resolver's, valid until its
 * next call; the frames stay until it is freed: equal pointers, equal frames. A stack that was
 * asked before costs no allocation and no look-up of its frames. SP_ERR_INVALID: a sample of
 * another spool (as far as its numbers tell), or there is no spool. */
int sp_resolver_sample(struct sp_resolver *r, const struct sp_spool_sample *sample,
		       const struct sp_resolved_frame *const **out, struct sp_err *err);

/* The same for frames of the caller's own, of a process at a time (of the samples' clock; 0: what
 * was there last). Of each frame mode and abs_ip are used, and module: an id, or SP_NONE for the
 * module of that process that holds abs_ip, if there is one. frame_id must be one of the spool's,
 * or SP_NONE. SP_ERR_INVALID: no such module. */
int sp_resolver_frames(struct sp_resolver *r, int32_t pid, uint64_t time_ns,
		       const struct sp_spool_frame *frames, size_t n,
		       const struct sp_resolved_frame *const **out, struct sp_err *err);

/* Many at once: remember that this frame of that process will be asked (frame as above), then
 * resolve all that were added: each distinct address once, sorted per module, modules in parallel.
 * Not needed: what was not added is resolved when it is asked. */
int sp_resolver_add(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *frame,
		    struct sp_err *err);
int sp_resolver_run(struct sp_resolver *r, struct sp_err *err);

/* Live: after sp_spool_refresh has brought new blocks, and whenever what had no name may have got
 * one (a file that has come, a perf map that has grown): new modules are known, and addresses
 * without a name are tried again when they are asked next. Names that were given stay. */
int sp_resolver_refresh(struct sp_resolver *r, struct sp_err *err);

/* Why a module has no names ("no such file", "build-id differs", "no symbols", …), or NULL. Known
 * once one of its addresses was asked. Valid until the next call. */
const char *sp_resolver_module_problem(struct sp_resolver *r, uint32_t module);

/* ---- Names ---------------------------------------------------------------------------------- */

/* Whether a module is a Python runtime, by its base name: python, python3, python3.12t,
 * libpython3.12.so.1.0, libpython3.13td.dylib, …; not python3-config, ipython, pythonw, extension
 * modules. */
bool sp_is_python_module(const char *path);

/* What is shown for a module's path: its base name, without the kernel's mark of deleted files;
 * "[anon]" for memory that is no file's. Within path or a constant; *len is its length. */
const char *sp_path_to_name(const char *path, size_t *len);

#ifdef __cplusplus
}
#endif

#endif
