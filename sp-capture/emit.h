/* From ring records and /proc to stream records: ids made canonical, stacks trimmed, processes
 * tracked, and what the kernel did not say - mappings that existed, losses, exec markers - added in
 * time order. */
#ifndef CAP_EMIT_H
#define CAP_EMIT_H

#include "base/counters.h"
#include "cmdlines.h"
#include "output.h"
#include "perf/ext.h"
#include "procs.h"
#include "ring.h"
#include "stacks.h"
#include "throttles.h"
#include "waits.h"

#define CAP_EVENT_ID UINT64_C(1) /* the one id of the sampling event's attr */
#define CAP_OFF_ID UINT64_C(2)   /* that of offcpu-time */

struct cap_loss {
	uint64_t from_ns, to_ns, count; /* not told to the stream yet */
};

struct cap_emit {
	struct cap_output *out; /* borrowed */
	struct cap_procs procs;
	struct cap_stacks stacks;
	struct cap_waits waits;
	struct cap_throttles throttles;
	struct sp_counters counters;
	struct sp_map64 kernel_ips; /* distinct kernel addresses of samples */
	struct sp_map64 names;      /* by tid: a hash of the name that the stream has */
	struct sp_buf scratch, text;
	uint64_t object;                /* numbers of our extension records */
	uint64_t now_ns;                /* time of the newest record written */
	uint64_t round_ns, round_bytes; /* at the last FINISHED_ROUND */
	struct cap_loss *losses;        /* owned; by CPU index */
	size_t n_cpus;
	size_t n_born;                /* threads and processes that were born */
	uint64_t n_dropped;           /* samples that the blocks had no room for */
	struct cap_cmdlines cmdlines;
	bool kernel_frames, follow;
	bool known_only;     /* the kernel follows children though nobody asked: leave them out */
	bool all_side_band;  /* that of other processes comes too: leave it out */
	bool lost_side_band; /* records other than samples may be missing: read state again */
	uint64_t sure_ns;    /* then: what was told until this time is complete */
	/* Threads that were opened while they may have inherited events too: their own ids by CPU;
	 * an own id proves to be a copy when another one samples the thread on that CPU. */
	struct sp_map64 late_of; /* tid to index */
	uint64_t *late_ids;      /* owned; n_late_cpus each: the CPUs at the start */
	size_t n_late, cap_late, n_late_cpus;
	uint64_t *dead_ids; /* owned: copies */
	size_t n_dead_ids, cap_dead_ids;
	/* Whether samples of a process are wanted; NULL = all are. */
	bool (*wants)(void *arg, int32_t pid, bool has_regs, uint64_t time_ns);
	/* Called when a process has ended, and when a mapping appears; may be NULL. */
	void (*on_exit)(void *arg, struct cap_proc *q);
	void (*on_map)(void *arg, struct cap_proc *q, struct cap_range *r, uint64_t time_ns);
	/* Before exec is applied to q. */
	void (*on_exec)(void *arg, struct cap_proc *q, uint64_t time_ns);
	void (*on_sampled)(void *arg, struct cap_proc *q, uint64_t time_ns); /* for the first time */
	void (*on_jit)(void *arg, struct cap_proc *q);             /* sampled in anonymous memory */
	void (*on_fork)(void *arg, int32_t ptid);                  /* a thread made a process */
	void (*on_copy)(void *arg, int32_t tid, size_t cpu_index); /* close that event */
	void (*on_thread_exit)(void *arg, int32_t tid); /* before it is told */
	void *arg;
};

int cap_emit_init(struct cap_emit *e, struct cap_output *out, size_t n_cpus, struct sp_err *err);
void cap_emit_deinit(struct cap_emit *e);

/* Room for one more CPU's losses. */
bool cap_emit_cpu_add(struct cap_emit *e);

/* One ring record, in time order. cpu_index counts the recorded CPUs. */
void cap_emit_record(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *entry,
		     size_t cpu_index);

/* One record of the BPF programs. cpu_index: where its loss is counted. */
void cap_emit_bpf(struct cap_emit *e, struct cap_ring *r, const struct cap_entry *entry,
		  size_t cpu_index);

/* A sample out of its parts: a sample of id's event. */
struct spb_sample;
void cap_emit_parts(struct cap_emit *e, const struct spb_sample *s, const uint8_t *chain,
		    const uint8_t *stack, uint64_t id, size_t cpu_index);

