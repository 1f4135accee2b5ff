/* Any byte string, made safe for the format that it goes into. */
#include "out.h"

size_t out_utf8(const char *s, size_t n, uint32_t *cp)
{
	const uint8_t *p = (const uint8_t *)s;
	uint32_t c = p[0];
	*cp = 0xfffd;
	if (c < 0x80) {
		*cp = c;
		return 1;
	}
	size_t len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c < 0xc2 || c > 0xf4 || n < len)
		return 1;
	/* The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
	 */
	uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	if (p[1] < low || p[1] > high)
		return 1;
	c = (c & (0x7fu >> len)) << 6 | (p[1] & 0x3f);
	for (size_t i = 2; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 1;
		c = c << 6 | (p[i] & 0x3f);
	}
	*cp = c;
	return len;
}

/* Characters that steer a terminal or turn the direction of a line. */
static bool is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
	       (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void out_text_buf(struct sp_buf *b, const char *s, size_t n, unsigned flags)
{
	for (size_t i = 0, len; i < n; i += len) {
		uint32_t c;
		len = out_utf8(s + i, n - i, &c);
		if (c == ' ')
			sp_buf_u8(b, flags & OUT_NO_SPACE ? '_' : ' ');
		else if (c == ';')
			sp_buf_u8(b, flags & OUT_NO_SEMICOLON ? ':' : ';');
		else if (c == 0xfffd || (c & 0xfffe) == 0xfffe) /* readers make XML of it */
			sp_buf_add(b, "\xef\xbf\xbd", 3);
		else if (is_control(c))
			sp_buf_u8(b, '?');
		else if ((c == 0xa0 || c == 0x3000 || (c >= 0x2000 && c <= 0x200a)) &&
			 flags & OUT_NO_SPACE)
			sp_buf_u8(b, '_');
		else
			sp_buf_add(b, s + i, len);
	}
}

/* Bytes that every format takes as they are, at most n; the common case in one piece. */
static size_t plain(const char *s, bool (*special)(unsigned char))
{
	size_t n = 0;
	while (s[n] && !special((unsigned char)s[n]))
		n++;
	return n;
}

static bool special_text(unsigned char c)
{
	return c < 0x21 || c >= 0x7f || c == ';';
}

void out_text(struct out *o, const char *s, unsigned flags)
{
	while (*s) {
		size_t n = plain(s, special_text);
		if (n) {
			out_add(o, s, n);
			s += n;
			continue;
		}
		uint8_t bytes[8];
		struct sp_buf one = {.data = bytes, .cap = sizeof bytes};
		uint32_t c;
		n = out_utf8(s, strnlen(s, 4), &c);
		out_text_buf(&one, s, n, flags);
		out_add(o, one.data, one.len);
		s += n;
	}
}

void out_text_n(struct out *o, const char *s, size_t n, unsigned flags)
{
	struct sp_buf b = {0};
	out_text_buf(&b, s, n, flags);
	out_add(o, b.data, b.len);
	o->buf.failed |= b.failed;
	sp_buf_deinit(&b);
}

uint32_t out_text_intern(struct sp_intern *strings, const char *s)
{
	struct sp_buf clean = {0};
	out_text_buf(&clean, s, strlen(s), 0);
	uint32_t id = clean.failed ? SP_NOT_FOUND
				   : sp_intern_add(strings, clean.len ? (char *)clean.data : "",
						   clean.len, NULL);
	sp_buf_deinit(&clean);
	return id;
}

static bool special_json(unsigned char c)
{
	return c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<';
}

void out_json(struct out *o, const char *s)
{
	out_char(o, '"');
	while (*s) {
		size_t n = plain(s, special_json);
		uint32_t c;
		if (n) {
			out_add(o, s, n);
			s += n;
			continue;
		}
		n = out_utf8(s, strnlen(s, 4), &c);
		if (c == '"' || c == '\\')
			out_printf(o, "\\%c", (int)c);
		else if (c == 0xfffd || (c & 0xfffe) == 0xfffe) /* readers make XML of it */
			out_add(o, "\xef\xbf\xbd", 3);
		else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
			 (c == '<' && o->in_html))
			out_printf(o, "\\u%04x", c);
		else
			out_add(o, s, n);
		s += n;
	}
	out_char(o, '"');
}

static bool special_xml(unsigned char c)
{
	return c < 0x20 || c >= 0x7f || c == '"' || c == '&' || c == '<' || c == '>';
}

void out_xml(struct out *o, const char *s)
{
	while (*s) {
		size_t n = plain(s, special_xml);
		uint32_t c;
		if (n) {
			out_add(o, s, n);
			s += n;
			continue;
		}
		n = out_utf8(s, strnlen(s, 4), &c);
		if (c == '"')
			out_str(o, "&quot;");
		else if (c == '&')
			out_str(o, "&amp;");
		else if (c == '<')
			out_str(o, "&lt;");
		else if (c == '>')
			out_str(o, "&gt;");
		else if (c == '\t' || c == '\n' || c == '\r')
			out_printf(o, "&#%u;", c);
		else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c & 0xfffe) == 0xfffe ||
			 (c >= 0xfdd0 && c <= 0xfdef) || c == 0xfffd)
			out_add(o, "\xef\xbf\xbd", 3);
		else
			out_add(o, s, n);
		s += n;
	}
}

static bool special_octal(unsigned char c)
{
	return c < 0x20 || c == 0x7f || c == '\\';
}

void out_octal(struct out *o, const char *s)
{
	for (;;) {
		size_t n = plain(s, special_octal);
		out_add(o, s, n);
		s += n;
		if (!*s)
			return;
		out_printf(o, "\\%03o", (unsigned char)*s++);
	}
}
