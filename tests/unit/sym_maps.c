/* Perf maps, jitdumps, kallsyms, mangled and Python names: by value, bad input included. */
#include "tap.h"

#include <stdlib.h>
#include <time.h>

#include "sym/demangle.h"
#include "sym/jitmap.h"
#include "sym/kallsyms.h"
#include "sym/runtime.h"

static const char *map_name(struct sp_jitmap *m, uint64_t avma)
{
	struct sp_jit_found found;
	return sp_jitmap_find(m, avma, UINT64_MAX, &found) ? found.name : NULL;
}

static void test_perf_map(void)
{
	static const char text[] = "1000 100 first\n"
				   "# a comment\n"
				   "\n"
				   "  \t 2000\t80 after tabs and blanks\n"
				   "0x3000 0x40 long Spin.leaf(int)\n"
				   "4000 0 length zero\n"
				   "ffffffffffffff00 200 wraps\n"
				   "xyz 10 bad start\n"
				   "5000 zz bad length\n"
				   "5100 10\n"
				   "5200 10 \n"
				   "5300\n"
				   "6000 100 outer\n"
				   "6010 10 nested\n"
				   "7000 20 old\n"
				   "7000 20 new\n"
				   "8000 10  two blanks\n"
				   "9000 10 caf\xc3\xa9 \xff bad\n"
				   "a000 10 with\tcarriage\r\n"
				   "10000000000000000 10 seventeen digits\n"
				   "b000 10\xc2\xa0no separator\n"
				   "c000 10 unterminated";
	static const struct {
		uint64_t avma;
		const char *name, *why;
	} want[] = {
		{0xfff, NULL, "below the first entry there is no name"},
		{0x1000, "first", "an entry names its first address"},
		{0x10ff, "first", "and its last one"},
		{0x1100, NULL, "a gap has no name"},
		{0x2001, "after tabs and blanks", "tabs and many blanks separate"},
		{0x3001, "long Spin.leaf(int)", "0x on both numbers, blanks in the name"},
		{0x4000, NULL, "length 0 is no entry"},
		{0xffffffffffffff01, NULL, "a length that wraps is no entry"},
		{0x5000, NULL, "a bad length is no entry"},
		{0x5101, NULL, "an entry without a name is none"},
		{0x5201, NULL, "a blank is no name"},
		{0x6005, "outer", "before a nested entry the outer one counts"},
		{0x6012, "nested", "the entry with the highest start counts"},
		{0x6050, "outer", "behind a nested entry the outer one counts"},
		{0x7001, "new", "of equal starts the last one counts"},
		{0x8001, " two blanks", "further blanks belong to the name"},
		{0x9001, "caf\xc3\xa9 \xef\xbf\xbd bad", "what is not UTF-8 becomes U+FFFD"},
		{0xa001, "with\tcarriage", "a carriage return ends with its line"},
		{0xb001, NULL, "a no-break space separates nothing"},
		{0xc001, "unterminated", "the last line needs no end"},
	};
	struct sp_jitmap m = {0};
	sp_jitmap_add_perf_map(&m, text, sizeof text - 1, NULL);
	sp_jitmap_sort(&m, NULL);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		tap_str(map_name(&m, want[i].avma), want[i].name, want[i].why);
	sp_jitmap_deinit(&m);
	tap_eq((uint64_t)sp_jitmap_add_perf_map(&m, NULL, 0, NULL), 0, "an empty map is a map");
	sp_jitmap_deinit(&m);
}

