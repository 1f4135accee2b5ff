#include "ring.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"

/* Offsets that follow from CAP_SAMPLE_TYPE: a sample is header, identifier, ip, pid/tid, time, …;
 * every other record ends in pid/tid, time, cpu, identifier. */
#define SAMPLE_TIME 32u
#define SAMPLE_MIN 64u
#define ID_ALL_BYTES 32u
#define ID_ALL_TIME 24u

static const struct cap_ring_kind perf_ring;

static struct perf_event_mmap_page *control(const struct cap_ring *r)
{
	return r->base;
}

void cap_ring_init(struct cap_ring *r, void *base, size_t data_bytes, size_t page_bytes)
{
	*r = (struct cap_ring){.kind = &perf_ring,
			       .fd = -1,
			       .base = base,
			       .data = (const uint8_t *)base + page_bytes,
			       .size = data_bytes,
			       .page_bytes = page_bytes};
}

int cap_ring_map(struct cap_ring *r, int fd, uint32_t cpu, size_t data_bytes, size_t page_bytes,
		 struct sp_err *err)
{
	void *p = mmap(NULL, data_bytes + page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return sp_err_errno(err, "cannot map a ring of %zu KiB on CPU %u: mmap",
				    data_bytes / 1024, cpu);
	cap_ring_init(r, p, data_bytes, page_bytes);
	r->fd = fd;
	r->cpu = cpu;
	return 0;
}

void cap_ring_unmap(struct cap_ring *r)
{
	if (r->kind)
		r->kind->unmap(r);
	free(r->queue);
	*r = (struct cap_ring){.fd = -1};
}

size_t cap_ring_floor(uint64_t bytes, size_t page_bytes)
{
	size_t size = page_bytes;
	while ((uint64_t)size * 2 <= bytes)
		size *= 2;
	return size;
}

void cap_ring_copy(const struct cap_ring *r, uint64_t pos, void *out, size_t n)
{
	size_t at = pos & (r->size - 1);
	size_t first = r->size - at < n ? r->size - at : n;
	memcpy(out, r->data + at, first);
	memcpy((uint8_t *)out + first, r->data, n - first);
}

void cap_ring_pieces(const struct cap_ring *r, uint64_t pos, size_t n, uint8_t *at[2],
		     size_t part[2])
{
	size_t from = pos & (r->size - 1);
	uint8_t *data = (uint8_t *)r->base + r->page_bytes;
	part[0] = r->size - from < n ? r->size - from : n;
	part[1] = n - part[0];
	at[0] = data + from;
	at[1] = data;
}

static uint64_t used(const struct cap_ring *r)
{
	return atomic_load_explicit((_Atomic __u64 *)&control(r)->data_head, memory_order_relaxed) -
	       r->tail;
}

bool cap_ring_queue(struct cap_ring *r, const struct cap_entry *e)
{
	if (!sp_grow(&r->queue, &r->cap, r->n + 1, sizeof *r->queue))
		return false;
	/* Nested interrupts, and CPUs that share a ring, write in another order than they took the
	 * time. */
	size_t i = r->n++;
	while (i > r->at && r->queue[i - 1].time_ns > e->time_ns) {
		r->queue[i] = r->queue[i - 1];
		i--;
	}
	r->queue[i] = *e;
	return true;
}

void cap_ring_compact(struct cap_ring *r)
{
	if (!r->at)
		return;
	r->n -= r->at;
	if (r->n)
		memmove(r->queue, r->queue + r->at, r->n * sizeof *r->queue);
	r->at = 0;
}

static int bad(const struct cap_ring *r, struct sp_err *err, const char *what, uint64_t value)
{
	return sp_err_set(err, SP_ERR_CORRUPT, 0,
			  "cannot read the ring of CPU %u: %s (%llu) at position %llu", r->cpu,
			  what, (unsigned long long)value, (unsigned long long)r->scanned);
}

static int scan(struct cap_ring *r, struct sp_err *err)
{
	uint64_t head =
		atomic_load_explicit((_Atomic __u64 *)&control(r)->data_head, memory_order_acquire);
	int found = 0;
	if (head < r->scanned)
		return bad(r, err, "its head went back", head);
	if (head - r->tail > r->size)
		return bad(r, err, "its head is beyond its capacity", head);
	cap_ring_compact(r);
	while (r->scanned < head) {
		uint64_t word = cap_ring_u64(r, r->scanned);
		struct cap_entry e = {
			.pos = r->scanned, .size = (uint32_t)(word >> 48), .type = (uint32_t)word};
		uint32_t min = e.type == PERF_RECORD_SAMPLE ? SAMPLE_MIN : 8 + ID_ALL_BYTES;
		if (e.size < min || e.size % 8 || e.size > head - r->scanned) {
			/* Where the next one begins, nothing tells. */
			r->skipped += head - r->scanned;
			r->wrong_size = e.size;
			r->scanned = head;
			break;
		}
		e.time_ns = cap_ring_u64(r, e.pos + (e.type == PERF_RECORD_SAMPLE
							     ? SAMPLE_TIME
							     : e.size - ID_ALL_TIME));
		if (!cap_ring_queue(r, &e))
			return sp_err_nomem(err);
		/* Samples are of one size: likely the heads of the records to come. */
		__builtin_prefetch(r->data + ((e.pos + 4 * (uint64_t)e.size) & (r->size - 1)));
		r->scanned += e.size;
		found++;
	}
	return found;
}

bool cap_ring_move_tail(struct cap_ring *r, uint32_t head_bytes)
{
	uint64_t tail = r->scanned;
	for (size_t i = r->at; i < r->n; i++)
		if (r->queue[i].pos - head_bytes < tail)
			tail = r->queue[i].pos - head_bytes;
	bool moved = tail != r->tail;
	r->tail = tail;
	return moved;
}

static void release(struct cap_ring *r)
{
	if (cap_ring_move_tail(r, 0))
		atomic_store_explicit((_Atomic __u64 *)&control(r)->data_tail, r->tail,
				      memory_order_release);
}

static void unmap(struct cap_ring *r)
{
	munmap(r->base, r->size + r->page_bytes);
	if (r->fd >= 0)
		close(r->fd);
}

static const struct cap_ring_kind perf_ring = {
	.scan = scan, .used = used, .release = release, .unmap = unmap};
