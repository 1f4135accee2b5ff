/* Time off the CPU: included by capture.bpf.c.
 *
 * A wait begins and ends at sched_switch. Two records tell of it: SPB_WAIT (its length, the task's
 * state, who woke it, the kernel's chain), made as it ends, and SPB_STACK (user registers and
 * stack). The stack can be had only while the task itself is current: before: at the switch away,
 * of every wait, whatever comes of it; from Linux 5.10 on; after:  once a wait was long enough, by
 * task work as the task goes back to user mode, where its stack is as it was. Costs nothing while
 * waits are short; Linux 6.18. Of waits that outlast the recording it is taken at its end,
 * of those that were there before at its begin (off_parked). The reader joins the two (waits.c).
 *
 * sched_switch is not called at every switch: on some virtual machines it keeps silent about those
 * away from certain threads, and so about whom they give the CPU to. Where there is sched_exit_tp
 * (Linux 6.14), which a thread passes as it leaves the scheduler, it ends what sched_switch left open:
 * the thread is still below the same system call, so its stack can be had as of any other wait. Before,
 * a thread that is sampled or switched away from while its wait has not ended has come back untold.
 * When, sched_info knows, by the scheduler's clock: what lies between that one and ours is learnt of
 * the switches that are told. The stack of such a wait must have been copied before. */

#define TASK_DEAD_BITS 0xb0u /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */
#define OWN_FRAMES 16u       /* of a program at most, on the stack below it */

const volatile __u64 spb_min_ns = 0;    /* shorter waits are counted only */
const volatile __u32 spb_by_thread = 0; /* spb_targets has tids, not pids */
const volatile __u32 spb_follow = 0;
const volatile __u32 spb_all = 0;      /* all processes; those in spb_targets are left out */
const volatile __u32 spb_kthreads = 0; /* kernel threads too */
const volatile __u32 spb_in_group = 0; /* of the control group in spb_group only */
const volatile __u32 spb_after = 0;     /* stacks after long waits instead of before all */
const volatile __u32 spb_state_arg = 0; /* sched_switch has the state as 4th argument (5.18) */
const volatile __u32 spb_window = 0;    /* records of a kind a CPU and window */
const volatile __u32 spb_exit = 0;      /* off_exit is attached */

__u64 spb_since_ns = ~0ull; /* waits that began before do not count; all bits: switched off */
struct spb_cpu spb_cpus[SPB_MAX_CPUS]; /* with an initializer clang 14 tells of it in .data */
__u64 spb_clock_any = 0; /* of the CPU that learnt it last */
__u32 spb_skip = 0; /* frames of off_exit on a thread's own chain + 1, 0: not known */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32); /* 0: from its exec on */
} spb_targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} spb_group SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct spb_wait);
} spb_waits SEC(".maps");

struct bucket {
	__u64 window;
	__u32 n, zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct bucket);
} spb_buckets SEC(".maps");

struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));

/* A stack to be copied as its task goes back to user mode. */
struct resume {
	struct bpf_task_work tw;
	__u64 since_ns; /* end of the first wait that it is for; 0: none */
	struct work w;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading, where it is used */
	__type(key, __u32);
	__type(value, struct resume);
} spb_resumes SEC(".maps");

static __u8 no_resume[sizeof(struct resume)];

/* libbpf compares the prototype with the kernel's, and wants a type that is complete. */
struct bpf_map {
	__u32 id;
} __attribute__((preserve_access_index));

extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map,
					      int (*callback)(struct bpf_map *, void *, void *),
					      void *aux__prog) __ksym __weak;

/* Softirqs, interrupts and NMIs: nobody's doing. The count of nesting interrupts cannot be had on
 * every x86-64 kernel (a per-CPU variable, no symbol without CONFIG_KALLSYMS_ALL). But interrupts
 * run on a stack of their own, unless they came from user mode: the user's registers tell that, as
 * they hold no system call then. This program's frame must stay below 64 bytes, or Linux 6.13 gives
 * it a stack elsewhere. */