/* Lines as the runtimes write them. */
static void test_runtimes(void)
{
	static const char text[] =
		/* node 20 and 24, --perf-basic-prof */
		"7f6caafc6f00 2c8 JS:*leafJs /t/spin.js:1:16\n"
		"7f6caafc7200 40 JS:+'leafJs /t/spin.js:1:16\n"
		"7f6caafc7300 20 Builtin:InterpreterEntryTrampoline\n"
		/* CPython 3.12, -X perf */
		"7fcc42fcd7c7 b py::leaf_py:/t/spin.py\n"
		/* OpenJDK 17, -XX:+DumpPerfMapAtExit or jcmd Compiler.perfmap */
		"0x00007faa1cecc4a0 0x0000000000000358 long Spin.leafJ(int)\n"
		"0x00007faa1cb00000 0x0000000000000100 StubRoutines (1)\n"
		/* Erlang/OTP 25, +JPperf true */
		"0x7f29d99c0d20 f8 $spin:leaf/2\n"
		"0x7f29d99c0e20 10 $global::call_light_bif_shared\n"
		/* PHP 8.2, opcache.jit_debug=0x10 */
		"55b550600a30 7b TRACE-1$leaf_php$1\n"
		/* mono 6.8, --jitmap */
		"410277f0 8b Spin:LeafM (int)\n"
		"41027780 200 (wrapper runtime-invoke) <Module>:runtime_invoke_void_object "
		"(object,intptr,intptr,intptr)\n"
		/* wasmtime 50, profiler=\"perfmap\" */
		"0x7fb1e2698000 2a leaf_wasm\n";
	static const struct {
		uint64_t avma;
		const char *name;
	} want[] = {
		{0x7f6caafc6f10, "JS:*leafJs /t/spin.js:1:16"},
		{0x7f6caafc7210, "JS:+'leafJs /t/spin.js:1:16"},
		{0x7f6caafc7300, "Builtin:InterpreterEntryTrampoline"},
		{0x7fcc42fcd7d1, "py::leaf_py:/t/spin.py"},
		{0x7faa1cecc4a0 + 0x357, "long Spin.leafJ(int)"},
		{0x7faa1cb00010, "StubRoutines (1)"},
		{0x7f29d99c0d20, "$spin:leaf/2"},
		{0x7f29d99c0e2f, "$global::call_light_bif_shared"},
		{0x55b550600aaa, "TRACE-1$leaf_php$1"},
		{0x410277f0, "Spin:LeafM (int)"},
		{0x41027781, "(wrapper runtime-invoke) <Module>:runtime_invoke_void_object "
			     "(object,intptr,intptr,intptr)"},
		{0x4102787b, "(wrapper runtime-invoke) <Module>:runtime_invoke_void_object "
			     "(object,intptr,intptr,intptr)"},
		{0x7fb1e2698029, "leaf_wasm"},
		{0x7fb1e269802a, NULL},
	};
	struct sp_jitmap m = {0};
	sp_jitmap_add_perf_map(&m, text, sizeof text - 1, NULL);
	sp_jitmap_sort(&m, NULL);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		tap_str(map_name(&m, want[i].avma), want[i].name,
			want[i].name ? want[i].name : "behind the last entry");
	sp_jitmap_deinit(&m);
}

static void check_python(const char *name, const char *function, const char *file)
{
	const char *f = NULL, *path = NULL;
	size_t f_len = 0, path_len = 0;
	char got[200] = "no", want[200];
	if (sp_python_name(name, &f, &f_len, &path, &path_len))
		snprintf(got, sizeof got, "%.*s|%.*s", (int)f_len, f, (int)path_len, path);
	snprintf(want, sizeof want, function ? "%s|%s" : "no", function, file);
	tap_str(got, want, name);
}

static void test_python_names(void)
{
	check_python("py::leaf:/a/b.py", "leaf", "/a/b.py");
	check_python("py::f:/a b/x.py", "f", "/a b/x.py");
	check_python("py::f", "f", "");
	check_python("py::<lambda>:<frozen x>:12", "<lambda>", "<frozen x>");
	check_python("py::C.m:/x.py:7", "C.m", "/x.py");
	check_python("py::f:/x.py:7b", "f", "/x.py:7b");
	check_python("py::f /a:b.py", "f", "/a:b.py");
	check_python("py::", NULL, NULL);
	check_python("JS:*f /x.js:1", NULL, NULL);

	static const char *const yes[] = {"/usr/bin/python3.12",
					  "python",
					  "python3",
					  "Python3.13td",
					  "/lib/libpython3.12.so.1.0",
					  "libpython3.13t.so",
					  "libpython3.11.dylib",
					  "/usr/bin/python3.11 (deleted)"};
	static const char *const no[] = {
		"python3-config",    "ipython",
		"pythonw",           "python311d",
		"python3.13m",       "libpython_embedder",
		"libpython3.so.cfg", "_json.cpython-312-x86_64-linux-gnu.so"};
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		tap_ok(sp_is_python_module(yes[i]), yes[i]);
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		tap_ok(!sp_is_python_module(no[i]), no[i]);
}

