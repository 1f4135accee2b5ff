/* The reading side of a BPF ring buffer (Documentation/bpf/ringbuf.rst): a page with the reader's
 * position, a page with the writers', the data mapped twice in a row. Each record has a header of 8
 * bytes: its length with two flags, and a page offset for the kernel. */
#include <linux/bpf.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/record.h"
#include "bpf_engine.h"

#define HEADER BPF_RINGBUF_HDR_SZ
#define MAP_STEP ((size_t)1 << 20)
#define CANNOT_MAP "cannot use the BPF engine: mapping its ring: mmap"

static _Atomic uint64_t *reader_at(const struct cap_ring *r)
{
	return r->base;
}

static _Atomic uint64_t *writers_at(const struct cap_ring *r)
{
	return (_Atomic uint64_t *)(uintptr_t)(r->data - r->page_bytes);
}

/* Mapped as far as records came: a short recording does not pay for the pages of a large ring. */
static int map_to(struct cap_ring *r, size_t end, struct sp_err *err)
{
	size_t to = (end + MAP_STEP - 1) & ~(MAP_STEP - 1);
	if (to > 2 * r->size)
		to = 2 * r->size;
	void *at = (void *)(uintptr_t)(r->data + r->mapped);
	off_t from = (off_t)(2 * r->page_bytes + r->mapped);
	if (mmap(at, to - r->mapped, PROT_READ, MAP_SHARED | MAP_FIXED, r->map_fd, from) ==
	    MAP_FAILED)
		return sp_err_errno(err, CANNOT_MAP);
	r->mapped = to;
	return 0;
}

/* The header at a position, once all of its record can be read. */
static int read_header(struct cap_ring *r, uint64_t pos, uint32_t *word, struct sp_err *err)
{
	size_t at = pos & (r->size - 1);
	int rc = at + HEADER > r->mapped ? map_to(r, at + HEADER, err) : 0;
	if (rc < 0)
		return rc;
	*word = atomic_load_explicit((const _Atomic uint32_t *)(uintptr_t)(r->data + at),
				     memory_order_acquire);
	size_t end = at + HEADER + (*word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT));
	return end > r->mapped && end <= 2 * r->size ? map_to(r, end, err) : 0;
}

static int scan(struct cap_ring *r, struct sp_err *err)
{
	uint64_t head = atomic_load_explicit(writers_at(r), memory_order_acquire);
	int found = 0;
	cap_ring_compact(r);
	while (r->scanned < head) {
		uint32_t word;
		int rc = read_header(r, r->scanned, &word, err);
		if (rc < 0)
			return rc;
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

static void unmap(struct cap_ring *r)
{
	munmap(r->base, r->page_bytes);
	munmap((void *)(uintptr_t)(r->data - r->page_bytes), r->page_bytes + 2 * r->size);
	close(r->map_fd);
}

static const struct cap_ring_kind bpf_ring = {
	.scan = scan, .used = used, .release = release, .unmap = unmap};

int cap_bpf_ring_map(struct cap_ring *r, int map_fd, size_t bytes, size_t page_bytes,
		     struct sp_err *err)
{
	size_t all = page_bytes + 2 * bytes;
	void *reader = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
	void *writers =
		mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reader != MAP_FAILED && writers != MAP_FAILED &&
	    mmap(writers, page_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, map_fd,
		 (off_t)page_bytes) != MAP_FAILED) {
		*r = (struct cap_ring){.kind = &bpf_ring,
				       .fd = -1,
				       .base = reader,
				       .data = (const uint8_t *)writers + page_bytes,
				       .size = bytes,
				       .page_bytes = page_bytes,
				       .map_fd = map_fd};
		return 0;
	}
	int rc = sp_err_errno(err, CANNOT_MAP);
	if (reader != MAP_FAILED)
		munmap(reader, page_bytes);
	if (writers != MAP_FAILED)
		munmap(writers, all);
	close(map_fd);
	return rc;
}
