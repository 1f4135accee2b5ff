#include "sym/runtime.h"

#include <string.h>
#include <strings.h>

static const char *skip_digits(const char *p)
{
	return p + strspn(p, "0123456789");
}

/* X, X.Y and a mark of the build (t: free-threaded, d: debug) behind it. */
static const char *skip_version(const char *p)
{
	const char *q = skip_digits(p);
	if (q == p)
		return p;
	if (*q == '.' && skip_digits(q + 1) > q + 1) {
		q = skip_digits(q + 1);
		if (!strncasecmp(q, "td", 2))
			q += 2;
		else if ((*q | 0x20) == 't' || (*q | 0x20) == 'd')
			q++;
	}
	return q;
}

const char *sp_path_to_name(const char *path, size_t *len)
{
	static const char deleted[] = " (deleted)", anon[] = "[anon]";
	if (!path || !*path || !strncmp(path, "//anon", 6)) {
		*len = sizeof anon - 1;
		return anon;
	}
	if (!strncmp(path, "/memfd:", 7)) {
		*len = strcspn(path + 1, " ");
		return path + 1;
	}
	const char *slash = strrchr(path, '/');
	const char *base = slash && slash[1] ? slash + 1 : path;
	size_t n = strlen(base), mark = sizeof deleted - 1;
	if (n > mark && !strcmp(base + n - mark, deleted))
		n -= mark;
	*len = n;
	return base;
}

bool sp_is_eval_frame(const char *symbol)
{
	return strstr(symbol, "PyEval_EvalFrameDefault") || strstr(symbol, "PyEval_EvalFrameEx") ||
	       !strncmp(symbol, "TAIL_CALL_", 10) || !strncmp(symbol, "_TAIL_CALL_", 11);
}

bool sp_is_python_module(const char *path)
{
	size_t len;
	const char *base = path ? sp_path_to_name(path, &len) : "";
	if (!*base)
		return false;
	if (len >= 6 && !strncasecmp(base, "python", 6))
		return skip_version(base + 6) == base + len;
	if (len < 9 || strncasecmp(base, "libpython", 9) != 0)
		return false;
	const char *rest = skip_version(base + 9);
	if (rest == base + 9)
		return false;
	if (!strncasecmp(rest, ".dylib", 6))
		return rest + 6 == base + len;
	if (strncasecmp(rest, ".so", 3) != 0)
		return false;
	rest += 3;
	return rest + strspn(rest, ".0123456789") >= base + len;
}
