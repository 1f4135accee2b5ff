/* Long C++ names without what is inside of their brackets. */
#include "term.h"

#define MAX_DEPTH 64
#define MAX_BYTES 8192 /* longer names are cut in the middle only */

/* The length of an operator's own characters at s, after the word "operator". */
static size_t operator_bytes(const char *s, size_t n)
{
	static const char *const symbols[] = {
		"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "<", ">"};
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		size_t len = strlen(symbols[i]);
		if (len <= n && !memcmp(s, symbols[i], len))
			return len;
	}
	return 0;
}

/* The longest pair of brackets with something in it: the range between them. False when there is
 * none. "->" and "(anonymous namespace)" are no brackets. */
static bool longest(const char *s, size_t n, size_t *from, size_t *to)
{
	static const char dots[] = "…", word[] = "operator", anonymous[] = "(anonymous namespace)";
	struct {
		char close;
		size_t at;
	} open[MAX_DEPTH];
	size_t depth = 0, best = 0;
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		if (n - i > 8 && !memcmp(s + i, word, 8)) {
			i += 7;
			i += operator_bytes(s + i + 1, n - i - 1);
		} else if (n - i >= sizeof anonymous - 1 &&
			   !memcmp(s + i, anonymous, sizeof anonymous - 1)) {
			i += sizeof anonymous - 2;
		} else if (c == '-' && i + 1 < n && s[i + 1] == '>') {
			i++;
		} else if ((c == '<' || c == '(') && depth < MAX_DEPTH) {
			open[depth].close = c == '<' ? '>' : ')';
			open[depth++].at = i + 1;
		} else if (depth && c == open[depth - 1].close) {
			size_t at = open[--depth].at;
			bool done = i - at == sizeof dots - 1 && !memcmp(s + at, dots, i - at);
			if (i - at > best && i - at > sizeof dots - 1 && !done) {
				best = i - at;
				*from = at;
				*to = i;
			}
		}
	}
	return best > 0;
}

/* Where the name begins after a return type, which the names of template functions have: behind the
 * last blank that no bracket holds, before the parameters. */
static size_t type_bytes(const char *s, size_t n)
{
	size_t depth = 0, at = 0;
	for (size_t i = 0; i < n; i++) {
		if (n - i > 8 && !memcmp(s + i, "operator", 8)) {
			i += 8; /* a blank or a symbol belongs to the name */
			i += operator_bytes(s + i, n - i);
			i -= i < n && s[i] != ' ';
		} else if (s[i] == '<' || s[i] == '{' || s[i] == '[') {
			depth++;
		} else if (depth && (s[i] == '>' || s[i] == '}' || s[i] == ']')) {
			depth--;
		} else if (s[i] == '(' && !depth) {
			if (n - i < 21 || memcmp(s + i, "(anonymous namespace)", 21) != 0)
				return at;
			i += 20;
		} else if (s[i] == ' ' && !depth) {
			at = i + 1;
		}
	}
	return 0; /* no parameters: not a name that has a type */
}

void term_elide(struct sp_buf *b, size_t width)
{
	size_t from, to;
	bool fits = false;
	while (!fits && b->len < MAX_BYTES && !b->failed &&
	       longest((const char *)b->data, b->len, &from, &to)) {
		memcpy(b->data + from, "…", 3);
		memmove(b->data + from + 3, b->data + to, b->len - to);
		b->len -= to - from - 3;
		fits = term_columns_n((const char *)b->data, b->len) <= width;
	}
	if (!fits && !b->failed && b->len < MAX_BYTES) {
		from = type_bytes((const char *)b->data, b->len);
		memmove(b->data, b->data + from, b->len - from);
		b->len -= from;
	}
}
