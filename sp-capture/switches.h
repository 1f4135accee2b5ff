/* Time off the CPU by perf events, where BPF is not to be had: records of switches away and back
 * (attr.context_switch), which anybody may have of his own threads, and at each switch away a
 * sample with the stack, which only those who may look into the kernel have. A wait is the time
 * between a switch away and the next one back. Whether the thread could have run is told, as far as
 * it was preempted; its state and its waker are not.
 *
 * The samples have rings of their own: perf reserves the whole stack size for each, and where
 * switches are many, stacks are lost, but neither samples on the CPU nor the waits' lengths. */
#ifndef CAP_SWITCHES_H
#define CAP_SWITCHES_H

#include "emit.h"

/* PERF_RECORD_SWITCH or PERF_RECORD_SWITCH_CPU_WIDE. */
void cap_switches_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			 size_t cpu_index);
/* A sample of a switch away. */
void cap_switches_stack(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en);
/* A thread was born, or has ended: what comes of it after that is its last switch. */
void cap_switches_born(struct cap_emit *e, int32_t tid);
void cap_switches_ended(struct cap_emit *e, int32_t tid);
/* A thread waits, and no switch of it was seen since its wait was to begin. */
void cap_switches_asleep(struct cap_emit *e, int32_t pid, int32_t tid, uint32_t state,
			 uint64_t since_ns);
/* The waits that have not ended, once all records are read. */
void cap_switches_unfinished(struct cap_emit *e, uint64_t now_ns);

#endif
