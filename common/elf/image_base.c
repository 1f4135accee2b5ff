/* Where a mapping of a file stands against its linked addresses: the bias, from PT_LOAD headers.
 *
 * A kernel mapping covers whole pages, so it may begin before a segment and end behind it; several
 * small segments may even share its pages. The rules here accept a segment when the mapped file
 * range and the segment's lie inside one another, page rounding allowed, and refuse to guess when
 * two segments that could be meant have different biases. */
#include "elf/elf_file.h"

#include <unistd.h>

struct range {
	uint64_t start, end; /* file offsets */
};

static bool segment_range(const struct sp_segment *s, struct range *r)
{
	if (s->type != PT_LOAD || !s->filesz ||
	    __builtin_add_overflow(s->foff, s->filesz, &r->end))
		return false;
	r->start = s->foff;
	return true;
}

static bool inside(struct range a, struct range b)
{
	return a.start >= b.start && a.end <= b.end;
}

/* Bias of svma against foff; wrapping, since a prelinked or crafted svma may be below foff. */
static uint64_t delta(const struct sp_segment *s)
{
	return s->svma - s->foff;
}

/* How well a segment explains a mapped file range: 0 not at all; 1 their ranges lie inside one
 * another, page rounding allowed; 2 it also begins in the mapping's first page, which is the one
 * that the loader meant; 3 and it is code. */
static unsigned rank(const struct sp_segment *s, struct range map, uint64_t page)
{
	struct range seg, wide;
	if (!segment_range(s, &seg) || __builtin_add_overflow(seg.end, page - 1, &wide.end))
		return 0;
	wide.start = seg.start & ~(page - 1);
	wide.end &= ~(page - 1);
	if (!inside(map, seg) && !inside(seg, map) && !inside(map, wide))
		return 0;
	if (wide.start != (map.start & ~(page - 1)))
		return 1;
	return s->flags & PF_X ? 3 : 2;
}

/* The delta for a mapped file range; false when the best segments contradict each other. */
static bool find_delta(const struct sp_elf *e, struct range map, uint64_t page, uint64_t *out)
{
	unsigned best = 0;
	bool clash = false;
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		unsigned r = rank(s, map, page);
		if (!r || r < best)
			continue;
		clash = r == best && (clash || delta(s) != *out);
		if (r > best)
			*out = delta(s);
		best = r;
	}
	return best && !clash;
}

static uint64_t page_size(void)
{
	long page = sysconf(_SC_PAGESIZE);
	return page > 0 ? (uint64_t)page : 4096;
}

bool sp_elf_bias(const struct sp_elf *e, uint64_t map_start, uint64_t map_len, uint64_t map_foff,
		 uint64_t *bias)
{
	struct range map = {map_foff, 0};
	if (__builtin_add_overflow(map_foff, map_len, &map.end))
		return false;
	uint64_t d = 0;
	bool loads = false;
	for (size_t i = 0; i < e->n_segments && !loads; i++)
		loads = e->segments[i].type == PT_LOAD;
	if (!loads) {
		const struct sp_section *text = sp_elf_section(e, ".text");
		if (!text)
			return false;
		d = text->svma - text->foff;
	} else if (!find_delta(e, map, page_size(), &d)) {
		return false;
	}
	*bias = map_start - map_foff - d;
	return true;
}

bool sp_elf_foff_to_svma(const struct sp_elf *e, uint64_t foff, uint64_t *svma)
{
	const struct sp_segment *best = NULL;
	for (size_t i = 0; i < e->n_segments; i++) {
		const struct sp_segment *s = &e->segments[i];
		struct range seg;
		if (!segment_range(s, &seg) || foff < seg.start || foff >= seg.end)
			continue;
		if (!best || (s->flags & PF_X && !(best->flags & PF_X)))
			best = s;
	}
	/* Page tails and heads of a mapping reach past the segment's bytes. */
	uint64_t page = page_size();
	for (size_t i = 0; i < e->n_segments && !best; i++) {
		const struct sp_segment *s = &e->segments[i];
		struct range seg;
		if (segment_range(s, &seg) && (s->flags & PF_X) &&
		    foff >= (seg.start & ~(page - 1)) &&
		    foff < ((seg.end + page - 1) & ~(page - 1)))
			best = s;
	}
	if (best) {
		*svma = foff + delta(best);
		return true;
	}
	const struct sp_section *text = e->n_segments ? NULL : sp_elf_section(e, ".text");
	if (!text || foff < text->foff || foff - text->foff >= text->size)
		return false;
	*svma = foff + text->svma - text->foff;
	return true;
}
