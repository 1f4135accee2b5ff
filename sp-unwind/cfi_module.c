#include "cfi_module.h"

#include <stdlib.h>

static atomic_uint next_id = 1;

static uint64_t section_svma(const struct sp_elf *e, const char *name)
{
	const struct sp_section *s = sp_elf_section(e, name);
	return s ? s->svma : 0;
}

static void section_init(struct cfi_section *s, const struct sp_elf *e, bool eh)
{
	*s = (struct cfi_section){
		.addr_bytes = e->is64 ? 8 : 4,
		.swap = e->swap,
		.eh = eh,
		.text_svma = section_svma(e, ".text"),
		.data_svma = section_svma(e, ".got"),
	};
}

/* What is loaded, and what of it is code. */
static int segments_init(struct uw_module *m, struct sp_err *err)
{
	const struct sp_elf *e = m->elf;
	struct cfi_code_range *v = e->n_segments ? calloc(e->n_segments, sizeof *v) : NULL;
	if (e->n_segments && !v)
		return sp_err_nomem(err);
	m->code.v = v;
	m->base_svma = UINT64_MAX;
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type != PT_LOAD || s->svma + s->memsz < s->svma)
			continue;
		if (s->svma < m->base_svma)
			m->base_svma = s->svma;
		if (s->svma + s->memsz > m->svma_end)
			m->svma_end = s->svma + s->memsz;
		/* Empty ones: a file from which everything but its CFI was removed. */
		if (s->flags & PF_X && s->memsz)
			v[m->code.n++] = (struct cfi_code_range){s->svma, s->svma + s->memsz};
	}
	if (m->base_svma > m->svma_end)
		m->base_svma = m->svma_end = 0;
	if (m->code.n > 64) /* no linker's work: every FDE would be held against all of them */
		m->code.n = 0;
	/* At 0 an image has its ELF header, and .debug_frame its dropped functions. */
	m->code.first = m->eh_code.first = m->base_svma ? 0 : sizeof(Elf32_Ehdr);
	return 0;
}

/* Whether an entry of the table leads to the FDE that it promises. */
static bool table_proves(const struct cfi_table *t, const struct cfi_section *s)
{
	struct cfi_table_entry e;
	struct cfi_fde fde;
	return t->n && cfi_table_find(t, UINT64_MAX, 0, &e) && e.fde_svma - s->svma < s->size &&
	       cfi_fde_parse(s, (size_t)(e.fde_svma - s->svma), &fde) && fde.begin == e.begin;
}

/* The header's table, and .eh_frame where it points: to the end of the segment, unless there is a
 * section there. */
static void table_init(struct uw_module *m, const uint8_t *hdr, size_t size, uint64_t hdr_svma)
{
	struct cfi_section *s = &m->eh, other = *s;
	struct cfi_table *t = &m->table;
	cfi_table_init(t, s, hdr, size, hdr_svma);
	if (s->data && t->eh_frame_svma == s->svma)
		return;
	if (t->eh_frame_svma) {
		other.data = sp_elf_at_svma(m->elf, t->eh_frame_svma, &other.size);
		other.svma = t->eh_frame_svma;
		other.bounded = false;
		/* Of a section header and a program header that contradict each other, the one that
		 * is what a running program goes by, if it holds. */
		if (other.data && (!s->data || table_proves(t, &other))) {
			*s = other;
			return;
		}
	}
	t->n = 0;
}

