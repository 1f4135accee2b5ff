#include "sym/resolver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/radix.h"
#include "sym/resolver_impl.h"
#include "sym/runtime.h"

#define QUEUED (SP_NOT_FOUND - 1) /* in known: added, not resolved yet */
#define MAX_WORKERS 64
#define VARIANT (UINT64_C(1) << 63) /* in keys, where processes have 31 bits */

/* What is known of a frame without looking anywhere. */
enum kind { KIND_TRUNCATED, KIND_KERNEL, KIND_FILE, KIND_JIT };

static void compare_boots(struct sp_resolver *r)
{
	const struct sp_spool_info *info = res_info(r);
	struct utsname u;
	if (info->hostname && *info->hostname)
		r->same_host = uname(&u) == 0 && !strcmp(u.nodename, info->hostname);
	else
		r->same_host = !r->spool; /* a list that says nothing is of here */
	struct sp_buf b = {0};
	if (info->boot_id && *info->boot_id) {
		r->boot = BOOT_OTHER;
		if (sp_file_read("/proc/sys/kernel/random/boot_id", 256, &b, NULL) >= 0) {
			while (b.len && b.data[b.len - 1] == '\n')
				b.len--;
			if (strlen(info->boot_id) == b.len && !memcmp(info->boot_id, b.data, b.len))
				r->boot = BOOT_SAME;
		}
	}
	sp_buf_deinit(&b);
}