static __always_inline bool in_interrupt(void)
{
	struct task_struct *t = (struct task_struct *)bpf_get_current_task();
#if defined(__TARGET_ARCH_arm64)
	return (BPF_CORE_READ(t, thread_info.preempt.count) & 0x00ff0100) != 0;
#else
	__u64 here = 0;
	void *frame = &here;
	bpf_probe_read_kernel(&here, sizeof here, &frame);
	if (here - (__u64)BPF_CORE_READ(t, stack) >= KSTACK_BYTES)
		return true;
	if (BPF_CORE_READ(t, flags) & PF_KTHREAD)
		return false;
	const struct regs *user =
		HAS(task_pt_regs, SPB_TASK_REGS)
			? (void *)bpf_task_pt_regs(bpf_get_current_task_btf())
			: BPF_CORE_READ(t, stack) + KSTACK_BYTES - sizeof(struct regs);
	bpf_probe_read_kernel(&here, sizeof here, &user->orig_ax);
	return (__s64)here < 0;
#endif
}

static __always_inline struct spb_cpu *this_cpu(void)
{
	return &spb_cpus[bpf_get_smp_processor_id() & (SPB_MAX_CPUS - 1)];
}

static __always_inline bool is_target(struct task_struct *t)
{
	__u32 key = spb_by_thread ? t->pid : t->tgid;
	__u32 *active = bpf_map_lookup_elem(&spb_targets, &key);
	return active && *active;
}

/* The same of the current task, for those that are recorded by what they are. */
static __always_inline bool is_current_target(struct task_struct *t)
{
	__u32 key = t->tgid;
	if (!spb_all)
		return is_target(t);
	return t->pid && (spb_kthreads || !(t->flags & PF_KTHREAD)) &&
	       !bpf_map_lookup_elem(&spb_targets, &key) &&
	       (!spb_in_group || bpf_current_task_under_cgroup(&spb_group, 0) == 1);
}

/* Whether this CPU may make one more record of a kind now, of a long wait or of a short one. */
static __always_inline bool may(__u32 what, __u64 now, bool is_long)
{
	struct bucket *b = bpf_map_lookup_elem(&spb_buckets, &what);
	if (!b)
		return false;
	if (b->window != now >> SPB_WINDOW_SHIFT) {
		b->window = now >> SPB_WINDOW_SHIFT;
		b->n = 0;
	}
	if (b->n >= (is_long ? spb_window : SPB_FOR_SHORT(spb_window)))
		return false;
	b->n++;
	return true;
}

static __always_inline __u32 state_of(__u64 *ctx, struct task_struct *t)
{
	if (ctx[0]) /* preempted */
		return 0;
	if (spb_state_arg)
		return (__u32)ctx[3];
	if (bpf_core_field_exists(t->__state))
		return t->__state;
	return (__u32)BPF_CORE_READ((struct task_struct___old *)t, state);
}

static __always_inline void put_stack(struct work *w, struct task_struct *t, bool plain)
{
	__u32 size = 0;
	if (t->mm && !(t->flags & PF_KTHREAD) && user_regs(&w->r)) {
		put_regs(w);
		w->s.ip = REGS_IP(&w->r);
		size = stack_size(&w->s, t, REGS_SP(&w->r), plain);
	}
	put(w, size, plain);
}

/* A wait is over: its record, to be put by the caller; NULL: it makes none. */
static __always_inline struct work *end_wait(struct spb_wait *wait, __u32 tid, __u64 in, __u32 slot)
{
	struct spb_cpu *cpu = this_cpu();
	__u64 out = wait->out_ns;
	wait->out_ns = 0;
	wait->was_long = in - out >= SPB_LONG_NS;
	if (out < spb_since_ns)
		return NULL;
	if (in - out < spb_min_ns) {
		cpu->n_short++;
		cpu->short_ns += in - out;
		return NULL;
	}
	struct work *w = may(1, in, wait->was_long) ? begin_in(slot, SPB_WAIT) : NULL;
	if (!w) {
		cpu->n_over++;
		cpu->over_ns += in - out;
		return NULL;
	}
	w->s.time_ns = in;
	w->s.id = out;
	w->s.pid = wait->pid;
	w->s.tid = tid;
	w->s.period = in - out;
	w->s.ip = 0;
	w->s.state = wait->state;
	w->s.waker_pid = wait->waker_pid;
	w->s.waker_tid = wait->waker_tid;
	__builtin_memcpy(w->s.waker_comm, wait->waker_comm, SPB_COMM);
	return w;
}

/* The current task came back untold, some time since its wait began. False: when is not known, or not
 * believable. */
