/* What tells of processes: their names, command lines, mappings, births and ends; as the kernel's
 * ring records say it, or as /proc does where they do not. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "emit_inner.h"
#include "kernel.h"
#include "maps/procs.h"
#include "python.h"
#include "switches.h"
#include "tasks.h"

#define MAPS_MAX (64u << 20)
#define MANY_THREADS 32u /* born in one process: short ones, it seems */

/* Offset in an MMAP record, as CAP_AT_MMAP2_PATH in an MMAP2 record. */
#define MMAP_FIXED 40u
#define MAX_PATH 4096

/* --- records of our own --- */

static void put_id(uint8_t *p, size_t size, int32_t pid, int32_t tid, uint64_t time_ns)
{
	struct sp_sample_id sid = {.pid = pid, .tid = tid, .time_ns = time_ns, .id = CAP_EVENT_ID};
	sp_sample_id_put(p + size - SP_SAMPLE_ID_BYTES, &sid);
}

/* --- names --- */

/* What the stream has as a thread's name, as a hash: 0 = none that we know of. */
static uint32_t name_hash(const char *comm)
{
	uint32_t hash = (uint32_t)sp_hash(comm, strnlen(comm, 63), 0) >> 1;
	return hash ? hash : 1;
}

static void note_name(struct cap_emit *e, int32_t tid, const char *comm)
{
	sp_map64_put(&e->names, (uint32_t)tid, name_hash(comm));
}

static bool has_name(const struct cap_emit *e, int32_t tid, const char *comm)
{
	return sp_map64_get(&e->names, (uint32_t)tid) == name_hash(comm);
}

/* A thread is born with its maker's name. */
static void inherit_name(struct cap_emit *e, int32_t tid, int32_t ptid)
{
	uint32_t hash = sp_map64_get(&e->names, (uint32_t)ptid);
	sp_map64_put(&e->names, (uint32_t)tid, hash == SP_NOT_FOUND ? 0 : hash);
}

static bool emit_comm(struct cap_emit *e, int32_t pid, int32_t tid, const char *comm, uint16_t misc,
		      uint64_t time_ns)
{
	size_t len = strnlen(comm, 63);
	size_t size = 16 + ((len + 8) & ~(size_t)7) + SP_SAMPLE_ID_BYTES;
	uint8_t *p = cap_emit_begin(e, PERF_RECORD_COMM, misc, size);
	if (!p)
		return false;
	sp_put32(p + 8, (uint32_t)pid);
	sp_put32(p + 12, (uint32_t)tid);
	memcpy(p + 16, comm, len);
	put_id(p, size, pid, tid, time_ns);
	cap_emit_time(e, time_ns);
	note_name(e, tid, comm);
	return true;
}

bool cap_emit_comm(struct cap_emit *e, int32_t pid, int32_t tid, const char *comm, uint64_t time_ns)
{
	return emit_comm(e, pid, tid, comm, 0, time_ns);
}

int cap_emit_names(struct cap_emit *e, int32_t pid, uint64_t time_ns)
{
	int32_t *tids = NULL;
	size_t n = 0, cap = 0;
	char comm[64];
	int rc = sp_tasks_list(pid, &tids, &n, &cap, NULL);
	for (size_t i = 0; rc >= 0 && i < n; i++) {
		cap_task_comm(pid, tids[i], comm);
		if (comm[0] && !has_name(e, tids[i], comm))
			emit_comm(e, pid, tids[i], comm, 0, time_ns);
	}
	free(tids);
	return rc < 0 ? rc : (int)n;
}

