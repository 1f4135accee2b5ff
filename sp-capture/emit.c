#include "emit.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "embed.h"
#include "events.h"
#include "maps/procs.h"
#include "python.h"
#include "tasks.h"

#define MAPS_MAX (64u << 20)
#define CMDLINE_MAX (60u << 10)
#define MAPS_AGAIN_NS UINT64_C(2000000) /* a process's maps at most 500 times a second */
#define MANY_THREADS 32u                /* born in one process: short ones, it seems */
#define MAX_CMDLINES 1024u
#define ROUND_NS UINT64_C(1000000000)
/* A reader holds back what it has until the next round ends: less than the caches hold. */
#define ROUND_BYTES (UINT64_C(2) << 20)

/* Offsets in ring records (include/uapi/linux/perf_event.h, with our sample type). */
enum {
	AT_ID = 8,
	AT_IP = 16,
	AT_PID = 24,
	AT_TID = 28,
	AT_CHAIN_COUNT = 56,
	AT_CHAIN = 64,
	AT_MMAP2_PATH = 72,
	MMAP_FIXED = 40,
	MAX_PATH = 4096,
};

int cap_emit_init(struct cap_emit *e, struct cap_output *out, size_t n_cpus, struct sp_err *err)
{
	*e = (struct cap_emit){.out = out, .n_cpus = n_cpus};
	e->losses = calloc(n_cpus, sizeof *e->losses);
	return e->losses ? 0 : sp_err_nomem(err);
}

void cap_emit_deinit(struct cap_emit *e)
{
	cap_procs_deinit(&e->procs);
	cap_stacks_deinit(&e->stacks);
	cap_waits_deinit(&e->waits);
	sp_map64_deinit(&e->kernel_ips);
	sp_buf_deinit(&e->scratch);
	sp_buf_deinit(&e->text);
	for (size_t i = 0; i < e->n_cmdlines; i++)
		sp_buf_deinit(&e->cmdlines[i].args);
	free(e->cmdlines);
	sp_map64_deinit(&e->late_of);
	free(e->late_ids);
	free(e->dead_ids);
	free(e->losses);
}

bool cap_emit_cpu_add(struct cap_emit *e)
{
	size_t cap = e->n_cpus;
	if (!sp_grow(&e->losses, &cap, e->n_cpus + 1, sizeof *e->losses))
		return false;
	e->losses[e->n_cpus] = (struct cap_loss){0};
	return true;
}

/* Room for a record that is no sample. */
static uint8_t *take(struct cap_emit *e, size_t size)
{
	uint8_t *p = cap_output_take(e->out, size, false);
	e->lost_side_band |= p == NULL;
	return p;
}

void cap_emit_lost(struct cap_emit *e, size_t cpu_index, uint64_t from_ns, uint64_t to_ns,
		   uint64_t count)
{
	struct cap_loss *l = &e->losses[cpu_index];
	if (!l->count)
		l->from_ns = from_ns;
	l->to_ns = to_ns;
	l->count += count;
	sp_count(&e->counters, SP_C_lost_events, count);
}

void cap_emit_time(struct cap_emit *e, uint64_t time_ns)
{
	if (time_ns < e->now_ns)
		sp_count(&e->counters, SP_C_out_of_order, 1);
	else
		e->now_ns = time_ns;
}

/* --- records of our own --- */

static uint8_t *begin(struct cap_emit *e, uint32_t type, uint16_t misc, size_t size)
{
	uint8_t *p = take(e, size);
	if (p) {
		memset(p, 0, size);
		sp_put32(p, type);
		sp_put16(p + 4, misc);
		sp_put16(p + 6, (uint16_t)size);
	}
	return p;
}

static void put_id(uint8_t *p, size_t size, int32_t pid, int32_t tid, uint64_t time_ns)
{
	struct sp_sample_id sid = {.pid = pid, .tid = tid, .time_ns = time_ns, .id = CAP_EVENT_ID};
	sp_sample_id_put(p + size - SP_SAMPLE_ID_BYTES, &sid);
}

