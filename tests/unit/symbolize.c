/* The library's symbolizer by its public header: over a spool's reader, over a list of modules,
 * over frames of the caller's own; symbolizers of the caller's own. */
#define _GNU_SOURCE
#include "sym_spool.h"

#include "stackpulse/symbolize.h"
#include "sym/runtime.h"

/* How often memory is asked for; instruments have an allocator of their own. */
#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define INSTRUMENTED
#endif
static unsigned long n_allocations;
#ifndef INSTRUMENTED
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *malloc(size_t n)
{
	n_allocations++;
	return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
	n_allocations++;
	return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
	n_allocations++;
	return __libc_realloc(p, n);
}
#endif

typedef const struct sp_resolved_frame *const *frames_t;

static char text[4096];

/* "kind.origin name file:line+offset/depth|…" */
static const char *shown(frames_t f, int n)
{
	static const char kinds[] = "UNPK", origins[] = "aepk";
	size_t at = 0;
	text[0] = 0;
	for (int i = 0; i < n && at < sizeof text; i++) {
		at += (size_t)snprintf(text + at, sizeof text - at, "%s%c%c %s", i ? "|" : "",
				       kinds[f[i]->kind], origins[f[i]->origin], f[i]->func_name);
		const char *file =
			f[i]->kind == SP_KIND_PYTHON ? f[i]->python.base_name : f[i]->native.file;
		const char *slash = file ? strrchr(file, '/') : NULL;
		if (file && at < sizeof text)
			at += (size_t)snprintf(
				text + at, sizeof text - at, " %s:%d/%u", slash ? slash + 1 : file,
				f[i]->kind == SP_KIND_PYTHON ? f[i]->python.line
							     : (int)f[i]->native.line,
				f[i]->kind == SP_KIND_PYTHON ? 0 : f[i]->native.inline_depth);
	}
	return text;
}

static struct sp_spool_frame user(uint32_t module, uint64_t avma)
{
	return (struct sp_spool_frame){
		.frame_id = SP_NONE, .module = module, .mode = SP_FRAME_USER, .abs_ip = avma};
}

#define BASE UINT64_C(0x7f0000000000)

static void test_list(void)
{
	const char *prog = in_build("prog");
	struct sp_spool_module modules[] = {
		{.id = 1000, .pid = 5, .start = BASE, .end = BASE + 0x100000, .path = prog},
		{.id = 7, .pid = 6, .start = 0x1000, .end = 0x2000, .path = "/no/such/lib.so.1"},
		{.id = 0,
		 .pid = 6,
		 .start = 0x5000,
		 .end = 0x6000,
		 .path = "//anon",
		 .is_anon = true},
	};
	struct sp_resolver *r = NULL;
	struct sp_err err = {0};
	frames_t f;
	tap_eq((uint64_t)sp_resolver_new_modules(&r, modules, 3, NULL, NULL, &err), 0,
	       "a resolver over a list of modules, their numbers in no order");
	struct sp_spool_frame in[] = {
		user(SP_NONE, BASE + mark_foff),
		user(1000, BASE + mark_foff),
		user(SP_NONE, 0x123456),
		user(7, 0x1010),
		{.frame_id = SP_NONE, .module = SP_NONE, .mode = SP_FRAME_TRUNCATED},
	};
	int n = sp_resolver_frames(r, 5, 0, in, 1, &f, &err);
	tap_str(shown(f, n), "Ne in a.c:4/1|Ne work a.c:8/0",
		"an address is named, the module found by process and address");
	const struct sp_resolved_frame *in_frame = f[0], *work = f[1];
	tap_eq(work->native.pc, BASE + mark_foff, "a frame has its address");
	tap_eq(work->native.module_offset, mark_foff, "and where that is in the file");
	tap_ok(work->native.function_offset < 64 && !strcmp(work->native.module, "prog") &&
		       !strcmp(work->native.symbol, "work"),
	       "and in the function, with the module's name");
	n = sp_resolver_frames(r, 5, 0, in + 1, 1, &f, &err);
	tap_ok(n == 2 && f[0] == in_frame && f[1] == work, "equal frames have equal pointers");
	n = sp_resolver_frames(r, 6, 0, in + 2, 3, &f, &err);
	tap_str(shown(f, n), "Ua <0x123456>|Na [lib.so.1+0x10]|Ua <stack truncated>",
		"what has no name is an address");
	tap_ok(n == 3 && !f[1]->native.symbol && f[2]->flags == SP_FLAG_TRUNCATED_STACK,
	       "without a symbol; the marker says what it is");
	tap_str(sp_resolver_module_problem(r, 7), "no such file", "and the reason is told");
	n = sp_resolver_frames(r, 6, 0, in, 1, &f, &err);
	snprintf(text, sizeof text, "<0x%llx>", (unsigned long long)(BASE + mark_foff));
	tap_ok(n == 1 && !strcmp(f[0]->func_name, text), "another process's modules are not asked");
	in[0].module = 8;
	tap_eq((uint64_t)sp_resolver_frames(r, 5, 0, in, 1, &f, &err), (uint64_t)SP_ERR_INVALID,
	       "a module that is not in the list is refused");
	tap_eq((uint64_t)sp_resolver_frames(r, 5, 0, NULL, 0, &f, &err), 0, "no frames, no names");
	sp_resolver_free(r);
	modules[1].id = 1000;
	tap_eq((uint64_t)sp_resolver_new_modules(&r, modules, 3, NULL, NULL, &err),
	       (uint64_t)SP_ERR_INVALID, "a number that comes twice is refused");
}