/* The stream must know the mapping of every user ip before the sample that has it. */
void cap_emit_check_ip(struct cap_emit *e, int32_t pid, uint64_t ip, uint64_t time_ns);
/* Whether a sample comes a second time, by the event (id) that we opened on a thread which had
 * inherited one already. */
bool cap_emit_is_copy(struct cap_emit *e, uint64_t id, int32_t tid, size_t cpu_index);
/* A record of this time was written. */
void cap_emit_time(struct cap_emit *e, uint64_t time_ns);

/* Watch a thread for copies; ids: its own, one per CPU. */
void cap_emit_late(struct cap_emit *e, int32_t tid, const uint64_t *ids);

/* Records other than samples may be missing from a time on. */
void cap_emit_gap(struct cap_emit *e, uint64_t from_ns);

/* Side-band that we make ourselves; false when there was no room. */
bool cap_emit_comm(struct cap_emit *e, int32_t pid, int32_t tid, const char *comm,
		   uint64_t time_ns);
/* The names of a process's threads as they are now, where the stream has others. The number of its
 * threads, or an error when it is gone. */
int cap_emit_names(struct cap_emit *e, int32_t pid, uint64_t time_ns);
bool cap_emit_mmap2(struct cap_emit *e, int32_t pid, const struct sp_perf_mmap *m, const char *path,
		    size_t path_len, uint64_t time_ns);
void cap_emit_build_id(struct cap_emit *e, const struct sp_build_id_record *b);
void cap_emit_kernel_mmap(struct cap_emit *e, uint64_t start, uint64_t len, const char *name,
			  uint64_t time_ns);

/* Our extension records; large payloads go out as fragments. False when there was no room. */
bool cap_emit_ext(struct cap_emit *e, enum sp_ext_kind kind, const void *payload, size_t size);
/* One fragment of an object under its own number; false when there was no room. */
bool cap_emit_part(struct cap_emit *e, enum sp_ext_kind kind, uint64_t object, uint64_t at,
		   uint64_t total, const void *part, size_t n);
bool cap_emit_loss(struct cap_emit *e, uint64_t from_ns, uint64_t to_ns, uint32_t cpu,
		   uint32_t kind, uint64_t count);

/* Count records that were lost on a CPU; the next round tells the stream. */
void cap_emit_lost(struct cap_emit *e, size_t cpu_index, uint64_t from_ns, uint64_t to_ns,
		   uint64_t count);

/* The exec marker of q, with its command line. */
void cap_emit_exec(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns);

/* The control group of q, where /proc tells one that the stream does not know of it; read = false:
 * the one that it has from its parent. */
void cap_emit_cgroup(struct cap_emit *e, struct cap_proc *q, bool read, uint64_t time_ns);

/* Executable mappings of /proc/PID/maps that the stream does not know, dated time_ns. The number
 * emitted, or an error when the file cannot be read. */
int cap_emit_maps(struct cap_emit *e, struct cap_proc *q, uint64_t time_ns, struct sp_err *err);

/* Whether q called exec unseen after sure_ns: see cap_proc_is_replaced. Then the exec is told,
 * dated time_ns; its mappings are cap_emit_maps's to tell. */
bool cap_emit_missed_exec(struct cap_emit *e, struct cap_proc *q, uint64_t sure_ns,
			  uint64_t time_ns);

/* A process has ended: nothing is known of q any more. */
void cap_emit_gone(struct cap_emit *e, struct cap_proc *q);

/* A process whose birth was not seen (a lost FORK): its name and command line. NULL: no memory, or
 * no room to tell of it. */
struct cap_proc *cap_emit_meet(struct cap_emit *e, int32_t pid, uint64_t time_ns);

/* FINISHED_ROUND when one is due (or always), and what was dropped since. */
void cap_emit_round(struct cap_emit *e, const struct cap_ring *rings, bool always);

/* --- the pure part --- */

#define CAP_AT_PID 24u /* offset of pid and tid in a sample */

/* Where a sample's parts lie, from its start; all within size. */
struct cap_layout {
	uint32_t n_chain;
	uint32_t chain, regs, stack_size, stack; /* offsets; regs 0 = none */
	uint64_t copied;                         /* stack bytes that the kernel copied */
};
/* False for a sample that contradicts its own length. */
bool cap_sample_layout(const struct cap_ring *r, uint64_t pos, uint32_t size, struct cap_layout *l);

#endif