static __always_inline bool end_untold(struct spb_wait *wait, __u32 tid, __u64 in, __u64 now,
				       __u32 slot)
{
	struct spb_cpu *cpu = this_cpu();
	if (in <= wait->out_ns)
		return false;
	/* The clocks are compared to some microseconds only. */
	if (in > now)
		in = now;
	struct work *w = end_wait(wait, tid, in, slot);
	cpu->n_untold++;
	if (w) {
		w->s.flags = SPB_LATE;
		put_plain(w, 0);
	}
	return true;
}

/* When the current task last got the CPU, by our clock; 0: not known. */
static __always_inline __u64 arrival_of(struct task_struct *t)
{
	struct spb_cpu *cpu = this_cpu();
	__u64 in = cpu->clock_ns ? cpu->clock_ns : spb_clock_any;
	if (!in || !bpf_core_field_exists(t->sched_info.last_arrival))
		return 0;
	return in + BPF_CORE_READ(t, sched_info.last_arrival);
}

/* The scheduler takes the time some microseconds earlier than we do: their mean is learnt, so that many
 * waits together are as long as they were. It is learnt of all threads, as clocks drift apart. When the host
 * took the CPU in between it is much earlier, and is taken for CLOCK_STEP_NS more. A thread that went away and
 * came back untold meanwhile has arrived once more, and later: nothing is learnt of it. */
#define CLOCK_STEP_NS 65536
#define CLOCK_MEAN 16 /* of so many the mean moves with each */

static __always_inline void learn_clock(struct spb_cpu *cpu, struct task_struct *prev)
{
	if (!bpf_core_field_exists(prev->sched_info.last_arrival))
		return;
	__u64 arrival = prev->sched_info.last_arrival, had = cpu->clock_ns;
	if (arrival && cpu->in_tid == prev->pid && cpu->in_ns &&
	    prev->sched_info.pcount == cpu->in_count) {
		__u64 seen = cpu->in_ns - arrival;
		__s64 more = seen - had;
		if (!had || more < -CLOCK_STEP_NS) {
			cpu->clock_ns = seen;
			cpu->n_clock = 1;
		} else {
			/* Its inverse, as a BPF program does not divide what is below 0. */
			__u64 n = cpu->n_clock < CLOCK_MEAN ? ++cpu->n_clock : CLOCK_MEAN;
			cpu->clock_ns = had + ((more < CLOCK_STEP_NS ? more : CLOCK_STEP_NS) *
						       (__s64)(1024 / n) >> 10);
		}
		spb_clock_any = cpu->clock_ns;
	}
}

/* What a sample finds, unless it came upon the switch away that began the wait. */
static __always_inline void end_by_sample(struct task_struct *t)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct spb_wait *wait = bpf_map_lookup_elem(&spb_waits, &tid);
	if (!wait || !wait->out_ns)
		return;
	end_untold(wait, tid, arrival_of(t), bpf_ktime_get_ns(), 0);
}

/* What the next switch away finds. */
static __always_inline void end_by_switch(struct spb_wait *wait, struct task_struct *t, __u64 now)
{
	struct spb_cpu *cpu = this_cpu();
	/* One that was found asleep as waits were switched on came back before that was known. */
	if (wait->out_ns && !end_untold(wait, t->pid, arrival_of(t), now, 1) &&
	    wait->out_ns > spb_since_ns) {
		cpu->n_missed++;
		cpu->missed_ns += now - wait->out_ns;
	}
}

static __always_inline void switch_out(__u64 *ctx, struct task_struct *t, __u64 now,
					bool plain)
{
	__u32 tid = t->pid;
	__u32 state = state_of(ctx, t);
	struct spb_wait *known = bpf_map_lookup_elem(&spb_waits, &tid);
	if (known)
		end_by_switch(known, t, now);
	if (state & TASK_DEAD_BITS) {
		bpf_map_delete_elem(&spb_waits, &tid);
		if (spb_after)
			bpf_map_delete_elem(&spb_resumes, &tid);
		return;
	}
	if (known) {
		known->out_ns = now;
		known->state = state;
		known->pid = t->tgid;
		known->waker_pid = known->waker_tid = 0;
	} else {
		struct spb_wait fresh = {.out_ns = now, .state = state, .pid = t->tgid};
		if (bpf_map_update_elem(&spb_waits, &tid, &fresh, BPF_ANY) < 0) {
			count_lost();
			return;
		}
	}
	/* It will most likely be as long as the one before. */
	if (spb_after || !may(0, now, known && known->was_long))
		return;
	struct work *w = begin(SPB_STACK);
	if (!w)
		return;
	w->s.time_ns = now;
	w->s.id = now;
	put_stack(w, t, plain);
}