static struct sp_spool *open_made(struct made *m, struct sp_spool_sample *s)
{
	struct sp_spool *spool = NULL;
	struct sp_err err = {0};
	if (sp_spool_open(&spool, m->path, &err) < 0 || sp_spool_next(spool, s, &err) != 1) {
		printf("# %s\n", err.msg);
		exit(99);
	}
	return spool;
}

static void test_reader(void)
{
	struct made m;
	struct sp_spool_sample s;
	struct sp_resolver *r = NULL;
	struct sp_err err = {0};
	frames_t f;
	char prog[300];
	snprintf(prog, sizeof prog, "%s", in_build("prog"));
	struct sp_spool_wfile file = wfile(prog, NULL);
	make_begin(&m, "");
	make_address(&m, 0x99, false);
	for (unsigned i = 0; i < 40; i++)
		make_site(&m, &file, BASE, 0x10000, 0, BASE + mark_foff + i % 2);
	make_end(&m);
	struct sp_spool *spool = open_made(&m, &s);
	if (sp_resolver_new(&r, spool, NULL, &err) < 0) {
		tap_ok(false, "a resolver over a spool");
		return;
	}
	int n = sp_resolver_sample(r, &s, &f, &err);
	tap_eq((uint64_t)n, 20 * 2 + 20 + 1, "the stack of a sample, inlined levels and all");
	f += n - 3;
	tap_str(shown(f, 3), "Ne in a.c:4/1|Ne work a.c:8/0|Ua <0x99>", "by value at its root");
	const struct sp_resolved_frame *last = f[2];
	unsigned long before = n_allocations;
	for (int i = 0; i < 1000; i++)
		n = sp_resolver_sample(r, &s, &f, &err);
	tap_eq(n_allocations - before, 0, "a stack that was asked before allocates nothing");
	tap_ok(f[n - 1] == last, "and has the same frames");
	struct sp_spool_sample other = s;
	other.thread = 1000;
	tap_eq((uint64_t)sp_resolver_sample(r, &other, &f, &err), (uint64_t)SP_ERR_INVALID,
	       "a sample of another spool is refused");
	sp_resolver_free(r);

	struct sp_resolver_options o = {.max_stacks = SP_NONE};
	sp_resolver_new(&r, spool, &o, &err);
	n = sp_resolver_sample(r, &s, &f, &err);
	last = f[0];
	before = n_allocations;
	n = sp_resolver_sample(r, &s, &f, &err);
	tap_ok(n == 61 && f[0] == last && n_allocations == before,
	       "no stacks remembered: the same frames, nothing allocated either");
	sp_resolver_free(r);
	sp_spool_close(spool);
}

