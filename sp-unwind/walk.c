#define _GNU_SOURCE
#include "walk.h"

#include <sys/mman.h>
#include <unistd.h>

#include "reuse.h"

#define PAGE 4096u

/* Have pages in place that are going to be written, and leave what is in them. */
static void fill(void *p, size_t n)
{
	uint8_t *first = (uint8_t *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1));
	n += (size_t)((uint8_t *)p - first);
	if (madvise(first, n, MADV_POPULATE_WRITE) == 0) /* Linux 5.14 */
		return;
	for (size_t i = 0; i < n; i += PAGE) {
		volatile uint8_t *byte = first + i;
		*byte = *byte;
	}
}

/* The rule cache's pages would come when they are met, one by one, twice each: what is looked for
 * is read first. Whoever misses so often will meet them all. */
#define CACHE_FILL_FROM 8u

void uw_walker_warm(struct uw_walker *w)
{
	w->n_missed = CACHE_FILL_FROM;
	fill(w->cache, sizeof w->cache);
	fill(w->memos, sizeof w->memos);
}

struct uw_walker *uw_walker_new(void)
{
	/* Of fresh pages: those that a short input does not need are never there. */
	struct uw_walker *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w == MAP_FAILED)
		return NULL;
	sp_count(&w->counters, SP_C_frames, 0);
	sp_count(&w->counters, SP_C_rule_hits, 0);
	sp_count(&w->counters, SP_C_rule_misses, 0);
	sp_count(&w->counters, SP_C_reused_frames, 0);
	sp_count(&w->counters, SP_C_frame_pointer_frames, 0);
	sp_count(&w->counters, SP_C_scanned_frames, 0);
	return w;
}

void uw_walker_free(struct uw_walker *w)
{
	if (w)
		munmap(w, sizeof *w);
}

const struct sp_counters *uw_walker_counters(const struct uw_walker *w)
{
	return &w->counters;
}

