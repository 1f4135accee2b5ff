/* jsonl: two tables for column stores (ClickHouse, DuckDB, Spark), one JSON object a line. --table
 * says which. Stacks have an id that comes from their content, so that equal stacks of different
 * recordings and hosts are one row; samples have the spool's id and their number in it, so that
 * loading a spool twice adds nothing (sp-sym.1, "jsonl"). */
#include "formats.h"
#include "wait.h"

#include <stdlib.h>

#include "base/stop.h"

/* FNV-1a, with a last mix. What comes out is stored in the tables of others: this never changes. */
#define HASH_START UINT64_C(14695981039346656037)

static uint64_t hash_bytes(uint64_t h, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)s[i]) * UINT64_C(1099511628211);
	return h;
}

/* With the end of the text, so that "ab", "c" and "a", "bc" differ. */
static uint64_t hash_text(uint64_t h, const char *s)
{
	return s ? hash_bytes(h, s, strlen(s) + 1) : hash_bytes(h, "\1", 2);
}

static uint64_t hash_number(uint64_t h, uint64_t n)
{
	char bytes[8];
	for (unsigned i = 0; i < 8; i++)
		bytes[i] = (char)(n >> 8 * i);
	return hash_bytes(h, bytes, sizeof bytes);
}

static uint64_t hash_end(uint64_t h)
{
	h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 32;
}

/* All that a stack's row shows of a level. */
static uint64_t level_hash(const struct view *v, uint32_t level)
{
	const struct view_func *f = view_level_func(v, level);
	const struct view_place *p = view_level_place(v, level);
	uint64_t h = hash_text(hash_text(HASH_START, f->name), f->module);
	h = hash_text(h, p->file ? p->file : f->file);
	h = hash_number(h, p->line);
	return hash_number(h, (uint64_t)f->kind << 1 | v->levels[level].inlined);
}

/* The id of each stack of the view; NULL when memory ends. */
static uint64_t *stack_ids(const struct view *v)
{
	uint64_t *ids = malloc((v->n_stacks + 1) * sizeof *ids);
	uint64_t *hashes = malloc((v->n_levels + 1) * sizeof *hashes);
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	bool ok = ids && hashes && levels;
	for (size_t i = 0; ok && i < v->n_levels; i++)
		hashes[i] = level_hash(v, (uint32_t)i);
	for (size_t i = 0; ok && i < v->n_stacks; i++) {
		size_t n = view_stack_levels(v, (uint32_t)i, levels);
		uint64_t h = HASH_START;
		for (size_t j = n; j-- > 0;)
			h = (h ^ hashes[levels[j]]) * UINT64_C(0xd6e8feb86659fd93) ^ h >> 29;
		ids[i] = hash_end(h);
	}
	free(hashes);
	free(levels);
	if (ok)
		return ids;
	free(ids);
	return NULL;
}

/* From what a recording is, not from how its spool was written: the same for a spool that was made
 * again from the same stream. */
static uint64_t spool_id(const struct view *v)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	uint64_t h = hash_text(hash_text(HASH_START, info->hostname), info->boot_id);
	h = hash_text(hash_text(h, info->osrelease), info->cmdline);
	h = hash_number(hash_number(h, info->start_timestamp_us), info->sample_interval_us);
	h = hash_number(hash_number(h, info->first_ns), info->wall_ns);
	for (uint32_t i = 0; i < sp_spool_n_origins(v->spool); i++) {
		struct sp_spool_origin origin = sp_spool_origin(v->spool, i);
		h = hash_text(hash_text(h, origin.hostname), origin.boot_id);
	}
	if (sp_spool_n_threads(v->spool)) {
		const struct sp_spool_thread *t = sp_spool_thread(v->spool, 0);
		h = hash_number(h, (uint64_t)(uint32_t)t->pid << 32 | (uint32_t)t->tid);
	}
	return hash_end(h);
}

