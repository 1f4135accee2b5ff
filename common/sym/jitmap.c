#include "sym/jitmap.h"

#include <stdlib.h>
#include <string.h>

void sp_jitmap_deinit(struct sp_jitmap *m)
{
	sp_ranges_deinit(&m->ranges);
	free(m->entries);
	free(m->lines);
	free(m->changes);
	sp_strpool_deinit(&m->pool);
	*m = (struct sp_jitmap){0};
}

/* The length of the UTF-8 sequence at s (RFC 3629: no surrogates, nothing too long or above
 * U+10FFFF), or 0. */
static size_t utf8_len(const uint8_t *s, size_t n)
{
	uint8_t c = s[0];
	if (c < 0x80)
		return 1;
	size_t len = c >= 0xc2 && c <= 0xdf   ? 2
		     : (c & 0xf0) == 0xe0     ? 3
		     : c >= 0xf0 && c <= 0xf4 ? 4
					      : 0;
	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) ||
	    (c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

void sp_utf8_clean(struct sp_buf *out, const char *s, size_t len)
{
	const uint8_t *p = (const uint8_t *)s;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_len(p + i, len - i);
		if (n)
			sp_buf_add(out, p + i, n);
		else
			sp_buf_add(out, "\xef\xbf\xbd", 3);
		i += n ? n : 1;
	}
}

static bool is_clean(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((uint8_t)s[i] >= 0x80)
			return false;
	return true;
}

static const char *keep(struct sp_jitmap *m, const char *s, size_t len)
{
	len = strnlen(s, len);
	if (is_clean(s, len))
		return sp_strpool_add(&m->pool, s, len);
	struct sp_buf b = {0};
	sp_utf8_clean(&b, s, len);
	const char *out = b.failed ? NULL : sp_strpool_add(&m->pool, (const char *)b.data, b.len);
	sp_buf_deinit(&b);
	return out;
}