/* Memory of which a process's own code is made: what has these names is no file. */
bool res_is_code_memory(const struct sp_spool_module *m)
{
	static const char *const prefixes[] = {"//anon",    "[anon",          "[heap]", "[stack",
					       "/dev/zero", "/anon_hugepage", "/SYSV"};
	if (m->is_anon || !m->path || !*m->path)
		return true;
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(m->path, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* Runtimes that map their code twice use memfds; but a memfd may hold an ELF file too. */
static bool is_memfd(const char *path)
{
	return path && !strncmp(path, "/memfd:", 7);
}

static const char *shown_base(struct sp_resolver *r, const struct sp_spool_module *m)
{
	if (m->is_kernel)
		return "[kernel]";
	size_t len;
	const char *base = sp_path_to_name(m->path, &len);
	struct sp_buf b = {0};
	sp_utf8_clean(&b, base, len);
	const char *out = b.failed ? NULL : sp_strpool_add(&r->names, (const char *)b.data, b.len);
	sp_buf_deinit(&b);
	return out;
}

static struct res_file *new_file(struct sp_resolver *r, const struct sp_spool_module *m)
{
	struct res_file *f = SP_PUSH(&r->files, &r->n_files, &r->files_cap);
	if (!f || !sp_map64_put(&r->file_by_number, m->file, (uint32_t)r->n_files - 1))
		return NULL;
	f->module = m->id;
	f->base = shown_base(r, m);
	f->is_python = sp_is_python_module(m->path);
	return f->base ? f : NULL;
}

/* The files of the modules that are new. */
static int add_files(struct sp_resolver *r, struct sp_err *err)
{
	size_t n = res_n_modules(r);
	if (!sp_grow(&r->file_of, &r->file_of_cap, n + 1, sizeof *r->file_of) ||
	    !sp_grow(&r->is_code, &r->is_code_cap, n + 1, sizeof *r->is_code))
		return sp_err_nomem(err);
	for (; r->n_file_of < n; r->n_file_of++) {
		const struct sp_spool_module *m = res_module(r, (uint32_t)r->n_file_of);
		uint32_t at = sp_map64_get(&r->file_by_number, m->file);
		if (at == SP_NOT_FOUND && !new_file(r, m))
			return sp_err_nomem(err);
		r->file_of[r->n_file_of] =
			at == SP_NOT_FOUND ? (uint32_t)r->n_files - 1 : at;
		r->is_code[r->n_file_of] = res_is_code_memory(m) ? RES_CODE_MEMORY
					   : is_memfd(m->path)   ? RES_CODE_MEMFD
								 : 0;
	}
	return 0;
}

static struct sp_resolver *make(struct sp_spool *spool, const struct sp_resolver_options *options)
{
	struct sp_resolver *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->spool = spool;
	if (options)
		r->options = *options;
	return r;
}

/* Hands r over, or frees it. */
static int finish_new(struct sp_resolver **out, struct sp_resolver *r, int rc, struct sp_err *err)
{
	if (rc >= 0) {
		compare_boots(r);
		rc = add_files(r, err);
	}
	if (rc < 0) {
		sp_resolver_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

int sp_resolver_new(struct sp_resolver **out, struct sp_spool *spool,
		    const struct sp_resolver_options *options, struct sp_err *err)
{
	struct sp_resolver *r = make(spool, options);
	return r ? finish_new(out, r, 0, err) : sp_err_nomem(err);
}

int sp_resolver_new_modules(struct sp_resolver **out, const struct sp_spool_module *modules,
			    size_t n, const struct sp_spool_info *info,
			    const struct sp_resolver_options *options, struct sp_err *err)
{
	struct sp_resolver *r = make(NULL, options);
	if (!r)
		return sp_err_nomem(err);
	return finish_new(out, r, res_list_init(r, modules, n, info, err), err);
}

void sp_resolver_free(struct sp_resolver *r)
{
	if (!r)
		return;
	res_native_deinit(r);
	for (size_t i = 0; i < r->n_files; i++)
		sp_symfile_close(r->files[i].symfile);
	free(r->files);
	free(r->file_of);
	free(r->is_code);
	sp_map64_deinit(&r->file_by_number);
	res_jit_refresh(r);
	free(r->jits);
	sp_map64_deinit(&r->jit_of);
	sp_map64_deinit(&r->dumped);
	sp_kallsyms_deinit(&r->kallsyms);
	free(r->kernel_addresses);
	free(r->asks);
	sp_map64_deinit(&r->known);
	free(r->results);
	free(r->stale);
	res_frames_deinit(r);
	res_list_deinit(r);
	sp_arena_deinit(&r->memory);
	sp_strpool_deinit(&r->names);
	sp_map64_deinit(&r->seen);
	free(r->shown);
	sp_buf_deinit(&r->text);
	free(r);
}

static const struct sp_spool_module *module_of(const struct sp_resolver *r,
					       const struct sp_spool_frame *f)
{
	return f->module < res_n_modules(r) ? res_module(r, f->module)
							: NULL;
}

static enum kind kind_of(const struct sp_resolver *r, const struct sp_spool_frame *f)
{
	if (f->mode == SP_FRAME_TRUNCATED)
		return KIND_TRUNCATED;
	if (f->mode == SP_FRAME_KERNEL)
		return KIND_KERNEL;
	bool has_file = f->module < r->n_file_of && !(r->is_code[f->module] & RES_CODE_MEMORY);
	return has_file ? KIND_FILE : KIND_JIT;
}

bool sp_resolver_is_own(const struct sp_resolver *r, const struct sp_spool_frame *f)
{
	enum kind kind = kind_of(r, f);
	return kind == KIND_JIT ||
	       (kind == KIND_FILE && r->is_code[f->module] & RES_CODE_MEMFD);
}

/* Files are the same for all processes; code made at run time is each process's own, and may be
 * another one at another time. */
static uint64_t key_of(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
		       uint64_t time_ns)
{
	uint32_t variant;
	if (!sp_resolver_is_own(r, f))
		return f->frame_id;
	if (sp_resolver_variant(r, pid, f, time_ns, &variant))
		return VARIANT | variant;
	return (uint64_t)((uint32_t)pid & INT32_MAX) << 32 | f->frame_id;
}

/* The resolver's own copy of a string that may go away. */
static const char *copy(struct sp_resolver *r, const char *s)
{
	return sp_strpool_add(&r->names, s, strlen(s));
}

/* The resolver's own copy of a string of a symfile, which stays: found again by its address. */
static const char *intern(struct sp_resolver *r, const char *s)
{
	uint32_t at = sp_map64_get(&r->seen, (uintptr_t)s);
	if (at != SP_NOT_FOUND)
		return r->shown[at];
	const char *own = sp_strpool_add(&r->names, s, strlen(s));
	const char **slot = own ? SP_PUSH(&r->shown, &r->n_shown, &r->shown_cap) : NULL;
	if (slot) {
		*slot = own;
		sp_map64_put(&r->seen, (uintptr_t)s, (uint32_t)r->n_shown - 1);
	}
	return own;
}

static struct sp_names *new_names(struct sp_resolver *r, size_t n_levels, struct sp_name **levels)
{
	struct sp_names *names =
		sp_arena_take(&r->memory, sizeof *names, _Alignof(struct sp_names));
	*levels = sp_arena_take(&r->memory, n_levels * sizeof **levels, _Alignof(struct sp_name));
	if (!names || !*levels)
		return NULL;
	memset(*levels, 0, n_levels * sizeof **levels);
	*names = (struct sp_names){.levels = *levels, .n_levels = (uint32_t)n_levels};
	return names;
}

static struct sp_names *one_name(struct sp_resolver *r, const char *function, const char *module,
				 enum sp_origin origin)
{
	struct sp_name *level;
	struct sp_names *names = function && module ? new_names(r, 1, &level) : NULL;
	if (!names)
		return NULL;
	level->function = function;
	names->module = module;
	names->origin = origin;
	return names;
}

/* "[libfoo.so+0x1234]": the offset is the file's, or for the kernel the address. */
static const char *address_text(struct sp_resolver *r, const char *module, uint64_t at)
{
	struct sp_buf *b = &r->text;
	size_t len = strlen(module), n = 16;
	bool bracketed = len > 2 && module[0] == '[' && module[len - 1] == ']';
	char hex[16];
	do { /* there are as many of these as addresses: printf took a sixth of their naming */
		hex[--n] = "0123456789abcdef"[at & 15];
		at >>= 4;
	} while (at);
	b->len = 0;
	sp_buf_u8(b, '[');
	sp_buf_add(b, module + bracketed, bracketed ? len - 2 : len);
	sp_buf_add(b, "+0x", 3);
	sp_buf_add(b, hex + n, sizeof hex - n);
	sp_buf_u8(b, ']');
	return b->failed ? NULL : sp_strpool_add(&r->names, (const char *)b->data, b->len);
}

static struct sp_names *jit_names(struct sp_resolver *r, const struct sp_jit_found *found,
				  uint64_t avma, const char *module)
{
	struct sp_names *names = one_name(r, copy(r, found->name), module, SP_ORIGIN_PERF_MAP);
	if (!names)
		return NULL;
	names->flags = SP_FLAG_JIT;
	names->function_offset = avma - found->start;
	struct sp_name level = names->levels[0];
	const char *function, *file;
	size_t function_len, file_len;
	if (sp_python_name(found->name, &function, &function_len, &file, &file_len)) {
		names->flags |= SP_NAME_PYTHON;
		level.function = sp_strpool_add(&r->names, function, function_len);
		level.file = file_len ? sp_strpool_add(&r->names, file, file_len) : NULL;
		if (!level.function)
			return NULL;
	} else if (found->file && *found->file) {
		level.file = copy(r, found->file);
		level.line = found->line;
	}
	struct sp_name *own = sp_arena_take(&r->memory, sizeof *own, _Alignof(struct sp_name));
	if (!own)
		return NULL;
	*own = level;
	names->levels = own;
	return names;
}

/* A frame outside of files: 1 and *out, or 0 when no map of the process has it. */
static int find_jit(struct sp_resolver *r, const struct res_ask *a, const char *module,
		    struct sp_names **out, struct sp_err *err)
{
	struct sp_jit_found found;
	int rc = res_jit_find(r, a->pid, a->frame.abs_ip, a->time_ns, &found, err);
	if (rc <= 0)
		return rc;
	*out = jit_names(r, &found, a->frame.abs_ip, module);
	return *out ? 1 : sp_err_nomem(err);
}

static int finish_kernel(struct sp_resolver *r, const struct sp_spool_frame *f, bool again,
			 struct sp_names **out, struct sp_err *err)
{
	struct sp_kernel_symbol symbol;
	int rc = res_kernel_find(r, f->abs_ip, &symbol, err);
	if (rc < 0)
		return rc;
	if (rc == 0 && again)
		return 0;
	if (rc == 0) {
		*out = one_name(r, address_text(r, "kernel", f->abs_ip), "[kernel]",
				SP_ORIGIN_ADDRESS);
		return *out ? 0 : sp_err_nomem(err);
	}
	const char *module = "[kernel]";
	if (symbol.module) {
		r->text.len = 0;
		sp_buf_printf(&r->text, "[%s]", symbol.module);
		module = r->text.failed ? NULL
					: sp_strpool_add(&r->names, (const char *)r->text.data,
							 r->text.len);
	}
	*out = one_name(r, copy(r, symbol.name), module, SP_ORIGIN_KERNEL);
	if (!*out)
		return sp_err_nomem(err);
	(*out)->function_offset = f->abs_ip - symbol.start;
	return 0;
}

/* From the symfile's answer, whose strings are the symfile's. */
static int finish_file(struct sp_resolver *r, const struct res_ask *a, bool again,
		       struct sp_names **out, struct sp_err *err)
{
	const struct res_file *f = &r->files[a->file];
	const struct sp_spool_module *m = module_of(r, &a->frame);
	bool named = a->n_levels && a->levels[a->n_levels - 1].function;
	if (!named && m && is_memfd(m->path)) {
		int rc = find_jit(r, a, f->base, out, err);
		if (rc != 0)
			return rc;
	}
	if (!named && again)
		return 0;
	size_t n = a->n_levels ? a->n_levels : 1;
	struct sp_name *levels;
	struct sp_names *names = new_names(r, n, &levels);
	if (!names)
		return sp_err_nomem(err);
	for (size_t i = 0; i < a->n_levels; i++) {
		levels[i] = a->levels[i];
		if (levels[i].file && !(levels[i].file = intern(r, levels[i].file)))
			return sp_err_nomem(err);
		if (levels[i].function)
			levels[i].function = intern(r, levels[i].function);
		else if (i + 1 < n) /* an inline call that says nothing of itself */
			levels[i].function = "[inlined]";
		else
			levels[i].function = address_text(r, f->base, a->frame.rel_ip);
		if (!levels[i].function)
			return sp_err_nomem(err);
	}
	if (!a->n_levels && !(levels[0].function = address_text(r, f->base, a->frame.rel_ip)))
		return sp_err_nomem(err);
	names->module = f->base;
	names->origin = named ? SP_ORIGIN_ELF : SP_ORIGIN_ADDRESS;
	names->function_offset = named ? a->func_offset : 0;
	names->flags = f->is_python ? SP_FLAG_PYTHON_RUNTIME | SP_FLAG_HIDDEN_DEFAULT : 0;
	*out = names;
	return 0;
}

/* The names of what was asked. again: an address without a name that was told before; *out stays
 * NULL while there is none. */
static int answer(struct sp_resolver *r, const struct res_ask *a, bool again,
		  struct sp_names **out, struct sp_err *err)
{
	const struct sp_spool_module *m = module_of(r, &a->frame);
	const char *base = m ? r->files[r->file_of[a->frame.module]].base : "[unknown]";
	int rc = 0;
	switch (kind_of(r, &a->frame)) {
	case KIND_TRUNCATED:
		*out = again ? NULL
			     : one_name(r, "[truncated]", "[unknown]", SP_ORIGIN_ADDRESS);
		if (*out)
			(*out)->flags = SP_FLAG_TRUNCATED_STACK;
		break;
	case KIND_KERNEL:
		rc = finish_kernel(r, &a->frame, again, out, err);
		break;
	case KIND_FILE:
		rc = finish_file(r, a, again, out, err);
		break;
	case KIND_JIT:
		rc = find_jit(r, a, base, out, err);
		if (rc == 0 && !again)
			*out = one_name(r, "[unknown]", base, SP_ORIGIN_ADDRESS);
		break;
	}
	return rc < 0 ? rc : 0;
}

static int finish(struct sp_resolver *r, const struct res_ask *a, struct sp_err *err)
{
	struct sp_names *names = NULL;
	int rc = answer(r, a, false, &names, err);
	if (rc < 0)
		return rc;
	struct sp_names **slot =
		names ? SP_PUSH(&r->results, &r->n_results, &r->results_cap) : NULL;
	if (!slot || !sp_map64_put(&r->known, a->key, (uint32_t)r->n_results - 1))
		return sp_err_nomem(err);
	*slot = names;
	return 0;
}

static struct res_ask make_ask(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *f,
			       uint64_t time_ns, uint64_t key)
{
	struct res_ask a = {
		.key = key, .frame = *f, .pid = pid, .file = UINT32_MAX, .time_ns = time_ns};
	if (kind_of(r, f) == KIND_FILE)
		a.file = r->file_of[f->module];
	return a;
}

int sp_resolver_add_at(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *frame,
		       uint64_t time_ns, struct sp_err *err)
{
	struct sp_spool_frame f = *frame;
	int rc = res_frame_fix(r, pid, &f, err);
	if (rc < 0)
		return rc;
	uint64_t key = key_of(r, pid, &f, time_ns);
	if (sp_map64_get(&r->known, key) != SP_NOT_FOUND)
		return 0;
	struct res_ask *a = SP_PUSH(&r->asks, &r->n_asks, &r->asks_cap);
	if (!a || !sp_map64_put(&r->known, key, QUEUED))
		return sp_err_nomem(err);
	*a = make_ask(r, pid, &f, time_ns, key);
	return 0;
}

int sp_resolver_add(struct sp_resolver *r, int32_t pid, const struct sp_spool_frame *frame,
		    struct sp_err *err)
{
	return sp_resolver_add_at(r, pid, frame, UINT64_MAX, err);
}

/* What the workers share: files in an order, the next one to take. */
struct work {
	struct sp_resolver *r;
	struct res_ask **asks; /* owned: r's, ordered */
	uint32_t *order;       /* owned: files that are asked, the most asked first */
	size_t n;
	atomic_size_t next;
	pthread_mutex_t lock; /* of done, and around the progress call */
	size_t done;
	int rc;
	struct sp_err err;
};

static void report(struct work *w, size_t done)
{
	const struct sp_resolver_options *o = &w->r->options;
	pthread_mutex_lock(&w->lock);
	w->done += done;
	if (o->progress)
		o->progress(o->progress_ctx, w->done, w->r->n_asks);
	pthread_mutex_unlock(&w->lock);
}

static void work_on_file(struct work *w, struct res_file *f)
{
	size_t reported = 0;
	struct res_ask **asks = &w->asks[f->first_ask];
	struct sp_err err;
	int rc = res_file_expect(w->r, f, asks, f->n_asks, &err);
	for (size_t i = 0; i < f->n_asks && rc != SP_ERR_NOMEM; i++) {
		rc = asks[i]->is_done ? 0 : res_file_ask(w->r, f, asks[i], &err);
		if (i - reported >= 512) {
			report(w, i - reported);
			reported = i;
		}
	}
	if (rc == SP_ERR_NOMEM) {
		pthread_mutex_lock(&w->lock);
		w->rc = rc;
		w->err = err;
		pthread_mutex_unlock(&w->lock);
		return;
	}
	report(w, f->n_asks - reported);
}

static void *worker(void *arg)
{
	struct work *w = arg;
	for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->n;)
		work_on_file(w, &w->r->files[w->order[i]]);
	return NULL;
}

struct weight {
	size_t n_asks;
	uint32_t file;
};

static int by_weight(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;
	if (x->n_asks != y->n_asks)
		return x->n_asks > y->n_asks ? -1 : 1;
	return x->file < y->file ? -1 : x->file > y->file;
}

/* Asks by the offset in their file; what lies beyond 4 GiB, which no file has, stands last. */
static struct sp_key *by_offset(const struct sp_resolver *r)
{
	struct sp_key *keys = malloc(r->n_asks * sizeof *keys);
	uint32_t max = 0;
	for (size_t i = 0; keys && i < r->n_asks; i++) {
		uint64_t at = r->asks[i].frame.rel_ip;
		keys[i] = (struct sp_key){at < UINT32_MAX ? (uint32_t)at : UINT32_MAX, (uint32_t)i};
		max = keys[i].key > max ? keys[i].key : max;
	}
	if (keys && sp_keys_sort(keys, r->n_asks, max))
		return keys;
	free(keys);
	return NULL;
}

/* Puts the asks in order, by file and offset; those of no file come last. */
static bool order_asks(struct sp_resolver *r, struct work *w)
{
	struct sp_key *keys = by_offset(r);
	w->asks = malloc(r->n_asks * sizeof *w->asks);
	bool ok = keys && w->asks;
	size_t n_placed = 0;
	for (size_t i = 0; i < r->n_files; i++)
		r->files[i].n_asks = 0;
	for (size_t i = 0; ok && i < r->n_asks; i++)
		if (r->asks[i].file != UINT32_MAX)
			r->files[r->asks[i].file].n_asks++;
	for (size_t i = 0; i < r->n_files; i++) {
		r->files[i].first_ask = n_placed;
		n_placed += r->files[i].n_asks;
		r->files[i].n_asks = 0;
	}
	for (size_t i = 0; ok && i < r->n_asks; i++) {
		struct res_ask *a = &r->asks[keys[i].at];
		struct res_file *f = a->file != UINT32_MAX ? &r->files[a->file] : NULL;
		w->asks[f ? f->first_ask + f->n_asks++ : n_placed++] = a;
	}
	free(keys);
	return ok;
}

/* Orders the asks, and lists the files that have some. */
static bool plan(struct sp_resolver *r, struct work *w)
{
	struct weight *weights = calloc(r->n_files + 1, sizeof *weights);
	w->order = calloc(r->n_files + 1, sizeof *w->order);
	bool ok = order_asks(r, w) && weights && w->order;
	for (uint32_t i = 0; ok && i < r->n_files; i++)
		if (r->files[i].n_asks)
			weights[w->n++] = (struct weight){r->files[i].n_asks, i};
	if (ok && w->n)
		qsort(weights, w->n, sizeof *weights, by_weight);
	for (size_t i = 0; ok && i < w->n; i++)
		w->order[i] = weights[i].file;
	free(weights);
	return ok;
}

#define FETCHES 4 /* at once, on a small machine too */

static void run_workers(struct work *w)
{
	pthread_t threads[MAX_WORKERS];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t want =
		w->r->options.n_workers ? w->r->options.n_workers : (size_t)(cpus > 0 ? cpus : 1);
	/* Waiting for a server takes no processor. */
	if (!w->r->options.n_workers && w->r->options.fetch_debug && want < FETCHES)
		want = FETCHES;
	want = want < w->n ? want : w->n;
	want = want < MAX_WORKERS ? want : MAX_WORKERS;
	size_t n = 0;
	/* This thread is one of them, so that it also goes on when no other can be had. */
	while (n + 1 < want && pthread_create(&threads[n], NULL, worker, w) == 0)
		n++;
	worker(w);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static int run_work(struct sp_resolver *r, struct work *w, struct sp_err *err)
{
	if (!plan(r, w))
		return sp_err_nomem(err);
	int rc = 0;
	for (size_t i = 0; r->options.native && rc >= 0 && i < r->n_asks; i++)
		rc = res_native_ask(r, w->asks[i], err);
	if (rc < 0)
		return rc;
	run_workers(w);
	if (w->rc < 0)
		return sp_err_nomem(err);
	/* In the order of the asks, whoever found what first: results never depend on threads. */
	for (size_t i = 0; rc >= 0 && i < r->n_asks; i++)
		rc = finish(r, w->asks[i], err);
	r->n_asks = 0;
	return rc;
}

int sp_resolver_run(struct sp_resolver *r, struct sp_err *err)
{
	if (!r->n_asks)
		return 0;
	struct work w = {.r = r, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc = run_work(r, &w, err);
	free(w.order);
	free(w.asks);
	return rc;
}

/* On the spot: an address that is new, or (at is its result) one that had no name. */
static int ask_now(struct sp_resolver *r, struct res_ask *a, uint32_t at, struct sp_err *err)
{
	int rc = res_native_ask(r, a, err);
	if (rc < 0)
		return rc;
	if (!a->is_done && a->file != UINT32_MAX && res_file_ask(r, &r->files[a->file], a, err) < 0)
		a->n_levels = 0;
	if (at == SP_NOT_FOUND)
		return finish(r, a, err);
	struct sp_names *names = NULL;
	rc = answer(r, a, true, &names, err);
	if (names)
		r->results[at] = names;
	r->stale[at] = 0;
	return rc;
}

const struct sp_names *sp_resolver_get(struct sp_resolver *r, int32_t pid,
				       const struct sp_spool_frame *f, uint64_t time_ns)
{
	uint64_t key = key_of(r, pid, f, time_ns);
	uint32_t at = sp_map64_get(&r->known, key);
	struct sp_err err;
	bool is_new = at == SP_NOT_FOUND || at == QUEUED;
	if (is_new || (at < r->n_stale && r->stale[at])) {
		struct res_ask a = make_ask(r, pid, f, time_ns, key);
		if (ask_now(r, &a, is_new ? SP_NOT_FOUND : at, &err) < 0)
			return NULL;
		at = sp_map64_get(&r->known, key);
	}
	return r->results[at];
}

int sp_resolver_refresh(struct sp_resolver *r, struct sp_err *err)
{
	int rc = add_files(r, err);
	if (rc < 0 || !sp_grow(&r->stale, &r->stale_cap, r->n_results + 1, sizeof *r->stale))
		return sp_err_nomem(err);
	r->n_stale = r->n_results;
	for (size_t i = 0; i < r->n_results; i++)
		r->stale[i] = r->results[i]->origin == SP_ORIGIN_ADDRESS;
	for (size_t i = 0; i < r->n_files; i++) {
		r->files[i].tried = r->files[i].symfile != NULL;
		r->files[i].sought = r->files[i].found != NULL;
	}
	res_jit_refresh(r);
	res_kernel_refresh(r);
	res_frames_refresh(r);
	return 0;
}

const char *sp_resolver_module_problem(struct sp_resolver *r, uint32_t module)
{
	if (!res_module_id(r, &module))
		return NULL;
	if (res_module(r, module)->is_kernel)
		return r->kernel_problem[0] ? r->kernel_problem : NULL;
	const struct res_file *f = &r->files[r->file_of[module]];
	if (!f->tried)
		return NULL;
	if (!f->symfile)
		return f->problem[0] ? f->problem : NULL;
	return sp_symfile_problem(f->symfile);
}
