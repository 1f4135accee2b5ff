/* Filling a struct sp_err (stackpulse/error.h has the type and the rules). */
#ifndef SP_BASE_ERR_H
#define SP_BASE_ERR_H

#include "stackpulse/error.h"

/* Fill e (when not NULL) and return code, so that callers write `return sp_err_set(…)`. */
int sp_err_set(struct sp_err *e, int code, int os, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Same for a failed system call: appends ": " and the errno's text; EACCES and EPERM become
 * SP_ERR_PERM, ESRCH SP_ERR_GONE, all else SP_ERR_IO. */
int sp_err_errno(struct sp_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int sp_err_nomem(struct sp_err *e);

#endif
