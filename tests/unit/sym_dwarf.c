/* Functions, lines and inline chains, by value, in programs that are compiled here with gcc and
 * clang in every version of DWARF; split, packed, stripped with debug files, with dwz. */
#include "sym_build.h"

#include "sym/symfile.h"

/* Each mark is a label on a nop; the table below says on which line it stands and what calls are
 * inlined around it. */
static const char c_source[] =
	"#define MARK(n) __asm__ volatile(\".globl \" #n \"\\n\" #n \":\\n\\tnop\")\n" /* 1 */
	"int sink;\n"
	"static inline __attribute__((always_inline)) void innermost(int x)\n"
	"{\n"
	"	sink += x;\n" /* 5 */
	"	MARK(mark_innermost);\n"
	"}\n"
	"static inline __attribute__((always_inline)) void middle(int x)\n"
	"{\n"
	"	innermost(x + 1);\n" /* 10 */
	"	MARK(mark_middle);\n"
	"}\n"
	"__attribute__((noinline)) int work(int x)\n"
	"{\n"
	"	MARK(mark_work);\n" /* 15 */
	"	middle(x);\n"
	"	return sink + x;\n"
	"}\n"
	"int main(int argc, char **argv) { (void)argv; return work(argc); }\n";

static const char cc_source[] =
	"#define MARK(n) __asm__ volatile(\".globl \" #n \"\\n\" #n \":\\n\\tnop\")\n" /* 1 */
	"int sink;\n"
	"namespace ns {\n"
	"template <class T> struct Box {\n"
	"	static inline __attribute__((always_inline)) void put(T x)\n" /* 5 */
	"	{\n"
	"		sink += (int)x; MARK(mark_put);\n"
	"	}\n"
	"	int take(T x);\n"
	"};\n" /* 10 */
	"template <class T> __attribute__((noinline)) int Box<T>::take(T x)\n"
	"{\n"
	"	put(x);\n"
	"	return sink;\n"
	"}\n" /* 15 */
	"}\n"
	"int main(int argc, char **) { ns::Box<long> b; return b.take(argc); }\n";

struct level {
	const char *function;
	unsigned line;
};

struct mark {
	const char *symbol;
	struct level levels[4];
};

static const struct mark c_marks[] = {
	{"mark_innermost", {{"innermost", 6}, {"middle", 10}, {"work", 16}}},
	{"mark_middle", {{"middle", 11}, {"work", 16}}},
	{"mark_work", {{"work", 15}}},
	{0},
};
static const struct mark cc_marks[] = {
	{"mark_put", {{"ns::Box<long>::put(long)", 7}, {"ns::Box<long>::take(long)", 13}}},
	{0},
};

static bool same_levels(const struct sp_name *got, int n, const struct mark *m, const char *file)
{
	int want = 0;
	while (m->levels[want].function)
		want++;
	bool good = n == want;
	for (int i = 0; i < n && good; i++) {
		const char *base =
			got[i].file && got[i].file[0] == '/' ? strrchr(got[i].file, '/') : NULL;
		good = got[i].function && !strcmp(got[i].function, m->levels[i].function) &&
		       got[i].line == m->levels[i].line && base && !strcmp(base + 1, file) &&
		       got[i].inlined == (i + 1 < n);
	}
	for (int i = 0; i < n && !good; i++)
		printf("# %s: got %s %s:%u\n", m->symbol, got[i].function, got[i].file,
		       got[i].line);
	return good;
}

/* Marks are where `symbols` (an unstripped copy) says; the answers come from `program`. */
static void check(const char *what, const char *program, const char *symbols,
		  const struct mark *marks, const char *source)
{
	const char *dir = build_dir;
	struct sp_symfile_options o = {.debug = {.dirs = &dir, .n = 1}};
	struct sp_symfile *s = NULL;
	struct sp_elf e;
	struct sp_err err = {0};
	char name[200];
	bool good = sp_elf_open(&e, in_build(symbols), &err) >= 0;
	if (good && sp_symfile_open(&s, in_build(program), &o, &err) < 0) {
		sp_elf_close(&e);
		good = false;
	}
	for (; good && marks->symbol; marks++) {
		const struct sp_name *got = NULL;
		uint64_t start = 0, svma = symbol_value(&e, marks->symbol);
		int n = sp_symfile_lookup(s, svma, &got, &start, &err);
		good &= svma && n > 0 && same_levels(got, n, marks, source) && start <= svma;
	}
	if (s && sp_symfile_problem(s))
		printf("# %s\n", sp_symfile_problem(s));
	if (s)
		sp_elf_close(&e);
	sp_symfile_close(s);
	snprintf(name, sizeof name, "%s: functions, lines and inline chains are right", what);
	if (!tap_ok(good, name))
		printf("# %s\n", err.msg);
}

