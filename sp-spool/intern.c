#include "intern.h"

#include <stdlib.h>

#define N_THREADS 4096u    /* powers of two */
#define MIN_CHAINS 1024u
#define MAX_CHAINS (1u << 19)
#define MIN_ADDRS 4096u
#define MAX_ADDRS (1u << 16)
#define MIN_ROOTS 2048u
#define MAX_ROOTS (1u << 15)
/* A set of so many modules is left behind for a new one, which begins empty: who looks for a module
 * here, in the writer and in a reader goes through all of the set. Few processes run code of so
 * many files. */
#define SET_FULL 8192u
/* Forked children begin with so many modules of their parents' before it has to be less than what
 * is put anew: a copy is short in the file, but not in a reader's memory. */
#define FREE_COPIES (UINT64_C(1) << 18)
#define ROOT_STEP 4u /* every so many frames from the root a part is remembered */

int spool_intern_init(struct spool_intern *x, struct sp_spool_writer *w,
		      const struct sp_reader *reader, const uint64_t seed[2], struct sp_err *err)
{
	*x = (struct spool_intern){.w = w, .reader = reader, .version = 1, .kset = SP_NONE,
				   .chain_mask = MIN_CHAINS - 1,
				   .addr_mask = MIN_ADDRS - 1, .root_mask = MIN_ROOTS - 1,
				   .seed = {seed[0], seed[1]}};
	x->procs = sp_procs_new();
	x->threads = calloc(N_THREADS, sizeof *x->threads);
	x->addrs = calloc(x->addr_mask + 1, sizeof *x->addrs);
	x->chains = calloc(x->chain_mask + 1, sizeof *x->chains);
	x->odd = calloc(x->chain_mask + 1, sizeof *x->odd);
	x->roots = calloc(x->root_mask + 1, sizeof *x->roots);
	if (!x->procs || !x->threads || !x->addrs || !x->chains || !x->odd || !x->roots) {
		spool_intern_deinit(x);
		return sp_err_nomem(err);
	}
	return 0;
}

void spool_intern_restart(struct spool_intern *x, struct sp_spool_writer *w)
{
	x->w = w;
	x->version++; /* threads are looked up anew */
	x->kset = SP_NONE;
	for (size_t i = 0; i < x->n_process; i++)
		x->process[i].set = SP_NONE;
	if (x->n_file)
		memset(x->file, 0, x->n_file * sizeof *x->file);
	memset(x->chains, 0, ((size_t)x->chain_mask + 1) * sizeof *x->chains);
	memset(x->roots, 0, ((size_t)x->root_mask + 1) * sizeof *x->roots);
	memset(x->addrs, 0, ((size_t)x->addr_mask + 1) * sizeof *x->addrs);
	x->n_chains = x->n_roots = x->n_addrs = 0;
}

bool spool_intern_runs(const struct spool_intern *x, int32_t pid)
{
	const struct sp_proc *proc = pid > 0 ? sp_procs_get(x->procs, pid) : NULL;
	return !proc || !proc->exited;
}

void spool_intern_deinit(struct spool_intern *x)
{
	if (x->procs)
		sp_procs_free(x->procs);
	spool_chain_deinit(&x->chain);
	sp_map64_deinit(&x->by_pid);
	free(x->process);
	free(x->file);
	free(x->threads);
	free(x->chains);
	free(x->odd);
	free(x->roots);
	free(x->root_hash);
	free(x->addrs);
	free(x->path);
	*x = (struct spool_intern){0};
}

/* Samples that were given keep the set. */
static void leave_set(struct spool_intern *x, struct spool_process *p)
{
	if (p->set != SP_NONE)
		sp_spool_drop_set(x->w, p->set);
	p->set = SP_NONE;
}

/* A set of which a module is gone is left behind. Neither a set's modules nor a space's mappings
 * overlap, and what is in the set was mapped so: the same start is the same module. */
static void leave_replaced(struct spool_intern *x, int32_t pid, const struct sp_mapping *m,
			   size_t n)
{
	uint32_t at = sp_map64_get(&x->by_pid, (uint32_t)pid);
	struct spool_process *p = at == SP_NOT_FOUND ? NULL : &x->process[at];
	if (!p || p->set == SP_NONE)
		return;
	for (size_t i = 0; i < n; i++) {
		if (sp_spool_set_has_start(x->w, p->set, m[i].start)) {
			leave_set(x, p);
			return;
		}
	}
}

