#include "sym/symtab.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_BITS 29
#define INDEX_MASK ((1u << INDEX_BITS) - 1)

struct raw_symbol {
	uint32_t name;
	uint8_t info;
	uint16_t shndx;
	uint64_t value, size;
};

static void expect_nothing(struct sp_symtab *t)
{
	t->is_partial = false;
	sp_wanted_deinit(&t->wanted);
	free(t->gaps);
	t->gaps = NULL;
}

void sp_symtab_deinit(struct sp_symtab *t)
{
	sp_ranges_deinit(&t->sized);
	sp_ranges_deinit(&t->points);
	sp_ranges_deinit(&t->plt_sections);
	sp_ranges_deinit(&t->plt);
	free(t->plt_names);
	sp_strpool_deinit(&t->pool);
	expect_nothing(t);
	sp_fdes_deinit(&t->fdes);
	*t = (struct sp_symtab){0};
}

static inline struct raw_symbol raw_symbol(const struct sp_symtab_source *s, uint32_t index)
{
	const struct sp_elf *e = s->elf;
	struct raw_symbol r = {0};
	if (e->is64) {
		Elf64_Sym sym;
		memcpy(&sym, s->syms + (size_t)index * sizeof sym, sizeof sym);
		r = (struct raw_symbol){sym.st_name, sym.st_info, sym.st_shndx, sym.st_value,
					sym.st_size};
	} else {
		Elf32_Sym sym;
		memcpy(&sym, s->syms + (size_t)index * sizeof sym, sizeof sym);
		r = (struct raw_symbol){sym.st_name, sym.st_info, sym.st_shndx, sym.st_value,
					sym.st_size};
		if (e->swap) {
			r.value = __builtin_bswap32((uint32_t)r.value);
			r.size = __builtin_bswap32((uint32_t)r.size);
		}
	}
	if (e->swap) {
		r.name = __builtin_bswap32(r.name);
		r.shndx = __builtin_bswap16(r.shndx);
		if (e->is64) {
			r.value = __builtin_bswap64(r.value);
			r.size = __builtin_bswap64(r.size);
		}
	}
	return r;
}

/* By its type alone: half of the symbols of most files are something else. */
static inline bool may_be_code(const struct sp_symtab_source *s, uint32_t index)
{
	size_t info = s->elf->is64 ? index * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_info)
				   : index * sizeof(Elf32_Sym) + offsetof(Elf32_Sym, st_info);
	uint8_t type = s->syms[info] & 0xf;
	return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

static const char *string_at(const struct sp_symtab_source *s, uint32_t off)
{
	if (off >= s->strings_size || !memchr(s->strings + off, 0, s->strings_size - off))
		return NULL;
	return s->strings + off;
}

const char *sp_symtab_source_name(const struct sp_symtab_source *s, uint32_t index)
{
	return index < s->n ? string_at(s, raw_symbol(s, index).name) : NULL;
}

static const struct sp_section *code_section(const struct sp_elf *e, const struct raw_symbol *r)
{
	const uint64_t code = SHF_ALLOC | SHF_EXECINSTR;
	if (r->shndx < SHN_LORESERVE) {
		if (r->shndx == SHN_UNDEF || r->shndx >= e->n_sections)
			return NULL;
		const struct sp_section *s = &e->sections[r->shndx];
		/* The sections of an object file all begin at 0: one of them can be meant. */
		if (e->type == ET_REL && strcmp(s->name, ".text") != 0)
			return NULL;
		return (s->flags & code) == code ? s : NULL;
	}
	if (r->shndx != SHN_XINDEX)
		return NULL;
	for (size_t i = 0; i < e->n_sections; i++) {
		const struct sp_section *s = &e->sections[i];
		if ((s->flags & code) == code && r->value >= s->svma &&
		    r->value - s->svma < s->size)
			return s;
	}
	return NULL;
}

