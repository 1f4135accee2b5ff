/* What a symbolizer's command says, parsed. unit: sp-sym/answer.c */
#include "tap.h"

#include <stdlib.h>

#include "../../sp-sym/answer.h"

static struct sp_symbol_level levels[ANSWER_LEVELS];
static char shown[4096];

/* "rc name@file:line|…" */
static const char *parse(const char *text, uint64_t svma)
{
	size_t n = strlen(text);
	char *copy = malloc(n + 1);
	struct sp_symbols s = {0};
	if (!copy)
		exit(99);
	memcpy(copy, text, n + 1);
	int rc = answer_parse(copy, n, svma, levels, &s);
	size_t at = (size_t)snprintf(shown, sizeof shown, "%d", rc);
	if (rc > 0 && s.function_offset)
		at += (size_t)snprintf(shown + at, sizeof shown - at, " +%u",
				       (unsigned)s.function_offset);
	for (size_t i = 0; rc > 0 && i < s.n && at < sizeof shown; i++)
		at += (size_t)snprintf(shown + at, sizeof shown - at, "%s%s@%s:%u", i ? "|" : " ",
				       s.levels[i].name ? s.levels[i].name : "-",
				       s.levels[i].file ? s.levels[i].file : "-", s.levels[i].line);
	free(copy);
	return shown;
}

static void test_answers(void)
{
	tap_str(parse("in\n/a/x.c:3:7\nwork\n/a/x.c:9:1\n\n", 16), "1 in@/a/x.c:3|work@/a/x.c:9",
		"levels, innermost first");
	tap_str(parse("work\nx.c:9\n\n", 16), "1 work@x.c:9", "a place without a column");
	tap_str(parse("work\nx.c:?\n\n", 16), "1 work@x.c:0", "a line that is none");
	tap_str(parse("w\nC:/a b:c/x.c:9:1\n\n", 16), "1 w@C:/a b:c/x.c:9", "colons in a path");
	tap_str(parse("w\nx.c:9 (discriminator 3)\n\n", 16), "1 w@x.c:9", "addr2line's notes");
	tap_str(parse("??\n??:0:0\n\n", 16), "0", "what is not known");
	tap_str(parse("??\nx.c:3\n\n", 16), "0", "a place without a function is no name");
	tap_str(parse("??\nx.c:3\nwork\n??:0\n\n", 16), "1 -@x.c:3|work@-:0",
		"levels may be known in part");
	tap_str(parse("0x10\nwork\nx.c:9\n\n", 16), "1 work@x.c:9", "the address that was asked");
	tap_str(parse("0x11\nwork\nx.c:9\n\n", 16), "-1", "another address");
	tap_str(parse("work\r\nx.c:9\r\n\r\n", 16), "1 work@x.c:9", "carriage returns");
	tap_str(parse("in\n  Filename: /a/x.c\n  Function start address: 0xe\n  Line: 3\n"
		      "work\n  Filename: /a:b/y.c\n  Function start filename: /a/x.c\n"
		      "  Function start line: 2\n  Function start address: 0x8\n  Line: 9\n"
		      "  Column: 1\n\n",
		      16),
		"1 +8 in@/a/x.c:3|work@/a:b/y.c:9",
		"the form of --verbose, with the function's start");
	tap_str(parse("w\n  Filename: ??\n  Function start address: 0x11\n  Line: 7\n\n", 16),
		"1 w@-:0", "a start behind the address is none");
	tap_str(parse("a\n  Filename: x.c\n  Function start address: 0x8\nb\n  Filename: x.c\n\n",
		      16),
		"1 a@x.c:0|b@x.c:0", "the start of an inlined function is not the function's");
	tap_str(parse("w\n  Filename: x.c\n  Line: 7\n", 16), "-1", "half of that form");
	tap_str(parse("\n", 16), "-1", "nothing");
	tap_str(parse("work\n\n", 16), "-1", "half a pair");
	tap_str(parse("w\nx.c:99999999999999999999\n\n", 16), "1 w@x.c:99999999999999999999:0",
		"a line beyond all numbers");
	char zero[] = "w\0x\nx.c:9\n\n";
	struct sp_symbols s;
	tap_ok(answer_parse(zero, sizeof zero - 1, 16, levels, &s) == -1, "zero bytes");
	struct sp_buf many = {0};
	for (int i = 0; i <= ANSWER_LEVELS; i++)
		sp_buf_str(&many, "f\nx.c:1\n");
	sp_buf_str(&many, "\n");
	tap_ok(answer_parse((char *)many.data, many.len, 16, levels, &s) == -1,
	       "more levels than there may be");
	sp_buf_deinit(&many);
}

static void test_lengths(void)
{
	tap_eq(answer_length("a\nb\n\nc\n", 7), 5, "an answer ends behind its empty line");
	tap_eq(answer_length("a\nb\n", 4), 0, "one that is not whole has no length");
	tap_eq(answer_length("a\r\nb\r\n\r\n", 8), 8, "with carriage returns");
	tap_eq(answer_length("", 0), 0, "nothing has none");
	struct sp_buf q = {0};
	tap_ok(answer_question(&q, "/a b/x", 0x1234) && q.len == 21 &&
		       !memcmp(q.data, "CODE \"/a b/x\" 0x1234\n", 21),
	       "a question");
	tap_ok(answer_question(&q, "/a\"x", 1) && !memcmp(q.data, "CODE '/a\"x' 0x1\n", 16),
	       "with a quote in the path");
	tap_ok(!answer_question(&q, "/a\nx", 1) && !answer_question(&q, "/'\"", 1),
	       "paths that a line cannot hold are not asked");
	sp_buf_deinit(&q);
}

int main(void)
{
	test_answers();
	test_lengths();
	return tap_done();
}
