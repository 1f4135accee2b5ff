/* Which modules are language runtimes. */
#ifndef SP_SYM_RUNTIME_H
#define SP_SYM_RUNTIME_H

#include <stdbool.h>

/* python, python3, python3.12t, libpython3.12.so.1.0, libpython3.13td.dylib, …; not python3-config,
 * ipython, pythonw, extension modules. path may be a path. */
bool sp_is_python_module(const char *path);

#endif
