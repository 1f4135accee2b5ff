/* What the parts of the walk share: the state of one sample, its stack bytes, its maps. */
#ifndef SP_UNWIND_WALKER_H
#define SP_UNWIND_WALKER_H

#include "base/le.h"
#include "code.h"
#include "memo.h"

/* The rule cache: exact keys, in sets of four that fill a cache line, first in, first out. 16K
 * rules, 256 KiB, stay in a core's second-level cache and hit 97 to 99 % of real profiles. What
 * misses asks for the piece of code around it: a function makes most of its calls by one rule. */
#define UW_CACHE_BITS 12
#define UW_CACHE_WAYS 4

struct uw_cache_slot {
	/* Module id << 32 | address from the module's base, and UW_CACHE_CALL; or that of a piece
	 * of code, as below; 0 = free. */
	uint64_t key;
	union {
		struct uw_rule rule;
		struct uw_call call;
	};
};
#define UW_CACHE_CALL (UINT64_C(1) << 63)

/* A piece of code has one rule and lies in one page of it. Its key: module id << 42 | number of the
 * page << 20 | first << 10 | last, the latter two within the page, and UW_CACHE_PIECE. */
#define UW_CACHE_PIECE (UINT64_C(1) << 62)
#define UW_PIECE_SHIFT 10
#define UW_PIECE_MASK ((1u << UW_PIECE_SHIFT) - 1)
#define UW_PIECE_IDS (UINT32_C(1) << (30 - UW_PIECE_SHIFT)) /* modules from that id on have none */

struct uw_cache_set {
	struct uw_cache_slot way[UW_CACHE_WAYS];
};

_Static_assert(sizeof(struct uw_cache_set) == 64, "a set is a cache line");

#define UW_HINTS 256

/* Bytes of a stack that were read from its file last: n from `at` on. */
struct uw_far {
	int fd;
	uint64_t foff; /* of the stack */
	uint64_t at;
	size_t n;
	uint8_t bytes[4096];
};

struct uw_walker {
	struct uw_cache_set cache[1u << UW_CACHE_BITS]; /* on a page, as a walker is */
	unsigned n_missed;                              /* look-ups there */
	struct uw_far far;
	struct sp_counters counters;
	/* Where in its space's maps an address was found last, by bits of the address. A guess
	 * that is checked: spaces come and go. */
	struct uw_hint {
		uint32_t part, at;
	} hints[UW_HINTS];
	struct uw_memo memos[UW_MEMO_THREADS];
	/* The frames of the walk under way, as far as they may be kept. */
	struct uw_memo_frame fresh[UW_MAX_FRAMES + 1];
};

/* The set of an address. Two instructions: it is on the path from one frame to the next. */
static inline struct uw_cache_set *uw_cache_set(struct uw_walker *w, const struct uw_module *m,
						uint64_t from_base)
{
	return &w->cache[(from_base ^ m->salt) & ((1u << UW_CACHE_BITS) - 1)];
}

/* The set of the pieces of code in an address's page. */
static inline struct uw_cache_set *uw_piece_set(struct uw_walker *w, const struct uw_module *m,
						uint64_t from_base)
{
	uint32_t page = (uint32_t)(from_base >> UW_PIECE_SHIFT);
	return &w->cache[(page * UINT32_C(0x9e3779b1) ^ m->salt) >> (32 - UW_CACHE_BITS)];
}

static inline void uw_cache_add(struct uw_cache_set *set, struct uw_cache_slot slot)
{
	memmove(&set->way[1], &set->way[0], sizeof *set - sizeof set->way[0]);
	set->way[0] = slot;
}

