#define _GNU_SOURCE
#include "sym/kallsyms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct line {
	uint64_t addr;
	const char *name, *module;
	uint32_t name_len, module_len;
};

int sp_kallsyms_init(struct sp_kallsyms *k, const uint64_t *needed, size_t n, struct sp_err *err)
{
	*k = (struct sp_kallsyms){.needed = needed, .n = n};
	k->near = calloc(n + 1, sizeof *k->near);
	if (!k->near)
		return sp_err_nomem(err);
	for (size_t i = 0; i < n; i++)
		k->near[i].above = UINT64_MAX;
	return 0;
}

void sp_kallsyms_init_all(struct sp_kallsyms *k)
{
	*k = (struct sp_kallsyms){.all = true};
}

void sp_kallsyms_deinit(struct sp_kallsyms *k)
{
	free(k->near);
	free(k->starts);
	sp_strpool_deinit(&k->pool);
	*k = (struct sp_kallsyms){0};
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && is_space(*p))
		p++;
	return p;
}

static const char *skip_word(const char *p, const char *end)
{
	while (p < end && !is_space(*p))
		p++;
	return p;
}

static bool parse_address(const char **at, const char *end, struct line *l)
{
	*l = (struct line){0};
	const char *p = skip_space(*at, end), *from = p;
	for (; p < end && !is_space(*p); p++) {
		unsigned c = (unsigned char)*p, low = c | 0x20;
		unsigned d = c >= '0' && c <= '9'       ? c - '0'
			     : low >= 'a' && low <= 'f' ? low - 'a' + 10
							: 16;
		if (d > 15 || p - from >= 16)
			return false;
		l->addr = l->addr << 4 | d;
	}
	*at = p;
	return p != from;
}

/* "ffffffff81000000 T _text" or "… t name\t[module]" */
static bool parse_line(const char *p, const char *end, struct line *l)
{
	if (!parse_address(&p, end, l))
		return false;
	p = skip_space(p, end);
	const char *type = p;
	p = skip_word(p, end);
	if (p - type != 1 || !strchr("TtWwDdBb", *type))
		return false;
	l->name = skip_space(p, end);
	p = skip_word(l->name, end);
	if (p == l->name || p - l->name > 1024)
		return false;
	l->name_len = (uint32_t)(p - l->name);
	p = skip_space(p, end);
	const char *word = skip_word(p, end);
	if (word - p > 2 && word - p < 256 && p[0] == '[' && word[-1] == ']') {
		l->module = p + 1;
		l->module_len = (uint32_t)(word - p - 2);
	}
	return true;
}

static bool is_name(const struct line *l, const char *name)
{
	return strlen(name) == l->name_len && !memcmp(l->name, name, l->name_len);
}

static bool is_local_label(const struct line *l)
{
	return l->name[0] == '$' ||
	       (l->name_len >= 2 && (!memcmp(l->name, ".L", 2) || !memcmp(l->name, "L0", 2)));
}

