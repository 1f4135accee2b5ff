/* Perf maps and jitdumps of a process: which may be read, and where they are. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "sym/resolver_impl.h"

#define OBJECT_PERF_MAP 2 /* stream.md: embedded object kinds */
#define OBJECT_JITDUMP 3
#define MAP_MAX ((size_t)64 << 20)
#define DUMP_MAX ((size_t)512 << 20)
#define MARK_PYTHON 1 /* kinds of struct sp_spool_exec */
#define MARK_PERF_MAP 2
#define MARK_JITDUMP 3
#define SLACK_NS 20000000 /* file times come from the kernel's coarse clock */

/* Field 22 of /proc/PID/stat: clock ticks since boot. 0 when there is no such process. */
static uint64_t start_ticks(int32_t pid)
{
	char path[64];
	struct sp_buf b = {0};
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	unsigned long long ticks = 0;
	if (pid > 0 && sp_file_read(path, 65536, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		/* The name, in parentheses, may hold anything. */
		const char *p = b.failed ? NULL : strrchr((const char *)b.data, ')');
		if (p && sscanf(p + 1,
				" %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d"
				" %*d %*d %*d %llu",
				&ticks) != 1)
			ticks = 0;
	}
	sp_buf_deinit(&b);
	return ticks;
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec t = {0};
	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* When the live process began, on a clock; INT64_MAX when there is none. */
static int64_t live_start_ns(int32_t pid, clockid_t clock)
{
	uint64_t ticks = start_ticks(pid);
	long hz = sysconf(_SC_CLK_TCK);
	if (!ticks || hz <= 0 || ticks > INT64_MAX / 1000000000)
		return INT64_MAX;
	int64_t since_boot = (int64_t)(ticks * UINT64_C(1000000000) / (uint64_t)hz);
	return since_boot + now_ns(clock) - now_ns(CLOCK_BOOTTIME);
}

bool res_is_live(const struct sp_resolver *r, int32_t pid)
{
	const struct sp_spool_info *info = res_info(r);
	if (r->boot != BOOT_SAME || pid <= 0)
		return false;
	int64_t start = live_start_ns(pid, CLOCK_MONOTONIC);
	/* A process that began after the last sample has the number of one that is gone. */
	return start != INT64_MAX && (!info->last_ns || start <= (int64_t)info->last_ns);
}

/* What a map in a shared folder must satisfy. */
struct rules {
	uid_t owners[4];
	size_t n_owners;
	int64_t not_before_ns; /* wall clock */
};

static void add_owner(struct rules *rules, uid_t uid)
{
	if (rules->n_owners < sizeof rules->owners / sizeof *rules->owners)
		rules->owners[rules->n_owners++] = uid;
}

static void make_rules(const struct sp_resolver *r, int32_t pid, bool live, struct rules *rules)
{
	*rules = (struct rules){.not_before_ns = INT64_MIN};
	add_owner(rules, geteuid());
	add_owner(rules, 0);
	const char *sudo = getenv("SUDO_UID");
	char *end;
	unsigned long uid = sudo && geteuid() == 0 ? strtoul(sudo, &end, 10) : 0;
	if (uid && !*end && uid < UINT32_MAX)
		add_owner(rules, (uid_t)uid);
	if (live) {
		char path[64];
		struct stat st;
		snprintf(path, sizeof path, "/proc/%d", pid);
		if (stat(path, &st) == 0)
			add_owner(rules, st.st_uid);
		rules->not_before_ns = live_start_ns(pid, CLOCK_REALTIME);
	}
	const struct sp_spool_info *info = res_info(r);
	for (size_t i = 0; info->wall_ns && i < res_n_execs(r); i++) {
		const struct sp_spool_exec *x = res_exec(r, i);
		if (x->pid != pid || x->kind != 0)
			continue;
		int64_t wall = (int64_t)(info->wall_ns - info->clock_ns + x->time_ns);
		if (wall > rules->not_before_ns)
			rules->not_before_ns = wall;
	}
}

static bool is_allowed(int fd, const struct rules *rules)
{
	struct stat st;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	bool owned = false;
	for (size_t i = 0; i < rules->n_owners; i++)
		owned |= st.st_uid == rules->owners[i];
	if (!owned)
		return false;
	int64_t mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	return rules->not_before_ns == INT64_MIN || rules->not_before_ns == INT64_MAX ||
	       mtime >= rules->not_before_ns - SLACK_NS;
}

/* 1 when the file is there, may be used and was added. */
static int try_file(struct sp_jitmap *m, const char *path, const struct rules *rules, bool dump,
		    struct sp_err *err)
{
	int fd = sp_file_open(path, SP_OPEN_NOFOLLOW, NULL);
	if (fd < 0)
		return 0;
	struct sp_buf b = {0};
	int rc = 0;
	if (is_allowed(fd, rules) &&
	    sp_fd_read_all(fd, dump ? DUMP_MAX : MAP_MAX, &b, path, NULL) >= 0) {
		rc = dump ? sp_jitmap_add_jitdump(m, b.data, b.len, err)
			  : sp_jitmap_add_perf_map(m, b.data, b.len, err);
		rc = rc == SP_ERR_NOMEM ? rc : rc >= 0;
	}
	sp_buf_deinit(&b);
	close(fd);
	return rc;
}

/* The pid as the process's own namespace has it: its map is named after that. */
static int32_t inner_pid(int32_t pid)
{
	char path[64];
	struct sp_buf b = {0};
	int inner = pid;
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (sp_file_read(path, 65536, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		const char *line = b.failed ? NULL : strstr((const char *)b.data, "\nNSpid:");
		for (const char *p = line ? line + 7 : ""; *p && *p != '\n';) {
			char *end;
			long v = strtol(p, &end, 10);
			if (end == p)
				break;
			inner = (int)v;
			p = end;
		}
	}
	sp_buf_deinit(&b);
	return inner;
}

/* Whether the recording's files may be this machine's: of another boot /tmp knows nothing. */
static bool is_here(const struct sp_resolver *r)
{
	return r->boot == BOOT_SAME || (r->boot == BOOT_UNKNOWN && r->same_host);
}

static int add_perf_maps(struct sp_resolver *r, struct res_jit *j, struct sp_err *err)
{
	char path[4096];
	bool live = res_is_live(r, j->pid);
	struct rules rules;
	make_rules(r, j->pid, live, &rules);
	int rc = 0;
	if (r->options.perf_map_dir) {
		snprintf(path, sizeof path, "%s/perf-%d.map", r->options.perf_map_dir, j->pid);
		return try_file(&j->map, path, &rules, false, err);
	}
	if (live) {
		snprintf(path, sizeof path, "/proc/%d/root/tmp/perf-%d.map", j->pid,
			 inner_pid(j->pid));
		rc = try_file(&j->map, path, &rules, false, err);
	}
	if (rc == 0 && is_here(r)) {
		snprintf(path, sizeof path, "/tmp/perf-%d.map", j->pid);
		rc = try_file(&j->map, path, &rules, false, err);
	}
	if (rc == 0 && r->options.spool_dir) {
		snprintf(path, sizeof path, "%s/perf-%d.map", r->options.spool_dir, j->pid);
		rc = try_file(&j->map, path, &rules, false, err);
	}
	return rc;
}

/* Runtimes map their jitdump, so that the recording says where it is. */
static int add_jitdumps(struct sp_resolver *r, struct res_jit *j, struct sp_err *err)
{
	char base[64];
	snprintf(base, sizeof base, "jit-%d.dump", j->pid);
	struct rules rules;
	make_rules(r, j->pid, res_is_live(r, j->pid), &rules);
	int rc = 0;
	for (uint32_t i = 0; rc == 0 && i < res_n_modules(r); i++) {
		const struct sp_spool_module *m = res_module(r, i);
		size_t len;
		const char *name = m->path ? sp_path_to_name(m->path, &len) : "";
		if (m->pid == j->pid && !strcmp(name, base) && is_here(r))
			rc = try_file(&j->map, m->path, &rules, true, err);
	}
	return rc;
}

static int add_embedded(struct sp_resolver *r, struct res_jit *j, struct sp_err *err)
{
	int rc = 0;
	bool any = false;
	for (size_t i = 0; rc >= 0 && i < res_n_objects(r); i++) {
		const struct sp_spool_object *o = res_object(r, i);
		if (o->pid != j->pid || !o->data)
			continue;
		if (o->kind == OBJECT_PERF_MAP)
			rc = sp_jitmap_add_perf_map(&j->map, o->data, o->size, err);
		else if (o->kind == OBJECT_JITDUMP)
			rc = sp_jitmap_add_jitdump(&j->map, o->data, o->size, err);
		any |= j->map.n_entries > 0;
		rc = rc == SP_ERR_CORRUPT ? 0 : rc;
	}
	return rc < 0 ? rc : any;
}

static bool is_marked(const struct sp_resolver *r, int32_t pid)
{
	for (size_t i = 0; i < res_n_execs(r); i++) {
		const struct sp_spool_exec *x = res_exec(r, i);
		if (x->pid == pid && x->on &&
		    (x->kind == MARK_PYTHON || x->kind == MARK_PERF_MAP || x->kind == MARK_JITDUMP))
			return true;
	}
	return false;
}

/* Whether it is the process that was marked as a runtime last. */
static bool is_marked_last(const struct sp_resolver *r, int32_t pid)
{
	int32_t last = -1;
	uint64_t last_ns = 0;
	for (size_t i = 0; i < res_n_execs(r); i++) {
		const struct sp_spool_exec *x = res_exec(r, i);
		bool mark = x->on && (x->kind == MARK_PYTHON || x->kind == MARK_PERF_MAP ||
				      x->kind == MARK_JITDUMP);
		if (mark && x->time_ns >= last_ns) {
			last_ns = x->time_ns;
			last = x->pid;
		}
	}
	return last == pid;
}

/* What --perf-maps says of a process; a map that travels in the spool obeys it too. */
static bool is_wanted(const struct sp_resolver *r, int32_t pid)
{
	switch (r->options.perf_maps) {
	case SP_PERF_MAPS_NONE:
		return false;
	case SP_PERF_MAPS_LAST:
		return is_marked_last(r, pid);
	case SP_PERF_MAPS_LISTED:
		for (size_t i = 0; i < r->options.n_perf_map_pids; i++)
			if (r->options.perf_map_pids[i] == pid)
				return true;
		return false;
	case SP_PERF_MAPS_MARKED:
	case SP_PERF_MAPS_ANY:
	default: /* a list has no marks */
		return true;
	}
}

static int open_jit(struct sp_resolver *r, struct res_jit *j, struct sp_err *err)
{
	if (!is_wanted(r, j->pid))
		return 0;
	int rc = add_embedded(r, j, err);
	/* A recording of another tool, which does not say its boot, has no marks either. */
	bool allowed = r->options.perf_maps != SP_PERF_MAPS_MARKED || r->options.perf_map_dir ||
		       !r->spool || is_marked(r, j->pid) || r->boot == BOOT_UNKNOWN;
	if (rc == 0 && allowed)
		rc = add_jitdumps(r, j, err);
	if (rc >= 0 && !j->map.n_entries && allowed)
		rc = add_perf_maps(r, j, err);
	/* Where the samples' clock is not said, or that of several boots, it may be any. */
	if (!res_info(r)->clock_ns || (r->spool && sp_spool_n_origins(r->spool) > 1))
		sp_jitmap_forget_times(&j->map);
	return rc < 0 ? rc : sp_jitmap_sort(&j->map, err);
}

static struct res_jit *jit_of(struct sp_resolver *r, int32_t pid, struct sp_err *err)
{
	uint32_t at = sp_map64_get(&r->jit_of, (uint32_t)pid);
	if (at != SP_NOT_FOUND)
		return r->jits[at];
	struct res_jit *j = calloc(1, sizeof *j);
	struct res_jit **slot = j ? SP_PUSH(&r->jits, &r->n_jits, &r->jits_cap) : NULL;
	if (!slot || !sp_map64_put(&r->jit_of, (uint32_t)pid, (uint32_t)r->n_jits - 1)) {
		r->n_jits -= slot != NULL;
		free(j);
		sp_err_nomem(err);
		return NULL;
	}
	j->pid = pid;
	*slot = j;
	return open_jit(r, j, err) < 0 ? NULL : j;
}

int res_jit_find(struct sp_resolver *r, int32_t pid, uint64_t avma, uint64_t time_ns,
		 struct sp_jit_found *out, struct sp_err *err)
{
	const struct res_jit *j = jit_of(r, pid, err);
	return j ? sp_jitmap_find(&j->map, avma, time_ns, out) : SP_ERR_NOMEM;
}

/* Most recordings have no jitdump: they are asked for once, all processes together. */
static void find_dumps(struct sp_resolver *r)
{
	r->dumped_known = true;
	for (size_t i = 0; i < res_n_objects(r); i++) {
		const struct sp_spool_object *o = res_object(r, i);
		if (o->kind == OBJECT_JITDUMP)
			sp_map64_put(&r->dumped, (uint32_t)o->pid, 1);
	}
	for (uint32_t i = 0; i < res_n_modules(r); i++) {
		const struct sp_spool_module *m = res_module(r, i);
		size_t len = 0;
		const char *name = m->path ? sp_path_to_name(m->path, &len) : "";
		if (len > 9 && !memcmp(name, "jit-", 4) && !memcmp(name + len - 5, ".dump", 5))
			sp_map64_put(&r->dumped, (uint32_t)m->pid, 1);
	}
}

bool res_jit_has_times(struct sp_resolver *r, int32_t pid)
{
	if (!r->dumped_known)
		find_dumps(r);
	if (sp_map64_get(&r->dumped, (uint32_t)pid) == SP_NOT_FOUND)
		return false;
	const struct res_jit *j = jit_of(r, pid, NULL);
	return j && j->map.n_changes;
}

bool sp_resolver_has_epochs(struct sp_resolver *r, int32_t pid)
{
	return res_jit_has_times(r, pid);
}

uint32_t sp_resolver_epoch(struct sp_resolver *r, int32_t pid, uint64_t time_ns)
{
	if (!res_jit_has_times(r, pid))
		return 0;
	return sp_jitmap_epoch(&jit_of(r, pid, NULL)->map, time_ns);
}

bool sp_resolver_variant(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
			 uint64_t time_ns, uint32_t *out)
{
	struct sp_jit_found found = {.entry = SP_NONE};
	struct res_jit *j = res_jit_has_times(r, pid) ? jit_of(r, pid, NULL) : NULL;
	if (!j)
		return false;
	sp_jitmap_find(&j->map, f->abs_ip, time_ns, &found);
	uint64_t which = (uint64_t)f->frame_id << 32 | found.entry;
	uint32_t n = sp_map64_get(&j->variants, which);
	if (n == SP_NOT_FOUND) {
		n = r->n_variants;
		if (!sp_map64_put(&j->variants, which, n))
			return false;
		r->n_variants++;
	}
	*out = n;
	return true;
}

void res_jit_refresh(struct sp_resolver *r)
{
	for (size_t i = 0; i < r->n_jits; i++) {
		sp_jitmap_deinit(&r->jits[i]->map);
		sp_map64_deinit(&r->jits[i]->variants);
		free(r->jits[i]);
	}
	r->n_jits = 0;
	sp_map64_clear(&r->jit_of);
	sp_map64_clear(&r->dumped);
	r->dumped_known = false;
}
