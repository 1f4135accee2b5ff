/* Line tables, versions 2 to 5 (DWARF 5, section 6.2). The program is run once, for the sequences
 * that it has and for marks: its registers at some rows. A look-up runs it again from the mark
 * before the address: a few dozen opcodes, where keeping all rows would take five times the
 * program's bytes. Statement marks play no part: a profile's addresses lie anywhere. */
#include <stdlib.h>
#include <string.h>

#include "sym/dwarf_impl.h"

#define MARK_BYTES 128         /* of the program between two marks */
#define FIND_BYTES (64u << 10) /* a program that has no row in as many bytes says nothing */

/* A row, and where the program goes on behind it. */
struct dw_mark {
	uint32_t delta; /* of its address, from the sequence's start */
	uint32_t at;    /* from the program's start */
	uint32_t file, line;
	uint32_t op_index;
};

struct dw_file {
	const char *name;
	uint32_t dir;
	bool joined; /* the name is the whole path, in the reader's pool */
};

/* How the opcodes of a program are read. */
struct coding {
	uint8_t min_inst, max_ops, line_range, opcode_base;
	int8_t line_base;
	const uint8_t *op_lengths; /* in the section */
};

/* The arrays are in the reader's memory. */
struct dw_lines {
	struct sp_ranges seqs; /* id: index in firsts */
	uint32_t *firsts;      /* first mark of each sequence; its marks run to the next one's */
	size_t n_firsts;
	struct dw_mark *marks;
	size_t n_marks;
	const char **dirs; /* the strings are the sections' */
	size_t n_dirs;
	struct dw_file *files;
	size_t n_files;
	struct coding coding;
	struct sp_cursor program;
};

/* What each special opcode adds where an instruction is one operation. */
struct dw_special {
	uint32_t key; /* the coding that it was made for; 0 = none */
	struct {
		uint32_t svma, line;
	} op[256];
};

/* A run over the program: all of it, to collect, or from a mark to the row of an address. */
struct machine {
	struct sp_dwarf *d;
	struct dw_lines *l; /* collecting */
	const struct coding *coding;
	const struct dw_special *special;
	struct sp_cursor c;
	uint64_t svma, op_index; /* the registers */
	uint64_t file;
	uint32_t line;
	uint64_t row_svma; /* the last row of the sequence; UINT64_MAX = none yet */
	uint32_t row_file, row_line;
	bool finding, done, failed;
	uint64_t limit;     /* finding: the address; no row behind it counts */
	const uint8_t *due; /* collecting: the first row behind it gets a mark */
	uint64_t seq_start;
	size_t seq_first; /* index of its first mark */
};

void dw_lines_free(struct dw_lines *l)
{
	if (l)
		sp_ranges_deinit(&l->seqs);
}

static bool add_dir(struct dw_scratch *s, const char *name)
{
	const char **slot = SP_PUSH(&s->dirs, &s->n_dirs, &s->dirs_cap);
	if (!slot)
		return false;
	*slot = name;
	return true;
}

static bool add_file(struct dw_scratch *s, const char *name, uint64_t dir)
{
	struct dw_file *slot = SP_PUSH(&s->files, &s->n_files, &s->files_cap);
	if (!slot)
		return false;
	*slot = (struct dw_file){.name = name,
				 .dir = dir < UINT32_MAX ? (uint32_t)dir : UINT32_MAX};
	return true;
}

/* Numbers of directories and files begin at 1; directory 0 is the unit's own. */
static bool read_tables_v4(struct dw_unit *u, struct sp_cursor *c)
{
	struct dw_scratch *to = &u->obj->d->scratch;
	if (!add_dir(to, u->comp_dir) || !add_file(to, u->name, 0))
		return false;
	for (const char *s; (s = sp_cur_str(c)) && *s;)
		if (!add_dir(to, s))
			return false;
	for (const char *s; (s = sp_cur_str(c)) && *s;) {
		uint64_t dir = sp_cur_uleb(c);
		sp_cur_uleb(c);
		sp_cur_uleb(c);
		if (c->bad || !add_file(to, s, dir))
			return false;
	}
	return !c->bad;
}

/* A table of DWARF 5: its format, then its entries. Both kinds of entry have a path; only files
 * have a directory. The forms are those of a unit with the table's own sizes. */
