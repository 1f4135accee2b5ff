#define _GNU_SOURCE
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/stop.h"
#include "ends.h"
#include "live.h"
#include "pool.h"
#include "tails.h"

#define ROUND_NS UINT64_C(1000000000) /* stream.md: a round each second and each 16 MiB */
#define FLUSH_MS 250
#define ROUND_BYTES (UINT64_C(16) << 20)
/* Of this thread's CPU time without having waited for input: then there is work for others. */
#define BACKLOG_NS UINT64_C(50000000)

struct run {
	const struct un_options *o;
	struct un_result *result;
	struct sp_reader *r;
	struct sp_writer *w;
	struct un_ends ends;
	struct un_pool *pool;
	struct sp_procs *procs;
	struct un_modules *modules;
	struct sp_ext_joiner *joiner;
	struct un_tails tails;
	bool is_host;
	/* The kernel's mapping, as long as nothing else says whether the kernel is ours. */
	char kernel_symbol[64]; /* empty: none */
	uint64_t kernel_start, kernel_bytes;
	bool has_machine, has_origin, input_is_site, has_help;
	uint16_t machine;               /* EM_NONE: not set yet; a guess until has_machine */
	bool is_live_stream;            /* our start record, of this boot */
	uint64_t flushed_ms;            /* when the next stage was given what there was */
	uint64_t n_waits, busy_ns;      /* the last wait for input, this thread's CPU time then */
	uint64_t round_ns, round_bytes; /* the last FINISHED_ROUND's time, bytes since then */
};

static const uint8_t *build_id_of(void *ctx, const struct sp_file_id *file, uint8_t *len)
{
	const struct run *u = ctx;
	return sp_reader_build_id(u->r, file->path, file->maj, file->min, file->ino, len);
}

static const uint8_t *content_hash_of(void *ctx, const struct sp_file_id *file)
{
	const struct run *u = ctx;
	return sp_reader_content_hash(u->r, file->path, file->maj, file->min, file->ino);
}

static bool is_host(void *ctx)
{
	struct run *u = ctx;
	if (!u->is_host && u->kernel_symbol[0]) {
		u->is_host = un_is_kernel(u->kernel_symbol, u->kernel_start, u->kernel_bytes);
		u->kernel_symbol[0] = '\0'; /* once */
	}
	return u->is_host;
}

/* Once the head has been read: where the stream comes from. */
static void set_origin(struct run *u)
{
	const struct sp_perf_info *info = sp_reader_info(u->r);
	const struct un_origin origin = {
		.is_live = u->is_live_stream && info->clockid == 1, /* CLOCK_MONOTONIC */
		.is_host = is_host,
		.build_id = build_id_of,
		.content_hash = content_hash_of,
		.ctx = u,
	};
	un_modules_origin(u->modules, &origin);
	u->is_host = un_is_host(info->hostname, info->osrelease);
	u->input_is_site = info->chain_is_site;
	u->has_origin = true;
}

/* A perf.data file on a pipe tells its machine behind its data, and a killed perf never; but the
 * kernel's mapping comes first in every recording. */
static void meet_kernel(struct run *u, const struct sp_record *rec)
{
	static const char kernel[] = "[kernel.kallsyms]";
	if (rec->type != SP_PERF_MMAP || rec->pid != -1 || sp_reader_info(u->r)->hostname ||
	    u->is_host || u->kernel_symbol[0] || sp_record_cpumode(rec) != SP_CPUMODE_KERNEL ||
	    strncmp(rec->mmap.path, kernel, sizeof kernel - 1) != 0)
		return;
	const char *symbol = strrchr(rec->mmap.path, ']') + 1;
	if (strlen(symbol) >= sizeof u->kernel_symbol)
		return;
	memcpy(u->kernel_symbol, symbol, strlen(symbol) + 1);
	u->kernel_start = rec->mmap.start;
	u->kernel_bytes = rec->mmap.len;
}

