#include "sym/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

/* libiberty limits the depth of its recursion, not the length of what it prints: thirty back
 * references that double each time print gigabytes. Its callback interface keeps everything on the
 * stack, so that leaving it by a jump loses nothing, but for Rust's identifiers in punycode: those
 * are decoded on the heap, and told in one piece (rust-demangle.c, print_ident). They are never
 * ASCII, and what stands between them is. */
struct sink {
	struct sp_buf *out;
	size_t calls;
	bool is_rust, is_over;
	jmp_buf stop;
};

#define MAX_CALLS (4u * SP_DEMANGLED_MAX)

static bool is_ascii(const char *text, size_t len)
{
	unsigned char all = 0;
	for (size_t i = 0; i < len; i++)
		all |= (unsigned char)text[i];
	return all < 0x80;
}

static void collect(const char *text, size_t len, void *ctx)
{
	struct sink *s = ctx;
	s->is_over |= len > SP_DEMANGLED_MAX - s->out->len || ++s->calls > MAX_CALLS;
	if (!s->is_over)
		sp_buf_add(s->out, text, len);
	else if (!s->is_rust || is_ascii(text, len))
		longjmp(s->stop, 1);
}

static bool is_rust(const char *name)
{
	if (name[0] == '_' && name[1] == 'R')
		return true;
	/* Legacy Rust is Itanium with a last component "17h" and 16 hex digits. */
	return strstr(name, "17h") != NULL;
}

static int demangle(struct sink *s, const char *name)
{
	if (setjmp(s->stop))
		return 0;
	s->is_rust = is_rust(name);
	if (s->is_rust && rust_demangle_callback(name, DMGL_PARAMS, collect, s))
		return !s->is_over;
	s->is_rust = false;
	s->out->len = 0;
	return cplus_demangle_v3_callback(name, DMGL_PARAMS | DMGL_ANSI, collect, s);
}

int sp_demangle(const char *name, struct sp_buf *out)
{
	out->len = 0;
	if (name[0] != '_' || (name[1] != 'Z' && name[1] != 'R' &&
			       !(name[1] == '_' && (name[2] == 'Z' || name[2] == 'R'))))
		return 0;
	if (strnlen(name, SP_MANGLED_MAX + 1) > SP_MANGLED_MAX)
		return 0;
	struct sink s = {.out = out};
	if (!demangle(&s, name) || out->failed || !out->len)
		return 0;
	sp_buf_u8(out, 0);
	if (out->failed)
		return 0;
	out->len--;
	return 1;
}
