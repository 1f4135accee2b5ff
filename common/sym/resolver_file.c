/* From a module of a spool to the symbols of its file: embedded, else found by its identity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "elf/content_hash.h"
#include "elf/debugfile.h"
#include "elf/find.h"
#include "sym/resolver_impl.h"

#define OBJECT_FILE 1 /* stream.md: embedded object kinds */
#define VDSO_MAX (256u << 10)

static struct sp_build_id build_id(const uint8_t *bytes, uint8_t len)
{
	struct sp_build_id id = {0};
	if (bytes && len && len <= SP_BUILD_ID_MAX) {
		id.len = len;
		memcpy(id.bytes, bytes, len);
	}
	return id;
}

static const uint8_t *content_hash(const struct sp_resolver *r, const struct sp_spool_module *m)
{
	return r->spool && !m->build_id_len ? sp_spool_content_hash(r->spool, m->id) : NULL;
}

/* By build-id, else device and inode (and content: inodes are used again), else path, process and
 * range. */
static bool is_of_module(const struct sp_spool_object *o, const struct sp_spool_module *m,
			 const uint8_t *hash)
{
	if (o->kind != OBJECT_FILE || !o->data || !o->size)
		return false;
	if (o->build_id_len && m->build_id_len)
		return o->build_id_len == m->build_id_len &&
		       !memcmp(o->build_id, m->build_id, o->build_id_len);
	if (o->inode && m->inode)
		return o->inode == m->inode && o->dev_major == m->dev_major &&
		       o->dev_minor == m->dev_minor &&
		       (!hash || sp_content_is(o->data, o->size, hash));
	if (!o->path || !m->path || strcmp(o->path, m->path) != 0)
		return false;
	return (o->pid <= 0 || o->pid == m->pid) &&
	       (!o->end || (o->start < m->end && m->start < o->end));
}

struct sp_debug_dirs res_debug_dirs(const struct sp_resolver_options *o)
{
	return (struct sp_debug_dirs){o->debug_dirs, o->n_debug_dirs, o->fetch_debug, o->fetch_ctx};
}

static struct sp_symfile_options symfile_options(const struct sp_resolver *r)
{
	return (struct sp_symfile_options){
		.debug = res_debug_dirs(&r->options),
		.no_inline = r->options.no_inline,
		.no_demangle = r->options.no_demangle,
		.no_lines = r->options.no_lines,
		.cache = r->options.cache,
	};
}

static int open_embedded(struct sp_resolver *r, const struct sp_spool_module *m,
			 struct sp_symfile **out, struct sp_err *err)
{
	for (size_t i = 0; i < res_n_objects(r); i++) {
		const struct sp_spool_object *o = res_object(r, i);
		if (!is_of_module(o, m, content_hash(r, m)))
			continue;
		struct sp_symfile_options options = symfile_options(r);
		int rc = sp_symfile_open_image(out, o->data, o->size, m->path, &options, err);
		if (rc == SP_ERR_NOMEM || rc >= 0)
			return rc < 0 ? rc : 1;
	}
	return 0;
}

/* The vdso is the same in all processes of a boot (but for 32-bit ones). */
static int open_own_vdso(struct sp_resolver *r, const struct sp_spool_module *m,
			 struct sp_symfile **out, struct sp_err *err)
{
	const void *image = (const void *)getauxval(AT_SYSINFO_EHDR); /* NOLINT: an address */
	size_t size = (size_t)(m->end - m->start);
	struct sp_build_id want = build_id(m->build_id, m->build_id_len);
	if (strcmp(m->path, "[vdso]") != 0 || !image || !size || size > VDSO_MAX ||
	    (r->boot != BOOT_SAME && !want.len))
		return 0;
	struct sp_symfile_options options = symfile_options(r);
	/* Its sections lie within its pages; how many those are is not said anywhere. */
	size = size < 8192 ? size : 8192;
	int rc = sp_symfile_open_image(out, image, size, m->path, &options, err);
	if (rc < 0)
		return rc == SP_ERR_NOMEM ? rc : 0;
	if (want.len && !sp_build_id_equal(&want, &sp_symfile_elf(*out)->build_id)) {
		sp_symfile_close(*out);
		*out = NULL;
		return 0;
	}
	return 1;
}

