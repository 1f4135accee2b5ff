/* Jitdumps: code loads and moves, with the lines that come before a load. What the code's bytes
 * are, and how to unwind it, is for others. */
#include <string.h>

#include "base/cursor.h"
#include "sym/jitmap.h"

#define MAGIC 0x4a695444u /* "JiTD" */
#define MAX_LINES (1u << 24)
#define HEAD_SIZE 40u
#define ARCH_TIMESTAMP 1u /* in the header's flags: times are the processor's counter */

enum { CODE_LOAD = 0, CODE_MOVE = 1, CODE_DEBUG_INFO = 2, CODE_CLOSE = 3 };

struct pending { /* the lines of the load that follows */
	uint64_t code;
	size_t first;
};

static int add_lines(struct sp_jitmap *m, struct sp_cursor *c, struct pending *p,
		     struct sp_err *err)
{
	p->code = sp_cur_u64(c);
	uint64_t n = sp_cur_u64(c);
	const char *file = NULL;
	p->first = m->n_lines;
	for (uint64_t i = 0; i < n && !c->bad && m->n_lines < MAX_LINES; i++) {
		uint64_t avma = sp_cur_u64(c);
		uint32_t line = sp_cur_u32(c);
		sp_cur_u32(c);
		const char *name = sp_cur_str(c);
		if (!name)
			break;
		if (strcmp(name, "\xff") != 0) { /* 0xff: the file of the line before */
			struct sp_buf b = {0};
			sp_utf8_clean(&b, name, strlen(name));
			file = sp_strpool_add(&m->pool, b.data ? (const char *)b.data : "", b.len);
			bool failed = b.failed || !file;
			sp_buf_deinit(&b);
			if (failed)
				return sp_err_nomem(err);
		}
		struct sp_jit_line *l = SP_PUSH(&m->lines, &m->n_lines, &m->lines_cap);
		if (!l)
			return sp_err_nomem(err);
		*l = (struct sp_jit_line){avma, file, line};
	}
	return 0;
}

static int add(struct sp_jitmap *m, uint64_t start, uint64_t size, const char *name,
	       uint32_t first_line, uint32_t n_lines, uint64_t time_ns, struct sp_err *err)
{
	if (!size || size > UINT64_MAX - start)
		return 0;
	struct sp_buf b = {0};
	sp_utf8_clean(&b, name, strlen(name));
	const char *kept =
		b.failed || !b.len ? NULL : sp_strpool_add(&m->pool, (const char *)b.data, b.len);
	bool failed = b.failed || (b.len && !kept);
	sp_buf_deinit(&b);
	if (!kept)
		return failed ? sp_err_nomem(err) : 0;
	struct sp_jit_entry *e = SP_PUSH(&m->entries, &m->n_entries, &m->entries_cap);
	if (!e || !sp_ranges_add(&m->ranges, start, start + size, (uint32_t)m->n_entries - 1))
		return sp_err_nomem(err);
	*e = (struct sp_jit_entry){kept, first_line, n_lines, time_ns};
	return 0;
}

static int add_load(struct sp_jitmap *m, struct sp_cursor *c, struct pending *p, uint64_t time_ns,
		    struct sp_err *err)
{
	sp_cur_u64(c); /* pid, tid */
	sp_cur_u64(c); /* vma */
	uint64_t code = sp_cur_u64(c), size = sp_cur_u64(c);
	sp_cur_u64(c); /* index */
	const char *name = sp_cur_str(c);
	if (!name)
		return 0;
	bool has_lines = p->code == code;
	uint32_t first = (uint32_t)p->first;
	uint32_t n = has_lines ? (uint32_t)(m->n_lines - p->first) : 0;
	p->code = UINT64_MAX;
	return add(m, code, size, name, first, n, time_ns, err);
}

/* The newest entry at the old address, under its new one. Lines do not move along. */
static int add_move(struct sp_jitmap *m, struct sp_cursor *c, uint64_t time_ns, struct sp_err *err)
{
	sp_cur_u64(c);
	sp_cur_u64(c);
	uint64_t from = sp_cur_u64(c), to = sp_cur_u64(c), size = sp_cur_u64(c);
	if (c->bad)
		return 0;
	for (size_t i = m->ranges.n; i-- > 0 && m->ranges.n - i < 100000;)
		if (m->ranges.v[i].lo == from)
			return add(m, to, size, m->entries[m->ranges.v[i].id].name, 0, 0, time_ns,
				   err);
	return 0;
}

int sp_jitmap_add_jitdump(struct sp_jitmap *m, const void *data, size_t size, struct sp_err *err)
{
	struct sp_cursor c = sp_cursor(data, size);
	uint32_t magic = sp_cur_u32(&c);
	if (magic == __builtin_bswap32(MAGIC))
		c.swap = true;
	else if (magic != MAGIC)
		return sp_err_set(err, SP_ERR_CORRUPT, 0, "not a jitdump");
	sp_cur_u32(&c);
	uint32_t head = sp_cur_u32(&c);
	struct sp_cursor h = c;
	sp_cur_skip(&h, 4 + 4 + 4 + 8); /* machine, padding, pid, time */
	uint64_t flags = head >= HEAD_SIZE ? sp_cur_u64(&h) : 0;
	sp_cur_skip(&c, head > 12 ? head - 12 : 0);
	struct pending lines = {.code = UINT64_MAX};
	int rc = 0;
	while (!c.bad && sp_cur_left(&c) >= 16 && rc >= 0) {
		uint32_t id = sp_cur_u32(&c), total = sp_cur_u32(&c);
		uint64_t time_ns = sp_cur_u64(&c);
		if (flags & ARCH_TIMESTAMP)
			time_ns = 0;
		if (total < 16 || total - 16 > sp_cur_left(&c))
			break; /* being written, or cut */
		struct sp_cursor r = c;
		r.end = r.p + (total - 16);
		sp_cur_skip(&c, total - 16);
		if (id == CODE_LOAD)
			rc = add_load(m, &r, &lines, time_ns, err);
		else if (id == CODE_MOVE)
			rc = add_move(m, &r, time_ns, err);
		else if (id == CODE_DEBUG_INFO)
			rc = add_lines(m, &r, &lines, err);
		else if (id == CODE_CLOSE)
			break;
	}
	return rc;
}
