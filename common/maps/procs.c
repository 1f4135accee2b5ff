#include "maps/procs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/table.h"
#include "maps/space.h"

/* Meanings of misc bits that share a number (include/uapi/linux/perf_event.h). */
#define MISC_MMAP_DATA (1u << 13)
/* perf sets this on the FORK records that it makes up for tasks that run already (tools/perf/util/
 * synthetic-events.c): their maps follow, so that the parent's must not be cloned. */
#define MISC_FORK_EXEC (1u << 13)

#define COMM_MAX sizeof((struct sp_proc){0}.comm)

struct proc;

/* All threads but the leader, whose name is the process's. */
struct thread {
	struct thread *next;    /* same hash */
	struct thread *sibling; /* next thread of the process */
	struct proc *owner;
	int32_t tid;
	bool exited;
	char comm[COMM_MAX];
};

struct proc {
	struct sp_proc pub;
	struct proc *next;          /* same hash */
	struct proc *older, *newer; /* in its queue */
	struct thread *threads;
	uint32_t n_running; /* threads other than the leader that have not ended, as far as known */
	uint32_t n_ended;
	bool leader_ended, touched;
};

struct queue { /* least recently entered first */
	struct proc *oldest, *newest;
	uint32_t n;
};

struct sp_procs {
	struct proc **procs; /* hash table of n_slots lists */
	struct thread **threads;
	uint32_t proc_slots, thread_slots; /* powers of two */
	uint32_t n_threads;
	struct queue live, exited;
	struct sp_space *kernel, *empty;
	uint64_t generations, serials;
	struct sp_mapping_list replaced; /* by the last record */
	struct sp_intern file_keys;
	struct sp_file_id **files; /* owned, each one block with its path */
	size_t n_files, cap_files;
	struct sp_buf key; /* scratch */
	struct sp_proc kernel_proc;
};

/* --- the tables --- */

static uint32_t slot_of(uint32_t id, uint32_t n_slots)
{
	return (uint32_t)sp_mix64(id) & (n_slots - 1);
}

/* Threads of different processes have different tids while they run; after a reuse both may be
 * here, so that the owner is part of the key. */
static struct thread *find_thread(const struct sp_procs *p, int32_t pid, int32_t tid)
{
	struct thread *t = p->threads[slot_of((uint32_t)tid, p->thread_slots)];
	while (t && (t->tid != tid || t->owner->pub.pid != pid))
		t = t->next;
	return t;
}

static struct proc *find_proc(const struct sp_procs *p, int32_t pid)
{
	struct proc *q = p->procs[slot_of((uint32_t)pid, p->proc_slots)];
	while (q && q->pub.pid != pid)
		q = q->next;
	return q;
}

static void grow_procs(struct sp_procs *p)
{
	uint32_t slots = p->proc_slots * 2;
	struct proc **table = calloc(slots, sizeof(struct proc *));
	if (!table)
		return; /* longer lists are slower, not wrong */
	for (uint32_t i = 0; i < p->proc_slots; i++) {
		for (struct proc *q = p->procs[i], *next; q; q = next) {
			next = q->next;
			struct proc **at = &table[slot_of((uint32_t)q->pub.pid, slots)];
			q->next = *at;
			*at = q;
		}
	}
	free(p->procs);
	p->procs = table;
	p->proc_slots = slots;
}

static void grow_threads(struct sp_procs *p)
{
	uint32_t slots = p->thread_slots * 2;
	struct thread **table = calloc(slots, sizeof(struct thread *));
	if (!table)
		return;
	for (uint32_t i = 0; i < p->thread_slots; i++) {
		for (struct thread *t = p->threads[i], *next; t; t = next) {
			next = t->next;
			struct thread **at = &table[slot_of((uint32_t)t->tid, slots)];
			t->next = *at;
			*at = t;
		}
	}
	free(p->threads);
	p->threads = table;
	p->thread_slots = slots;
}

static void enqueue(struct queue *q, struct proc *x)
{
	x->older = q->newest;
	x->newer = NULL;
	*(q->newest ? &q->newest->newer : &q->oldest) = x;
	q->newest = x;
	q->n++;
}

static void dequeue(struct queue *q, struct proc *x)
{
	*(x->older ? &x->older->newer : &q->oldest) = x->newer;
	*(x->newer ? &x->newer->older : &q->newest) = x->older;
	q->n--;
}

/* --- threads --- */

static void unlink_thread(struct sp_procs *p, struct thread *t)
{
	struct thread **at = &p->threads[slot_of((uint32_t)t->tid, p->thread_slots)];
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	p->n_threads--;
	free(t);
}