static void check_built(const char *what, const char *command, const struct mark *marks,
			const char *source)
{
	if (!build_run(command)) {
		tap_ok(false, what);
		printf("# cannot run: %s\n", command);
		return;
	}
	check(what, "prog", "prog", marks, source);
}

static void test_versions(void)
{
	static const char *const compilers[][2] = {{"gcc", "g++"}, {"clang", "clang++"}};
	static const char *const flags[] = {
		"-gdwarf-2",          "-gdwarf-3",
		"-gdwarf-4",          "-gdwarf-5",
		"-gdwarf-5 -gz=zlib", "-gdwarf-4 -ffunction-sections -Wl,--gc-sections",
		"-gdwarf-5 -no-pie",  "-gdwarf-5 -flto",
	};
	char what[200], command[400];
	for (size_t c = 0; c < 2; c++)
		for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
			const char *lld = c && strstr(flags[i], "lto") ? "-fuse-ld=lld" : "";
			snprintf(what, sizeof what, "%s %s", compilers[c][0], flags[i]);
			snprintf(command, sizeof command, "%s -O1 %s %s -o prog a.c",
				 compilers[c][0], flags[i], lld);
			check_built(what, command, c_marks, "a.c");
			snprintf(what, sizeof what, "%s %s", compilers[c][1], flags[i]);
			snprintf(command, sizeof command, "%s -O1 %s %s -o prog b.cc",
				 compilers[c][1], flags[i], lld);
			check_built(what, command, cc_marks, "b.cc");
		}
	check_built("gcc -gdwarf64", "gcc -O1 -gdwarf-5 -gdwarf64 -o prog a.c", c_marks, "a.c");
	check_built("clang line tables only", "clang -O1 -gmlt -o prog a.c", c_marks, "a.c");
	check_built("gcc -g1", "gcc -O1 -g1 -o prog a.c", c_marks, "a.c");
}

static void test_split(void)
{
	check_built("gcc split DWARF 4", "gcc -O1 -gdwarf-4 -gsplit-dwarf -o prog a.c", c_marks,
		    "a.c");
	check_built("gcc split DWARF 5", "g++ -O1 -gdwarf-5 -gsplit-dwarf -o prog b.cc", cc_marks,
		    "b.cc");
	check_built("clang split DWARF 4", "clang++ -O1 -gdwarf-4 -gsplit-dwarf -o prog b.cc",
		    cc_marks, "b.cc");
	check_built("clang split DWARF 5",
		    "rm -f *.dwo; clang -O1 -gdwarf-5 -gsplit-dwarf -o prog a.c", c_marks, "a.c");
	/* A hundred units of types come before the one with the functions. */
	check_built("split DWARF with types apart",
		    "rm -f *.dwo; for i in $(seq 100); do echo \"struct t$i { int x; } v$i;\"; "
		    "done >types.h;"
		    "clang++ -O1 -gdwarf-5 -gsplit-dwarf -fdebug-types-section -include types.h "
		    "-o prog b.cc",
		    cc_marks, "b.cc");
	check_built("a package of split DWARF",
		    "rm -f *.dwo *.dwp; clang -O1 -gdwarf-5 -gsplit-dwarf -o prog a.c && "
		    "$(ls /usr/bin/llvm-dwp* | head -n 1) -e prog -o prog.dwp && rm *.dwo",
		    c_marks, "a.c");
	build_run("rm -f *.dwo *.dwp");
}