bool cap_emit_mmap2(struct cap_emit *e, int32_t pid, const struct sp_perf_mmap *m, const char *path,
		    size_t path_len, uint64_t time_ns)
{
	size_t len = path_len < MAX_PATH - 1 ? path_len : MAX_PATH - 1;
	size_t size = CAP_AT_MMAP2_PATH + ((len + 8) & ~(size_t)7) + SP_SAMPLE_ID_BYTES;
	uint16_t misc = m->prot & PROT_EXEC ? PERF_RECORD_MISC_USER
					    : PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_DATA;
	uint8_t *p = cap_emit_begin(e, PERF_RECORD_MMAP2, misc, size);
	if (!p)
		return false;
	sp_put32(p + 8, (uint32_t)pid);
	sp_put32(p + 12, (uint32_t)pid);
	sp_put64(p + 16, m->start);
	sp_put64(p + 24, m->len);
	sp_put64(p + 32, m->pgoff);
	sp_put32(p + 40, m->maj);
	sp_put32(p + 44, m->min);
	sp_put64(p + 48, m->ino);
	sp_put64(p + 56, m->ino_gen);
	sp_put32(p + 64, m->prot);
	sp_put32(p + 68, m->flags);
	memcpy(p + CAP_AT_MMAP2_PATH, path, len);
	put_id(p, size, pid, pid, time_ns);
	cap_emit_time(e, time_ns);
	return true;
}

void cap_emit_build_id(struct cap_emit *e, const struct sp_build_id_record *b)
{
	uint8_t rec[SP_BUILD_ID_RECORD_MAX];
	size_t size = sp_build_id_encode(rec, b);
	uint8_t *p = size ? cap_emit_take(e, size) : NULL;
	if (p)
		memcpy(p, rec, size);
}

void cap_emit_kernel_mmap(struct cap_emit *e, uint64_t start, uint64_t len, const char *name,
			  uint64_t time_ns)
{
	size_t n = strlen(name);
	size_t size = MMAP_FIXED + ((n + 8) & ~(size_t)7) + SP_SAMPLE_ID_BYTES;
	uint8_t *p = cap_emit_begin(e, PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL, size);
	if (!p)
		return;
	sp_put32(p + 8, UINT32_MAX);
	sp_put32(p + 12, 0);
	sp_put64(p + 16, start);
	sp_put64(p + 24, len);
	sp_put64(p + 32, start);
	memcpy(p + MMAP_FIXED, name, n);
	put_id(p, size, -1, 0, time_ns);
	cap_emit_time(e, time_ns);
}

/* --- /proc/PID/maps --- */

/* The kernel writes a newline in a path as \012; records have it as it is. */
static size_t unescape(char *out, const char *path, size_t len)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		if (path[i] == '\\' && len - i >= 4 && !memcmp(path + i, "\\012", 4)) {
			out[n++] = '\n';
			i += 3;
		} else {
			out[n++] = path[i];
		}
	}
	return n;
}

/* Read-only parts of files: perf's unwinder looks for .eh_frame_hdr in them (ours in the file). */
static bool is_rodata(const struct sp_perf_mmap *m)
{
	return m->ino && (m->prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) == PROT_READ;
}

/* What cap_emit_maps goes by. */
struct reading {
	uint64_t time_ns; /* of the records */
	uint64_t seen_ns;
	uint64_t fresh_ino; /* the file of the last mapping that was new, whose read-only parts follow */
};

static bool maps_line(struct cap_emit *e, struct cap_proc *q, const char *line, size_t len,
		      struct reading *d)
{
	struct sp_perf_mmap m;
	char path[MAX_PATH];
	if (!sp_maps_line(line, len, &m))
		return false;
	size_t n = (size_t)(line + len - m.path);
	n = unescape(path, m.path, n < sizeof path ? n : sizeof path - 1);
	if (!(m.prot & PROT_EXEC)) {
		if (is_rodata(&m) && m.ino == d->fresh_ino)
			cap_emit_mmap2(e, q->pid, &m, path, n, d->time_ns);
		return false;
	}
	if (!n) {
		memcpy(path, "//anon", 6);
		n = 6;
	}
	if (cap_proc_knows(&e->procs, q, &m, path, n) ||
	    !cap_emit_mmap2(e, q->pid, &m, path, n, d->time_ns) ||
	    !cap_proc_map(&e->procs, q, &m, path, n, d->seen_ns))
		return false;
	d->fresh_ino = m.ino;
	struct cap_range *r = cap_proc_find(q, m.start);
	if (r && e->on_map)
		e->on_map(e->arg, q, r, d->time_ns);
	return true;
}

