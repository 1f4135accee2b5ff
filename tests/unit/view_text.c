/* What sp-sym does to names: escapes for each format, short forms for terminals, patterns.
 *
 * unit: sp-sym/outtext.c
 * unit: sp-sym/out.c
 * unit: sp-sym/elide.c
 * unit: sp-sym/term.c
 * unit: sp-sym/apart.c
 * unit: sp-sym/resolve.c
 * unit: sp-sym/filter.c
 * libs: -lisal */
#include "../../sp-sym/term.h"
#include "tap.h"

static char text[8192];

static const char *taken(struct out *o)
{
	size_t n = o->buf.len < sizeof text - 1 ? o->buf.len : sizeof text - 1;
	memcpy(text, o->buf.data ? (const char *)o->buf.data : "", n);
	text[n] = 0;
	sp_buf_deinit(&o->buf);
	return text;
}

static const char *as_json(const char *s, bool in_html)
{
	struct out o = {.memory = true, .in_html = in_html};
	out_json(&o, s);
	return taken(&o);
}

static const char *as_xml(const char *s)
{
	struct out o = {.memory = true};
	out_xml(&o, s);
	return taken(&o);
}

static const char *as_text(const char *s, unsigned flags)
{
	struct out o = {.memory = true};
	out_text(&o, s, flags);
	return taken(&o);
}

static const char *as_octal(const char *s)
{
	struct out o = {.memory = true};
	out_octal(&o, s);
	return taken(&o);
}

static const char *shortened(const char *s, size_t width)
{
	struct out o = {.memory = true};
	size_t n = term_shorten(&o, s, width);
	taken(&o);
	return n == term_columns(text) && n <= width ? text : "(wrong width)";
}

static uint32_t code_point(const char *s, size_t n, size_t want_len)
{
	uint32_t c;
	return out_utf8(s, n, &c) == want_len ? c : UINT32_MAX;
}

static void test_utf8(void)
{
	tap_ok(code_point("a", 1, 1) == 'a', "ASCII is one byte");
	tap_ok(code_point("\xc3\xa9", 2, 2) == 0xe9, "two bytes");
	tap_ok(code_point("\xe2\x82\xac", 3, 3) == 0x20ac, "three bytes");
	tap_ok(code_point("\xf0\x9f\x98\x80", 4, 4) == 0x1f600, "four bytes");
	tap_ok(code_point("\xc0\x80", 2, 1) == 0xfffd, "an overlong NUL is a bad byte");
	tap_ok(code_point("\xe0\x9f\xbf", 3, 1) == 0xfffd,
	       "an overlong form of three bytes is not taken");
	tap_ok(code_point("\xed\xa0\x80", 3, 1) == 0xfffd, "a surrogate is not taken");
	tap_ok(code_point("\xf4\x90\x80\x80", 4, 1) == 0xfffd, "nor is what lies above U+10FFFF");
	tap_ok(code_point("\xe2\x82", 2, 1) == 0xfffd, "a cut character is a bad byte");
}

static void test_escapes(void)
{
	tap_str(as_json("a\"b\\c\n\x7f\xff</s>", false),
		"\"a\\\"b\\\\c\\u000a\\u007f\xef\xbf\xbd</s>\"",
		"JSON escapes quotes, backslashes and controls; bad bytes are U+FFFD");
	tap_str(as_json("</script>", true), "\"\\u003c/script>\"", "JSON in HTML has no '<'");
	tap_str(as_json("\xe2\x80\xa8", false), "\"\\u2028\"",
		"JSON escapes what JavaScript takes for a line end");
	tap_str(as_xml("<a b=\"c\">&\n\x01\xef\xbf\xbe\xff"),
		"&lt;a b=&quot;c&quot;&gt;&amp;&#10;\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
		"XML has entities, and none of the characters that it forbids");
	tap_str(as_text("a b;c\nd\x1b[0m\xc2\x9b\xff\xe2\x80\xae", 0), "a b;c?d?[0m?\xef\xbf\xbd?",
		"text keeps no control, no bad byte, no turn of direction");
	tap_str(as_text("a b;c\xc2\xa0"
			"d",
			OUT_NO_SPACE | OUT_NO_SEMICOLON),
		"a_b:c_d", "blanks and semicolons go where a format splits at them");
	tap_str(as_octal("/a b\t\\\x7f\xc3\xa9"), "/a b\\011\\134\\177\xc3\xa9",
		"raw escapes controls and backslashes in octal");
}

static void test_short(void)
{
	tap_str(shortened("main", 10), "main", "what fits stays");
	tap_str(shortened("std::sort<int*, std::less<int> >(int*, int*, std::less<int>)", 30),
		"std::sort<…>(…)", "the longest brackets are emptied");
	tap_str(shortened("std::sort<int*>(int*, int*, std::less<int>)", 20), "std::sort<int*>(…)",
		"only as many as needed");
	tap_str(shortened("void ns::f<std::vector<int> >(std::vector<int> const&)", 14),
		"ns::f<…>(…)", "then the return type goes");
	tap_str(shortened("operator new(unsigned long, std::align_val_t)", 16), "operator new(…)",
		"operator new is a name with a blank");
	tap_str(shortened("bool operator< <int>(std::vector<int> const&, X<int> const&)", 20),
		"operator< <int>(…)", "an operator's own bracket is none");
	tap_str(shortened("(anonymous namespace)::f(std::string const&, int)", 30),
		"(anonymous namespace)::f(…)", "an anonymous namespace stays");
	tap_str(shortened("abcdefghijklmnopqrstuvwxyz", 11), "abcde…vwxyz", "else the middle goes");
	tap_str(shortened("日本語日本語日本語", 9), "日本…本語", "wide characters count twice");
	tap_str(shortened("abc", 0), "", "nothing fits into nothing");
	tap_str(shortened("<<<<((((>>>>))))", 5), "<<……)", "unbalanced brackets do no harm");
}

static void test_match(void)
{
	tap_ok(view_match("alloc", "malloc"), "a part of the name");
	tap_ok(!view_match("alloc", "free"), "no part of it");
	tap_ok(view_match("m*c", "malloc") && !view_match("m*c", "mallocs"),
	       "a pattern is for all of it");
	tap_ok(view_match("?a??oc", "malloc") && !view_match("?", ""), "one character each");
	tap_ok(view_match("*", "") && view_match("**a**", "bab"), "stars match nothing, too");
	tap_ok(view_match("*a*b*c", "xaybzbc") && !view_match("*a*b*c", "xaybzb"), "several stars");
	tap_ok(!view_match("*a*a*a*a*a*a*a*a*a*b",
			   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
	       "many stars are no explosion");
	tap_ok(view_match("operator[]", "X::operator[](int)"), "brackets are characters");
}

int main(void)
{
	test_utf8();
	test_escapes();
	test_short();
	test_match();
	return tap_done();
}
