#include "arch.h"

#include <elf.h>
#include <stddef.h>

#define N(a) ((uint8_t)(sizeof(a) / sizeof *(a)))

static const char *const x86_64_names[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi",
					   "rbp", "rsp", "r8",  "r9",  "r10", "r11",
					   "r12", "r13", "r14", "r15", "rip"};
static const char *const i386_names[] = {"eax", "ecx", "edx", "ebx", "esp",
					 "ebp", "esi", "edi", "eip"};
static const char *const aarch64_names[] = {
	"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",  "x7",  "x8",  "x9",  "x10",
	"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
	"x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
};
static const char *const arm_names[] = {"r0", "r1", "r2",  "r3",  "r4",  "r5", "r6", "r7",
					"r8", "r9", "r10", "r11", "r12", "sp", "lr", "pc"};
static const char *const riscv_names[] = {
	"zero", "ra", "sp", "gp", "tp",  "t0",  "t1", "t2", "s0", "s1", "a0",
	"a1",   "a2", "a3", "a4", "a5",  "a6",  "a7", "s2", "s3", "s4", "s5",
	"s6",   "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
};

/* perf_regs.h of x86: AX BX CX DX SI DI BP SP IP FLAGS CS SS DS ES FS GS R8 … R15. */
static const uint8_t x86_64_perf[] = {0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8};
static const uint8_t i386_perf[] = {0, 2, 3, 1, 7, 6, 4, 5, 8};
/* perf_regs.h of arm64: X0 … X29, LR, SP, PC: DWARF's own numbers. */
static const uint8_t aarch64_perf[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
				       11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
				       22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

#define BIT(n) (UINT64_C(1) << (n))

static const struct uw_arch arches[] = {
	{
		.machine = EM_X86_64,
		.sp = 7,
		.fp = 6,
		.ra = 16,
		.n_names = N(x86_64_names),
		.names = x86_64_names,
		.n_regs = N(x86_64_perf),
		.word_bytes = 8,
		.pc = 16,
		.callee_saved = BIT(3) | BIT(6) | BIT(12) | BIT(13) | BIT(14) | BIT(15),
		.perf = x86_64_perf,
	},
	{
		.machine = EM_AARCH64,
		.sp = 31,
		.fp = 29,
		.ra = 30,
		.n_names = N(aarch64_names),
		.names = aarch64_names,
		.n_regs = N(aarch64_perf),
		.word_bytes = 8,
		.pc = 32,
		.ra_same_is_live = true,
		/* x19 … x29 */
		.callee_saved = UINT64_C(0x7ff) << 19,
		.perf = aarch64_perf,
	},
	{
		.machine = EM_386,
		.sp = 4,
		.fp = 5,
		.ra = 8,
		.n_names = N(i386_names),
		.names = i386_names,
		.n_regs = N(i386_perf),
		.word_bytes = 4,
		.pc = 8,
		.callee_saved = BIT(3) | BIT(5) | BIT(6) | BIT(7),
		.perf = i386_perf,
	},
	{.machine = EM_ARM,
	 .sp = 13,
	 .fp = 11,
	 .ra = 14,
	 .n_names = N(arm_names),
	 .names = arm_names},
	{.machine = EM_RISCV,
	 .sp = 2,
	 .fp = 8,
	 .ra = 1,
	 .n_names = N(riscv_names),
	 .names = riscv_names},
	{.machine = EM_MIPS, .sp = 29, .fp = 30, .ra = 31},
	{.machine = EM_PPC64, .sp = 1, .fp = 31, .ra = 65},
	{.machine = EM_PPC, .sp = 1, .fp = 31, .ra = 65},
	{.machine = EM_S390, .sp = 15, .fp = 11, .ra = 14},
	{.machine = EM_LOONGARCH, .sp = 3, .fp = 22, .ra = 1},
};

static const struct uw_arch unknown = {.sp = UW_NO_REG, .fp = UW_NO_REG, .ra = UW_NO_REG};

const struct uw_arch *uw_arch_find(uint16_t machine)
{
	for (size_t i = 0; i < N(arches); i++)
		if (arches[i].machine == machine)
			return &arches[i];
	return &unknown;
}
