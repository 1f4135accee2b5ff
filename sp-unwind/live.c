#define _GNU_SOURCE
#include "live.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static int64_t clock_ns(clockid_t id)
{
	struct timespec t = {0};
	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t un_boot_offset_ns(void)
{
	return clock_ns(CLOCK_BOOTTIME) - clock_ns(CLOCK_MONOTONIC);
}

/* Field 22 of /proc/PID/stat, in clock ticks since boot; fields are counted behind the last ')',
 * because the name may hold anything. */
static bool start_ticks(int32_t pid, uint64_t *ticks)
{
	char path[40];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	struct sp_buf b = {0};
	bool ok = false;
	if (sp_file_read(path, 4096, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		const char *p = b.failed ? NULL : strrchr((const char *)b.data, ')');
		for (int field = 2; p && field < 22; field++)
			p = strchr(p + 1, ' ');
		char *end;
		*ticks = p ? strtoull(p, &end, 10) : 0;
		ok = p && end != p;
	}
	sp_buf_deinit(&b);
	return ok;
}

bool un_is_alive(int32_t pid, uint64_t time_ns, int64_t boot_offset_ns)
{
	uint64_t ticks;
	long hz = sysconf(_SC_CLK_TCK);
	if (pid <= 0 || hz <= 0 || !start_ticks(pid, &ticks))
		return false;
	uint64_t start_ns = ticks * (UINT64_C(1000000000) / (uint64_t)hz);
	return start_ns <= time_ns + (uint64_t)boot_offset_ns;
}

/* How much the kernel mapped: the file, whose last part its section headers are, in whole pages
 * (Linux 6.1, arch/x86/entry/vdso/vdso2c.h and arch/arm64/kernel/vdso-wrap.S). */
static uint64_t own_vdso_bytes(const Elf64_Ehdr *h)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t end = h->e_shoff + (uint64_t)h->e_shnum * h->e_shentsize;
	return (end + page - 1) & ~(page - 1);
}

bool un_own_vdso(struct sp_elf *elf, uint64_t mapped_bytes, const struct sp_build_id *id)
{
	uintptr_t at = getauxval(AT_SYSINFO_EHDR);
	uint64_t bytes = at ? own_vdso_bytes((const void *)at) : 0; /* NOLINT: the kernel's */
	struct sp_elf e;
	if (!bytes || bytes != mapped_bytes ||
	    sp_elf_init(&e, (const void *)at, bytes, NULL) < 0) /* NOLINT: as above */
		return false;
	if (id->len && !sp_build_id_equal(id, &e.build_id)) {
		sp_elf_close(&e);
		return false;
	}
	*elf = e;
	return true;
}

bool un_boot_id(char out[40])
{
	struct sp_buf b = {0};
	bool ok = sp_file_read("/proc/sys/kernel/random/boot_id", 64, &b, NULL) >= 0 && b.len >= 36;
	if (ok) {
		memcpy(out, b.data, 36);
		out[36] = '\0';
	}
	sp_buf_deinit(&b);
	return ok;
}

bool un_is_host(const char *hostname, const char *release)
{
	struct utsname u;
	return hostname && release && uname(&u) == 0 && !strcmp(u.nodename, hostname) &&
	       !strcmp(u.release, release);
}

/* Whether a line of /proc/kallsyms ("ffffffff81000000 T _text") is that symbol's, and its address.
 * There are hundreds of thousands: only the one is parsed. */
static bool is_symbol(const char *line, const char *name, uint64_t *addr)
{
	const char *type = strchr(line, ' ');
	size_t len = strlen(name);
	if (!type || !type[1] || type[2] != ' ' || strncmp(type + 3, name, len) != 0 ||
	    !strchr("\t\n", type[3 + len]))
		return false;
	*addr = strtoull(line, NULL, 16);
	return true;
}

bool un_is_kernel(const char *symbol, uint64_t start, uint64_t bytes)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[512];
	uint64_t addr;
	bool same = false;
	while (f && fgets(line, sizeof line, f)) {
		if (is_symbol(line, symbol, &addr) && addr != start)
			break;
		if (is_symbol(line, "_etext", &addr)) {
			same = addr == start + bytes;
			break;
		}
	}
	if (f)
		fclose(f);
	return same;
}
