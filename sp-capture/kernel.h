/* What this machine's kernel allows: read once, quoted in every refusal. */
#ifndef CAP_KERNEL_H
#define CAP_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CAP_UNKNOWN INT64_MIN

struct cap_kernel {
	int64_t paranoid;    /* /proc/sys/kernel/perf_event_paranoid; CAP_UNKNOWN = unreadable */
	int64_t max_rate_hz; /* …/perf_event_max_sample_rate */
	int64_t mlock_kb;    /* …/perf_event_mlock_kb, per user and CPU */
	int64_t memlock_kb;  /* RLIMIT_MEMLOCK, INT64_MAX = unlimited */
	size_t page_bytes;
	uint32_t *cpus; /* owned: online CPUs, sorted; those that came later behind them */
	size_t n_cpus;
	uint32_t n_cpus_avail; /* configured ones */
};

int cap_kernel_read(struct cap_kernel *k, struct sp_err *err);
/* The online CPUs alone, as they are now. */
int cap_kernel_cpus(struct cap_kernel *k, struct sp_err *err);
/* Where a CPU stands in the list; n_cpus: it is not there. */
size_t cap_kernel_find_cpu(const struct cap_kernel *k, uint32_t cpu);
/* A socket on which the kernel tells of CPUs that come online, or -1 (uevents; other network
 * namespaces may not have them). Whether it told of one, or may have, since the last call. */
int cap_kernel_uevents(void);
bool cap_kernel_told(int fd);
void cap_kernel_deinit(struct cap_kernel *k);

/* "0-3,8": appended to a sorted, distinct list. False when empty or malformed. */
bool cap_cpu_list_parse(uint32_t **cpus, size_t *n, size_t *cap, const char *text, size_t len);

/* A small file's whole number, or CAP_UNKNOWN. */
int64_t cap_number_read(const char *path);

/* Whether it is of that version or a later one; a version that cannot be read is none. */
bool cap_kernel_is_from(unsigned major, unsigned minor);

/* What else refuses: a filter of our system calls (2), a kernel that hides its memory from root. */
int cap_seccomp_mode(void);
bool cap_is_locked_down(void);

uint64_t cap_now_ns(void);  /* CLOCK_MONOTONIC: the events' clock */
uint64_t cap_wall_ns(void); /* CLOCK_REALTIME */

#endif