static const char *const kinds[] = {
	[VIEW_NATIVE] = "native",     [VIEW_PYTHON] = "python",   [VIEW_JIT] = "jit",
	[VIEW_KERNEL] = "kernel",     [VIEW_ADDRESS] = "address", [VIEW_TRUNCATED] = "truncated",
	[VIEW_NO_STACK] = "no-stack", [VIEW_GROUP] = "group",
};

static void begin_list(struct out *o, const char *name)
{
	out_str(o, ",\"");
	out_str(o, name);
	out_str(o, "\":[");
}

/* One column of a stack, root first. */
static void write_column(const struct view *v, struct out *o, const char *name,
			 const uint32_t *levels, size_t n,
			 void (*write)(const struct view *v, struct out *o, uint32_t level))
{
	begin_list(o, name);
	for (size_t j = n; j-- > 0;) {
		write(v, o, levels[j]);
		if (j)
			out_char(o, ',');
	}
	out_char(o, ']');
}

static void write_name(const struct view *v, struct out *o, uint32_t level)
{
	const char *name = view_level_func(v, level)->name;
	out_json(o, *name ? name : "?");
}

static void write_module(const struct view *v, struct out *o, uint32_t level)
{
	out_json(o, view_level_func(v, level)->module);
}

static void write_file(const struct view *v, struct out *o, uint32_t level)
{
	const char *file = view_level_place(v, level)->file;
	file = file ? file : view_level_func(v, level)->file;
	out_json(o, file ? file : "");
}

static void write_number(const struct view *v, struct out *o, uint32_t level)
{
	out_u64(o, view_level_place(v, level)->line);
}

static void write_kind(const struct view *v, struct out *o, uint32_t level)
{
	out_json(o, v->levels[level].inlined ? "inlined" : kinds[view_level_func(v, level)->kind]);
}

/* Each id once, in the order in which the stacks first appear. */
static int write_stacks(struct view *v, struct out *o, const uint64_t *ids, struct sp_err *err)
{
	struct sp_map64 seen = {0};
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	bool ok = levels != NULL;
	for (size_t i = 0; ok && i < v->n_rows && sp_stop_level() < 2; i++) {
		uint32_t stack = v->rows[i].stack;
		if (!v->rows[i].n || sp_map64_get(&seen, ids[stack]) != SP_NOT_FOUND)
			continue;
		ok = sp_map64_put(&seen, ids[stack], 0);
		size_t n = view_stack_levels(v, stack, levels);
		out_str(o, "{\"stack_id\":");
		out_u64(o, ids[stack]);
		write_column(v, o, "frames", levels, n, write_name);
		write_column(v, o, "modules", levels, n, write_module);
		write_column(v, o, "files", levels, n, write_file);
		write_column(v, o, "lines", levels, n, write_number);
		write_column(v, o, "kinds", levels, n, write_kind);
		out_str(o, "}\n");
	}
	sp_map64_deinit(&seen);
	free(levels);
	return ok ? 0 : sp_err_nomem(err);
}

/* What a line repeats, made once: of each task, then of each event. */
struct texts {
	struct out text;
	size_t *at;    /* owned; one more at the end */
	size_t events; /* where these begin in at[] */
};

static void write_task(const struct view *v, struct out *o, const struct view_task *t)
{
	uint32_t origin = sp_spool_thread(v->spool, t->thread)->origin;
	out_str(o, ",\"host\":");
	out_json(o, sp_spool_origin(v->spool, origin).hostname);
	out_str(o, ",\"pid\":");
	out_i64(o, t->pid);
	out_str(o, ",\"tid\":");
	out_i64(o, t->tid);
	out_str(o, ",\"comm\":");
	out_json(o, t->comm);
}

