/* Names from symbol tables alone: sizes, gaps, aliases, marks, PLT entries, stripped files. */
#include "sym_build.h"

#include "sym/symfile.h"
#include "sym/symtab.h"

static const char source[] =
	"#include <stdlib.h>\n"
	"#include <string.h>\n"
	"#include <stdio.h>\n"
	"int sink;\n"
	"__attribute__((noinline)) int _under_leaf(int x) { return sink += x; }\n"
	"int __public(int x) __attribute__((alias(\"_under_leaf\")));\n"
	"__attribute__((noinline)) static int hidden(int x) { sink += x; return _under_leaf(x) * "
	"2; }\n"
	"__asm__(\".text\\n.p2align 4\\n.type sized, @function\\nsized: nop\\nsized_label: "
	"nop\\nnop\\n\"\n"
	"	\".size sized, .-sized\\n.p2align 6\\n\"\n"
	"	\".globl naked\\n.type naked, @function\\nnaked: nop\\nnop\\nret\\n\"\n"
	"	\".globl bare\\nbare: nop\\nret\\n\");\n"
	"static int one(int x) { return x + 1; }\n"
	"static int two(int x) { return x + 2; }\n"
	"static void *choose(void) { return sink ? (void *)one : (void *)two; }\n"
	"int chosen(int) __attribute__((ifunc(\"choose\")));\n"
	"__attribute__((noinline, cold)) static void die(const char *s) { puts(s); abort(); }\n"
	"__attribute__((noinline)) int fails(int x)\n"
	"{\n"
	"	if (__builtin_expect(x > 1000, 0)) { sink += 3; die(\"large\"); }\n"
	"	return x + hidden(x);\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	char *p = malloc(argc);\n"
	"	strcpy(p, argv[0]);\n"
	"	return fails(argc) + chosen(argc) + __public(argc) + p[0];\n"
	"}\n";

static struct sp_symfile *file;

static const char *name_at(uint64_t svma)
{
	const struct sp_name *levels;
	uint64_t start;
	int n = sp_symfile_lookup(file, svma, &levels, &start, NULL);
	return n > 0 ? levels[n - 1].function : NULL;
}

static bool open_file(const char *name)
{
	static const struct sp_symfile_options none;
	sp_symfile_close(file);
	file = NULL;
	struct sp_err err;
	if (sp_symfile_open(&file, in_build(name), &none, &err) >= 0)
		return true;
	printf("# %s\n", err.msg);
	return tap_ok(false, name);
}

static void test_symtab(const struct sp_elf *e)
{
	if (!open_file("prog"))
		return;
	uint64_t leaf = symbol_value(e, "_under_leaf"), sized = symbol_value(e, "sized");
	uint64_t naked = symbol_value(e, "naked"), bare = symbol_value(e, "bare");
	tap_str(name_at(symbol_value(e, "_start")), "_start", "a leading underscore stays");
	tap_str(name_at(leaf + 1), "_under_leaf",
		"of two global names the one with fewer underscores");
	tap_str(name_at(symbol_value(e, "hidden") + 2), "hidden", "a local function has its name");
	tap_str(name_at(sized), "sized", "a sized symbol names its first byte");
	tap_str(name_at(sized + 2), "sized", "labels inside of it do not matter");
	tap_str(name_at(sized + 3), NULL, "behind its end there is no name");
	tap_str(name_at(naked + 2), "naked", "a function without a size names what follows");
	tap_str(name_at(bare + 1), "bare", "up to the next symbol, typed or not");
	uint64_t cold = symbol_value(e, "fails.cold");
	tap_str(cold ? name_at(cold) : "fails.cold", "fails.cold", "the mark of a cold part stays");
	tap_ok(symbol_value(e, "chosen") && name_at(symbol_value(e, "chosen")),
	       "a function chosen at run time has a name");
	tap_str(name_at(0), NULL, "no code, no name");
}

static void test_plt(const char *flags, const char *why)
{
	char command[300];
	snprintf(command, sizeof command, "%s -o plt a.c", flags);
	if (!build_run(command) || !open_file("plt"))
		return;
	const struct sp_elf *e = sp_symfile_elf(file);
	bool malloc_seen = false, strcpy_seen = false;
	static const char *const sections[] = {".plt", ".plt.sec", ".plt.got"};
	for (size_t i = 0; i < 3; i++) {
		const struct sp_section *s = sp_elf_section(e, sections[i]);
		for (uint64_t at = 0; s && at < s->size; at += 2) {
			const char *name = name_at(s->svma + at);
			malloc_seen |= name && !strcmp(name, "malloc@plt");
			strcpy_seen |= name && !strcmp(name, "strcpy@plt");
		}
	}
	tap_ok(malloc_seen && strcpy_seen, why);
}

