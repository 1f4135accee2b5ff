#define _GNU_SOURCE
#include "procs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "maps/procs.h"
#include "scope.h"

#define GONE (SP_NOT_FOUND - 1)
#define MAX_TRIED 1024u

static void proc_free(struct cap_proc *q)
{
	if (!q)
		return;
	free(q->ranges);
	free(q->tried);
	free(q);
}

void cap_procs_deinit(struct cap_procs *p)
{
	for (size_t i = 0; i < p->n; i++)
		proc_free(p->procs[i]);
	free(p->procs);
	free(p->free_slots);
	sp_map64_deinit(&p->by_pid);
	sp_intern_deinit(&p->paths);
	*p = (struct cap_procs){0};
}

struct cap_proc *cap_procs_find(struct cap_procs *p, int32_t pid)
{
	uint32_t at = sp_map64_get(&p->by_pid, (uint32_t)pid);
	return at < GONE ? p->procs[at] : NULL;
}

static bool slot_get(struct cap_procs *p, uint32_t *at)
{
	if (p->n_free) {
		*at = p->free_slots[--p->n_free];
		return true;
	}
	*at = (uint32_t)p->n;
	return SP_PUSH(&p->procs, &p->n, &p->cap) != NULL;
}

struct cap_proc *cap_procs_get(struct cap_procs *p, int32_t pid)
{
	struct cap_proc *q = cap_procs_find(p, pid);
	uint32_t at;
	if (q)
		return q;
	q = calloc(1, sizeof *q);
	if (!q || !slot_get(p, &at) || !sp_map64_put(&p->by_pid, (uint32_t)pid, at)) {
		free(q);
		return NULL;
	}
	q->pid = pid;
	q->n_threads = 1;
	p->procs[at] = q;
	p->n_alive++;
	return q;
}

void cap_procs_remove(struct cap_procs *p, int32_t pid)
{
	uint32_t at = sp_map64_get(&p->by_pid, (uint32_t)pid);
	if (at >= GONE)
		return;
	uint32_t *slot = SP_PUSH(&p->free_slots, &p->n_free, &p->cap_free);
	if (slot)
		*slot = at;
	proc_free(p->procs[at]);
	p->procs[at] = NULL;
	p->n_alive--;
	sp_map64_put(&p->by_pid, (uint32_t)pid, GONE); /* the key is there: cannot fail */
}

struct cap_proc *cap_procs_fork(struct cap_procs *p, int32_t pid, int32_t ppid)
{
	cap_procs_remove(p, pid);
	struct cap_proc *q = cap_procs_get(p, pid);
	struct cap_proc *parent = cap_procs_find(p, ppid);
	if (!q || !parent)
		return q;
	if (sp_grow(&q->ranges, &q->cap, parent->n, sizeof *q->ranges)) {
		if (parent->n)
			memcpy(q->ranges, parent->ranges, parent->n * sizeof *q->ranges);
		q->n = parent->n;
	}
	q->own = parent->own;
	q->exec_count = parent->exec_count;
	q->cgroup = parent->cgroup;
	if (parent->scope == CAP_KERNEL || parent->scope == CAP_OWN)
		q->scope = parent->scope;
	q->is_python = parent->is_python;
	q->python_probed = parent->python_probed;
	q->args_say_perf = parent->args_say_perf;
	return q;
}

void cap_proc_exec(struct cap_proc *q)
{
	q->n = q->last = q->n_tried = 0;
	q->own = (struct cap_range){0};
	q->n_threads = 1;
	q->exec_count++;
	q->is_python = q->python_probed = q->runs_jit = q->sampled = false;
	if (q->scope != CAP_OWN)
		q->scope = CAP_UNSORTED;
}

