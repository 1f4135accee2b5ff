/* Inside of the DWARF reader: sections, units, abbreviations, attribute values. One struct dw_obj
 * per file (the main one, its dwz alternate, each dwo, the dwp); offsets named _off count from the
 * start of that file's .debug_info. */
#ifndef SP_SYM_DWARF_IMPL_H
#define SP_SYM_DWARF_IMPL_H

#include <dwarf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/table.h"
#include "sym/arena.h"
#include "sym/dwarf.h"
#include "sym/ranges.h"
#include "sym/strpool.h"

/* What may be spent per byte of a file: an honest one is read a few times at most (index,
 * functions, functions inside of functions, names). */
#define DW_WORK_PER_BYTE 16

enum dw_sec {
	DW_INFO,
	DW_ABBREV,
	DW_LINE,
	DW_STR,
	DW_LINE_STR,
	DW_RANGES,
	DW_RNGLISTS,
	DW_ADDR,
	DW_STR_OFFSETS,
	DW_ARANGES,
	DW_N_SECS,
};

struct dw_bytes {
	const uint8_t *p; /* borrowed from the ELF image or from the object's `owned` */
	size_t n;
};

/* How the bytes of an attribute are stepped over: n of them, or by their own length. */
enum dw_step {
	DW_FIXED,
	DW_ULEB,
	DW_CSTRING,
	DW_BLOCK1,
	DW_BLOCK2,
	DW_BLOCK4,
	DW_BLOCKU,
	DW_INDIRECT
};

struct dw_attr {
	uint16_t at, form;
	int64_t implicit; /* DW_FORM_implicit_const */
};

struct dw_skip {
	uint8_t step; /* enum dw_step */
	uint8_t n;    /* DW_FIXED */
};

/* An abbreviation takes 16 bytes, for a program has hundreds of thousands: its attributes stay
 * where they are in .debug_abbrev. */
struct dw_abbrev {
	uint32_t attrs;      /* where their list is, from the table's start */
	uint32_t first_skip; /* how the attributes are stepped over; none where `fixed` says it */
	uint16_t tag;
	int16_t fixed;      /* bytes of all attributes, or -1 when that depends */
	int16_t sibling_at; /* where among them a sibling of form ref4 is, or -1 */
	uint8_t n_skips;    /* DW_SKIPS_MANY: too many, the list of attributes tells */
	uint8_t flags;
};
#define DW_SKIPS_MANY UINT8_MAX
enum { DW_CHILDREN = 1, DW_HAS_PC = 2 /* low_pc or ranges */, DW_HAS_SIBLING = 4 };

struct dw_abbrevs {
	struct dw_abbrev *v; /* the arrays are in the reader's memory */
	size_t n;
	struct dw_skip *skips;
	struct sp_cursor bytes;  /* the table, and what is behind it */
	struct sp_map64 by_code; /* only when codes are not 1, 2, 3, … */
	bool dense;
};

struct dw_obj;
struct dw_lines;
struct dw_funcs;
struct dw_file;
struct dw_mark;
struct dw_special;

/* A value as it was read; references and strings are resolved by who needs them. */
enum dw_class { DW_V_NONE, DW_V_ADDR, DW_V_UINT, DW_V_OFFSET, DW_V_STRING, DW_V_REF, DW_V_RNGX };

struct dw_val {
	enum dw_class class;
	uint16_t form;
	uint64_t u;      /* address, number, section offset, index; for DW_V_REF an info offset */
	const char *str; /* DW_V_STRING; NULL when it cannot be read */
	struct dw_obj *obj; /* DW_V_REF: whose info */
};

/* Where an entry says that its code is. */
struct dw_pc_attrs {
	bool has_low, has_high, high_is_size, has_ranges;
	uint64_t low, high;
	enum dw_class ranges_class;
	uint64_t ranges;
};

struct dw_pcs {
	struct dw_pc {
		uint64_t lo, hi;
	} * v; /* owned */
	size_t n, cap;
};

struct dw_unit {
	struct dw_obj *obj; /* borrowed */
	uint64_t off, end;  /* of the header, and behind the unit */
	uint64_t root_off;  /* of the first entry */
	uint64_t abbrev_off;
	uint64_t dwo_id;
	uint16_t version;
	uint8_t offset_size, addr_size, type; /* DW_UT_* */
	bool bad;                             /* its header or its root cannot be read */
	bool root_read, split_tried;
	struct dw_abbrevs *abbrevs; /* borrowed from obj, or NULL */
	/* of the root entry */
	uint16_t language;
	bool has_stmt_list;
	uint64_t stmt_list;
	struct dw_pc_attrs pc;
	uint64_t str_offsets_base, addr_base, rnglists_base, gnu_ranges_base;
	const char *name, *comp_dir, *dwo_name;
	/* where a dwp keeps this unit's part of each section */
	uint64_t part_off[DW_N_SECS];
	/* split DWARF: the unit with the contents, and from there the one in the main file */
	struct dw_unit *split;    /* borrowed from its obj */
	struct dw_unit *skeleton; /* borrowed */
	struct dw_lines *lines;   /* borrowed from obj */
	bool lines_tried;
	struct dw_funcs *funcs; /* owned */
};

