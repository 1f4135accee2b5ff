/* One recording: its events, rings and output, from attach to the end record. */
#ifndef CAP_SESSION_H
#define CAP_SESSION_H

#include "bpf_engine.h"
#include "embed.h"
#include "emit.h"
#include "events.h"
#include "execs.h"
#include "kernel.h"
#include "launch.h"
#include "limit.h"
#include "options.h"
#include "output.h"
#include "ring.h"
#include "system.h"

#define CAP_FILL_FULL 64u
#define CAP_SIDE_RING ((size_t)1 << 20) /* per CPU, of side-band alone: with the BPF engine */
#define CAP_PUMP_BYTES ((size_t)1 << 20) /* of embedded objects between two looks at the rings */

struct cap_control;

struct cap_task {
	int32_t pid, tid;
	enum cap_role role;
	int *fds;           /* owned: n_fds, by ring, -1 = closed; the BPF engine: only the first */
	uint64_t opened_ns; /* when the last of its events was open */
	bool ended;         /* its EXIT was seen: close once nobody inherits from it */
};

struct cap_root {
	int32_t pid;
	int pidfd; /* owned; -1 = no such call, /proc is asked */
	uint64_t start_ticks;
	bool gone;
};

struct cap_session {
	const struct cap_options *o; /* borrowed */
	struct cap_kernel kernel;
	struct cap_sampler sampler;
	/* Owned; one per CPU, or one more per CPU for its switches, or with the BPF engine one for
	 * its samples and, once that one grew, the one before. There is room for one more. */
	struct cap_ring *rings;
	size_t n_cpus, n_rings, ring_bytes;
	size_t first_ring_bytes, most_ring_bytes; /* the BPF engine's ring grows from the one to the other */
	uint64_t old_rings_written;               /* bytes, into those that are gone */
	size_t n_fds; /* of a task: one for each ring of those that are for good */
	struct cap_bpf *bpf; /* owned; NULL: the perf engine */
	uint64_t *bpf_lost;  /* owned; per CPU: what was told of the programs' losses */
	struct cap_execs execs;
	struct cap_emit emit;
	struct cap_embed_state embed;
	struct cap_output *out;
	struct cap_task *tasks; /* owned */
	size_t n_tasks, cap_tasks;
	struct sp_map64 by_tid; /* the task of a thread that we opened ourselves */
	struct sp_map64 forked; /* threads and processes seen born: time in an index of births */
	struct cap_birth {
		int32_t ptid;
		uint64_t time_ns;
	} * births; /* owned */
	size_t n_births, cap_births;
	struct cap_fork {
		int32_t pid, parent;
		uint64_t time_ns;
	} * forks; /* owned: processes whose fork waits in the rings */
	size_t n_forks, cap_forks;
	struct cap_root *roots; /* owned: what the user asked for */
	size_t n_roots, cap_roots;
	uint64_t *retired_lost; /* owned; per CPU: of events closed already */
	size_t n_ended;
	struct cap_pin {
		int32_t tid; /* 0 = free */
		int fd;
	} * pins; /* owned: see cap_sampler_pin */
	size_t n_pins, cap_pins;
	struct sp_map64 pin_of; /* index by tid, of a pin that may be another's by now */
	struct cap_launch launch;
	uint64_t start_ns, start_wall_ns, round_ns, enabled_ns, end_ns;
	uint64_t disabled_ns; /* the last time, by a command; 0 = never */
	uint64_t told_ns;     /* what the rings had up to then has been written */
	uint64_t n_bytes; /* of the stream */
	struct cap_recovery {
		size_t at; /* the process that is next */
		uint64_t sure_ns, spent_ns, not_before_ns;
		uint64_t patience_ns; /* between two rounds: longer while mappings may not be read */
		bool running, denied; /* denied: some could not be read in this round */
	} recovery; /* see recover.h */
	struct cap_system system; /* with -a, or side-band alone: with the BPF engine */
	struct cap_control *control;                  /* borrowed; NULL = none */
	void (*on_tick)(const struct cap_session *s); /* about once a second; may be NULL */
	uint64_t interval_ns; /* between two looks at the rings while they fill */
	int n_found;          /* records that were queued since the last drain */
	uint32_t fill;        /* of CAP_FILL_FULL: the fullest ring at the last look */
	size_t n_threads;     /* at the start */
	bool stacks_of_switches; /* waits by perf events, with their stacks */
	struct cap_limit limit;
	int out_fd;
	const char *out_name;
	bool rings_are_small; /* the budget allows no larger ones */
	bool attaching;     /* births are noted */
	bool is_paused;     /* disabled by a command */
	bool launch_failed; /* the command could not be run */
	const char *ended_by; /* what ended it, for the end record; a literal */
};

/* --- attach.c --- */

