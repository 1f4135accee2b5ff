/* The reading side of a BPF ring buffer (Documentation/bpf/ringbuf.rst): a page with the reader's
 * position, a page with the writers', the data mapped twice in a row. Each record has a header of 8
 * bytes: its length with two flags, and a page offset for the kernel. */
#include <linux/bpf.h>
#include <stdatomic.h>

#include "bpf/record.h"
#include "bpf_engine.h"

#define HEADER BPF_RINGBUF_HDR_SZ

static _Atomic uint64_t *reader_at(const struct cap_ring *r)
{
	return r->base;
}

static _Atomic uint64_t *writers_at(const struct cap_ring *r)
{
	return (_Atomic uint64_t *)(uintptr_t)(r->data - r->page_bytes);
}

static int scan(struct cap_ring *r, struct sp_err *err)
{
	uint64_t head = atomic_load_explicit(writers_at(r), memory_order_acquire);
	int found = 0;
	cap_ring_compact(r);
	while (r->scanned < head) {
		const uint8_t *p = r->data + (r->scanned & (r->size - 1));
		uint32_t word = atomic_load_explicit((const _Atomic uint32_t *)(uintptr_t)p,
						     memory_order_acquire);
		uint32_t len = word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		uint64_t whole = ((uint64_t)len + HEADER + 7) & ~UINT64_C(7);
		if (word & BPF_RINGBUF_BUSY_BIT)
			break; /* being written */
		if (whole > head - r->scanned)
			return sp_err_set(err, SP_ERR_CORRUPT, 0,
					  "cannot read the BPF ring: a record of wrong size (%u) "
					  "at position %llu",
					  len, (unsigned long long)r->scanned);
		struct cap_entry e = {
			.pos = r->scanned + HEADER, .size = len, .type = CAP_BPF_RECORD};
		r->scanned += whole;
		if (word & BPF_RINGBUF_DISCARD_BIT || len < sizeof(struct spb_sample))
			continue;
		e.time_ns = cap_ring_u64(r, e.pos);
		if (!cap_ring_queue(r, &e))
			return sp_err_nomem(err);
		found++;
	}
	return found;
}

uint32_t cap_bpf_cpu(const struct cap_ring *r, const struct cap_entry *en)
{
	return (uint32_t)cap_ring_u64(r, en->pos + offsetof(struct spb_sample, cpu));
}

static uint64_t used(const struct cap_ring *r)
{
	return atomic_load_explicit(writers_at(r), memory_order_relaxed) - r->tail;
}

static void release(struct cap_ring *r)
{
	if (cap_ring_move_tail(r, HEADER))
		atomic_store_explicit(reader_at(r), r->tail, memory_order_release);
}

const struct cap_ring_kind cap_bpf_ring_kind = {
	.scan = scan, .used = used, .release = release, .is_borrowed = true};