static bool make_texts(struct texts *t, const struct view *v)
{
	size_t n_events = sp_spool_n_events(v->spool), n = 0;
	*t = (struct texts){.text = {.memory = true}, .events = v->n_tasks};
	t->at = malloc((v->n_tasks + n_events + 1) * sizeof *t->at);
	for (size_t i = 0; t->at && i < v->n_tasks; i++) {
		t->at[n++] = t->text.buf.len;
		write_task(v, &t->text, &v->tasks[i]);
	}
	for (uint32_t i = 0; t->at && i < n_events; i++) {
		t->at[n++] = t->text.buf.len;
		out_str(&t->text, ",\"event\":");
		out_json(&t->text, sp_spool_event(v->spool, i)->name);
		out_str(&t->text, ",\"cpu\":");
	}
	if (t->at)
		t->at[n] = t->text.buf.len;
	return t->at && !t->text.buf.failed;
}

static void add_text(struct out *o, const struct texts *t, size_t i)
{
	out_add(o, t->text.buf.data + t->at[i], t->at[i + 1] - t->at[i]);
}

/* Of a time off the CPU; what is not known is left out. */
static void write_wait(const struct view *v, struct out *o, uint32_t wait)
{
	struct sp_spool_wait w = sp_spool_wait(v->spool, wait);
	out_str(o, ",\"state\":");
	out_json(o, sp_spool_wait_state(w.state));
	if (!w.waker_tid)
		return;
	out_printf(o, ",\"waker_pid\":%d,\"waker_tid\":%d,\"waker_comm\":", w.waker_pid,
		   w.waker_tid);
	out_json(o, wait_comm(&w));
}

static int write_samples(struct view *v, struct out *o, const uint64_t *ids, struct sp_err *err)
{
	static const char time[] = ",\"time_ns\":", stack[] = ",\"stack_id\":",
			  weight[] = ",\"weight\":";
	struct texts t;
	struct view_sample s;
	struct sp_buf begin = {0};
	sp_buf_printf(&begin, "{\"spool_id\":%llu,\"seq\":", (unsigned long long)spool_id(v));
	int r = make_texts(&t, v) && !begin.failed ? 1 : sp_err_nomem(err);
	view_rewind(v);
	v->by_stack.base = ids;
	v->by_stack.size = sizeof *ids;
	while (r > 0 && sp_stop_level() < 2 && (r = view_next(v, &s, err)) > 0) {
		const struct view_row *row = &v->rows[s.row];
		uint64_t wall_ns = view_wall_ns(v, s.time_ns);
		if (!out_room(o, begin.len + 2 * OUT_DIGITS + sizeof time))
			break;
		uint8_t *p = out_put(o->buf.data + o->buf.len, begin.data, begin.len);
		p = out_put(out_put_u64(p, s.seq), time, sizeof time - 1);
		p = out_put_u64(p, wall_ns ? wall_ns : s.time_ns);
		o->buf.len = (size_t)(p - o->buf.data);
		add_text(o, &t, v->lanes[s.lane].task);
		add_text(o, &t, t.events + row->event);
		if (!out_room(o, 3 * OUT_DIGITS + sizeof stack + sizeof weight))
			break;
		p = o->buf.data + o->buf.len;
		p = s.cpu == UINT32_MAX ? out_put(p, "-1", 2) : out_put_u64(p, s.cpu);
		p = out_put_u64(out_put(p, stack, sizeof stack - 1), ids[row->stack]);
		p = out_put_u64(out_put(p, weight, sizeof weight - 1), s.weight);
		o->buf.len = (size_t)(p - o->buf.data);
		if (row->wait)
			write_wait(v, o, row->wait);
		out_add(o, "}\n", 2);
	}
	free(t.at);
	sp_buf_deinit(&begin);
	sp_buf_deinit(&t.text.buf);
	return r < 0 ? r : 0;
}

int format_jsonl(struct view *v, struct out *o, struct sp_err *err)
{
	uint64_t *ids = stack_ids(v);
	if (!ids)
		return sp_err_nomem(err);
	int r = v->opt->stacks_table ? write_stacks(v, o, ids, err) : write_samples(v, o, ids, err);
	free(ids);
	return r;
}
