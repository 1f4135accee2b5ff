/* Go's function table: names, files, lines, inlined calls, what of the stack is used; of programs
 * that say in each of the ways where their code begins; and of damaged ones. */
#include "elf/pclntab.h"

#include "go_image.h"
#include "sym/symfile.h"
#include "tap.h"

enum {
	LEAF = GO_TEXT,
	OUTER = GO_TEXT + 0x20,
	ODD = GO_TEXT + 0xa0,
	END = GO_TEXT + 0xc0,
};

/* OUTER calls main.inner, inlined, which calls main.innermost, inlined too. */
static void make(struct go_image *m, const struct go_options *o)
{
	go_new(m, o);
	int32_t a = go_file(m, "/src/a.go"), b = go_file(m, "/src/b.go");
	struct go_func leaf = {.entry = 0, .size = 0x1c, .name = "runtime.leaf"};
	leaf.pcsp = GO_LIST(m, {0, 0x1c});
	leaf.pcfile = GO_LIST(m, {a, 0x1c});
	leaf.pcln = GO_LIST(m, {7, 0x10}, {1000, 0x1c});
	struct go_func outer = {.entry = 0x20, .size = 0x80, .name = "main.outer"};
	outer.pcsp = GO_LIST(m, {0, 0x10}, {300, 0x70}, {0, 0x80});
	outer.pcfile = GO_LIST(m, {a, 0x30}, {b, 0x50}, {a, 0x80});
	outer.pcln = GO_LIST(m, {20, 0x30}, {40, 0x3c}, {50, 0x50}, {21, 0x80});
	outer.inlined = GO_LIST(m, {-1, 0x30}, {0, 0x3c}, {1, 0x50}, {-1, 0x80});
	outer.tree = go_inlined(m, "main.inner", 0x2c);
	go_inlined(m, "main.innermost", 0x38);
	struct go_func odd = {.entry = 0xa0,
			      .size = 0x20,
			      .name = "type:.eq.main.T\xc2\xb7"
				      "7"};
	odd.pcsp = GO_LIST(m, {0, 0x20});
	go_func(m, &leaf);
	go_func(m, &outer);
	go_func(m, &odd);
	go_finish(m);
}

static struct sp_symfile *open_image(const struct go_image *m,
				     const struct sp_symfile_options *options)
{
	struct sp_symfile *s = NULL;
	struct sp_err err = {0};
	if (sp_symfile_open_image(&s, m->data, GO_SIZE, "prog", options, &err) < 0)
		printf("# %s\n", err.msg);
	return s;
}

/* "name file:line" of each level, with a comma between. */
static const char *told(struct sp_symfile *s, uint64_t svma, uint64_t *start)
{
	static char text[400];
	const struct sp_name *v = NULL;
	int n = sp_symfile_lookup(s, svma, &v, start, NULL);
	text[0] = 0;
	for (int i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s:%u",
			 i ? ", " : "", v[i].function, v[i].file ? v[i].file : "-", v[i].line);
	return text;
}

static void test_names(const struct go_options *o, const char *kind)
{
	struct go_image m;
	uint64_t start = 0;
	char what[200];
	make(&m, o);
	struct sp_symfile *s = open_image(&m, NULL);
	snprintf(what, sizeof what, "%s: a function, its line, its begin", kind);
	tap_str(told(s, LEAF + 0x12, &start), "runtime.leaf /src/a.go:1000", what);
	tap_eq(start, LEAF, what);
	snprintf(what, sizeof what, "%s: inlined calls, each with the line that it is at", kind);
	tap_str(told(s, OUTER + 0x40, &start),
		"main.innermost /src/b.go:50, main.inner /src/b.go:40, main.outer /src/a.go:20",
		what);
	tap_eq(start, OUTER, what);
	sp_symfile_close(s);
	free(m.data);
}

static void test_rest(void)
{
	struct go_image m;
	uint64_t start = 0;
	make(&m, &(struct go_options){EM_X86_64, .sections = true, .place = GO_IN_HEAD});
	struct sp_symfile *s = open_image(&m, NULL);
	tap_str(told(s, OUTER, &start), "main.outer /src/a.go:20",
		"what is not inlined has one level");
	tap_str(told(s, OUTER + 0x80 - 1, &start), "main.outer /src/a.go:21", "a last instruction");
	tap_str(told(s, ODD, &start), "type:.eq.main.T.7 -:0",
		"a name is written as a symbol table has it, and without a line is not in doubt");
	tap_str(told(s, LEAF - 1, &start), "", "no name before the first function");
	tap_str(told(s, END, &start), "", "nor behind the last one");
	tap_str(sp_symfile_problem(s), NULL, "a program with such a table lacks no symbols");
	sp_symfile_close(s);
	s = open_image(&m, &(struct sp_symfile_options){.no_inline = true});
	tap_str(told(s, OUTER + 0x40, &start), "main.outer /src/b.go:50", "without inlined calls");
	sp_symfile_close(s);
	s = open_image(&m, &(struct sp_symfile_options){.no_lines = true});
	tap_str(told(s, OUTER + 0x35, &start), "main.inner -:0, main.outer -:0", "without lines");
	sp_symfile_close(s);
	free(m.data);
	make(&m, &(struct go_options){EM_X86_64, .place = GO_IN_HEAD});
	m.data[GO_NOTE + 12] = 'g';
	s = open_image(&m, NULL);
	tap_str(told(s, LEAF, &start), "", "who is not Go's is not searched");
	sp_symfile_close(s);
	free(m.data);
	make(&m, &(struct go_options){EM_X86_64, .sections = true, .place = GO_NOWHERE});
	s = open_image(&m, NULL);
	tap_str(told(s, LEAF, &start), "", "who does not say where the code is gets no names");
	tap_str(sp_symfile_problem(s), "no symbols", "and is said to lack symbols");
	sp_symfile_close(s);
	free(m.data);
}