static bool read_table_v5(struct dw_unit *sizes, struct sp_cursor *c, bool files)
{
	struct dw_scratch *to = &sizes->obj->d->scratch;
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
	for (uint64_t k = 0; k < n; k++) {
		const char *path = NULL;
		uint64_t dir = 0;
		const uint8_t *from = c->p;
		for (size_t i = 0; i < n_format; i++) {
			struct dw_val v;
			if (format[i].at != DW_LNCT_path &&
			    format[i].at != DW_LNCT_directory_index) {
				dw_attr_skip(sizes, c, format[i].form);
				continue;
			}
			dw_attr_read(sizes, c, &format[i], &v);
			if (format[i].at == DW_LNCT_path)
				path = v.str;
			else
				dir = v.u;
		}
		/* An entry without bytes could be repeated for ever. */
		if (c->bad || c->p == from)
			return false;
		if (!(files ? add_file(to, path, dir) : add_dir(to, path)))
			return false;
	}
	return true;
}

/* Ends the sequence: what it covers is known now. */
static void end_sequence(struct machine *m, uint64_t end)
{
	struct dw_scratch *s = &m->d->scratch;
	m->done = m->finding;
	if (m->finding)
		return;
	bool keep =
		m->row_svma != UINT64_MAX && end > m->seq_start && dw_is_code(m->d, m->seq_start);
	m->row_svma = UINT64_MAX;
	if (!keep) {
		s->n_marks = m->seq_first;
		return;
	}
	uint32_t *slot = SP_PUSH(&s->firsts, &s->n_firsts, &s->firsts_cap);
	if (!slot || !sp_ranges_add(&m->l->seqs, m->seq_start, end, (uint32_t)s->n_firsts - 1)) {
		m->failed = true;
		return;
	}
	*slot = (uint32_t)m->seq_first;
	m->seq_first = s->n_marks;
}

static void set_row(struct machine *m)
{
	m->row_svma = m->svma;
	m->row_file = m->file > UINT32_MAX ? UINT32_MAX : (uint32_t)m->file;
	m->row_line = m->line;
}

/* The opcode before the cursor made a row. The last row of an address counts. */
static void add_row(struct machine *m)
{
	bool next = m->row_svma != UINT64_MAX && m->svma >= m->row_svma;
	if (m->finding) {
		m->done = !next || m->svma > m->limit;
		if (!m->done)
			set_row(m);
		return;
	}
	if (!next) {
		if (m->row_svma != UINT64_MAX) /* against the rules: a new sequence */
			end_sequence(m, m->row_svma);
		m->seq_start = m->svma;
	}
	set_row(m);
	if ((next && m->c.p < m->due) || m->svma - m->seq_start > UINT32_MAX)
		return;
	struct dw_scratch *s = &m->d->scratch;
	struct dw_mark *mark = SP_PUSH(&s->marks, &s->n_marks, &s->marks_cap);
	if (!mark) {
		m->failed = true;
		return;
	}
	*mark = (struct dw_mark){.delta = (uint32_t)(m->svma - m->seq_start),
				 .at = (uint32_t)(m->c.p - m->l->program.p),
				 .file = m->row_file,
				 .line = m->row_line,
				 .op_index = (uint32_t)m->op_index};
	m->due = m->c.p + MARK_BYTES;
}

static void advance(struct machine *m, uint64_t ops)
{
	const struct coding *k = m->coding;
	if (k->max_ops <= 1) {
		m->svma += ops * k->min_inst;
		return;
	}
	ops += m->op_index;
	m->svma += ops / k->max_ops * k->min_inst;
	m->op_index = ops % k->max_ops;
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
		m->failed |= !m->finding && !c.bad && !add_file(&m->d->scratch, name, dir);
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
		if (m->coding->line_range)
			advance(m, (255u - m->coding->opcode_base) / m->coding->line_range);
		break;
	case DW_LNS_fixed_advance_pc:
		m->svma += sp_cur_u16(c);
		m->op_index = 0;
		break;
	default: /* no effect on rows; its operands are ULEBs */
		for (uint8_t i = 0; i < m->coding->op_lengths[op - 1]; i++)
			sp_cur_uleb(c);
		break;
	}
}

static void special(struct machine *m, uint8_t op)
{
	unsigned k = op - m->coding->opcode_base;
	advance(m, k / m->coding->line_range);
	m->line += (uint32_t)(m->coding->line_base + (int)(k % m->coding->line_range));
	add_row(m);
}

/* Whether the opcodes that run_plain knows have the operands of the standard. */
static bool is_plain(const struct coding *k)
{
	static const uint8_t standard_lengths[] = {0, 1, 1, 1, 1, 0, 0, 0};
	return k->max_ops <= 1 && k->line_range && k->opcode_base > sizeof standard_lengths &&
	       !memcmp(k->op_lengths, standard_lengths, sizeof standard_lengths);
}