/* Index of the first range that ends after addr. */
static size_t lower(const struct cap_proc *q, uint64_t addr)
{
	size_t lo = 0, hi = q->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (q->ranges[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool insert(struct cap_proc *q, size_t at, const struct cap_range *r)
{
	if (!sp_grow(&q->ranges, &q->cap, q->n + 1, sizeof *q->ranges))
		return false;
	memmove(q->ranges + at + 1, q->ranges + at, (q->n - at) * sizeof *q->ranges);
	q->ranges[at] = *r;
	q->n++;
	return true;
}

/* Make [start, end) empty: what it overlaps is cut or split. */
static bool clear(struct cap_proc *q, uint64_t start, uint64_t end)
{
	size_t i = lower(q, start);
	if (i < q->n && q->ranges[i].start < start) {
		struct cap_range right = q->ranges[i];
		q->ranges[i].end = start;
		i++;
		if (right.end > end) {
			right.foff += end - right.start;
			right.start = end;
			return insert(q, i, &right);
		}
	}
	size_t j = i;
	while (j < q->n && q->ranges[j].end <= end)
		j++;
	if (j < q->n && q->ranges[j].start < end) {
		q->ranges[j].foff += end - q->ranges[j].start;
		q->ranges[j].start = end;
	}
	if (j > i)
		memmove(q->ranges + i, q->ranges + j, (q->n - j) * sizeof *q->ranges);
	q->n -= j - i;
	return true;
}

static bool is_anon(const char *path, size_t len)
{
	char name[24];
	size_t n = len < sizeof name - 1 ? len : sizeof name - 1;
	memcpy(name, path, n);
	name[n] = 0;
	return sp_path_is_anon(name);
}

bool cap_proc_map(struct cap_procs *p, struct cap_proc *q, const struct sp_perf_mmap *m,
		  const char *path, size_t path_len, uint64_t seen_ns)
{
	struct cap_range r = {
		.start = m->start,
		.end = m->len > UINT64_MAX - m->start ? UINT64_MAX : m->start + m->len,
		.foff = m->pgoff,
		.ino = m->ino,
		.maj = m->maj,
		.ino_gen = (uint32_t)m->ino_gen,
		.min = m->min,
		.path = sp_intern_add(&p->paths, path, path_len, NULL),
		.is_anon = is_anon(path, path_len),
		.seen_ns = seen_ns,
	};
	if (r.start >= r.end)
		return true;
	q->n_tried = 0;
	if (r.path == SP_NOT_FOUND || !clear(q, r.start, r.end))
		return false;
	if (!q->own.ino)
		q->own = r;
	return insert(q, lower(q, r.start), &r);
}

struct cap_range *cap_proc_find(struct cap_proc *q, uint64_t ip)
{
	if (q->last < q->n && ip >= q->ranges[q->last].start && ip < q->ranges[q->last].end)
		return &q->ranges[q->last];
	size_t i = lower(q, ip);
	if (i == q->n || ip < q->ranges[i].start)
		return NULL;
	q->last = i;
	return &q->ranges[i];
}

bool cap_proc_knows(const struct cap_procs *p, const struct cap_proc *q,
		    const struct sp_perf_mmap *m, const char *path, size_t path_len)
{
	size_t i = lower(q, m->start);
	if (i == q->n)
		return false;
	const struct cap_range *r = &q->ranges[i];
	if (r->start != m->start || r->end != m->start + m->len || r->ino != m->ino)
		return false;
	bool same_path = r->path == sp_intern_find(&p->paths, path, path_len);
	if (!m->ino) /* offsets of anonymous memory differ between records and /proc/PID/maps */
		return same_path || (r->is_anon && is_anon(path, path_len));
	return r->foff == m->pgoff && r->maj == m->maj && r->min == m->min && same_path;
}

/* Of a path, without what /proc says behind it. */
static const char *last_name(const char *path, size_t len, size_t *n)
{
	static const char GONE_FILE[] = " (deleted)";
	const size_t tail = sizeof GONE_FILE - 1;
	const char *slash = memrchr(path, '/', len);
	if (len > tail && !memcmp(path + len - tail, GONE_FILE, tail))
		len -= tail;
	*n = slash ? len - (size_t)(slash + 1 - path) : len;
	return slash ? slash + 1 : path;
}

/* Whether code in /proc/PID/maps is where the same code was. On overlayfs, Linux 6.8 to 6.17 give
 * MMAP2 records device, inode and folder of the file beneath: there the place and the name tell. */
static bool is_still_there(const struct cap_procs *p, const struct cap_range *r,
			   const struct sp_perf_mmap *m, const char *path, size_t len)
{
	size_t n, n_known, len_known;
	if (m->start < r->start || m->start >= r->end)
		return false;
	if (r->ino == m->ino && r->maj == m->maj && r->min == m->min)
		return true;
	if (r->start != m->start || r->end != m->start + m->len || r->foff != m->pgoff)
		return false;
	const char *known = sp_intern_get(&p->paths, r->path, &len_known);
	const char *a = last_name(path, len, &n), *b = last_name(known, len_known, &n_known);
	return n && n == n_known && !memcmp(a, b, n);
}

/* A file that was mapped by sure_ns. */
static bool is_sure(const struct cap_range *r, uint64_t sure_ns)
{
	return r && r->ino && r->seen_ns <= sure_ns;
}

bool cap_proc_is_replaced(const struct cap_procs *p, struct cap_proc *q, const char *maps,
			  size_t len, uint64_t sure_ns)
{
	const char *end = maps + len;
	bool has_code = false;
	while (q->own.ino && maps < end) {
		struct sp_perf_mmap m;
		const char *nl = memchr(maps, '\n', (size_t)(end - maps));
		const char *stop = nl ? nl : end;
		if (nl && sp_maps_line(maps, (size_t)(stop - maps), &m) && m.ino &&
		    (m.prot & PROT_EXEC)) {
			const struct cap_range *r = cap_proc_find(q, m.start);
			size_t path_len = (size_t)(stop - m.path);
			if (is_still_there(p, &q->own, &m, m.path, path_len) ||
			    (is_sure(r, sure_ns) && is_still_there(p, r, &m, m.path, path_len)))
				return false;
			has_code = true;
		}
		maps = stop + 1;
	}
	return has_code;
}

bool cap_proc_try_page(struct cap_proc *q, uint64_t ip)
{
	uint64_t page = ip >> 12;
	for (size_t i = 0; i < q->n_tried; i++)
		if (q->tried[i] == page)
			return false;
	if (q->n_tried >= MAX_TRIED)
		return false;
	uint64_t *slot = SP_PUSH(&q->tried, &q->n_tried, &q->cap_tried);
	if (slot)
		*slot = page;
	return slot != NULL;
}
