#include "cfi_table.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/le.h"

static inline uint64_t word(const struct cfi_table *t, size_t i)
{
	const uint8_t *p = t->entries + i * t->word_bytes;
	if (t->word_bytes == 4) {
		uint32_t v;
		memcpy(&v, p, 4);
		if (t->swap)
			v = __builtin_bswap32(v);
		return t->base + (uint64_t)(int32_t)v;
	}
	uint64_t v;
	memcpy(&v, p, 8);
	return t->base + (t->swap ? __builtin_bswap64(v) : v);
}

/* Of its first page: each further one would have to come from the file's cache. */
#define PROBES 8
#define PROBED_BYTES 4096

void cfi_table_init(struct cfi_table *t, const struct cfi_section *s, const uint8_t *hdr,
		    size_t size, uint64_t hdr_svma)
{
	*t = (struct cfi_table){.swap = s->swap};
	struct sp_cursor c = sp_cursor(hdr, size);
	c.swap = s->swap;
	uint8_t version = sp_cur_u8(&c), ptr_enc = sp_cur_u8(&c), count_enc = sp_cur_u8(&c),
		table_enc = sp_cur_u8(&c);
	if (c.bad || version != 1)
		return;
	/* Within the header, datarel means: relative to the header. */
	struct cfi_section own = *s;
	own.data_svma = hdr_svma;
	uint64_t v;
	if (ptr_enc != CFI_PE_OMIT) {
		if (!cfi_pointer(&c, ptr_enc, &own, s->addr_bytes, hdr_svma + (uint64_t)(c.p - hdr),
				 0, &v))
			return;
		t->eh_frame_svma = v;
	}
	if (count_enc == CFI_PE_OMIT || table_enc == CFI_PE_OMIT ||
	    !cfi_pointer(&c, count_enc, &own, s->addr_bytes, hdr_svma + (uint64_t)(c.p - hdr), 0,
			 &v))
		return;
	switch (table_enc) {
	case CFI_PE_DATAREL | CFI_PE_SDATA4:
		t->word_bytes = 4;
		t->base = hdr_svma;
		break;
	case CFI_PE_DATAREL | CFI_PE_SDATA8:
		t->word_bytes = 8;
		t->base = hdr_svma;
		break;
	case CFI_PE_SDATA4:
		t->word_bytes = 4;
		break;
	case CFI_PE_UDATA8:
	case CFI_PE_SDATA8:
		t->word_bytes = 8;
		break;
	default:
		return;
	}
	if (v > sp_cur_left(&c) / (2u * t->word_bytes))
		return;
	t->entries = c.p;
	uint64_t last = 0;
	size_t probed = PROBED_BYTES / (2u * t->word_bytes);
	if (probed > v)
		probed = (size_t)v;
	for (size_t i = 0, step = probed / PROBES + 1; i < probed; i += step) {
		uint64_t begin = word(t, 2 * i);
		if (begin < last)
			return;
		last = begin;
	}
	t->n = (size_t)v;
}

/* Whether the entries are pairs of 32-bit words in our byte order: nearly every file's form. */
static bool is_plain(const struct cfi_table *t)
{
	return t->word_bytes == 4 && !t->swap;
}

/* How many of the entries up to high have an address <= pc, when those up to low have. Branches,
 * not conditional moves: the addresses of a profile repeat, so that prediction breaks the chain of
 * loads. */