/* .eh_frame by its section header, else where .eh_frame_hdr points, to the end of the segment. */
static void eh_init(struct uw_module *m)
{
	const struct sp_elf *e = m->elf;
	struct cfi_section *s = &m->eh;
	section_init(s, e, true);
	const struct sp_section *named = sp_elf_section(e, ".eh_frame");
	if (named) {
		if (sp_elf_section_data(e, named, &s->data, &s->size, &m->eh_owned, NULL) < 0 ||
		    !s->size) {
			s->data = NULL;
			s->size = 0;
			if (named->type == SHT_NOBITS)
				return; /* a separate debug file: its segments are empty shells */
		}
		s->svma = named->svma;
		s->bounded = true;
	}
	const struct sp_segment *seg = sp_elf_segment(e, PT_GNU_EH_FRAME);
	const uint8_t *hdr = NULL;
	size_t left = 0;
	uint64_t hdr_svma = 0;
	if (seg) {
		hdr_svma = seg->svma;
		hdr = sp_elf_at_svma(e, hdr_svma, &left);
		if (hdr && left > seg->memsz && seg->memsz)
			left = (size_t)seg->memsz;
	}
	const struct sp_section *hdr_named = sp_elf_section(e, ".eh_frame_hdr");
	if (!hdr && hdr_named && hdr_named->type != SHT_NOBITS) {
		void *owned = NULL;
		if (sp_elf_section_data(e, hdr_named, &hdr, &left, &owned, NULL) < 0 || owned) {
			free(owned);
			hdr = NULL;
		}
		hdr_svma = hdr_named->svma;
	}
	if (hdr)
		table_init(m, hdr, left, hdr_svma);
}

/* A few CIEs serve nearly all FDEs, and linkers put them before their first use. */
static void cies_init(struct uw_module *m)
{
	unsigned n = 0;
	size_t off = 0;
	for (int i = 0; i < 64 && n < sizeof m->cies / sizeof *m->cies; i++) {
		struct cfi_entry e = cfi_entry_at(&m->eh, off);
		if (e.kind == CFI_END)
			break;
		struct cfi_cie *cie = &m->cies[n];
		if (e.kind == CFI_CIE && cfi_cie_parse(&m->eh, off, cie)) {
			if (cfi_cie_row(&m->eh, cie, m->arch->fp, &m->cie_rows[n]))
				cie->small_row = &m->cie_rows[n];
			n++;
		}
		off = e.next;
	}
	m->eh.known = m->cies;
	m->eh.n_known = n;
}

/* The parts that are made on demand are the only ones that change behind a const module. */
static struct uw_module *lazily(const struct uw_module *m)
{
	return (struct uw_module *)(uintptr_t)m;
}

int uw_module_new_later(struct uw_module **out, struct sp_elf *elf, uw_find_debug *find_debug,
			const void *ctx, struct sp_err *err)
{
	struct uw_module *m = calloc(1, sizeof *m);
	if (!m)
		return sp_err_nomem(err);
	m->elf = elf;
	if (segments_init(m, err) < 0) {
		free(m);
		return SP_ERR_NOMEM;
	}
	m->id = atomic_fetch_add(&next_id, 1) & UINT32_C(0x3fffffff); /* rule cache keys */
	m->salt = m->id * UINT32_C(0x9e3779b1) >> 8;
	m->arch = uw_arch_find(elf->machine);
	m->find_debug = find_debug;
	m->find_debug_ctx = ctx;
	pthread_mutex_init(&m->lock, NULL);
	*out = m;
	return 0;
}

int uw_module_new(struct uw_module **out, struct sp_elf *elf, struct sp_elf *debug,
		  struct sp_err *err)
{
	int rc = uw_module_new_later(out, elf, NULL, NULL, err);
	if (rc < 0)
		return rc;
	(*out)->debug = debug;
	uw_module_make_ready(*out);
	return 0;
}

/* Without memory for the section headers there are none. */
void uw_module_make_ready(const struct uw_module *cm)
{
	struct uw_module *m = lazily(cm);
	pthread_mutex_lock(&m->lock);
	if (!atomic_load(&m->is_ready)) {
		if (m->elf->sections_unread)
			(void)sp_elf_read_sections(m->elf, NULL);
		if (m->find_debug)
			m->debug = m->find_debug(m->elf, m->find_debug_ctx);
		m->crt[0] = sp_elf_section(m->elf, ".init");
		m->crt[1] = sp_elf_section(m->elf, ".fini");
		/* Nothing of an object file has its final address. */
		if (m->elf->type != ET_REL) {
			eh_init(m);
			cies_init(m);
		}
		atomic_store_explicit(&m->is_ready, true, memory_order_release);
	}
	pthread_mutex_unlock(&m->lock);
}

