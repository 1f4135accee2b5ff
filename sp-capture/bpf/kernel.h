/* The few structures of the kernel that the programs look into. Offsets are filled in at load time
 * from the running kernel's BTF (preserve_access_index), so only the names count here. */
#ifndef CAP_BPF_KERNEL_H
#define CAP_BPF_KERNEL_H

#include <linux/types.h>

typedef _Bool bool;
#define true 1
#define false 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	unsigned long start_stack;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end;
};

struct thread_struct {
	unsigned long fsbase; /* x86-64 */
};

struct thread_info {
	struct {
		__u32 count;
	} preempt; /* aarch64 */
};

struct sched_info {
	unsigned long pcount;            /* arrivals on a CPU */
	unsigned long long last_arrival; /* of the last one, by the scheduler's clock */
};

struct task_struct {
	struct sched_info sched_info;
	struct thread_info thread_info;
	int pid, tgid;
	unsigned int flags;
	unsigned int __state;
	void *stack;
	struct mm_struct *mm;
	struct thread_struct thread;
};

/* Before Linux 5.14 */
struct task_struct___old {
	long state;
};

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000

/* The user's registers as they lie at the top of a task's kernel stack: part of the ABI between
 * kernel and ptrace, hence fixed. */
#if defined(__TARGET_ARCH_arm64)
struct regs {
	__u64 x[31], sp, pc, pstate;
};
#define REGS_IP(r) ((r)->pc)
#define REGS_SP(r) ((r)->sp)
#define REGS_IS_USER(r) (((r)->pstate & 0xf) == 0)
#define REGS_IS_COMPAT(r) (((r)->pstate & 0x10) != 0)
#else
struct regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
		flags, sp, ss;
};
#define REGS_IP(r) ((r)->ip)
#define REGS_SP(r) ((r)->sp)
#define REGS_IS_USER(r) (((r)->cs & 3) == 3)
#define REGS_IS_COMPAT(r) (((r)->cs & 0xffff) == 0x23)
#endif

struct perf_context {
	struct regs regs;
	__u64 sample_period, addr;
};

#endif
