#include "unnamed.h"

#include <stdlib.h>

/* Equal files of different processes are one. */
static uint64_t key_of(const struct sp_spool_module *m, const struct view_frame *f)
{
	if (f->f.mode == SP_FRAME_KERNEL)
		return UINT64_C(1) << 40;
	return m ? m->file : UINT64_C(1) << 41;
}

static uint32_t add_module(struct unnamed *u, struct sp_map64 *ids, const struct view *v,
			   const struct view_frame *f)
{
	const struct sp_spool_module *m = view_module(v, &f->f);
	bool kernel = f->f.mode == SP_FRAME_KERNEL;
	uint64_t key = key_of(m, f);
	uint32_t id = sp_map64_get(ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct unnamed_module *slot = SP_PUSH(&u->v, &u->n, &u->cap);
	id = (uint32_t)u->n - 1;
	if (!slot || !sp_map64_put(ids, key, id))
		return SP_NOT_FOUND;
	*slot = (struct unnamed_module){.path = kernel ? "[kernel]"
						: m    ? m->path
						       : "(in no module)",
					.module = m ? m->id : SP_NONE,
					.is_anon = m && m->is_anon,
					.is_kernel = kernel};
	return id;
}

static int by_share(const void *a, const void *b)
{
	const struct unnamed_module *x = a, *y = b;
	if (x->samples != y->samples)
		return x->samples > y->samples ? -1 : 1;
	if (x->leaf != y->leaf)
		return x->leaf > y->leaf ? -1 : 1;
	int d = strcmp(x->path, y->path);
	return d ? d : (x->module > y->module) - (x->module < y->module);
}

static void count_row(struct unnamed *u, const struct view *v, const struct view_row *row,
		      const uint32_t *module_of, size_t *seen, size_t stamp)
{
	const struct view_stack *s = &v->stacks[row->stack];
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t id = v->stack_frames[s->at + i], m = module_of[id];
		if (v->frames[id].f.mode == SP_FRAME_TRUNCATED)
			continue;
		u->frames += row->n;
		if (m == SP_NONE) {
			u->named += row->n;
			continue;
		}
		if (seen[m] != stamp)
			u->v[m].samples += row->n;
		seen[m] = stamp;
		u->v[m].leaf += i == 0 ? row->n : 0;
	}
}

int unnamed_init(struct unnamed *u, const struct view *v, struct sp_err *err)
{
	struct sp_map64 ids = {0};
	*u = (struct unnamed){0};
	uint32_t *module_of = malloc((v->n_frames + 1) * sizeof *module_of);
	size_t *seen = NULL;
	bool ok = module_of != NULL;
	for (size_t i = 0; ok && i < v->n_frames; i++) {
		const struct view_frame *f = &v->frames[i];
		bool no_name = f->f.mode != SP_FRAME_TRUNCATED && f->origin == SP_ORIGIN_ADDRESS;
		module_of[i] = no_name ? add_module(u, &ids, v, f) : SP_NONE;
		ok = !no_name || module_of[i] != SP_NOT_FOUND;
	}
	seen = calloc(u->n + 1, sizeof *seen);
	ok = ok && seen;
	for (size_t i = 0; ok && i < v->n_rows; i++)
		if (v->rows[i].n)
			count_row(u, v, &v->rows[i], module_of, seen, i + 1);
	if (ok && u->n)
		qsort(u->v, u->n, sizeof *u->v, by_share);
	sp_map64_deinit(&ids);
	free(module_of);
	free(seen);
	if (ok)
		return 0;
	unnamed_deinit(u);
	return sp_err_nomem(err);
}

void unnamed_deinit(struct unnamed *u)
{
	free(u->v);
	*u = (struct unnamed){0};
}

double unnamed_named_percent(const struct unnamed *u)
{
	return u->frames ? 100.0 * (double)u->named / (double)u->frames : 100;
}

const char *unnamed_cause(const struct view *v, const struct unnamed_module *m)
{
	const char *problem =
		m->module == SP_NONE ? NULL : sp_resolver_module_problem(v->resolver, m->module);
	if (problem)
		return problem;
	if (m->is_kernel)
		return "no kernel symbols were recorded, or they are of another kernel";
	if (m->is_anon)
		return "code made at run time, without a perf map";
	return m->module == SP_NONE ? "no mapping holds these addresses"
				    : "stripped: no symbol covers these addresses";
}

const char *unnamed_cure(const struct view *v, const struct unnamed_module *m)
{
	const char *cause = unnamed_cause(v, m);
	if (m->is_kernel)
		return "record with sp-capture -k as root, or with kernel.kptr_restrict=0";
	if (m->is_anon)
		return "run the program with a perf map (python -X perf, node --perf-basic-prof, "
		       "java "
		       "-XX:+DumpPerfMapAtExit), or try --perf-maps=any";
	if (m->module == SP_NONE)
		return "unwinding may have gone astray here: see the stops in the counters above";
	if (strstr(cause, "not found") || strstr(cause, "No such file"))
		return "say where it is: --path-map OLD=NEW, --symfs DIR; or record with "
		       "--embed=all";
	if (strstr(cause, "differ") || strstr(cause, "another") || strstr(cause, "was changed") ||
	    strstr(cause, "mismatch"))
		return "it was replaced since: give the old one with --debug-dir, or set "
		       "DEBUGINFOD_URLS";
	if (strstr(cause, "ermission") || strstr(cause, "denied"))
		return "run sp-sym as a user who may read it, or record with --embed=all";
	return "install its debug symbols (Debian: find-dbgsym-packages), give --debug-dir DIR, or "
	       "set "
	       "DEBUGINFOD_URLS";
}
