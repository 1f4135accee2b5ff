#define _GNU_SOURCE
#include "kallsyms.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "embed_jit.h"

#define KALLSYMS_MAX ((size_t)256 << 20)

struct line {
	uint64_t addr;
	const char *name; /* in the text, ends at a blank or line end */
	size_t name_len;
	const char *next; /* line after this one */
};

/* "ffffffff81000000 T _text[\t[module]]": false for a malformed line; next is set always. */
static bool parse(const char *p, const char *end, struct line *l)
{
	const char *nl = memchr(p, '\n', (size_t)(end - p));
	const char *stop = nl ? nl : end;
	l->next = stop + 1;
	l->addr = 0;
	const char *start = p;
	for (; p < stop && p - start < 16; p++) {
		unsigned c = (unsigned char)*p;
		unsigned digit = c - '0' < 10u         ? c - '0'
				 : (c | 32) - 'a' < 6u ? (c | 32) - 'a' + 10
						       : 16;
		if (digit > 15)
			break;
		l->addr = l->addr << 4 | digit;
	}
	if (p == start || stop - p < 4 || p[0] != ' ' || p[2] != ' ')
		return false;
	l->name = p + 3;
	const char *name_end = l->name;
	while (name_end < stop && *name_end != ' ' && *name_end != '\t' && *name_end != '\r')
		name_end++;
	l->name_len = (size_t)(name_end - l->name);
	return l->name_len > 0;
}

static bool is_name(const struct line *l, const char *name)
{
	return l->name_len == strlen(name) && !memcmp(l->name, name, l->name_len);
}

void cap_kernel_map_emit(struct cap_emit *e, uint64_t time_ns)
{
	struct sp_buf b = {0};
	uint64_t start = 0, end_addr = 0;
	const char *name = NULL;
	if (sp_file_read("/proc/kallsyms", KALLSYMS_MAX, &b, NULL) >= 0) {
		const char *p = (const char *)b.data, *end = p + b.len;
		struct line l;
		for (; p < end && !end_addr; p = l.next) {
			if (!parse(p, end, &l) || !l.addr)
				continue;
			if (!name && is_name(&l, "_text"))
				name = "[kernel.kallsyms]_text";
			else if (!name && is_name(&l, "_stext"))
				name = "[kernel.kallsyms]_stext";
			else if (name && is_name(&l, "_etext"))
				end_addr = l.addr;
			if (name && !start)
				start = l.addr;
			if (is_name(&l, "__sched_text_start"))
				e->waits.sched_from = l.addr;
			else if (is_name(&l, "__sched_text_end"))
				e->waits.sched_to = l.addr;
		}
	}
	if (name && end_addr > start)
		cap_emit_kernel_mmap(e, start, end_addr - start, name, time_ns);
	sp_buf_deinit(&b);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return x < y ? -1 : x > y;
}

struct near {
	uint64_t below, above; /* symbol addresses around an address; 0 and UINT64_MAX: none */
};

/* Index of the first address that is >= value. */
static size_t first_from(const uint64_t *addrs, size_t n, uint64_t value)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (addrs[mid] < value)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool is_anchor(const struct line *l)
{
	return is_name(l, "_text") || is_name(l, "_stext") || is_name(l, "_etext");
}

bool cap_kallsyms_pick(const char *text, size_t len, const uint64_t *addrs, size_t n,
		       struct sp_buf *out)
{
	const char *end = text + len;
	struct near *near = malloc((n + 1) * sizeof *near);
	struct line l;
	if (!near)
		return false;
	for (size_t i = 0; i <= n; i++)
		near[i] = (struct near){0, UINT64_MAX};
	/* A symbol is first of all next to two of the sorted addresses: the best below the first
	 * address at or above it, the best above the one before; the rest follows by sweeping. */
	for (const char *p = text; p < end; p = l.next) {
		if (!parse(p, end, &l) || !l.addr)
			continue;
		size_t i = first_from(addrs, n, l.addr);
		if (l.addr > near[i].below)
			near[i].below = l.addr;
		if (i > 0 && l.addr < near[i - 1].above)
			near[i - 1].above = l.addr;
	}
	for (size_t i = 1; i < n; i++)
		if (near[i].below == 0)
			near[i].below = near[i - 1].below;
	for (size_t i = n; i-- > 1;)
		if (near[i - 1].above == UINT64_MAX)
			near[i - 1].above = near[i].above;
	struct sp_map64 keep = {0};
	bool ok = true;
	for (size_t i = 0; ok && i < n; i++)
		ok = sp_map64_put(&keep, near[i].below, 0) && sp_map64_put(&keep, near[i].above, 0);
	for (const char *p = text; ok && p < end; p = l.next)
		if (parse(p, end, &l) && l.addr &&
		    (is_anchor(&l) || sp_map64_get(&keep, l.addr) != SP_NOT_FOUND)) {
			sp_buf_add(out, p, (size_t)((l.next <= end ? l.next : end) - p));
			if (l.next > end)
				sp_buf_u8(out, '\n');
		}
	sp_map64_deinit(&keep);
	free(near);
	return ok && !out->failed;
}

void cap_kallsyms_embed(struct cap_embed_state *s)
{
	static const char name[] = "/proc/kallsyms";
	const struct sp_map64 *ips = &s->emit->kernel_ips;
	uint64_t *addrs = malloc((ips->n + 1) * sizeof *addrs);
	struct sp_buf text = {0}, lines = {0};
	size_t n = 0;
	for (size_t i = 0; addrs && ips->slots && i <= ips->mask; i++)
		if (ips->slots[i].value)
			addrs[n++] = ips->slots[i].key;
	if (n)
		qsort(addrs, n, sizeof *addrs, by_value);
	if (n && sp_file_read("/proc/kallsyms", KALLSYMS_MAX, &text, NULL) >= 0 &&
	    cap_kallsyms_pick((const char *)text.data, text.len, addrs, n, &lines) && lines.len) {
		struct sp_ext_object o = {.kind = SP_OBJECT_KALLSYMS,
					  .pid = -1,
					  .time_ns = s->emit->now_ns,
					  .path = name,
					  .path_len = sizeof name - 1};
		cap_embed_add(s, &o, NULL, &lines);
		lines = (struct sp_buf){0};
	}
	sp_buf_deinit(&text);
	sp_buf_deinit(&lines);
	free(addrs);
}