static void test_jitdump(void)
{
	struct sp_buf b = {0};
	sp_buf_u32(&b, 0x4a695444);
	sp_buf_u32(&b, 1);
	sp_buf_u32(&b, 40);
	for (int i = 0; i < 28; i++)
		sp_buf_u8(&b, 0);
	/* Lines, then the code they are of. */
	sp_buf_u32(&b, 2);
	sp_buf_u32(&b, 16 + 16 + 16 + 5 + 16 + 2);
	sp_buf_u64(&b, 1);
	sp_buf_u64(&b, 0x5000);
	sp_buf_u64(&b, 2);
	sp_buf_u64(&b, 0x5000);
	sp_buf_u32(&b, 10);
	sp_buf_u32(&b, 0);
	sp_buf_add(&b, "a.js", 5);
	sp_buf_u64(&b, 0x5010);
	sp_buf_u32(&b, 11);
	sp_buf_u32(&b, 0);
	sp_buf_add(&b, "\xff", 2);
	sp_buf_u32(&b, 0);
	sp_buf_u32(&b, 16 + 40 + 4 + 2);
	sp_buf_u64(&b, 2);
	sp_buf_u64(&b, 0);
	sp_buf_u64(&b, 0x5000);
	sp_buf_u64(&b, 0x5000);
	sp_buf_u64(&b, 0x20);
	sp_buf_u64(&b, 0);
	sp_buf_add(&b, "jit\0\x90\x90", 6);
	/* The code moves. */
	sp_buf_u32(&b, 1);
	sp_buf_u32(&b, 16 + 48);
	sp_buf_u64(&b, 3);
	sp_buf_u64(&b, 0);
	sp_buf_u64(&b, 0x9000);
	sp_buf_u64(&b, 0x5000);
	sp_buf_u64(&b, 0x9000);
	sp_buf_u64(&b, 0x20);
	sp_buf_u64(&b, 0);
	size_t whole = b.len;
	sp_buf_u32(&b, 0); /* a record that is being written */
	sp_buf_u32(&b, 100);

	struct sp_jitmap m = {0};
	struct sp_jit_found found = {0};
	tap_eq((uint64_t)sp_jitmap_add_jitdump(&m, b.data, b.len, NULL), 0, "a jitdump is read");
	sp_jitmap_sort(&m, NULL);
	tap_ok(sp_jitmap_find(&m, 0x5015, UINT64_MAX, &found), "its code is found");
	tap_str(found.name, "jit", "by its name");
	tap_str(found.file, "a.js", "with the file of the line before");
	tap_eq(found.line, 11, "and its line");
	tap_str(map_name(&m, 0x9001), "jit", "and where it was moved");
	sp_jitmap_deinit(&m);
	for (size_t n = 40; n < whole; n++) { /* any cut */
		uint8_t *cut = malloc(n);
		memcpy(cut, b.data, n);
		sp_jitmap_add_jitdump(&m, cut, n, NULL);
		sp_jitmap_sort(&m, NULL);
		free(cut);
		sp_jitmap_deinit(&m);
	}
	tap_ok(true, "a jitdump cut anywhere is read up to there");
	tap_ok(sp_jitmap_add_jitdump(&m, "ELF", 3, NULL) == SP_ERR_CORRUPT,
	       "other files are refused");
	sp_jitmap_deinit(&m);
	sp_buf_deinit(&b);
}

static void put_load(struct sp_buf *b, uint64_t time_ns, uint64_t start, uint64_t size,
		     const char *name)
{
	sp_buf_u32(b, 0);
	sp_buf_u32(b, (uint32_t)(16 + 40 + strlen(name) + 1));
	sp_buf_u64(b, time_ns);
	sp_buf_u64(b, 0);
	sp_buf_u64(b, start);
	sp_buf_u64(b, start);
	sp_buf_u64(b, size);
	sp_buf_u64(b, 0);
	sp_buf_add(b, name, strlen(name) + 1);
}

