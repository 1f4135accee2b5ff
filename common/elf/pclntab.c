#include "elf/pclntab.h"

enum {
	MAGIC_118 = 0xfffffff0u,
	MAGIC_120 = 0xfffffff1u,
	HEAD_WORDS = 8, /* behind the first 8 bytes */
	FTAB_ENTRY = 8,
	FUNC_118 = 40,
	FUNC_120 = 44,
};
/* Longer ones are given up: 100,000 lines of one function have 300 KB. */
#define LIST_MAX (UINT32_C(1) << 20)
#define NAME_MAX_BYTES (UINT32_C(64) << 10)
#define NOTHING UINT32_MAX

/* --- words of the file --- */

static bool u32_at(const struct sp_pclntab *t, size_t off, uint32_t *out)
{
	if (off > t->size || t->size - off < 4)
		return false;
	struct sp_cursor c = sp_elf_cursor(t->elf, t->data + off, 4);
	*out = sp_cur_u32(&c);
	return true;
}

/* The i-th word behind the table's first 8 bytes. */
static uint64_t head_word(const struct sp_pclntab *t, unsigned i)
{
	struct sp_cursor c = sp_elf_cursor(t->elf, t->data + 8 + i * t->word_bytes, t->word_bytes);
	return sp_cur_uint(&c, t->word_bytes);
}

/* The program's relocations that have their addends with them. */
static size_t relas(const struct sp_elf *e, struct sp_cursor *out)
{
	const struct sp_segment *dynamic = sp_elf_segment(e, PT_DYNAMIC);
	size_t left = 0;
	const uint8_t *p = dynamic ? sp_elf_at_svma(e, dynamic->svma, &left) : NULL;
	uint64_t at = 0, size = 0, relative = UINT64_MAX;
	if (!p || !e->is64)
		return 0;
	struct sp_cursor c = sp_elf_cursor(e, p, left < dynamic->filesz ? left : dynamic->filesz);
	for (;;) {
		uint64_t tag = sp_cur_u64(&c), value = sp_cur_u64(&c);
		if (c.bad || tag == DT_NULL)
			break;
		if (tag == DT_RELA)
			at = value;
		else if (tag == DT_RELASZ)
			size = value;
		else if (tag == DT_RELACOUNT) /* they come first then */
			relative = value;
	}
	p = at ? sp_elf_at_svma(e, at, &left) : NULL;
	if (!p)
		return 0;
	size_t n = (left < size ? left : (size_t)size) / sizeof(Elf64_Rela);
	n = n < relative ? n : (size_t)relative;
	*out = sp_elf_cursor(e, p, n * sizeof(Elf64_Rela));
	return n;
}

static Elf64_Rela rela_at(const struct sp_cursor *all, size_t i)
{
	struct sp_cursor c = *all;
	sp_cur_skip(&c, i * sizeof(Elf64_Rela));
	Elf64_Rela r = {.r_offset = sp_cur_u64(&c), .r_info = sp_cur_u64(&c)};
	r.r_addend = (int64_t)sp_cur_u64(&c);
	return r;
}

static bool is_relative(const struct sp_elf *e, const Elf64_Rela *r)
{
	uint32_t type = ELF64_R_TYPE(r->r_info);
	return (e->machine == EM_X86_64 && type == R_X86_64_RELATIVE) ||
	       (e->machine == EM_AARCH64 && type == R_AARCH64_RELATIVE);
}

/* How many of n lie below an address, if they are sorted: so GNU ld and lld leave them, Go's own
 * linker does not. */