static void test_kernel(void)
{
	static const char kallsyms[] =
		"ffffffff81000000 T _text\nffffffff81001000 t do_work\n"
		"ffffffff81002000 t after\nffffffff81003000 T _etext\n"
		"ffffffffc0000000 t ext4_read\t[ext4]\nffffffffc0001000 t ext4_write\t[ext4]\n";
	struct made m;
	struct sp_spool_sample s;
	struct sp_resolver *r = NULL;
	struct sp_err err = {0};
	frames_t f;
	make_begin(&m, "another-boot");
	make_address(&m, 0xffffffff81001010, true);
	make_object(&m, 4, -1, "/proc/kallsyms", kallsyms, sizeof kallsyms - 1);
	make_end(&m);
	struct sp_spool *spool = open_made(&m, &s);
	sp_resolver_new(&r, spool, NULL, &err);
	int n = sp_resolver_sample(r, &s, &f, &err);
	tap_str(shown(f, n), "Kk do_work", "a kernel frame of a sample");
	tap_eq(f[0]->native.function_offset, 0x10, "its offset stands apart from the name");
	struct sp_spool_frame in[] = {
		{SP_NONE, SP_NONE, SP_FRAME_KERNEL, 0, 0xffffffff81002fff},
		{SP_NONE, SP_NONE, SP_FRAME_KERNEL, 0, 0xffffffffc0000123},
		{SP_NONE, SP_NONE, SP_FRAME_KERNEL, 0, 0xffffffff80000000},
	};
	n = sp_resolver_frames(r, PID, 0, in, 3, &f, &err);
	tap_str(shown(f, n), "Kk after|Kk ext4_read|Ka [kernel+0xffffffff80000000]",
		"kernel addresses of the caller's own");
	tap_str(n == 3 ? f[1]->native.module : "", "[ext4]", "a kernel module has its name");
	sp_resolver_free(r);
	sp_spool_close(spool);
}