static void test_plt_cc(void)
{
	static const char text[] = "int *make(int x) { return new int(x); }\n"
				     "int main(int n, char **) { return *make(n); }\n";
	build_write("plt.cc", text, sizeof text - 1);
	bool seen = false;
	if (build_run("g++ -O0 -o plt plt.cc") && open_file("plt")) {
		const struct sp_elf *e = sp_symfile_elf(file);
		for (size_t i = 0; i < e->n_sections; i++) {
			const struct sp_section *s = &e->sections[i];
			for (uint64_t at = 0; !strncmp(s->name, ".plt", 4) && at < s->size;
			     at += 8) {
				const char *name = name_at(s->svma + at);
				seen |= name && !strcmp(name, "operator new(unsigned long)@plt");
			}
		}
	}
	tap_ok(seen, "PLT entries of C++ functions are demangled");
}

/* The exported function before `hidden` must not lend its name to it, nor to anything else. */
static void test_stripped(const char *command, const char *why)
{
	struct sp_elf e;
	if (!build_run(command) || sp_elf_open(&e, in_build("whole"), NULL) < 0) {
		tap_ok(false, why);
		return;
	}
	if (open_file("cut")) {
		tap_str(name_at(symbol_value(&e, "hidden") + 2), NULL, why);
		tap_str(name_at(symbol_value(&e, "sized") + 2), NULL,
			"nor are labels without a symbol");
	}
	sp_elf_close(&e);
}

static void test_exported(void)
{
	struct sp_elf e;
	if (!build_run("gcc -O2 -fPIC -shared -Wl,-z,defs -o whole a.c && strip -o cut whole") ||
	    sp_elf_open(&e, in_build("whole"), NULL) < 0) {
		tap_ok(false, "a stripped library is built");
		return;
	}
	if (open_file("cut")) {
		uint64_t naked = symbol_value(&e, "naked");
		tap_str(name_at(symbol_value(&e, "_under_leaf") + 1), "_under_leaf",
			"a stripped library names what it exports");
		tap_str(name_at(symbol_value(&e, "hidden") + 2), NULL,
			"an exported function lends its name to no other");
		tap_str(name_at(naked + 1), "naked",
			"an exported function without a size has a name");
		/* one() has CFI of its own and no symbol; the nearest one below has no size. */
		tap_str(name_at(symbol_value(&e, "one")), NULL,
			"which ends where CFI begins another");
	}
	sp_elf_close(&e);
}

static void test_minidebug(void)
{
	if (!build_run("gcc -O2 -o whole a.c && nm whole --defined-only --format=posix | "
		       "awk '$2 == \"t\" || $2 == \"T\" { print $1 }' >keep && "
		       "objcopy -S --keep-symbols=keep whole mini && rm -f mini.xz && xz mini && "
		       "strip -o cut whole && objcopy --add-section .gnu_debugdata=mini.xz cut")) {
		tap_ok(false, "a program with .gnu_debugdata is built");
		return;
	}
	struct sp_elf e;
	if (sp_elf_open(&e, in_build("whole"), NULL) < 0 || !open_file("cut"))
		return;
	tap_str(name_at(symbol_value(&e, "hidden") + 2), "hidden",
		".gnu_debugdata names functions");
	sp_elf_close(&e);
	build_run("printf 'no xz at all' >mini.xz; strip -o cut whole && "
		  "objcopy --add-section .gnu_debugdata=mini.xz cut");
	if (open_file("cut"))
		tap_ok(sp_symfile_problem(file) != NULL, "a broken .gnu_debugdata is said");
}

/* As glibc writes __restore_rt: its FDE begins a byte before the symbol. */
static void test_trampoline(void)
{
	static const char asm_source[] =
		"__asm__(\".text\\n.p2align 6\\n.cfi_startproc\\n.cfi_signal_frame\\nnop\\n\"\n"
		"	\".globl tramp\\n.type tramp, @function\\ntramp: "
		"nop\\nret\\n.cfi_endproc\\n\"\n"
		"	\".size tramp, .-tramp\\n.p2align 6\\n.globl plain\\n.type plain, "
		"@function\\n\"\n"
		"	\".byte 0\\nplain: .cfi_startproc\\nret\\n.cfi_endproc\\n.size plain, "
		"1\");\n";
	build_write("t.c", asm_source, sizeof asm_source - 1);
	struct sp_elf e;
	if (!build_run("gcc -shared -fPIC -o tramp t.c") || !open_file("tramp") ||
	    sp_elf_open(&e, in_build("tramp"), NULL) < 0) {
		tap_ok(false, "the trampoline is built");
		return;
	}
	tap_str(name_at(symbol_value(&e, "tramp") - 1), "tramp",
		"the byte before a signal trampoline, which its FDE covers, is its own");
	tap_str(name_at(symbol_value(&e, "plain") - 1), NULL,
		"the byte before an ordinary function is not");
	sp_elf_close(&e);
}