/* For a plain coding, or NULL: nearly all tables of a program have the same. */
static const struct dw_special *plan_special(struct sp_dwarf *d, const struct coding *k)
{
	if (!is_plain(k))
		return NULL;
	uint32_t key = (uint32_t)k->opcode_base << 24 | (uint32_t)k->line_range << 16 |
		       (uint32_t)(uint8_t)k->line_base << 8 | k->min_inst;
	if (!d->special && !(d->special = calloc(1, sizeof *d->special)))
		return NULL;
	if (d->special->key == key)
		return d->special;
	d->special->key = key;
	for (unsigned op = k->opcode_base; op < 256; op++) {
		unsigned n = op - k->opcode_base;
		d->special->op[op].svma = n / k->line_range * k->min_inst;
		d->special->op[op].line = (uint32_t)(k->line_base + (int)(n % k->line_range));
	}
	return d->special;
}

/* The opcodes that nearly all of a program consists of, with small operands, as far as they go; it
 * stops before any other one, before a row that is not plainly the next one, and before one that
 * ends the search or wants a mark. The state is kept in registers: this loop is half of what a file
 * with lines costs. */
static void run_plain(struct machine *m)
{
	const struct dw_special *plan = m->special;
	const uint8_t *p = m->c.p, *end = m->c.end;
	uint64_t svma = m->svma, row_svma = m->row_svma;
	uint32_t line = m->line, file = m->file > UINT32_MAX ? UINT32_MAX : (uint32_t)m->file;
	uint32_t row_line = m->row_line, row_file = m->row_file;
	const unsigned base = m->coding->opcode_base, min_inst = m->coding->min_inst;
	const uint32_t const_add = (255u - base) / m->coding->line_range * min_inst;
	while (end - p >= 4) {
		unsigned op = *p;
		uint64_t to = svma;
		uint32_t to_line = line;
		if (op >= base) {
			to += plan->op[op].svma;
			to_line += plan->op[op].line;
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
				svma += (uint64_t)p[1] * min_inst;
			else if (op == DW_LNS_advance_line)
				line += p[1] - ((uint32_t)(p[1] & 0x40) << 1);
			else if (op == DW_LNS_set_file)
				file = p[1];
			p += 2;
			continue;
		}
		/* A row; the first of a sequence is below UINT64_MAX. */
		if (to < row_svma || to > m->limit || p >= m->due)
			break;
		svma = row_svma = to;
		line = row_line = to_line;
		row_file = file;
		p++;
	}
	m->c.p = p;
	m->svma = svma;
	m->line = line;
	m->row_svma = row_svma;
	m->row_line = row_line;
	m->row_file = row_file;
	if (file != UINT32_MAX)
		m->file = file;
}

static void run(struct machine *m)
{
	while (!m->c.bad && !m->failed && !m->done && m->c.p < m->c.end) {
		if (m->special)
			run_plain(m);
		if (m->c.p == m->c.end)
			break;
		uint8_t op = *m->c.p++;
		if (op >= m->coding->opcode_base) {
			if (!m->coding->line_range)
				break;
			special(m, op);
		} else if (op == 0) {
			extended(m);
		} else {
			standard(m, op);
		}
	}
}

/* Up to the program; its directories and files in the scratch memory. */
static bool read_header(struct dw_unit *u, struct coding *k, struct sp_cursor *c)
{
	struct dw_unit sizes = *u;
	uint64_t len = sp_cur_u32(c);
	sizes.offset_size = 4;
	if (len == 0xffffffff) {
		len = sp_cur_u64(c);
		sizes.offset_size = 8;
	}
	if (c->bad)
		return false;
	if (len < sp_cur_left(c))
		c->end = c->p + len;
	uint16_t version = sp_cur_u16(c);
	if (version >= 5) {
		sizes.addr_size = sp_cur_u8(c);
		sp_cur_u8(c);
	}
	uint64_t header_len = sp_cur_uint(c, sizes.offset_size);
	if (c->bad || version < 2 || version > 5 || header_len > sp_cur_left(c))
		return false;
	const uint8_t *program = c->p + header_len;
	k->min_inst = sp_cur_u8(c);
	k->max_ops = version >= 4 ? sp_cur_u8(c) : 1;
	sp_cur_u8(c);
	k->line_base = (int8_t)sp_cur_u8(c);
	k->line_range = sp_cur_u8(c);
	k->opcode_base = sp_cur_u8(c);
	k->op_lengths = sp_cur_bytes(c, k->opcode_base ? k->opcode_base - 1u : 0);
	if (c->bad || !k->opcode_base)
		return false;
	bool ok = version >= 5 ? read_table_v5(&sizes, c, false) && read_table_v5(&sizes, c, true)
			       : read_tables_v4(u, c);
	c->p = program;
	return ok && !c->bad && sp_cur_left(c) <= UINT32_MAX;
}