static const char *name_at(const struct sp_jitmap *m, uint64_t avma, uint64_t time_ns)
{
	struct sp_jit_found found;
	return sp_jitmap_find(m, avma, time_ns, &found) ? found.name : NULL;
}

/* Code that replaces other code has its name from then on. */
static void test_jitdump_times(void)
{
	for (uint64_t flags = 0; flags < 2; flags++) {
		struct sp_buf b = {0};
		struct sp_jitmap m = {0};
		sp_buf_u32(&b, 0x4a695444);
		sp_buf_u32(&b, 1);
		sp_buf_u32(&b, 40);
		for (int i = 0; i < 5; i++)
			sp_buf_u32(&b, 0);
		sp_buf_u64(&b, flags); /* 1: the times are the processor's counter */
		put_load(&b, 100, 0x5000, 0x100, "first");
		put_load(&b, 150, 0x9000, 0x100, "alone");
		put_load(&b, 200, 0x5000, 0x80, "second");
		put_load(&b, 300, 0x4f00, 0x200, "third");
		sp_jitmap_add_jitdump(&m, b.data, b.len, NULL);
		sp_jitmap_sort(&m, NULL);
		if (flags) {
			tap_str(name_at(&m, 0x5010, 150), "second",
				"times of another clock are not used");
			tap_eq(sp_jitmap_epoch(&m, UINT64_MAX), 0, "and nothing changes");
		} else {
			tap_str(name_at(&m, 0x5010, 150), "first", "code has the name of its time");
			tap_str(name_at(&m, 0x5010, 200), "second", "from when it was replaced");
			tap_str(name_at(&m, 0x5090, 250), "first", "where it was replaced");
			tap_str(name_at(&m, 0x5010, 1000), "third", "by code that begins before it");
			tap_str(name_at(&m, 0x5010, UINT64_MAX), "third", "the last one, without time");
			tap_str(name_at(&m, 0x5010, 50), "first", "before all, the first one");
			tap_str(name_at(&m, 0x9010, 50), "alone", "code that nothing replaced");
			tap_eq(sp_jitmap_epoch(&m, 199), 1, "one change before the second");
			tap_eq(sp_jitmap_epoch(&m, UINT64_MAX), 3, "three in all");
			sp_jitmap_forget_times(&m);
			sp_jitmap_sort(&m, NULL);
			tap_eq(sp_jitmap_epoch(&m, UINT64_MAX), 0, "none when times say nothing");
		}
		sp_jitmap_deinit(&m);
		sp_buf_deinit(&b);
	}
}

static const char *kernel_name(const char *text, uint64_t addr, uint64_t *start,
			       const char **module)
{
	static char name[100], module_name[100];
	struct sp_kallsyms k;
	struct sp_kernel_symbol s;
	const uint64_t needed[] = {0x1000,
				   0xffffffff80ffffff,
				   0xffffffff81000005,
				   0xffffffff81000105,
				   0xffffffff8f000000,
				   0xffffffffc0000020,
				   0xffffffffffffff00};
	bool found = false;
	sp_kallsyms_init(&k, needed, sizeof needed / sizeof *needed, NULL);
	sp_kallsyms_add(&k, text, strlen(text), NULL);
	if (sp_kallsyms_find(&k, addr, &s)) {
		found = true;
		*start = s.start;
		snprintf(name, sizeof name, "%s", s.name);
		*module = NULL;
		if (s.module) {
			snprintf(module_name, sizeof module_name, "%s", s.module);
			*module = module_name;
		}
	}
	sp_kallsyms_deinit(&k);
	return found ? name : NULL;
}

/* The names of some addresses of a core in the kernel's order: by bisection, else all "-"; and the
 * same of a whole pass. */
static const char *sorted_names(const char *text, const uint64_t *needed, size_t n, bool bisect)
{
	static char out[2][300];
	struct sp_kallsyms k;
	struct sp_kernel_symbol s;
	char *to = out[bisect];
	size_t len = strlen(text);
	char *copy = malloc(len + 1); /* of the exact size, for the sanitizers */
	memcpy(copy, text, len);
	sp_kallsyms_init(&k, needed, n, NULL);
	if (bisect)
		sp_kallsyms_add_sorted(&k, copy, len, 0xffffffff81000000, NULL);
	else
		sp_kallsyms_add_core(&k, copy, len, 0, NULL);
	free(copy);
	to[0] = 0;
	for (size_t i = 0; i < n; i++) {
		bool found = sp_kallsyms_find(&k, needed[i], &s);
		snprintf(to + strlen(to), 300 - strlen(to), "%s+%d ", found ? s.name : "-",
			 found ? (int)(needed[i] - s.start) : 0);
	}
	sp_kallsyms_deinit(&k);
	return to;
}

