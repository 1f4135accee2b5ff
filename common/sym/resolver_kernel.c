/* Kernel symbols: those that travel with the spool, else the running kernel's when it is the one
 * that was recorded, else those that perf kept of that build, else System.map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "sym/cachedir.h"
#include "elf/archive.h"
#include "sym/resolver_impl.h"

#define OBJECT_KALLSYMS 4 /* stream.md: embedded object kinds */
#define KALLSYMS_MAX ((size_t)256 << 20)

/* A recording that does not say its boot: the kernel's release and where its code begins must be
 * this one's. Where both agree, so do the symbols. */
static bool is_this_kernel(const struct sp_resolver *r, const char *text, size_t size)
{
	struct utsname u;
	const char *release = res_info(r)->osrelease;
	if (r->boot != BOOT_UNKNOWN)
		return r->boot == BOOT_SAME;
	if (!r->spool) /* a list of unsaid origin is of this machine, as its perf maps are */
		return true;
	if (!release || uname(&u) < 0 || strcmp(release, u.release) != 0)
		return false;
	for (uint32_t i = 0; i < res_n_modules(r); i++) {
		const struct sp_spool_module *m = res_module(r, i);
		if (m->is_kernel && m->start &&
		    (m->start == sp_kallsyms_address(text, size, "_text") ||
		     m->start == sp_kallsyms_address(text, size, "_stext")))
			return true;
	}
	return false;
}

/* "kallsyms-BOOT", or nothing when the boot has no name. */
static void copy_name(char name[64])
{
	struct sp_buf id = {0};
	name[0] = 0;
	if (sp_file_read("/proc/sys/kernel/random/boot_id", 256, &id, NULL) >= 0 && id.len > 8)
		snprintf(name, 64, "kallsyms-%.*s", (int)(id.len < 37 ? id.len - 1 : 36),
			 (const char *)id.data);
	sp_buf_deinit(&id);
}

/* A copy that an earlier run made in this boot: good for the core's code, which does not move,
 * not for modules. 1 when all that is needed is in it. */
static int read_copy(struct sp_resolver *r, const char *name, struct sp_err *err)
{
	struct sp_map_file m;
	if (!name[0] || !sp_cachedir_map(r->options.cache, name, &m))
		return 0;
	const char *text = (const char *)m.data;
	uint64_t first = sp_kallsyms_address(text, m.size, "_text");
	int rc = 0;
	if (first && is_this_kernel(r, text, m.size))
		rc = sp_kallsyms_add_sorted(&r->kallsyms, text, m.size, first, err);
	sp_map_file_close(&m);
	return rc;
}

static int read_own(struct sp_resolver *r, struct sp_err *err)
{
	struct sp_buf text = {0};
	struct sp_err why;
	char name[64];
	copy_name(name);
	int rc = read_copy(r, name, err);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = sp_file_read("/proc/kallsyms", KALLSYMS_MAX, &text, &why);
	if (rc < 0)
		snprintf(r->kernel_problem, sizeof r->kernel_problem, "%.199s", why.msg);
	else if (!is_this_kernel(r, (const char *)text.data, text.len))
		snprintf(r->kernel_problem, sizeof r->kernel_problem,
			 "no kernel symbols were recorded, and this is not the same kernel");
	else
		rc = sp_kallsyms_add(&r->kallsyms, (const char *)text.data, text.len, err);
	/* Hidden addresses are not worth keeping. */
	if (rc >= 0 && name[0] && sp_kallsyms_address((const char *)text.data, text.len, "_text"))
		sp_cachedir_write(r->options.cache, name, text.data, text.len);
	sp_buf_deinit(&text);
	return rc == SP_ERR_NOMEM ? rc : 0;
}

/* perf record keeps the kernel's symbols beside the files of a recording, and perf archive packs
 * them: DIR/.build-id/xx/yyyy/kallsyms. They are of some boot; the mapping says where the code
 * began in the recorded one. */
static int read_cached_text(struct sp_resolver *r, const struct sp_spool_module *m,
			    const char *text, size_t size, bool exact, struct sp_err *err)
{
	const char *name = strrchr(m->path, ']');
	uint64_t there = name && name[1] && size <= KALLSYMS_MAX
				 ? sp_kallsyms_address(text, size, name + 1)
				 : 0;
	uint64_t here = m->start ? m->start : m->file_offset;
	int rc = 0;
	/* The same build where it was: then it names the core's code as /proc/kallsyms would, which
	 * the kernel takes 40 ms to print. */
	if (there && there == here && exact)
		rc = sp_kallsyms_add_sorted(&r->kallsyms, text, size, here, err);
	else if (there && here && !exact)
		rc = sp_kallsyms_add_core(&r->kallsyms, text, size, here - there, err);
	return rc < 0 ? rc : 0;
}

static int read_cached_in(struct sp_resolver *r, const struct sp_spool_module *m, const char *dir,
			  bool exact, struct sp_err *err)
{
	struct sp_build_id id = {.len = m->build_id_len};
	char hex[2 * SP_BUILD_ID_MAX + 1], path[4096];
	if (id.len < 2 || id.len > SP_BUILD_ID_MAX)
		return 0;
	memcpy(id.bytes, m->build_id, id.len);
	sp_build_id_hex(&id, hex);
	int n = snprintf(path, sizeof path, "%s/.build-id/%.2s/%s/kallsyms", dir, hex, hex + 2);
	struct sp_map_file text;
	if (n <= 0 || (size_t)n >= sizeof path || sp_map_file_open(&text, path, NULL) < 0)
		return 0;
	int rc = read_cached_text(r, m, (const char *)text.data, text.size, exact, err);
	sp_map_file_close(&text);
	return rc;
}