static bool add_entry(struct sp_jitmap *m, uint64_t start, uint64_t len, const char *name,
		      size_t name_len, size_t first_line)
{
	const char *kept = keep(m, name, name_len);
	struct sp_jit_entry *e = kept ? SP_PUSH(&m->entries, &m->n_entries, &m->entries_cap) : NULL;
	if (!e || m->n_entries > UINT32_MAX)
		return false;
	e->name = kept;
	e->first_line = (uint32_t)first_line;
	e->n_lines = (uint32_t)(m->n_lines - first_line);
	return sp_ranges_add(&m->ranges, start, start + len, (uint32_t)m->n_entries - 1);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* A hexadecimal number that ends at a blank; false when it is none or has more than 64 bits. */
static bool parse_hex(const char **at, const char *end, uint64_t *out)
{
	const char *p = *at;
	while (p < end && is_blank(*p))
		p++;
	if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
		p += 2;
	const char *digits = p;
	uint64_t v = 0;
	for (; p < end && !is_blank(*p); p++) {
		char c = *p;
		unsigned d = c >= '0' && c <= '9' ? (unsigned)(c - '0')
			     : (c | 0x20) >= 'a' && (c | 0x20) <= 'f'
				     ? (unsigned)((c | 0x20) - 'a') + 10
				     : 16;
		if (d > 15 || v >> 60)
			return false;
		v = v << 4 | d;
	}
	*at = p;
	*out = v;
	return p > digits && p < end;
}

int sp_jitmap_add_perf_map(struct sp_jitmap *m, const void *text, size_t size, struct sp_err *err)
{
	const char *p = text, *end = size ? p + size : p;
	while (p < end) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		const char *next = eol ? eol + 1 : end;
		eol = eol ? eol : end;
		if (eol > p && eol[-1] == '\r')
			eol--;
		uint64_t start, len;
		const char *at = p;
		p = next;
		/* One blank ends the length; more of them belong to the name. */
		if (!parse_hex(&at, eol, &start) || !parse_hex(&at, eol, &len) || ++at >= eol)
			continue;
		if (!len || len > UINT64_MAX - start || !*at)
			continue;
		if (!add_entry(m, start, len, at, (size_t)(eol - at), m->n_lines))
			return sp_err_nomem(err);
	}
	return 0;
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* The times of code that shares addresses with other code. */
static bool find_changes(struct sp_jitmap *m)
{
	const struct sp_ranges *r = &m->ranges;
	m->n_changes = 0;
	for (size_t i = 0; i < r->n; i++) {
		uint64_t from_ns = m->entries[r->v[i].id].from_ns;
		bool below = i > 0 && r->v[i - 1].max_hi > r->v[i].lo;
		bool above = i + 1 < r->n && r->v[i].hi > r->v[i + 1].lo;
		if (!from_ns || (!below && !above))
			continue;
		uint64_t *slot = SP_PUSH(&m->changes, &m->n_changes, &m->changes_cap);
		if (!slot)
			return false;
		*slot = from_ns;
	}
	if (m->n_changes)
		qsort(m->changes, m->n_changes, sizeof *m->changes, by_time);
	return true;
}

int sp_jitmap_sort(struct sp_jitmap *m, struct sp_err *err)
{
	return sp_ranges_sort(&m->ranges) && find_changes(m) ? 0 : sp_err_nomem(err);
}

void sp_jitmap_forget_times(struct sp_jitmap *m)
{
	for (size_t i = 0; i < m->n_entries; i++)
		m->entries[i].from_ns = 0;
}

uint32_t sp_jitmap_epoch(const struct sp_jitmap *m, uint64_t time_ns)
{
	size_t lo = 0, hi = m->n_changes;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->changes[mid] <= time_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return (uint32_t)lo;
}

/* Whether an entry of time a is the better one for that time than one of time b, which was found
 * before it. */
static bool is_better(uint64_t a, uint64_t b, uint64_t time_ns)
{
	if (a <= time_ns)
		return b > time_ns || a > b;
	return b > time_ns && a < b;
}

bool sp_jitmap_find(const struct sp_jitmap *m, uint64_t avma, uint64_t time_ns,
		    struct sp_jit_found *out)
{
	struct sp_ranges_at i = sp_ranges_at(&m->ranges, avma);
	const struct sp_range *r = sp_ranges_next(&i), *next;
	if (!r)
		return false;
	while (m->n_changes && (next = sp_ranges_next(&i)) != NULL)
		if (is_better(m->entries[next->id].from_ns, m->entries[r->id].from_ns, time_ns))
			r = next;
	const struct sp_jit_entry *e = &m->entries[r->id];
	*out = (struct sp_jit_found){.name = e->name, .entry = r->id, .start = r->lo};
	/* The lines of a function are few, and in no sure order. */
	uint64_t best = 0;
	for (uint32_t k = 0; k < e->n_lines; k++) {
		const struct sp_jit_line *l = &m->lines[e->first_line + k];
		if (l->avma <= avma && (!out->file || l->avma >= best)) {
			best = l->avma;
			out->file = l->file;
			out->line = l->line;
		}
	}
	return true;
}

bool sp_python_name(const char *name, const char **function, size_t *function_len,
		    const char **file, size_t *file_len)
{
	if (strncmp(name, "py::", 4) != 0)
		return false;
	const char *at = name + 4;
	*function = at;
	/* A colon splits; a blank only where no colon comes before it. */
	size_t n = strcspn(at, ": \t");
	*function_len = n;
	*file = at[n] ? at + n + 1 : at + n;
	*file_len = strlen(*file);
	size_t digits = 0;
	while (digits < *file_len && (*file)[*file_len - 1 - digits] >= '0' &&
	       (*file)[*file_len - 1 - digits] <= '9')
		digits++;
	if (digits && digits < *file_len && (*file)[*file_len - 1 - digits] == ':')
		*file_len -= digits + 1;
	return n > 0;
}
