#define _GNU_SOURCE
#include "exe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli.h"
#include "elf/debuginfod.h"
#include "sym/symfile.h"

/* Names and paths come from the file: a line break in one would look like another answer. */
static void print_text(const char *text)
{
	for (; *text; text++)
		putc_unlocked((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, stdout);
}

/* As printf("%u") and ("%016llx") print them, without reading a format for each. */
static void print_line(uint32_t line)
{
	char digits[10];
	size_t n = sizeof digits;
	do
		digits[--n] = (char)('0' + line % 10);
	while (line /= 10);
	fwrite_unlocked(digits + n, 1, sizeof digits - n, stdout);
}

static void print_address(uint64_t svma)
{
	char text[19] = "0x0000000000000000\n";
	for (size_t i = 17; svma; i--, svma >>= 4)
		text[i] = "0123456789abcdef"[svma & 15];
	fwrite_unlocked(text, 1, sizeof text, stdout);
}

static void print_level(const struct sp_name *l)
{
	print_text(l->function && *l->function ? l->function : "??");
	putc_unlocked('\n', stdout);
	print_text(l->file ? l->file : "??");
	putc_unlocked(':', stdout);
	print_line(l->file ? l->line : 0);
	putc_unlocked('\n', stdout);
}

static int answer(struct sp_symfile *s, uint64_t svma, struct sp_err *err)
{
	static const struct sp_name unknown;
	const struct sp_name *levels = &unknown;
	uint64_t start;
	int n = sp_symfile_lookup(s, svma, &levels, &start, err);
	if (n < 0)
		return n;
	print_address(svma);
	for (int i = 0; i < (n ? n : 1); i++)
		print_level(n ? &levels[i] : &unknown);
	return 0;
}

static bool parse_address(const char *text, uint64_t *svma)
{
	char *end;
	errno = 0;
	while (*text == ' ' || *text == '\t')
		text++;
	*svma = strtoull(text, &end, 16);
	while (*end == ' ' || *end == '\t' || *end == '\r' || *end == '\n')
		end++;
	return end != text && !*end && !errno && *text != '-' && *text != '+';
}

/* Answers come as questions do, so that a program can hold both ends of a pipe. */
static int answer_stdin(struct sp_symfile *s, struct sp_err *err)
{
	char *line = NULL;
	size_t cap = 0;
	int rc = 0, bad = 0;
	while (rc >= 0 && getline(&line, &cap, stdin) >= 0) {
		uint64_t svma;
		if (parse_address(line, &svma)) {
			rc = answer(s, svma, err);
		} else if (line[strspn(line, " \t\r\n")]) {
			line[strcspn(line, "\r\n")] = 0;
			sp_warn("not an address: '%.60s'", line);
			bad = 1;
		}
	}
	free(line);
	return rc < 0 ? rc : bad;
}

int sym_exe_main(const char *file, const struct sp_symfile_options *options, char *const *addresses,
		 size_t n_addresses)
{
	struct sp_err err = {0};
	struct sp_symfile *s = NULL;
	if (sp_symfile_open(&s, file, options, &err) < 0)
		sp_die(&err, NULL);
	int rc = 0;
	if (!n_addresses)
		rc = answer_stdin(s, &err);
	for (size_t i = 0; i < n_addresses && rc >= 0; i++) {
		uint64_t svma;
		if (!parse_address(addresses[i], &svma))
			sp_usage_error("not an address: '%.60s'", addresses[i]);
		rc = answer(s, svma, &err);
	}
	if (rc < 0)
		sp_die(&err, NULL);
	const char *problem = sp_symfile_problem(s);
	if (problem)
		sp_note("%s: %s", file, problem);
	if (sp_debuginfod_complaint())
		sp_warn("%s", sp_debuginfod_complaint());
	sp_symfile_close(s);
	return sp_finish_stdout(rc > 0 ? SP_EXIT_FAILED : SP_EXIT_OK);
}