/* The tarballs of perf archive: asked last, since they have to be unpacked. */
static int read_archived(struct sp_resolver *r, const struct sp_spool_module *m,
			 struct sp_err *err)
{
	struct sp_build_id id = {.len = m->build_id_len};
	const uint8_t *data;
	size_t size;
	if (!id.len || id.len > SP_BUILD_ID_MAX)
		return 0;
	memcpy(id.bytes, m->build_id, id.len);
	int rc = sp_archives_find(r->options.archives, &id, "kallsyms", &data, &size,
				  r->kernel_problem, err);
	return rc > 0 ? read_cached_text(r, m, (const char *)data, size, false, err) : rc;
}

static int read_cached(struct sp_resolver *r, bool exact, struct sp_err *err)
{
	char cache[4096];
	const char *home = getenv("HOME");
	int rc = 0, n = snprintf(cache, sizeof cache, "%s/.debug", home ? home : "");
	bool has_cache = home && home[0] == '/' && n > 0 && (size_t)n < sizeof cache;
	size_t n_dirs = r->options.n_debug_dirs;
	for (uint32_t i = 0; i < res_n_modules(r); i++) {
		const struct sp_spool_module *m = res_module(r, i);
		for (size_t k = 0; m->is_kernel && rc >= 0 && k < n_dirs + has_cache; k++)
			if (!r->kallsyms.n_symbols)
				rc = read_cached_in(r, m,
						    k < n_dirs ? r->options.debug_dirs[k] : cache,
						    exact, err);
		if (m->is_kernel && rc >= 0 && !exact && !r->kallsyms.n_symbols)
			rc = read_archived(r, m, err);
	}
	return rc;
}

/* The running kernel's, or why not. */
static int read_running(struct sp_resolver *r, struct sp_err *err)
{
	if (r->boot == BOOT_OTHER) {
		snprintf(r->kernel_problem, sizeof r->kernel_problem,
			 "no kernel symbols were recorded, and this is another boot");
		return 0;
	}
	int rc = read_own(r, err);
	if (rc >= 0 && !r->kallsyms.n_symbols && !r->kernel_problem[0])
		snprintf(r->kernel_problem, sizeof r->kernel_problem,
			 "/proc/kallsyms hides its addresses (kernel.kptr_restrict)");
	return rc;
}

/* The addresses that are asked: those of the spool's frames. A list of modules has none yet. */
static int prepare(struct sp_resolver *r, struct sp_err *err)
{
	const uint64_t *from = NULL;
	size_t n = r->spool && !r->kallsyms_all ? sp_spool_kernel_frame_addresses(r->spool, &from)
						: 0;
	free(r->kernel_addresses);
	r->kernel_addresses = NULL;
	if (!r->spool || r->kallsyms_all) {
		sp_kallsyms_init_all(&r->kallsyms);
		return 0;
	}
	r->kernel_addresses = malloc((n + 1) * sizeof *r->kernel_addresses);
	if (!r->kernel_addresses)
		return sp_err_nomem(err);
	if (n)
		memcpy(r->kernel_addresses, from, n * sizeof *from);
	return sp_kallsyms_init(&r->kallsyms, r->kernel_addresses, n, err);
}

static int read_kernel(struct sp_resolver *r, struct sp_err *err)
{
	if (r->kallsyms_read)
		return 0;
	r->kallsyms_read = true;
	int rc = prepare(r, err);
	for (size_t i = 0; rc >= 0 && i < res_n_objects(r); i++) {
		const struct sp_spool_object *o = res_object(r, i);
		if (o->kind == OBJECT_KALLSYMS && o->data)
			rc = sp_kallsyms_add(&r->kallsyms, (const char *)o->data, o->size, err);
	}
	if (rc >= 0 && !r->kallsyms.n_symbols)
		rc = read_cached(r, true, err);
	if (rc >= 0 && !r->kallsyms.n_symbols)
		rc = read_running(r, err);
	if (rc >= 0 && !r->kallsyms.n_symbols) {
		rc = read_cached(r, false, err);
		if (r->kallsyms.n_symbols)
			r->kernel_problem[0] = 0;
	}
	if (rc >= 0 && !r->kallsyms.n_symbols)
		rc = res_sysmap_read(r, err);
	return rc < 0 ? rc : 0;
}

static void forget(struct sp_resolver *r)
{
	sp_kallsyms_deinit(&r->kallsyms);
	r->kallsyms_read = false;
	r->kernel_problem[0] = 0;
}

int res_kernel_find(struct sp_resolver *r, uint64_t avma, struct sp_kernel_symbol *out,
		    struct sp_err *err)
{
	int rc = read_kernel(r, err);
	/* An address of the caller's own, which the neighbours of the spool's say nothing about. */
	if (rc >= 0 && !r->kallsyms.all && !sp_kallsyms_needs(&r->kallsyms, avma)) {
		forget(r);
		r->kallsyms_all = true;
		rc = read_kernel(r, err);
	}
	return rc < 0 ? rc : sp_kallsyms_find(&r->kallsyms, avma, out);
}

void res_kernel_refresh(struct sp_resolver *r)
{
	const uint64_t *now = NULL;
	size_t n = r->spool ? sp_spool_kernel_frame_addresses(r->spool, &now) : 0;
	if (!r->kallsyms.n_symbols || (!r->kallsyms.all && n != r->kallsyms.n))
		forget(r);
}
