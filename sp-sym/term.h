/* Text for people: how wide, in which colours, and names cut to fit. */
#ifndef SYM_TERM_H
#define SYM_TERM_H

#include "view.h"

struct term {
	size_t width;
	bool colour;
};

/* What the output is: --width, else the terminal's, else COLUMNS, else 100. Colours only on a
 * terminal, and not with NO_COLOR (no-color.org) or TERM=dumb. */
void term_init(struct term *t, const struct view *v, const struct out *o);

/* The escape sequence that begins a share of this size (red for much, green for some, as perf
 * report does), and the one that ends all; empty without colours. */
const char *term_heat(const struct term *t, double percent);
const char *term_dim(const struct term *t);
const char *term_bold(const struct term *t);
const char *term_end(const struct term *t);

/* Columns that s takes as out_text() writes it. */
size_t term_columns(const char *s);
size_t term_columns_n(const char *s, size_t n);
/* s in at most `width` columns; returns how many. A name that is too long loses the insides of its
 * longest brackets first, template arguments and parameters ("std::sort<…>(…)"), then its middle.
 */
size_t term_shorten(struct out *o, const char *s, size_t width);
/* Same, padded with blanks to `width`. */
void term_fit(struct out *o, const char *s, size_t width);
/* Empty the longest brackets of the C++ name in b until it takes at most `width` columns, or none
 * is left; then its return type goes too. */
void term_elide(struct sp_buf *b, size_t width);

/* "12.3 s", "45.6 ms": ns for people, into buf[24]. */
const char *term_duration(char *buf, uint64_t ns);

#endif