static int on_resume(struct bpf_map *map, void *key, void *value)
{
	struct resume *r = value;
	fill(&r->w, SPB_STACK);
	r->w.s.period = r->since_ns;
	r->since_ns = 0;
	put_stack(&r->w, bpf_get_current_task_btf(), false);
	return 0;
}

/* Have the stack copied later; it serves all waits until then. False: none will come. A kernel thread has
 * none, and would never go back to user mode. */
static __always_inline bool want_stack(struct task_struct *t, __u32 tid, __u64 now)
{
	if (!t->mm || t->flags & PF_KTHREAD)
		return false;
	struct resume *r = bpf_map_lookup_elem(&spb_resumes, &tid);
	if (!r) {
		bpf_map_update_elem(&spb_resumes, &tid, no_resume, BPF_NOEXIST);
		r = bpf_map_lookup_elem(&spb_resumes, &tid);
	}
	if (!r || r->since_ns)
		return r != NULL;
	r->since_ns = now;
	if (bpf_task_work_schedule_resume_impl(t, &r->tw, &spb_resumes, on_resume, NULL) < 0)
		r->since_ns = 0;
	return r->since_ns != 0;
}

/* The kernel's chain of a thread that is off the CPU, or, less the first `skip` frames, of the current one. */
static __always_inline void put_chain(struct work *w, struct task_struct *t, __u64 skip)
{
	long n = bpf_get_task_stack(t, w->ip, SPB_MAX_CHAIN * 8, skip & BPF_F_SKIP_FIELD_MASK);
	w->s.n_kernel = n > 0 ? (__u32)n / 8 : 0;
}

static __always_inline void switch_in(struct task_struct *t, __u64 now, bool plain)
{
	__u32 tid = t->pid;
	struct spb_wait *wait = bpf_map_lookup_elem(&spb_waits, &tid);
	if (!wait)
		return;
	struct work *w = wait->out_ns ? end_wait(wait, tid, now, 1) : NULL;
	if (!w)
		return;
	if (spb_kernel) {
		put_chain(w, t, 0);
		struct spb_cpu *cpu = this_cpu();
		cpu->chain_ip = w->ip[0];
		cpu->chain_tid = w->s.n_kernel ? tid : 0;
	}
	if (!plain && spb_after && &bpf_task_work_schedule_resume_impl != 0 &&
	    !want_stack(t, tid, now))
		w->s.flags |= SPB_LATE;
	put_plain(w, 0);
}

static __always_inline int switched(__u64 *ctx, bool plain)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	__u64 now = bpf_ktime_get_ns();
	struct spb_cpu *cpu = this_cpu();
	bool told = !(spb_without & SPB_SWITCHES && now & 1024);
	bool on = spb_since_ns <= now, leaves = on && is_current_target(prev);
	if (!spb_exit)
		learn_clock(cpu, prev);
	cpu->in_ns = now;
	cpu->in_tid = told ? next->pid : 0;
	if (!spb_exit && bpf_core_field_exists(next->sched_info.pcount))
		cpu->in_count = next->sched_info.pcount + 1; /* it is counted after this */
	cpu->chain_tid = 0;
	if (!on)
		return 0;
	if (leaves)
		switch_out(ctx, prev, now, plain);
	/* A thread dies on a CPU: who has an open wait is the one that was a target. */
	if (told && next->pid)
		switch_in(next, now, plain);
	return 0;
}

SEC("?tp_btf/sched_switch")
int off_switch(__u64 *ctx)
{
	return switched(ctx, false);
}

SEC("?tp_btf/sched_switch")
int off_switch_plain(__u64 *ctx)
{
	return switched(ctx, true);
}

/* On its own stack a program finds itself and what called it first. How much that is shows the chain
 * of a thread as sched_switch had it, and again a moment later, when the thread runs. */
static __always_inline void learn_skip(const struct spb_cpu *cpu, struct task_struct *t)
{
	__u32 slot = 1;
	struct work *w = bpf_map_lookup_elem(&spb_work, &slot);
	if (!w)
		return;
	long n = bpf_get_task_stack(t, w->ip, OWN_FRAMES * 8, 0);
	for (__u32 i = 0; i < OWN_FRAMES && (long)i * 8 < n; i++)
		if (w->ip[i] == cpu->chain_ip && !spb_skip)
			spb_skip = i + 1;
}