static bool add_sized(struct sp_symtab *t, uint64_t lo, uint64_t hi, uint32_t id)
{
	t->has_code = true;
	if (t->is_partial) {
		size_t i = sp_wanted_at(&t->wanted, lo);
		if (i == t->wanted.n)
			return true;
		if (t->wanted.v[i].first >= hi) {
			struct sp_symtab_gap *gap = &t->gaps[i];
			gap->last_lo = lo > gap->last_lo ? lo : gap->last_lo;
			gap->last_hi = hi > gap->last_hi ? hi : gap->last_hi;
			return true;
		}
	}
	return sp_ranges_add(&t->sized, lo, hi, id);
}

static bool add_symbol(struct sp_symtab *t, const struct sp_symtab_source *s, uint32_t index,
		       uint32_t id)
{
	struct raw_symbol r = raw_symbol(s, index);
	uint8_t type = r.info & 0xf;
	const struct sp_section *sec = code_section(s->elf, &r);
	if (!sec || !r.name || sec->size > UINT64_MAX - sec->svma)
		return true;
	if (s->elf->machine == EM_ARM && type != STT_NOTYPE)
		r.value &= ~UINT64_C(1); /* the mark of Thumb code */
	uint64_t end = sec->svma + sec->size;
	if (r.value < sec->svma || r.value >= end)
		return true;
	if (r.size) {
		bool fits = r.size < end - r.value;
		return add_sized(t, r.value, fits ? r.value + r.size : end, id);
	}
	if (type == STT_NOTYPE) { /* mapping symbols and assemblers' labels */
		const char *name = string_at(s, r.name);
		if (!name || name[0] == '$' || (name[0] == '.' && name[1] == 'L'))
			return true;
	}
	t->has_code = true;
	return sp_ranges_add(&t->points, r.value, end, id);
}

static void add_source(struct sp_symtab *t, const struct sp_elf *e, uint32_t type)
{
	const struct sp_section *sec = NULL;
	for (size_t i = 0; i < e->n_sections && !sec; i++)
		if (e->sections[i].type == type)
			sec = &e->sections[i];
	if (!sec || sec->link >= e->n_sections || t->n_sources == SP_SYMTAB_SOURCES)
		return;
	const uint8_t *syms, *strings;
	size_t size, strings_size;
	void *owned = NULL, *owned_strings = NULL;
	if ((sec->flags | e->sections[sec->link].flags) & SHF_COMPRESSED)
		return; /* the gABI lets nobody pack what a loader or a linker reads */
	if (sp_elf_section_data(e, sec, &syms, &size, &owned, NULL) < 0 ||
	    sp_elf_section_data(e, &e->sections[sec->link], &strings, &strings_size, &owned_strings,
				NULL) < 0) {
		free(owned);
		free(owned_strings);
		return; /* a cut file: it has no symbols */
	}
	struct sp_symtab_source *s = &t->sources[t->n_sources++];
	s->elf = e;
	s->section = sec;
	s->syms = syms;
	s->n = size / (e->is64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym));
	s->n = s->n < INDEX_MASK ? s->n : INDEX_MASK;
	s->strings = (const char *)strings;
	s->strings_size = strings_size;
}

void sp_symtab_add(struct sp_symtab *t, const struct sp_elf *e)
{
	add_source(t, e, SHT_DYNSYM);
	add_source(t, e, SHT_SYMTAB);
}

int sp_symtab_expect(struct sp_symtab *t, const uint64_t *svmas, size_t n, struct sp_err *err)
{
	expect_nothing(t);
	for (size_t i = 0; i < n; i++) /* and the next byte, for a trampoline */
		if (!sp_wanted_add(&t->wanted, svmas[i], svmas[i] + (svmas[i] < UINT64_MAX)))
			return sp_err_nomem(err);
	if (!sp_wanted_finish(&t->wanted))
		return sp_err_nomem(err);
	t->gaps = calloc(t->wanted.n + 1, sizeof *t->gaps);
	t->is_partial = t->gaps != NULL;
	return t->gaps ? 0 : sp_err_nomem(err);
}

