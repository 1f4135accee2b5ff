#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

#define MAX_CPUS 65536u

static bool parse_u32(const char **p, const char *end, uint32_t *out)
{
	uint64_t v = 0;
	const char *start = *p;
	while (*p < end && **p >= '0' && **p <= '9' && v < MAX_CPUS)
		v = v * 10 + (uint64_t)(*(*p)++ - '0');
	*out = (uint32_t)v;
	return *p > start && v < MAX_CPUS;
}

static bool cpu_add(uint32_t **cpus, size_t *n, size_t *cap, uint32_t cpu)
{
	size_t at = *n;
	while (at > 0 && (*cpus)[at - 1] > cpu)
		at--;
	if (at > 0 && (*cpus)[at - 1] == cpu)
		return true;
	if (!SP_PUSH(cpus, n, cap))
		return false;
	memmove(*cpus + at + 1, *cpus + at, (*n - 1 - at) * sizeof **cpus);
	(*cpus)[at] = cpu;
	return true;
}

bool cap_cpu_list_parse(uint32_t **cpus, size_t *n, size_t *cap, const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	while (end > p && (end[-1] == '\n' || end[-1] == ' '))
		end--;
	while (p < end) {
		uint32_t first, last;
		if (!parse_u32(&p, end, &first))
			return false;
		last = first;
		if (p < end && *p == '-') {
			p++;
			if (!parse_u32(&p, end, &last) || last < first)
				return false;
		}
		for (uint32_t c = first; c <= last; c++)
			if (!cpu_add(cpus, n, cap, c))
				return false;
		if (p < end && *p++ != ',')
			return false;
	}
	return *n > 0;
}

int64_t cap_number_read(const char *path)
{
	struct sp_buf b = {0};
	int64_t v = CAP_UNKNOWN;
	if (sp_file_read(path, 4096, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		char *end;
		if (!b.failed) {
			long long got = strtoll((const char *)b.data, &end, 10);
			if (end != (char *)b.data)
				v = got;
		}
	}
	sp_buf_deinit(&b);
	return v;
}

/* "cpuN" labels of /proc/stat: the second source, where sysfs is missing. */
static bool cpus_from_stat(struct cap_kernel *k, size_t *cap)
{
	struct sp_buf b = {0};
	if (sp_file_read("/proc/stat", 16 << 20, &b, NULL) < 0)
		return false;
	const char *p = (const char *)b.data, *end = p + b.len;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const char *stop = nl ? nl : end;
		const char *q = p + 3;
		uint32_t cpu;
		if (stop - p > 3 && !memcmp(p, "cpu", 3) && parse_u32(&q, stop, &cpu))
			cpu_add(&k->cpus, &k->n_cpus, cap, cpu);
		p = stop + 1;
	}
	sp_buf_deinit(&b);
	return k->n_cpus > 0;
}

int cap_kernel_cpus(struct cap_kernel *k, struct sp_err *err)
{
	struct sp_buf b = {0};
	size_t cap = 0;
	bool ok = false;
	if (sp_file_read("/sys/devices/system/cpu/online", 65536, &b, NULL) >= 0)
		ok = cap_cpu_list_parse(&k->cpus, &k->n_cpus, &cap, (const char *)b.data, b.len);
	sp_buf_deinit(&b);
	if (!ok) {
		k->n_cpus = 0;
		ok = cpus_from_stat(k, &cap);
	}
	if (!ok)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "cannot list the CPUs: /sys/devices/system/cpu/online and "
				  "/proc/stat name none");
	return 0;
}

int cap_kernel_read(struct cap_kernel *k, struct sp_err *err)
{
	*k = (struct cap_kernel){
		.paranoid = cap_number_read("/proc/sys/kernel/perf_event_paranoid"),
		.max_rate_hz = cap_number_read("/proc/sys/kernel/perf_event_max_sample_rate"),
		.mlock_kb = cap_number_read("/proc/sys/kernel/perf_event_mlock_kb"),
		.memlock_kb = CAP_UNKNOWN,
		.page_bytes = (size_t)sysconf(_SC_PAGESIZE),
		.n_cpus_avail = (uint32_t)sysconf(_SC_NPROCESSORS_CONF),
	};
	if (k->paranoid == CAP_UNKNOWN && access("/proc/sys/kernel", F_OK) == 0 &&
	    access("/proc/sys/kernel/perf_event_paranoid", F_OK) != 0)
		return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
				  "cannot sample: this kernel has no perf_event support "
				  "(/proc/sys/kernel/perf_event_paranoid is missing)");
	struct rlimit r;
	if (getrlimit(RLIMIT_MEMLOCK, &r) == 0)
		k->memlock_kb =
			r.rlim_cur == RLIM_INFINITY ? INT64_MAX : (int64_t)(r.rlim_cur / 1024);
	return cap_kernel_cpus(k, err);
}

size_t cap_kernel_find_cpu(const struct cap_kernel *k, uint32_t cpu)
{
	size_t at = cpu;
	if (at < k->n_cpus && k->cpus[at] == cpu)
		return at; /* all are online, mostly */
	for (at = 0; at < k->n_cpus && k->cpus[at] != cpu;)
		at++;
	return at;
}

int cap_kernel_uevents(void)
{
	const struct sockaddr_nl of_kernel = {.nl_family = AF_NETLINK, .nl_groups = 1};
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_KOBJECT_UEVENT);
	if (fd >= 0 && bind(fd, (const struct sockaddr *)&of_kernel, sizeof of_kernel) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

bool cap_kernel_told(int fd)
{
	static const char online[] = "online@/devices/system/cpu/cpu";
	char text[sizeof online];
	bool told = false;
	ssize_t n = -1;
	while (fd >= 0 && ((n = recv(fd, text, sizeof text, 0)) >= 0 || errno == ENOBUFS))
		told |= n < 0 || ((size_t)n >= sizeof online - 1 &&
				  !memcmp(text, online, sizeof online - 1));
	return told;
}

void cap_kernel_deinit(struct cap_kernel *k)
{
	free(k->cpus);
	*k = (struct cap_kernel){0};
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool cap_kernel_is_from(unsigned major, unsigned minor)
{
	struct utsname u;
	uint32_t has[2];
	const char *p = u.release, *end = u.release + sizeof u.release;
	if (uname(&u) < 0 || !parse_u32(&p, end, &has[0]) || *p++ != '.' ||
	    !parse_u32(&p, end, &has[1]))
		return false;
	return has[0] > major || (has[0] == major && has[1] >= minor);
}

int cap_seccomp_mode(void)
{
	struct sp_buf b = {0};
	int mode = 0;
	if (sp_file_read("/proc/self/status", 65536, &b, NULL) >= 0) {
		sp_buf_u8(&b, 0);
		const char *at = b.failed ? NULL : strstr((const char *)b.data, "\nSeccomp:");
		if (at)
			mode = at[9] == '\t' ? at[10] - '0' : 0;
	}
	sp_buf_deinit(&b);
	return mode;
}

bool cap_is_locked_down(void)
{
	struct sp_buf b = {0};
	bool is = sp_file_read("/sys/kernel/security/lockdown", 4096, &b, NULL) >= 0 &&
		  memmem(b.data, b.len, "[confidentiality]", 17);
	sp_buf_deinit(&b);
	return is;
}

uint64_t cap_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t cap_wall_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}
