/* What the parts of the walk share: the state of one sample, its stack bytes, its maps. */
#ifndef SP_UNWIND_WALKER_H
#define SP_UNWIND_WALKER_H

#include "base/le.h"
#include "rule.h"

/* The rule cache: exact keys, one slot each. 16K entries, 256 KiB, stay in a core's second-level
 * cache and hit 97 to 99 % of real profiles. */
#define UW_CACHE_BITS 14

struct uw_cache_slot {
	uint64_t key; /* module id << 32 | address from the module's base; 0 = free */
	struct uw_rule rule;
};

#define UW_HINTS 256

struct uw_walker {
	struct uw_cache_slot *cache; /* owned; 1 << UW_CACHE_BITS slots */
	struct sp_counters counters;
	/* Where in its space's maps an address was found last, by bits of the address. A guess
	 * that is checked: spaces come and go. */
	uint32_t hints[UW_HINTS];
};

#define UW_FP_LOST 1u /* no frame pointer has this value: it is not known */

struct uw_walk {
	struct uw_walker *w;
	const struct uw_sample *s;
	const struct uw_arch *arch;
	struct uw_stack *out;
	uint64_t stack_avma; /* of stack[0] */
	uint64_t ra_mask;    /* AArch64: the bits of a return address that are no signature */
	/* The frame that is next to be looked at. */
	uint64_t pc, sp, fp, lr;
	bool exact; /* pc is an interrupted instruction: the leaf, or below a signal frame */
	const struct uw_map *callee; /* where the frame lies that was called from here, or NULL */
};

/* A word of the stack copy. */
static inline bool uw_stack_u64(const struct uw_walk *k, uint64_t addr, uint64_t *out)
{
	uint64_t off = addr - k->stack_avma, n = k->s->stack_bytes;
	if (__builtin_expect(n < 8 || off > n - 8, 0))
		return false;
	*out = sp_get64(k->s->stack + off);
	return true;
}

/* A word of 4 or 8 bytes. */
static inline bool uw_stack_word(const struct uw_walk *k, uint64_t addr, uint64_t *out)
{
	if (k->arch->word_bytes == 8)
		return uw_stack_u64(k, addr, out);
	uint64_t off = addr - k->stack_avma, n = k->s->stack_bytes;
	if (n < 4 || off > n - 4)
		return false;
	*out = sp_get32(k->s->stack + off);
	return true;
}

const struct uw_map *uw_map_search(struct uw_walk *k, uint64_t addr);

/* The map that holds an address, or NULL. */
static inline const struct uw_map *uw_map_find(struct uw_walk *k, uint64_t addr)
{
	const struct uw_space *sp = k->s->space;
	uint32_t i = k->w->hints[addr >> 12 & (UW_HINTS - 1)];
	if (__builtin_expect(i < sp->n && addr >= sp->maps[i].start && addr < sp->maps[i].end, 1))
		return &sp->maps[i];
	return uw_map_search(k, addr);
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

/* One step without CFI: CPython's trampolines, a validated return address at sp, the frame
 * pointer. Changes k->pc, sp, fp, lr, exact and returns UW_GOES_ON, or an enum uw_stop. keeps:
 * whether the callee-saved registers still hold their values. */
int uw_guess(struct uw_walk *k, const struct uw_map *map, bool *keeps);

/* The registers that a signal interrupted, from the struct ucontext at sp: one by its DWARF
 * number. */
bool uw_sigcontext(const struct uw_walk *k, unsigned reg, uint64_t *out);
/* A step over a signal trampoline by it: UW_GOES_ON, or an enum uw_stop. */
int uw_sigreturn_step(struct uw_walk *k);

/* The walk with all registers. Goes on as long as `frames` more frames are not done, or to the end
 * with UINT32_MAX. UW_GOES_ON: k holds the next frame. */
int uw_walk_full(struct uw_walk *k, uint32_t frames);

#endif
