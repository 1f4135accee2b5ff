/* What the BPF programs hand to sp-capture through their ring: one record a sample. Included by the
 * programs (capture.bpf.c) and by the reader (bpf_engine.c). All fields are of this machine's
 * order.
 *
 * Record: struct spb_sample, n_kernel return addresses of 8 bytes, stack_bytes of the user's stack
 * from its sp upwards, and room that was reserved but not used. */
#ifndef CAP_BPF_RECORD_H
#define CAP_BPF_RECORD_H

#include <linux/types.h>

#if defined(__TARGET_ARCH_arm64) || (!defined(__TARGET_ARCH_x86) && defined(__aarch64__))
#define SPB_N_REGS 33
#else
#define SPB_N_REGS 17
#endif

#define SPB_MAX_STACK (2048u << 10)
#define SPB_MAX_CHAIN 127
#define SPB_MAX_CPUS 1024

/* What a kernel may lack. Set in spb_without, the programs do without although it is there: that is
 * how the tests come to the fallbacks. */
#define SPB_DYNPTR                                                                                 \
	1u /* bpf_ringbuf_reserve_dynptr, Linux 5.19: else a scratch copy of at most 64 KiB */
#define SPB_USER_DYN 2u /* bpf_probe_read_user_dynptr, Linux 6.16: else slices of a page */
#define SPB_FIND_VMA                                                                               \
	4u /* bpf_find_vma, Linux 5.17: else the stack is copied until a page is missing */
#define SPB_TASK_REGS                                                                              \
	8u /* bpf_task_pt_regs, Linux 5.15: else they are looked for at the stack's top */
#define SPB_TASK_WORK 16u /* bpf_task_work_schedule_resume_impl, Linux 6.18: see spb_after */

#define SPB_COOKIE                                                                                 \
	32u /* bpf_get_attach_cookie, Linux 5.15: else inherited events are not told from own */
#define SPB_EXIT 64u /* tracepoint sched_exit_tp, Linux 6.14: see off_cpu.h */
#define SPB_SWITCHES 128u /* of switches back half are not told: see off_cpu.h, untold */
#define SPB_LOADER 256u /* loading by a program in the kernel, Linux 5.17: else by libbpf */

#define SPB_ON_CPU 1u
#define SPB_WAIT 2u  /* a time off the CPU, without user side: see off_cpu.h */
#define SPB_STACK 3u /* the user side of waits */

#define SPB_IN_KERNEL 1u /* interrupted in the kernel */
#define SPB_HAS_REGS 2u
#define SPB_COMPAT 4u   /* a 32-bit task */
#define SPB_CLIPPED 8u  /* the copy ends where the stack does */
#define SPB_LATE 32u /* a wait of which no stack will come after, as when its end was found late */

#define SPB_COMM 16 /* TASK_COMM_LEN */

#define SPB_WINDOW_SHIFT 24 /* rates of waits are limited by windows of 2^24 ns, 17 ms */
/* Of each window the last quarter is for waits that take long: many short ones do not push them out. */
#define SPB_LONG_NS 1000000
#define SPB_FOR_SHORT(window) ((window) - (window) / 4)

struct spb_sample {
	__u64 time_ns; /* CLOCK_MONOTONIC; of a wait: its end */
	__u32 pid, tid, cpu;
	__u16 kind, flags;
	__u64 id; /* which event, 0 = an inherited one; of a wait and its stack: when it began */
	__u64 period; /* of the event; of a wait: ns; of a stack copied after: the first wait's end
		       */
	__u64 ip;
	__u32 n_kernel, stack_bytes;
	__u32 state; /* of a wait: the task's state bits */
	__u32 waker_pid, waker_tid, zero;
	union {
		__u64 regs[SPB_N_REGS]; /* the user's, in the order of perf's register numbers */
		char waker_comm[SPB_COMM]; /* of a wait */
	};
};

/* What the programs for time off the CPU know of a CPU, and count there: spb_cpus. */
struct spb_cpu {
	__u64 n_short, short_ns;   /* waits shorter than the least */
	__u64 n_over, over_ns;     /* beyond the rate */
	__u64 n_untold;            /* whose ends sched_switch did not tell */
	__u64 n_missed, missed_ns; /* and those not found */
	__u64 clock_ns; /* our clock less the scheduler's; 0: not known */
	__u64 n_clock;  /* of how many it is the mean */
	/* Who was told to get the CPU last, and when; the innermost kernel frame of the thread whose
	 * wait ended so, and which that was. */
	__u64 in_ns, chain_ip;
	__u32 in_tid, chain_tid;
	__u64 in_count; /* its arrivals, that one too */
} __attribute__((aligned(128)));

/* A thread that is off the CPU now: spb_waits, by tid. */
struct spb_wait {
	__u64 out_ns; /* 0: it is not */
	__u32 state, waker_pid, waker_tid, pid;
	char waker_comm[SPB_COMM];
	__u64 was_long; /* the one before */
};

#endif
