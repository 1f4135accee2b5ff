/* Opening perf events: what is asked of the kernel, and what is asked for instead when it refuses.
 */
#ifndef CAP_EVENTS_H
#define CAP_EVENTS_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernel.h"
#include "options.h"
#include "perf/record.h"

struct cap_event_name {
	const char *name;
	uint32_t type; /* PERF_TYPE_* */
	uint64_t config;
	bool is_clock; /* its period is in ns */
};

const struct cap_event_name *cap_event_find(const char *name); /* or NULL */
const char *cap_event_names(void);                             /* "cycles, …" for messages */

#define CAP_SAMPLE_TYPE                                                                            \
	((uint64_t)(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
		    PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN |                 \
		    PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER))

#if defined(__x86_64__)
/* All 16 general registers and ip: a CFA may be based on any of them. */
#define CAP_REGS UINT64_C(0xff01ff)
#define CAP_N_REGS 17u
#define CAP_REG_SP 7u /* index among the sampled ones */
#define CAP_REG_IP 8u
#elif defined(__aarch64__)
#define CAP_REGS UINT64_C(0x1ffffffff) /* x0-x29, lr, sp, pc */
#define CAP_N_REGS 33u
#define CAP_REG_SP 31u
#define CAP_REG_IP 32u
#else
#error "sp-capture knows the registers of x86-64 and aarch64 only"
#endif

enum cap_role {
	CAP_SAMPLES,       /* samples with side-band */
	CAP_SAMPLES_ALONE, /* samples of one thread, without side-band and inheritance */
	CAP_SIDE_BAND,     /* side-band only */
	CAP_SAMPLES_ALL,   /* samples of all that a CPU runs, without side-band; begins disabled */
	CAP_SIDE_BAND_ALL, /* side-band of all that a CPU runs; the tid is CAP_ANY_TASK */
	CAP_BPF_SAMPLES,   /* for a BPF program: no ring, no side-band, on all CPUs (CAP_ANY_CPU) */
	CAP_BPF_ALONE,     /* the same of one thread, not inherited */
	CAP_BPF_ALL,       /* the same of all that a CPU runs; begins disabled */
	/* A sample at each switch away, without side-band; the rest as the CAP_SAMPLES* have it. */
	CAP_SWITCHES,
	CAP_SWITCHES_ALONE,
	CAP_SWITCHES_ALL,
};

/* Of the events that sample a thread or a CPU: those that sample its switches. */
enum cap_role cap_role_of_switches(enum cap_role role);

#define CAP_ANY_CPU UINT32_MAX
#define CAP_ANY_TASK (-1) /* in place of a tid: all that a CPU runs */

struct cap_sampler {
	const struct cap_kernel *kernel; /* borrowed */
	const struct cap_event_name *event;
	struct perf_event_attr attr; /* of CAP_SAMPLES, as it is opened */
	bool may_change_event;       /* cycles was our choice, not the user's */
	bool kernel_frames;          /* what came of -k */
	bool has_lost;               /* PERF_FORMAT_LOST works (6.0 and later) */
	bool threads_only;           /* inherit_thread: children are not followed */
	bool settled;                /* the choices are made */
	bool fds_raised;
	bool idle_out; /* the idle tasks are not wanted */
	int cgroup_fd; /* borrowed: CPU events are for this cgroup only; -1 = for all */
	uint64_t rate_hz;
	char kernel_refusal[160]; /* why -k became user-only, else "" */
	char event_refusal[160];  /* why cycles became cpu-clock, else "" */
	char cure[320];           /* of the last error, or "" */
};

/* Fails when the rate is above the kernel's limit. */
int cap_sampler_init(struct cap_sampler *s, const struct cap_options *o,
		     const struct cap_kernel *kernel, struct sp_err *err);

/* One event for a thread on a CPU. The descriptor, or an error with s->cure set; SP_ERR_GONE when
 * the thread has ended. n_wanted: how many descriptors the whole attach needs, for the message. */
int cap_sampler_open(struct cap_sampler *s, enum cap_role role, int32_t tid, uint32_t cpu,
		     size_t n_wanted, struct sp_err *err);

/* One event for a CPU, whatever runs there. ENODEV (in err->os), once the choices are made: the CPU
 * is offline, or about to be. */
int cap_sampler_open_cpu(struct cap_sampler *s, enum cap_role role, uint32_t cpu,
			 struct sp_err *err);

/* Find out on our own thread what this machine gives: settles the event and the kernel frames. */
int cap_sampler_probe(struct cap_sampler *s, struct sp_err *err);

/* Whether events that are opened from now on run at once. Before, those of a launched command begin
 * with its exec. */
void cap_sampler_switch(struct cap_sampler *s, bool on);

/* Have the sampling events tell of switches away and back, by records that are no samples. Whether
 * switches may be sampled too, for the stacks: else the reason (160 bytes). */
bool cap_sampler_tell_switches(struct cap_sampler *s, char refusal[160]);

/* The event on our own thread that owns a CPU's ring: it never ends, so it never hangs up. */
int cap_sampler_anchor(struct cap_sampler *s, uint32_t cpu, uint32_t watermark_bytes,
		       struct sp_err *err);

/* A disabled event that children do not inherit. While a thread has one, the kernel cannot swap
 * event contexts between it and its children as it switches from one to the other. With a clock
 * event such a swap hands the started period to the child, which dies with it: a shell that runs
 * short commands got 3 samples/s instead of 80 (Linux 6.18, perf_event_context_sched_out). */
int cap_sampler_pin(int32_t tid);

/* Execs on a CPU, by the number of their tracepoint, with registers and the first stack_bytes of
 * the new program's stack, laid out as samples are; for a ring of its own, that is readable as soon
 * as there is one. The descriptor, or -1. */
int cap_sampler_execs(const struct cap_sampler *s, uint32_t cpu, uint64_t tracepoint,
		      uint32_t stack_bytes);

/* A counter that goes on as long as a CPU is there, and stands still for good when that went away,
 * as all its events do; or -1. */
int cap_sampler_pulse(uint32_t cpu);

/* Of an open event: its counter, and what the kernel says that it lost of its records (where
 * PERF_FORMAT_LOST works); 0 when it cannot be read. */
uint64_t cap_event_value(int fd);
uint64_t cap_event_lost(int fd);

/* The attr as the stream describes it. */
void cap_sampler_attr(const struct cap_sampler *s, struct sp_attr *out);

/* The attr of the sampling event made that of offcpu-time (stream.md, "Off-CPU"): nobody opens it.
 */
void cap_sampler_off_attr(struct sp_attr *a);

/* The soft limit of descriptors up to the hard one; true when it rose. */
bool cap_fds_raise(void);
/* Descriptors besides those of what is sampled: of rings, programs, files that are read. */
static inline size_t cap_fds_besides(size_t n_cpus)
{
	return 4 * n_cpus + 64;
}

#endif