static void test_python(void)
{
	static const char map[] = "5000 100 py::f:/a b/x.py:7\n5100 100 py::g\n5200 100 JS:*h\n";
	struct made m;
	struct sp_spool_sample s;
	struct sp_resolver *r = NULL;
	struct sp_err err = {0};
	frames_t f;
	char runtime[300];
	build_run("sed s,work,_PyEval_EvalFrameDefault,g a.c >p.c && "
		  "gcc -O1 -g -o python3.12 p.c");
	snprintf(runtime, sizeof runtime, "%s", in_build("python3.12"));
	struct sp_elf e;
	uint64_t eval = 0, other = 0, base = 0;
	if (sp_elf_open(&e, runtime, NULL) == 0) {
		size_t left;
		base = (uint64_t)(uintptr_t)e.data;
		eval = (uint64_t)(uintptr_t)sp_elf_at_svma(
			&e, symbol_value(&e, "_PyEval_EvalFrameDefault"), &left);
		other = (uint64_t)(uintptr_t)sp_elf_at_svma(&e, symbol_value(&e, "main"), &left);
		sp_elf_close(&e);
	}
	struct sp_spool_wfile file = wfile(runtime, NULL),
			      anon = {.path = "//anon", .is_anon = true};
	make_begin(&m, "");
	make_site(&m, &file, BASE, 0x10000, 0, BASE + other - base);
	make_site(&m, &file, BASE, 0x10000, 0, BASE + eval - base);
	make_site(&m, &anon, 0x5000, 0x1000, 0, 0x5210);
	make_site(&m, &anon, 0x5000, 0x1000, 0, 0x5110);
	make_site(&m, &anon, 0x5000, 0x1000, 0, 0x5010);
	make_object(&m, 2, PID, "/tmp/perf.map", map, sizeof map - 1);
	make_end(&m);
	struct sp_spool *spool = open_made(&m, &s);
	struct sp_resolver_options o = {.no_inline = true};
	sp_resolver_new(&r, spool, &o, &err);
	int n = sp_resolver_sample(r, &s, &f, &err);
	if (!tap_eq((uint64_t)n, 5, "five frames")) {
		printf("# %s\n", shown(f, n));
		return;
	}
	const struct sp_python_frame *p = &f[0]->python;
	tap_ok(f[0]->kind == SP_KIND_PYTHON && f[0]->flags == SP_FLAG_JIT &&
		       f[0]->origin == SP_ORIGIN_PERF_MAP && !strcmp(f[0]->func_name, "f"),
	       "a Python function of a perf map");
	tap_ok(!strcmp(p->file_name, "/a b/x.py") && !strcmp(p->base_name, "x.py") &&
		       !strcmp(p->func_name, "f"),
	       "has its file, and that file's name");
	tap_ok(p->line == -1 && p->column == -1 && p->opcode == -1 && !p->is_entry,
	       "what the map does not tell is unknown");
	tap_str(f[1]->python.file_name, "~", "a function without a file");
	tap_ok(f[2]->kind == SP_KIND_NATIVE && f[2]->flags == SP_FLAG_JIT &&
		       !strcmp(f[2]->func_name, "JS:*h") && f[2]->native.function_offset == 0x10,
	       "another JIT's function is native code");
	tap_ok(f[3]->native.is_python_runtime && f[3]->native.is_eval_frame &&
		       !f[3]->native.should_ignore &&
		       f[3]->flags == (SP_FLAG_PYTHON_RUNTIME | SP_FLAG_HIDDEN_DEFAULT),
	       "the interpreter's loop is of the runtime, and where Python runs");
	tap_ok(f[4]->native.is_python_runtime && !f[4]->native.is_eval_frame &&
		       f[4]->native.should_ignore,
	       "other code of the runtime is machinery");
	sp_resolver_free(r);
	sp_spool_close(spool);
}

/* Names each address by itself, and writes down what it was told. */
struct own {
	struct sp_native_symbolizer base;
	struct sp_image_base image;
	uint64_t start, end;
	bool has_image_base;
	struct sp_symbol_level levels[2];
	char name[40];
};
static unsigned n_made, n_freed, n_asked, n_modules_told;
static struct own *last_made;
static char last_found[300];

static int own_set_modules(struct sp_native_symbolizer *self,
			   const struct sp_native_module *modules, size_t n, struct sp_err *err)
{
	struct own *o = (struct own *)self;
	(void)err;
	n_modules_told += (unsigned)n;
	for (size_t i = 0; i < n; i++) {
		o->has_image_base = modules[i].has_image_base;
		o->image = modules[i].image_base;
		o->start = modules[i].start;
		o->end = modules[i].end;
		snprintf(last_found, sizeof last_found, "%s",
			 modules[i].found ? modules[i].found : "");
	}
	return 0;
}

static int own_symbolize_one(struct sp_native_symbolizer *self, uint64_t avma,
			     struct sp_symbols *out, struct sp_err *err)
{
	struct own *o = (struct own *)self;
	(void)err;
	n_asked++;
	if (!o->has_image_base || avma < o->start || avma >= o->end)
		return 0;
	snprintf(o->name, sizeof o->name, "svma_%llx",
		 (unsigned long long)sp_image_base_svma(&o->image, avma));
	o->levels[0] = (struct sp_symbol_level){"inner", "x.c", 3};
	o->levels[1] = (struct sp_symbol_level){o->name, "y.c", 4};
	*out = (struct sp_symbols){o->levels, 2, 9};
	return 1;
}

static void own_free(struct sp_native_symbolizer *self)
{
	n_freed++;
	free(self);
}