/* What stands before a return address of a map's module, if the cache has it. */
static inline bool uw_call_cached(struct uw_walker *w, const struct uw_map *map, uint64_t ra,
				  struct uw_call *out)
{
	const struct uw_module *m = map->module;
	uint64_t from_base = ra - map->bias - m->base_svma;
	uint64_t key = UW_CACHE_CALL | (uint64_t)m->id << 32 | from_base;
	const struct uw_cache_set *set = uw_cache_set(w, m, from_base);
	for (unsigned i = 0; i < UW_CACHE_WAYS; i++) {
		if (set->way[i].key == key && from_base <= UINT32_MAX) {
			*out = set->way[i].call;
			return true;
		}
	}
	return false;
}

/* A register of a sample under perf's number; false: it was not recorded. */
static inline bool uw_sample_reg(const struct uw_sample *s, unsigned perf, uint64_t *out)
{
	if (perf > 63 || !(s->regs_mask >> perf & 1))
		return false;
	uint64_t all = (UINT64_C(1) << perf) - 1, below = s->regs_mask & all;
	/* Mostly all below are there; to count takes a call. */
	size_t i = below == all ? perf : (size_t)__builtin_popcountll(below);
	*out = sp_get64(s->regs + 8 * i);
	return true;
}

#define UW_FP_LOST 1u /* no frame pointer has this value: it is not known */

struct uw_walk {
	struct uw_walker *w;
	const struct uw_sample *s;
	const struct uw_arch *arch;
	struct uw_stack *out;
	const uint8_t *stack; /* of s */
	uint64_t stack_avma;  /* of stack[0] */
	uint64_t stack_bytes;
	uint64_t stack_here; /* of them, in stack; the others are in a file */
	uint64_t ra_mask; /* AArch64: the bits of a return address that are no signature */
	/* The frame that is next to be looked at. */
	uint64_t pc, sp, fp, lr;
	bool exact; /* pc is an interrupted instruction: the leaf, or below a signal frame */
	const struct uw_map *callee; /* where the frame lies that was called from here, or NULL */
	uint32_t guessed; /* so many frames are sure: the next may be another one; or 0 */
};

/* Stack bytes that are not here, read from the file: size of them from off on, or NULL. They stay
 * until the next call. */
const uint8_t *uw_stack_far(const struct uw_walk *k, uint64_t off, unsigned size);

/* The stack's bytes from addr on, size of them, or NULL. */
static inline const uint8_t *uw_stack_at(const struct uw_walk *k, uint64_t addr, unsigned size)
{
	uint64_t off = addr - k->stack_avma, n = k->stack_here;
	if (__builtin_expect(n >= size && off <= n - size, 1))
		return k->stack + off;
	return n < k->stack_bytes ? uw_stack_far(k, off, size) : NULL;
}

/* A word of the stack copy. */
static inline bool uw_stack_u64(const struct uw_walk *k, uint64_t addr, uint64_t *out)
{
	const uint8_t *p = uw_stack_at(k, addr, 8);
	if (__builtin_expect(!p, 0))
		return false;
	*out = sp_get64(p);
	return true;
}

/* A word of 4 or 8 bytes. */
static inline bool uw_stack_word(const struct uw_walk *k, uint64_t addr, uint64_t *out)
{
	if (k->arch->word_bytes == 8)
		return uw_stack_u64(k, addr, out);
	const uint8_t *p = uw_stack_at(k, addr, 4);
	if (!p)
		return false;
	*out = sp_get32(p);
	return true;
}

const struct uw_map *uw_map_search(struct uw_walker *w, const struct uw_space *sp, uint64_t addr);

/* The map that holds an address, or NULL. */
static inline const struct uw_map *uw_map_find(struct uw_walker *w, const struct uw_space *sp,
					       uint64_t addr)
{
	const struct uw_hint *h = &w->hints[addr >> 12 & (UW_HINTS - 1)];
	if (__builtin_expect(h->part < sp->n && h->at < sp->parts[h->part].n, 1)) {
		const struct uw_map *map = &sp->parts[h->part].v[h->at];
		if (__builtin_expect(addr - map->start < map->end - map->start, 1))
			return map;
	}
	return uw_map_search(w, sp, addr);
}

