/* Kernel symbols: those that travel with the spool, else the running kernel's when it is the one
 * that was recorded. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "sym/resolver_impl.h"

#define OBJECT_KALLSYMS 4 /* stream.md: embedded object kinds */
#define KALLSYMS_MAX ((size_t)256 << 20)

/* Whether the text has a symbol of that name at that address. */
static bool has_symbol(const struct sp_buf *text, const char *name, uint64_t addr)
{
	char line[64];
	int n = snprintf(line, sizeof line, "%016" PRIx64 " T %s\n", addr, name);
	return n > 0 && memmem(text->data, text->len, line, (size_t)n);
}

/* A recording that does not say its boot: the kernel's release and where its code begins must be
 * this one's. Where both agree, so do the symbols. */
static bool is_this_kernel(const struct sp_resolver *r, const struct sp_buf *text)
{
	struct utsname u;
	const char *release = sp_spool_info(r->spool)->osrelease;
	if (r->boot != BOOT_UNKNOWN)
		return r->boot == BOOT_SAME;
	if (!release || uname(&u) < 0 || strcmp(release, u.release) != 0)
		return false;
	for (uint32_t i = 0; i < sp_spool_n_modules(r->spool); i++) {
		const struct sp_spool_module *m = sp_spool_module(r->spool, i);
		if (m->is_kernel && m->start &&
		    (has_symbol(text, "_text", m->start) || has_symbol(text, "_stext", m->start)))
			return true;
	}
	return false;
}

static int read_own(struct sp_resolver *r, struct sp_err *err)
{
	struct sp_buf text = {0};
	struct sp_err why;
	int rc = sp_file_read("/proc/kallsyms", KALLSYMS_MAX, &text, &why);
	if (rc < 0)
		snprintf(r->kernel_problem, sizeof r->kernel_problem, "%.199s", why.msg);
	else if (!is_this_kernel(r, &text))
		snprintf(r->kernel_problem, sizeof r->kernel_problem,
			 "no kernel symbols were recorded, and this is not the same kernel");
	else
		rc = sp_kallsyms_add(&r->kallsyms, (const char *)text.data, text.len, err);
	sp_buf_deinit(&text);
	return rc == SP_ERR_NOMEM ? rc : 0;
}

int res_kernel_read(struct sp_resolver *r, struct sp_err *err)
{
	if (r->kallsyms_read)
		return 0;
	r->kallsyms_read = true;
	const uint64_t *needed = NULL;
	size_t n = sp_spool_kernel_frame_addresses(r->spool, &needed);
	int rc = sp_kallsyms_init(&r->kallsyms, needed, n, err);
	for (size_t i = 0; rc >= 0 && i < sp_spool_n_objects(r->spool); i++) {
		const struct sp_spool_object *o = sp_spool_object(r->spool, i);
		if (o->kind == OBJECT_KALLSYMS && o->data)
			rc = sp_kallsyms_add(&r->kallsyms, (const char *)o->data, o->size, err);
	}
	if (rc < 0 || r->kallsyms.n_symbols)
		return rc < 0 ? rc : 0;
	if (r->boot == BOOT_OTHER) {
		snprintf(r->kernel_problem, sizeof r->kernel_problem,
			 "no kernel symbols were recorded, and this is another boot");
		return 0;
	}
	rc = read_own(r, err);
	if (rc >= 0 && !r->kallsyms.n_symbols && !r->kernel_problem[0])
		snprintf(r->kernel_problem, sizeof r->kernel_problem,
			 "/proc/kallsyms hides its addresses (kernel.kptr_restrict)");
	return rc;
}