static void elf_free(struct sp_elf *e)
{
	if (e) {
		sp_elf_close(e);
		free(e);
	}
}

void uw_module_free(struct uw_module *m)
{
	if (!m)
		return;
	struct cfi_index *x = atomic_load(&m->eh_index);
	if (x) {
		cfi_index_deinit(x);
		free(x);
	}
	struct cfi_debug *d = atomic_load(&m->debug_frames);
	for (int i = 0; d && i < CFI_DEBUGS; i++) {
		cfi_index_deinit(&d[i].index);
		free(d[i].owned);
	}
	free(d);
	free(atomic_load(&m->pclntab));
	for (unsigned i = 0; i < CFI_MARKED_BUCKETS; i++) {
		for (struct cfi_marked *v = atomic_load(&m->marked[i]), *next; v; v = next) {
			next = v->next;
			cfi_marks_deinit(&v->marks);
			free(v);
		}
	}
	free(atomic_load(&m->places));
	free(m->eh_owned);
	free((void *)(uintptr_t)m->code.v);
	pthread_mutex_destroy(&m->lock);
	elf_free(m->debug);
	elf_free(m->elf);
	free(m);
}

const struct sp_elf *uw_module_elf(const struct uw_module *m)
{
	return m->elf;
}

uint32_t uw_module_id(const struct uw_module *m)
{
	return m->id;
}

static void debug_frame_init(struct cfi_debug *d, const struct uw_module *m, const struct sp_elf *e)
{
	section_init(&d->section, e, false);
	const struct sp_section *s = sp_elf_section(e, ".debug_frame");
	if (!s)
		s = sp_elf_section(e, ".zdebug_frame");
	if (!s || e->type == ET_REL ||
	    sp_elf_section_data(e, s, &d->section.data, &d->section.size, &d->owned, NULL) < 0 ||
	    !d->section.size) {
		d->section.data = NULL;
		return;
	}
	d->section.bounded = true;
	(void)cfi_index_build(&d->index, &d->section, &m->code, NULL);
}

const struct cfi_debug *uw_module_debug(const struct uw_module *cm)
{
	struct uw_module *m = lazily(cm);
	uw_module_ready(m);
	struct cfi_debug *d = atomic_load_explicit(&m->debug_frames, memory_order_acquire);
	if (d)
		return d;
	pthread_mutex_lock(&m->lock);
	d = atomic_load(&m->debug_frames);
	if (!d && (d = calloc(CFI_DEBUGS, sizeof *d))) {
		debug_frame_init(&d[0], m, m->elf);
		if (m->debug)
			debug_frame_init(&d[1], m, m->debug);
		atomic_store_explicit(&m->debug_frames, d, memory_order_release);
	}
	pthread_mutex_unlock(&m->lock);
	return d;
}

const struct sp_pclntab *uw_module_pclntab(const struct uw_module *cm)
{
	struct uw_module *m = lazily(cm);
	struct sp_pclntab t;
	uw_module_ready(m);
	if (!atomic_load_explicit(&m->pclntab_sought, memory_order_acquire)) {
		pthread_mutex_lock(&m->lock);
		struct sp_pclntab *made = NULL;
		if (!atomic_load(&m->pclntab_sought) && sp_pclntab_open(&t, m->elf) &&
		    (made = malloc(sizeof *made))) {
			*made = t;
			atomic_store(&m->pclntab, made);
		}
		atomic_store_explicit(&m->pclntab_sought, true, memory_order_release);
		pthread_mutex_unlock(&m->lock);
	}
	return atomic_load_explicit(&m->pclntab, memory_order_acquire);
}

/* Own index in place of the table. doubt_only: only if the table proves to be incomplete. */
static const struct cfi_index *distrust(struct uw_module *m, bool doubt_only)
{
	pthread_mutex_lock(&m->lock);
	struct cfi_index *x = atomic_load(&m->eh_index);
	if (!x && doubt_only && m->table.n) {
		if (atomic_load(&m->table_checked) ||
		    cfi_table_whole(&m->table, &m->eh, &m->eh_code)) {
			atomic_store(&m->table_checked, true);
			pthread_mutex_unlock(&m->lock);
			return NULL;
		}
	}
	if (!x && (x = calloc(1, sizeof *x))) {
		(void)cfi_index_build(x, &m->eh, &m->eh_code, NULL);
		atomic_store_explicit(&m->eh_index, x, memory_order_release);
	}
	pthread_mutex_unlock(&m->lock);
	return x;
}

