/* A resolver over a list of modules, and frames that say no more than their address. */
#include <stdlib.h>
#include <string.h>

#include "sym/resolver_impl.h"

#define OWN_ID UINT32_C(0x80000000) /* frame numbers from here on are given here */

static const char *keep(struct sp_resolver *r, const char *s)
{
	return sp_strpool_add(&r->names, s ? s : "", s ? strlen(s) : 0);
}

/* Whether two modules map the same file. */
static bool is_same_file(const struct sp_spool_module *a, const struct sp_spool_module *b)
{
	if (a->is_kernel != b->is_kernel || strcmp(a->path, b->path) != 0)
		return false;
	if (a->build_id_len || b->build_id_len)
		return a->build_id_len == b->build_id_len &&
		       !memcmp(a->build_id, b->build_id, a->build_id_len);
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/* The number of a module's file: modules of one path are chained, each with the one before. */
static bool number_file(struct sp_resolver *r, struct sp_map64 *paths, uint32_t *before,
			uint32_t at)
{
	struct sp_spool_module *m = &r->list.modules[at];
	uint64_t key = (uintptr_t)m->path;
	uint32_t last = sp_map64_get(paths, key);
	before[at] = last;
	m->file = at;
	for (uint32_t i = last; i != SP_NOT_FOUND; i = before[i]) {
		if (!is_same_file(&r->list.modules[i], m))
			continue;
		m->file = r->list.modules[i].file;
		return true; /* the chain needs one of each */
	}
	return sp_map64_put(paths, key, at);
}

static int copy_module(struct sp_resolver *r, const struct sp_spool_module *from, uint32_t at,
		       struct sp_err *err)
{
	struct sp_spool_module *m = &r->list.modules[at];
	*m = *from;
	m->id = at;
	m->path = keep(r, from->path);
	m->build_id = NULL;
	if (from->build_id && from->build_id_len) {
		uint8_t *id = sp_arena_take(&r->memory, from->build_id_len, 1);
		if (!id)
			return sp_err_nomem(err);
		memcpy(id, from->build_id, from->build_id_len);
		m->build_id = id;
	} else {
		m->build_id_len = 0;
	}
	r->list.ids[at] = from->id;
	if (sp_map64_get(&r->list.by_id, from->id) != SP_NOT_FOUND)
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot take module %u: it comes twice",
				  from->id);
	return m->path && sp_map64_put(&r->list.by_id, from->id, at) ? 0 : sp_err_nomem(err);
}

int res_list_init(struct sp_resolver *r, const struct sp_spool_module *modules, size_t n,
		  const struct sp_spool_info *info, struct sp_err *err)
{
	struct res_list *l = &r->list;
	if (n >= OWN_ID)
		return sp_err_set(err, SP_ERR_LIMIT, 0, "cannot take %zu modules", n);
	if (info)
		l->info = *info;
	const char **texts[] = {&l->info.hostname, &l->info.osrelease, &l->info.arch,
				&l->info.cmdline,  &l->info.boot_id,   &l->info.clock};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!(*texts[i] = keep(r, *texts[i])))
			return sp_err_nomem(err);
	l->modules = calloc(n + 1, sizeof *l->modules);
	l->ids = calloc(n + 1, sizeof *l->ids);
	uint32_t *before = calloc(n + 1, sizeof *before);
	struct sp_map64 paths = {0};
	int rc = l->modules && l->ids && before ? 0 : sp_err_nomem(err);
	for (uint32_t i = 0; rc >= 0 && i < n; i++) {
		rc = copy_module(r, &modules[i], i, err);
		if (rc >= 0 && !number_file(r, &paths, before, i))
			rc = sp_err_nomem(err);
	}
	l->n = n;
	sp_map64_deinit(&paths);
	free(before);
	return rc;
}

void res_list_deinit(struct sp_resolver *r)
{
	for (size_t i = 0; i < r->n_spaces; i++)
		sp_ranges_deinit(&r->spaces[i].ranges);
	free(r->spaces);
	sp_map64_deinit(&r->space_of);
	sp_map64_deinit(&r->site_ids);
	free(r->sites);
	free(r->list.modules);
	free(r->list.ids);
	sp_map64_deinit(&r->list.by_id);
}