static void emit_comm(struct cap_emit *e, int32_t pid, int32_t tid, const char *comm, uint16_t misc,
		      uint64_t time_ns)
{
	size_t len = strnlen(comm, 63);
	size_t size = 16 + ((len + 8) & ~(size_t)7) + SP_SAMPLE_ID_BYTES;
	uint8_t *p = begin(e, PERF_RECORD_COMM, misc, size);
	if (!p)
		return;
	sp_put32(p + 8, (uint32_t)pid);
	sp_put32(p + 12, (uint32_t)tid);
	memcpy(p + 16, comm, len);
	put_id(p, size, pid, tid, time_ns);
	cap_emit_time(e, time_ns);
}

void cap_emit_comm(struct cap_emit *e, int32_t pid, int32_t tid, const char *comm, uint64_t time_ns)
{
	emit_comm(e, pid, tid, comm, 0, time_ns);
}

void cap_emit_mmap2(struct cap_emit *e, int32_t pid, const struct sp_perf_mmap *m, const char *path,
		    size_t path_len, uint64_t time_ns)
{
	size_t len = path_len < MAX_PATH - 1 ? path_len : MAX_PATH - 1;
	size_t size = AT_MMAP2_PATH + ((len + 8) & ~(size_t)7) + SP_SAMPLE_ID_BYTES;
	uint16_t misc = m->prot & PROT_EXEC ? PERF_RECORD_MISC_USER
					    : PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_DATA;
	uint8_t *p = begin(e, PERF_RECORD_MMAP2, misc, size);
	if (!p)
		return;
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
	memcpy(p + AT_MMAP2_PATH, path, len);
	put_id(p, size, pid, pid, time_ns);
	cap_emit_time(e, time_ns);
}

void cap_emit_build_id(struct cap_emit *e, const struct sp_build_id_record *b)
{
	uint8_t rec[SP_BUILD_ID_RECORD_MAX];
	size_t size = sp_build_id_encode(rec, b);
	uint8_t *p = size ? take(e, size) : NULL;
	if (p)
		memcpy(p, rec, size);
}

