/* Line tables, versions 2 to 5 (DWARF 5, section 6.2): the program is run once, into rows sorted by
 * sequence and address. Statement marks play no part: a profile's addresses lie anywhere. */
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

struct row {
	uint64_t svma;
	uint32_t file, line;
};

struct file {
	const char *name;
	uint64_t dir;
	const char *joined; /* in the reader's pool; NULL until asked for */
};

struct dw_lines {
	struct row *rows; /* owned */
	size_t n_rows, rows_cap;
	struct sp_ranges seqs; /* id: index in firsts */
	size_t *firsts;        /* owned: first row of each sequence; rows run to the next one's */
	size_t n_firsts, firsts_cap;
	const char **dirs; /* owned; the strings are the sections' */
	size_t n_dirs, dirs_cap;
	struct file *files; /* owned */
	size_t n_files, files_cap;
	uint16_t version;
};

/* The parts of the header that the program needs, and its registers. */
struct machine {
	struct dw_unit *u;
	struct dw_lines *l;
	struct sp_cursor c;
	uint8_t offset_size, addr_size;
	uint8_t min_inst, max_ops, line_range, opcode_base;
	int8_t line_base;
	const uint8_t *op_lengths;
	uint64_t svma, op_index;
	uint64_t file;
	uint32_t line;
	size_t seq_first; /* first row of the present sequence */
	struct {          /* what each special opcode adds */
		uint32_t ops, line;
		uint32_t svma; /* where an instruction is one operation */
	} special[256];
	bool failed;
};

void dw_lines_free(struct dw_lines *l)
{
	if (!l)
		return;
	free(l->rows);
	sp_ranges_deinit(&l->seqs);
	free(l->firsts);
	free(l->dirs);
	free(l->files);
	free(l);
}

static bool add_dir(struct dw_lines *l, const char *name)
{
	const char **slot = SP_PUSH(&l->dirs, &l->n_dirs, &l->dirs_cap);
	if (!slot)
		return false;
	*slot = name;
	return true;
}

static bool add_file(struct dw_lines *l, const char *name, uint64_t dir)
{
	struct file *slot = SP_PUSH(&l->files, &l->n_files, &l->files_cap);
	if (!slot)
		return false;
	*slot = (struct file){.name = name, .dir = dir};
	return true;
}

/* Numbers of directories and files begin at 1; directory 0 is the unit's own. */
static bool read_tables_v4(struct machine *m)
{
	struct sp_cursor *c = &m->c;
	struct dw_lines *l = m->l;
	if (!add_dir(l, m->u->comp_dir) || !add_file(l, m->u->name, 0))
		return false;
	for (const char *s; (s = sp_cur_str(c)) && *s;)
		if (!add_dir(l, s))
			return false;
	for (const char *s; (s = sp_cur_str(c)) && *s;) {
		uint64_t dir = sp_cur_uleb(c);
		sp_cur_uleb(c);
		sp_cur_uleb(c);
		if (c->bad || !add_file(l, s, dir))
			return false;
	}
	return !c->bad;
}

/* A table of DWARF 5: its format, then its entries. Both kinds of entry have a path; only files
 * have a directory. */
static bool read_table_v5(struct machine *m, bool files)
{
	struct sp_cursor *c = &m->c;
	struct dw_attr format[256];
	size_t n_format = sp_cur_u8(c);
	for (size_t i = 0; i < n_format; i++) {
		uint64_t content = sp_cur_uleb(c), form = sp_cur_uleb(c);
		if (content > UINT16_MAX || form > UINT16_MAX)
			return false;
		format[i] = (struct dw_attr){.at = (uint16_t)content, .form = (uint16_t)form};
	}
	uint64_t n = sp_cur_uleb(c);
	if (c->bad || (!n_format && n))
		return false;
	/* The forms are those of a unit with the table's own sizes. */
	struct dw_unit sizes = *m->u;
	sizes.offset_size = m->offset_size;
	sizes.addr_size = m->addr_size;
	for (size_t i = 0; i < n_format; i++)
		if (!dw_attr_plan(&sizes, &format[i]))
			return false;
	for (uint64_t k = 0; k < n; k++) {
		const char *path = NULL;
		uint64_t dir = 0;
		const uint8_t *from = c->p;
		for (size_t i = 0; i < n_format; i++) {
			struct dw_val v;
			if (format[i].at != DW_LNCT_path &&
			    format[i].at != DW_LNCT_directory_index) {
				dw_attr_skip(&sizes, c, &format[i]);
				continue;
			}
			dw_attr_read(&sizes, c, &format[i], &v);
			if (format[i].at == DW_LNCT_path)
				path = v.str;
			else
				dir = v.u;
		}
		/* An entry without bytes could be repeated for ever. */
		if (c->bad || c->p == from)
			return false;
		if (!(files ? add_file(m->l, path, dir) : add_dir(m->l, path)))
			return false;
	}
	return true;
}

