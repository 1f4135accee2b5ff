/* The kernel's ring of one CPU: scanning what is new, copying records out, giving memory back.
 *
 * Records are looked at in two steps. A scan reads each new record's header and time and queues an
 * entry; the bytes stay in the ring until the merge takes them, once, into an output block. The
 * tail moves behind the oldest entry that is still queued. */
#ifndef CAP_RING_H
#define CAP_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cap_entry {
	uint64_t time_ns;
	uint64_t pos; /* position of its first byte since the ring was made */
	uint32_t size, type;
};

struct cap_ring;

/* What one kind of ring does in its own way. */
struct cap_ring_kind {
	int (*scan)(struct cap_ring *r, struct sp_err *err);
	uint64_t (*used)(const struct cap_ring *r);
	void (*release)(struct cap_ring *r);
	void (*unmap)(struct cap_ring *r); /* and close what is ours */
};

struct cap_ring {
	const struct cap_ring_kind *kind; /* static; NULL while it is not mapped */
	uint32_t cpu;
	uint32_t index;      /* among the recorded CPUs */
	bool of_switches;    /* its samples are stacks of waits that begin */
	int fd;              /* what poll() watches: the anchor, owned; the BPF engine's, borrowed */
	void *base;          /* owned: control page and data, or the reader's page of BPF's */
	const uint8_t *data; /* in base; BPF's: owned, with the writers' page before it */
	size_t size;         /* of data; a power of two */
	size_t page_bytes;
	uint64_t tail, scanned;
	struct cap_entry *queue; /* owned; by time, equal times in ring order */
	size_t n, cap, at;       /* entries [at, n) wait */
	size_t n_new;            /* of them, at the end: from the last scan, until it was looked for execs */
	uint64_t last_ns;        /* time of the last record taken by the merge */
	uint64_t lost;           /* sum of LOST records */
	uint64_t skipped;        /* bytes from a record of wrong size on; who tells it sets it to 0 */
	uint32_t wrong_size;     /* of the last such record */
	int map_fd;              /* of BPF's, owned: what data is mapped from, and */
	size_t mapped;           /* how far by now, of twice its size */
};

/* Map the ring of anchor fd. data_bytes: a power of two of pages. */
int cap_ring_map(struct cap_ring *r, int fd, uint32_t cpu, size_t data_bytes, size_t page_bytes,
		 struct sp_err *err);
/* A ring over plain memory, for tests: base = page_bytes of control page, then the data. */
void cap_ring_init(struct cap_ring *r, void *base, size_t data_bytes, size_t page_bytes);
void cap_ring_unmap(struct cap_ring *r);

/* The largest power of two of pages that is not more than bytes; a page at least. */
size_t cap_ring_floor(uint64_t bytes, size_t page_bytes);

/* Queue what the kernel wrote since the last scan. The number of new records; SP_ERR_CORRUPT when
 * the head cannot be right, with the tail where it was. A record of a size that cannot be right is
 * skipped, with all behind it that is there already; in a ring of BPF's, SP_ERR_CORRUPT. */
static inline int cap_ring_scan(struct cap_ring *r, struct sp_err *err)
{
	return r->kind->scan(r, err);
}

/* Bytes that the kernel cannot write to now. */
static inline uint64_t cap_ring_used(const struct cap_ring *r)
{
	return r->kind->used(r);
}

/* The memory before the oldest waiting entry back to the kernel. */
static inline void cap_ring_release(struct cap_ring *r)
{
	r->kind->release(r);
}

/* --- what any kind of ring is read by; bpf_ring.c has the other one --- */

/* An entry into its place among those that wait; false: no memory. */
bool cap_ring_queue(struct cap_ring *r, const struct cap_entry *e);
/* Forget the entries that the merge took. */
void cap_ring_compact(struct cap_ring *r);
/* The tail to before the oldest waiting entry, whose header of head_bytes stands before its pos;
 * false: it is there already. */
bool cap_ring_move_tail(struct cap_ring *r, uint32_t head_bytes);

void cap_ring_copy(const struct cap_ring *r, uint64_t pos, void *out, size_t n);

/* Where n bytes lie: in one piece, or in two when they go round the end. Valid until the ring is
 * released beyond them. */
void cap_ring_pieces(const struct cap_ring *r, uint64_t pos, size_t n, uint8_t *at[2],
		     size_t part[2]);

static inline uint64_t cap_ring_u64(const struct cap_ring *r, uint64_t pos)
{
	uint64_t v;
	__builtin_memcpy(&v, r->data + (pos & (r->size - 1)), 8);
	return v;
}

/* Begin to load what will be read of an entry: its head and registers, the first stack bytes, and
 * at its end the size of the stack. Another CPU wrote them. */
static inline void cap_ring_expect(const struct cap_ring *r, const struct cap_entry *en)
{
	for (uint64_t at = 0; at < 6 * 64 && at < en->size; at += 64)
		__builtin_prefetch(r->data + ((en->pos + at) & (r->size - 1)));
	__builtin_prefetch(r->data + ((en->pos + en->size - 8) & (r->size - 1)));
}

#endif