void cap_emit_kernel_mmap(struct cap_emit *e, uint64_t start, uint64_t len, const char *name,
			  uint64_t time_ns)
{
	size_t n = strlen(name);
	size_t size = MMAP_FIXED + ((n + 8) & ~(size_t)7) + SP_SAMPLE_ID_BYTES;
	uint8_t *p = begin(e, PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL, size);
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

bool cap_emit_part(struct cap_emit *e, enum sp_ext_kind kind, uint64_t object, uint64_t at,
		   uint64_t total, const void *part, size_t n)
{
	e->scratch.len = 0;
	sp_ext_encode_part(&e->scratch, kind, object, at, total, part, n);
	uint8_t *p = e->scratch.failed ? NULL : take(e, e->scratch.len);
	if (p)
		memcpy(p, e->scratch.data, e->scratch.len);
	return p != NULL;
}

bool cap_emit_ext(struct cap_emit *e, enum sp_ext_kind kind, const void *payload, size_t size)
{
	uint64_t object = ++e->object;
	size_t at = 0;
	do {
		size_t part = size - at < SP_EXT_PAYLOAD_MAX ? size - at : SP_EXT_PAYLOAD_MAX;
		if (!cap_emit_part(e, kind, object, at, size,
				   part ? (const uint8_t *)payload + at : NULL, part))
			return false;
		at += part;
	} while (at < size);
	return true;
}

bool cap_emit_loss(struct cap_emit *e, uint64_t from_ns, uint64_t to_ns, uint32_t cpu,
		   uint32_t kind, uint64_t count)
{
	uint8_t b[32];
	sp_put64(b, from_ns);
	sp_put64(b + 8, to_ns);
	sp_put32(b + 16, cpu);
	sp_put32(b + 20, kind);
	sp_put64(b + 24, count);
	return cap_emit_ext(e, SP_EXT_LOSS, b, sizeof b);
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

/* *fresh_ino: the file of the last mapping that was new, whose read-only parts follow. */
static bool maps_line(struct cap_emit *e, struct cap_proc *q, const char *line, size_t len,
		      uint64_t time_ns, uint64_t *fresh_ino)
{
	struct sp_perf_mmap m;
	char path[MAX_PATH];
	if (!sp_maps_line(line, len, &m))
		return false;
	size_t n = (size_t)(line + len - m.path);
	n = unescape(path, m.path, n < sizeof path ? n : sizeof path - 1);
	if (!(m.prot & PROT_EXEC)) {
		if (is_rodata(&m) && m.ino == *fresh_ino)
			cap_emit_mmap2(e, q->pid, &m, path, n, time_ns);
		return false;
	}
	if (!n) {
		memcpy(path, "//anon", 6);
		n = 6;
	}
	if (cap_proc_knows(&e->procs, q, &m, path, n) || !cap_proc_map(&e->procs, q, &m, path, n))
		return false;
	*fresh_ino = m.ino;
	cap_emit_mmap2(e, q->pid, &m, path, n, time_ns);
	struct cap_range *r = cap_proc_find(q, m.start);
	if (r && e->on_map)
		e->on_map(e->arg, q, r, time_ns);
	return true;
}

int cap_emit_maps(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns, struct sp_err *err)
{
	int found = 0;
	e->text.len = 0;
	int rc = cap_task_maps(q->pid, MAPS_MAX, &e->text, err);
	if (rc < 0)
		return rc;
	if (time_ns < e->now_ns)
		time_ns = e->now_ns;
	q->maps_ns = time_ns;
	const char *p = (const char *)e->text.data, *end = p + e->text.len;
	uint64_t fresh_ino = 0;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const char *stop = nl ? nl : end;
		found += maps_line(e, q, p, (size_t)(stop - p), time_ns, &fresh_ino);
		p = stop + 1;
	}
	return found;
}

/* --- samples --- */

bool cap_sample_layout(const struct cap_ring *r, uint64_t pos, uint32_t size, struct cap_layout *l)
{
	uint64_t n_chain = cap_ring_u64(r, pos + AT_CHAIN_COUNT);
	uint32_t at = AT_CHAIN;
	if (n_chain > (size - at) / 8)
		return false;
	*l = (struct cap_layout){.n_chain = (uint32_t)n_chain, .chain = at};
	at += (uint32_t)n_chain * 8;
	if (size - at < 8)
		return false;
	uint64_t abi = cap_ring_u64(r, pos + at);
	at += 8;
	if (abi) {
		l->regs = at;
		if (size - at < CAP_N_REGS * 8)
			return false;
		at += CAP_N_REGS * 8;
	}
	if (size - at < 8)
		return false;
	l->stack_size = at;
	uint64_t stack = cap_ring_u64(r, pos + at);
	at += 8;
	l->stack = at;
	if (!stack)
		return at == size;
	if (stack % 8 || stack > size - at || size - at - stack != 8)
		return false;
	l->copied = cap_ring_u64(r, pos + at + stack);
	return l->copied <= stack;
}

struct cap_proc *cap_emit_meet(struct cap_emit *e, int32_t pid, uint64_t time_ns)
{
	char comm[64];
	struct cap_proc *q = cap_procs_get(&e->procs, pid);
	uint64_t seen_ns = cap_now_ns();
	cap_task_comm(pid, pid, comm);
	if (q && comm[0]) {
		q->exec_told_ns = seen_ns; /* its exec may be in the rings: this tells it */
		time_ns = time_ns > e->now_ns + 1 ? time_ns - 1 : e->now_ns;
		cap_emit_comm(e, pid, pid, comm, time_ns);
		cap_emit_exec(e, q, time_ns);
		cap_emit_cgroup(e, q, true, time_ns);
	}
	return q;
}

void cap_emit_check_ip(struct cap_emit *e, int32_t pid, uint64_t ip, uint64_t time_ns)
{
	if (pid <= 0)
		return;
	struct cap_proc *q = cap_procs_find(&e->procs, pid);
	/* One that has ended since is no newcomer: what the stream knows of it is all there is. */
	if (!q && (!sp_process_exists(pid) || !(q = cap_emit_meet(e, pid, time_ns))))
		return;
	struct cap_range *r = cap_proc_find(q, ip);
	if (!r && time_ns - q->maps_ns >= MAPS_AGAIN_NS && cap_proc_try_page(q, ip)) {
		/* The new image's mappings would hide from cap_recover that it is a new one. */
		if (e->lost_side_band)
			cap_emit_missed_exec(e, q, time_ns - 1);
		cap_emit_maps(e, q, time_ns - 1, NULL);
		r = cap_proc_find(q, ip);
	}
	if (r && !r->sampled) {
		r->sampled = true;
		if (r->is_anon && !q->runs_jit && e->on_jit)
			e->on_jit(e->arg, q);
		q->runs_jit |= r->is_anon;
	}
}

static void note_kernel(struct cap_emit *e, const struct cap_ring *r, uint64_t pos,
			const struct cap_layout *l)
{
	bool kernel = false;
	for (uint32_t i = 0; i < l->n_chain; i++) {
		uint64_t ip = cap_ring_u64(r, pos + l->chain + i * 8);
		if (ip >= SP_CONTEXT_MAX)
			kernel = ip == SP_CONTEXT_KERNEL;
		else if (kernel && sp_map64_get(&e->kernel_ips, ip) == SP_NOT_FOUND)
			sp_map64_put(&e->kernel_ips, ip, 0);
	}
}

static bool is_dead(const struct cap_emit *e, uint64_t id)
{
	for (size_t i = 0; i < e->n_dead_ids; i++)
		if (e->dead_ids[i] == id)
			return true;
	return false;
}

void cap_emit_late(struct cap_emit *e, int32_t tid, const uint64_t *ids)
{
	if (!sp_grow(&e->late_ids, &e->cap_late, (e->n_late + 1) * e->n_cpus,
		     sizeof *e->late_ids) ||
	    !sp_map64_put(&e->late_of, (uint32_t)tid, (uint32_t)e->n_late))
		return;
	memcpy(e->late_ids + e->n_late * e->n_cpus, ids, e->n_cpus * sizeof *ids);
	e->n_late++;
}

bool cap_emit_is_copy(struct cap_emit *e, uint64_t id, int32_t tid, size_t cpu_index)
{
	uint32_t at = sp_map64_get(&e->late_of, (uint32_t)tid);
	if (at != SP_NOT_FOUND) {
		uint64_t own = e->late_ids[at * e->n_cpus + cpu_index];
		if (own != id && !is_dead(e, own)) {
			uint64_t *slot = SP_PUSH(&e->dead_ids, &e->n_dead_ids, &e->cap_dead_ids);
			if (slot)
				*slot = own;
			if (e->on_copy)
				e->on_copy(e->arg, tid, cpu_index);
		}
	}
	return is_dead(e, id);
}

/* How much of what the kernel copied is the thread's stack. */
static uint64_t stack_used(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			   const struct cap_layout *l, uint64_t sp)
{
	uint64_t task = cap_ring_u64(r, en->pos + AT_PID);
	int32_t pid = (int32_t)task, tid = (int32_t)(task >> 32);
	uint64_t end = cap_stacks_end(&e->stacks, pid, tid, sp, en->time_ns);
	uint64_t used = cap_stack_used(l->copied, sp, end);
	struct cap_stack_slot *slot =
		end && sp + used == end ? cap_stacks_top(&e->stacks, tid) : NULL;
	if (slot) {
		uint8_t top[CAP_STACK_TOP];
		size_t n = used < sizeof top ? (size_t)used : sizeof top;
		cap_ring_copy(r, en->pos + l->stack + used - n, top, n);
		cap_stack_top_set(slot, top, n);
		used = cap_stack_used(used, sp, slot->hi);
	}
	return used;
}

static void emit_sample(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			size_t cpu_index)
{
	struct cap_layout l;
	uint64_t used = 0, task = cap_ring_u64(r, en->pos + AT_PID);
	int32_t pid = (int32_t)task, tid = (int32_t)(task >> 32);
	if (e->n_late && cap_emit_is_copy(e, cap_ring_u64(r, en->pos + AT_ID), tid, cpu_index))
		return;
	bool whole = cap_sample_layout(r, en->pos, en->size, &l);
	if (e->wants && whole && !e->wants(e->arg, pid, l.regs != 0, en->time_ns))
		return;
	sp_count(&e->counters, SP_C_sample_events, 1);
	if (!whole) {
		sp_count(&e->counters, SP_C_rejected_samples, 1);
		return;
	}
	if (l.regs) {
		uint64_t sp = cap_ring_u64(r, en->pos + l.regs + CAP_REG_SP * 8);
		cap_emit_check_ip(e, pid, cap_ring_u64(r, en->pos + l.regs + CAP_REG_IP * 8),
				  en->time_ns);
		if (l.copied)
			used = stack_used(e, r, en, &l, sp);
	}
	if (e->kernel_frames)
		note_kernel(e, r, en->pos, &l);
	uint32_t padded = (uint32_t)(used + 7) & ~7u;
	size_t size = l.stack + padded + (padded ? 8 : 0);
	struct cap_pieces x = {.head = l.stack, .tail = size - l.stack - used};
	cap_ring_pieces(r, en->pos + l.stack, used, x.data, x.n);
	uint8_t *tail, *p = cap_output_gather(e->out, &x, &tail);
	if (!p) {
		cap_emit_lost(e, cpu_index, en->time_ns, en->time_ns, 1);
		e->n_dropped++;
		return;
	}
	cap_ring_copy(r, en->pos, p, l.stack_size);
	sp_put16(p + 6, (uint16_t)size);
	sp_put64(p + AT_ID, CAP_EVENT_ID);
	sp_put64(p + l.stack_size, padded);
	if (padded) {
		memset(tail, 0, padded - used);
		sp_put64(tail + padded - used, used);
	}
	sp_count(&e->counters, SP_C_samples, 1);
}

/* --- side-band --- */

/* A record as it is, under the canonical id; its copy in the block. */
static const uint8_t *pass(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	uint8_t *p = take(e, en->size);
	if (p) {
		cap_ring_copy(r, en->pos, p, en->size);
		sp_put64(p + en->size - 8, CAP_EVENT_ID);
	}
	return p;
}

static void emit_mmap2(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	uint64_t prot = cap_ring_u64(r, en->pos + 64);
	struct sp_perf_mmap look = {.ino = cap_ring_u64(r, en->pos + 48), .prot = (uint32_t)prot};
	if (!(look.prot & PROT_EXEC) && !is_rodata(&look))
		return; /* data of the program: nobody asks for it */
	const uint8_t *p = pass(e, r, en);
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
	const char *path = (const char *)p + AT_MMAP2_PATH;
	size_t len = strnlen(path, en->size - AT_MMAP2_PATH - SP_SAMPLE_ID_BYTES);
	struct cap_proc *q = cap_procs_get(&e->procs, (int32_t)sp_get32(p + 8));
	if (!q || !(m.prot & PROT_EXEC) || !cap_proc_map(&e->procs, q, &m, path, len))
		return;
	struct cap_range *range = cap_proc_find(q, m.start);
	if (range && e->on_map)
		e->on_map(e->arg, q, range, en->time_ns);
}

static struct cap_cmdline *cmdline_new(struct cap_emit *e)
{
	if (e->n_cmdlines == MAX_CMDLINES) /* their exec markers never came */
		while (e->n_cmdlines)
			sp_buf_deinit(&e->cmdlines[--e->n_cmdlines].args);
	return SP_PUSH(&e->cmdlines, &e->n_cmdlines, &e->cap_cmdlines);
}

void cap_emit_cmdline_read(struct cap_emit *e, int32_t pid, uint64_t time_ns)
{
	char path[40];
	struct cap_cmdline *c = cmdline_new(e);
	if (!c)
		return;
	c->pid = pid;
	c->time_ns = time_ns;
	snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
	if (sp_file_read(path, CMDLINE_MAX, &c->args, NULL) < 0 && c->args.len > CMDLINE_MAX)
		c->args.len = CMDLINE_MAX;
}

void cap_emit_cmdline_add(struct cap_emit *e, int32_t pid, char *const *args)
{
	struct cap_cmdline *c = cmdline_new(e);
	if (!c)
		return;
	c->pid = pid;
	for (; *args && c->args.len < CMDLINE_MAX; args++) {
		sp_buf_str(&c->args, *args);
		sp_buf_u8(&c->args, 0);
	}
	if (c->args.len > CMDLINE_MAX)
		c->args.len = CMDLINE_MAX;
}

/* The command line that was read for this exec, out of the list; an empty buffer when none. */
static struct sp_buf cmdline_take(struct cap_emit *e, int32_t pid, uint64_t time_ns)
{
	struct sp_buf args = {0};
	for (size_t i = 0; i < e->n_cmdlines; i++) {
		struct cap_cmdline *c = &e->cmdlines[i];
		if (c->pid != pid || (c->time_ns && c->time_ns != time_ns))
			continue;
		if (args.len)
			sp_buf_deinit(&c->args);
		else
			args = c->args;
		*c = e->cmdlines[--e->n_cmdlines];
		i--;
	}
	return args;
}

void cap_emit_exec(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns)
{
	uint8_t head[16];
	struct sp_buf args = cmdline_take(e, q->pid, time_ns);
	if (!args.len) {
		cap_emit_cmdline_read(e, q->pid, time_ns);
		sp_buf_deinit(&args);
		args = cmdline_take(e, q->pid, time_ns);
	}
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

static void emit_comm_record(struct cap_emit *e, const struct cap_ring *r,
			     const struct cap_entry *en, uint16_t misc)
{
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + 8);
	struct cap_proc *q =
		misc & PERF_RECORD_MISC_COMM_EXEC ? cap_procs_get(&e->procs, pid) : NULL;
	if (q && en->time_ns <= q->exec_told_ns) {
		/* Not lost after all, only read later than /proc: the exec is told already. */
		char comm[64];
		q->exec_told_ns = 0;
		cap_task_comm(pid, pid, comm);
		emit_comm(e, pid, pid, comm, 0, en->time_ns);
		return;
	}
	pass(e, r, en);
	if (q)
		apply_exec(e, q, en->time_ns);
}

bool cap_emit_missed_exec(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns)
{
	char comm[64];
	if (!q->n)
		return false;
	e->text.len = 0;
	if (cap_task_maps(q->pid, MAPS_MAX, &e->text, NULL) < 0)
		return false;
	uint64_t seen_ns = cap_now_ns();
	if (!cap_proc_is_replaced(&e->procs, q, (const char *)e->text.data, e->text.len))
		return false;
	if (time_ns < e->now_ns)
		time_ns = e->now_ns;
	cap_task_comm(q->pid, q->pid, comm);
	emit_comm(e, q->pid, q->pid, comm, PERF_RECORD_MISC_COMM_EXEC, time_ns);
	apply_exec(e, q, time_ns);
	q->exec_told_ns = seen_ns;
	return true;
}

static void emit_fork(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + 8);
	int32_t ppid = (int32_t)(cap_ring_u64(r, en->pos + 8) >> 32);
	int32_t tid = (int32_t)cap_ring_u64(r, en->pos + 16);
	int32_t ptid = (int32_t)(cap_ring_u64(r, en->pos + 16) >> 32);
	if (pid != ppid && !e->follow)
		return;
	cap_stacks_forget(&e->stacks, tid);
	e->n_born++;
	if (pid == ppid) {
		struct cap_proc *q = cap_procs_find(&e->procs, pid);
		if (q)
			q->n_threads++;
		if (q && ++q->n_born == MANY_THREADS && e->on_fork)
			e->on_fork(e->arg, ptid);
	} else {
		struct cap_proc *q = cap_procs_fork(&e->procs, pid, ppid);
		if (q)
			q->begin_ns = en->time_ns;
		if (e->on_fork)
			e->on_fork(e->arg, ptid);
		pass(e, r, en);
		if (q)
			cap_emit_cgroup(e, q, false, en->time_ns);
		return;
	}
	pass(e, r, en);
}