/* A thread leaves the scheduler: it is back, whether sched_switch told of it or not. */
SEC("?tp_btf/sched_exit_tp")
int off_exit(__u64 *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct spb_cpu *cpu = this_cpu();
	__u32 tid = t->pid;
	if (!ctx[0] || !tid || spb_since_ns == ~0ull)
		return 0;
	if (cpu->in_tid == tid) {
		if (spb_kernel && !spb_skip && cpu->chain_tid == tid)
			learn_skip(cpu, t);
		return 0;
	}
	struct spb_wait *wait = bpf_map_lookup_elem(&spb_waits, &tid);
	if (!wait || !wait->out_ns)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	struct work *w = end_wait(wait, tid, now, 1);
	cpu->n_untold++;
	if (!w)
		return 0;
	if (spb_kernel && spb_skip)
		put_chain(w, t, spb_skip - 1);
	if (spb_after && &bpf_task_work_schedule_resume_impl != 0 && !want_stack(t, tid, now))
		w->s.flags |= SPB_LATE;
	put_plain(w, 0);
	return 0;
}

/* It sleeps at times, on one CPU and another, while the other programs run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} spb_parked SEC(".maps");

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

/* At the end of a recording, and at its begin: the stack of a thread that waits. Those for which
 * the ring has no room go without. */
SEC("?iter.s/task")
int off_parked(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u32 tid = t ? t->pid : 0, slot = 0;
	struct spb_wait *wait = bpf_map_lookup_elem(&spb_waits, &tid);
	struct work *w = bpf_map_lookup_elem(&spb_parked, &slot);
	if (!t || !wait || !w || !wait->out_ns || !t->mm || t->flags & PF_KTHREAD ||
	    (!spb_after && wait->out_ns != spb_since_ns) || &bpf_copy_from_user_task_dynptr == 0)
		return 0;
	fill(w, SPB_STACK);
	if (spb_kernel)
		put_chain(w, t, 0);
	w->s.pid = t->tgid;
	w->s.tid = tid;
	w->s.id = wait->out_ns;
	if (bpf_probe_read_kernel(&w->r, sizeof w->r, (void *)bpf_task_pt_regs(t)) < 0)
		return 0;
	put_regs(w);
	w->s.ip = REGS_IP(&w->r);
	__u64 sp = REGS_SP(&w->r), used = bpf_ringbuf_query(&spb_ring, BPF_RB_AVAIL_DATA);
	/* Its mapping cannot be asked for here; what lies above its frames mostly is known. */
	struct end e = {.hi = sp + UNKNOWN_STACK};
	clip(&e, t, t->mm, sp);
	__u32 size = size_to(&w->s, e.hi < sp + UNKNOWN_STACK ? e.hi : 0, sp);
	if (used + size < bpf_ringbuf_query(&spb_ring, BPF_RB_RING_SIZE) / 2)
		put_dynptr(w, size, t, false);
	return 0;
}

/* Who wakes it; an interrupt is nobody: whom it interrupted has no part in it. */
SEC("?tp_btf/sched_waking")
int off_waking(__u64 *ctx)
{
	struct task_struct *t = (struct task_struct *)ctx[0];
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = t->pid;
	if (spb_since_ns == ~0ull)
		return 0;
	struct spb_wait *wait = bpf_map_lookup_elem(&spb_waits, &tid);
	if (!wait || !wait->out_ns)
		return 0;
	bool nobody = in_interrupt();
	wait->waker_pid = nobody ? 0 : id >> 32;
	wait->waker_tid = nobody ? 0 : (__u32)id;
	if (!nobody)
		bpf_get_current_comm(wait->waker_comm, SPB_COMM);
	return 0;
}

SEC("?tp_btf/sched_process_fork")
int off_fork(__u64 *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx[0];
	struct task_struct *child = (struct task_struct *)ctx[1];
	__u32 pid = child->tgid, active = 1;
	if (spb_follow && !spb_all && !spb_by_thread && child->tgid != parent->tgid && is_target(parent))
		bpf_map_update_elem(&spb_targets, &pid, &active, BPF_ANY);
	return 0;
}

SEC("?tp_btf/sched_process_exec")
int off_exec(__u64 *ctx)
{
	struct task_struct *t = (struct task_struct *)ctx[0];
	__u32 pid = t->tgid;
	__u32 *active = bpf_map_lookup_elem(&spb_targets, &pid);
	if (active)
		*active = 1;
	return 0;
}