/* Ends the sequence at svma: what it covers is known now. */
static void end_sequence(struct machine *m, uint64_t end)
{
	struct dw_lines *l = m->l;
	size_t first = m->seq_first;
	bool keep = l->n_rows > first && end > l->rows[first].svma &&
		    dw_is_code(m->u->obj->d, l->rows[first].svma);
	if (!keep) {
		l->n_rows = first;
		return;
	}
	size_t *slot = SP_PUSH(&l->firsts, &l->n_firsts, &l->firsts_cap);
	if (!slot ||
	    !sp_ranges_add(&l->seqs, l->rows[first].svma, end, (uint32_t)l->n_firsts - 1)) {
		m->failed = true;
		return;
	}
	*slot = first;
	m->seq_first = l->n_rows;
}

static void add_row(struct machine *m)
{
	struct dw_lines *l = m->l;
	struct row r = {.svma = m->svma,
			.file = m->file > UINT32_MAX ? UINT32_MAX : (uint32_t)m->file,
			.line = m->line};
	if (l->n_rows > m->seq_first) {
		struct row *last = &l->rows[l->n_rows - 1];
		if (r.svma == last->svma) { /* the last row of an address counts */
			*last = r;
			return;
		}
		if (r.svma < last->svma) /* against the rules: a new sequence */
			end_sequence(m, last->svma);
		else if (r.file == last->file && r.line == last->line)
			return;
	}
	if (l->n_rows == l->rows_cap && !sp_grow(&l->rows, &l->rows_cap, l->n_rows + 1, sizeof r)) {
		m->failed = true;
		return;
	}
	l->rows[l->n_rows++] = r;
}

static void advance(struct machine *m, uint64_t ops)
{
	if (m->max_ops <= 1) {
		m->svma += ops * m->min_inst;
		return;
	}
	ops += m->op_index;
	m->svma += ops / m->max_ops * m->min_inst;
	m->op_index = ops % m->max_ops;
}

static void reset(struct machine *m)
{
	m->svma = m->op_index = 0;
	m->file = 1;
	m->line = 1;
}

static void extended(struct machine *m)
{
	uint64_t len = sp_cur_uleb(&m->c);
	if (m->c.bad || !len || len > sp_cur_left(&m->c)) {
		m->c.bad = true;
		return;
	}
	struct sp_cursor c = m->c;
	c.end = c.p + len;
	sp_cur_skip(&m->c, len);
	switch (sp_cur_u8(&c)) {
	case DW_LNE_end_sequence:
		end_sequence(m, m->svma);
		reset(m);
		break;
	case DW_LNE_set_address:
		if (len == 3 || len == 5 || len == 9)
			m->svma = sp_cur_uint(&c, (unsigned)len - 1);
		m->op_index = 0;
		break;
	case DW_LNE_define_file: {
		const char *name = sp_cur_str(&c);
		uint64_t dir = sp_cur_uleb(&c);
		m->failed |= !c.bad && !add_file(m->l, name, dir);
		break;
	}
	default:
		break;
	}
}

static void standard(struct machine *m, uint8_t op)
{
	struct sp_cursor *c = &m->c;
	switch (op) {
	case DW_LNS_copy:
		add_row(m);
		break;
	case DW_LNS_advance_pc:
		advance(m, sp_cur_uleb(c));
		break;
	case DW_LNS_advance_line:
		m->line = (uint32_t)(m->line + (uint64_t)sp_cur_sleb(c));
		break;
	case DW_LNS_set_file:
		m->file = sp_cur_uleb(c);
		break;
	case DW_LNS_const_add_pc:
		if (m->line_range)
			advance(m, (255u - m->opcode_base) / m->line_range);
		break;
	case DW_LNS_fixed_advance_pc:
		m->svma += sp_cur_u16(c);
		m->op_index = 0;
		break;
	default: /* no effect on rows; its operands are ULEBs */
		for (uint8_t i = 0; i < m->op_lengths[op - 1]; i++)
			sp_cur_uleb(c);
		break;
	}
}

static void plan_special(struct machine *m)
{
	for (unsigned op = m->opcode_base; m->line_range && op < 256; op++) {
		unsigned special = op - m->opcode_base;
		m->special[op].ops = special / m->line_range;
		m->special[op].svma = m->special[op].ops * m->min_inst;
		m->special[op].line = (uint32_t)(m->line_base + (int)(special % m->line_range));
	}
}