/* Whether the chosen processes and threads are there, not ourselves, and ours to sample: before a
 * byte is written. */
int cap_attach_check(struct cap_session *s, struct sp_err *err);
/* One of them. Of the session it takes the options, kernel, CPUs, sampler and output. */
int cap_attach_check_one(struct cap_session *s, int32_t id, bool is_process, struct sp_err *err);
/* Events for all threads of a process (and what it has mapped, into the stream). is_root: asked for
 * by the user: refusals are errors, and its end ends the recording. */
int cap_attach_process(struct cap_session *s, int32_t pid, bool is_root, struct sp_err *err);
int cap_attach_threads(struct cap_session *s, struct sp_err *err);
/* Look again at a process that is recorded: its mappings, the names of its
 * threads, with -f its descendants. */
struct cap_refreshed {
	int mappings, threads, descendants;
};
int cap_attach_refresh(struct cap_session *s, int32_t pid, struct cap_refreshed *found,
		       struct sp_err *err);
/* The launched command: events that begin with its exec. */
int cap_attach_launched(struct cap_session *s, int32_t pid, struct sp_err *err);
/* The same without events, for a recording of everything that ends with the command. */
int cap_attach_command(struct cap_session *s, int32_t pid, struct sp_err *err);
/* What a process is and has mapped, into the stream: nothing when it is gone. */
void cap_attach_describe(struct cap_session *s, int32_t pid);
/* A thread makes processes: pin its context. */
void cap_attach_pin(struct cap_session *s, int32_t tid);
/* A thread that we opened or pinned has ended. */
void cap_attach_ended(struct cap_session *s, int32_t tid);
/* An event of a thread proved to be a copy of an inherited one. */
void cap_attach_copy(struct cap_session *s, int32_t tid, size_t cpu_index);
/* Close the events of ended threads that nobody inherits from. */
void cap_attach_sweep(struct cap_session *s);
/* Disable or enable all events. */
void cap_attach_switch(struct cap_session *s, bool on);
/* What the kernel says it lost on a CPU, over all events that there were. */
uint64_t cap_attach_lost(const struct cap_session *s, size_t cpu_index);
void cap_attach_deinit(struct cap_session *s);

/* Descriptors with so many threads: of each one by BPF, else one for each ring; and the rest. */
static inline size_t cap_session_fds(const struct cap_session *s, size_t n_threads, bool is_bpf)
{
	return n_threads * (is_bpf ? 1 : s->n_fds) + cap_fds_besides(s->n_cpus);
}

/* --- drain.c --- */

/* The kernel's rings; behind them may be one of the BPF programs. */
static inline size_t cap_session_perf_rings(const struct cap_session *s)
{
	return s->bpf ? s->n_cpus : s->n_rings;
}

/* Queue what is new in the first n_rings rings, and take the arguments of execs. How many execs
 * there are among it: the events of execs see those of foreign processes too. */
int cap_session_look(struct cap_session *s, size_t n_rings, struct sp_err *err);
/* Scan all rings and write what is due; all: everything there is. The number of new records. */
int cap_session_drain(struct cap_session *s, bool all, struct sp_err *err);

/* --- loop.c --- */

/* From the attach until the targets, the time or the user end it. */
int cap_session_loop(struct cap_session *s, struct sp_err *err);

/* --- finish.c --- */

/* Whether the kernel's limit of the rate was lowered below ours: samples by BPF programs have no
 * THROTTLE records. */
void cap_session_limit(struct cap_session *s);
/* Disable, and enable again, by a command. Waits that are open end there, and begin there. */
int cap_session_pause(struct cap_session *s, struct sp_err *err);
void cap_session_resume(struct cap_session *s);
/* Drain, account, embed, end. */
int cap_session_finish(struct cap_session *s, struct sp_err *err);
/* The stages behind say why the recording ended: a short stream with an end record. */
void cap_session_tell_failure(struct cap_session *s, const struct sp_err *err);

/* --- session.c --- */

/* The whole recording of a session that is zero but for o, control and on_tick. cure (400 bytes):
 * what helps against a failure, or "". Returns 0 or an error. */
int cap_session_run(struct cap_session *s, int fd, const char *name, char *const *argv,
		    char cure[400], struct sp_err *err);
void cap_session_deinit(struct cap_session *s);

/* The ring that the CPUs share with the BPF engine, from options, kernel and sampler: what it
 * begins with, where it can grow, and what it grows to. */
void cap_session_bpf_ring(const struct cap_session *s, size_t *first, size_t *whole);
/* What each ring of the perf engine is to hold. */
size_t cap_session_perf_ring(const struct cap_session *s);
/* Set n_cpus and n_fds, once it is known whether switches have stacks. */
void cap_session_count(struct cap_session *s);

#endif
