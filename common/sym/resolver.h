/* Inside of the resolver's users here: names as levels, which the public frames are made of
 * (stackpulse/symbolize.h has the rest). Results are interned: equal pointers, equal names; they
 * live as long as the resolver. */
#ifndef SP_SYM_RESOLVER_H
#define SP_SYM_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "elf/elf_file.h"
#include "stackpulse/symbolize.h"

#define SP_NAME_PYTHON 32u /* among the flags: a Python function; file is its source */

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
	uint32_t flags;           /* SP_FLAG_*, SP_NAME_PYTHON */
	const char *module;       /* base name of the file, "[kernel]", "[vdso]", or "[unknown]" */
	uint64_t function_offset; /* of the address in the function */
};

/* Resolves on the spot what was not added before. NULL when memory ends. time_ns: of a sample, for
 * code of JITs that replaced other code (where a jitdump tells); UINT64_MAX: what was there last. */
const struct sp_names *sp_resolver_get(struct sp_resolver *r, int32_t pid,
				       const struct sp_spool_frame *f, uint64_t time_ns);
int sp_resolver_add_at(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *frame,
		       uint64_t time_ns, struct sp_err *err);
/* Whether the name of a user frame is its process's own: code in no file. */
bool sp_resolver_is_own(const struct sp_resolver *r, const struct sp_spool_frame *f);
/* Where names of the process's own code depend on the time: true, and a number for this name of
 * this frame. */
bool sp_resolver_variant(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
			 uint64_t time_ns, uint32_t *out);
/* A number that changes when names of the process's own code may change; 0 while none does. */
uint32_t sp_resolver_epoch(struct sp_resolver *r, int32_t pid, uint64_t time_ns);
/* Whether any does, so that most samples need not be asked for. */
bool sp_resolver_has_epochs(struct sp_resolver *r, int32_t pid);

#endif
