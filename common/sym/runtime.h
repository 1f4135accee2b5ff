/* Which modules are language runtimes, and what is shown for a module: sp_is_python_module and
 * sp_path_to_name of the library. */
#ifndef SP_SYM_RUNTIME_H
#define SP_SYM_RUNTIME_H

#include "stackpulse/symbolize.h"

/* Whether a native function of CPython is where it runs Python functions: _PyEval_EvalFrameDefault,
 * PyEval_EvalFrameEx, or a handler of the tail-calling interpreter (3.14: _TAIL_CALL_LOAD_FAST,
 * with what compilers append, .llvm.123). */
bool sp_is_eval_frame(const char *symbol);

#endif
