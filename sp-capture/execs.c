#define _GNU_SOURCE
#include "execs.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/le.h"
#include "emit.h"

/* Copied per exec: pointers to arguments and environment, a gap of up to 8 KiB (arch_align_stack),
 * the arguments. */
#define STACK_BYTES 16384u
#define RING_BYTES ((size_t)1 << 20) /* some 60 execs */

static int64_t tracepoint_number(void)
{
	static const char *const places[] = {
		"/sys/kernel/tracing/events/sched/sched_process_exec/id",
		"/sys/kernel/debug/tracing/events/sched/sched_process_exec/id",
	};
	int64_t id = CAP_UNKNOWN;
	for (size_t i = 0; i < sizeof places / sizeof *places && id < 0; i++)
		id = cap_number_read(places[i]);
	return id;
}

/* False when there are none to be had. Without those of a CPU that is away it goes on. */
static bool open_on(struct cap_execs *x, const struct cap_sampler *s, uint32_t cpu)
{
	struct cap_ring ring = {.fd = -1};
	int fd = cap_sampler_execs(s, cpu, (uint64_t)x->id, STACK_BYTES);
	if (fd < 0)
		return errno == ENODEV;
	if (cap_ring_map(&ring, fd, cpu, RING_BYTES, s->kernel->page_bytes, NULL) < 0) {
		close(fd);
		return false;
	}
	struct cap_ring *slot = SP_PUSH(&x->rings, &x->n, &x->cap);
	if (slot)
		*slot = ring;
	else
		cap_ring_unmap(&ring);
	return slot;
}

void cap_execs_open(struct cap_execs *x, const struct cap_sampler *s)
{
	const struct cap_kernel *k = s->kernel;
	bool ok = true;
	x->id = tracepoint_number();
	for (size_t i = 0; x->id >= 0 && ok && i < k->n_cpus; i++)
		ok = open_on(x, s, k->cpus[i]);
	if (!ok)
		cap_execs_close(x);
}

void cap_execs_reopen(struct cap_execs *x, const struct cap_sampler *s, uint32_t cpu)
{
	size_t n = x->n, at = 0;
	if (!n || !open_on(x, s, cpu))
		return;
	while (at < n && x->rings[at].cpu != cpu)
		at++;
	if (at == n || x->n == n)
		return;
	cap_ring_unmap(&x->rings[at]); /* not the last event of the tracepoint: it is quick */
	x->rings[at] = x->rings[--x->n];
}

/* The last close of a tracepoint's events waits until no CPU can be in it any more (Linux 6.18,
 * perf_trace_event_unreg): 30 to 50 ms, three quarters of what a short command takes. As the
 * content of a socket that only itself holds, the event is closed by the kernel's collector of such
 * sockets, in a thread of the kernel (unix_gc; before 6.10 it is closed here, as it would be
 * without). */
static void close_later(int fd)
{
	int pair[2];
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr head;
	} control = {0};
	if (fd >= 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0) {
		char byte = 0;
		const int carried[2] = {pair[0], fd};
		struct iovec v = {.iov_base = &byte, .iov_len = 1};
		struct msghdr m = {.msg_iov = &v,
				   .msg_iovlen = 1,
				   .msg_control = control.room,
				   .msg_controllen = sizeof control.room};
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof carried);
		memcpy(CMSG_DATA(c), carried, sizeof carried);
		(void)sendmsg(pair[1], &m, MSG_DONTWAIT); /* or it is closed below */
		close(pair[0]);
		close(pair[1]);
	}
	if (fd >= 0)
		close(fd);
}

void cap_execs_close(struct cap_execs *x)
{
	int last = -1;
	if (x->n) {
		last = x->rings[x->n - 1].fd;
		x->rings[x->n - 1].fd = -1;
	}
	for (size_t i = 0; i < x->n; i++)
		cap_ring_unmap(&x->rings[i]);
	close_later(last);
	free(x->rings);
	sp_buf_deinit(&x->args);
	*x = (struct cap_execs){0};
}

bool cap_execs_args(const uint8_t *stack, size_t n, uint64_t sp, size_t word, struct sp_buf *out)
{
	if (n < word)
		return false;
	uint64_t argc = word == 8 ? sp_get64(stack) : sp_get32(stack);
	if (argc > n / word - 1)
		return false;
	for (uint64_t i = 1; i <= argc; i++) {
		const uint8_t *p = stack + i * word;
		uint64_t at = (word == 8 ? sp_get64(p) : sp_get32(p)) - sp;
		const uint8_t *end = at < n ? memchr(stack + at, 0, n - at) : NULL;
		if (!end || out->len > CAP_CMDLINE_MAX)
			return false;
		sp_buf_add(out, stack + at, (size_t)(end - (stack + at)) + 1);
	}
	return !out->failed;
}

static void take(struct cap_execs *x, const struct cap_ring *r, const struct cap_entry *en,
		 struct cap_cmdlines *c)
{
	struct cap_layout l;
	uint8_t stack[STACK_BYTES];
	if (en->type != PERF_RECORD_SAMPLE || !cap_sample_layout(r, en->pos, en->size, &l) ||
	    !l.regs || !l.copied || l.copied > sizeof stack)
		return;
	uint64_t sp = cap_ring_u64(r, en->pos + l.regs + CAP_REG_SP * 8);
	bool is_32 = cap_ring_u64(r, en->pos + l.regs - 8) == PERF_SAMPLE_REGS_ABI_32;
	int32_t pid = (int32_t)cap_ring_u64(r, en->pos + CAP_AT_PID);
	cap_ring_copy(r, en->pos + l.stack, stack, (size_t)l.copied);
	x->args.len = 0;
	if (cap_execs_args(stack, (size_t)l.copied, sp, is_32 ? 4 : 8, &x->args))
		cap_cmdlines_tell(c, pid, en->time_ns, x->args.data, x->args.len);
	else
		cap_cmdlines_look(c, pid, en->time_ns);
}

int cap_execs_scan(struct cap_execs *x, struct sp_err *err)
{
	int found = 0;
	for (size_t i = 0; i < x->n; i++) {
		int rc = cap_ring_scan(&x->rings[i], err);
		if (rc < 0)
			return rc;
		found += rc;
	}
	return found;
}

void cap_execs_take(struct cap_execs *x, struct cap_cmdlines *c,
		    bool (*wants)(void *arg, int32_t pid), void *arg)
{
	for (size_t i = 0; i < x->n; i++) {
		struct cap_ring *r = &x->rings[i];
		for (; r->at < r->n; r->at++) {
			const struct cap_entry *en = &r->queue[r->at];
			if (wants(arg, (int32_t)cap_ring_u64(r, en->pos + CAP_AT_PID)))
				take(x, r, en, c);
		}
		cap_ring_release(r);
	}
}