int cap_emit_maps(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns, struct sp_err *err)
{
	int found = 0;
	e->text.len = 0;
	int rc = cap_task_maps(q->pid, MAPS_MAX, &e->text, err);
	if (rc < 0)
		return rc;
	struct reading d = {.time_ns = time_ns < e->now_ns ? e->now_ns : time_ns,
			    .seen_ns = cap_now_ns()};
	q->maps_ns = d.time_ns;
	const char *p = (const char *)e->text.data, *end = p + e->text.len;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const char *stop = nl ? nl : end;
		found += maps_line(e, q, p, (size_t)(stop - p), &d);
		p = stop + 1;
	}
	return found;
}

/* --- exec --- */

void cap_emit_exec(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns)
{
	uint8_t head[16];
	struct sp_buf args = cap_cmdlines_take(&e->cmdlines, q->pid, time_ns);
	q->args_say_perf = cap_is_python_perf((const char *)args.data, args.len);
	sp_put64(head, time_ns);
	sp_put32(head + 8, (uint32_t)q->pid);
	sp_put32(head + 12, q->exec_count);
	e->text.len = 0;
	sp_buf_add(&e->text, head, sizeof head);
	sp_buf_add(&e->text, args.data, args.len);
	if (!e->text.failed)
		cap_emit_ext(e, SP_EXT_EXEC, e->text.data, e->text.len);
	sp_buf_deinit(&args);
}

static void apply_exec(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns)
{
	if (e->on_exec)
		e->on_exec(e->arg, q, time_ns);
	cap_proc_exec(q);
	q->begin_ns = time_ns;
	cap_stacks_forget_process(&e->stacks, q->pid);
	cap_emit_exec(e, q, time_ns);
	cap_emit_cgroup(e, q, true, time_ns);
}

bool cap_emit_missed_exec(struct cap_emit *e, struct cap_proc *q, uint64_t sure_ns,
			  uint64_t time_ns)
{
	char comm[64];
	if (!q->n)
		return false;
	e->text.len = 0;
	if (cap_task_maps(q->pid, MAPS_MAX, &e->text, NULL) < 0)
		return false;
	uint64_t seen_ns = cap_now_ns();
	if (!cap_proc_is_replaced(&e->procs, q, (const char *)e->text.data, e->text.len, sure_ns))
		return false;
	if (time_ns < e->now_ns)
		time_ns = e->now_ns;
	cap_task_comm(q->pid, q->pid, comm);
	if (!emit_comm(e, q->pid, q->pid, comm, PERF_RECORD_MISC_COMM_EXEC, time_ns))
		return false;
	apply_exec(e, q, time_ns);
	q->shown_ns = seen_ns;
	return true;
}

struct cap_proc *cap_emit_meet(struct cap_emit *e, int32_t pid, uint64_t time_ns)
{
	char comm[64];
	struct cap_proc *q = cap_procs_get(&e->procs, pid);
	cap_task_comm(pid, pid, comm);
	if (q && comm[0]) {
		time_ns = time_ns > e->now_ns + 1 ? time_ns - 1 : e->now_ns;
		if (!cap_emit_comm(e, pid, pid, comm, time_ns)) {
			cap_procs_remove(&e->procs, pid); /* met again when there is room */
			return NULL;
		}
		q->shown_ns = cap_cmdlines_see(&e->cmdlines, pid, time_ns);
		cap_emit_exec(e, q, time_ns);
		cap_emit_cgroup(e, q, true, time_ns);
	}
	return q;
}

/* --- the kernel's records --- */