static size_t relas_below(const struct sp_cursor *all, size_t n, uint64_t svma)
{
	size_t low = 0;
	while (low < n) {
		size_t mid = low + (n - low) / 2;
		if (rela_at(all, mid).r_offset < svma)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

/* What the loader puts at an address, or 0. */
static uint64_t relocated(const struct sp_elf *e, uint64_t svma)
{
	struct sp_cursor all;
	size_t n = relas(e, &all), i = relas_below(&all, n, svma);
	Elf64_Rela r = {0};
	if (i < n && (r = rela_at(&all, i)).r_offset == svma && is_relative(e, &r))
		return (uint64_t)r.r_addend;
	for (i = 0; i < n; i++) {
		r = rela_at(&all, i);
		if (r.r_offset == svma && is_relative(e, &r))
			return (uint64_t)r.r_addend;
	}
	return 0;
}

/* A pointer at an address, as it is once the program is loaded where it was linked to. */
static uint64_t pointer_at(const struct sp_pclntab *t, uint64_t svma)
{
	size_t left = 0;
	const uint8_t *p = sp_elf_at_svma(t->elf, svma, &left);
	if (!p || left < t->word_bytes)
		return 0;
	struct sp_cursor c = sp_elf_cursor(t->elf, p, t->word_bytes);
	uint64_t v = sp_cur_uint(&c, t->word_bytes);
	return v ? v : relocated(t->elf, svma);
}

/* --- the module's own description (runtime.moduledata) --- */

/* Its words. */
enum {
	MODULE_TABLE = 0,
	MODULE_NAMES = 1,
	MODULE_TEXT = 22,
	MODULE_FUNC_118 = 38,
	MODULE_FUNC_120 = 40,
};

static uint64_t module_word(const struct sp_pclntab *t, uint64_t module, unsigned i)
{
	return pointer_at(t, module + i * (uint64_t)t->word_bytes);
}

static bool is_module(const struct sp_pclntab *t, uint64_t svma)
{
	return module_word(t, svma, MODULE_TABLE) == t->svma &&
	       module_word(t, svma, MODULE_NAMES) == t->svma + t->names;
}

/* In a segment that is not relocated. */
static uint64_t module_in(const struct sp_pclntab *t, const struct sp_segment *s)
{
	size_t left = 0;
	const uint8_t *p = sp_elf_at_svma(t->elf, s->svma, &left);
	struct sp_cursor c = sp_elf_cursor(t->elf, p, p ? left : 0);
	sp_cur_skip(&c, -s->svma % t->word_bytes);
	while (!c.bad && sp_cur_left(&c) >= t->word_bytes) {
		uint64_t at = s->svma + (uint64_t)(c.p - p);
		struct sp_cursor next = c;
		if (sp_cur_uint(&c, t->word_bytes) == t->svma) {
			sp_cur_skip(&next, t->word_bytes);
			if (sp_cur_uint(&next, t->word_bytes) == t->svma + t->names)
				return at;
		}
	}
	return 0;
}

/* Before Go 1.26 it is somewhere among the data. 0: not found. */
static uint64_t search_module(const struct sp_pclntab *t)
{
	enum { TRIES = 8 }; /* few pointers to the table there are */
	unsigned tries = 0;
	struct sp_cursor all;
	for (size_t i = 0; i < t->elf->n_segments; i++) {
		const struct sp_segment *s = &t->elf->segments[i];
		uint64_t at = s->type == PT_LOAD && s->flags & PF_W ? module_in(t, s) : 0;
		if (at)
			return at;
	}
	size_t n = relas(t->elf, &all);
	for (size_t i = 0; i < n && tries < TRIES; i++) {
		Elf64_Rela r = rela_at(&all, i);
		if ((uint64_t)r.r_addend != t->svma || !is_relative(t->elf, &r))
			continue;
		tries++;
		if (is_module(t, r.r_offset))
			return r.r_offset;
	}
	return 0;
}

/* Since Go 1.26 it has a section. 0: not so. */
static uint64_t module_section(const struct sp_pclntab *t)
{
	const struct sp_section *s = sp_elf_section(t->elf, ".go.module");
	return s && is_module(t, s->svma) ? s->svma : 0;
}

/* --- the table --- */

static bool is_head(const struct sp_elf *e, const uint8_t *p, size_t size)
{
	struct sp_cursor c = sp_elf_cursor(e, p, size);
	uint32_t magic = sp_cur_u32(&c);
	return (magic == MAGIC_118 || magic == MAGIC_120) && size >= 8 && !p[4] && !p[5] &&
	       (p[6] == 1 || p[6] == 2 || p[6] == 4) && p[7] == (e->is64 ? 8 : 4) &&
	       size >= 8 + HEAD_WORDS * (size_t)p[7];
}

/* Linkers align it to a word at least. */
#define ALIGN 4u
#define TEXT_START 2u /* the word of its head that may be relocated */

/* Where other linkers than Go's joined it with the rest of .data.rel.ro: at the end, and its only
 * relocation is that of its head. */
static const uint8_t *relocated_table(const struct sp_elf *e, size_t *size, uint64_t *svma)
{
	enum { BACK_MAX = 4096, HEAD = 8 + 8 * TEXT_START };
	const struct sp_segment *relro = sp_elf_segment(e, PT_GNU_RELRO);
	struct sp_cursor all;
	size_t n = relro ? relas(e, &all) : 0, back = 0;
	uint64_t above = UINT64_MAX;
	for (size_t i = n ? relas_below(&all, n, relro->svma + relro->memsz) : 0;
	     i-- && back < BACK_MAX; back++) {
		uint64_t at = rela_at(&all, i).r_offset, head = at - HEAD;
		bool alone = above - at > HEAD;
		above = at;
		const uint8_t *p =
			alone && head % ALIGN == 0 ? sp_elf_at_svma(e, head, size) : NULL;
		if (p && is_head(e, p, *size)) {
			*svma = head;
			return p;
		}
	}
	return NULL;
}

/* Where it has no section of its own, anywhere. */
static const uint8_t *search_table(const struct sp_elf *e, size_t *size, uint64_t *svma)
{
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		size_t left = 0;
		const uint8_t *p = s->type == PT_LOAD && !(s->flags & PF_X)
					   ? sp_elf_at_svma(e, s->svma, &left)
					   : NULL;
		for (size_t at = -s->svma % ALIGN; p && at < left; at += ALIGN) {
			/* Two bytes of the magic number, in either order. */
			if (left - at >= 8 && p[at + 1] == 0xff && p[at + 2] == 0xff &&
			    is_head(e, p + at, left - at)) {
				*size = left - at;
				*svma = s->svma + at;
				return p + at;
			}
		}
	}
	return NULL;
}

/* By its build-id, which segments tell, too. */
static bool is_go(const struct sp_elf *e)
{
	enum { GO_BUILD_ID = 4 };
	size_t len;
	return sp_elf_section(e, ".go.buildinfo") ||
	       sp_elf_note(e, "Go\0", GO_BUILD_ID, SIZE_MAX, &len);
}

static const uint8_t *table_in(const struct sp_elf *e, const struct sp_section *s, size_t *size,
			       uint64_t *svma)
{
	size_t left = 0;
	const uint8_t *p = s->type == SHT_NOBITS ? NULL : sp_elf_at_svma(e, s->svma, &left);
	*size = left < s->size ? left : (size_t)s->size;
	*svma = s->svma;
	return p && is_head(e, p, *size) ? p : NULL;
}

/* Programs that may lie anywhere had it among their relocated data until Go 1.25. */
static const uint8_t *find_table(const struct sp_elf *e, size_t *size, uint64_t *svma)
{
	const struct sp_section *s = sp_elf_section(e, ".gopclntab");
	if (!s)
		s = sp_elf_section(e, ".data.rel.ro.gopclntab");
	if (s)
		return table_in(e, s, size, svma);
	if (!is_go(e))
		return NULL;
	const uint8_t *p = relocated_table(e, size, svma);
	return p ? p : search_table(e, size, svma);
}

static size_t ftab_off(const struct sp_pclntab *t, uint32_t i)
{
	return t->funcs + (size_t)i * FTAB_ENTRY;
}

/* Whether functions counted from there lie in code. */
static bool is_text(const struct sp_pclntab *t, uint64_t svma)
{
	uint32_t end;
	if (!svma || !u32_at(t, ftab_off(t, t->n_funcs), &end))
		return false;
	for (size_t i = 0; i < t->elf->n_segments; i++) {
		const struct sp_segment *s = &t->elf->segments[i];
		if (s->type == PT_LOAD && s->flags & PF_X && svma >= s->svma &&
		    svma - s->svma <= s->memsz && end <= s->memsz - (svma - s->svma))
			return true;
	}
	return false;
}

/* --- functions --- */

/* Behind a function's record of that size its lists and parts are numbered. */
static size_t func_bytes(const struct sp_pclntab *t)
{
	return t->has_start_line ? FUNC_120 : FUNC_118;
}

bool sp_pclntab_func(const struct sp_pclntab *t, uint32_t i, struct sp_go_func *out)
{
	uint32_t entry, next, off;
	if (i >= t->n_funcs || !u32_at(t, ftab_off(t, i), &entry) ||
	    !u32_at(t, ftab_off(t, i) + 4, &off) || !u32_at(t, ftab_off(t, i + 1), &next) ||
	    next < entry)
		return false;
	size_t size = func_bytes(t), left = t->size - t->funcs;
	if (off > left || left - off < size)
		return false;
	struct sp_go_func f = {
		.begin = t->text_svma + entry, .end = t->text_svma + next, .off = t->funcs + off};
	struct sp_cursor c = sp_elf_cursor(t->elf, t->data + f.off, size);
	if (sp_cur_u32(&c) != entry)
		return false;
	f.name = sp_cur_u32(&c);
	sp_cur_skip(&c, 8); /* bytes of arguments, deferreturn */
	f.pcsp = sp_cur_u32(&c);
	f.pcfile = sp_cur_u32(&c);
	f.pcln = sp_cur_u32(&c);
	f.n_pcdata = sp_cur_u32(&c);
	f.unit = sp_cur_u32(&c);
	sp_cur_skip(&c, t->has_start_line ? 5 : 1); /* its line; a number of the runtime's own */
	f.flags = sp_cur_u8(&c);
	sp_cur_skip(&c, 1);
	f.n_funcdata = sp_cur_u8(&c);
	*out = f;
	return !c.bad;
}

uint32_t sp_pclntab_count(const struct sp_pclntab *t, uint64_t svma)
{
	uint64_t off = svma - t->text_svma;
	uint32_t low = 0, high = svma < t->text_svma ? 0 : t->n_funcs, entry;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (u32_at(t, ftab_off(t, mid), &entry) && entry <= off)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

bool sp_pclntab_find(const struct sp_pclntab *t, uint64_t svma, struct sp_go_func *out)
{
	uint32_t n = sp_pclntab_count(t, svma);
	return n && sp_pclntab_func(t, n - 1, out) && svma >= out->begin && svma < out->end;
}

static const char *string_at(const struct sp_pclntab *t, size_t part, uint32_t off)
{
	size_t left = t->size - part;
	if (off >= left)
		return NULL;
	const char *s = (const char *)t->data + part + off;
	left -= off;
	return memchr(s, 0, left < NAME_MAX_BYTES ? left : NAME_MAX_BYTES) ? s : NULL;
}

const char *sp_pclntab_name(const struct sp_pclntab *t, uint32_t name)
{
	const char *s = string_at(t, t->names, name);
	return s && *s ? s : NULL;
}

void sp_pclntab_values(const struct sp_pclntab *t, const struct sp_go_func *f, uint32_t list,
		       struct sp_go_values *out)
{
	size_t left = t->size - t->values;
	left = list && list < left ? left - list : 0;
	*out = (struct sp_go_values){
		.list = sp_elf_cursor(t->elf, left ? t->data + t->values + list : NULL,
				      left < LIST_MAX ? left : LIST_MAX),
		.begin = f->begin,
		.to = f->begin,
		.end = f->end,
		.value = UINT32_MAX,
		.quantum = t->quantum,
	};
}

/* Pairs of deltas: of the value, and of the address up to which it holds. */
bool sp_pclntab_next(struct sp_go_values *v, struct sp_go_value *out)
{
	uint64_t from = v->to;
	uint32_t delta = (uint32_t)sp_cur_uleb(&v->list);
	if (!delta && from > v->begin)
		return false;
	v->value += delta >> 1 ^ -(delta & 1);
	v->to += sp_cur_uleb(&v->list) % (UINT32_MAX + UINT64_C(1)) * v->quantum;
	if (v->list.bad || v->to <= from || v->to > v->end) {
		v->list.bad = true;
		return false;
	}
	*out = (struct sp_go_value){(int32_t)v->value, from, v->to};
	return true;
}

bool sp_pclntab_value(const struct sp_pclntab *t, const struct sp_go_func *f, uint32_t list,
		      uint64_t svma, struct sp_go_value *out)
{
	struct sp_go_values all;
	struct sp_go_value v;
	if (svma < f->begin)
		return false;
	sp_pclntab_values(t, f, list, &all);
	do {
		if (!sp_pclntab_next(&all, &v))
			return false;
	} while (v.end <= svma);
	*out = v;
	return true;
}

/* --- opening --- */

/* What Go's own linker made has nothing before runtime.text in .text, and begins in Go's code. It
 * is told apart for speed: its relocations are in no order. */
static bool is_go_linked(struct sp_pclntab *t)
{
	const struct sp_section *s = sp_elf_section(t->elf, ".text");
	struct sp_go_func f;
	t->text_svma = s ? s->svma : 0;
	if (!is_text(t, t->text_svma) || !sp_pclntab_find(t, t->elf->entry_svma, &f) ||
	    f.begin != t->elf->entry_svma)
		return false;
	const char *name = sp_pclntab_name(t, f.name);
	return name && !strncmp(name, "_rt0_", 5);
}

/* The table says it itself until Go 1.25; of a program that may lie anywhere, a relocation. */
static bool find_text(struct sp_pclntab *t)
{
	uint64_t said = head_word(t, TEXT_START), module = module_section(t);
	if (is_text(t, t->text_svma = said) || is_go_linked(t))
		return true;
	if (!module) {
		said = relocated(t->elf, t->svma + 8 + TEXT_START * (uint64_t)t->word_bytes);
		if (is_text(t, t->text_svma = said))
			return true;
		module = search_module(t);
	}
	t->text_svma = module ? module_word(t, module, MODULE_TEXT) : 0;
	return is_text(t, t->text_svma);
}

bool sp_pclntab_open(struct sp_pclntab *t, const struct sp_elf *e)
{
	struct sp_pclntab p = {.elf = e};
	p.data = find_table(e, &p.size, &p.svma);
	if (!p.data)
		return false;
	struct sp_cursor c = sp_elf_cursor(e, p.data, p.size);
	p.has_start_line = sp_cur_u32(&c) == MAGIC_120;
	p.quantum = p.data[6];
	p.word_bytes = p.data[7];
	size_t *const parts[] = {&p.names, &p.units, &p.files, &p.values, &p.funcs};
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
		uint64_t off = head_word(&p, 3 + i);
		if (off >= p.size)
			return false;
		*parts[i] = (size_t)off;
	}
	uint64_t n = head_word(&p, 0);
	if (!n || n >= (p.size - p.funcs) / FTAB_ENTRY)
		return false;
	p.n_funcs = (uint32_t)n;
	if (!find_text(&p))
		return false;
	*t = p;
	return true;
}

/* --- lines and inlined calls --- */

static void set_line(const struct sp_pclntab *t, const struct sp_go_func *f, uint64_t svma,
		     struct sp_go_level *l)
{
	struct sp_go_value file, line;
	uint32_t off;
	if (f->unit == NOTHING || !sp_pclntab_value(t, f, f->pcfile, svma, &file) ||
	    file.value < 0 || !sp_pclntab_value(t, f, f->pcln, svma, &line) || line.value < 0 ||
	    !u32_at(t, t->units + 4 * ((size_t)f->unit + (uint32_t)file.value), &off) ||
	    off == NOTHING || !(l->file = string_at(t, t->files, off)))
		return;
	l->line = (uint32_t)line.value;
}

void sp_pclntab_find_inlined(struct sp_pclntab *t)
{
	uint64_t module = module_section(t);
	if (!module)
		module = search_module(t);
	uint64_t svma = module ? module_word(t, module,
					     t->has_start_line ? MODULE_FUNC_120 : MODULE_FUNC_118)
			       : 0;
	t->inlined = svma ? sp_elf_at_svma(t->elf, svma, &t->inlined_size) : NULL;
}

/* The lists of f, and its parts of what all functions have; 0 and false: none. */
static uint32_t pcdata(const struct sp_pclntab *t, const struct sp_go_func *f, unsigned i)
{
	uint32_t list;
	size_t off = f->off + func_bytes(t) + 4 * (size_t)i;
	return i < f->n_pcdata && u32_at(t, off, &list) ? list : 0;
}

static bool funcdata(const struct sp_pclntab *t, const struct sp_go_func *f, unsigned i,
		     uint32_t *out)
{
	size_t off = f->off + func_bytes(t) + 4 * ((size_t)f->n_pcdata + i);
	return i < f->n_funcdata && u32_at(t, off, out) && *out != NOTHING;
}

struct inlined {
	uint32_t name;
	uint32_t parent; /* an instruction that stands for the call, from f->begin */
};

static bool inlined_call(const struct sp_pclntab *t, uint32_t tree, int32_t index,
			 struct inlined *out)
{
	/* Until 1.19 with file and line of the call before the name. */
	size_t size = t->has_start_line ? 16 : 20, off = (size_t)tree + (uint32_t)index * size;
	if (index < 0 || !t->inlined || off > t->inlined_size || t->inlined_size - off < size)
		return false;
	struct sp_cursor c = sp_elf_cursor(t->elf, t->inlined + off, size);
	sp_cur_skip(&c, t->has_start_line ? 4 : 12);
	out->name = sp_cur_u32(&c);
	out->parent = sp_cur_u32(&c);
	return true;
}

unsigned sp_pclntab_levels(const struct sp_pclntab *t, const struct sp_go_func *f, uint64_t svma,
			   struct sp_go_level *out, unsigned max)
{
	enum { PCDATA_INLINED = 2, FUNCDATA_INLINED = 3 };
	uint32_t tree, list = pcdata(t, f, PCDATA_INLINED);
	bool has_tree = funcdata(t, f, FUNCDATA_INLINED, &tree);
	unsigned n = 0;
	for (;;) {
		struct sp_go_value index;
		struct inlined call;
		out[n] = (struct sp_go_level){.name = sp_pclntab_name(t, f->name)};
		set_line(t, f, svma, &out[n]);
		if (n + 1 == max || !has_tree || !sp_pclntab_value(t, f, list, svma, &index) ||
		    !inlined_call(t, tree, index.value, &call))
			break;
		const char *name = sp_pclntab_name(t, call.name);
		if (!name || call.parent >= f->end - f->begin)
			break;
		out[n++].name = name;
		svma = f->begin + call.parent;
	}
	return n + 1;
}
