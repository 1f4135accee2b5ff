/* stackpulse/error.h - errors as values: what failed, why, and nothing printed.
 *
 * A fallible function of the library returns an int: >= 0 is a documented outcome, < 0 is one of
 * enum sp_errcode. Its last parameter is a struct sp_err on the caller's stack (may be NULL), which
 * is written only on failure. */
#ifndef STACKPULSE_ERROR_H
#define STACKPULSE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif
