/* The search through code, which is the same for all machines: ways part at jumps, and each place is
 * gone to once. Included by code.c and code_arm.c behind their struct way, whose pc is the next
 * instruction, and what it holds besides is their own. */
#ifndef SP_UNWIND_CODE_SEARCH_H
#define SP_UNWIND_CODE_SEARCH_H

#include <string.h>

#include "rule.h"

#define STEPS 3000u
#define OTHERS 32u
#define TARGETS 512u /* a power of two, twice as many as are taken */

struct search {
	const uint8_t *p; /* code from svma on, left bytes */
	uint64_t svma;
	size_t left;
	unsigned n_others, n_targets;
	bool called, halts;    /* x86-64: the last instruction was a call; and hlt came next */
	struct uw_rule second; /* at a jump that may leave the function; or UW_RULE_NONE */
	/* Where ways lead that were found already: offsets in the code + 1, hashed. */
	uint32_t targets[TARGETS];
	/* Ways that part from the one that is followed. */
	struct way others[OTHERS];
};

enum outcome { GOES_ON, FOUND, DEAD };

/* The machine's own: one instruction of the way; FOUND: *out is the rule. */
static enum outcome step(struct search *s, struct way *w, struct uw_rule *out);

static bool is_new(struct search *s, uint64_t target)
{
	uint64_t off = target - s->svma;
	if (off >= s->left || off >= UINT32_MAX || s->n_targets == TARGETS / 2)
		return false;
	uint32_t i = (uint32_t)off * UINT32_C(0x9e3779b1) >> 23;
	for (; s->targets[i]; i = (i + 1) & (TARGETS - 1))
		if (s->targets[i] == off + 1)
			return false;
	s->targets[i] = (uint32_t)off + 1;
	s->n_targets++;
	return true;
}

/* A jump to another place. */
static enum outcome jump(struct search *s, struct way *w, uint64_t target)
{
	w->pc = target;
	return is_new(s, target) ? GOES_ON : DEAD;
}

/* A jump that may be taken or not. */
static void part(struct search *s, const struct way *w, uint64_t target)
{
	if (s->n_others == OTHERS || !is_new(s, target))
		return;
	s->others[s->n_others] = *w;
	s->others[s->n_others++].pc = target;
}

/* An offset in words. */
static bool slot(int32_t off, int16_t *out)
{
	if (off % 8 || off / 8 <= INT16_MIN || off / 8 >= INT16_MAX)
		return false;
	*out = (int16_t)(off / 8);
	return true;
}

/* Follow a way, and those that part from it, until one leads to a rule; else s->second. */
static struct uw_rule follow(struct search *s, const struct uw_module *m, struct way *w)
{
	struct uw_rule r;
	memset(s, 0, offsetof(struct search, others));
	s->second.kind = UW_RULE_NONE;
	if (!(s->p = uw_module_code(m, w->pc, &s->svma, &s->left)))
		return s->second;
	for (unsigned steps = 0; steps < STEPS; steps++) {
		switch (step(s, w, &r)) {
		case FOUND:
			return r;
		case GOES_ON:
			continue;
		case DEAD:
			break;
		}
		if (!s->n_others)
			break;
		*w = s->others[--s->n_others];
	}
	return s->second;
}

#endif