static void emit_exit(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + 8);
	int32_t tid = (int32_t)cap_ring_u64(r, en->pos + 16);
	pass(e, r, en);
	cap_stacks_forget(&e->stacks, tid);
	if (e->on_thread_exit)
		e->on_thread_exit(e->arg, tid);
	struct cap_proc *q = cap_procs_find(&e->procs, pid);
	if (!q || (q->n_threads && --q->n_threads))
		return;
	q->is_dead = true;
	if (e->on_exit)
		e->on_exit(e->arg, q, en->time_ns);
	cap_procs_remove(&e->procs, pid);
}

/* A loss record for what is not told yet; it stays so when there is no room. */
static void tell_losses(struct cap_emit *e, const struct cap_ring *r, size_t cpu_index)
{
	struct cap_loss *l = &e->losses[cpu_index];
	if (l->count && cap_emit_loss(e, l->from_ns, l->to_ns, r->cpu, 0, l->count))
		l->count = 0;
}

static void emit_lost(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *en,
		      size_t cpu_index)
{
	uint64_t count = cap_ring_u64(r, en->pos + 16);
	if (e->all_side_band) { /* anybody's; no sample is among it */
		r->lost += count;
		e->lost_side_band = true;
		return;
	}
	uint8_t *p = take(e, en->size);
	if (p) {
		cap_ring_copy(r, en->pos, p, en->size);
		sp_put64(p + 8, CAP_EVENT_ID);
		sp_put64(p + en->size - 8, CAP_EVENT_ID);
	}
	r->lost += count;
	e->lost_side_band = true;
	cap_emit_lost(e, cpu_index, r->last_ns, en->time_ns, count);
	tell_losses(e, r, cpu_index);
}

