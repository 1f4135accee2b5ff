/* x86-64 instructions, as far as the stack pointer's way can be followed: their lengths, and the
 * operands of those in general registers. Pure over (pointer, length).
 *
 * Source: Intel SDM, volume 2, chapter 2 (formats) and appendix A (opcode maps). */
#ifndef SP_UNWIND_INSN_H
#define SP_UNWIND_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UW_INSN_MAX 15

enum uw_insn_map {
	UW_MAP_ONE,    /* one byte of opcode */
	UW_MAP_TWO,    /* 0f and one */
	UW_MAP_OTHERS, /* longer ones, and vectors: nothing but the length is of interest */
};

#define UW_INSN_NONE 255 /* no such register */

struct uw_insn {
	uint8_t len;
	uint8_t map; /* enum uw_insn_map */
	uint8_t op;
	bool wide;       /* 64-bit operands (REX.W) */
	bool has_modrm;  /* and with it: */
	bool is_mem;     /* rm is memory: base + disp, and more if indexed */
	bool indexed;    /* by another register, or from rip, or from nothing at all */
	uint8_t reg, rm; /* 0 … 15; rm: of memory the base, UW_INSN_NONE: none */
	uint8_t ext;     /* reg's three bits, where they are part of the opcode */
	int32_t disp;
	int32_t imm;  /* sign-extended, the low half of one of 64 bits; of jumps and calls too */
	uint8_t o;    /* the register in an opcode's low bits: push, pop */
	bool notrack; /* of a jump: to a label of the same function, most times (gcc's switches) */
};

/* The instruction at p. False: none that is known, or more than n bytes. */
bool uw_insn_decode(const uint8_t *p, size_t n, struct uw_insn *out);

#endif