/* EM_NONE for no name; a machine that the engine does not know stays without registers. */
static uint16_t machine_of(const char *arch)
{
	static const struct {
		const char *name;
		uint16_t machine;
	} names[] = {{"x86_64", EM_X86_64}, {"aarch64", EM_AARCH64},
		     {"arm64", EM_AARCH64}, {"i386", EM_386},
		     {"i486", EM_386},      {"i586", EM_386},
		     {"i686", EM_386},      {"x86", EM_386},
		     {"arm", EM_ARM},       {"ppc", EM_PPC64},
		     {"s390", EM_S390},     {"riscv", EM_RISCV},
		     {"mips", EM_MIPS},     {"", EM_NONE}};
	for (size_t i = 0; arch && i < sizeof names / sizeof *names; i++)
		if (!strncmp(arch, names[i].name, strlen(names[i].name)))
			return names[i].machine;
	return EM_NONE;
}

/* From the recording's own words, else from the files that it names, else this machine's. */
static int set_machine(struct run *u, const struct uw_space *space, struct sp_err *err)
{
	uint16_t machine = machine_of(sp_reader_info(u->r)->arch);
	if (machine == EM_NONE)
		machine = un_modules_machine(space);
	u->has_machine = machine != EM_NONE;
#if defined(__aarch64__)
	if (!u->has_machine)
		machine = EM_AARCH64;
#else
	if (!u->has_machine)
		machine = EM_X86_64;
#endif
	if (machine == u->machine)
		return 0;
	int rc = un_pool_drain(u->pool, err);
	un_pool_set_machine(u->pool, machine);
	u->machine = machine;
	return rc;
}

/* --- batches --- */

static bool help_reading(void *r)
{
	return sp_reader_help(r);
}

static void wake_helpers(void *pool)
{
	un_pool_wake(pool);
}

static void take_help(struct run *u)
{
	u->has_help = true;
	if (u->o->n_workers > 1 && sp_reader_wants_help(u->r)) {
		un_pool_set_idle(u->pool, help_reading, u->r);
		sp_reader_on_help(u->r, wake_helpers, u->pool);
	}
}

/* Other threads are for input that is there already, and cost a fifth more CPU time than one alone:
 * for a file whose number of threads was not asked for, they come when it takes long. */
static int submit(struct run *u, struct sp_err *err)
{
	if (u->o->input_is_pipe || !u->o->has_n_workers) {
		uint64_t now = un_thread_ns();
		if (sp_reader_n_waits(u->r) != u->n_waits) {
			u->n_waits = sp_reader_n_waits(u->r);
			u->busy_ns = now;
		}
		bool alone = now - u->busy_ns < BACKLOG_NS;
		if (!alone && !u->has_help)
			take_help(u);
		un_pool_set_alone(u->pool, alone);
	}
	return un_pool_submit(u->pool, err);
}

/* The next item to fill; its record lies in the reader's chunk. */
static struct un_item *next_item(struct run *u, const struct sp_late *late, enum un_action action)
{
	struct un_batch *b = un_pool_batch(u->pool);
	struct un_item *item = &b->items[b->n++];
	*item = (struct un_item){.late = *late, .action = action};
	b->bytes += late->size;
	u->round_bytes += late->whole;
	struct sp_chunk *chunk = sp_reader_chunk(u->r);
	uint32_t i = b->n_chunks;
	while (i > 0 && b->chunks[i - 1] != chunk)
		i--;
	if (!i) {
		sp_chunk_hold(chunk);
		b->chunks[b->n_chunks++] = chunk;
	}
	return item;
}

static int submit_full(struct run *u, struct sp_err *err)
{
	const struct un_batch *b = un_pool_batch(u->pool);
	size_t most = u->o->n_workers > 1 ? UN_BATCH_BYTES_SHARED : UN_BATCH_BYTES;
	bool full = b->n == UN_BATCH_ITEMS || b->bytes >= most;
	return full ? submit(u, err) : 0;
}

static int pass(struct run *u, const struct sp_record *rec, struct sp_err *err)
{
	const struct sp_late late = {.raw = rec->raw, .size = rec->size, .whole = rec->size};
	next_item(u, &late, UN_PASS);
	return submit_full(u, err);
}

static void hold_space(struct un_batch *b, struct sp_space *space)
{
	uint32_t i = b->n_spaces;
	while (i > 0 && b->spaces[i - 1] != space)
		i--;
	if (!i) {
		sp_space_hold(space);
		b->spaces[b->n_spaces++] = space;
	}
}