/* What was collected, in memory of its size. */
static bool keep_lines(struct sp_dwarf *d, struct dw_lines *l)
{
	const struct dw_scratch *s = &d->scratch;
	l->n_dirs = s->n_dirs;
	l->n_files = s->n_files;
	l->n_firsts = s->n_firsts;
	l->n_marks = s->n_marks;
	l->dirs = dw_keep(d, s->dirs, l->n_dirs, sizeof *l->dirs, sizeof *l->dirs);
	l->files = dw_keep(d, s->files, l->n_files, sizeof *l->files, _Alignof(struct dw_file));
	l->firsts = dw_keep(d, s->firsts, l->n_firsts, sizeof *l->firsts, sizeof *l->firsts);
	l->marks = dw_keep(d, s->marks, l->n_marks, sizeof *l->marks, _Alignof(struct dw_mark));
	return l->dirs && l->files && l->firsts && l->marks && sp_ranges_sort(&l->seqs);
}

static struct dw_lines *read_lines(struct dw_unit *u)
{
	struct sp_dwarf *d = u->obj->d;
	struct dw_scratch *s = &d->scratch;
	struct dw_lines *l = sp_arena_take(&d->memory, sizeof *l, _Alignof(struct dw_lines));
	if (!l)
		return NULL;
	*l = (struct dw_lines){0};
	s->n_dirs = s->n_files = s->n_firsts = s->n_marks = 0;
	l->program =
		dw_cursor(u->obj, dw_section(u->obj, DW_LINE), u->stmt_list + u->part_off[DW_LINE]);
	struct machine m = {.d = d, .l = l, .coding = &l->coding, .limit = UINT64_MAX};
	m.row_svma = UINT64_MAX;
	if (read_header(u, &l->coding, &l->program) && dw_work(d, sp_cur_left(&l->program))) {
		m.c = l->program;
		m.due = m.c.p;
		m.special = plan_special(d, &l->coding);
		reset(&m);
		run(&m);
		/* Rows after the last end of a sequence say nothing about where they end. */
		s->n_marks = m.seq_first;
	}
	if (m.failed || !keep_lines(d, l)) {
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

/* The last mark of the sequence at or below the address. */
static const struct dw_mark *find_mark(const struct dw_lines *l, const struct sp_range *seq,
				       uint64_t svma)
{
	size_t first = l->firsts[seq->id], lo = first;
	size_t hi = seq->id + 1 < l->n_firsts ? l->firsts[seq->id + 1] : l->n_marks;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (l->marks[mid].delta <= svma - seq->lo)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > first ? &l->marks[lo - 1] : NULL;
}

bool dw_lines_find(struct sp_dwarf *d, const struct dw_lines *l, uint64_t svma, uint32_t *file,
		   uint32_t *line)
{
	struct sp_ranges_at i = sp_ranges_at(&l->seqs, svma);
	const struct sp_range *seq = sp_ranges_next(&i);
	const struct dw_mark *mark = seq ? find_mark(l, seq, svma) : NULL;
	if (!mark)
		return false;
	struct machine m = {.d = d,
			    .coding = &l->coding,
			    .special = plan_special(d, &l->coding),
			    .c = l->program,
			    .svma = seq->lo + mark->delta,
			    .op_index = mark->op_index,
			    .file = mark->file,
			    .line = mark->line,
			    .finding = true,
			    .limit = svma};
	sp_cur_skip(&m.c, mark->at);
	if (sp_cur_left(&m.c) > FIND_BYTES)
		m.c.end = m.c.p + FIND_BYTES;
	m.due = m.c.end;
	set_row(&m);
	run(&m);
	*file = m.row_file;
	*line = m.row_line;
	return m.done;
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
	struct dw_file *f = &l->files[number];
	if (f->joined)
		return f->name;
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
	const char *joined = NULL;
	if (!b.failed)
		joined = sp_strpool_add(&u->obj->d->strings, (const char *)b.data, b.len);
	sp_buf_deinit(&b);
	if (joined)
		*f = (struct dw_file){.name = joined, .joined = true};
	return joined;
}
