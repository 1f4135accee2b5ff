/* System.map: the kernel's symbols as they were linked, for recordings whose own kallsyms hid their
 * addresses or are not there. It says neither which build it is of nor where that was loaded, so it
 * is used only when
 *   - it bears the recorded release in its name,
 *   - the recording says where the kernel's code began, and the difference is one that KASLR makes,
 *   - and either the user chose it (--symfs, --debug-dir), or it is this host's and was there
 * before the recorded boot: a package of the same release that came later is another build. Modules
 * are not in it. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "sym/resolver_impl.h"

#define SYSMAP_MAX ((size_t)256 << 20)

/* Where the recorded kernel's code began, and the symbol that stands there. */
static uint64_t anchor(const struct sp_resolver *r, const char **symbol)
{
	for (uint32_t i = 0; i < res_n_modules(r); i++) {
		const struct sp_spool_module *m = res_module(r, i);
		const char *name = m->is_kernel && m->path ? strrchr(m->path, ']') : NULL;
		if (!name || (strcmp(name + 1, "_text") != 0 && strcmp(name + 1, "_stext") != 0))
			continue;
		*symbol = name + 1;
		return m->start ? m->start : m->file_offset;
	}
	return 0;
}

/* x86-64 loads the kernel in steps of 2 MiB (CONFIG_PHYSICAL_ALIGN), aarch64 of 64 KiB at least. */
static bool is_slide(const struct sp_resolver *r, uint64_t delta)
{
	const char *arch = res_info(r)->arch;
	uint64_t step = arch && !strcmp(arch, "x86_64") ? UINT64_C(2) << 20 : UINT64_C(64) << 10;
	return delta % step == 0;
}

/* When the recorded boot was, on the wall clock, or later (by what the machine slept). */
static int64_t boot_ns(const struct sp_resolver *r)
{
	const struct sp_spool_info *info = res_info(r);
	return info->wall_ns > info->clock_ns ? (int64_t)(info->wall_ns - info->clock_ns) : 0;
}

/* 1 when the file was used. */
static int try_map(struct sp_resolver *r, const char *path, bool chosen, struct sp_err *err)
{
	struct sp_map_file m;
	const char *symbol = NULL;
	if (sp_map_file_open(&m, path, NULL) < 0)
		return 0;
	uint64_t here = anchor(r, &symbol), there = 0;
	const char *text = (const char *)m.data, *why = NULL;
	if (!here)
		why = "the recording does not say where the kernel was loaded";
	else if (m.size > SYSMAP_MAX || !(there = sp_kallsyms_address(text, m.size, symbol)))
		why = "no symbol says where its code begins";
	else if (!is_slide(r, here - there))
		why = "it is of another build";
	else if (!chosen && !r->same_host)
		why = "it is of another host";
	else if (!chosen && (!boot_ns(r) || m.ctime_ns > boot_ns(r)))
		why = "it came after the recorded kernel was started";
	int rc = 0;
	if (why)
		snprintf(r->kernel_problem, sizeof r->kernel_problem, "%.120s is not used: %s",
			 path, why);
	else
		rc = sp_kallsyms_add_core(&r->kallsyms, text, m.size, here - there, err);
	sp_map_file_close(&m);
	return rc < 0 ? rc : why == NULL;
}

static int try_below(struct sp_resolver *r, const char *dir, bool chosen, struct sp_err *err)
{
	static const struct {
		const char *before, *after; /* the release */
	} forms[] = {
		{"/boot/System.map-", ""},
		{"/usr/lib/debug/boot/System.map-", ""},
		{"/lib/modules/", "/build/System.map"},
		{"/usr/lib/modules/", "/build/System.map"},
		{"/lib/modules/", "/System.map"},
		{"/usr/lib/modules/", "/System.map"},
		{"/System.map-", ""},
	};
	char path[4096];
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < sizeof forms / sizeof *forms; i++) {
		int n = snprintf(path, sizeof path, "%s%s%s%s", dir, forms[i].before,
				 res_info(r)->osrelease, forms[i].after);
		if (n > 0 && (size_t)n < sizeof path)
			rc = try_map(r, path, chosen, err);
	}
	return rc;
}

int res_sysmap_read(struct sp_resolver *r, struct sp_err *err)
{
	const char *release = res_info(r)->osrelease;
	if (!release || !*release || strchr(release, '/'))
		return 0;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < r->options.n_debug_dirs; i++)
		rc = try_below(r, r->options.debug_dirs[i], true, err);
	if (rc == 0 && r->options.symfs)
		rc = try_below(r, r->options.symfs, true, err);
	else if (rc == 0)
		rc = try_below(r, "", false, err);
	if (rc > 0)
		r->kernel_problem[0] = 0;
	return rc;
}