/* A stack whose rest came before it is put together here, where the parts are. */
static void join_stack(struct run *u, struct un_item *item)
{
	struct un_batch *b = un_pool_batch(u->pool);
	struct sp_record rec;
	size_t size;
	uint8_t *whole = sp_late_decode(&rec, &item->late) && rec.sample.regs && rec.sample.stack
				 ? un_tails_join(&u->tails, &rec, &size)
				 : NULL;
	if (!whole)
		return;
	item->is_joined = true;
	b->stacks[b->n_stacks++] = (struct un_joined){whole, size};
	b->bytes += size;
}

/* perf keeps everything in memory until a round ends: end one where the input does not. All that
 * follows is later. */
static int add_round(struct run *u, const struct sp_record *rec, struct sp_err *err)
{
	static const uint8_t bytes[8] = {SP_PERF_FINISHED_ROUND, 0, 0, 0, 0, 0, 8, 0};
	if (!rec->has_time ||
	    (u->round_bytes < ROUND_BYTES && rec->time_ns - u->round_ns < ROUND_NS))
		return 0;
	bool first = !u->round_ns;
	u->round_ns = rec->time_ns;
	if (first)
		return 0;
	u->round_bytes = 0;
	struct un_batch *b = un_pool_batch(u->pool);
	struct un_item *item = &b->items[b->n++];
	*item = (struct un_item){.late = {.raw = bytes, .size = sizeof bytes}, .action = UN_PASS};
	b->flush = true;
	return submit(u, err);
}