void res_list_refresh(struct sp_resolver *r)
{
	for (size_t i = 0; i < r->n_spaces; i++)
		sp_ranges_deinit(&r->spaces[i].ranges);
	r->n_spaces = 0;
	sp_map64_clear(&r->space_of);
}

bool res_module_id(const struct sp_resolver *r, uint32_t *id)
{
	uint32_t at = r->spool ? *id : sp_map64_get(&r->list.by_id, *id);
	if (at >= res_n_modules(r))
		return false;
	*id = at;
	return true;
}

/* The modules of a process, collected when it is asked first. */
static const struct sp_ranges *space_of(struct sp_resolver *r, int32_t pid)
{
	uint32_t at = sp_map64_get(&r->space_of, (uint32_t)pid);
	if (at != SP_NOT_FOUND)
		return &r->spaces[at].ranges;
	struct res_space *s = SP_PUSH(&r->spaces, &r->n_spaces, &r->spaces_cap);
	if (!s)
		return NULL;
	s->pid = pid;
	bool ok = sp_map64_put(&r->space_of, (uint32_t)pid, (uint32_t)r->n_spaces - 1);
	for (uint32_t i = 0; ok && i < res_n_modules(r); i++) {
		const struct sp_spool_module *m = res_module(r, i);
		if (m->pid == pid && !m->is_kernel)
			ok = sp_ranges_add(&s->ranges, m->start, m->end, i);
	}
	return ok && sp_ranges_sort(&s->ranges) ? &s->ranges : NULL;
}

/* The number of a place: of an address of a file, of the kernel, or of no file. */
static uint32_t site_id(struct sp_resolver *r, uint64_t where, uint64_t at)
{
	uint64_t key = sp_mix64(where) ^ at;
	uint32_t first = sp_map64_get(&r->site_ids, key);
	for (uint32_t i = first; i != SP_NOT_FOUND; i = r->sites[i].next)
		if (r->sites[i].where == where && r->sites[i].at == at)
			return OWN_ID | i;
	struct res_site *s = SP_PUSH(&r->sites, &r->n_sites, &r->sites_cap);
	uint32_t id = (uint32_t)r->n_sites - 1;
	if (!s || r->n_sites >= OWN_ID || !sp_map64_put(&r->site_ids, key, id))
		return SP_NOT_FOUND;
	*s = (struct res_site){where, at, first};
	return OWN_ID | id;
}

int res_frame_fix(struct sp_resolver *r, int32_t pid, struct sp_spool_frame *f, struct sp_err *err)
{
	/* As the spool's reader gives them. */
	if (r->spool && f->frame_id != SP_NONE &&
	    (f->module == SP_NONE || f->module < res_n_modules(r)))
		return 0;
	uint64_t where = UINT64_MAX, at = f->abs_ip; /* the kernel */
	f->rel_ip = f->abs_ip;
	if (f->module != SP_NONE && !res_module_id(r, &f->module))
		return sp_err_set(err, SP_ERR_INVALID, 0, "there is no module %u", f->module);
	if (f->mode == SP_FRAME_USER) {
		const struct sp_ranges *space = NULL;
		if (f->module == SP_NONE && !(space = space_of(r, pid)))
			return sp_err_nomem(err);
		if (space) {
			struct sp_ranges_at i = sp_ranges_at(space, f->abs_ip);
			const struct sp_range *range = sp_ranges_next(&i);
			f->module = range ? range->id : SP_NONE;
		}
		where = 0;
		if (f->module != SP_NONE) {
			const struct sp_spool_module *m = res_module(r, f->module);
			f->rel_ip = f->abs_ip - m->start + m->file_offset;
			if (!res_is_code_memory(m)) {
				where = m->file + UINT64_C(1);
				at = f->rel_ip;
			}
		}
	} else if (f->mode == SP_FRAME_TRUNCATED) {
		where = UINT64_MAX - 1;
		at = 0;
	}
	f->frame_id = site_id(r, where, at);
	return f->frame_id == SP_NOT_FOUND ? sp_err_nomem(err) : 0;
}