static void emit_throttle(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			  size_t cpu_index)
{
	struct cap_loss *l = &e->losses[cpu_index];
	uint8_t *p = take(e, en->size);
	if (p) {
		cap_ring_copy(r, en->pos, p, en->size);
		sp_put64(p + 16, CAP_EVENT_ID);
		sp_put64(p + 24, CAP_EVENT_ID);
		sp_put64(p + en->size - 8, CAP_EVENT_ID);
	}
	if (en->type == PERF_RECORD_THROTTLE) {
		sp_count(&e->counters, SP_C_throttled, 1);
		l->throttled_ns = en->time_ns;
	} else if (l->throttled_ns) {
		cap_emit_loss(e, l->throttled_ns, en->time_ns, r->cpu, 1, 1);
		l->throttled_ns = 0;
	}
}

/* The least size at which a record's fields are all there. */
static uint32_t least_size(uint32_t type)
{
	switch (type) {
	case PERF_RECORD_MMAP2:
		return AT_MMAP2_PATH + 8 + SP_SAMPLE_ID_BYTES;
	case PERF_RECORD_COMM:
	case PERF_RECORD_LOST:
		return 24 + SP_SAMPLE_ID_BYTES;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		return 32 + SP_SAMPLE_ID_BYTES;
	default:
		return 0;
	}
}

