/* What marks a process as a Python runtime: the names of its modules, its arguments. Pure. */
#define _GNU_SOURCE
#include "python.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static size_t digits(const char *p, size_t len)
{
	size_t n = 0;
	while (n < len && p[n] >= '0' && p[n] <= '9')
		n++;
	return n;
}

/* "3", "3.12", "3.12t", "3.12d", "3.12td": the length of the version that begins here. A suffix
 * needs a minor version before it. */
static size_t version(const char *p, size_t len)
{
	size_t n = digits(p, len);
	if (!n || n + 1 >= len || p[n] != '.')
		return n;
	size_t minor = digits(p + n + 1, len - n - 1);
	if (!minor)
		return n;
	n += 1 + minor;
	if (n < len && p[n] == 't')
		n++;
	if (n < len && p[n] == 'd')
		n++;
	return n;
}

bool cap_is_python_module(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const char *name = slash ? slash + 1 : path;
	size_t n = (size_t)(path + len - name);
	static const char mark[] = " (deleted)";
	if (n > 10 && !memcmp(name + n - 10, mark, 10))
		n -= 10;
	if (n >= 6 && !strncasecmp(name, "python", 6))
		return n == 6 || 6 + version(name + 6, n - 6) == n;
	if (n < 9 || strncasecmp(name, "libpython", 9) != 0)
		return false;
	size_t v = version(name + 9, n - 9);
	const char *rest = name + 9 + v;
	size_t left = n - 9 - v;
	if (!memchr(name + 9, '.', v))
		return false;
	if (left >= 3 && !memcmp(rest, ".so", 3))
		return left == 3 || rest[3] == '.';
	return left == 6 && !memcmp(rest, ".dylib", 6);
}

static bool is_perf_value(const char *v)
{
	size_t n = strcspn(v, ",=");
	return (n == 4 && !memcmp(v, "perf", 4)) || (n == 8 && !memcmp(v, "perf_jit", 8));
}

bool cap_is_python_perf(const char *cmdline, size_t len)
{
	const char *end = cmdline + len;
	bool value_of_x = false;
	for (const char *p = cmdline; p < end;) {
		size_t n = strnlen(p, (size_t)(end - p));
		char arg[32];
		snprintf(arg, sizeof arg, "%.*s", (int)(n < 31 ? n : 31), p);
		if (value_of_x && is_perf_value(arg))
			return true;
		value_of_x = !strcmp(arg, "-X");
		if (!strncmp(arg, "-X", 2) && is_perf_value(arg + 2))
			return true;
		p += n + 1;
	}
	return false;
}