int spool_intern_record(struct spool_intern *x, const struct sp_record *rec, struct sp_err *err)
{
	int rc = sp_procs_apply(x->procs, rec, err);
	if (rc == 0)
		return 0;
	x->version++;
	if (rc < 0)
		return rc;
	size_t n;
	const struct sp_mapping *replaced = sp_procs_replaced(x->procs, &n);
	if (n)
		leave_replaced(x, rec->pid, replaced, n);
	if (rec->type != SP_PERF_EXIT)
		return 0;
	/* The set of a process that has ended is not needed again; a late sample begins another. */
	uint32_t at = sp_map64_get(&x->by_pid, (uint32_t)rec->task.pid);
	const struct sp_proc *proc =
		at == SP_NOT_FOUND ? NULL : sp_procs_get(x->procs, rec->task.pid);
	if (proc && proc->exited)
		leave_set(x, &x->process[at]);
	return 0;
}

#define KERNEL_NAME "[kernel.kallsyms]"

/* The writer's number of a mapped file, or SP_NONE when memory ends. */
static uint32_t file_of(struct spool_intern *x, const struct sp_mapping *m)
{
	uint32_t file = m->file;
	if (file >= x->n_file) {
		if (!sp_grow(&x->file, &x->cap_file, file + 1, sizeof *x->file))
			return SP_NONE;
		memset(x->file + x->n_file, 0, (file + 1 - x->n_file) * sizeof *x->file);
		x->n_file = file + 1;
	}
	if (x->file[file])
		return x->file[file] - 1;
	const struct sp_file_id *id = sp_procs_file(x->procs, file);
	struct sp_spool_wfile f = {
		.path = id->path,
		.maj = id->maj,
		.min = id->min,
		.ino = id->ino,
		.ino_gen = id->ino_gen,
		.build_id = id->build_id.bytes,
		.build_id_len = id->build_id.len,
		.is_kernel = m->flags & SP_MAPPING_KERNEL,
		.is_anon = m->flags & SP_MAPPING_ANON,
	};
	/* The kernel's mapping is called after a symbol too: [kernel.kallsyms]_text. */
	bool core = f.is_kernel && !strncmp(id->path, KERNEL_NAME, sizeof KERNEL_NAME - 1);
	if (!f.build_id_len && !f.is_anon)
		f.build_id = sp_reader_build_id(x->reader, core ? KERNEL_NAME : id->path, id->maj,
						id->min, id->ino, &f.build_id_len);
	if (!f.build_id_len && !f.is_anon)
		f.content_hash =
			sp_reader_content_hash(x->reader, id->path, id->maj, id->min, id->ino);
	uint32_t number = sp_spool_put_file(x->w, &f);
	if (number != SP_NONE)
		x->file[file] = number + 1;
	return number;
}

/* --- sets --- */

/* Whether all modules of a set are mapped in a space just as the set says. */
static bool set_holds(struct spool_intern *x, uint32_t set, const struct sp_space *space)
{
	size_t n = sp_spool_set_n(x->w, set);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t start, end, foff;
		uint32_t file;
		sp_spool_set_module(x->w, set, i, &start, &end, &foff, &file);
		const struct sp_mapping *m = sp_space_find(space, start);
		if (!m || m->start != start || m->end != end || m->foff != foff ||
		    m->file >= x->n_file || x->file[m->file] != file + 1)
			return false;
	}
	return true;
}

static struct spool_process *find_process(struct spool_intern *x, int32_t pid)
{
	uint32_t at = sp_map64_get(&x->by_pid, (uint32_t)pid);
	if (at != SP_NOT_FOUND)
		return &x->process[at];
	struct spool_process *p = SP_PUSH(&x->process, &x->n_process, &x->cap_process);
	if (!p || !sp_map64_put(&x->by_pid, (uint32_t)pid, (uint32_t)x->n_process - 1))
		return NULL;
	*p = (struct spool_process){.pid = pid, .set = SP_NONE};
	return p;
}

/* A new set for a process: a forked child begins with its parent's, where that still fits. */
static uint32_t begin_set(struct spool_intern *x, const struct sp_proc *proc)
{
	uint32_t at = proc->ppid > 0 ? sp_map64_get(&x->by_pid, (uint32_t)proc->ppid) : SP_NOT_FOUND;
	uint32_t parent = at == SP_NOT_FOUND ? SP_NONE : x->process[at].set;
	size_t n = parent == SP_NONE ? 0 : sp_spool_set_n(x->w, parent);
	if (!n || x->n_copied + n > FREE_COPIES + x->n_put)
		return sp_spool_put_set(x->w, x->origin, proc->pid, SP_NONE);
	x->n_copied += n;
	return sp_spool_put_set(x->w, x->origin, proc->pid,
				set_holds(x, parent, proc->space) ? parent : SP_NONE);
}

/* The set that a process's samples name now. */
static int update_process(struct spool_intern *x, struct spool_process *p,
			  const struct sp_proc *proc, struct sp_err *err)
{
	bool same = p->generation == proc->generation && p->exec_count == proc->exec_count &&
		    p->serial == proc->serial;
	if (p->set != SP_NONE && same)
		return 0;
	leave_set(x, p);
	p->set = begin_set(x, proc);
	if (p->set == SP_NONE)
		return sp_err_nomem(err);
	p->generation = proc->generation;
	p->exec_count = proc->exec_count;
	p->serial = proc->serial;
	return 0;
}

/* --- threads --- */

static int look_up_thread(struct spool_intern *x, struct spool_thread *t, int32_t pid, int32_t tid,
			  struct sp_err *err)
{
	const char *comm = pid < 0 ? "" : sp_procs_comm(x->procs, pid, tid);
	*t = (struct spool_thread){.pid = pid, .tid = tid};
	t->thread = sp_spool_put_thread(x->w, x->origin, pid, tid);
	t->comm = sp_spool_put_string(x->w, comm, strlen(comm));
	t->process = SP_NONE;
	if (t->thread == SP_NONE || t->comm == SP_NONE)
		return sp_err_nomem(err);
	if (pid >= 0) {
		struct spool_process *p = find_process(x, pid);
		const struct sp_proc *proc = sp_procs_get(x->procs, pid);
		if (!p || !proc)
			return sp_err_nomem(err);
		int rc = update_process(x, p, proc, err);
		if (rc < 0)
			return rc;
		t->process = (uint32_t)(p - x->process);
		t->space = proc->space->generation;
	}
	t->version = x->version;
	return 0;
}

/* --- addresses --- */

static uint32_t site_in(struct spool_intern *x, const struct sp_mapping *m, uint32_t set,
			uint64_t addr)
{
	uint32_t file = file_of(x, m);
	x->n_put++;
	uint32_t n = file == SP_NONE
			     ? SP_NONE
			     : sp_spool_put_module(x->w, set, m->start, m->end, m->foff, file);
	return n == SP_NONE ? SP_NONE : sp_spool_put_site(x->w, set, n, addr);
}

/* The kernel's modules go into one set of their own; the frame is the bare address. */
static bool note_kernel_module(struct spool_intern *x, uint64_t addr)
{
	const struct sp_mapping *m = sp_space_find(sp_procs_kernel(x->procs), addr);
	if (!m)
		return true;
	if (x->kset == SP_NONE)
		x->kset = sp_spool_put_set(x->w, x->origin, -1, SP_NONE);
	uint32_t file = x->kset == SP_NONE ? SP_NONE : file_of(x, m);
	return file != SP_NONE && sp_spool_put_module(x->w, x->kset, m->start, m->end, m->foff,
						      file) != SP_NONE;
}

static uint64_t space_of(const struct spool_intern *x, const struct spool_thread *t,
			 const struct spool_entry *e)
{
	if (e->mode == SPOOL_KERNEL)
		return sp_procs_kernel(x->procs)->generation;
	bool process = e->mode == SPOOL_USER && t->process != SP_NONE;
	return process ? t->space : UINT64_MAX; /* no space */
}

static struct spool_known_addr *addr_slot(const struct spool_intern *x, uint64_t addr,
					  uint64_t space)
{
	return &x->addrs[sp_mix64(addr ^ space * UINT64_C(0x9e3779b97f4a7c15)) & x->addr_mask];
}

/* The tables of addresses and of roots double when half of their places are taken: of two that meet
 * at one place the later drives the other out. Without memory they stay as they are. */
static void grow_addrs(struct spool_intern *x)
{
	uint32_t size = x->addr_mask + 1;
	if (x->n_addrs < size / 2)
		return;
	struct spool_known_addr *old = x->addrs;
	struct spool_known_addr *fresh =
		size < MAX_ADDRS ? calloc((size_t)size * 2, sizeof *fresh) : NULL;
	if (!fresh)
		return;
	x->addrs = fresh;
	x->addr_mask = size * 2 - 1;
	for (uint32_t i = 0; i < size; i++)
		if (old[i].frame_1)
			*addr_slot(x, old[i].addr, old[i].space) = old[i];
	free(old);
}

static uint32_t frame_of(struct spool_intern *x, const struct spool_thread *t,
			 const struct spool_entry *e)
{
	bool kernel = e->mode == SPOOL_KERNEL;
	bool process = e->mode == SPOOL_USER && t->process != SP_NONE;
	uint64_t space = space_of(x, t, e);
	uint32_t set = process ? x->process[t->process].set : SP_NONE;
	struct spool_known_addr *known = addr_slot(x, e->addr, space);
	if (known->addr == e->addr && known->space == space && known->set == set &&
	    known->frame_1)
		return known->frame_1 - 1;
	const struct sp_mapping *m = process && x->space ? sp_space_find(x->space, e->addr) : NULL;
	uint32_t frame;
	if (m)
		frame = site_in(x, m, set, e->addr);
	else if (kernel && !note_kernel_module(x, e->addr))
		frame = SP_NONE;
	else
		frame = sp_spool_put_addr(x->w, e->addr, kernel);
	x->n_addrs += !known->frame_1;
	*known = (struct spool_known_addr){
		.addr = e->addr, .space = space, .frame_1 = frame + 1, .set = set};
	grow_addrs(x);
	return frame;
}

/* --- chains --- */

/* What decides, besides its entries, which stack a chain is. */
static struct spool_hash hash_seed(const struct spool_intern *x, const struct spool_thread *t,
				   const struct sp_record *rec)
{
	struct spool_hash h = {.h1 = x->seed[0], .h2 = x->seed[1] ^ sp_record_cpumode(rec)};
	if (t->process != SP_NONE) {
		/* The space's generation may stay while the set changes (exec without maps). Both
		 * halves must know them: what a process does again after each change of its maps
		 * differs in nothing else. */
		uint64_t in = sp_mix64(t->space * UINT64_C(0x9e3779b97f4a7c15) +
				       x->process[t->process].set);
		h.h1 ^= in;
		h.h2 += in;
	}
	h.h2 += sp_procs_kernel(x->procs)->generation * UINT64_C(0x9e3779b97f4a7c15);
	return h;
}

static inline void hash_add(struct spool_hash *h, uint64_t v)
{
	h->h1 = (h->h1 ^ v) * UINT64_C(0xff51afd7ed558ccd);
	h->h1 ^= h->h1 >> 32;
	h->h2 = (h->h2 + v) * UINT64_C(0xc4ceb9fe1a85ec53);
	h->h2 = h->h2 << 29 | h->h2 >> 35;
}

static struct spool_hash hash_chain(struct spool_hash h, const struct sp_record *rec)
{
	const struct sp_perf_sample *s = &rec->sample;
	uint64_t n = s->has_chain ? s->n_chain : 0;
	h.h2 ^= n << 8;
	hash_add(&h, s->has_ip ? s->ip : 0);
	for (uint64_t i = 0; i < n; i++)
		hash_add(&h, sp_get64(s->chain + i * 8));
	uint64_t n_calls = spool_chain_has_calls(rec) ? s->n_branches * 3 : 0;
	for (uint64_t i = 0; i < n_calls; i++)
		hash_add(&h, sp_get64(s->branches + i * 8));
	return (struct spool_hash){sp_mix64(h.h1), sp_mix64(h.h2) | 1};
}

static uint32_t chain_slot(const struct spool_intern *x, uint32_t at, uint32_t h1, uint64_t h2)
{
	uint32_t i = at & x->chain_mask;
	while (x->chains[i].h2 && (x->chains[i].h1 != h1 || x->chains[i].h2 != h2))
		i = (i + 1) & x->chain_mask;
	return i;
}