static void drop_threads(struct sp_procs *p, struct proc *q)
{
	for (struct thread *t = q->threads, *next; t; t = next) {
		next = t->sibling;
		unlink_thread(p, t);
	}
	q->threads = NULL;
	q->n_running = q->n_ended = 0;
}

/* Forget the ended threads of a process once they are more than the running ones and than a few:
 * amortized, a thread costs O(1). */
static void sweep_threads(struct sp_procs *p, struct proc *q)
{
	if (q->n_ended < 64 || q->n_ended < q->n_running)
		return;
	struct thread **at = &q->threads;
	while (*at) {
		struct thread *t = *at;
		if (t->exited) {
			*at = t->sibling;
			unlink_thread(p, t);
		} else {
			at = &t->sibling;
		}
	}
	q->n_ended = 0;
}

static struct thread *make_thread(struct sp_procs *p, struct proc *q, int32_t tid)
{
	struct thread *t = find_thread(p, q->pub.pid, tid);
	if (t) {
		if (t->exited) {
			t->exited = false;
			q->n_ended--;
			q->n_running++;
		}
		return t;
	}
	if (p->n_threads >= p->thread_slots)
		grow_threads(p);
	t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->owner = q;
	t->tid = tid;
	struct thread **at = &p->threads[slot_of((uint32_t)tid, p->thread_slots)];
	t->next = *at;
	*at = t;
	t->sibling = q->threads;
	q->threads = t;
	q->n_running++;
	p->n_threads++;
	return t;
}

static void set_comm(char to[COMM_MAX], const char *from)
{
	size_t len = strnlen(from, COMM_MAX - 1);
	memmove(to, from, len);
	to[len] = '\0';
}

/* --- processes --- */

static void set_space(struct sp_proc *q, struct sp_space *s)
{
	sp_space_hold(s);
	sp_space_release(q->space);
	q->space = s;
}

static void forget(struct sp_procs *p, struct queue *queue, struct proc *q)
{
	drop_threads(p, q);
	dequeue(queue, q);
	struct proc **at = &p->procs[slot_of((uint32_t)q->pub.pid, p->proc_slots)];
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	sp_space_release(q->pub.space);
	free(q);
}

/* Make room: the oldest goes, unless it was asked for since it came to the head. */
static void limit(struct sp_procs *p, struct queue *queue, uint32_t max)
{
	for (uint32_t chances = queue->n; queue->n > max;) {
		struct proc *q = queue->oldest;
		if (q->touched && chances) {
			chances--;
			q->touched = false;
			dequeue(queue, q);
			enqueue(queue, q);
		} else {
			forget(p, queue, q);
		}
	}
}

static struct proc *make_proc(struct sp_procs *p, int32_t pid)
{
	struct proc *q = find_proc(p, pid);
	if (q) {
		q->touched = true;
		return q;
	}
	if (p->live.n + p->exited.n >= p->proc_slots)
		grow_procs(p);
	limit(p, &p->live, SP_PROCS_LIVE - 1);
	q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->pub.pid = pid;
	q->pub.ppid = -1;
	q->pub.serial = ++p->serials;
	set_space(&q->pub, p->empty);
	struct proc **at = &p->procs[slot_of((uint32_t)pid, p->proc_slots)];
	q->next = *at;
	*at = q;
	enqueue(&p->live, q);
	return q;
}

static void set_exited(struct sp_procs *p, struct proc *q, bool exited)
{
	if (q->pub.exited == exited)
		return;
	q->pub.exited = exited;
	dequeue(exited ? &p->live : &p->exited, q);
	enqueue(exited ? &p->exited : &p->live, q);
	q->touched = false;
	limit(p, &p->exited, SP_PROCS_EXITED);
}

/* --- files --- */