/* A record of a process that nobody asked for. */
static bool is_stranger(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en)
{
	uint64_t at = en->type == PERF_RECORD_SAMPLE ? AT_PID : en->size - SP_SAMPLE_ID_BYTES;
	return !cap_procs_find(&e->procs, (int32_t)cap_ring_u64(r, en->pos + at));
}

void cap_emit_record(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *en,
		     size_t cpu_index)
{
	if (en->size < least_size(en->type)) {
		sp_count(&e->counters, SP_C_skipped_records, 1);
		return;
	}
	if ((e->known_only || e->all_side_band) && en->type != PERF_RECORD_LOST &&
	    is_stranger(e, r, en)) {
		r->last_ns = en->time_ns;
		return;
	}
	switch (en->type) {
	case PERF_RECORD_SAMPLE:
		emit_sample(e, r, en, cpu_index);
		break;
	case PERF_RECORD_MMAP2:
		emit_mmap2(e, r, en);
		break;
	case PERF_RECORD_COMM:
		emit_comm_record(e, r, en, (uint16_t)(cap_ring_u64(r, en->pos) >> 32));
		break;
	case PERF_RECORD_FORK:
		emit_fork(e, r, en);
		break;
	case PERF_RECORD_EXIT:
		emit_exit(e, r, en);
		break;
	case PERF_RECORD_LOST:
		emit_lost(e, r, en, cpu_index);
		break;
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		emit_throttle(e, r, en, cpu_index);
		break;
	default:
		pass(e, r, en);
		break;
	}
	cap_emit_time(e, en->time_ns);
	r->last_ns = en->time_ns;
}

void cap_emit_round(struct cap_emit *e, const struct cap_ring *rings, bool always)
{
	uint64_t bytes = cap_output_bytes(e->out);
	if (!always && e->now_ns - e->round_ns < ROUND_NS && bytes - e->round_bytes < ROUND_BYTES)
		return;
	for (size_t i = 0; i < e->n_cpus; i++)
		tell_losses(e, &rings[i], i);
	if (begin(e, SP_PERF_FINISHED_ROUND, 0, 8)) {
		e->round_ns = e->now_ns;
		e->round_bytes = bytes;
	}
}
