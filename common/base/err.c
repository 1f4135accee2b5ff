#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int sp_err_set(struct sp_err *e, int code, int os, const char *fmt, ...)
{
	if (!e)
		return code;
	va_list ap;
	va_start(ap, fmt);
	e->code = code;
	e->os = os;
	vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	return code;
}

int sp_err_errno(struct sp_err *e, const char *fmt, ...)
{
	int os = errno;
	int code = os == EACCES || os == EPERM ? SP_ERR_PERM
		   : os == ESRCH               ? SP_ERR_GONE
					       : SP_ERR_IO;
	if (!e)
		return code;
	va_list ap;
	va_start(ap, fmt);
	e->code = code;
	e->os = os;
	int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof e->msg)
		snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(os));
	return code;
}

int sp_err_nomem(struct sp_err *e)
{
	return sp_err_set(e, SP_ERR_NOMEM, 0, "out of memory");
}
