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

size_t term_columns_n(const char *s, size_t len)
{
	size_t n = 0;
	uint32_t c;
	for (size_t i = 0; i < len; n += columns_of(c))
		i += out_utf8(s + i, len - i, &c);
	return n;
}

size_t term_columns(const char *s)
{
	return term_columns_n(s, strlen(s));
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

/* s without its middle. */
static size_t cut_middle(struct out *o, const char *s, size_t len, size_t width)
{
	size_t tail = (width - 1) / 2, used, left;
	size_t head = head_bytes(s, len, width - 1 - tail, &used), from = head;
	while ((left = term_columns_n(s + from, len - from)) > tail && from < len) {
		uint32_t c;
		/* Columns are at most two a character: no need to go in single steps. */
		for (size_t steps = (left - tail + 1) / 2; steps > 0 && from < len; steps--)
			from += out_utf8(s + from, len - from, &c);
	}
	out_add(o, s, head);
	out_str(o, "…");
	out_add(o, s + from, len - from);
	return used + 1 + left;
}

size_t term_shorten(struct out *o, const char *s, size_t width)
{
	struct sp_buf clean = {0};
	out_text_buf(&clean, s, strlen(s), 0);
	size_t n = term_columns_n((const char *)clean.data, clean.len);
	if (n > width) {
		term_elide(&clean, width);
		n = term_columns_n((const char *)clean.data, clean.len);
	}
	if (n <= width)
		out_add(o, clean.data, clean.len);
	else if (width)
		n = cut_middle(o, (const char *)clean.data, clean.len, width);
	else
		n = 0;
	o->buf.failed |= clean.failed;
	sp_buf_deinit(&clean);
	return n;
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