/* Whether the opcodes that run_plain knows have the operands of the standard. */
static bool is_plain(const struct machine *m)
{
	static const uint8_t standard_lengths[] = {0, 1, 1, 1, 1, 0, 0, 0};
	return m->max_ops <= 1 && m->line_range && m->opcode_base > sizeof standard_lengths &&
	       !memcmp(m->op_lengths, standard_lengths, sizeof standard_lengths);
}

/* The opcodes that nearly all of a program consists of, with small operands, as far as they go; it
 * stops before any other one, and before a row that is not plainly the next one. The state is kept in
 * registers: this loop is half of what a file with lines costs. */
static void run_plain(struct machine *m)
{
	struct dw_lines *l = m->l;
	const uint8_t *p = m->c.p, *end = m->c.end;
	struct row *rows = l->rows;
	size_t n = l->n_rows, first = m->seq_first, cap = l->rows_cap;
	uint64_t svma = m->svma;
	uint32_t line = m->line, file = m->file > UINT32_MAX ? UINT32_MAX : (uint32_t)m->file;
	const unsigned base = m->opcode_base;
	const uint32_t const_add = (255u - base) / m->line_range * m->min_inst;
	while (end - p >= 4) {
		unsigned op = *p;
		uint64_t to = svma;
		uint32_t to_line = line;
		if (op >= base) {
			to += m->special[op].svma;
			to_line += m->special[op].line;
		} else if (op == DW_LNS_negate_stmt || op == DW_LNS_set_basic_block) {
			p++;
			continue;
		} else if (op == 0) {
			/* DW_LNE_set_discriminator (GNU, DWARF 4) says nothing of lines. */
			if (p[1] != 2 || p[2] != DW_LNE_set_discriminator)
				break;
			p += 4;
			continue;
		} else if (op == DW_LNS_const_add_pc) {
			svma += const_add;
			p++;
			continue;
		} else if (op != DW_LNS_copy) {
			if (p[1] & 0x80 || op > DW_LNS_set_column)
				break;
			if (op == DW_LNS_advance_pc)
				svma += (uint64_t)p[1] * m->min_inst;
			else if (op == DW_LNS_advance_line)
				line += p[1] - ((uint32_t)(p[1] & 0x40) << 1);
			else if (op == DW_LNS_set_file)
				file = p[1];
			p += 2;
			continue;
		}
		/* A row. */
		struct row *last = n > first ? &rows[n - 1] : NULL;
		if (last && to == last->svma) {
			last->file = file;
			last->line = to_line;
		} else if (last && to < last->svma) {
			break;
		} else if (!last || file != last->file || to_line != last->line) {
			if (n == cap)
				break;
			rows[n++] = (struct row){.svma = to, .file = file, .line = to_line};
		}
		svma = to;
		line = to_line;
		p++;
	}
	m->c.p = p;
	m->svma = svma;
	m->line = line;
	if (file != UINT32_MAX)
		m->file = file;
	l->n_rows = n;
}

static void run(struct machine *m)
{
	reset(m);
	plan_special(m);
	bool plain = is_plain(m);
	while (!m->c.bad && !m->failed && m->c.p < m->c.end) {
		if (plain)
			run_plain(m);
		if (m->c.p == m->c.end)
			break;
		uint8_t op = *m->c.p++;
		if (op >= m->opcode_base) {
			if (!m->line_range)
				break;
			advance(m, m->special[op].ops);
			m->line += m->special[op].line;
			add_row(m);
		} else if (op == 0) {
			extended(m);
		} else {
			standard(m, op);
		}
	}
	/* Rows after the last end of a sequence say nothing about where they end. */
	m->l->n_rows = m->seq_first;
}

static bool read_header(struct machine *m)
{
	struct sp_cursor *c = &m->c;
	uint64_t len = sp_cur_u32(c);
	m->offset_size = 4;
	if (len == 0xffffffff) {
		len = sp_cur_u64(c);
		m->offset_size = 8;
	}
	if (c->bad)
		return false;
	if (len < sp_cur_left(c))
		c->end = c->p + len;
	m->l->version = sp_cur_u16(c);
	m->addr_size = m->u->addr_size;
	if (m->l->version >= 5) {
		m->addr_size = sp_cur_u8(c);
		sp_cur_u8(c);
	}
	uint64_t header_len = sp_cur_uint(c, m->offset_size);
	if (c->bad || m->l->version < 2 || m->l->version > 5 || header_len > sp_cur_left(c))
		return false;
	const uint8_t *program = c->p + header_len;
	m->min_inst = sp_cur_u8(c);
	m->max_ops = m->l->version >= 4 ? sp_cur_u8(c) : 1;
	sp_cur_u8(c);
	m->line_base = (int8_t)sp_cur_u8(c);
	m->line_range = sp_cur_u8(c);
	m->opcode_base = sp_cur_u8(c);
	m->op_lengths = sp_cur_bytes(c, m->opcode_base ? m->opcode_base - 1u : 0);
	if (c->bad || !m->opcode_base)
		return false;
	bool ok = m->l->version >= 5 ? read_table_v5(m, false) && read_table_v5(m, true)
				     : read_tables_v4(m);
	c->bad = !ok;
	c->p = program;
	return ok;
}