static void test_kallsyms_address(void)
{
	static const char text[] = "0000000000001000 T one\nc0001000 T two\n T three\n"
				   "g000 T four\n0000000000005000 t five\n6000 T six";
	static const char *const names[] = {"one", "two", "three", "four", "five", "six"};
	static const uint64_t want[] = {0x1000, 0xc0001000, 0, 0, 0, 0};
	char name[300];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		tap_eq(sp_kallsyms_address(text, strlen(text), names[i]), want[i], names[i]);
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = 0;
	tap_eq(sp_kallsyms_address(text, strlen(text), name), 0, "a name longer than any symbol's");
	tap_eq(sp_kallsyms_address(NULL, 0, "one"), 0, "no text");
}

static void test_kallsyms_sorted(void)
{
	static const char text[] = "0000000000000fff t per_cpu_text\n"
				   "ffffffff81000000 T before\n"
				   "ffffffff81000000 T _text\n"
				   "ffffffff81000000 T alias\n"
				   "ffffffff81000002 t $x\n"
				   "ffffffff81000100 W do_things\n"
				   "ffffffff81000104 r a_constant\n"
				   "ffffffff81000200 t .Lhere\n"
				   "ffffffff81000200 T one\n"
				   "ffffffff81000200 T two\n"
				   "ffffffff81000300 T _etext\n"
				   "ffffffffc0000010 t in_module\t[ext4]\n";
	static const uint64_t needed[] = {0xffffffff81000000, 0xffffffff81000003, 0xffffffff81000100,
					  0xffffffff81000105, 0xffffffff810001ff, 0xffffffff81000200,
					  0xffffffff810002ff};
	static const uint64_t above[] = {0xffffffff81000003, 0xffffffff81000300};
	static const uint64_t below[] = {0xffffffff80ffffff, 0xffffffff81000003};
	static const char unsorted[] = "ffffffff81000300 T _etext\n"
				       "ffffffff81000000 T _text\n"
				       "what is this\n";
	const size_t n = sizeof needed / sizeof *needed;
	tap_str(sorted_names(text, needed, n, true),
		"alias+0 alias+3 do_things+0 do_things+5 do_things+255 two+0 two+255 ",
		"a kernel's own list is looked into by bisection");
	tap_str(sorted_names(text, needed, n, false), sorted_names(text, needed, n, true),
		"with the names that a whole pass gives");
	tap_str(sorted_names(text, above, 2, true), "-+0 -+0 ",
		"it answers for all or for none: not when modules follow");
	tap_str(sorted_names(text, below, 2, true), "-+0 -+0 ", "not below the core's code");
	tap_str(sorted_names(unsorted, needed, n, true), "-+0 -+0 -+0 -+0 -+0 -+0 -+0 ",
		"and not from a text in another order");
}