static uint32_t intern_file(struct sp_procs *p, const struct sp_perf_mmap *m)
{
	struct sp_buf *k = &p->key;
	k->len = 0;
	if (p->n_files < SP_PROCS_FILES - 1) {
		sp_buf_u32(k, m->maj);
		sp_buf_u32(k, m->min);
		sp_buf_u64(k, m->ino);
		sp_buf_u64(k, m->ino_gen);
		sp_buf_u8(k, m->build_id_len);
		sp_buf_add(k, m->build_id, m->build_id_len);
		sp_buf_str(k, m->path);
	}
	if (k->failed)
		return SP_NOT_FOUND;
	bool is_new;
	uint32_t id = sp_intern_add(&p->file_keys, k->data, k->len, &is_new);
	if (id == SP_NOT_FOUND || !is_new)
		return id;
	const char *path = k->len ? m->path : "[too many files]";
	size_t len = strlen(path) + 1;
	struct sp_file_id *f = calloc(1, sizeof *f + len);
	struct sp_file_id **at = f ? SP_PUSH(&p->files, &p->n_files, &p->cap_files) : NULL;
	if (!at) { /* the key stays without a file: memory has ended, the caller gives up */
		free(f);
		return SP_NOT_FOUND;
	}
	char *own_path = (char *)(f + 1);
	memcpy(own_path, path, len);
	if (k->len) {
		*f = (struct sp_file_id){
			.maj = m->maj, .min = m->min, .ino = m->ino, .ino_gen = m->ino_gen};
		f->build_id.len = m->build_id_len;
		memcpy(f->build_id.bytes, m->build_id, m->build_id_len);
	}
	f->path = own_path;
	*at = f;
	return id;
}

/* --- records --- */

static int apply_mmap(struct sp_procs *p, const struct sp_record *rec, struct sp_err *err)
{
	const struct sp_perf_mmap *m = &rec->mmap;
	unsigned mode = sp_record_cpumode(rec);
	bool kernel = mode == SP_CPUMODE_KERNEL || rec->pid == -1;
	if (mode == SP_CPUMODE_GUEST_KERNEL || mode == SP_CPUMODE_GUEST_USER)
		return 0;
	/* Old producers give no protection; the kernel marks every mapping without PROT_EXEC as
	 * data (kernel/events/core.c, perf_event_mmap_event). */
	bool exec = m->prot & PROT_EXEC || (!m->prot && !(rec->misc & MISC_MMAP_DATA));
	if (!m->len || (!exec && !kernel) || m->build_id_len > sizeof m->build_id)
		return 0;
	struct proc *q = kernel ? NULL : make_proc(p, rec->pid);
	if (!kernel && !q)
		return sp_err_nomem(err);
	struct sp_mapping mapping = {
		.start = m->start,
		.end = m->len > UINT64_MAX - m->start ? UINT64_MAX : m->start + m->len,
		.foff = m->pgoff,
		.file = intern_file(p, m),
		.flags = (kernel ? SP_MAPPING_KERNEL : 0) |
			 (!kernel && sp_path_is_anon(m->path) ? SP_MAPPING_ANON : 0),
	};
	if (mapping.file == SP_NOT_FOUND)
		return sp_err_nomem(err);
	if (mapping.end <= mapping.start)
		return 0;
	if (q)
		set_exited(p, q, false);
	int rc = sp_space_insert(q ? &q->pub.space : &p->kernel, &mapping, &p->generations,
				 &p->replaced);
	p->kernel_proc.space = p->kernel;
	if (rc != 1 || kernel)
		p->replaced.n = 0;
	return rc < 0 ? sp_err_nomem(err) : rc;
}

static int apply_comm(struct sp_procs *p, const struct sp_record *rec, struct sp_err *err)
{
	struct proc *q = make_proc(p, rec->pid);
	if (!q)
		return sp_err_nomem(err);
	if (rec->comm.is_exec) {
		/* The thread that called execve goes on under the leader's tid, all others are
		 * gone (fs/exec.c, de_thread). */
		drop_threads(p, q);
		set_space(&q->pub, p->empty);
		q->pub.exec_count++;
		q->leader_ended = false;
	}
	if (rec->comm.is_exec || rec->tid == rec->pid) {
		q->leader_ended = false;
		set_exited(p, q, false);
		set_comm(q->pub.comm, rec->comm.comm);
		return 1;
	}
	struct thread *t = make_thread(p, q, rec->tid);
	if (!t)
		return sp_err_nomem(err);
	set_exited(p, q, false);
	set_comm(t->comm, rec->comm.comm);
	return 1;
}

static const char *told_comm(const struct sp_procs *p, int32_t pid, int32_t tid)
{
	const struct thread *t = tid == pid ? NULL : find_thread(p, pid, tid);
	if (t && t->comm[0])
		return t->comm;
	const struct proc *q = find_proc(p, pid);
	return q ? q->pub.comm : "";
}

