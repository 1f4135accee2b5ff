/* Recording all that the CPUs run (-a), or all of a control group: two events on each CPU, whatever
 * the number of processes. The BPF engine has its side-band this way in every recording.
 *
 * Side-band first: from then on every fork, exec, mapping and exit is in the rings. Then what is
 * there already is read from /proc, while the rings are drained. Sampling begins after that, so
 * that no sample is older than what the stream knows of its process.
 *
 * The events of a CPU die as it goes offline. When it is back they are opened anew, as those of one
 * that was not there at the start; what it ran before that may be missing, which counts as one
 * record lost, and makes the state of the processes be read again. */
#ifndef CAP_SYSTEM_H
#define CAP_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cgroup.h"
#include "events.h"
#include "scope.h"

struct cap_session;

struct cap_cpu_events {
	int side, sample;  /* owned; -1 = closed */
	int switches;      /* owned: samples them; -1 = closed */
	int pulse;         /* owned: a counter that goes on while the CPU is there */
	uint64_t pulse_ns; /* its value at the last look */
	uint64_t alive_ns; /* when its events last were seen to live; 0 = not yet */
	/* Of counted samples: the clock at the last look, and how many the kernel was let take. */
	uint64_t sample_ns, n_given;
};

struct cap_system {
	struct cap_cpu_events *cpus; /* owned; by CPU index */
	size_t n;
	struct cap_cgroup cgroup;
	struct cap_scopes scopes;
	uint64_t looked_ns, on_ns;
	int uevent_fd;        /* owned: the kernel tells of CPUs that come; -1 = it does not */
	uint64_t n_came;      /* CPUs that came (back), for which records count as lost */
	size_t reap_at;       /* the process to be looked at next */
	size_t n_processes;   /* at the start */
	bool on, over;        /* over: the control group is gone */
};

/* Before a byte is written: the control group is there, and a CPU may be sampled. */
int cap_system_prepare(struct cap_session *s, struct sp_err *err);
int cap_system_begin(struct cap_session *s, struct sp_err *err);
/* Without -a, before the attach. The BPF engine: side-band alone, its samples come without. The perf
 * engine, whose events live on while a CPU is away: only what tells that the events of execs do not. */
int cap_system_watch(struct cap_session *s, struct sp_err *err);
/* At rates whose interrupts leave no time to anybody, not to us either, the kernel counts
 * (PERF_EVENT_IOC_REFRESH), and stops after so many; then we run, and have it go on. */
bool cap_system_is_counted(const struct cap_session *s);
/* CPUs that came (back): as the kernel tells of them, or about once a second; and a control group
 * that went. True when there are other descriptors to be waited for. */
bool cap_system_tick(struct cap_session *s);
/* CPUs that came (back), now. True as above. */
bool cap_system_look(struct cap_session *s);
/* Whether a sample belongs to the recording; session: a struct cap_session. */
bool cap_system_wants(void *session, int32_t pid, bool has_regs, uint64_t time_ns);
void cap_system_switch(struct cap_session *s, bool on);
/* Whether it has events of its own on each CPU that records are made from. */
bool cap_system_records(const struct cap_session *s);
/* What the kernel says that it lost of the events that are open on a CPU. */
uint64_t cap_system_lost(const struct cap_session *s, size_t cpu_index);
/* "all processes (123)" */
void cap_system_name(const struct cap_session *s, char *out, size_t size);
void cap_system_deinit(struct cap_session *s);

#endif