static struct spool_known_root *root_slot(const struct spool_intern *x, uint64_t h1)
{
	return &x->roots[sp_mix64(h1) & x->root_mask];
}

static void grow_roots(struct spool_intern *x)
{
	uint32_t size = x->root_mask + 1;
	if (x->n_roots < size / 2)
		return;
	struct spool_known_root *old = x->roots;
	struct spool_known_root *fresh =
		size < MAX_ROOTS ? calloc((size_t)size * 2, sizeof *fresh) : NULL;
	if (!fresh)
		return;
	x->roots = fresh;
	x->root_mask = size * 2 - 1;
	for (uint32_t i = 0; i < size; i++)
		if (old[i].h2)
			*root_slot(x, old[i].h1) = old[i];
	free(old);
}

static void add_root(struct spool_intern *x, const struct spool_hash *h, uint32_t node)
{
	struct spool_known_root *k = root_slot(x, h->h1);
	x->n_roots += !k->h2;
	*k = (struct spool_known_root){h->h1, h->h2, node};
	grow_roots(x);
}

/* At half full the table doubles; at its largest it begins anew. */
static void make_room(struct spool_intern *x)
{
	uint32_t size = x->chain_mask + 1;
	if (x->n_chains < size / 2)
		return;
	struct spool_known_chain *old = x->chains;
	uint8_t *old_odd = x->odd;
	struct spool_known_chain *fresh =
		size < MAX_CHAINS ? calloc((size_t)size * 2, sizeof *fresh) : NULL;
	uint8_t *odd = fresh ? calloc((size_t)size * 2, sizeof *odd) : NULL;
	if (!odd) {
		free(fresh);
		memset(old, 0, size * sizeof *old);
		x->n_chains = 0;
		return;
	}
	x->chains = fresh;
	x->odd = odd;
	x->chain_mask = size * 2 - 1;
	for (uint32_t i = 0; i < size; i++)
		if (old[i].h2) {
			uint32_t to = chain_slot(x, (uint32_t)(old[i].h2 >> 1), old[i].h1, old[i].h2);
			x->chains[to] = old[i];
			x->odd[to] = old_odd[i];
		}
	free(old);
	free(old_odd);
}

/* How many frames from the root are known as a node already: the deepest remembered part, whose
 * node is *node. Fills root_hash. */
static size_t find_root(struct spool_intern *x, struct spool_hash h, uint32_t *node)
{
	const struct spool_chain *c = &x->chain;
	size_t known = 0;
	hash_add(&h, c->truncated);
	for (size_t i = 0; i < c->n; i++) {
		const struct spool_entry *e = &c->v[c->n - 1 - i];
		hash_add(&h, e->addr);
		h.h2 += (uint64_t)e->mode;
		x->root_hash[i] = (struct spool_hash){h.h1, h.h2 | 1};
		if ((i + 1) % ROOT_STEP == 0)
			__builtin_prefetch(root_slot(x, h.h1));
	}
	for (size_t n = c->n ? (c->n - 1) / ROOT_STEP * ROOT_STEP : 0; n; n -= ROOT_STEP) {
		const struct spool_hash *r = &x->root_hash[n - 1];
		const struct spool_known_root *k = root_slot(x, r->h1);
		if (k->h1 == r->h1 && k->h2 == r->h2) {
			*node = k->node;
			known = n;
			break;
		}
	}
	return known;
}

/* Not held, so that the next mapping need not copy it: it may have gone when its process was one of
 * too many. */
static void set_space(struct spool_intern *x, const struct spool_thread *t)
{
	const struct sp_proc *proc =
		t->process == SP_NONE ? NULL : sp_procs_get(x->procs, t->pid);
	x->space = proc && proc->space->generation == t->space ? proc->space : NULL;
}