static int own_make(void *ctx, int32_t pid, struct sp_native_symbolizer **out, struct sp_err *err)
{
	struct own *o = calloc(1, sizeof *o);
	(void)ctx;
	(void)pid;
	if (!o)
		return sp_err_nomem(err);
	o->base = (struct sp_native_symbolizer){own_set_modules, own_symbolize_one, own_free};
	n_made++;
	last_made = o;
	*out = &o->base;
	return 0;
}

static void test_own_symbolizer(void)
{
	struct made m;
	struct sp_spool_sample s;
	struct sp_resolver *r = NULL;
	struct sp_err err = {0};
	frames_t f;
	char prog[300], want[200];
	snprintf(prog, sizeof prog, "%s", in_build("prog"));
	struct sp_spool_wfile file = wfile(prog, NULL), gone = wfile("/no/such/file", NULL);
	make_begin(&m, "");
	make_site(&m, &gone, BASE + 0x1000, 0x1000, 0, BASE + 0x1010); /* overlaps the next one */
	make_site(&m, &file, BASE, 0x100000, 0, BASE + mark_foff);
	make_site(&m, &file, BASE, 0x100000, 0, BASE + mark_foff);
	make_address(&m, 0x77, false);
	make_end(&m);
	struct sp_spool *spool = open_made(&m, &s);
	struct sp_native_factory own = {.make = own_make};
	struct sp_resolver_options o = {.native = &own};
	sp_resolver_new(&r, spool, &o, &err);
	int n = sp_resolver_sample(r, &s, &f, &err);
	snprintf(want, sizeof want,
		 "Ua <0x77>|Ne inner x.c:3/1|Ne svma_%llx y.c:4/0|Ne inner x.c:3/1|Ne svma_%llx "
		 "y.c:4/0|Na [file+0x10]",
		 (unsigned long long)mark_svma, (unsigned long long)mark_svma);
	tap_str(shown(f, n), want, "a symbolizer of the caller's own names files, by their SVMA");
	tap_eq(f[2]->native.function_offset, 9, "and says how far into the function it is");
	tap_eq(n_made, 2, "modules that overlap go to different symbolizers");
	tap_eq(n_asked, 2, "each distinct address is asked once");
	n = sp_resolver_sample(r, &s, &f, &err);
	tap_eq(n_asked, 2, "and not again");
	sp_resolver_free(r);
	tap_eq(n_freed, n_made, "what was made is freed");

	own.fall_back = true;
	last_found[0] = 0;
	struct sp_native_factory builtin = sp_native_factory_builtin(NULL);
	o.native = &builtin;
	sp_resolver_new(&r, spool, &o, &err);
	n = sp_resolver_sample(r, &s, &f, &err);
	tap_str(shown(f, n),
		"Ua <0x77>|Ne in a.c:4/1|Ne work a.c:8/0|Ne in a.c:4/1|Ne work a.c:8/0|Na "
		"[file+0x10]",
		"the built-in symbolizer is a factory too");
	sp_resolver_free(r);
	sp_spool_close(spool);
}

