/* The BPF programs of sp-capture: samples with user registers and the used part of the stack.
 *
 * on_cpu hangs on perf events, the programs of off_cpu.h on the scheduler's tracepoints. Kernels
 * lack what they lack: every newer helper has a branch beside it that does without;
 * bpf_core_enum_value_exists() becomes a constant at load time, and the verifier drops the branch
 * that cannot be taken. But a callback's address is an instruction that Linux before 5.13 refuses
 * even in such a branch: what calls bpf_find_vma or bpf_loop, or schedules task work, is there a
 * second time without (plain), as a program of its own.
 *
 * Compiled twice. With SPB_LIGHT it is on_cpu alone, which a program in the kernel loads (a light
 * skeleton, Linux 5.17): a quarter of the time, as nobody reads the kernel's BTF. */
#include "kernel.h"
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#ifndef barrier_var
#define barrier_var(var) asm volatile("" : "=r"(var) : "0"(var))
#endif
#define KSTACK_BYTES 16384u
#define PAGE 4096u
#define MAX_HOLES 32 /* pages of a stack that may be missing: to find it out takes some 0.5 us each */
#define SCRATCH_STACK (64u << 10)
#define UNKNOWN_STACK (64u << 10) /* copied at most of a stack whose end is not known */

const volatile __u32 spb_without = 0;
const volatile __u32 spb_max_stack = SPB_MAX_STACK;
const volatile __u32 spb_kernel = 0;           /* kernel chains too */
const volatile __u32 spb_counted = 0;          /* the event counts its samples: 1 is returned */

__u64 spb_wake_bytes = 0; /* a ring that holds so much wakes its reader; set by it */
__u32 spb_woken = 0;      /* set here, cleared by the reader */
__u64 spb_lost[SPB_MAX_CPUS] = {0};
__u8 spb_hole[PAGE] = {0}; /* stands for a page of a stack that is missing; set by the reader */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} spb_ring SEC(".maps");

#ifdef SPB_LIGHT
struct any_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* of any size, in truth */
};

/* The ring in use: samples alone begin with a small one, and the reader puts larger ones in place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct any_ring);
} spb_rings SEC(".maps") = {.values = {(struct any_ring *)&spb_ring}};

static __always_inline void *ring_in_use(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&spb_rings, &key);
}
#else
static __always_inline void *ring_in_use(void)
{
	return &spb_ring;
}
#endif

/* Where a thread's stack ends. */
struct end {
	__u64 mm, lo, hi;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct end);
} spb_ends SEC(".maps");

/* A record in the making. Two a CPU: an NMI may sample while a switch is recorded. */
struct work {
	struct spb_sample s;
	__u64 ip[SPB_MAX_CHAIN + 1]; /* follows the sample, as in the ring */
	struct regs r;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct work);
} spb_work SEC(".maps");