static void test_kallsyms(void)
{
	/* Out of order, with everything that is not a symbol of code or data. */
	static const char text[] = "0000000000001000 A fixed_percpu_data\n"
				   "0000000000000fff t per_cpu_text\n"
				   "ffffffffc0000010 t in_module\t[ext4]\r\n"
				   "ffffffffc0001000 t end_of_module\t[ext4]\n"
				   "ffffffff81000000 T _text\n"
				   "ffffffff81000000 T alias_one\n"
				   "ffffffff81000000 T alias_two\n"
				   "ffffffff81000002 t $x\n"
				   "ffffffff81000003 t .Lhere\n"
				   "ffffffff81000003 t L0\002\n"
				   "ffffffff81000100 W do_things\n"
				   "ffffffff81000104 r a_constant\n"
				   "ffffffff81000200 T _etext\n"
				   "no address\n\n"
				   "ffffffff810001zz T bad\n"
				   "0000000000000000 T hidden\n";
	static const char zeros[] = "0000000000000000 T _text\n0000000000000000 t do_things\n";
	uint64_t start = 0;
	const char *module = NULL;
	tap_str(kernel_name(text, 0xffffffff81000005, &start, &module), "alias_two",
		"of several names for an address the last one counts");
	tap_str(kernel_name(text, 0xffffffff81000105, &start, &module), "do_things",
		"weak symbols count, constants and labels do not");
	tap_eq(start, 0xffffffff81000100, "the symbol's own address comes with it");
	tap_str(kernel_name(text, 0xffffffffc0000020, &start, &module), "in_module",
		"symbols of modules are found though they come first");
	tap_str(module, "ext4", "with the module's name");
	tap_str(kernel_name(text, 0xffffffff80ffffff, &start, &module), NULL,
		"below the first symbol there is no name");
	tap_str(kernel_name(text, 0x1000, &start, &module), NULL,
		"symbols of the core before _text are left out");
	tap_str(kernel_name(text, 0xffffffffffffff00, &start, &module), NULL,
		"far above the last symbol there is no name");
	tap_str(kernel_name(zeros, 0xffffffff81000005, &start, &module), NULL,
		"addresses of zero never give names");
	tap_str(kernel_name("", 0xffffffff81000005, &start, &module), NULL,
		"an empty text is read");
}

static void check_demangled(const char *name, const char *want)
{
	struct sp_buf b = {0};
	const char *got = sp_demangle(name, &b) > 0 ? (const char *)b.data : "as it is";
	tap_str(got, want, name);
	sp_buf_deinit(&b);
}

static void test_demangle(void)
{
	check_demangled("_start", "as it is");
	check_demangled("__libc_start_main", "as it is");
	check_demangled("_Z", "as it is");
	check_demangled("_ZN2ns3BoxIlE4takeEl", "ns::Box<long>::take(long)");
	check_demangled("_ZN2ns3BoxIlE4takeEl.cold", "ns::Box<long>::take(long) [clone .cold]");
	check_demangled("_ZN2ns1fEv.part.0", "ns::f() [clone .part.0]");
	check_demangled("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()(int) const");
	check_demangled("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f()");
	check_demangled("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
			"core::fmt::Formatter::pad");
	check_demangled("_RNvC7mycrate3foo", "mycrate::foo");
	check_demangled("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>");
	check_demangled("_RNvC7mycrateu3nda", "mycrate::\303\266");
	/* One that explodes out of identifiers in punycode, which are on the heap meanwhile. */
	check_demangled("_RINvNtC3std2meu8eeeeeeeeeeejjjjjjjjjjjjjjjjjjeeeaeeeeC0B_eeeeee",
			"as it is");

	/* A name that doubles with every letter: 2^60 characters when it is printed. */
	struct sp_buf bomb = {0}, out = {0};
	sp_buf_str(&bomb, "_Z1f");
	sp_buf_str(&bomb, "St4pairIiiE");
	for (int i = 0; i < 60; i++)
		sp_buf_printf(&bomb, "St4pairIS%c_S%c_E",
			      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i % 36],
			      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i % 36]);
	sp_buf_u8(&bomb, 0);
	clock_t began = clock();
	int rc = sp_demangle((const char *)bomb.data, &out);
	tap_ok(rc == 0 || out.len <= SP_DEMANGLED_MAX, "a name that explodes is bounded");
	tap_ok((clock() - began) / CLOCKS_PER_SEC < 5, "in time too");
	bomb.len = 0;
	sp_buf_str(&bomb, "_Z");
	while (bomb.len < 2 * SP_MANGLED_MAX)
		sp_buf_str(&bomb, "N");
	sp_buf_u8(&bomb, 0);
	tap_eq((uint64_t)sp_demangle((const char *)bomb.data, &out), 0,
	       "a very long name stays as it is");
	sp_buf_deinit(&bomb);
	sp_buf_deinit(&out);
}

int main(void)
{
	test_perf_map();
	test_runtimes();
	test_python_names();
	test_jitdump();
	test_jitdump_times();
	test_kallsyms();
	test_kallsyms_address();
	test_kallsyms_sorted();
	test_demangle();
	return tap_done();
}
