/* Where a view goes: standard output, or a file that appears under its name only when it is
 * complete. All writes are collected and checked once, at the end: a writer just writes.
 *
 * The text helpers make any byte string safe for what reads it: names come from files and processes
 * of others, and may hold control bytes, quotes, markup or broken UTF-8. */
#ifndef SYM_OUT_H
#define SYM_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/table.h"

struct out_gzip;
struct iovec;

struct out {
	struct sp_buf buf; /* what is not written yet */
	int fd;            /* owned unless it is standard output */
	char *path, *tmp; /* owned; tmp is renamed to path at the end; NULL when written directly */
	const char *name; /* for messages; borrowed from the caller, or "standard output" */
	struct out_gzip *gzip; /* owned; NULL = plain */
	bool memory;           /* all stays in buf: a zeroed out with memory set is ready to use */
	int os_error;          /* errno of the first write that failed, or 0 */
	bool in_html;          /* JSON strings stand inside of a script element: no '<' in them */
	struct iovec *pieces;  /* owned; of what is not written yet, in order, what lies elsewhere
				* and the parts of buf before it */
	size_t n_pieces, split; /* split: from here on buf is in none of them */
};

/* path NULL or "-": standard output. Special files (/dev/full, a fifo) are written directly. */
int out_open(struct out *o, const char *path, struct sp_err *err);
/* From here on, the output is gzip data; refused when it goes to a terminal. */
int out_gzip(struct out *o, struct sp_err *err);
/* Refuse binary data on a terminal. */
int out_binary(struct out *o, struct sp_err *err);
/* Write what is left and give the file its name. Anything that went wrong since out_open shows
 * here; then no file is left behind. */
int out_close(struct out *o, struct sp_err *err);
/* Give up: no file is left behind. */
void out_discard(struct out *o);

void out_flush(struct out *o);

/* Room for n bytes in one piece (n below 64 KiB). */
static inline bool out_room(struct out *o, size_t n)
{
	if (o->buf.cap - o->buf.len < n && !o->memory)
		out_flush(o);
	return sp_buf_reserve(&o->buf, n);
}

void out_add(struct out *o, const void *data, size_t n);
/* The same for data that stays as it is until out_flush: it is not copied. For pieces of some size.
 */
void out_add_kept(struct out *o, const void *data, size_t n);
void out_str(struct out *o, const char *s);
void out_u64(struct out *o, uint64_t v);
void out_i64(struct out *o, int64_t v);
void out_hex(struct out *o, uint64_t v);
void out_printf(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for what is written in hot loops: into room that was made, whose end is returned. */
#define OUT_DIGITS 20u /* that a u64 has at most */
extern const char out_pairs[201];

static inline uint8_t *out_put(uint8_t *p, const void *data, size_t n)
{
	memcpy(p, data, n);
	return p + n;
}

/* n pairs of digits of v. */
static inline uint8_t *out_put_pairs(uint8_t *p, unsigned v, unsigned n)
{
	for (unsigned i = n; i--; v /= 100)
		memcpy(p + 2 * (size_t)i, out_pairs + v % 100 * 2, 2);
	return p + 2 * (size_t)n;
}

/* v below 10^8. */
static inline uint8_t *out_put_short(uint8_t *p, unsigned v)
{
	unsigned pairs = v < 100 ? 0 : v < 10000 ? 1 : v < 1000000 ? 2 : 3; /* after the first one */
	static const unsigned unit[] = {1, 100, 10000, 1000000};
	unsigned first = v / unit[pairs];
	if (first >= 10)
		return out_put_pairs(p, v, pairs + 1);
	*p++ = (uint8_t)('0' + first);
	return out_put_pairs(p, v % unit[pairs], pairs);
}

static inline uint8_t *out_put_u64(uint8_t *p, uint64_t v)
{
	const uint64_t e8 = 100000000;
	if (v < e8)
		return out_put_short(p, (unsigned)v);
	if (v < e8 * e8)
		return out_put_pairs(out_put_short(p, (unsigned)(v / e8)), (unsigned)(v % e8), 4);
	p = out_put_short(p, (unsigned)(v / e8 / e8));
	p = out_put_pairs(p, (unsigned)(v / e8 % e8), 4);
	return out_put_pairs(p, (unsigned)(v % e8), 4);
}

static inline void out_char(struct out *o, char c)
{
	if (out_room(o, 1))
		o->buf.data[o->buf.len++] = (uint8_t)c;
}

/* One character of a byte string: its length (1 to 4), and *cp, the code point; a byte that is not
 * valid UTF-8 (Unicode 15, table 3-7) is one character U+FFFD. */
size_t out_utf8(const char *s, size_t n, uint32_t *cp);

/* Text for line-based formats: valid UTF-8 on one line. Control characters become '?', invalid
 * bytes U+FFFD. */
#define OUT_NO_SPACE 1u     /* blanks become '_' */
#define OUT_NO_SEMICOLON 2u /* ';' becomes ':' */
void out_text(struct out *o, const char *s, unsigned flags);
/* Same for the first n bytes; and into a buffer. */
void out_text_n(struct out *o, const char *s, size_t n, unsigned flags);
void out_text_buf(struct sp_buf *b, const char *s, size_t n, unsigned flags);
/* Same for a table of strings: its id there; SP_NOT_FOUND when memory ends. */
uint32_t out_text_intern(struct sp_intern *strings, const char *s);

/* A JSON string with its quotes (RFC 8259); invalid bytes and noncharacters become U+FFFD. */
void out_json(struct out *o, const char *s);
/* XML 1.0 character data, good in attributes too; characters that XML forbids become U+FFFD. */
void out_xml(struct out *o, const char *s);
/* Bytes below 0x21 except space, 0x7f and backslash as backslash and three octal digits. */
void out_octal(struct out *o, const char *s);

#endif