static struct dw_lines *read_lines(struct dw_unit *u)
{
	struct dw_lines *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	struct machine m = {.u = u, .l = l};
	m.c = dw_cursor(u->obj, dw_section(u->obj, DW_LINE), u->stmt_list + u->part_off[DW_LINE]);
	if (read_header(&m) && dw_work(u->obj->d, sp_cur_left(&m.c))) {
		/* Three bytes a row are usual; memory that is not written costs nothing. */
		m.failed = !sp_grow(&l->rows, &l->rows_cap, sp_cur_left(&m.c) / 3 + 16,
				    sizeof *l->rows);
		run(&m);
		/* What was too much is for the next table. */
		struct row *fit = l->n_rows ? realloc(l->rows, l->n_rows * sizeof *fit) : NULL;
		if (fit) {
			l->rows = fit;
			l->rows_cap = l->n_rows;
		}
	}
	if (m.failed || !sp_ranges_sort(&l->seqs)) {
		dw_lines_free(l);
		return NULL;
	}
	return l;
}

struct dw_lines *dw_lines_get(struct dw_unit *u)
{
	if (u->lines_tried)
		return u->lines;
	u->lines_tried = true;
	if (!dw_unit_root(u) || !u->has_stmt_list)
		return NULL;
	/* Partial and type units share the table of their unit. */
	uint32_t at = sp_map64_get(&u->obj->lines_of, u->stmt_list);
	if (at == SP_NOT_FOUND) {
		struct dw_lines *l = read_lines(u);
		struct dw_lines **slot =
			l ? SP_PUSH(&u->obj->lines, &u->obj->n_lines, &u->obj->lines_cap) : NULL;
		if (!slot) {
			dw_lines_free(l);
			return NULL;
		}
		*slot = l;
		at = (uint32_t)u->obj->n_lines - 1;
		sp_map64_put(&u->obj->lines_of, u->stmt_list, at);
	}
	return u->lines = u->obj->lines[at];
}

static const struct row *find_row(const struct dw_lines *l, uint32_t seq, uint64_t svma)
{
	size_t lo = l->firsts[seq];
	size_t hi = seq + 1 < l->n_firsts ? l->firsts[seq + 1] : l->n_rows;
	size_t first = lo;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (l->rows[mid].svma <= svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > first ? &l->rows[lo - 1] : NULL;
}

bool dw_lines_find(const struct dw_lines *l, uint64_t svma, uint32_t *file, uint32_t *line)
{
	struct sp_ranges_at i = sp_ranges_at(&l->seqs, svma);
	const struct sp_range *seq = sp_ranges_next(&i);
	const struct row *r = seq ? find_row(l, seq->id, svma) : NULL;
	if (!r)
		return false;
	*file = r->file;
	*line = r->line;
	return true;
}

static void add_part(struct sp_buf *b, const char *part)
{
	if (b->len && b->data[b->len - 1] != '/')
		sp_buf_u8(b, '/');
	sp_buf_str(b, part);
}

const char *dw_lines_file(struct dw_unit *u, struct dw_lines *l, uint64_t number)
{
	if (number >= l->n_files || !l->files[number].name || !*l->files[number].name)
		return NULL;
	struct file *f = &l->files[number];
	if (f->joined)
		return f->joined;
	const char *dir = f->dir < l->n_dirs ? l->dirs[f->dir] : NULL;
	struct sp_buf b = {0};
	if (f->name[0] != '/') {
		bool absolute = dir && dir[0] == '/';
		if (u->comp_dir && !absolute)
			sp_buf_str(&b, u->comp_dir);
		if (absolute || (dir && *dir && dir != u->comp_dir && strcmp(dir, ".") != 0))
			add_part(&b, dir);
	}
	add_part(&b, f->name);
	if (!b.failed)
		f->joined = sp_strpool_add(&u->obj->d->strings, (const char *)b.data, b.len);
	sp_buf_deinit(&b);
	return f->joined;
}
