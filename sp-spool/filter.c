#include "filter.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli.h"
#include "base/table.h"

void spool_filter_cut(struct spool_filter *f, const char *text)
{
	sp_arg_moments("--cut", text, &f->from, &f->to);
}

static _Noreturn void no_memory(void)
{
	sp_die(&(struct sp_err){.msg = "out of memory"}, NULL);
}

static void add_id(int32_t **v, size_t *n, size_t *cap, const char *text)
{
	int32_t *p = SP_PUSH(v, n, cap);
	if (!p)
		no_memory();
	*p = (int32_t)sp_arg_u64("--only", text, 0, INT32_MAX);
}

void spool_filter_only(struct spool_filter *f, const char *text)
{
	const char *eq = strchr(text, '=');
	char *words = eq ? strdup(eq + 1) : NULL, *rest = words;
	if (eq && !words)
		no_memory();
	size_t len = eq ? (size_t)(eq - text) : 0;
	const char *word;
	while ((word = strsep(&rest, ","))) {
		if (!*word) {
			sp_usage_error("--only: '%s' has an empty word", text);
		} else if (len == 3 && !strncmp(text, "pid", 3)) {
			add_id(&f->pid, &f->n_pid, &f->cap_pid, word);
		} else if (len == 3 && !strncmp(text, "tid", 3)) {
			add_id(&f->tid, &f->n_tid, &f->cap_tid, word);
		} else if (len == 4 && !strncmp(text, "comm", 4)) {
			char **p = SP_PUSH(&f->comm, &f->n_comm, &f->cap_comm);
			if (!p || !(*p = strdup(word)))
				no_memory();
		} else {
			eq = NULL;
			break;
		}
	}
	free(words);
	if (!eq)
		sp_usage_error("--only: '%s' is not pid=N,…, tid=N,… or comm=NAME,…", text);
}

void spool_filter_deinit(struct spool_filter *f)
{
	for (size_t i = 0; i < f->n_comm; i++)
		free(f->comm[i]);
	free(f->comm);
	free(f->pid);
	free(f->tid);
	*f = (struct spool_filter){0};
}

bool spool_filter_has_range(const struct spool_filter *f)
{
	return f->from.kind != SP_MOMENT_OPEN || f->to.kind != SP_MOMENT_OPEN;
}

bool spool_filter_active(const struct spool_filter *f)
{
	return spool_filter_has_range(f) || f->n_pid || f->n_tid || f->n_comm;
}

void spool_filter_begin(struct spool_filter *f, const struct sp_spool_info *info, uint64_t first_ns)
{
	struct sp_clock clock = {.first_ns = first_ns,
				 .start_ns = info->start_timestamp_us * 1000,
				 .wall_ns = info->wall_ns,
				 .clock_ns = info->clock_ns};
	f->from_ns = sp_moment_ns(&f->from, &clock);
	f->to_ns = f->to.kind == SP_MOMENT_OPEN ? UINT64_MAX : sp_moment_ns(&f->to, &clock);
	f->begun = true;
}

static bool has_id(const int32_t *v, size_t n, int32_t id)
{
	for (size_t i = 0; i < n; i++)
		if (v[i] == id)
			return true;
	return n == 0;
}

bool spool_filter_wants(const struct spool_filter *f, uint64_t time_ns, int32_t pid, int32_t tid,
			const char *comm)
{
	if (spool_filter_has_range(f) &&
	    (!time_ns || time_ns < f->from_ns || time_ns >= f->to_ns))
		return false;
	if (!has_id(f->pid, f->n_pid, pid) || !has_id(f->tid, f->n_tid, tid))
		return false;
	for (size_t i = 0; i < f->n_comm; i++)
		if (fnmatch(f->comm[i], comm, 0) == 0)
			return true;
	return f->n_comm == 0;
}

bool spool_filter_wants_time(const struct spool_filter *f, uint64_t from_ns, uint64_t to_ns)
{
	if (!spool_filter_has_range(f))
		return true;
	if (!f->begun)
		return f->from.kind == SP_MOMENT_OPEN;
	return to_ns >= f->from_ns && from_ns < f->to_ns;
}

bool spool_filter_wants_pid(const struct spool_filter *f, int32_t pid)
{
	return pid <= 0 || has_id(f->pid, f->n_pid, pid);
}

struct sp_counters spool_filter_counters(const struct sp_counters *all)
{
	static const enum sp_counter kept[] = {SP_C_kernel_enabled, SP_C_minimum_ring_buffer_bytes,
					       SP_C_maximum_ring_buffer_bytes};
	struct sp_counters c = {0};
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		if (sp_counter_known(all, kept[i]))
			sp_count(&c, kept[i], all->v[kept[i]]);
	return c;
}
