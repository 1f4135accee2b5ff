/* DWARF that is written by hand: what compilers make seldom, or in amounts that a small program has
 * not. */
#include "sym_build.h"

#include "sym/symfile.h"

#define N_ROWS 6000

static struct sp_symfile *open_built(const char *command)
{
	struct sp_symfile *s = NULL;
	struct sp_err err = {0};
	if (!build_run(command) || sp_symfile_open(&s, in_build("prog"), NULL, &err) < 0)
		printf("# %s: %s\n", command, err.msg);
	return s;
}

/* The line and the last letters of the file of the row of instruction i. */
static unsigned line_of(unsigned i)
{
	return i % 7 == 3 ? 100000 - i : i + 1;
}

static const char *file_of(unsigned i)
{
	return i / 500 % 2 ? "two.c" : "one.c";
}

/* Each instruction is a row of its own; lines go up and down, far and near, files change. */
static void write_rows(void)
{
	FILE *f = fopen(in_build("rows.s"), "w");
	if (!f)
		return;
	fprintf(f, ".file 1 \"/src/one.c\"\n.file 2 \"/src/two.c\"\n.text\n");
	for (unsigned i = 0; i < N_ROWS; i++) {
		if (i % 1000 == 0) /* a sequence of its own */
			fprintf(f,
				".section .text.f%u, \"ax\"\n.globl f%u\n.type f%u, "
				"@function\nf%u:\n",
				i, i, i, i);
		fprintf(f, ".loc %d %u\n%s\n", file_of(i)[0] == 'o' ? 1 : 2, line_of(i),
			i % 11 ? "nop" : ".rept 40\nnop\n.endr");
		if (i % 1000 == 999)
			fprintf(f, ".size f%u, . - f%u\n", i - 999, i - 999);
	}
	fclose(f);
}

static bool same_row(struct sp_symfile *s, uint64_t svma, unsigned i)
{
	const struct sp_name *got = NULL;
	uint64_t start;
	int n = sp_symfile_lookup(s, svma, &got, &start, NULL);
	const char *base = n == 1 && got->file ? strrchr(got->file, '/') : NULL;
	if (base && !strcmp(base + 1, file_of(i)) && got->line == line_of(i))
		return true;
	printf("# row %u: %s:%u\n", i, base ? base : "?", n == 1 ? got->line : 0);
	return false;
}

/* All rows, in an order that jumps: each is found from another mark of the program. */
static void check_rows(const char *what, const char *command)
{
	struct sp_symfile *s = open_built(command);
	struct sp_elf e;
	if (!s || sp_elf_open(&e, in_build("prog"), NULL) < 0) {
		tap_ok(false, what);
		return;
	}
	static uint64_t svma[N_ROWS];
	uint64_t at = 0;
	for (unsigned i = 0; i < N_ROWS; i++) {
		char name[20];
		snprintf(name, sizeof name, "f%u", i);
		at = i % 1000 ? at : symbol_value(&e, name);
		svma[i] = at;
		at += i % 11 ? 1 : 40;
	}
	bool good = true;
	for (unsigned k = 0; k < N_ROWS && good; k++) {
		unsigned i = k * 2711 % N_ROWS; /* without a common factor: each once */
		good = same_row(s, svma[i], i) && (i % 11 || same_row(s, svma[i] + 39, i));
	}
	tap_ok(good, what);
	sp_elf_close(&e);
	sp_symfile_close(s);
}

static void test_rows(void)
{
	write_rows();
	check_rows("each of 6000 rows is found in a table of DWARF 5",
		   "as --gdwarf-5 -o rows.o rows.s && ld -shared -o prog rows.o");
	check_rows("and in one of DWARF 3",
		   "as --gdwarf-3 -o rows.o rows.s && ld -shared -o prog rows.o");
}

/* One unit with one function "made", whose abbreviation has `n` attributes before its name: numbers
 * without and with bytes in turns where `mixed`, else flags without bytes. `entries` copies of it.
 */
static void write_unit(unsigned n, bool mixed, unsigned entries)
{
	FILE *f = fopen(in_build("made.s"), "w");
	if (!f)
		return;
	fprintf(f, ".text\n.globl code\n.type code, @object\ncode: .skip 64, 0x90\n");
	fprintf(f, ".section .debug_abbrev,\"\",@progbits\n"
		   ".uleb128 900, 0x11\n.byte 1\n.uleb128 0x11, 0x1, 0x12, 0x7, 0, 0\n"
		   ".uleb128 70000, 0x2e\n.byte 0\n");
	for (unsigned i = 0; i < n; i++)
		fprintf(f, ".uleb128 0x2100, %s\n", !mixed ? "0x19" : i % 2 ? "0xf" : "0x5");
	fprintf(f, ".uleb128 0x3, 0x8, 0x11, 0x1, 0x12, 0x7, 0, 0\n.uleb128 0\n");
	fprintf(f, ".section .debug_info,\"\",@progbits\n.long 2f - 1f\n1: .short 4\n"
		   ".long 0\n.byte 8\n.uleb128 900\n.quad code, 64\n");
	for (unsigned k = 0; k < entries; k++) {
		fprintf(f, ".uleb128 70000\n");
		for (unsigned i = 0; mixed && i < n; i++)
			fprintf(f, "%s\n", i % 2 ? ".uleb128 100000" : ".short 7");
		fprintf(f, ".asciz \"%s\"\n.quad code + %u, 8\n", k ? "other" : "made", k * 8);
	}
	fprintf(f, ".uleb128 0\n2:\n");
	fclose(f);
}

static void check_unit(const char *what)
{
	struct sp_symfile *s = open_built("as -o made.o made.s && ld -shared -o prog made.o");
	struct sp_elf e;
	if (!s || sp_elf_open(&e, in_build("prog"), NULL) < 0) {
		tap_ok(false, what);
		return;
	}
	const struct sp_name *got = NULL;
	uint64_t start = 0, code = symbol_value(&e, "code");
	int n = sp_symfile_lookup(s, code + 9, &got, &start, NULL);
	bool other =
		n == 1 && got->function && !strcmp(got->function, "other") && start == code + 8;
	n = sp_symfile_lookup(s, code + 1, &got, &start, NULL);
	tap_ok(other && n == 1 && got->function && !strcmp(got->function, "made") && start == code,
	       what);
	sp_elf_close(&e);
	sp_symfile_close(s);
}

static void test_abbreviations(void)
{
	write_unit(3, true, 2);
	check_unit("codes of abbreviations may be any numbers");
	write_unit(700, true, 2);
	check_unit("an abbreviation may have hundreds of attributes of all lengths");
	write_unit(3000, false, 2);
	check_unit("and thousands without bytes");
	/* 10 billion steps if each entry were read through. */
	write_unit(50000, false, 200000);
	struct sp_symfile *s = open_built("as -o made.o made.s && ld -shared -o prog made.o");
	const struct sp_name *got;
	uint64_t start;
	tap_ok(s && sp_symfile_lookup(s, 0x10000, &got, &start, NULL) >= 0,
	       "entries whose abbreviation is longer than they are come to an end");
	sp_symfile_close(s);
}

int main(void)
{
	if (!mkdtemp(build_dir)) {
		perror(build_dir);
		return 99;
	}
	test_rows();
	test_abbreviations();
	build_end();
	return tap_done();
}
