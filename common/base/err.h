/* Errors as values: what failed, why, and nothing printed.
 *
 * A fallible function returns an int: >= 0 is a documented outcome, < 0 is an enum sp_errcode with
 * its minus sign. Its last parameter is a struct sp_err on the caller's stack (may be NULL), which
 * is written only on failure. */
#ifndef SP_BASE_ERR_H
#define SP_BASE_ERR_H

enum sp_errcode {
	SP_ERR_IO = -1,          /* a system call failed; os holds its errno */
	SP_ERR_CORRUPT = -2,     /* the bytes contradict their format */
	SP_ERR_LIMIT = -3,       /* refused: larger than a stated limit */
	SP_ERR_NOMEM = -4,       /* the allocator refused */
	SP_ERR_PERM = -5,        /* EACCES or EPERM; os holds which */
	SP_ERR_UNSUPPORTED = -6, /* well-formed, but a kind we do not know */
	SP_ERR_INVALID = -7,     /* the caller's or the user's argument is wrong */
	SP_ERR_GONE = -8,        /* the target has ended */
};

struct sp_err {
	int code;      /* enum sp_errcode */
	int os;        /* errno of the failing call, or 0 */
	char msg[400]; /* one line without a final newline: "cannot …: why" */
};

/* Fill e (when not NULL) and return code, so that callers write `return sp_err_set(…)`. */
int sp_err_set(struct sp_err *e, int code, int os, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Same for a failed system call: appends ": " and the errno's text; EACCES and EPERM become
 * SP_ERR_PERM, ESRCH SP_ERR_GONE, all else SP_ERR_IO. */
int sp_err_errno(struct sp_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int sp_err_nomem(struct sp_err *e);

#endif