static int apply_fork(struct sp_procs *p, const struct sp_record *rec, struct sp_err *err)
{
	bool was_known = find_proc(p, rec->task.pid) != NULL;
	struct proc *q = make_proc(p, rec->task.pid);
	if (!q)
		return sp_err_nomem(err);
	char comm[COMM_MAX];
	set_comm(comm, told_comm(p, rec->task.ppid, rec->task.ptid));
	if (rec->task.pid == rec->task.ppid || rec->task.tid != rec->task.pid) {
		if (rec->task.tid == rec->task.pid)
			return !was_known;
		struct thread *t = make_thread(p, q, rec->task.tid);
		if (!t)
			return sp_err_nomem(err);
		set_exited(p, q, false);
		set_comm(t->comm, comm);
		return 1;
	}
	if (was_known) { /* the pid is used again; its exit may have been lost */
		drop_threads(p, q);
		set_space(&q->pub, p->empty);
		q->pub.generation++;
		q->pub.exec_count = 0;
	}
	q->leader_ended = false;
	set_exited(p, q, false);
	q->pub.ppid = rec->task.ppid;
	set_comm(q->pub.comm, comm);
	const struct proc *parent = find_proc(p, rec->task.ppid);
	if (parent && !(rec->misc & MISC_FORK_EXEC))
		set_space(&q->pub, parent->pub.space);
	return 1;
}

static int apply_exit(struct sp_procs *p, const struct sp_record *rec)
{
	struct proc *q = find_proc(p, rec->task.pid);
	if (!q)
		return 0;
	if (rec->task.tid == rec->task.pid) {
		q->leader_ended = true;
	} else {
		struct thread *t = find_thread(p, rec->task.pid, rec->task.tid);
		if (!t || t->exited)
			return 0;
		t->exited = true;
		q->n_running--;
		q->n_ended++;
		sweep_threads(p, q);
	}
	/* A leader may end before its threads (pthread_exit in main): they go on in the space. */
	if (q->leader_ended && !q->n_running)
		set_exited(p, q, true);
	return 1;
}

int sp_procs_apply(struct sp_procs *p, const struct sp_record *rec, struct sp_err *err)
{
	p->replaced.n = 0;
	if (rec->malformed)
		return 0;
	switch (rec->type) {
	case SP_PERF_MMAP:
	case SP_PERF_MMAP2:
		return apply_mmap(p, rec, err);
	case SP_PERF_COMM:
		return apply_comm(p, rec, err);
	case SP_PERF_FORK:
		return apply_fork(p, rec, err);
	case SP_PERF_EXIT:
		return apply_exit(p, rec);
	default:
		return 0;
	}
}

/* --- the table as a whole --- */

struct sp_procs *sp_procs_new(void)
{
	struct sp_procs *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->proc_slots = p->thread_slots = 256;
	p->procs = calloc(p->proc_slots, sizeof(struct proc *));
	p->threads = calloc(p->thread_slots, sizeof(struct thread *));
	p->kernel = sp_space_new(++p->generations);
	p->empty = sp_space_new(++p->generations);
	if (!p->procs || !p->threads || !p->kernel || !p->empty) {
		sp_procs_free(p);
		return NULL;
	}
	p->kernel_proc = (struct sp_proc){.pid = -1, .ppid = -1, .space = p->kernel};
	return p;
}

void sp_procs_free(struct sp_procs *p)
{
	if (!p)
		return;
	while (p->live.n)
		forget(p, &p->live, p->live.oldest);
	while (p->exited.n)
		forget(p, &p->exited, p->exited.oldest);
	sp_space_release(p->kernel);
	sp_space_release(p->empty);
	for (size_t i = 0; i < p->n_files; i++)
		free(p->files[i]);
	free(p->files);
	free(p->replaced.v);
	free(p->procs);
	free(p->threads);
	sp_intern_deinit(&p->file_keys);
	sp_buf_deinit(&p->key);
	free(p);
}

const struct sp_mapping *sp_procs_replaced(const struct sp_procs *p, size_t *n)
{
	*n = p->replaced.n;
	return p->replaced.v;
}

struct sp_proc *sp_procs_get(struct sp_procs *p, int32_t pid)
{
	if (pid == -1)
		return &p->kernel_proc;
	struct proc *q = make_proc(p, pid);
	return q ? &q->pub : NULL;
}

struct sp_space *sp_procs_kernel(struct sp_procs *p)
{
	return p->kernel;
}

const char *sp_procs_comm(const struct sp_procs *p, int32_t pid, int32_t tid)
{
	const char *comm = told_comm(p, pid, tid);
	return *comm || pid || tid ? comm : "swapper";
}

uint32_t sp_procs_n_files(const struct sp_procs *p)
{
	return (uint32_t)p->n_files;
}

const struct sp_file_id *sp_procs_file(const struct sp_procs *p, uint32_t file)
{
	return p->files[file];
}