/* The stack of a chain that was not seen before. */
static int build_stack(struct spool_intern *x, const struct spool_thread *t,
		       const struct sp_record *rec, struct spool_hash seed, uint32_t *out,
		       struct sp_err *err)
{
	struct spool_chain *c = &x->chain;
	set_space(x, t);
	if (!spool_chain_fill(c, rec, x->site) ||
	    !sp_grow(&x->path, &x->cap_path, c->n, sizeof *x->path) ||
	    !sp_grow(&x->root_hash, &x->cap_root_hash, c->n, sizeof *x->root_hash))
		return sp_err_nomem(err);
	uint32_t stack = SP_NONE;
	size_t known = find_root(x, seed, &stack);
	for (size_t i = 0; i < c->n - known; i++) /* the table is larger than most caches */
		__builtin_prefetch(addr_slot(x, c->v[i].addr, space_of(x, t, &c->v[i])));
	for (size_t i = 0; i < c->n - known; i++) {
		x->path[i] = frame_of(x, t, &c->v[i]);
		if (x->path[i] == SP_NONE)
			return sp_err_nomem(err);
	}
	if (!known && c->truncated)
		stack = sp_spool_put_node(x->w, SP_NONE, SP_SPOOL_MARKER);
	for (size_t n = known + 1; n <= c->n; n++) {
		stack = sp_spool_put_node(x->w, stack, x->path[c->n - n]);
		if (stack == SP_NONE)
			return sp_err_nomem(err);
		if (n % ROOT_STEP == 0 && n < c->n)
			add_root(x, &x->root_hash[n - 1], stack);
	}
	*out = stack;
	return 0;
}

/* A chain's stack, remembered when it is new. */
static int find_stack(struct spool_intern *x, const struct spool_thread *t,
		      const struct sp_record *rec, struct spool_placed *out, struct sp_err *err)
{
	struct spool_hash seed = hash_seed(x, t, rec), h = hash_chain(seed, rec);
	uint32_t at = chain_slot(x, (uint32_t)(h.h2 >> 1), (uint32_t)(h.h1 >> 32), h.h2);
	const struct spool_known_chain *known = &x->chains[at];
	if (known->h2) {
		out->stack = (known->odd_stack & ~SPOOL_ODD) - 1;
		uint32_t odd = known->odd_stack & SPOOL_ODD ? x->odd[at] : 0;
		out->truncated = odd & 1;
		out->n_zeros = odd >> 1;
		return 0;
	}
	int rc = build_stack(x, t, rec, seed, &out->stack, err);
	if (rc < 0)
		return rc;
	out->truncated = x->chain.truncated;
	out->n_zeros = (uint32_t)x->chain.n_zeros;
	if (out->n_zeros > UINT8_MAX / 2 || out->stack + 1 >= SPOOL_ODD)
		return 0; /* so odd that it is built each time */
	make_room(x);
	at = chain_slot(x, (uint32_t)(h.h2 >> 1), (uint32_t)(h.h1 >> 32), h.h2);
	bool odd = out->truncated || out->n_zeros;
	x->chains[at] = (struct spool_known_chain){
		.h2 = h.h2,
		.h1 = (uint32_t)(h.h1 >> 32),
		.odd_stack = (out->stack + 1) | (odd ? SPOOL_ODD : 0),
	};
	x->odd[at] = (uint8_t)(out->n_zeros << 1 | out->truncated);
	x->n_chains++;
	return 0;
}

int spool_intern_sample(struct spool_intern *x, const struct sp_record *rec,
			struct spool_placed *out, struct sp_err *err)
{
	int32_t pid = rec->has_tid && rec->pid >= 0 ? rec->pid : -1;
	int32_t tid = rec->has_tid && rec->tid >= 0 ? rec->tid : -1;
	struct spool_thread *t =
		&x->threads[sp_mix64((uint64_t)(uint32_t)pid << 32 | (uint32_t)tid) &
			    (N_THREADS - 1)];
	if (t->version != x->version || t->pid != pid || t->tid != tid) {
		int rc = look_up_thread(x, t, pid, tid, err);
		if (rc < 0)
			return rc;
	}
	if (t->process != SP_NONE && sp_spool_set_n(x->w, x->process[t->process].set) >= SET_FULL) {
		struct spool_process *p = &x->process[t->process];
		leave_set(x, p);
		p->set = sp_spool_put_set(x->w, x->origin, pid, SP_NONE);
		if (p->set == SP_NONE)
			return sp_err_nomem(err);
	}
	out->thread = t->thread;
	out->comm = t->comm;
	out->set = t->process == SP_NONE ? SP_NONE : x->process[t->process].set;
	return find_stack(x, t, rec, out, err);
}