struct dw_head {
	uint64_t off, end;
	struct dw_unit *unit; /* owned; NULL until asked for */
};

struct dw_name {
	const char *linkage, *name; /* as in struct sp_dwarf_level */
};

struct dw_obj {
	struct sp_dwarf *d;       /* borrowed */
	const struct sp_elf *elf; /* borrowed, or own_elf */
	struct sp_elf own_elf;
	bool owns_elf;
	bool is_dwo;      /* sections are named .debug_*.dwo */
	const char *path; /* borrowed; for searching beside it */
	struct dw_bytes sec[DW_N_SECS];
	void *owned[DW_N_SECS]; /* inflated sections */
	bool loaded[DW_N_SECS];
	struct dw_head *heads; /* owned; in order of off */
	size_t n_heads, heads_cap;
	bool heads_read;
	struct dw_abbrevs **tables; /* owned */
	size_t n_tables, tables_cap;
	struct sp_map64 table_of; /* key of offset and sizes: index in tables */
	struct dw_lines **lines;  /* owned */
	size_t n_lines, lines_cap;
	struct sp_map64 lines_of; /* stmt_list: index in lines */
	struct dw_name *names;    /* owned */
	size_t n_names, names_cap;
	struct sp_map64 name_of; /* offset of a function's entry: index in names */
	struct dw_obj *alt;      /* owned: dwz's file */
	bool alt_tried;
	struct dw_cu_index *cu_index; /* owned: of a dwp */
};

/* Where tables of abbreviations and of lines grow until their sizes are known. */
struct dw_scratch {
	struct dw_abbrev *v; /* owned */
	size_t n, cap;
	struct dw_skip *skips; /* owned */
	size_t n_skips, skips_cap;
	const char **dirs; /* owned */
	size_t n_dirs, dirs_cap;
	struct dw_file *files; /* owned */
	size_t n_files, files_cap;
	uint32_t *firsts; /* owned */
	size_t n_firsts, firsts_cap;
	struct dw_mark *marks; /* owned */
	size_t n_marks, marks_cap;
};

struct sp_dwarf {
	struct dw_obj main;
	struct sp_arena memory;
	struct dw_scratch scratch;
	struct dw_special *special; /* owned: of the last line table */
	struct sp_dwarf_options options; /* its pointers are borrowed */
	uint64_t work_left;
	struct sp_strpool strings;
	struct sp_ranges code;  /* executable sections */
	struct sp_ranges units; /* id: index in main.heads */
	struct sp_ranges aranges;
	bool units_read, aranges_read;
	size_t *homeless; /* owned: units that do not say where their code is */
	size_t n_homeless, homeless_cap;
	struct dw_obj **dwos; /* owned */
	size_t n_dwos, dwos_cap;
	struct dw_obj *dwp; /* owned */
	bool dwp_tried;
	struct sp_dwarf_level *levels; /* owned: the last answer */
	size_t levels_cap;
	char problem[200];
};