static size_t search(const struct cfi_table *t, uint64_t pc, size_t low, size_t high)
{
	int64_t rel = (int64_t)(pc - t->base);
	if (is_plain(t) && rel == (int32_t)rel && (rel < 0) == (pc < t->base)) {
		while (low < high) {
			size_t mid = (low + high) / 2;
			if ((int32_t)sp_get32(t->entries + 8 * mid) <= (int32_t)rel)
				low = mid + 1;
			else
				high = mid;
		}
	}
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (word(t, 2 * mid) <= pc)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

size_t cfi_table_place(const struct cfi_table *t, uint64_t pc)
{
	return search(t, pc, 0, t->n);
}

#define SCAN 4u /* entries: half a cache line */

bool cfi_table_find(const struct cfi_table *t, uint64_t pc, size_t from,
		    struct cfi_table_entry *out)
{
	size_t low, n = 0;
	if (from && is_plain(t) && t->n - from >= SCAN) {
		/* All of these are compared, without a branch to be foretold. */
		int64_t rel = (int64_t)(pc - t->base);
		for (size_t i = 0; i < SCAN; i++)
			n += (int32_t)sp_get32(t->entries + 8 * (from + i)) <= rel;
		if (__builtin_expect(n < SCAN, 1)) {
			const uint8_t *p = t->entries + 8 * (from + n - 1);
			out->begin = t->base + (uint64_t)(int32_t)sp_get32(p);
			out->fde_svma = t->base + (uint64_t)(int32_t)sp_get32(p + 4);
			out->next = t->base + (uint64_t)(int32_t)sp_get32(p + 8);
			out->next_fde_svma = t->base + (uint64_t)(int32_t)sp_get32(p + 12);
			return true;
		}
	}
	low = search(t, pc, from + n, t->n);
	if (!low)
		return false;
	*out = (struct cfi_table_entry){
		.begin = word(t, 2 * (low - 1)),
		.fde_svma = word(t, 2 * (low - 1) + 1),
		.next = low < t->n ? word(t, 2 * low) : UINT64_MAX,
		.next_fde_svma = low < t->n ? word(t, 2 * low + 1) : 0,
	};
	return true;
}

bool cfi_table_sorted(const struct cfi_table *t)
{
	size_t bad = 0;
	/* Signed offsets from the base ascend as the addresses do, unless these wrap. */
	if (t->n && is_plain(t) && word(t, 0) <= word(t, 2 * t->n - 2)) {
		for (size_t i = 1; i < t->n; i++)
			bad += (int32_t)sp_get32(t->entries + 8 * i - 8) >
			       (int32_t)sp_get32(t->entries + 8 * i);
		return !bad;
	}
	for (size_t i = 1; i < t->n; i++)
		if (word(t, 2 * i - 2) > word(t, 2 * i))
			return false;
	return true;
}

static bool in_code(const struct cfi_code *code, const struct cfi_fde *fde)
{
	if (fde->begin >= fde->end || fde->begin < code->first)
		return false;
	for (size_t i = 0; i < code->n; i++)
		if (fde->begin >= code->v[i].begin && fde->begin < code->v[i].end)
			return true;
	return !code->n;
}

/* Of .eh_frame: no fewer than there are, entries that are no CIEs, unread. */
static size_t count_roughly(const struct cfi_section *s)
{
	size_t n = 0, off = 0;
	while (!s->swap && s->size - off >= 8) {
		uint32_t len = sp_get32(s->data + off);
		if (len < 4 || len > s->size - off - 4)
			break;
		n += sp_get32(s->data + off + 4) != 0;
		off += 4 + (size_t)len;
	}
	/* The rest, behind what is not so plain. */
	for (struct cfi_entry e = cfi_entry_at(s, off); e.kind != CFI_END;
	     e = cfi_entry_at(s, e.next))
		n += e.kind == CFI_FDE;
	return n;
}

size_t cfi_count_fdes(const struct cfi_section *s, const struct cfi_code *code)
{
	size_t n = 0;
	struct cfi_fde fde = {0};
	for (struct cfi_entry e = cfi_entry_at(s, 0); e.kind != CFI_END;
	     e = cfi_entry_at(s, e.next))
		n += cfi_fde_read(s, &e, &fde) && in_code(code, &fde);
	return n;
}

bool cfi_table_whole(const struct cfi_table *t, const struct cfi_section *s,
		     const struct cfi_code *code)
{
	return cfi_table_sorted(t) && (count_roughly(s) <= t->n || cfi_count_fdes(s, code) <= t->n);
}

void cfi_index_deinit(struct cfi_index *x)
{
	free(x->v);
	*x = (struct cfi_index){0};
}

static int by_begin(const void *pa, const void *pb)
{
	const struct cfi_range *a = pa, *b = pb;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->end != b->end) /* the longer one first: the shorter lies within it */
		return a->end > b->end ? -1 : 1;
	return a->off < b->off ? -1 : a->off > b->off;
}