/* Without a build-id or a hash of its content the inode alone would let a file pass that was
 * written over in place since: its times tell, that of the last change of the inode too, which
 * nobody can set back. Files that a path map chose are copies, with times and inodes of their own.
 * The reason, or NULL. */
static const char *why_rewritten(const struct sp_resolver *r, const struct sp_spool_module *m,
				 const struct sp_elf *elf)
{
	const struct sp_spool_info *info = res_info(r);
	if (m->build_id_len || content_hash(r, m) || !m->inode || elf->map.ino != m->inode ||
	    !info->wall_ns)
		return NULL;
	int64_t end = (int64_t)(info->wall_ns + (info->last_ns - info->clock_ns));
	if (elf->map.mtime_ns > end)
		return "was written after the recording: another build";
	if (elf->map.ctime_ns > end)
		return "has no build-id and was changed after the recording: nothing says that it "
		       "is the same build";
	return NULL;
}

/* What --debug-dir and its like hold under the module's build-id, for a file that is not there any
 * more. */
static int open_by_build_id(struct sp_resolver *r, struct res_file *f,
			    const struct sp_spool_module *m, struct sp_symfile **out,
			    struct sp_err *err)
{
	struct sp_debug_dirs dirs = res_debug_dirs(&r->options);
	struct sp_build_id id = build_id(m->build_id, m->build_id_len);
	struct sp_elf elf;
	int rc = sp_file_of_build_id(&elf, &id, false, &dirs, err);
	if (rc <= 0)
		return rc;
	f->problem[0] = 0;
	char path[4096];
	snprintf(path, sizeof path, "%s", elf.path ? elf.path : m->path);
	struct sp_symfile_options options = symfile_options(r);
	rc = sp_symfile_open_elf(out, &elf, path, &options, err);
	return rc < 0 ? rc : 1;
}

struct sp_find_options res_find_options(const struct sp_resolver *r)
{
	return (struct sp_find_options){.path_maps = r->options.path_maps,
					.n_path_maps = r->options.n_path_maps,
					.symfs = r->options.symfs,
					.debug_dirs = r->options.debug_dirs,
					.n_debug_dirs = r->options.n_debug_dirs,
					.archives = r->options.archives};
}

struct sp_file_query res_file_query(const struct sp_resolver *r, const struct sp_spool_module *m)
{
	return (struct sp_file_query){.path = m->path,
				      .maj = m->dev_major,
				      .min = m->dev_minor,
				      .ino = m->inode,
				      .build_id = build_id(m->build_id, m->build_id_len),
				      .content_hash = content_hash(r, m),
				      .live_pid = res_is_live(r, m->pid) ? m->pid : -1,
				      .start = m->start,
				      .end = m->end,
				      .foff = m->file_offset};
}

static int open_found(struct sp_resolver *r, struct res_file *f, const struct sp_spool_module *m,
		      struct sp_symfile **out, struct sp_err *err)
{
	struct sp_find_options fo = res_find_options(r);
	struct sp_file_query q = res_file_query(r, m);
	struct sp_elf elf;
	int rc = sp_find_elf(&elf, &fo, &q, f->problem, err);
	if (rc < 0)
		return rc;
	if (rc != SP_FOUND && rc != SP_FOUND_BY_PATH)
		return open_by_build_id(r, f, m, out, err);
	const char *why = why_rewritten(r, m, &elf);
	if (why) {
		snprintf(f->problem, sizeof f->problem, "%.100s %s", m->path, why);
		sp_elf_close(&elf);
		return 0;
	}
	f->image_foff = sp_elf_image_foff(&elf);
	/* Debug files lie where the file lies, which is not /proc/PID/map_files. */
	bool by_proc = elf.path && !strncmp(elf.path, "/proc/", 6);
	char path[4096];
	snprintf(path, sizeof path, "%s", elf.path && !by_proc ? elf.path : m->path);
	struct sp_symfile_options options = symfile_options(r);
	rc = sp_symfile_open_elf(out, &elf, path, &options, err);
	return rc < 0 ? rc : 1;
}