static void test_values(uint16_t machine, const char *what)
{
	struct go_image m;
	struct sp_elf e;
	struct sp_pclntab t;
	struct sp_go_func f;
	struct sp_go_value v = {0};
	struct sp_err err;
	make(&m, &(struct go_options){machine, .place = GO_IN_HEAD});
	bool ok = sp_elf_init(&e, m.data, GO_SIZE, &err) >= 0 && sp_pclntab_open(&t, &e) &&
		  sp_pclntab_find(&t, OUTER + 0x10, &f);
	tap_ok(ok && f.begin == OUTER && f.end == ODD && f.flags == 0, what);
	tap_ok(ok && sp_pclntab_value(&t, &f, f.pcsp, OUTER + 0x10, &v) && v.value == 300 &&
		       v.begin == OUTER + 0x10 && v.end == OUTER + 0x70,
	       "the stack that is used, and where it is the same");
	tap_ok(ok && sp_pclntab_value(&t, &f, f.pcsp, OUTER, &v) && v.value == 0 &&
		       v.begin == OUTER && v.end == OUTER + 0x10,
	       "the same of the first instruction");
	tap_ok(ok && sp_pclntab_find(&t, LEAF + 0x1e, &f) && f.begin == LEAF &&
		       !sp_pclntab_value(&t, &f, f.pcsp, LEAF + 0x1e, &v),
	       "padding is some function's, and has no values");
	sp_elf_close(&e);
	free(m.data);
}

/* Nothing that stands in it leads out of it. A wrong answer is one that does not end. */
static void test_damage(void)
{
	struct go_image m;
	uint64_t start, n = 0;
	make(&m, &(struct go_options){EM_X86_64, .sections = true, .place = GO_MODULE_RELOC});
	const size_t parts[][2] = {{GO_TABLE, GO_TABLE + 80},
				   {GO_TABLE + GO_UNITS, GO_TABLE + GO_UNITS + 8},
				   {GO_TABLE + GO_VALUES, m.values},
				   {GO_TABLE + GO_FUNCS, GO_TABLE + GO_FUNCS + 0x120},
				   {GO_TABLE + GO_INLINED, m.inlined},
				   {GO_MODULE, GO_MODULE + 8},
				   {GO_DYNAMIC, GO_DYNAMIC + 48},
				   {GO_RELAS, GO_RELAS + 96}};
	static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
	for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
		for (size_t at = parts[k][0]; at < parts[k][1]; at++) {
			uint8_t was = m.data[at];
			for (size_t i = 0; i < sizeof values; i++) {
				m.data[at] = values[i];
				struct sp_symfile *s = open_image(&m, NULL);
				for (uint64_t a = LEAF - 8; s && a < END + 8; a += 8)
					(void)told(s, a, &start);
				n += s != NULL;
				sp_symfile_close(s);
			}
			m.data[at] = was;
		}
	}
	tap_ok(n > 0, "a table with any byte changed harms nobody");
	free(m.data);
	/* A call whose caller's instruction is its own. */
	make(&m, &(struct go_options){EM_X86_64, .place = GO_IN_HEAD});
	go_u32(&m, GO_TABLE + GO_INLINED + 16 + 8, 0x40);
	struct sp_symfile *s = open_image(&m, NULL);
	const struct sp_name *v = NULL;
	int levels = sp_symfile_lookup(s, OUTER + 0x40, &v, &start, NULL);
	tap_ok(levels > 2 && levels <= 64 && !strcmp(v[levels - 1].function, "main.outer"),
	       "calls that are inlined into themselves end");
	sp_symfile_close(s);
	free(m.data);
}

int main(void)
{
	test_names(&(struct go_options){EM_X86_64, .sections = true, .place = GO_IN_HEAD},
		   "Go 1.20 to 1.25");
	test_names(&(struct go_options){EM_X86_64, .old = true, .sections = true},
		   "Go 1.18 and 1.19");
	test_names(&(struct go_options){EM_X86_64, .place = GO_IN_HEAD}, "without section headers");
	test_names(&(struct go_options){EM_X86_64, .sections = true, .place = GO_HEAD_RELOC},
		   "to lie anywhere");
	test_names(&(struct go_options){EM_X86_64, .sections = true, .joined = true,
					.place = GO_HEAD_RELOC},
		   "the same of another linker");
	test_names(&(struct go_options){EM_X86_64, .sections = true, .place = GO_MODULE_RELOC},
		   "Go 1.26, to lie anywhere");
	test_names(&(struct go_options){EM_X86_64, .place = GO_MODULE_RELOC},
		   "the same without section headers");
	test_names(&(struct go_options){EM_X86_64, .place = GO_MODULE_WORDS},
		   "at its final address");
	test_names(&(struct go_options){EM_AARCH64, .sections = true, .place = GO_IN_HEAD},
		   "AArch64");
	test_rest();
	test_values(EM_X86_64, "a function is found by any of its addresses");
	test_values(EM_AARCH64, "the same on AArch64, where instructions have four bytes");
	test_damage();
	return tap_done();
}
