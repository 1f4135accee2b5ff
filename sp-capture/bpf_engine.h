/* The BPF capture engine: programs on perf events put samples with the used part of the stack into
 * one ring, whatever its depth (sp-capture/bpf/). What it gives are samples; side-band comes from
 * perf events as with the perf engine. */
#ifndef CAP_BPF_ENGINE_H
#define CAP_BPF_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ring.h"

struct cap_bpf; /* opaque */

#define CAP_BPF_RING_MAX (UINT64_C(1) << 30)
#define CAP_BPF_RECORD UINT32_MAX /* the type of the entries of its ring */

struct cap_bpf_want {
	uint32_t max_stack; /* bytes of a stack at most; 0 = all the programs can copy */
	bool kernel_frames;
	bool counted; /* PERF_EVENT_IOC_REFRESH is to count the samples */
	size_t ring_bytes; /* a power of two of pages, at most CAP_BPF_RING_MAX */
	/* No more than that: what the ring begins with where it can grow. */
	size_t first_bytes;
	size_t n_cpus_avail;
	/* Time off the CPU; the rest is for it. */
	bool off_cpu;
	uint64_t min_ns;    /* shorter waits are counted only */
	uint64_t max_waits; /* per second and CPU */
	bool by_thread;     /* targets are threads, not processes */
	bool follow;        /* children of targets are targets */
	/* All processes' waits; targets are those whose waits do not count. */
	bool all, kernel_threads;
	bool in_group; /* those of one control group: cap_bpf_group */
};

/* Load the programs. SP_ERR_PERM, SP_ERR_UNSUPPORTED, SP_ERR_IO: not here, with the reason; cure
 * (200 bytes): what helps, or "". */
int cap_bpf_open(struct cap_bpf **out, const struct cap_bpf_want *want, char cure[200],
		 struct sp_err *err);
void cap_bpf_close(struct cap_bpf *b);

/* What of newer kernels is missing here, for --check; "" when all is there. Static. */
const char *cap_bpf_lacks(const struct cap_bpf *b);

/* Sample by a perf event that has no ring. cookie: marks this event's own samples; those of events
 * that threads inherited from it bear 0. */
int cap_bpf_hang(struct cap_bpf *b, int event_fd, uint64_t cookie, struct sp_err *err);

/* A process (or thread) whose waits count; from_exec: once it has called exec. */
int cap_bpf_target(struct cap_bpf *b, int32_t id, bool from_exec, struct sp_err *err);
void cap_bpf_untarget(struct cap_bpf *b, int32_t id);
int cap_bpf_group(struct cap_bpf *b, int cgroup_fd, struct sp_err *err);
/* Waits that begin from now on count, or none do. */
void cap_bpf_switch(struct cap_bpf *b, bool on);
/* When they were switched on. */
uint64_t cap_bpf_since(const struct cap_bpf *b);
/* A thread waits, and no switch of it was seen since its wait was to begin. */
void cap_bpf_asleep(struct cap_bpf *b, int32_t pid, int32_t tid, uint32_t state, uint64_t since_ns);
/* Whether stacks come after the waits that they belong to, else before. */
bool cap_bpf_stacks_after(const struct cap_bpf *b);
/* The stacks of threads that wait come into the ring, and the kernel's chains: where stacks are
 * copied after waits, of all, to be asked for once waits are switched off; else of those whose
 * waits began as they were switched on. From Linux 6.16 on. */
void cap_bpf_parked(struct cap_bpf *b);
/* The waits that have not ended, once they are switched off: what struct spb_sample tells of each. They
 * are forgotten then. */
struct spb_sample;
void cap_bpf_unfinished(struct cap_bpf *b, uint64_t now_ns,
			void (*each)(void *arg, const struct spb_sample *s), void *arg);
struct cap_waits_counts;
void cap_bpf_waits(const struct cap_bpf *b, struct cap_waits_counts *out);

/* Samples of the programs that found no room, on a CPU (by its number), since the start. */
uint64_t cap_bpf_lost(const struct cap_bpf *b, uint32_t cpu);

/* The ring as one that the merge knows: its entries are of type CAP_BPF_RECORD, their bytes
 * struct spb_sample and lie in one piece. The caller's, to be asked for once; r->fd (the engine's)
 * is readable when the ring fills. */
void cap_bpf_ring(struct cap_bpf *b, struct cap_ring *r);
/* The ring of a map of that size; its fd is -1. map_fd is its own, and closed on failure. */
int cap_bpf_ring_map(struct cap_ring *r, int map_fd, size_t bytes, size_t page_bytes,
		     struct sp_err *err);
uint32_t cap_bpf_cpu(const struct cap_ring *r, const struct cap_entry *en);
/* A ring of that size in place of r. What r was, with all that is in it, goes to old, to which no
 * program writes any more. 1: done; 0: this ring cannot grow; or an error, and all is as before.
 * Takes some 10 ms, in which samples go into the new ring already. */
int cap_bpf_grow(struct cap_bpf *b, struct cap_ring *r, struct cap_ring *old, size_t bytes,
		 struct sp_err *err);
/* The reader is about to look: the next mark wakes it again. */
void cap_bpf_looking(struct cap_bpf *b);

#endif
