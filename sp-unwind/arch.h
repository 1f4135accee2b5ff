/* What the engine must know of a machine: its registers, under DWARF's and under perf's numbers.
 * Sources: the psABI supplements of x86-64, i386, AArch64 and the other machines (register
 * tables), and the kernel's arch/<machine>/include/uapi/asm/perf_regs.h. */
#ifndef SP_UNWIND_ARCH_H
#define SP_UNWIND_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#define UW_NO_REG 0xffu

struct uw_arch {
	uint16_t machine; /* EM_* */
	uint8_t sp, fp;   /* DWARF numbers; UW_NO_REG: unknown */
	uint8_t ra;       /* the usual return address column */
	uint8_t n_names;
	const char *const *names; /* by DWARF number */
	/* Walking, for the machines that have it (n_regs > 0): */
	uint8_t n_regs;        /* DWARF registers 0 … n_regs - 1 are tracked */
	uint8_t word_bytes;    /* a stack slot */
	uint8_t pc;            /* where the walker keeps the pc among them */
	bool ra_same_is_live;  /* an unspecified return address is the link register's */
	uint64_t callee_saved; /* bit mask: unspecified = same value */
	const uint8_t *perf;   /* perf's number of each tracked register, UW_NO_REG: none */
};

/* Never NULL: an unknown machine gives an entry without names. */
const struct uw_arch *uw_arch_find(uint16_t machine);

#endif