/* What comes later: a file, lines of a perf map. */
static void test_refresh(void)
{
	struct sp_resolver *r = NULL;
	struct sp_err err = {0};
	frames_t f;
	char late[300], map[100];
	snprintf(late, sizeof late, "%s", in_build("late"));
	struct sp_spool_module modules[] = {
		{.id = 1, .pid = PID, .start = BASE, .end = BASE + 0x100000, .path = late},
		{.id = 2,
		 .pid = PID,
		 .start = 0x5000,
		 .end = 0x6000,
		 .path = "//anon",
		 .is_anon = true},
	};
	struct sp_resolver_options o = {.perf_map_dir = build_dir};
	struct sp_spool_frame in[] = {user(SP_NONE, 0x5010), user(SP_NONE, 0x5110),
				      user(SP_NONE, BASE + mark_foff)};
	snprintf(map, sizeof map, "perf-%d.map", PID);
	static const char half[] = "5000 100 one\n5100 100 tw",
			  whole[] = "5000 100 one\n5100 100 two\n5200 100 three\n";
	build_write(map, half, sizeof half - 1);
	sp_resolver_new_modules(&r, modules, 2, NULL, &o, &err);
	char want[200];
	snprintf(want, sizeof want, "Np one|Np tw|Na [late+0x%llx]", (unsigned long long)mark_foff);
	int n = sp_resolver_frames(r, PID, 0, in, 3, &f, &err);
	tap_str(shown(f, n), want, "before: a file that is not there, a map's last line half");
	const struct sp_resolved_frame *one = f[0];
	build_run("cp prog late");
	in[1].abs_ip = 0x5210;
	n = sp_resolver_frames(r, PID, 0, in, 3, &f, &err);
	snprintf(want, sizeof want, "Np one|Na <0x5210>|Na [late+0x%llx]",
		 (unsigned long long)mark_foff);
	tap_str(shown(f, n), want, "without a refresh answers stay");
	build_write(map, whole, sizeof whole - 1);
	sp_resolver_refresh(r, &err);
	n = sp_resolver_frames(r, PID, 0, in, 3, &f, &err);
	tap_str(shown(f, n), "Np one|Np three|Ne in a.c:4/1|Ne work a.c:8/0",
		"after: what has come is used");
	tap_ok(n && f[0] == one, "and a frame that had a name is the same");
	sp_resolver_free(r);
}

static void test_names(void)
{
	static const char *const names[][2] = {
		{"/usr/lib/libfoo.so.1", "libfoo.so.1"},
		{"/tmp/x (deleted)", "x"},
		{"//anon", "[anon]"},
		{"", "[anon]"},
		{"[vdso]", "[vdso]"},
		{"/memfd:doublemapper (deleted)", "memfd:doublemapper"},
		{"plain", "plain"},
		{"/dir/", "/dir/"},
	};
	size_t len;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *got = sp_path_to_name(names[i][0], &len);
		tap_ok(len == strlen(names[i][1]) && !memcmp(got, names[i][1], len), names[i][0]);
	}
	tap_ok(sp_is_python_module("/usr/bin/python3.11") && !sp_is_python_module("/bin/ipython"),
	       "runtimes are known by their names");
	static const char *const loops[] = {"_PyEval_EvalFrameDefault", "PyEval_EvalFrameEx",
					    "_PyEval_EvalFrameDefault.llvm.123",
					    "_TAIL_CALL_LOAD_FAST", "_TAIL_CALL_CALL.llvm.8134"};
	for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
		tap_ok(sp_is_eval_frame(loops[i]), loops[i]);
	tap_ok(!sp_is_eval_frame("PyEval_EvalCode") && !sp_is_eval_frame("MY_TAIL_CALL_X"),
	       "other functions of the interpreter are not its loop");
	struct sp_image_base b = {0};
	struct sp_err err = {0};
	tap_ok(sp_image_base_of(in_build("prog"), BASE + (mark_foff & ~UINT64_C(4095)),
				BASE + (mark_foff & ~UINT64_C(4095)) + 4096,
				mark_foff & ~UINT64_C(4095), &b, &err) == 1 &&
		       sp_image_base_svma(&b, BASE + mark_foff) == mark_svma,
	       "the image base of a mapping leads to the linked address");
	tap_ok(sp_image_base_of("/no/such/file", 0, 4096, 0, &b, &err) < 0 &&
		       sp_image_base_of(in_build("a.c"), 0, 4096, 0, &b, &err) < 0,
	       "no file, no ELF file: errors");
}

int main(void)
{
	if (!mkdtemp(build_dir)) {
		perror(build_dir);
		return 99;
	}
	if (!make_prog()) {
		tap_ok(false, "the program is built");
		return tap_done();
	}
	test_list();
	test_reader();
	test_kernel();
	test_python();
	test_own_symbolizer();
	test_refresh();
	test_names();
	build_end();
	return tap_done();
}