static bool emit(struct cfi_index *x, size_t *cap, uint64_t begin, uint64_t end, size_t off)
{
	if (begin >= end)
		return true;
	struct cfi_range *r = SP_PUSH(&x->v, &x->n, cap);
	if (!r)
		return false;
	*r = (struct cfi_range){begin, end, off};
	return true;
}

/* Cut sorted ranges that overlap into disjoint ones. open: the ranges around the current place,
 * innermost last; it never holds more than all. */
static int flatten(struct cfi_index *x, const struct cfi_range *v, size_t n, struct sp_err *err)
{
	struct cfi_index out = {0};
	size_t cap = 0, open_cap = 0, n_open = 0;
	size_t *open = NULL;
	uint64_t at = 0;
	bool ok = true;
	for (size_t i = 0; i <= n && ok; i++) {
		uint64_t to = i < n ? v[i].begin : UINT64_MAX;
		while (n_open && ok) {
			const struct cfi_range *top = &v[open[n_open - 1]];
			if (top->end > to) {
				ok = emit(&out, &cap, at, to, top->off);
				break;
			}
			if (top->end > at) {
				ok = emit(&out, &cap, at, top->end, top->off);
				at = top->end;
			}
			n_open--;
		}
		at = to;
		if (i == n || !ok)
			break;
		if (i && v[i].begin == v[i - 1].begin && v[i].end == v[i - 1].end)
			continue; /* twice the same: the first in the section counts */
		size_t *o = SP_PUSH(&open, &n_open, &open_cap);
		ok = o != NULL;
		if (ok)
			*o = i;
	}
	free(open);
	if (!ok) {
		free(out.v);
		return sp_err_nomem(err);
	}
	*x = out;
	return 0;
}

int cfi_index_build(struct cfi_index *x, const struct cfi_section *s, const struct cfi_code *code,
		    struct sp_err *err)
{
	struct cfi_range *v = NULL;
	size_t n = 0, cap = 0;
	bool overlaps = false;
	struct cfi_fde fde = {0};
	for (struct cfi_entry e = cfi_entry_at(s, 0); e.kind != CFI_END;
	     e = cfi_entry_at(s, e.next)) {
		if (!cfi_fde_read(s, &e, &fde) || !in_code(code, &fde))
			continue;
		if (n == CFI_INDEX_MAX) {
			free(v);
			return sp_err_set(err, SP_ERR_LIMIT, 0,
					  "cannot index the CFI: more than %u FDEs",
					  (unsigned)CFI_INDEX_MAX);
		}
		struct cfi_range *r = SP_PUSH(&v, &n, &cap);
		if (!r) {
			free(v);
			return sp_err_nomem(err);
		}
		*r = (struct cfi_range){fde.begin, fde.end, fde.off};
	}
	if (n > 0)
		qsort(v, n, sizeof *v, by_begin);
	for (size_t i = 1; i < n && !overlaps; i++)
		overlaps = v[i].begin < v[i - 1].end;
	if (!overlaps) {
		*x = (struct cfi_index){v, n};
		return 0;
	}
	int rc = flatten(x, v, n, err);
	free(v);
	return rc;
}

const struct cfi_range *cfi_index_find(const struct cfi_index *x, uint64_t pc)
{
	size_t low = 0, high = x->n;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (x->v[mid].begin <= pc)
			low = mid + 1;
		else
			high = mid;
	}
	return low && pc < x->v[low - 1].end ? &x->v[low - 1] : NULL;
}
