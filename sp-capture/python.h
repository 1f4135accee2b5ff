/* What marks a process as a Python runtime. */
#ifndef SP_CAPTURE_PYTHON_H
#define SP_CAPTURE_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/* "python3.12", "libpython3.12.so.1.0", …: behaviour of the crate, section 1.12. */
bool cap_is_python_module(const char *path, size_t len);
/* NUL-separated arguments that switch perf support on: -X perf, -Xperf, -X perf_jit, -X perf,… */
bool cap_is_python_perf(const char *cmdline, size_t len);

#endif