/* A point ends where anything else begins, and with the sized symbol that it lies in. */
static void bound_points(struct sp_symtab *t)
{
	for (size_t i = 0; i < t->points.n; i++) {
		struct sp_range *p = &t->points.v[i];
		size_t next = i + 1;
		while (next < t->points.n && t->points.v[next].lo == p->lo)
			next++;
		if (next < t->points.n && t->points.v[next].lo < p->hi)
			p->hi = t->points.v[next].lo;
		size_t above = sp_ranges_upper(&t->sized, p->lo);
		if (above < t->sized.n && t->sized.v[above].lo < p->hi)
			p->hi = t->sized.v[above].lo;
		struct sp_ranges_at in = sp_ranges_at(&t->sized, p->lo);
		const struct sp_range *outer = sp_ranges_next(&in);
		if (outer && outer->hi < p->hi)
			p->hi = outer->hi;
		for (size_t k = i + 1; k < next; k++)
			t->points.v[k].hi = p->hi;
		i = next - 1;
	}
}

/* From what lies in each gap to what lies in it or in one before. */
static void sum_gaps(struct sp_symtab *t)
{
	for (size_t i = 1; i < t->wanted.n; i++) {
		const struct sp_symtab_gap *before = &t->gaps[i - 1];
		struct sp_symtab_gap *gap = &t->gaps[i];
		gap->last_lo = gap->last_lo > before->last_lo ? gap->last_lo : before->last_lo;
		gap->last_hi = gap->last_hi > before->last_hi ? gap->last_hi : before->last_hi;
	}
}

/* Reads the sources' symbols: of those with a size, while the table is partial, what meets a wanted
 * interval. */
static bool collect(struct sp_symtab *t)
{
	t->sized.n = t->points.n = 0;
	for (uint32_t k = 0; k < t->n_sources; k++) {
		const struct sp_symtab_source *s = &t->sources[k];
		/* Half of the symbols of most files are code. */
		if (!t->is_partial && !sp_ranges_reserve(&t->sized, s->n / 2))
			return false;
		for (uint32_t i = 1; i < s->n; i++)
			if (may_be_code(s, i) && !add_symbol(t, s, i, k << INDEX_BITS | i))
				return false;
	}
	if (t->is_partial)
		sum_gaps(t);
	if (!sp_ranges_sort(&t->sized) || !sp_ranges_sort(&t->points))
		return false;
	bound_points(t);
	return sp_ranges_sort(&t->points); /* again, for the ends */
}

static bool collect_all(struct sp_symtab *t)
{
	expect_nothing(t);
	return collect(t);
}

int sp_symtab_finish(struct sp_symtab *t, const struct sp_elf *code, struct sp_err *err)
{
	t->code = code;
	return collect(t) ? sp_symtab_find_plt(t, err) : sp_err_nomem(err);
}

bool sp_symtab_is_empty(const struct sp_symtab *t)
{
	return !t->has_code;
}

struct candidate {
	const char *name;
	size_t len; /* without the version */
	int order;  /* of its binding: 0 global, 1 weak, 2 local */
	size_t underscores;
};

static bool is_better(const struct candidate *a, const struct candidate *b)
{
	bool a_local = a->order == 2, b_local = b->order == 2;
	if (a_local != b_local)
		return b_local;
	if (a->underscores != b->underscores)
		return a->underscores < b->underscores;
	if (a->order != b->order)
		return a->order < b->order;
	if (a->len != b->len)
		return a->len < b->len;
	return memcmp(a->name, b->name, a->len) < 0;
}

static bool read_candidate(const struct sp_symtab *t, uint32_t id, struct candidate *c)
{
	const struct sp_symtab_source *s = &t->sources[id >> INDEX_BITS];
	struct raw_symbol r = raw_symbol(s, id & INDEX_MASK);
	c->name = string_at(s, r.name);
	if (!c->name || !*c->name)
		return false;
	const char *version = strchr(c->name + 1, '@');
	c->len = version ? (size_t)(version - c->name) : strlen(c->name);
	uint8_t bind = r.info >> 4;
	c->order = bind == STB_GLOBAL || bind == STB_GNU_UNIQUE ? 0 : bind == STB_WEAK ? 1 : 2;
	c->underscores = strspn(c->name, "_");
	return true;
}

/* "___pthread_mutex_lock", "__GI___libc_malloc", "__libc_write": what is behind the marks that
 * glibc puts before names for its own calls (include/libc-symbols.h there). */
