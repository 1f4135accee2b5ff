#include "rings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cli.h"

#define RING_PART_S 4u /* a ring holds 1/4 s */

uint64_t cap_sample_bytes(uint32_t stack_bytes)
{
	uint64_t bytes = 64 + 16 + CAP_N_REGS * 8 + 16 + (uint64_t)stack_bytes;
	return bytes < 65536 ? bytes : 65536;
}

uint64_t cap_ring_need(uint64_t sample_bytes, uint64_t rate_hz)
{
	return sample_bytes * rate_hz / RING_PART_S;
}

size_t cap_ring_size(uint64_t asked, uint64_t rate_hz, uint32_t stack_bytes, size_t page_bytes)
{
	size_t size = page_bytes;
	if (asked)
		return cap_ring_floor(asked, page_bytes);
	uint64_t want = cap_ring_need(cap_sample_bytes(stack_bytes), rate_hz);
	uint64_t least = cap_sample_bytes(stack_bytes) * 16;
	if (want < least)
		want = least;
	while (size < want && size < CAP_RING_MAX)
		size *= 2;
	return size;
}

uint32_t cap_ring_mark(size_t data_bytes)
{
	return (uint32_t)(data_bytes / 2 < UINT32_MAX ? data_bytes / 2 : UINT32_MAX);
}

static void unmap_all(struct cap_ring *rings, size_t n)
{
	for (size_t i = 0; i < n; i++)
		cap_ring_unmap(&rings[i]);
}

int cap_rings_map_one(struct cap_ring *ring, struct cap_sampler *s, uint32_t cpu, size_t data_bytes,
		      struct sp_err *err)
{
	int fd = cap_sampler_anchor(s, cpu, cap_ring_mark(data_bytes), err);
	int rc = fd < 0 ? fd
			: cap_ring_map(ring, fd, cpu, data_bytes, s->kernel->page_bytes, err);
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc;
}

/* All rings of one size, or none of them. */
static int map_all(struct cap_ring *rings, size_t n, struct cap_sampler *s, size_t data_bytes,
		   struct sp_err *err)
{
	const struct cap_kernel *k = s->kernel;
	for (size_t i = 0; i < n; i++) {
		size_t cpu = i % k->n_cpus;
		int rc = cap_rings_map_one(&rings[i], s, k->cpus[cpu], data_bytes, err);
		rings[i].index = (uint32_t)cpu;
		if (rc < 0) {
			unmap_all(rings, i);
			rings[i].fd = -1;
			return rc;
		}
	}
	return 0;
}

int cap_rings_map(struct cap_ring *rings, size_t n, struct cap_sampler *s, size_t *data_bytes,
		  uint32_t stack_bytes, struct sp_err *err)
{
	const struct cap_kernel *k = s->kernel;
	uint64_t least = cap_sample_bytes(stack_bytes);
	size_t size = *data_bytes;
	if (size < least)
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot sample %u bytes of stack into a ring of %zu KiB: one "
				  "sample needs %llu bytes",
				  stack_bytes, size / 1024, (unsigned long long)least);
	for (;; size /= 2) {
		struct sp_err why = {0};
		int rc = map_all(rings, n, s, size, &why);
		if (rc >= 0) {
			*data_bytes = size;
			return 0;
		}
		bool budget = why.os == EPERM || why.os == ENOMEM;
		if (budget && size / 2 >= least && size / 2 >= k->page_bytes)
			continue;
		*err = why;
		if (budget) {
			sp_err_set(
				err, rc, why.os,
				"cannot map a ring of %zu KiB for one sample of %u stack bytes: "
				"mmap: %s (perf_event_mlock_kb is %lld, RLIMIT_MEMLOCK %lld KiB)",
				size / 1024, stack_bytes, strerror(why.os), (long long)k->mlock_kb,
				(long long)k->memlock_kb);
			snprintf(s->cure, sizeof s->cure,
				 "raise the budget (ulimit -l, or sudo sysctl "
				 "kernel.perf_event_mlock_kb=%lld), or copy less: -s 16K",
				 (long long)(least / 1024 + 8) * 4);
		}
		return rc;
	}
}

size_t cap_rings_lock_kb(const struct cap_kernel *k, size_t n, size_t data_bytes)
{
	return n * (data_bytes + k->page_bytes) / 1024;
}

void cap_rings_say_smaller(const struct cap_kernel *k, size_t n, size_t data_bytes, size_t wanted)
{
	sp_note("rings of %zu KiB per CPU instead of %zu KiB: the mlock budget is used up "
		"(perf_event_mlock_kb is %lld, RLIMIT_MEMLOCK %lld KiB); to lose less: "
		"ulimit -l %zu, or a smaller -s",
		data_bytes / 1024, wanted / 1024, (long long)k->mlock_kb, (long long)k->memlock_kb,
		cap_rings_lock_kb(k, n, wanted));
}

size_t cap_rings_next(const struct cap_ring *rings, size_t n, uint64_t limit_ns)
{
	size_t best = n;
	for (size_t i = 0; i < n; i++) {
		const struct cap_ring *r = &rings[i];
		if (r->at == r->n || r->queue[r->at].time_ns > limit_ns)
			continue;
		if (best == n ||
		    r->queue[r->at].time_ns < rings[best].queue[rings[best].at].time_ns)
			best = i;
	}
	return best;
}