static bool index_fde(const struct cfi_index *x, const struct cfi_section *s, uint64_t svma,
		      struct cfi_fde *fde)
{
	const struct cfi_range *r = x ? cfi_index_find(x, svma) : NULL;
	if (!r || !cfi_fde_parse(s, r->off, fde))
		return false;
	fde->alone = r->begin == fde->begin && r->end == fde->end;
	return true;
}

static _Atomic uint32_t *make_places(struct uw_module *m, size_t n)
{
	pthread_mutex_lock(&m->lock);
	_Atomic uint32_t *v = atomic_load(&m->places);
	if (!v && (v = calloc(n, sizeof *v)))
		atomic_store_explicit(&m->places, v, memory_order_release);
	pthread_mutex_unlock(&m->lock);
	return v;
}

/* Where in the table the page of an address begins, or 0. */
static size_t place_of(const struct uw_module *cm, uint64_t svma)
{
	struct uw_module *m = lazily(cm);
	uint64_t page = (svma - m->base_svma) >> CFI_PLACE_SHIFT;
	uint64_t n = ((m->svma_end - m->base_svma) >> CFI_PLACE_SHIFT) + 1;
	if (n > CFI_PLACES_MAX)
		n = CFI_PLACES_MAX;
	if (page >= n)
		return 0;
	_Atomic uint32_t *v = atomic_load_explicit(&m->places, memory_order_acquire);
	if (!v) {
		unsigned asked = atomic_load_explicit(&m->n_asked, memory_order_relaxed);
		atomic_store_explicit(&m->n_asked, asked + 1, memory_order_relaxed);
		v = asked < CFI_PLACES_FROM ? NULL : make_places(m, (size_t)n);
	}
	size_t place = v ? atomic_load_explicit(&v[page], memory_order_relaxed) : 0;
	if (v && !place) {
		place = cfi_table_place(&m->table, m->base_svma + (page << CFI_PLACE_SHIFT));
		if (place <= UINT32_MAX)
			atomic_store_explicit(&v[page], (uint32_t)place, memory_order_relaxed);
	}
	return place;
}

/* Whether two functions that follow each other in the table do so in .eh_frame, too, where at most
 * CIEs stand between them. Linkers put both in the order of their input: then there is none in
 * between that the table lacks, and no need to read all of a large file's entries. */
static bool are_neighbours(const struct cfi_section *s, size_t off, uint64_t next_fde_svma)
{
	struct cfi_entry e = cfi_entry_at(s, off);
	do
		e = cfi_entry_at(s, e.next);
	while (e.kind == CFI_CIE);
	return e.kind == CFI_FDE && e.off == next_fde_svma - s->svma;
}

enum uw_listed uw_module_look(const struct uw_module *m, uint64_t svma, struct cfi_fde *fde)
{
	const struct cfi_section *s = &m->eh;
	uw_module_ready(m);
	if (!s->data)
		return UW_NOT_LISTED;
	const struct cfi_index *x = atomic_load_explicit(&m->eh_index, memory_order_acquire);
	if (x || !m->table.n)
		return index_fde(x ? x : distrust(lazily(m), false), s, svma, fde);
	struct cfi_table_entry e;
	if (cfi_table_find(&m->table, svma, place_of(m, svma), &e)) {
		uint64_t off = e.fde_svma - s->svma;
		if (off >= s->size || !cfi_fde_parse(s, (size_t)off, fde) || fde->begin != e.begin)
			return index_fde(distrust(lazily(m), false), s, svma, fde);
		if (svma >= fde->begin && svma < fde->end) {
			fde->alone = fde->end <= e.next;
			return UW_LISTED;
		}
		if (fde->end <= svma && are_neighbours(s, (size_t)off, e.next_fde_svma))
			return UW_NOT_LISTED;
	}
	/* A gap, or a table that is unsorted or too short: looked into once a module. */
	return atomic_load_explicit(&m->table_checked, memory_order_acquire) ? UW_NOT_LISTED
									     : UW_IN_DOUBT;
}