/* Where records are put together when they cannot be in the ring: two a CPU too. */
struct scratch {
	__u8 bytes[sizeof(struct spb_sample) + (SPB_MAX_CHAIN + 1) * 8 + SCRATCH_STACK + PAGE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading, where it is needed */
	__type(key, __u32);
	__type(value, struct scratch);
} spb_scratch SEC(".maps");

extern int bpf_probe_read_user_dynptr(struct bpf_dynptr *d, __u64 off, __u64 size,
				      const void *unsafe_ptr__ign) __ksym __weak;

extern int bpf_copy_from_user_task_dynptr(struct bpf_dynptr *d, __u64 off, __u64 size,
					  const void *unsafe_ptr__ign,
					  struct task_struct *tsk) __ksym __weak;

#define HAS(helper, bit)                                                                           \
	(!(spb_without & (bit)) && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_##helper))

/* The loader of a light skeleton does not know addresses of functions: there spb_without tells. */
static __always_inline bool has_user_dynptr(void)
{
#ifdef SPB_LIGHT
	return !(spb_without & SPB_USER_DYN);
#else
	return !(spb_without & SPB_USER_DYN) && &bpf_probe_read_user_dynptr != 0;
#endif
}

/* --- the user's registers --- */

static __always_inline bool user_regs(struct regs *out)
{
	const void *from;
	if (HAS(task_pt_regs, SPB_TASK_REGS)) {
		from = (const void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	} else {
		struct task_struct *t = (struct task_struct *)bpf_get_current_task();
#if defined(__TARGET_ARCH_arm64)
		from = BPF_CORE_READ(t, stack) + KSTACK_BYTES - 16 - sizeof *out;
#else
		from = BPF_CORE_READ(t, stack) + KSTACK_BYTES - sizeof *out;
#endif
	}
	return bpf_probe_read_kernel(out, sizeof *out, from) == 0;
}

static __always_inline void put_regs(struct work *w)
{
	struct spb_sample *s = &w->s;
	const struct regs *r = &w->r;
#if defined(__TARGET_ARCH_arm64)
#pragma unroll
	for (int i = 0; i < 31; i++)
		s->regs[i] = r->x[i];
	s->regs[31] = r->sp;
	s->regs[32] = r->pc;
#else
	s->regs[0] = r->ax;
	s->regs[1] = r->bx;
	s->regs[2] = r->cx;
	s->regs[3] = r->dx;
	s->regs[4] = r->si;
	s->regs[5] = r->di;
	s->regs[6] = r->bp;
	s->regs[7] = r->sp;
	s->regs[8] = r->ip;
	s->regs[9] = r->r8;
	s->regs[10] = r->r9;
	s->regs[11] = r->r10;
	s->regs[12] = r->r11;
	s->regs[13] = r->r12;
	s->regs[14] = r->r13;
	s->regs[15] = r->r14;
	s->regs[16] = r->r15;
#endif
	s->flags |= SPB_HAS_REGS | (REGS_IS_COMPAT(r) ? SPB_COMPAT : 0);
}

/* --- the end of the stack --- */

static long on_vma(struct task_struct *t, struct vm_area_struct *v, struct end *e)
{
	e->lo = v->vm_start;
	e->hi = v->vm_end;
	return 0;
}

/* The main thread's arguments and environment lie above start_stack (argc: two words are kept for
 * the root frame); a thread's TLS lies at the top of what its libc took for a stack. */
static __always_inline void clip(struct end *e, struct task_struct *t, struct mm_struct *mm,
				 __u64 sp)
{
	__u64 start = BPF_CORE_READ(mm, start_stack) + 16;
	if (sp < start && start < e->hi)
		e->hi = start;
#if !defined(__TARGET_ARCH_arm64)
	__u64 tls = BPF_CORE_READ(t, thread.fsbase);
	if (sp < tls && tls < e->hi)
		e->hi = tls;
#endif
}

/* 0: not known. Asked of the kernel once a thread: it costs 10 us. */
static __always_inline __u64 stack_end(struct task_struct *t, __u32 tid, __u64 sp)
{
	struct mm_struct *mm = BPF_CORE_READ(t, mm);
	struct end *known = bpf_map_lookup_elem(&spb_ends, &tid);
	if (known && known->mm == (__u64)mm && sp >= known->lo && sp < known->hi)
		return known->hi;
	if (!HAS(find_vma, SPB_FIND_VMA))
		return 0;
	struct end e = {.mm = (__u64)mm};
	if (bpf_find_vma(bpf_get_current_task_btf(), sp, on_vma, &e, 0) < 0 || sp < e.lo ||
	    sp >= e.hi)
		return 0;
	clip(&e, t, mm, sp);
	bpf_map_update_elem(&spb_ends, &tid, &e, BPF_ANY);
	return e.hi;
}

/* Bytes to copy of a stack that ends there (0: not known), and the flag for it. */
static __always_inline __u32 size_to(struct spb_sample *s, __u64 end, __u64 sp)
{
	__u64 n = end ? end - sp : UNKNOWN_STACK;
	if (end && n <= spb_max_stack)
		s->flags |= SPB_CLIPPED;
	if (n > spb_max_stack)
		n = spb_max_stack;
	return n > SPB_MAX_STACK ? SPB_MAX_STACK : (__u32)n;
}

static __noinline __u32 size_by_vma(struct spb_sample *s, struct task_struct *t, __u64 sp)
{
	return size_to(s, stack_end(t, s->tid, sp), sp);
}

static __always_inline __u32 stack_size(struct spb_sample *s, struct task_struct *t, __u64 sp,
					bool plain)
{
	return plain ? size_to(s, 0, sp) : size_by_vma(s, t, sp);
}

/* --- writing --- */

static __always_inline void count_lost(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__sync_fetch_and_add(&spb_lost[cpu & (SPB_MAX_CPUS - 1)], 1);
}

static __always_inline __u64 wake(void *ring)
{
	if (spb_woken || bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) < spb_wake_bytes)
		return BPF_RB_NO_WAKEUP;
	spb_woken = 1;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline __u32 to_page_end(__u64 at, __u32 left)
{
	__u32 n = PAGE - (at & (PAGE - 1));
	return n < left ? n : left;
}

/* Of the current task, or of another one, which may sleep: its pages are brought in. */
static __always_inline int read_user(struct bpf_dynptr *d, __u32 off, __u32 n, __u64 at,
				     struct task_struct *other)
{
	return other ? bpf_copy_from_user_task_dynptr(d, off, n, (const void *)at, other)
		     : bpf_probe_read_user_dynptr(d, off, n, (const void *)at);
}

/* How much of the stack is there. Kept in the record: of what is read from memory the verifier knows
 * nothing, so that the ways to have come here are one to it, and not 2 to the power of the parts. */
static __always_inline __u32 done_of(const struct work *w)
{
	return *(const volatile __u32 *)&w->s.stack_bytes;
}

static __always_inline int read_part(struct work *w, struct bpf_dynptr *d, __u32 off, __u64 sp,
				     __u32 part, __u32 n, struct task_struct *other, bool whole)
{
	__u32 done = done_of(w);
	if (whole)
		return read_user(d, off + done, n, sp + done, other);
	void *to = bpf_dynptr_data(d, off + done, part);
	return to && n <= part ? bpf_probe_read_user(to, n, (const void *)(sp + done)) : -1;
}

struct rest {
	struct work *w;
	struct bpf_dynptr *d;
	__u64 sp;
	__u32 off, size, there, n_holes;
};

static long read_page(__u32 i, struct rest *r)
{
	__u32 done = done_of(r->w);
	__u32 n = to_page_end(r->sp + done, r->size - done);
	if (!n)
		return 1;
	if (read_user(r->d, r->off + done, n, r->sp + done, NULL) == 0)
		r->there = done + n;
	else if (++r->n_holes > MAX_HOLES || n > PAGE ||
		 bpf_dynptr_write(r->d, r->off + done, spb_hole, n, 0) < 0)
		return 1;
	r->w->s.stack_bytes = done + n;
	return 0;
}

/* Page by page, where a read of all failed: a frame has pages that nothing was ever written to, and
 * what lies above them is wanted too. The verifier looks at the body of bpf_loop (Linux 5.17) once,
 * at each turn of a loop otherwise. */
static __always_inline void read_pages(struct work *w, struct bpf_dynptr *d, __u32 off, __u64 sp,
				       __u32 size)
{
	struct rest r = {.w = w, .d = d, .sp = sp, .off = off, .size = size};
	bpf_loop(SPB_MAX_STACK / PAGE + 1, read_page, &r, 0);
	w->s.stack_bytes = r.there;
}

/* The stack into a record at off. A read is all or nothing: what lies before a page that is missing is
 * read in halves, quarters, … that are there. whole: a read may have any length, else it has that of
 * a slice of the record. */
static __always_inline void copy(struct work *w, struct bpf_dynptr *d, __u32 off, __u64 sp,
				 __u32 size, struct task_struct *other, bool whole, bool holes)
{
	if (whole && read_user(d, off, size, sp, other) == 0) {
		w->s.stack_bytes = size;
		return;
	}
	if (whole && holes) {
		read_pages(w, d, off, sp, size);
		return;
	}
	for (__u32 part = SPB_MAX_STACK; part >= PAGE; part /= 2)
		if (done_of(w) + part <= size &&
		    read_part(w, d, off, sp, part, part, other, whole) == 0)
			w->s.stack_bytes += part;
	/* Less than a page is left; it may lie in two. */
	for (int i = 0; i < 2; i++) {
		__u32 n = to_page_end(sp + done_of(w), size - done_of(w));
		if (n && read_part(w, d, off, sp, PAGE, n, other, whole) == 0)
			w->s.stack_bytes += n;
	}
}

/* The head and the kernel chain: they lie one behind the other. */
static __always_inline __u32 head_size(const struct work *w)
{
	__u32 n = w->s.n_kernel;
	barrier_var(n); /* clang knows too well that it is small, and tells the verifier nothing */
	return sizeof w->s + (n & SPB_MAX_CHAIN) * 8;
}

static __always_inline void put_dynptr(struct work *w, __u32 size, struct task_struct *other,
				       bool holes)
{
	struct bpf_dynptr d;
	void *ring = ring_in_use();
	__u64 sp = REGS_SP(&w->r);
	__u32 off = head_size(w);
	if (!ring) {
		count_lost();
		return;
	}
	bool whole = other || has_user_dynptr();
	__u32 total = off + ((size + 7) & ~7u) + (whole ? 0 : PAGE);
	if (bpf_ringbuf_reserve_dynptr(ring, total, 0, &d) < 0) {
		bpf_ringbuf_discard_dynptr(&d, 0);
		count_lost();
		return;
	}
	if (size)
		copy(w, &d, off, sp, size, other, whole, holes);
	bpf_dynptr_write(&d, 0, w, off, 0);
	bpf_ringbuf_submit_dynptr(&d, wake(ring));
}

static __always_inline void put_scratch(struct work *w, __u32 size)
{
	__u32 key = bpf_get_smp_processor_id() * 2 + (w->s.kind != SPB_ON_CPU);
	struct scratch *to = bpf_map_lookup_elem(&spb_scratch, &key);
	void *ring = ring_in_use();
	__u64 sp = REGS_SP(&w->r);
	__u32 done = 0, off = head_size(w);
	if (!to || !ring) {
		count_lost();
		return;
	}
	if (size > SCRATCH_STACK) {
		size = SCRATCH_STACK;
		w->s.flags &= ~SPB_CLIPPED;
	}
	for (int i = 0; i < SCRATCH_STACK / PAGE + 1 && done < size; i++) {
		__u32 n = to_page_end(sp + done, size - done);
		__u32 at = off + done;
		if (n > PAGE || at > sizeof *to - PAGE ||
		    bpf_probe_read_user(to->bytes + at, n, (const void *)(sp + done)) != 0)
			break;
		done += n;
	}
	w->s.stack_bytes = done;
	bpf_probe_read_kernel(to->bytes, off, w);
	__u32 total = off + ((done + 7) & ~7u);
	if (total > sizeof *to || bpf_ringbuf_output(ring, to, total, wake(ring)) < 0)
		count_lost();
}

static __noinline void put_plain(struct work *w, __u32 size)
{
	if (HAS(ringbuf_reserve_dynptr, SPB_DYNPTR))
		put_dynptr(w, size, NULL, false);
	else
		put_scratch(w, size);
}

static __noinline void put_whole(struct work *w, __u32 size)
{
	if (HAS(ringbuf_reserve_dynptr, SPB_DYNPTR))
		put_dynptr(w, size, NULL, true);
	else
		put_scratch(w, size);
}

/* The record with so much of the stack, less what is missing. */
static __always_inline void put(struct work *w, __u32 size, bool plain)
{
	if (plain)
		put_plain(w, size);
	else
		put_whole(w, size);
}

/* The fields that all records have. */
static __always_inline void fill(struct work *w, __u32 kind)
{
	__u64 id = bpf_get_current_pid_tgid();
	w->s.time_ns = bpf_ktime_get_ns();
	w->s.pid = id >> 32;
	w->s.tid = (__u32)id;
	w->s.cpu = bpf_get_smp_processor_id();
	w->s.kind = kind;
	w->s.flags = 0;
	w->s.id = w->s.period = 0;
	w->s.n_kernel = w->s.stack_bytes = 0;
	w->s.state = w->s.waker_pid = w->s.waker_tid = w->s.zero = 0;
}

/* A record of this CPU, in one of its two places; NULL: no room to work. */
static __always_inline struct work *begin_in(__u32 slot, __u32 kind)
{
	struct work *w = bpf_map_lookup_elem(&spb_work, &slot);
	if (w)
		fill(w, kind);
	return w;
}

static __always_inline struct work *begin(__u32 kind)
{
	return begin_in(kind != SPB_ON_CPU, kind);
}

#ifdef SPB_LIGHT
#define ON_CPU "perf_event"
#define spb_window 0
#define spb_exit 0
#define end_by_sample(t) ((void)(t))
#else
#define ON_CPU "?perf_event"
#include "off_cpu.h"
#endif

/* --- on the CPU --- */

static __always_inline int sample(struct perf_context *ctx, bool plain)
{
	struct task_struct *t = (struct task_struct *)bpf_get_current_task();
	__u32 size = 0;
	/* Without dynptr an NMI and the switch that it came upon would share the scratch copy. */
	if (spb_window && !spb_exit && HAS(ringbuf_reserve_dynptr, SPB_DYNPTR))
		end_by_sample(t);
	struct work *w = begin(SPB_ON_CPU);
	if (!w)
		return spb_counted;
	w->s.period = ctx->sample_period;
	w->s.ip = REGS_IP(&ctx->regs);
	if (HAS(get_attach_cookie, SPB_COOKIE))
		w->s.id = bpf_get_attach_cookie(ctx);
	if (!REGS_IS_USER(&ctx->regs))
		w->s.flags |= SPB_IN_KERNEL;
	if (spb_kernel) {
		long n = bpf_get_stack(ctx, w->ip, SPB_MAX_CHAIN * 8, 0);
		w->s.n_kernel = n > 0 ? (__u32)n / 8 : 0;
	}
	if (BPF_CORE_READ(t, mm) && !(BPF_CORE_READ(t, flags) & PF_KTHREAD) && user_regs(&w->r)) {
		put_regs(w);
		size = stack_size(&w->s, t, REGS_SP(&w->r), plain);
	}
	put(w, size, plain);
	return spb_counted;
}

SEC(ON_CPU)
int on_cpu(struct perf_context *ctx)
{
	return sample(ctx, false);
}

#ifndef SPB_LIGHT
SEC("?perf_event")
int on_cpu_plain(struct perf_context *ctx)
{
	return sample(ctx, true);
}
#endif
