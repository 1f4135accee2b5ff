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

bool sp_is_python_module(const char *path)
{
	const char *base = strrchr(path, '/');
	base = base ? base + 1 : path;
	size_t len = strlen(base);
	static const char deleted[] = " (deleted)";
	if (len > sizeof deleted - 1 && !strcmp(base + len - (sizeof deleted - 1), deleted))
		len -= sizeof deleted - 1;
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
