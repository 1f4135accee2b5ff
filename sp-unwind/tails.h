/* Stacks that no sample record could hold whole: their rest comes before the sample as an object of
 * our own (stream.md, "Stacks"; perf/ext.h, STACK_TAIL). */
#ifndef SP_UNWIND_TAILS_H
#define SP_UNWIND_TAILS_H

#include "perf/ext.h"
#include "perf/record.h"

#define UN_TAILS_BYTES ((size_t)64 << 20) /* that wait at once; the oldest give way */
#define UN_TAILS_MAX 1024u

struct un_tail {
	uint64_t time_ns, at;
	int32_t pid, tid;
	uint8_t *data; /* owned */
	size_t size;
};

struct un_tails {
	struct un_tail *v; /* owned; in the order of their coming */
	size_t n, cap, bytes;
};

void un_tails_deinit(struct un_tails *t);

/* A whole object's payload. False when memory ends; one that contradicts itself is dropped. */
bool un_tails_add(struct un_tails *t, const uint8_t *payload, size_t size);

/* The whole stack of a sample whose tail came: for the caller to free; *size its bytes. NULL when
 * none did, or memory ends. */
uint8_t *un_tails_join(struct un_tails *t, const struct sp_record *rec, size_t *size);

#endif
