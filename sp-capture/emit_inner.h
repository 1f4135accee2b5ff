/* What the files that make up cap_emit share; emit.h is for everybody else. */
#ifndef CAP_EMIT_INNER_H
#define CAP_EMIT_INNER_H

#include "emit.h"

/* Offset of the path in an MMAP2 record. */
#define CAP_AT_MMAP2_PATH 72u

/* --- emit.c --- */

/* Room for a record that is no sample; NULL, and side-band counts as lost, when there is none. */
uint8_t *cap_emit_take(struct cap_emit *e, size_t size);
/* The same, all zero but for the header. */
uint8_t *cap_emit_begin(struct cap_emit *e, uint32_t type, uint16_t misc, size_t size);
/* A record as it is, under the canonical id; its copy in the block. */
const uint8_t *cap_emit_pass(struct cap_emit *e, const struct cap_ring *r,
			     const struct cap_entry *en);

/* How much of what the kernel copied is the thread's stack; sp: the sample's. */
uint64_t cap_emit_stack_used(struct cap_emit *e, const struct cap_ring *r,
			     const struct cap_entry *en, const struct cap_layout *l, uint64_t sp);

/* --- emit_process.c: one ring record each, whose fields are all there --- */

void cap_emit_mmap2_record(struct cap_emit *e, const struct cap_ring *r,
			   const struct cap_entry *en);
void cap_emit_comm_record(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en,
			  uint16_t misc);
void cap_emit_fork(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en);
void cap_emit_exit(struct cap_emit *e, const struct cap_ring *r, const struct cap_entry *en);

#endif