const struct uw_map *uw_map_search(struct uw_walker *w, const struct uw_space *sp, uint64_t addr)
{
	uint32_t part = 0, low = 0, high = sp->n;
	while (part < high) { /* how many begin at addr or below */
		uint32_t mid = part + (high - part) / 2;
		if (sp->parts[mid].v->start <= addr)
			part = mid + 1;
		else
			high = mid;
	}
	if (!part--)
		return NULL;
	const struct uw_map *maps = sp->parts[part].v;
	high = sp->parts[part].n;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (maps[mid].start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (addr >= maps[low - 1].end)
		return NULL;
	w->hints[addr >> 12 & (UW_HINTS - 1)] = (struct uw_hint){part, low - 1};
	return &maps[low - 1];
}

/* The key of the piece of code around an address that lies in a page from first to last. */
static uint64_t piece_key(const struct uw_module *m, uint64_t from_base, uint64_t first,
			  uint64_t last)
{
	return UW_CACHE_PIECE | (uint64_t)m->id << (UW_PIECE_SHIFT + 32) |
	       from_base >> UW_PIECE_SHIFT << (2 * UW_PIECE_SHIFT) | first << UW_PIECE_SHIFT | last;
}

static bool piece_get(const struct uw_cache_set *set, const struct uw_module *m, uint64_t from_base,
		      struct uw_rule *out)
{
	uint64_t page = piece_key(m, from_base, 0, 0) >> (2 * UW_PIECE_SHIFT);
	uint64_t at = from_base & UW_PIECE_MASK;
	for (unsigned i = 0; i < UW_CACHE_WAYS; i++) {
		uint64_t key = set->way[i].key, first = key >> UW_PIECE_SHIFT & UW_PIECE_MASK;
		if (key >> (2 * UW_PIECE_SHIFT) == page && at >= first &&
		    at <= (key & UW_PIECE_MASK)) {
			*out = set->way[i].rule;
			return true;
		}
	}
	return false;
}

/* Keeps a rule for what of its span lies in the page of an address. */
static void piece_add(struct uw_cache_set *set, const struct uw_module *m, uint64_t svma,
		      const struct uw_span *same, struct uw_rule rule)
{
	uint64_t from_base = svma - m->base_svma, at = from_base & UW_PIECE_MASK;
	uint64_t before = svma - same->begin, behind = same->end - 1 - svma;
	uint64_t first = before < at ? at - before : 0;
	uint64_t last = behind < UW_PIECE_MASK - at ? at + behind : UW_PIECE_MASK;
	if (last > first)
		uw_cache_add(set,
			     (struct uw_cache_slot){.key = piece_key(m, from_base, first, last),
						    .rule = rule});
}

static __attribute__((noinline)) struct uw_rule rule_miss(struct uw_walker *w,
							  const struct uw_module *m, uint64_t svma,
							  uint64_t key, struct uw_cache_set *set)
{
	struct uw_rule rule;
	struct uw_span same;
	struct uw_cache_set *pieces = NULL;
	if (set && m->id < UW_PIECE_IDS)
		pieces = uw_piece_set(w, m, svma - m->base_svma);
	if (++w->n_missed == CACHE_FILL_FROM)
		fill(w->cache, sizeof w->cache);
	if (!pieces || !piece_get(pieces, m, svma - m->base_svma, &rule)) {
		rule = uw_rule_make(m, svma, &same);
		w->counters.v[SP_C_rule_misses]++;
		if (pieces && same.begin < same.end)
			piece_add(pieces, m, svma, &same, rule);
	}
	if (set)
		uw_cache_add(set, (struct uw_cache_slot){.key = key, .rule = rule});
	return rule;
}

static inline struct uw_rule rule_get(struct uw_walker *w, const struct uw_map *map, uint64_t addr)
{
	const struct uw_module *m = map->module;
	if (__builtin_expect(!m, 0))
		return (struct uw_rule){.kind = UW_RULE_NONE};
	uint64_t svma = addr - map->bias, from_base = svma - m->base_svma;
	if (__builtin_expect(from_base > UINT32_MAX, 0))
		return rule_miss(w, m, svma, 0, NULL);
	uint64_t key = (uint64_t)m->id << 32 | from_base;
	struct uw_cache_set *set = uw_cache_set(w, m, from_base);
	for (unsigned i = 0; i < UW_CACHE_WAYS; i++)
		if (__builtin_expect(set->way[i].key == key, 1))
			return set->way[i].rule;
	return rule_miss(w, m, svma, key, set);
}

struct uw_rule uw_rule_get(struct uw_walker *w, const struct uw_map *map, uint64_t addr)
{
	return rule_get(w, map, addr);
}

/* --- the fast walk: pc, sp and the frame pointer --- */

#define COMPLEX (-2) /* all registers are needed from here on */

/* Where a rule puts the CFA. False: its stack bytes are not there. */
static inline bool rule_cfa(struct uw_walk *k, struct uw_rule r, uint64_t *cfa)
{
	switch ((enum uw_rule_kind)r.kind) {
	case UW_RULE_SP:
		*cfa = k->sp + r.cfa * UINT64_C(8);
		return true;
	case UW_RULE_FP:
		*cfa = k->fp + r.cfa * UINT64_C(8);
		return k->fp != UW_FP_LOST;
	case UW_RULE_PLT:
		*cfa = k->sp + ((k->pc & 15) >= r.cfa ? 16 : 8);
		return true;
	case UW_RULE_FP_DEREF:
		return k->fp != UW_FP_LOST &&
		       uw_stack_u64(k, k->fp + (uint64_t)((int64_t)(int16_t)r.cfa * 8), cfa);
	case UW_RULE_NONE:
	case UW_RULE_CODE:
	case UW_RULE_END:
	case UW_RULE_COMPLEX:
	case UW_RULE_SIGRETURN:
	case UW_RULE_BAD:
		break;
	}
	return false;
}

/* Why there is no CFA: the frame pointer, or where it points. */
static int no_cfa(const struct uw_walk *k, struct uw_rule r)
{
	if (k->fp != UW_FP_LOST)
		return uw_stack_missing(k, k->fp + (uint64_t)((int64_t)(int16_t)r.cfa * 8));
	if (!(k->s->regs_mask >> k->arch->perf[k->arch->fp] & 1))
		return UW_BAD_REGS;
	return uw_stack_missing(k, k->stack_avma + k->stack_bytes);
}

/* One step by a rule that is none of the exceptions. */
static inline int rule_step(struct uw_walk *k, struct uw_rule r)
{
	uint64_t cfa, ra, fp = k->fp;
	if (__builtin_expect(!rule_cfa(k, r, &cfa), 0))
		return no_cfa(k, r);
	/* A caller's frame lies above its callee's. Not so for what was interrupted (longjmp and
	 * context switches are in the middle of moving sp), nor across a signal's own stack. */
	if (__builtin_expect(cfa <= k->sp, 0)) {
		if (r.flags & UW_RULE_SWITCHED)
			return k->fp ? UW_NO_STACK : UW_END;
		if (cfa < (r.kind == UW_RULE_FP ? k->fp : k->sp) && r.kind != UW_RULE_FP_DEREF)
			return UW_OVERFLOW; /* the offset is positive */
		if (!k->exact && !(r.flags & UW_RULE_SIGNAL))
			return cfa == k->sp ? UW_LOOP : UW_BACKWARDS;
	}
	if (r.ra_slot == UW_SLOT_KEEP) {
		if (!k->exact) /* it called somebody, so its link register is overwritten */
			return UW_BAD_CFA;
		ra = k->lr;
	} else if (!uw_stack_u64(k, cfa + (uint64_t)(r.ra_slot * INT64_C(8)), &ra)) {
		return uw_stack_missing(k, cfa + (uint64_t)(r.ra_slot * INT64_C(8)));
	}
	if (r.fp_slot != UW_SLOT_KEEP && !(r.flags & UW_RULE_FP_AT_FP && uw_fp_left(k, cfa))) {
		uint64_t at = (r.flags & UW_RULE_FP_AT_FP ? k->fp : cfa) +
			      (uint64_t)(r.fp_slot * INT64_C(8));
		if (__builtin_expect(!uw_stack_u64(k, at, &fp), 0)) {
			/* In an epilogue the row still names the slot that was popped: below sp,
			 * where no copy reaches. The register has its value back. */
			fp = at < k->sp && k->exact ? k->fp : UW_FP_LOST;
		}
	}
	ra &= k->ra_mask;
	if (__builtin_expect(!ra && !(r.flags & UW_RULE_SIGNAL), 0))
		return UW_END;
	if (__builtin_expect(cfa == k->sp && ra == k->pc, 0))
		return UW_LOOP;
	k->pc = k->lr = ra;
	k->sp = cfa;
	k->fp = fp;
	k->exact = r.flags & UW_RULE_SIGNAL;
	return UW_GOES_ON;
}

int uw_rule_step(struct uw_walk *k, struct uw_rule r)
{
	return rule_step(k, r);
}

/* Bytes of stack that are asked for ahead of the walk: one at a time they would cost a cache miss
 * each; in a row the memory system streams them. Kept frames have theirs asked for already. */
#define AHEAD 4096

static inline uint64_t prefetch(const struct uw_walk *k, uint64_t done, const struct uw_memo *m)
{
	uint64_t up = k->sp - k->stack_avma, to = up + AHEAD;
	if (up >= k->stack_here || done >= up + AHEAD / 2)
		return done;
	if (to > k->stack_here)
		to = k->stack_here;
	if (m && k->sp <= m->met_sp && to > m->met_sp - k->stack_avma)
		to = m->met_sp - k->stack_avma;
	for (; done < to; done += 64)
		__builtin_prefetch(k->stack + done);
	return done;
}

/* A step by one of the kinds that few frames have. */
static int rare_step(struct uw_walk *k, const struct uw_map *map, struct uw_rule r,
		     struct uw_memo_frame *f)
{
	f->edge = UW_EDGE_NONE;
	switch ((enum uw_rule_kind)r.kind) {
	case UW_RULE_END:
		return UW_END;
	case UW_RULE_COMPLEX:
		return COMPLEX;
	case UW_RULE_SIGRETURN:
		return uw_sigreturn_step(k);
	case UW_RULE_BAD:
		return uw_rule_stop(r);
	case UW_RULE_NONE:
	case UW_RULE_CODE:
	case UW_RULE_SP:
	case UW_RULE_FP:
	case UW_RULE_FP_DEREF:
	case UW_RULE_PLT:
		break;
	}
	return uw_guess(k, map, r, f);
}

/* What uw_guess finds for most frames without CFI, those of JIT code: a frame record with a return
 * address that is known to be one. False: not so simple, and nothing was changed. */
static inline bool frame_record(struct uw_walk *k, const struct uw_map *map)
{
	uint64_t fp, ra;
	struct uw_call call;
	if (k->exact || !map || (map->flags & UW_MAP_ANON && k->s->space->has_python) ||
	    k->arch->word_bytes != 8 || k->fp & 7 || k->fp < k->sp ||
	    !uw_stack_u64(k, k->fp, &fp) || !uw_stack_u64(k, k->fp + 8, &ra))
		return false;
	ra &= k->ra_mask;
	const struct uw_map *to = map;
	if (ra - 1 - map->start >= map->end - map->start)
		to = uw_map_find(k->w, k->s->space, ra - 1);
	if (!to ||
	    (to->module && (!uw_call_cached(k->w, to, ra, &call) || call.kind == UW_CALL_NONE)))
		return false;
	k->w->counters.v[SP_C_frame_pointer_frames]++;
	k->pc = k->lr = ra;
	k->sp = k->fp + 16;
	k->fp = fp;
	return true;
}

/* Whether code has a frame record, or may have one because nothing else is known of it. */
static inline bool plain_record(const struct uw_walk *k, struct uw_rule r)
{
	return r.kind == UW_RULE_NONE ||
	       (r.kind == UW_RULE_CODE && r.flags == k->arch->fp && r.ra_slot == 1 && !r.fp_slot &&
		!k->arch->ra_same_is_live); /* there the caller's sp is elsewhere */
}

/* A rule's step whose words can be read again without the rule. */
static inline struct uw_memo_frame by_rule(const struct uw_walk *k, struct uw_rule r)
{
	bool again = r.kind != UW_RULE_FP_DEREF && !(r.flags & UW_RULE_FP_AT_FP) &&
		     r.ra_slot != UW_SLOT_KEEP &&
		     (r.fp_slot == UW_SLOT_KEEP || k->fp != UW_FP_LOST);
	return (struct uw_memo_frame){.ra_slot = r.ra_slot,
				      .fp_slot = r.fp_slot,
				      .edge = again ? UW_EDGE_RULE : UW_EDGE_NONE};
}

/* One step in the fast walk, from the frame of which at is a copy. */
static inline int fast_step(struct uw_walk *k, struct uw_walk *shared, struct uw_reuse *u,
			    const struct uw_state *at, const struct uw_map *map)
{
	struct uw_rule r = {.kind = UW_RULE_NONE};
	struct uw_memo_frame f;
	int step = UW_GOES_ON;
	if (__builtin_expect(map != NULL, 1))
		r = rule_get(k->w, map, uw_look(k));
	if (__builtin_expect(r.kind >= UW_RULE_SP && r.kind <= UW_RULE_PLT, 1)) {
		step = rule_step(k, r);
		f = by_rule(k, r);
	} else if (plain_record(k, r) && frame_record(k, map)) {
		f = (struct uw_memo_frame){.ra_slot = -1, .fp_slot = -2, .edge = UW_EDGE_POINTER};
	} else {
		*shared = *k;
		step = rare_step(shared, map, r, &f);
		*k = *shared;
	}
	if (u->memo && __builtin_expect(step == UW_GOES_ON, 1))
		uw_reuse_keep(u, k, at, f);
	return step;
}

static int walk_fast(struct uw_walk *shared)
{
	/* A copy whose address goes nowhere: it lives in registers. */
	struct uw_walk k = *shared;
	struct uw_reuse reuse;
	struct uw_state at;
	const struct uw_map *map = NULL;
	uint64_t ahead = 0;
	int step;
	uw_reuse_begin(&reuse, shared);
	for (;;) {
		if (reuse.memo && uw_reuse_meets(&reuse, &k)) {
			*shared = k;
			uw_reuse_take(&reuse, shared);
			k = *shared;
			ahead = k.sp - k.stack_avma + AHEAD;
		}
		at = (struct uw_state){k.pc, k.sp, k.fp, k.exact};
		uint64_t look = uw_look(&k);
		ahead = prefetch(&k, ahead, reuse.memo);
		if (!map || look - map->start >= map->end - map->start) {
			map = uw_map_find(k.w, k.s->space, look);
			if (__builtin_expect(!map, 0) && k.out->n && !k.exact) {
				/* No code: such a return address is none. */
				*shared = k;
				step = uw_led_nowhere(shared);
				if (step != UW_GOES_ON)
					break;
				k = *shared;
				continue;
			}
		}
		/* An interrupted call of a null pointer is no frame: 0 marks a chain's end. Where
		 * something is mapped there, frames are counted, so that a walk in circles ends. */
		if (__builtin_expect((k.pc || map || !k.out->n) && !uw_append(&k), 0)) {
			step = UW_DEPTH;
			break;
		}
		step = fast_step(&k, shared, &reuse, &at, map);
		if (__builtin_expect(step != UW_GOES_ON, 0))
			break;
		k.callee = map;
	}
	if (reuse.memo && !uw_reuse_all(&reuse))
		uw_reuse_keep(&reuse, &k, &at, (struct uw_memo_frame){.edge = UW_EDGE_NONE});
	*shared = k;
	shared->out->stop_map = map;
	if (step != COMPLEX)
		uw_reuse_end(&reuse, k.w);
	return step;
}

/* --- one sample --- */

/* AArch64 keeps a signature in the top bits of a signed return address, as many as the address
 * space leaves free: 48 bits of addresses on most kernels, 39 on Android, 52 on some. The stack
 * and the libraries lie near its top. */
static uint64_t signature_mask(const struct uw_walk *k)
{
	const struct uw_space *sp = k->s->space;
	uint64_t high = k->sp | UINT64_C(1) << 38;
	const struct uw_maps *last = sp->n ? &sp->parts[sp->n - 1] : NULL;
	if (last && last->v[last->n - 1].end >> 55 == 0)
		high |= last->v[last->n - 1].end - 1;
	unsigned bits = 64 - (unsigned)__builtin_clzll(high);
	return (UINT64_C(1) << (bits > 52 ? 48 : bits)) - 1;
}

/* The registers of the leaf. */
static int leaf(struct uw_walk *k)
{
	const struct uw_sample *s = k->s;
	const struct uw_arch *a = k->arch;
	if (!s->regs || !s->regs_abi || !a->n_regs)
		return UW_NO_REGS;
	bool has_pc = uw_sample_reg(s, a->perf[a->pc], &k->pc);
	bool has_sp = uw_sample_reg(s, a->perf[a->sp], &k->sp);
	k->fp = UW_FP_LOST;
	(void)uw_sample_reg(s, a->perf[a->fp], &k->fp);
	if (a->ra_same_is_live)
		(void)uw_sample_reg(s, a->perf[a->ra], &k->lr);
	k->exact = true;
	if (!has_pc)
		return UW_BAD_REGS;
	/* PERF_SAMPLE_REGS_ABI_32: a 32-bit task on a 64-bit machine. */
	if (a->word_bytes == 8 && s->regs_abi == 1) {
		(void)uw_append(k);
		return UW_NO_REGS;
	}
	if (!has_sp) {
		(void)uw_append(k);
		return UW_BAD_REGS;
	}
	k->stack = s->stack;
	k->stack_avma = k->sp;
	k->stack_bytes = s->stack_bytes;
	k->stack_here = s->stack_here ? s->stack_here : s->stack_bytes;
	k->ra_mask = a->machine == EM_AARCH64 ? signature_mask(k) : UINT64_MAX;
	k->pc &= k->ra_mask; /* a pc may be signed too, when an indirect jump took it so */
	k->lr &= k->ra_mask;
	return UW_GOES_ON;
}

static int walk(struct uw_walk *k)
{
	int rc = leaf(k);
	if (rc != UW_GOES_ON)
		return rc;
	if (k->arch->word_bytes != 8)
		return uw_walk_full(k, UINT32_MAX);
	const struct uw_walk start = *k;
	rc = walk_fast(k);
	/* From the leaf again, with all registers, until the frame that needed them is done; the
	 * second time to the end. */
	for (int again = 0; rc == COMPLEX; again++) {
		uint32_t frames = again ? UINT32_MAX : k->out->n;
		*k = start;
		k->out->n = 0;
		rc = uw_walk_full(k, frames);
		if (rc == UW_GOES_ON)
			rc = walk_fast(k);
	}
	return rc;
}

const uint8_t *uw_stack_far(const struct uw_walk *k, uint64_t off, unsigned size)
{
	struct uw_far *f = &k->w->far;
	const struct uw_sample *s = k->s;
	if (k->stack_bytes < size || off > k->stack_bytes - size)
		return NULL;
	if (f->fd != s->stack_fd || f->foff != s->stack_foff || off < f->at ||
	    off + size > f->at + f->n) {
		uint64_t at = off & ~UINT64_C(63), left = k->stack_bytes - at;
		size_t n = left < sizeof f->bytes ? (size_t)left : sizeof f->bytes;
		ssize_t got = pread(s->stack_fd, f->bytes, n, (off_t)(s->stack_foff + at));
		f->fd = s->stack_fd;
		f->foff = s->stack_foff;
		f->at = at;
		f->n = got > 0 ? (size_t)got : 0;
	}
	return off + size <= f->at + f->n ? f->bytes + (off - f->at) : NULL;
}

void uw_walk(struct uw_walker *w, const struct uw_sample *s, struct uw_stack *out)
{
	static const struct uw_space nowhere;
	struct uw_sample sample = *s;
	struct uw_walk k = {
		.w = w,
		.s = &sample,
		.arch = uw_arch_find(s->machine),
		.out = out,
	};
	if (!sample.space)
		sample.space = &nowhere;
	if (!sample.stack)
		sample.stack_bytes = 0;
	uint64_t misses = w->counters.v[SP_C_rule_misses] + w->counters.v[SP_C_reused_frames];
	out->n = 0;
	out->stop_map = NULL;
	out->stop = (enum uw_stop)walk(&k);
	if (__builtin_expect(k.guessed != 0, 0) && out->stop == UW_END) {
		out->stop = UW_GUESSED;
		out->stop_map = uw_map_find(w, sample.space, out->addrs[k.guessed - 1]);
	}
	w->counters.v[SP_C_frames] += out->n;
	misses = w->counters.v[SP_C_rule_misses] + w->counters.v[SP_C_reused_frames] - misses;
	w->counters.v[SP_C_rule_hits] += out->n > misses ? out->n - misses : 0;
}