static const char *stem(const char *name)
{
	if (!strncmp(name, "__GI_", 5))
		name += 5;
	if (!strncmp(name, "__libc_", 7))
		name += 7;
	return name + strspn(name, "_");
}

static bool same_stem(const struct candidate *c, const char *prefer)
{
	const char *a = stem(c->name), *b = stem(prefer);
	size_t n = c->len - (size_t)(a - c->name);
	return *b && !strncmp(a, b, n) && !b[n];
}

/* The best name among the ranges that start where `first` does and hold the address; those that
 * differ from `prefer` in such marks only come before all others. */
static bool choose(struct sp_symtab *t, struct sp_ranges_at *i, const struct sp_range *first,
		   const char *prefer, struct sp_symbol *out)
{
	struct candidate best = {0}, c;
	bool best_same = false;
	for (const struct sp_range *r = first; r && r->lo == first->lo; r = sp_ranges_next(i)) {
		if (!read_candidate(t, r->id, &c))
			continue;
		bool same = prefer && same_stem(&c, prefer);
		if (!best.name || (same != best_same ? same : is_better(&c, &best))) {
			best = c;
			best_same = same;
		}
	}
	if (!best.name)
		return false;
	out->name = best.name[best.len] ? sp_strpool_add(&t->pool, best.name, best.len) : best.name;
	out->start = first->lo;
	out->is_plt = false;
	return out->name != NULL;
}

static bool read_fdes(struct sp_symtab *t)
{
	if (t->fdes_read || !t->code)
		return true;
	t->fdes_read = true;
	return sp_fdes_read(&t->fdes, t->code);
}

/* The first of the points that hold the address, which is wanted; *i goes on behind it. */
static const struct sp_range *point_at(struct sp_symtab *t, uint64_t svma, struct sp_ranges_at *i)
{
	*i = sp_ranges_at(&t->points, svma);
	const struct sp_range *r = sp_ranges_next(i);
	if (!r || !t->is_partial)
		return r;
	const struct sp_symtab_gap *gap = &t->gaps[sp_wanted_at(&t->wanted, svma)];
	if (gap->last_lo > r->lo) /* something that was left out begins behind the point */
		return NULL;
	if (gap->last_hi <= r->lo)
		return r;
	if (!collect_all(t)) /* it may lie in the point's own surroundings, and end there */
		return NULL;
	*i = sp_ranges_at(&t->points, svma);
	return sp_ranges_next(i);
}

bool sp_symtab_find(struct sp_symtab *t, uint64_t svma, const char *prefer, struct sp_symbol *out)
{
	if (t->is_partial && !sp_wanted_covers(&t->wanted, svma, svma) && !collect_all(t))
		return false;
	struct sp_ranges_at i = sp_ranges_at(&t->sized, svma);
	const struct sp_range *r = sp_ranges_next(&i);
	if (r && choose(t, &i, r, prefer, out))
		return true;
	i = sp_ranges_at(&t->plt_sections, svma);
	if (sp_ranges_next(&i) && !t->plt_read) {
		t->plt_read = true; /* first, because it asks for names itself */
		if (!sp_symtab_read_plt(t))
			return false;
	}
	i = sp_ranges_at(&t->plt, svma);
	r = sp_ranges_next(&i);
	if (r) {
		*out = (struct sp_symbol){t->plt_names[r->id], r->lo, true};
		return true;
	}
	r = point_at(t, svma, &i);
	return r && read_fdes(t) && !sp_fdes_separate(&t->fdes, r->lo, svma) &&
	       choose(t, &i, r, prefer, out);
}

bool sp_symtab_find_trampoline(struct sp_symtab *t, uint64_t svma, struct sp_symbol *out)
{
	struct sp_symbol next;
	if (!svma || svma == UINT64_MAX || !sp_symtab_find(t, svma + 1, NULL, &next) ||
	    next.start != svma + 1 || !read_fdes(t) ||
	    !sp_fdes_separate(&t->fdes, svma - 1, svma) ||
	    sp_fdes_separate(&t->fdes, svma, svma + 1))
		return false;
	*out = (struct sp_symbol){.name = next.name, .start = svma};
	return true;
}