static uint64_t coarse_ms(void)
{
	struct timespec t = {0};
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Rounds are where a live stream takes breath: what is there goes on to the next stage. perf ends
 * hundreds a second; not each of them is worth a system call. */
static int on_round(struct run *u, const struct sp_record *rec, struct sp_err *err)
{
	u->round_bytes = 0;
	int rc = pass(u, rec, err);
	uint64_t now = coarse_ms();
	if (rc < 0 || now - u->flushed_ms < FLUSH_MS)
		return rc;
	u->flushed_ms = now;
	un_pool_batch(u->pool)->flush = true;
	return submit(u, err);
}

/* --- records --- */

static int on_sample(struct run *u, const struct sp_record *rec, struct sp_err *err)
{
	u->result->n_samples++;
	if (!rec->is_late) { /* malformed */
		sp_count(&u->result->counters, SP_C_rejected_samples, 1);
		return 0;
	}
	bool unwinds = un_attr_unwinds(&rec->event->attr);
	u->result->had_stacks |= unwinds;
	unsigned mode = sp_record_cpumode(rec);
	bool guest = mode == SP_CPUMODE_GUEST_KERNEL || mode == SP_CPUMODE_GUEST_USER;
	const struct uw_space *space = NULL;
	struct sp_proc *proc = NULL;
	if (unwinds && !guest && rec->pid >= 0) {
		proc = sp_procs_get(u->procs, rec->pid);
		space = proc ? un_modules_space(u->modules, proc->space, rec->pid, rec->time_ns)
			     : NULL;
		if (!space)
			return sp_err_nomem(err);
		if (!u->has_machine) {
			int rc = set_machine(u, space, err);
			if (rc < 0)
				return rc;
		}
	}
	bool chain = u->ends.site && !u->input_is_site;
	struct un_item *item = next_item(u, &rec->late, chain ? UN_CHAIN : UN_SAMPLE);
	if (space) {
		item->space = space;
		hold_space(un_pool_batch(u->pool), proc->space);
		if (u->tails.n)
			join_stack(u, item);
	}
	return submit_full(u, err);
}

static bool is_this_boot(const uint8_t *payload, size_t size)
{
	char now[40];
	size_t len;
	const char *then = sp_ext_value(payload, size, "boot_id", &len);
	return then && un_boot_id(now) && len == strlen(now) && !memcmp(then, now, len);
}

static int on_start(struct run *u, const struct sp_ext *e, struct sp_err *err)
{
	u->is_live_stream = is_this_boot(e->payload, e->payload_bytes);
	int rc = un_pool_drain(u->pool, err);
	return rc == 0 ? un_ends_start(&u->ends, e->payload, e->payload_bytes, err) : rc;
}

static int on_object(struct run *u, const struct sp_ext *e, struct sp_err *err)
{
	const uint8_t *payload;
	size_t size;
	struct sp_ext_object o;
	struct sp_err why;
	int rc = sp_ext_join(u->joiner, e, &payload, &size, &why);
	if (rc == 1 && sp_ext_object_decode(&o, payload, size, &why) >= 0)
		rc = un_modules_embed(u->modules, &o, &why);
	return rc == SP_ERR_NOMEM ? sp_err_nomem(err) : 0; /* a bad object is not used */
}

/* Used here; after unwinding there are no stacks. */
static int on_tail(struct run *u, const struct sp_ext *e, struct sp_err *err)
{
	const uint8_t *payload;
	size_t size;
	struct sp_err why;
	int rc = sp_ext_join(u->joiner, e, &payload, &size, &why);
	if (rc == SP_ERR_NOMEM || (rc == 1 && !un_tails_add(&u->tails, payload, size)))
		return sp_err_nomem(err);
	return 0;
}

/* Our own records: the start and end are ours to write, objects are used and passed on. */
static int on_ext(struct run *u, const struct sp_record *rec, struct sp_err *err)
{
	struct sp_ext e;
	int rc = sp_ext_parse(rec, &e, NULL);
	if (rc == 1 && e.kind == SP_EXT_START && !u->ends.started)
		return on_start(u, &e, err);
	if (rc == 1 && e.kind == SP_EXT_END) {
		un_ends_keep(&u->ends, e.payload, e.payload_bytes);
		return 0;
	}
	if (rc == 1 && e.kind == SP_EXT_STACK_TAIL)
		return on_tail(u, &e, err);
	if (rc < 0) {
		sp_count(&u->result->counters, SP_C_skipped_records, 1);
		return 0;
	}
	rc = rc == 1 && e.kind == SP_EXT_OBJECT ? on_object(u, &e, err) : 0;
	return rc < 0 ? rc : pass(u, rec, err);
}

static int on_record(struct run *u, const struct sp_record *rec, struct sp_err *err)
{
	int rc = 0;
	if (un_ends_takes(rec)) {
		rc = un_pool_drain(u->pool, err);
		return rc == 0 ? un_ends_head(&u->ends, rec, err) : rc;
	}
	if (rec->type == SP_PERF_HEADER_EVENT_TYPE)
		return on_ext(u, rec, err);
	if (!u->ends.started) {
		/* Records of ours that came before are on their way: the writer is the pool's. */
		rc = un_pool_drain(u->pool, err);
		if (rc == 0)
			rc = un_ends_start(&u->ends, NULL, 0, err);
	}
	if (rc == 0 && !u->has_origin)
		set_origin(u);
	if (rc == 0 && rec->type == SP_PERF_FINISHED_ROUND)
		return on_round(u, rec, err);
	if (rc == 0)
		rc = add_round(u, rec, err);
	if (rc < 0)
		return rc;
	if (rec->type == SP_PERF_SAMPLE)
		return on_sample(u, rec, err);
	if (rec->malformed) {
		sp_count(&u->result->counters, SP_C_skipped_records, 1);
		return 0;
	}
	meet_kernel(u, rec);
	rc = sp_procs_apply(u->procs, rec, err);
	return rc < 0 ? rc : pass(u, rec, err);
}

/* All records until the input or a signal ends it. *read_err: why reading failed, code 0: it did
 * not; what came before is still written. */
static int read_all(struct run *u, struct sp_err *read_err, struct sp_err *err)
{
	int enough = u->o->input_is_pipe ? 2 : 1;
	for (;;) {
		if (sp_stop_level() >= enough) {
			u->result->stopped = true;
			return 0;
		}
		struct sp_record rec;
		int rc = sp_reader_next(u->r, &rec, read_err);
		if (rc <= 0) {
			u->result->stopped = sp_stop_level() >= enough;
			return 0;
		}
		read_err->code = 0;
		rc = on_record(u, &rec, err);
		if (rc < 0)
			return rc;
	}
}

static int copy_paths(struct un_result *res, const struct sp_procs *procs)
{
	res->n_paths = sp_procs_n_files(procs);
	res->paths = calloc(res->n_paths + 1, sizeof *res->paths);
	if (!res->paths) {
		res->n_paths = 0;
		return SP_ERR_NOMEM;
	}
	for (size_t i = 0; i < res->stops.n_rows; i++) {
		uint32_t tag = res->stops.rows[i].tag;
		if (tag < res->n_paths && !res->paths[tag])
			res->paths[tag] = strdup(sp_procs_file(procs, tag)->path);
	}
	return 0;
}

static void set_state(struct run *u)
{
	struct un_result *res = u->result;
	res->state = sp_reader_state(u->r);
	snprintf(res->complaint, sizeof res->complaint, "%s", sp_reader_complaint(u->r));
	if (res->stopped && res->state == SP_INPUT_WHOLE)
		res->state = SP_INPUT_CUT;
	if (res->stopped && !*res->complaint)
		snprintf(res->complaint, sizeof res->complaint, "stopped by a signal");
	if (res->counters.v[SP_C_rejected_samples] && res->state == SP_INPUT_WHOLE)
		res->state = SP_INPUT_DAMAGED;
	res->is_ours = sp_reader_info(u->r)->is_ours;
}

static int finish(struct run *u, struct sp_err *err)
{
	int rc = un_pool_drain(u->pool, err);
	struct un_result *res = u->result;
	struct un_sums sums = {.counters = &res->counters, .stops = &res->stops};
	un_pool_sums(u->pool, &sums);
	res->worker_ns = sums.cpu_ns;
	res->had_chains = sums.had_chains;
	for (unsigned i = 0; i < UW_N_STOPS; i++)
		res->n_walked += res->stops.n[i];
	if (sums.bad.raw)
		sp_reader_reject(u->r, &sums.bad);
	set_state(u);
	res->n_by_path = un_modules_n_by_path(u->modules);
	if (rc == 0 && copy_paths(res, u->procs) < 0)
		rc = sp_err_nomem(err);
	if (rc == 0)
		rc = un_ends_finish(&u->ends, &res->counters, res->state, res->complaint, err);
	sp_counters_add(&res->counters, sp_reader_counters(u->r));
	return rc;
}

static int start(struct run *u, struct sp_err *err)
{
	unsigned flags = SP_READER_SHARE | SP_READER_TRIM | SP_READER_LATE;
	if (u->o->has_n_workers && u->o->n_workers > 1)
		flags |= SP_READER_SPLIT;
	int rc = sp_reader_open(&u->r, u->o->input, flags, err);
	if (rc < 0)
		return rc;
	rc = sp_writer_new(&u->w, u->o->out_fd, u->o->out_name, u->o->as_file, err);
	if (rc < 0)
		return rc;
	u->procs = sp_procs_new();
	u->modules = u->procs ? un_modules_new(u->procs, &u->o->modules) : NULL;
	u->joiner = sp_ext_joiner_new();
	if (!u->modules || !u->joiner)
		return sp_err_nomem(err);
	rc = un_pool_new(&u->pool, u->o->n_workers, u->w, err);
	if (rc == 0 && u->o->has_n_workers)
		take_help(u);
	return rc < 0 ? rc : un_ends_begin(&u->ends, u->w, u->r, err);
}

int un_run(const struct un_options *o, struct un_result *result, struct sp_err *err)
{
	struct run u = {.o = o, .result = result};
	*result = (struct un_result){0};
	struct sp_err read_err = {0};
	int rc = start(&u, err);
	if (rc == 0)
		rc = read_all(&u, &read_err, err);
	if (rc == 0)
		rc = finish(&u, err);
	if (rc == 0) {
		rc = sp_writer_finish(u.w, err);
		u.w = NULL;
	}
	/* Batches hold spaces, spaces hold images, chunks belong to the reader: in this order. Once
	 * all is written batches are empty, and the threads let go of the input meanwhile. */
	if (rc < 0) {
		un_pool_free(u.pool);
		u.pool = NULL;
	} else {
		sp_reader_done(u.r);
		un_pool_wake(u.pool);
	}
	un_ends_deinit(&u.ends);
	sp_writer_abandon(u.w);
	sp_ext_joiner_free(u.joiner);
	un_tails_deinit(&u.tails);
	sp_procs_free(u.procs);
	un_modules_free(u.modules);
	un_pool_free(u.pool);
	sp_reader_close(u.r);
	if (rc == 0 && read_err.code) {
		*err = read_err;
		rc = read_err.code;
	}
	return rc;
}

void un_result_deinit(struct un_result *r)
{
	un_stops_deinit(&r->stops);
	for (size_t i = 0; i < r->n_paths; i++)
		free(r->paths[i]);
	free(r->paths);
	*r = (struct un_result){0};
}