static const struct cfi_marks *marks_in(const struct cfi_marked *v, const struct cfi_fde *fde)
{
	while (v && v->off != fde->off)
		v = v->next;
	return v ? &v->marks : NULL;
}

const struct cfi_marks *uw_module_marks(const struct uw_module *cm, const struct cfi_section *s,
					const struct cfi_fde *fde)
{
	struct uw_module *m = lazily(cm);
	_Atomic(struct cfi_marked *) *bucket = &m->marked[fde->off / 16 % CFI_MARKED_BUCKETS];
	if (s != &m->eh)
		return NULL;
	struct cfi_marked *first = atomic_load_explicit(bucket, memory_order_acquire);
	const struct cfi_marks *found = marks_in(first, fde);
	if (found)
		return found;
	if (pthread_mutex_trylock(&m->lock) != 0)
		return NULL; /* to go without costs less than to wait */
	first = atomic_load(bucket);
	found = marks_in(first, fde);
	struct cfi_marked *new =
		found || m->n_marked >= CFI_MARKED_MAX ? NULL : malloc(sizeof *new);
	if (new &&cfi_marks_make(fde, m->arch->fp, &new->marks)) {
		new->off = fde->off;
		new->next = first;
		m->n_marked += (unsigned)new->marks.n + 1;
		found = &new->marks;
		atomic_store_explicit(bucket, new, memory_order_release);
	} else {
		free(new);
	}
	pthread_mutex_unlock(&m->lock);
	return found;
}

bool uw_module_search(const struct uw_module *m, uint64_t svma, enum uw_listed listed,
		      const struct cfi_section **section, struct cfi_fde *fde)
{
	*section = &m->eh;
	if (listed == UW_LISTED || (listed == UW_IN_DOUBT &&
				    index_fde(distrust(lazily(m), true), &m->eh, svma, fde)))
		return true;
	const struct cfi_debug *d = uw_module_debug(m);
	for (int i = 0; d && i < CFI_DEBUGS; i++) {
		*section = &d[i].section;
		if (index_fde(&d[i].index, &d[i].section, svma, fde)) {
			fde->alone = false; /* .eh_frame may know of some of its range */
			return true;
		}
	}
	return false;
}

bool uw_module_find(const struct uw_module *m, uint64_t svma, const struct cfi_section **section,
		    struct cfi_fde *fde)
{
	return uw_module_search(m, svma, uw_module_look(m, svma, fde), section, fde);
}

/* ld.so's _start and _dl_start_user together have less (glibc 2.36: 80 bytes). */
#define ENTRY_MAX 128

bool uw_module_in_entry(const struct uw_module *m, uint64_t svma)
{
	uint64_t entry = m->elf->entry_svma;
	if (!entry || svma - entry >= ENTRY_MAX)
		return false;
	const struct cfi_section *s;
	struct cfi_fde fde;
	for (uint64_t a = entry; a <= svma; a++)
		if (uw_module_find(m, a, &s, &fde))
			return false; /* another function begins in between */
	return true;
}

const uint8_t *uw_module_code(const struct uw_module *m, uint64_t svma, uint64_t *begin,
			      size_t *size)
{
	const struct sp_elf *e = m->elf;
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type != PT_LOAD || s->flags & PF_W || svma - s->svma >= s->filesz)
			continue;
		*begin = s->svma;
		return sp_elf_at_svma(e, s->svma, size);
	}
	return NULL;
}

const uint8_t *uw_module_bytes(const struct uw_module *m, uint64_t svma, size_t n)
{
	const struct sp_elf *e = m->elf;
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		if (s->type != PT_LOAD || s->flags & PF_W || svma - s->svma >= s->filesz)
			continue;
		size_t left = 0;
		const uint8_t *p = sp_elf_at_svma(e, svma, &left);
		return p && left >= n ? p : NULL;
	}
	return NULL;
}
