/* /proc/PID/maps, proc(5): "start-end perms offset maj:min inode    path". */
#include <string.h>
#include <sys/mman.h>

#include "maps/procs.h"

/* A number in base 10 or 16 that ends in `end`; false when there is none or it is over 64 bits. */
static bool number(const char **p, const char *stop, unsigned base, char end, uint64_t *out)
{
	uint64_t v = 0;
	const char *s = *p;
	for (; s < stop && *s != end; s++) {
		unsigned digit = *s >= '0' && *s <= '9'   ? (unsigned)(*s - '0')
				 : *s >= 'a' && *s <= 'f' ? (unsigned)(*s - 'a') + 10
							  : 16;
		if (digit >= base || v > (UINT64_MAX - digit) / base)
			return false;
		v = v * base + digit;
	}
	if (s == *p || s == stop)
		return false;
	*p = s + 1;
	*out = v;
	return true;
}

int sp_maps_line(const char *line, size_t len, struct sp_perf_mmap *m)
{
	const char *p = line, *stop = line + len;
	uint64_t start, end, pgoff, maj, min, ino;
	if (!number(&p, stop, 16, '-', &start) || !number(&p, stop, 16, ' ', &end) || end <= start)
		return 0;
	if (stop - p < 5 || p[4] != ' ')
		return 0;
	const char *perms = p;
	if ((perms[0] != 'r' && perms[0] != '-') || (perms[1] != 'w' && perms[1] != '-') ||
	    (perms[2] != 'x' && perms[2] != '-') || (perms[3] != 'p' && perms[3] != 's'))
		return 0;
	p += 5;
	if (!number(&p, stop, 16, ' ', &pgoff) || !number(&p, stop, 16, ':', &maj) ||
	    !number(&p, stop, 16, ' ', &min) || maj > UINT32_MAX || min > UINT32_MAX)
		return 0;
	/* A line without a path ends in the inode, with or without blanks after it. */
	const char *blank = memchr(p, ' ', (size_t)(stop - p));
	if (blank ? !number(&p, stop, 10, ' ', &ino) : !number(&p, stop + 1, 10, '\0', &ino))
		return 0;
	while (p < stop && *p == ' ') /* the kernel pads up to the path, which begins with / or [ */
		p++;
	*m = (struct sp_perf_mmap){
		.start = start,
		.len = end - start,
		.pgoff = pgoff,
		.maj = (uint32_t)maj,
		.min = (uint32_t)min,
		.ino = ino,
		.prot = (perms[0] == 'r' ? (uint32_t)PROT_READ : 0) |
			(perms[1] == 'w' ? (uint32_t)PROT_WRITE : 0) |
			(perms[2] == 'x' ? (uint32_t)PROT_EXEC : 0),
		.flags = perms[3] == 's' ? MAP_SHARED : MAP_PRIVATE,
		.path = p < stop ? p : stop,
		.is_mmap2 = true,
	};
	return 1;
}

bool sp_path_is_anon(const char *path)
{
	static const char *const prefixes[] = {"//anon",    "[anon",          "[stack",
					       "/dev/zero", "/anon_hugepage", "/SYSV"};
	if (!*path || !strcmp(path, "[heap]"))
		return true;
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(path, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}