/* Index of the first needed address that is >= addr. */
static size_t first_from(const struct sp_kallsyms *k, uint64_t addr)
{
	size_t lo = 0, hi = k->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (k->needed[mid] < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* A symbol is first of all a neighbour of two needed addresses: the best one below the first at or
 * above it, the best one above the last below it. Sweeps give the rest theirs. */
static void take(struct sp_kallsyms *k, const struct line *l, size_t *last)
{
	size_t i = *last;
	/* Most lines lie between the same two needed addresses as the one before. */
	if ((i < k->n && k->needed[i] < l->addr) || (i > 0 && k->needed[i - 1] >= l->addr))
		i = *last = first_from(k, l->addr);
	if (i < k->n && l->addr >= k->near[i].start) {
		struct sp_kallsyms_near *near = &k->near[i];
		near->start = l->addr;
		near->name = l->name;
		near->name_len = l->name_len;
		near->module = l->module;
		near->module_len = l->module_len;
	}
	if (i > 0 && l->addr < k->near[i - 1].above)
		k->near[i - 1].above = l->addr;
}

static int sweep(struct sp_kallsyms *k, struct sp_err *err)
{
	for (size_t i = 0; i < k->n; i++) {
		struct sp_kallsyms_near *near = &k->near[i];
		if (i > 0 && near->start < near[-1].start) {
			near->start = near[-1].start;
			near->name = near[-1].name;
			near->name_len = near[-1].name_len;
			near->module = near[-1].module;
			near->module_len = near[-1].module_len;
			continue;
		}
		if (!near->name)
			continue;
		near->name = sp_strpool_add(&k->pool, near->name, near->name_len);
		if (near->module)
			near->module = sp_strpool_add(&k->pool, near->module, near->module_len);
		if (!near->name)
			return sp_err_nomem(err);
	}
	for (size_t i = k->n; i-- > 1;)
		if (k->near[i].above < k->near[i - 1].above)
			k->near[i - 1].above = k->near[i].above;
	return 0;
}

/* Whether the text says where the core's code begins. */
static bool has_text_start(const char *text, size_t size)
{
	return memmem(text, size, " _text\n", 7) || memmem(text, size, " _stext\n", 8);
}

/* The symbols of a text, one after the other. */
struct walk {
	const char *p, *end;
	bool in_core, core_only;
	uint64_t delta;
};

static struct walk walk(const char *text, size_t size, bool core_only, uint64_t delta)
{
	return (struct walk){.p = text,
			     .end = size ? text + size : text,
			     .in_core = !size || !has_text_start(text, size),
			     .core_only = core_only,
			     .delta = delta};
}

static bool walk_next(struct walk *w, struct line *l)
{
	while (w->p < w->end) {
		const char *p = w->p, *eol = memchr(p, '\n', (size_t)(w->end - p));
		w->p = eol ? eol + 1 : w->end;
		if (!parse_line(p, eol ? eol : w->end, l) || !l->addr || is_local_label(l))
			continue;
		w->in_core |= is_name(l, "_text") || is_name(l, "_stext");
		if (l->module ? w->core_only : !w->in_core)
			continue;
		l->addr += w->delta;
		return true;
	}
	return false;
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* What is asked for is each symbol's own start: those that are known already, and the text's. */
static int widen(struct sp_kallsyms *k, struct walk w, struct sp_err *err)
{
	size_t n = 0, cap = 0;
	uint64_t *starts = NULL;
	struct line l;
	bool ok = true;
	for (size_t i = 0; ok && i < k->n; i++) {
		ok = sp_grow(&starts, &cap, n + 1, sizeof *starts);
		if (ok)
			starts[n++] = k->needed[i];
	}
	while (ok && walk_next(&w, &l)) {
		ok = sp_grow(&starts, &cap, n + 1, sizeof *starts);
		if (ok)
			starts[n++] = l.addr;
	}
	if (n)
		qsort(starts, n, sizeof *starts, by_address);
	size_t kept = 0;
	for (size_t i = 0; i < n; i++)
		if (!kept || starts[kept - 1] != starts[i])
			starts[kept++] = starts[i];
	struct sp_kallsyms_near *near = ok ? calloc(kept + 1, sizeof *near) : NULL;
	if (!near) {
		free(starts);
		return sp_err_nomem(err);
	}
	for (size_t i = 0, old = 0; i < kept; i++) {
		near[i].above = UINT64_MAX;
		if (old < k->n && k->needed[old] == starts[i])
			near[i] = k->near[old++];
	}
	free(k->near);
	free(k->starts);
	k->near = near;
	k->needed = k->starts = starts;
	k->n = kept;
	return 0;
}

static int add(struct sp_kallsyms *k, struct walk w, struct sp_err *err)
{
	struct line l;
	size_t last = 0;
	int rc = k->all ? widen(k, w, err) : 0;
	while (rc >= 0 && walk_next(&w, &l)) {
		k->n_symbols++;
		take(k, &l, &last);
	}
	return rc < 0 ? rc : sweep(k, err);
}

int sp_kallsyms_add(struct sp_kallsyms *k, const char *text, size_t size, struct sp_err *err)
{
	return add(k, walk(text, size, false, 0), err);
}

int sp_kallsyms_add_core(struct sp_kallsyms *k, const char *text, size_t size, uint64_t delta,
			 struct sp_err *err)
{
	return add(k, walk(text, size, true, delta), err);
}

static const char *line_behind(const char *p, const char *end)
{
	const char *eol = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
	return eol ? eol + 1 : end;
}

/* The line that holds the byte before p, or that ends there. */
static const char *line_before(const char *text, const char *p)
{
	const char *eol = p - text > 1 ? memrchr(text, '\n', (size_t)(p - 1 - text)) : NULL;
	return eol ? eol + 1 : text;
}

uint64_t sp_kallsyms_address(const char *text, size_t size, const char *name)
{
	char tail[64];
	struct line l;
	int n = snprintf(tail, sizeof tail, " T %s\n", name);
	if (n <= 0 || (size_t)n >= sizeof tail || !size)
		return 0;
	const char *found = memmem(text, size, tail, (size_t)n);
	const char *p = found ? line_before(text, found) : NULL;
	return p && parse_address(&p, found, &l) && p == found ? l.addr : 0;
}

bool sp_kallsyms_needs(const struct sp_kallsyms *k, uint64_t addr)
{
	size_t i = first_from(k, addr);
	return i < k->n && k->needed[i] == addr;
}

#define NEAR_LINES 4096 /* that may lie between two symbols that count */

/* The first line whose address is above addr; NULL when a line has no address. */
static const char *first_above(const char *text, const char *end, uint64_t addr)
{
	const char *lo = text, *hi = end;
	while (lo < hi) {
		const char *mid = line_before(text, lo + (hi - lo) / 2 + 1);
		struct line l;
		if (!parse_address(&mid, end, &l))
			return NULL;
		if (l.addr <= addr)
			lo = line_behind(mid, end);
		else
			hi = line_before(text, mid);
	}
	return lo;
}

/* The neighbours of one address, as a whole pass would find them. */
static bool find_near(struct sp_kallsyms_near *near, const char *text, const char *end,
		      uint64_t addr, uint64_t first)
{
	struct line l;
	const char *p = first_above(text, end, addr), *above = p;
	bool found = false;
	for (int i = 0; p && p > text && !found && i < NEAR_LINES; i++) {
		const char *eol = p - (p[-1] == '\n');
		p = line_before(text, p);
		found = parse_line(p, eol, &l) && !is_local_label(&l);
	}
	if (!found || l.module || l.addr < first || l.addr > addr)
		return false;
	*near = (struct sp_kallsyms_near){
		.start = l.addr, .name = l.name, .name_len = l.name_len, .above = UINT64_MAX};
	found = false;
	for (int i = 0; above < end && !found && i < NEAR_LINES; i++) {
		p = above;
		above = line_behind(p, end);
		found = parse_line(p, above - (above[-1] == '\n'), &l) && !is_local_label(&l);
	}
	near->above = l.addr;
	return found && !l.module && l.addr > addr;
}

int sp_kallsyms_add_sorted(struct sp_kallsyms *k, const char *text, size_t size, uint64_t first,
			   struct sp_err *err)
{
	struct sp_kallsyms_near *near = calloc(k->n + 1, sizeof *near);
	if (!near)
		return sp_err_nomem(err);
	bool ok = size && !k->all && k->n && k->needed[0] >= first;
	for (size_t i = 0; ok && i < k->n; i++)
		ok = find_near(&near[i], text, text + size, k->needed[i], first);
	for (size_t i = 0; ok && i < k->n; i++) {
		near[i].name = sp_strpool_add(&k->pool, near[i].name, near[i].name_len);
		if (!near[i].name) {
			free(near);
			return sp_err_nomem(err);
		}
	}
	if (!ok) {
		free(near);
		return 0;
	}
	free(k->near);
	k->near = near;
	k->n_symbols += k->n;
	return 1;
}

bool sp_kallsyms_find(const struct sp_kallsyms *k, uint64_t addr, struct sp_kernel_symbol *out)
{
	size_t i = first_from(k, addr);
	if (k->all && (i == k->n || k->needed[i] != addr) && i-- == 0)
		return false;
	if (i == k->n || (!k->all && k->needed[i] != addr) || !k->near[i].name)
		return false;
	const struct sp_kallsyms_near *near = &k->near[i];
	if (near->above == UINT64_MAX && addr - near->start >= SP_KALLSYMS_REACH)
		return false;
	*out = (struct sp_kernel_symbol){near->name, near->module, near->start};
	return true;
}
