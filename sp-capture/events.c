#define _GNU_SOURCE
#include "events.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static const struct cap_event_name events[] = {
	{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, false},
	{"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, false},
	{"cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES, false},
	{"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, false},
	{"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, false},
	{"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, false},
	{"bus-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BUS_CYCLES, false},
	{"ref-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES, false},
	{"cpu-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, true},
	{"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, true},
	{"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, false},
	{"minor-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN, false},
	{"major-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, false},
	{"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, false},
	{"cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, false},
	{"alignment-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_ALIGNMENT_FAULTS, false},
	{"emulation-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_EMULATION_FAULTS, false},
};
#define N_EVENTS (sizeof events / sizeof *events)

static const struct {
	const char *alias, *name;
} aliases[] = {
	{"cpu-cycles", "cycles"},
	{"faults", "page-faults"},
	{"cs", "context-switches"},
	{"migrations", "cpu-migrations"},
	{"branch-instructions", "branches"},
};

const struct cap_event_name *cap_event_find(const char *name)
{
	for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
		if (!strcmp(name, aliases[i].alias))
			name = aliases[i].name;
	for (size_t i = 0; i < N_EVENTS; i++)
		if (!strcmp(name, events[i].name))
			return &events[i];
	return NULL;
}

const char *cap_event_names(void)
{
	static char list[400];
	size_t n = 0;
	for (size_t i = 0; i < N_EVENTS && n < sizeof list; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
				      events[i].name);
	return list;
}

static void attr_make(struct cap_sampler *s, const struct cap_options *o)
{
	struct perf_event_attr *a = &s->attr;
	memset(a, 0, sizeof *a);
	a->size = sizeof *a;
	a->type = s->event->type;
	a->config = s->event->config;
	a->freq = 1;
	a->sample_freq = s->rate_hz;
	a->sample_type = CAP_SAMPLE_TYPE;
	a->read_format = PERF_FORMAT_LOST;
	a->sample_id_all = 1;
	a->sample_regs_user = CAP_REGS;
	a->sample_stack_user = o->stack_bytes;
	a->inherit = !o->all;
	a->inherit_thread = !o->follow;
	/* mmap_data: perf's own unwinder needs the read-only segments of files. */
	a->mmap = a->mmap2 = a->mmap_data = a->comm = a->comm_exec = a->task = 1;
	a->exclude_hv = 1;
	a->exclude_kernel = a->exclude_callchain_kernel = !o->kernel;
	a->exclude_callchain_user = 1;
	a->use_clockid = 1;
	a->clockid = CLOCK_MONOTONIC;
	a->watermark = 1;
	a->wakeup_watermark = 1u << 20;
	if (o->command && !o->delay_ns) {
		a->disabled = 1;
		a->enable_on_exec = 1;
	}
}

int cap_sampler_init(struct cap_sampler *s, const struct cap_options *o,
		     const struct cap_kernel *kernel, struct sp_err *err)
{
	memset(s, 0, sizeof *s);
	s->kernel = kernel;
	s->cgroup_fd = -1;
	s->rate_hz = o->rate_hz;
	if (kernel->max_rate_hz != CAP_UNKNOWN && kernel->max_rate_hz > 0) {
		uint64_t max = (uint64_t)kernel->max_rate_hz;
		if (s->rate_hz > max) {
			snprintf(s->cure, sizeof s->cure,
				 "use -F %llu or -F max, or: sudo sysctl "
				 "kernel.perf_event_max_sample_rate=%llu",
				 (unsigned long long)max, (unsigned long long)s->rate_hz);
			return sp_err_set(err, SP_ERR_LIMIT, 0,
					  "cannot sample at %llu Hz: the kernel's limit is %llu Hz "
					  "(/proc/sys/kernel/perf_event_max_sample_rate)",
					  (unsigned long long)s->rate_hz, (unsigned long long)max);
		}
		if (s->rate_hz == 0)
			s->rate_hz = max;
	} else if (s->rate_hz == 0) {
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "cannot sample at the maximum rate: "
				  "/proc/sys/kernel/perf_event_max_sample_rate is unreadable");
	}
	s->event = cap_event_find(o->event ? o->event : "cycles");
	s->may_change_event = !o->event;
	s->kernel_frames = o->kernel;
	s->has_lost = true;
	s->threads_only = !o->follow;
	s->idle_out = o->all && !o->idle;
	attr_make(s, o);
	return 0;
}

bool cap_fds_raise(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= r.rlim_max)
		return false;
	r.rlim_cur = r.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &r) == 0;
}

static int perf_event_open(const struct perf_event_attr *a, int32_t tid, uint32_t cpu)
{
	return (int)syscall(SYS_perf_event_open, a, tid, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static int cpu_event_open(const struct cap_sampler *s, const struct perf_event_attr *a,
			  uint32_t cpu)
{
	if (s->cgroup_fd < 0)
		return perf_event_open(a, -1, cpu);
	return (int)syscall(SYS_perf_event_open, a, s->cgroup_fd, (int)cpu, -1,
			    PERF_FLAG_FD_CLOEXEC | PERF_FLAG_PID_CGROUP);
}

enum cap_role cap_role_of_switches(enum cap_role role)
{
	return role == CAP_SAMPLES_ALL     ? CAP_SWITCHES_ALL
	       : role == CAP_SAMPLES_ALONE ? CAP_SWITCHES_ALONE
					   : CAP_SWITCHES;
}

static void to_role(struct perf_event_attr *a, enum cap_role role)
{
	bool side_band = role == CAP_SIDE_BAND || role == CAP_SIDE_BAND_ALL;
	bool by_bpf = role == CAP_BPF_SAMPLES || role == CAP_BPF_ALONE || role == CAP_BPF_ALL;
	bool switches = role >= CAP_SWITCHES;
	bool all = role == CAP_SAMPLES_ALL || role == CAP_SIDE_BAND_ALL || role == CAP_BPF_ALL ||
		   role == CAP_SWITCHES_ALL;
	bool alone =
		role == CAP_SAMPLES_ALONE || role == CAP_BPF_ALONE || role == CAP_SWITCHES_ALONE;
	if (!side_band && (all || alone || by_bpf || switches))
		a->mmap = a->mmap2 = a->mmap_data = a->comm = a->comm_exec = a->task = 0;
	if (alone || all)
		a->inherit = a->inherit_thread = 0;
	if (side_band || by_bpf || switches)
		a->context_switch = 0;
	if (by_bpf) {
		/* The program looks for itself. */
		a->sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_PERIOD;
		a->sample_regs_user = a->sample_stack_user = 0;
		a->exclude_callchain_kernel = a->exclude_callchain_user = 0;
	}
	if (all) {
		a->enable_on_exec = 0;
		a->disabled = !side_band;
	}
	if (side_band || switches) {
		a->type = PERF_TYPE_SOFTWARE;
		a->config = side_band ? PERF_COUNT_SW_DUMMY : PERF_COUNT_SW_CONTEXT_SWITCHES;
		a->freq = 0;
		a->sample_period = 1;
		a->exclude_kernel = side_band; /* where every switch is */
		a->exclude_idle = 0;
	}
}

/* Change what is asked for in answer to an errno; false when there is nothing left to change. Only
 * before the first event is open: all events of a recording are of one kind. */
static bool change_request(struct cap_sampler *s, int os)
{
	struct perf_event_attr *a = &s->attr;
	bool no_pmu = os == ENOENT || os == ENODEV || os == ENXIO || os == EOPNOTSUPP;
	if (s->settled)
		return false;
	if ((os == EACCES || os == EPERM) && s->kernel_frames) {
		s->kernel_frames = false;
		a->exclude_kernel = a->exclude_callchain_kernel = 1;
		snprintf(s->kernel_refusal, sizeof s->kernel_refusal,
			 "perf_event_open: %s (perf_event_paranoid is %lld)", strerror(os),
			 (long long)s->kernel->paranoid);
		return true;
	}
	if (os == EOPNOTSUPP && !a->exclude_guest) {
		a->exclude_guest = 1;
		return true;
	}
	if (no_pmu && s->may_change_event) {
		snprintf(s->event_refusal, sizeof s->event_refusal, "perf_event_open: %s",
			 strerror(os));
		s->may_change_event = false;
		s->event = cap_event_find("cpu-clock");
		a->type = s->event->type;
		a->config = s->event->config;
		a->exclude_guest = 0;
		return true;
	}
	if (os == EINVAL && s->has_lost) { /* before Linux 6.0 */
		s->has_lost = false;
		a->read_format = 0;
		return true;
	}
	if (os == EINVAL && a->inherit_thread) { /* before Linux 5.13 */
		a->inherit_thread = 0;
		return true;
	}
	return false;
}

/* The kernel lowers its limit by itself under load: later events follow it. */
static bool clamp_rate(struct cap_sampler *s, int os)
{
	int64_t now = os == EINVAL && s->settled
			      ? cap_number_read("/proc/sys/kernel/perf_event_max_sample_rate")
			      : 0;
	if (now <= 0 || (uint64_t)now >= s->attr.sample_freq)
		return false;
	s->attr.sample_freq = (uint64_t)now;
	return true;
}

static void cure_permission(struct cap_sampler *s, int32_t tid)
{
	char path[40];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d", tid);
	bool foreign = geteuid() != 0 && stat(path, &st) == 0 && st.st_uid != geteuid();
	if (tid == CAP_ANY_TASK && cap_seccomp_mode() != 2)
		snprintf(s->cure, sizeof s->cure,
			 "run it as root (CAP_PERFMON is enough), or: sudo sysctl "
			 "kernel.perf_event_paranoid=0; your own processes go without: -p PID");
	else if (s->kernel->paranoid >= 3)
		snprintf(s->cure, sizeof s->cure,
			 "run it as root, or: sudo sysctl kernel.perf_event_paranoid=2");
	else if (foreign)
		snprintf(s->cure, sizeof s->cure,
			 "%d belongs to user %u: run sp-capture as that user or as root", tid,
			 (unsigned)st.st_uid);
	else if (cap_seccomp_mode() == 2)
		snprintf(s->cure, sizeof s->cure,
			 "a seccomp filter is in force here (/proc/self/status: Seccomp: 2): allow "
			 "perf_event_open in the container's profile, with CAP_PERFMON");
	else
		snprintf(s->cure, sizeof s->cure,
			 "run it as root: the target may be set-user-id or have made itself "
			 "non-dumpable");
}

static int explain(struct cap_sampler *s, int os, int32_t tid, uint32_t cpu, size_t n_wanted,
		   struct sp_err *err)
{
	struct rlimit r = {0};
	int code = os == EACCES || os == EPERM ? SP_ERR_PERM
		   : os == ESRCH               ? SP_ERR_GONE
					       : SP_ERR_IO;
	char value[120] = "";
	s->cure[0] = 0;
	if (code == SP_ERR_PERM) {
		snprintf(value, sizeof value, " (perf_event_paranoid is %lld)",
			 (long long)s->kernel->paranoid);
		cure_permission(s, tid);
	} else if (os == EMFILE) {
		getrlimit(RLIMIT_NOFILE, &r);
		snprintf(value, sizeof value,
			 " (%zu descriptors are needed for all threads; the limit is %llu)",
			 n_wanted, (unsigned long long)r.rlim_max);
		snprintf(s->cure, sizeof s->cure, "raise the limit: ulimit -n %zu (as root)",
			 n_wanted);
	} else if (os == ENODEV && tid == CAP_ANY_TASK && s->settled) {
		snprintf(value, sizeof value, " (the CPU is offline)");
	} else if (os == ENOENT || os == ENODEV || os == ENXIO || os == EOPNOTSUPP) {
		snprintf(value, sizeof value, " (event %s: no such counter here)", s->event->name);
		snprintf(s->cure, sizeof s->cure, "use -e cpu-clock, which is there always");
	} else if (os == ENOSYS) {
		snprintf(s->cure, sizeof s->cure,
			 "this kernel was built without CONFIG_PERF_EVENTS");
	}
	if (tid == CAP_ANY_TASK)
		return sp_err_set(err, code, os,
				  "cannot sample all that CPU %u runs: perf_event_open: %s%s", cpu,
				  strerror(os), value);
	if (cpu == CAP_ANY_CPU)
		return sp_err_set(err, code, os, "cannot sample thread %d: perf_event_open: %s%s",
				  tid, strerror(os), value);
	return sp_err_set(err, code, os, "cannot sample thread %d on CPU %u: perf_event_open: %s%s",
			  tid, cpu, strerror(os), value);
}

int cap_sampler_open(struct cap_sampler *s, enum cap_role role, int32_t tid, uint32_t cpu,
		     size_t n_wanted, struct sp_err *err)
{
	for (;;) {
		struct perf_event_attr a = s->attr;
		to_role(&a, role);
		int fd = tid == CAP_ANY_TASK ? cpu_event_open(s, &a, cpu)
					     : perf_event_open(&a, tid, cpu);
		if (fd >= 0)
			return fd;
		int os = errno;
		if (os == EINTR)
			continue;
		if (os == EMFILE && !s->fds_raised) {
			s->fds_raised = true;
			if (cap_fds_raise())
				continue;
		}
		if (!change_request(s, os) && !clamp_rate(s, os))
			return explain(s, os, tid, cpu, n_wanted, err);
	}
}

int cap_sampler_open_cpu(struct cap_sampler *s, enum cap_role role, uint32_t cpu,
			 struct sp_err *err)
{
	size_t n = s->kernel->n_cpus;
	return cap_sampler_open(s, role, CAP_ANY_TASK, cpu, 4 * n + cap_fds_besides(n), err);
}

int cap_sampler_probe(struct cap_sampler *s, struct sp_err *err)
{
	struct perf_event_attr attr = s->attr;
	size_t n = s->kernel->n_cpus;
	s->attr.disabled = 1;
	int fd = cap_sampler_open(s, CAP_SAMPLES, (int32_t)getpid(), s->kernel->cpus[0],
				  n + cap_fds_besides(n), err);
	s->attr.disabled = attr.disabled;
	s->settled = true;
	/* Hardware counters do not know idle tasks; those of some CPUs refuse the flag. */
	s->attr.exclude_idle = s->idle_out && s->attr.type == PERF_TYPE_SOFTWARE;
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

void cap_sampler_switch(struct cap_sampler *s, bool on)
{
	s->attr.disabled = !on;
	s->attr.enable_on_exec = 0;
}

bool cap_sampler_tell_switches(struct cap_sampler *s, char refusal[160])
{
	s->attr.context_switch = 1;
	struct perf_event_attr a = s->attr;
	to_role(&a, CAP_SWITCHES_ALONE);
	a.disabled = 1;
	int fd = perf_event_open(&a, 0, CAP_ANY_CPU);
	if (fd < 0) {
		snprintf(refusal, 160, "perf_event_open: %s (perf_event_paranoid is %lld)",
			 strerror(errno), (long long)s->kernel->paranoid);
		return false;
	}
	close(fd);
	return true;
}

int cap_sampler_anchor(struct cap_sampler *s, uint32_t cpu, uint32_t watermark_bytes,
		       struct sp_err *err)
{
	struct perf_event_attr a = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof a,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_period = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.watermark = 1,
		.wakeup_watermark = watermark_bytes,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	int fd = perf_event_open(&a, 0, cpu);
	if (fd < 0 && errno == EMFILE && cap_fds_raise())
		fd = perf_event_open(&a, 0, cpu);
	size_t n = s->kernel->n_cpus;
	if (fd < 0)
		return explain(s, errno, getpid(), cpu, n + cap_fds_besides(n), err);
	return fd;
}

int cap_sampler_pin(int32_t tid)
{
	struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
				    .size = sizeof a,
				    .config = PERF_COUNT_SW_DUMMY,
				    .disabled = 1,
				    .exclude_kernel = 1,
				    .exclude_hv = 1};
	return (int)syscall(SYS_perf_event_open, &a, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

int cap_sampler_execs(const struct cap_sampler *s, uint32_t cpu, uint64_t tracepoint,
		      uint32_t stack_bytes)
{
	struct perf_event_attr a = {.type = PERF_TYPE_TRACEPOINT,
				    .size = sizeof a,
				    .config = tracepoint,
				    .sample_period = 1,
				    .sample_type = CAP_SAMPLE_TYPE,
				    .sample_id_all = 1,
				    .sample_regs_user = CAP_REGS,
				    .sample_stack_user = stack_bytes,
				    .exclude_callchain_kernel = 1,
				    .exclude_callchain_user = 1,
				    .use_clockid = 1,
				    .clockid = CLOCK_MONOTONIC,
				    .wakeup_events = 1};
	return cpu_event_open(s, &a, cpu);
}

int cap_sampler_pulse(uint32_t cpu)
{
	struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
				    .size = sizeof a,
				    .config = PERF_COUNT_SW_CPU_CLOCK,
				    .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
				    .exclude_kernel = 1,
				    .exclude_hv = 1};
	return perf_event_open(&a, -1, cpu);
}

/* Each of the events has two words to read: the count, then what PERF_FORMAT_LOST or
 * PERF_FORMAT_TOTAL_TIME_ENABLED asks for. */
static uint64_t read_word(int fd, unsigned at)
{
	uint64_t v[2] = {0};
	return fd >= 0 && read(fd, v, sizeof v) == sizeof v ? v[at] : 0;
}

uint64_t cap_event_value(int fd)
{
	return read_word(fd, 0);
}

uint64_t cap_event_lost(int fd)
{
	return read_word(fd, 1);
}

void cap_sampler_attr(const struct cap_sampler *s, struct sp_attr *out)
{
	const struct perf_event_attr *a = &s->attr;
	_Static_assert(offsetof(struct perf_event_attr, wakeup_events) ==
			       offsetof(struct perf_event_attr, read_format) + 16,
		       "the flags are one u64 after read_format");
	memset(out, 0, sizeof *out);
	out->type = a->type;
	out->size = 128;
	out->config = a->config;
	out->sample_period = a->sample_freq;
	out->sample_type = a->sample_type;
	out->read_format = a->read_format;
	memcpy(&out->flags, (const char *)a + offsetof(struct perf_event_attr, read_format) + 8, 8);
	out->flags &= ~(SP_ATTR_DISABLED | SP_ATTR_ENABLE_ON_EXEC | SP_ATTR_CONTEXT_SWITCH);
	out->sample_regs_user = a->sample_regs_user;
	out->sample_stack_user = a->sample_stack_user;
	out->wakeup = a->wakeup_watermark;
	out->clockid = a->clockid;
}

void cap_sampler_off_attr(struct sp_attr *a)
{
	a->type = PERF_TYPE_SOFTWARE;
	a->config = PERF_COUNT_SW_BPF_OUTPUT;
	a->sample_period = 1;
	a->flags &= ~SP_ATTR_FREQ;
}