static int open_symbols(struct sp_resolver *r, struct res_file *f, struct sp_err *err)
{
	const struct sp_spool_module *m = res_module(r, f->module);
	struct sp_symfile *embedded = NULL, *found = NULL;
	if (!m->path || !*m->path) {
		snprintf(f->problem, sizeof f->problem, "the recording has no path");
		return 0;
	}
	int rc = open_embedded(r, m, &embedded, err);
	if (rc == 0)
		rc = open_own_vdso(r, m, &embedded, err);
	if (rc < 0)
		return rc;
	/* What is embedded may be symbols only: the identified file tells more. */
	bool is_special = m->path[0] == '[';
	bool is_vdso = !strcmp(m->path, "[vdso]") && m->build_id_len && !embedded;
	if (is_vdso || (!is_special && (!embedded || !sp_symfile_has_dwarf(embedded)))) {
		rc = open_found(r, f, m, &found, err);
		if (rc < 0) {
			sp_symfile_close(embedded);
			return rc;
		}
	}
	bool use_found = found && (!embedded || sp_symfile_has_dwarf(found));
	f->symfile = use_found ? found : embedded;
	sp_symfile_close(use_found ? embedded : found);
	if (!use_found)
		f->image_foff = 0;
	if (!f->symfile && !f->problem[0])
		snprintf(f->problem, sizeof f->problem, "file not found");
	return 0;
}

int res_file_open(struct sp_resolver *r, struct res_file *f, struct sp_err *err)
{
	if (f->tried)
		return 0;
	f->tried = true;
	struct sp_err why;
	int rc = open_symbols(r, f, &why);
	if (rc >= 0)
		return 0;
	if (rc == SP_ERR_NOMEM)
		return sp_err_nomem(err);
	snprintf(f->problem, sizeof f->problem, "%.199s", why.msg);
	return 0;
}

/* A debug file of its own has the program's segments without their bytes, and so without their
 * offsets: the only executable one is what was mapped, if it is as large. */
static bool svma_without_bytes(const struct sp_elf *e, const struct sp_spool_module *m,
			       uint64_t foff, uint64_t *svma)
{
	const struct sp_segment *code = NULL;
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type != PT_LOAD || !(s->flags & PF_X))
			continue;
		if (code)
			return false;
		code = s;
	}
	if (!code || code->memsz > UINT64_MAX / 2 || foff < m->file_offset)
		return false;
	uint64_t first = code->svma & ~(uint64_t)4095;
	uint64_t pages = (code->svma + code->memsz + 4095 - first) & ~(uint64_t)4095;
	*svma = first + (foff - m->file_offset);
	return pages == m->end - m->start;
}

static bool svma_of(const struct sp_resolver *r, const struct res_file *f, const struct res_ask *a,
		    uint64_t *svma)
{
	if (a->frame.rel_ip < f->image_foff)
		return false;
	uint64_t foff = a->frame.rel_ip - f->image_foff;
	const struct sp_elf *elf = sp_symfile_elf(f->symfile);
	return sp_elf_foff_to_svma(elf, foff, svma) ||
	       svma_without_bytes(elf, res_module(r, a->frame.module), foff, svma);
}

int res_file_expect(struct sp_resolver *r, struct res_file *f, struct res_ask *const *asks,
		    size_t n, struct sp_err *err)
{
	int rc = res_file_open(r, f, err);
	if (rc < 0 || !f->symfile)
		return rc;
	uint64_t *svmas = malloc(n * sizeof *svmas);
	if (!svmas)
		return sp_err_nomem(err);
	size_t n_svmas = 0;
	for (size_t i = 0; i < n; i++)
		n_svmas += !asks[i]->is_done && svma_of(r, f, asks[i], &svmas[n_svmas]);
	rc = sp_symfile_expect(f->symfile, svmas, n_svmas, err);
	free(svmas);
	return rc;
}

int res_file_ask(struct sp_resolver *r, struct res_file *f, struct res_ask *a, struct sp_err *err)
{
	int rc = res_file_open(r, f, err);
	uint64_t svma, start;
	if (rc < 0 || !f->symfile || !svma_of(r, f, a, &svma))
		return rc;
	rc = sp_symfile_lookup(f->symfile, svma, &a->levels, &start, err);
	if (rc <= 0)
		return rc;
	a->n_levels = (uint32_t)rc;
	a->func_offset = svma - start;
	return 0;
}