static void test_debug_files(void)
{
	build_run("gcc -O1 -g -Wl,--build-id=sha1 -o whole a.c && "
		  "objcopy --only-keep-debug whole whole.debug");
	check_built(
		"a debug file in a build-id folder",
		"cp whole prog && strip prog && id=$(readelf -n prog | sed -n 's/.*Build ID: //p') "
		"&&"
		" mkdir -p .build-id/$(echo $id | cut -c1-2) && "
		"cp whole.debug .build-id/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-).debug && "
		"cp whole symbols",
		(const struct mark[]){{0}}, "");
	check("a stripped program with its debug file by build-id", "prog", "symbols", c_marks,
	      "a.c");
	build_run(
		"rm -rf .build-id; gcc -O1 -g -Wl,--build-id=none -o symbols a.c && "
		"objcopy --only-keep-debug symbols prog.debug && cp symbols prog && strip prog && "
		"objcopy --add-gnu-debuglink=prog.debug prog");
	check("a debug file by name and CRC", "prog", "symbols", c_marks, "a.c");
	build_run("mkdir -p .debug && mv prog.debug .debug");
	check("a debug file in .debug", "prog", "symbols", c_marks, "a.c");

	build_run("mv .debug/prog.debug . && printf x >>prog.debug");
	const char *dir = build_dir;
	struct sp_symfile_options o = {.debug = {.dirs = &dir, .n = 1}};
	struct sp_symfile *s = NULL;
	struct sp_elf e;
	if (sp_symfile_open(&s, in_build("prog"), &o, NULL) < 0 ||
	    sp_elf_open(&e, in_build("symbols"), NULL) < 0) {
		tap_ok(false, "a program with a changed debug file opens");
		return;
	}
	const struct sp_name *got;
	uint64_t start;
	int n = sp_symfile_lookup(s, symbol_value(&e, "mark_work"), &got, &start, NULL);
	tap_eq((uint64_t)n, 0, "a debug file with another CRC gives no names");
	const char *problem = sp_symfile_problem(s);
	tap_ok(problem && strstr(problem, "another CRC"), "and the reason is said");
	sp_symfile_close(s);
	sp_elf_close(&e);
}

static char asked_for[200];

static int fetch(void *ctx, const char *build_id, char *path, size_t path_size)
{
	snprintf(asked_for, sizeof asked_for, "%s", build_id);
	snprintf(path, path_size, "%s", (const char *)ctx);
	return 1;
}

/* What somebody fetches is used if it bears the build-id that was asked for. */
static void test_fetch(void)
{
	build_run(
		"gcc -O1 -g -Wl,--build-id=0x0123456789abcdef -o symbols a.c && cp symbols prog && "
		"strip prog && rm -f fetched.debug; objcopy --only-keep-debug symbols "
		"fetched.debug");
	char path[300];
	snprintf(path, sizeof path, "%s", in_build("fetched.debug"));
	struct sp_symfile_options o = {.debug = {.fetch = fetch, .fetch_ctx = path}};
	for (int other = 0; other < 2; other++) {
		struct sp_symfile *s = NULL;
		struct sp_elf e;
		const struct sp_name *got;
		uint64_t start;
		if (sp_symfile_open(&s, in_build("prog"), &o, NULL) < 0 ||
		    sp_elf_open(&e, in_build("symbols"), NULL) < 0) {
			tap_ok(false, "a stripped program opens");
			return;
		}
		int n = sp_symfile_lookup(s, symbol_value(&e, "mark_work"), &got, &start, NULL);
		const char *problem = sp_symfile_problem(s);
		if (other)
			tap_ok(n == 0 && problem && strstr(problem, "another build-id"),
			       "a fetched file of another build is refused, and this is said");
		else
			tap_ok(n == 1 && !strcmp(asked_for, "0123456789abcdef") &&
				       same_levels(got, n, &c_marks[2], "a.c"),
			       "a debug file that is fetched by build-id gives names");
		sp_symfile_close(s);
		sp_elf_close(&e);
		build_run("gcc -O2 -g -Wl,--build-id=0x0123456789abcdee -o fetched.debug a.c");
	}
}

static void test_dwz(void)
{
	if (!build_run("command -v dwz >/dev/null")) {
		tap_ok(true, "dwz is packed DWARF # SKIP dwz is not installed");
		return;
	}
	check_built("dwz", "gcc -O1 -gdwarf-4 -o prog a.c && dwz prog", c_marks, "a.c");
	check_built("dwz of several files, DWARF 4",
		    "gcc -O1 -gdwarf-4 -o prog a.c && gcc -O2 -gdwarf-4 -o other a.c && "
		    "dwz -m common -M common prog other",
		    c_marks, "a.c");
	check_built(
		"dwz of several files, DWARF 5",
		"rm -f common; gcc -O1 -gdwarf-5 -o prog a.c && gcc -O2 -gdwarf-5 -o other a.c && "
		"dwz -5 -m common -M common prog other",
		c_marks, "a.c");
}

int main(void)
{
	if (!mkdtemp(build_dir)) {
		perror(build_dir);
		return 99;
	}
	build_write("a.c", c_source, sizeof c_source - 1);
	build_write("b.cc", cc_source, sizeof cc_source - 1);
	test_versions();
	test_split();
	test_debug_files();
	test_fetch();
	test_dwz();
	build_end();
	return tap_done();
}