/* dwarf_file.c: sections and units. */
struct dw_bytes dw_section(struct dw_obj *o, enum dw_sec s);
void dw_obj_deinit(struct dw_obj *o);
/* False when the work that may be spent is spent: give up, quietly. */
static inline bool dw_work(struct sp_dwarf *d, uint64_t n)
{
	d->work_left -= n < d->work_left ? n : d->work_left;
	return d->work_left > 0;
}
int dw_heads_read(struct dw_obj *o, struct sp_err *err);
struct dw_unit *dw_unit_get(struct dw_obj *o, size_t head);
/* Forgets one that nothing points to: where many are looked at, few are kept. */
void dw_unit_drop(struct dw_obj *o, size_t head);
/* The unit that holds an info offset, or NULL. */
struct dw_unit *dw_unit_at(struct dw_obj *o, uint64_t off);
bool dw_is_code(const struct sp_dwarf *d, uint64_t svma);
void dw_problem(struct sp_dwarf *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* dwarf_abbrev.c */
struct dw_abbrevs *dw_abbrevs_get(struct dw_unit *u);
void dw_abbrevs_free(struct dw_abbrevs *t);
const struct dw_abbrev *dw_abbrev_slow(const struct dw_abbrevs *t, uint64_t code);
static inline const struct dw_abbrev *dw_abbrev(const struct dw_abbrevs *t, uint64_t code)
{
	if (t->dense)
		return code - 1 < t->n ? &t->v[code - 1] : NULL;
	return dw_abbrev_slow(t, code);
}
enum dw_step dw_form_step(const struct dw_unit *u, uint64_t form, uint32_t *n, bool *known);
/* The attributes of an abbreviation. */
static inline struct sp_cursor dw_attrs(const struct dw_abbrevs *t, const struct dw_abbrev *a)
{
	struct sp_cursor list = t->bytes;
	list.p += a->attrs;
	return list;
}
/* What walking the list cost: attributes without bytes could make each entry as long as the table. */
static inline void dw_attrs_done(struct dw_unit *u, const struct dw_abbrev *a,
				 const struct sp_cursor *list)
{
	(void)dw_work(u->obj->d, (uint64_t)(list->p - u->abbrevs->bytes.p) - a->attrs);
}
bool dw_attr_next_slow(struct sp_cursor *list, struct dw_attr *a);
/* The next one of a list; false at its end, and where it cannot be read (and bad). */
static inline bool dw_attr_next(struct sp_cursor *list, struct dw_attr *a)
{
	const uint8_t *p = list->p;
	if (list->end - p < 2 || (p[0] | p[1]) & 0x80 || p[1] == DW_FORM_implicit_const ||
	    list->bad)
		return dw_attr_next_slow(list, a);
	*a = (struct dw_attr){.at = p[0], .form = p[1]}; /* nearly all of them */
	list->p += 2;
	return p[0] | p[1];
}
void dw_scratch_deinit(struct dw_scratch *s);
/* A copy of n elements in the reader's memory, or NULL. */
void *dw_keep(struct sp_dwarf *d, const void *from, size_t n, size_t size, size_t align);

/* dwarf_attr.c */
struct sp_cursor dw_cursor(const struct dw_obj *o, struct dw_bytes b, uint64_t from);
/* At the entry's attributes in the unit. */
struct sp_cursor dw_unit_cursor(struct dw_unit *u, uint64_t off);
void dw_skip_attrs_slow(struct dw_unit *u, struct sp_cursor *c, const struct dw_abbrev *a);
static inline void dw_skip_attrs(struct dw_unit *u, struct sp_cursor *c, const struct dw_abbrev *a)
{
	if (a->fixed >= 0)
		sp_cur_skip(c, (uint64_t)a->fixed);
	else
		dw_skip_attrs_slow(u, c, a);
}
/* The same; the offset of the entry's sibling, or 0 when it does not say it. */
uint64_t dw_skip_to_sibling(struct dw_unit *u, struct sp_cursor *c, const struct dw_abbrev *a);
void dw_attr_read(struct dw_unit *u, struct sp_cursor *c, const struct dw_attr *a,
		  struct dw_val *v);
/* Steps over a value; one of an unknown form is bad. */
void dw_attr_skip(struct dw_unit *u, struct sp_cursor *c, uint64_t form);
const char *dw_string_at(struct dw_obj *o, enum dw_sec s, uint64_t off);
const char *dw_string_x(struct dw_unit *u, uint64_t index);
bool dw_addr_x(struct dw_unit *u, uint64_t index, uint64_t *addr);

/* dwarf_unit.c: the root entry; its ranges. */
bool dw_unit_root(struct dw_unit *u);

/* dwarf_ranges.c */
void dw_pc_attr(struct dw_pc_attrs *pc, uint16_t at, const struct dw_val *v);
/* Append what the attributes say; false when memory ends. */
bool dw_pcs_add(struct dw_unit *u, const struct dw_pc_attrs *pc, struct dw_pcs *out);

/* dwarf_line.c */
struct dw_lines *dw_lines_get(struct dw_unit *u);
void dw_lines_free(struct dw_lines *l);
bool dw_lines_find(struct sp_dwarf *d, const struct dw_lines *l, uint64_t svma, uint32_t *file,
		   uint32_t *line);
const char *dw_lines_file(struct dw_unit *u, struct dw_lines *l, uint64_t file);

/* dwarf_func.c */
struct dw_inline {
	uint32_t next; /* index behind its descendants */
	uint32_t first_pc, n_pcs;
	uint64_t call_file, call_line;
	uint64_t off;
};
struct dw_func {
	uint64_t off; /* of its entry */
	uint64_t low;
	bool inlines_read;
	uint32_t first_inline, n_inlines;
};
struct dw_funcs {
	struct dw_func *v; /* owned */
	size_t n, cap;
	struct sp_ranges by_pc;
	struct dw_inline *inlines; /* owned */
	size_t n_inlines, inlines_cap;
	struct dw_pcs pcs; /* of the inlines */
	bool deep;         /* functions inside of functions were looked for */
};
void dw_funcs_free(struct dw_funcs *f);
/* The function of the unit that holds the address, or NULL. */
struct dw_func *dw_func_find(struct dw_unit *u, uint64_t svma);
/* Its inline calls that hold the address, outermost first, into at[max]; their number. */
size_t dw_inlines_find(struct dw_unit *u, struct dw_func *f, uint64_t svma,
		       const struct dw_inline **at, size_t max);

/* dwarf_name.c: never fails: unknown names are NULL. */
struct dw_name dw_name_of(struct dw_unit *u, uint64_t off);

/* dwarf_split.c */
struct dw_unit *dw_split_unit(struct dw_unit *skeleton);
struct dw_obj *dw_alt(struct dw_obj *o);
void dw_cu_index_free(struct dw_cu_index *x);

#endif