static bool read_table(struct sp_symtab *t, const struct sp_elf *e, const uint64_t *expected,
		       size_t n)
{
	*t = (struct sp_symtab){0};
	if (expected && sp_symtab_expect(t, expected, n, NULL) < 0)
		return false;
	sp_symtab_add(t, e);
	return sp_symtab_finish(t, e, NULL) >= 0;
}

static struct sp_symbol find_any(struct sp_symtab *t, uint64_t svma)
{
	struct sp_symbol s;
	return sp_symtab_find(t, svma, NULL, &s) || sp_symtab_find_trampoline(t, svma, &s)
		       ? s
		       : (struct sp_symbol){0};
}

static bool answers_as(struct sp_symtab *t, uint64_t svma, const struct sp_symbol *want)
{
	struct sp_symbol got = find_any(t, svma);
	return got.start == want->start && got.is_plt == want->is_plt &&
	       (got.name && want->name ? !strcmp(got.name, want->name) : got.name == want->name);
}

/* Tables that were told every step-th address of a section, from each beginning: first asked those,
 * then all. Returns how many answers differ from `all`, those of a table that was told nothing. */
static size_t wrong_answers(const struct sp_elf *e, const struct sp_section *s, uint64_t step,
			    const struct sp_symbol *all, uint64_t *told)
{
	size_t wrong = 0;
	for (uint64_t from = 0; from < step && from < s->size; from++) {
		struct sp_symtab t;
		size_t n = 0;
		for (uint64_t at = from; at < s->size; at += step)
			told[n++] = s->svma + at;
		wrong += !read_table(&t, e, told, n);
		for (uint64_t at = from; at < s->size; at += step)
			wrong += !answers_as(&t, s->svma + at, &all[at]);
		for (uint64_t at = 0; step > 1 && at < s->size; at += 1 + step / 3)
			wrong += !answers_as(&t, s->svma + at, &all[at]);
		sp_symtab_deinit(&t);
	}
	return wrong;
}

static void test_expected(const char *program, const char *why)
{
	struct sp_elf e;
	struct sp_symtab whole;
	if (sp_elf_open(&e, in_build(program), NULL) < 0 || !read_table(&whole, &e, NULL, 0)) {
		tap_ok(false, why);
		return;
	}
	size_t wrong = 0, asked = 0;
	for (size_t i = 0; i < e.n_sections; i++) {
		const struct sp_section *s = &e.sections[i];
		if (!(s->flags & SHF_EXECINSTR) || s->size > 8192)
			continue;
		struct sp_symbol *all = calloc(s->size + 1, sizeof *all);
		uint64_t *told = calloc(s->size + 1, sizeof *told);
		for (uint64_t at = 0; at < s->size; at++)
			all[at] = find_any(&whole, s->svma + at);
		static const uint64_t steps[] = {1, 2, 5, 64, 8192};
		for (size_t k = 0; k < 5; k++)
			wrong += wrong_answers(&e, s, steps[k], all, told);
		asked += s->size;
		free(all);
		free(told);
	}
	tap_ok(asked && !wrong, why);
	sp_symtab_deinit(&whole);
	sp_elf_close(&e);
}

int main(void)
{
	if (!mkdtemp(build_dir)) {
		perror(build_dir);
		return 99;
	}
	build_write("a.c", source, sizeof source - 1);
	struct sp_elf e;
	if (!build_run("gcc -O2 -o prog a.c") || sp_elf_open(&e, in_build("prog"), NULL) < 0) {
		tap_ok(false, "the program is built");
		return tap_done();
	}
	test_symtab(&e);
	sp_elf_close(&e);
	test_plt("gcc -O2", "PLT entries are named");
	test_plt("gcc -O2 -Wl,-z,lazy", "lazy PLT entries are named");
	test_plt("gcc -O2 -fcf-protection=full -Wl,-z,ibtplt",
		 "PLT entries in two halves are named");
	test_plt("clang -O2 -fuse-ld=lld", "PLT entries of lld are named");
	test_plt("gcc -O2 -fuse-ld=gold", "PLT entries of gold are named");
	test_plt_cc();
	test_stripped("gcc -O2 -o whole a.c && strip -o cut whole",
		      "a stripped program has no names for its own functions");
	test_stripped("gcc -O2 -no-pie -o whole a.c && strip -o cut whole",
		      "a stripped program at a fixed address has none either");
	test_exported();
	test_minidebug();
	test_trampoline();
	test_expected("prog", "what is told beforehand does not change the answers");
	test_expected("cut", "nor where most symbols are missing");
	test_expected("tramp", "nor before a trampoline");
	sp_symfile_close(file);
	build_end();
	return tap_done();
}