/* A frame of more than a thread's whole stack: RLIMIT_STACK's default. */
#define UW_FRAME_MAX (UINT64_C(8) << 20)

/* The reason when the word at addr is not in the copy: a longer one would hold it, or it is on
 * another stack. A goroutine's that called C is one, a Lisp's own, that of a signal's victim. */
static inline int uw_stack_missing(const struct uw_walk *k, uint64_t addr)
{
	bool near = k->stack_bytes >= k->arch->word_bytes &&
		    addr - k->stack_avma < k->stack_bytes + UW_FRAME_MAX;
	return near ? UW_STACK_EXHAUSTED : UW_NO_STACK;
}

/* A row that finds registers by the frame pointer means the frame's own, which points into the
 * frame. At the end of a realigned frame, behind `leave`, gcc's row still says so, where the caller's
 * values are back. */
static inline bool uw_fp_left(const struct uw_walk *k, uint64_t cfa)
{
	return k->exact && k->fp - k->sp >= cfa - k->sp;
}

static inline uint64_t uw_look(const struct uw_walk *k)
{
	return k->pc - !k->exact;
}

/* Appends the current frame. False: the depth limit. */
static inline bool uw_append(struct uw_walk *k)
{
	struct uw_stack *out = k->out;
	if (__builtin_expect(out->n == UW_MAX_FRAMES, 0))
		return false;
	out->addrs[out->n] = uw_look(k);
	out->return_addrs[out->n] = k->pc;
	out->n++;
	return true;
}

#define UW_GOES_ON (-1) /* instead of an enum uw_stop */

/* The rule at an address of a map's module, from the cache or its FDE. */
struct uw_rule uw_rule_get(struct uw_walker *w, const struct uw_map *map, uint64_t addr);

/* One step by a rule of the kinds UW_RULE_SP to UW_RULE_PLT. */
int uw_rule_step(struct uw_walk *k, struct uw_rule r);

/* One step without CFI: by the code's own rule, CPython's trampolines, a validated return address
 * at sp, the frame pointer. r: of the kinds UW_RULE_NONE and UW_RULE_CODE. Changes k->pc, sp, fp,
 * lr, exact and returns UW_GOES_ON, or an enum uw_stop. f: slots and edge of the step;
 * UW_EDGE_CALLEE: the callee-saved registers still hold their values. */
int uw_guess(struct uw_walk *k, const struct uw_map *map, struct uw_rule r,
	     struct uw_memo_frame *f);

/* What stands before a return address, and the map that holds the call or NULL. */
struct uw_call uw_call_before(struct uw_walk *k, uint64_t ra, const struct uw_map **map);

/* What to make of CFI that has led to no code. UW_GOES_ON: that of the leaf is wrong, and its code
 * has shown the way. UW_END: the last frame's code does not return. Else UW_NO_MODULE, and nothing
 * was changed. */
int uw_led_nowhere(struct uw_walk *k);

/* Whether a word is argc, with argv behind it, ascending, and its end, as far as the copy goes: a
 * process's first stack (psABI of x86-64, 3.4.1). Programs that begin with other code than glibc's
 * have no CFI that says so: Go's, musl's. argv: its address. */
bool uw_program_start(const struct uw_walk *k, uint64_t argc, uint64_t argv);

/* The registers that a signal interrupted, from the struct ucontext at sp: one by its DWARF
 * number. */
bool uw_sigcontext(const struct uw_walk *k, unsigned reg, uint64_t *out);
/* A step over a signal trampoline by it: UW_GOES_ON, or an enum uw_stop. */
int uw_sigreturn_step(struct uw_walk *k);

/* The walk with all registers. Goes on as long as `frames` more frames are not done, or to the end
 * with UINT32_MAX. UW_GOES_ON: k holds the next frame. */
int uw_walk_full(struct uw_walk *k, uint32_t frames);

#endif
