/* C++ (Itanium) and Rust (legacy and v0) names for people, with libiberty, bounded: a hostile name
 * costs a bounded time and a bounded length, and is then given as it is. */
#ifndef SP_SYM_DEMANGLE_H
#define SP_SYM_DEMANGLE_H

#include "base/buf.h"

#define SP_MANGLED_MAX 16384   /* longer names are not tried */
#define SP_DEMANGLED_MAX 65536 /* longer results are refused */

/* 1 and the demangled text in out (replaced, NUL-terminated, its length without the NUL), 0 when
 * the name is not mangled or refused. Symbol versions ("@@GLIBC_2.2.5") and compiler suffixes
 * (".cold", ".isra.0", ".llvm.123") stay, suffixes as " [clone .cold]" as c++filt writes them. */
int sp_demangle(const char *name, struct sp_buf *out);

#endif
