#include "term.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

void term_init(struct term *t, const struct view *v, const struct out *o)
{
	const char *columns = getenv("COLUMNS"), *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");
	struct winsize size;
	bool tty = isatty(o->fd);
	long n = columns ? strtol(columns, NULL, 10) : 0;
	t->width = n >= 40 && n < 10000 ? (size_t)n : 100;
	if (tty && ioctl(o->fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
		t->width = size.ws_col;
	if (v->opt->width)
		t->width = v->opt->width;
	t->colour = tty && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

const char *term_heat(const struct term *t, double percent)
{
	if (!t->colour)
		return "";
	return percent >= 5 ? "\033[31m" : percent >= 0.5 ? "\033[32m" : "";
}

const char *term_dim(const struct term *t)
{
	return t->colour ? "\033[2m" : "";
}

const char *term_bold(const struct term *t)
{
	return t->colour ? "\033[1m" : "";
}

const char *term_end(const struct term *t)
{
	return t->colour ? "\033[0m" : "";
}

/* Columns of one character: East Asian wide ones (Unicode's EastAsianWidth.txt, W and F, in broad
 * strokes) take two, combining marks none. */
static size_t columns_of(uint32_t c)
{
	if ((c >= 0x300 && c < 0x370) || (c >= 0x200b && c <= 0x200f) || c == 0xfeff)
		return 0;
	if ((c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0 && c != 0x303f) ||
	    (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
	    (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61) ||
	    (c >= 0x1f300 && c < 0x1f650) || (c >= 0x20000 && c < 0x3fffe))
		return 2;
	return 1;
}

size_t term_columns(const char *s)
{
	size_t n = 0, len = strlen(s);
	uint32_t c;
	for (size_t i = 0; i < len; n += columns_of(c))
		i += out_utf8(s + i, len - i, &c);
	return n;
}

/* The bytes of the longest head of s in at most `width` columns; *used says how many. */
static size_t head_bytes(const char *s, size_t len, size_t width, size_t *used)
{
	size_t i = 0;
	*used = 0;
	while (i < len) {
		uint32_t c;
		size_t step = out_utf8(s + i, len - i, &c), columns = columns_of(c);
		if (*used + columns > width)
			break;
		*used += columns;
		i += step;
	}
	return i;
}

size_t term_shorten(struct out *o, const char *s, size_t width)
{
	size_t len = strlen(s), all = term_columns(s), used;
	if (all <= width) {
		out_text(o, s, 0);
		return all;
	}
	if (!width)
		return 0;
	size_t tail = (width - 1) / 2, skipped;
	size_t head = head_bytes(s, len, width - 1 - tail, &used);
	/* The tail begins where the rest is short enough. */
	size_t from = head + head_bytes(s + head, len - head, all - used - tail, &skipped);
	size_t left = term_columns(s + from);
	while (left > tail && from < len) {
		uint32_t c;
		from += out_utf8(s + from, len - from, &c);
		left = term_columns(s + from);
	}
	out_text_n(o, s, head, 0);
	out_str(o, "…");
	out_text(o, s + from, 0);
	return used + 1 + left;
}

void term_fit(struct out *o, const char *s, size_t width)
{
	for (size_t n = term_shorten(o, s, width); n < width; n++)
		out_char(o, ' ');
}

const char *term_duration(char *buf, uint64_t ns)
{
	double s = (double)ns / 1e9;
	if (s >= 1)
		snprintf(buf, 24, s < 1000 ? "%.2f s" : "%.0f s", s);
	else
		snprintf(buf, 24, "%.1f ms", s * 1e3);
	return buf;
}