void cap_emit_mmap2_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	uint64_t prot = cap_ring_u64(r, en->pos + 64);
	struct sp_perf_mmap look = {.ino = cap_ring_u64(r, en->pos + 48), .prot = (uint32_t)prot};
	struct cap_proc *q = cap_procs_find(&e->procs, (int32_t)cap_ring_u64(r, en->pos + 8));
	if (q && en->time_ns <= q->shown_ns)
		return; /* perhaps of the image before */
	if (!(look.prot & PROT_EXEC) && !is_rodata(&look))
		return; /* data of the program: nobody asks for it */
	const uint8_t *p = cap_emit_pass(e, r, en);
	if (!p)
		return;
	struct sp_perf_mmap m = {
		.start = sp_get64(p + 16),
		.len = sp_get64(p + 24),
		.pgoff = sp_get64(p + 32),
		.maj = sp_get32(p + 40),
		.min = sp_get32(p + 44),
		.ino = sp_get64(p + 48),
		.ino_gen = sp_get64(p + 56),
		.prot = sp_get32(p + 64),
	};
	const char *path = (const char *)p + CAP_AT_MMAP2_PATH;
	size_t len = strnlen(path, en->size - CAP_AT_MMAP2_PATH - SP_SAMPLE_ID_BYTES);
	if (!q)
		q = cap_procs_get(&e->procs, (int32_t)sp_get32(p + 8));
	if (!q || !(m.prot & PROT_EXEC) ||
	    !cap_proc_map(&e->procs, q, &m, path, len, en->time_ns))
		return;
	struct cap_range *range = cap_proc_find(q, m.start);
	if (range && e->on_map)
		e->on_map(e->arg, q, range, en->time_ns);
}

void cap_emit_comm_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			  uint16_t misc)
{
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + 8);
	struct cap_proc *q =
		misc & PERF_RECORD_MISC_COMM_EXEC ? cap_procs_get(&e->procs, pid) : NULL;
	if (q && en->time_ns <= q->shown_ns) {
		/* Only read later than /proc: the exec is told already. */
		char comm[64];
		cap_task_comm(pid, pid, comm);
		emit_comm(e, pid, pid, comm, 0, en->time_ns);
		return;
	}
	const uint8_t *p = cap_emit_pass(e, r, en);
	if (!p)
		return; /* an exec is found by cap_emit_missed_exec then */
	note_name(e, (int32_t)sp_get32(p + 12), (const char *)p + 16);
	if (q)
		apply_exec(e, q, en->time_ns);
}

void cap_emit_fork(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + 8);
	int32_t ppid = (int32_t)(cap_ring_u64(r, en->pos + 8) >> 32);
	int32_t tid = (int32_t)cap_ring_u64(r, en->pos + 16);
	int32_t ptid = (int32_t)(cap_ring_u64(r, en->pos + 16) >> 32);
	if (pid != ppid && !e->follow)
		return;
	struct cap_proc *q = cap_procs_find(&e->procs, pid);
	cap_switches_born(e, tid);
	if (q && en->time_ns <= q->shown_ns)
		return;
	cap_stacks_forget(&e->stacks, tid);
	inherit_name(e, tid, ptid);
	e->n_born++;
	if (pid == ppid) {
		if (q)
			q->n_threads++;
		if (q && ++q->n_born == MANY_THREADS && e->on_fork)
			e->on_fork(e->arg, ptid);
		if (!cap_emit_pass(e, r, en)) /* its name is told when it is looked for */
			sp_map64_remove(&e->names, (uint32_t)tid);
		return;
	}
	if (e->on_fork)
		e->on_fork(e->arg, ptid);
	if (!cap_emit_pass(e, r, en)) {
		cap_procs_remove(&e->procs, pid); /* to be met: the stream does not know it */
		return;
	}
	q = cap_procs_fork(&e->procs, pid, ppid);
	if (q) {
		q->begin_ns = en->time_ns;
		cap_emit_cgroup(e, q, false, en->time_ns);
	}
}

void cap_emit_gone(struct cap_emit *e, struct cap_proc *q)
{
	if (e->on_exit)
		e->on_exit(e->arg, q);
	cap_procs_remove(&e->procs, q->pid);
}

void cap_emit_exit(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + 8);
	int32_t tid = (int32_t)cap_ring_u64(r, en->pos + 16);
	/* Its last waits, which are from before, stand before it. */
	if (e->on_thread_exit)
		e->on_thread_exit(e->arg, tid);
	cap_emit_pass(e, r, en);
	sp_map64_remove(&e->names, (uint32_t)tid);
	cap_stacks_forget(&e->stacks, tid);
	cap_switches_ended(e, tid);
	cap_throttles_ended(e, tid, en->time_ns);
	struct cap_proc *q = cap_procs_find(&e->procs, pid);
	if (!q || (en->time_ns <= q->shown_ns && tid != pid) || (q->n_threads && --q->n_threads))
		return;
	cap_emit_gone(e, q);
}
