#define _GNU_SOURCE
#include "bpf_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "waits.h"

#ifndef SP_NO_BPF

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/buf.h"
#include "base/cli.h"
#include "bpf/record.h"
#include "btf.h"
#include "events.h"
#include "kernel.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wpointer-arith"
#pragma GCC diagnostic ignored "-Wunused-function"
#if defined(__aarch64__)
#include "bpf/capture.skel.arm64.h"
#include "bpf/light.skel.arm64.h"
#else
#include "bpf/capture.skel.x86.h"
#include "bpf/light.skel.x86.h"
#endif
#pragma GCC diagnostic pop

#define BTF_FILE "/sys/kernel/btf/vmlinux"
#define MAX_THREADS 131072u           /* of the whole machine, that have waited */
#define MAX_RESUMES 4096u             /* threads whose stacks are awaited at once */
/* Task work costs some 10 us: it pays where most waits are too short to be recorded. */
#define AFTER_MIN_NS UINT64_C(10000)
#define MAX_ENDS 16384u
/* Bytes of a page that is missing: where they are taken for an address, the stack ends, marked. */
#define NO_ADDRESS 0xa5
#define NEEDED_FDS 64u          /* programs, maps, links, rings: some 40 */
#define INIT_PID_NS 0xEFFFFFFCu /* PROC_PID_INIT_INO, include/linux/proc_ns.h */

struct cap_bpf {
	struct capture_bpf *skel; /* owned; of waits, and of samples where light is not; or NULL */
	struct light_bpf *light;  /* owned; of samples, where the kernel can load it; or NULL */
	int ring, on_cpu;         /* descriptors of one of them */
	struct shared {           /* of each of them, with us */
		uint32_t *woken;
		const uint64_t *lost;
	} shared[2];
	size_t n_shared;
	int *links; /* owned descriptors */
	size_t n_links, cap_links;
	struct cap_ring mapped; /* owned, until cap_bpf_ring gives it away */
	size_t page_bytes;
	int epoll_fd; /* owned */
	uint32_t lacks;
	bool after; /* stacks after long waits */
	bool plain; /* the programs without callbacks: bpf/capture.bpf.c */
	bool has_state_arg;
	bool parked; /* the kernel lets us copy the stacks of threads that still wait at the end */
	uint64_t since_ns; /* switched on */
};

/* What libbpf has to say, the verifier's log too: with -vv. */
static int __attribute__((format(printf, 2, 0)))
say(enum libbpf_print_level level, const char *format, va_list args)
{
	char *text = NULL, *rest;
	(void)level;
	if (sp_verbosity < 2 || vasprintf(&text, format, args) < 0)
		return 0;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		sp_detail("%s", line);
	free(text);
	return 0;
}

static uint32_t do_without(void)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} names[] = {{"dynptr", SPB_DYNPTR},       {"user_dynptr", SPB_USER_DYN},
		     {"find_vma", SPB_FIND_VMA},   {"task_regs", SPB_TASK_REGS},
		     {"task_work", SPB_TASK_WORK}, {"cookie", SPB_COOKIE},
		     {"exit", SPB_EXIT},
		     {"switches", SPB_SWITCHES},
		     {"light", SPB_LOADER}};
	const char *list = getenv("STACKPULSE_BPF_WITHOUT");
	uint32_t bits = 0;
	while (list && *list) {
		size_t n = strcspn(list, ",");
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			if (strlen(names[i].name) == n && memcmp(list, names[i].name, n) == 0)
				bits |= names[i].bit;
		list += n + (list[n] == ',');
	}
	return bits;
}

/* The programs see the pids of the first namespace; perf's records those of ours. */
static bool in_first_pid_namespace(void)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == INIT_PID_NS;
}

static int explain(int rc, char cure[200], struct sp_err *err)
{
	int os = rc < 0 ? -rc : errno;
	bool perm = os == EPERM || os == EACCES;
	if (perm && cap_seccomp_mode() == 2)
		snprintf(cure, 200,
			 "a seccomp filter is in force here (/proc/self/status: Seccomp: 2): allow bpf "
			 "in the container's profile, with CAP_BPF and CAP_PERFMON");
	else if (perm && cap_is_locked_down())
		snprintf(cure, 200,
			 "the kernel is locked down (/sys/kernel/security/lockdown: confidentiality): "
			 "boot it with lockdown=integrity");
	else if (perm)
		snprintf(cure, 200, "run it as root, or give it CAP_BPF and CAP_PERFMON");
	return sp_err_set(err, perm ? SP_ERR_PERM : SP_ERR_UNSUPPORTED, os,
			  "cannot use the BPF engine: loading its programs: %s", strerror(os));
}

static int check_here(char cure[200], struct sp_err *err)
{
	if (geteuid() != 0 && access(BTF_FILE, R_OK) < 0 && errno == EACCES)
		return explain(-EACCES, cure, err);
	if (access(BTF_FILE, R_OK) < 0) {
		int os = errno;
		snprintf(cure, 200,
			 "a kernel with CONFIG_DEBUG_INFO_BTF=y, and /sys of the host in a "
			 "container");
		return sp_err_set(err, SP_ERR_UNSUPPORTED, os,
				  "cannot use the BPF engine: this kernel tells no BTF (" BTF_FILE
				  ": %s)",
				  strerror(os));
	}
	if (!in_first_pid_namespace()) {
		snprintf(cure, 200, "run it on the host, or in a container with --pid=host");
		return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
				  "cannot use the BPF engine: its programs see the host's process "
				  "ids, and this is another pid namespace");
	}
	return 0;
}

/* Edge-triggered: plain poll() would report every record, not only the wake-ups. */
static int watch_ring(struct cap_bpf *b, int fd, struct sp_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	if (epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return sp_err_errno(err, "cannot use the BPF engine: epoll");
	return 0;
}

static int open_ring(struct cap_bpf *b, size_t bytes, struct sp_err *err)
{
	b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (b->epoll_fd < 0)
		return sp_err_errno(err, "cannot use the BPF engine: epoll");
	int fd = fcntl(b->ring, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return sp_err_errno(err, "cannot use the BPF engine: fcntl");
	int rc = cap_bpf_ring_map(&b->mapped, fd, bytes, b->page_bytes, err);
	if (rc < 0)
		return rc;
	b->mapped.fd = b->epoll_fd;
	return watch_ring(b, b->ring, err);
}

/* What this kernel lacks: helpers are asked for by loading a program that calls them, functions and
 * tracepoints by its BTF, where they decide. */
static int find_lacks(struct cap_bpf *b, bool off_cpu, struct sp_err *err)
{
	static const struct {
		enum bpf_func_id id;
		uint32_t bit;
	} helpers[] = {{BPF_FUNC_ringbuf_reserve_dynptr, SPB_DYNPTR},
		       {BPF_FUNC_find_vma, SPB_FIND_VMA},
		       {BPF_FUNC_task_pt_regs, SPB_TASK_REGS},
		       {BPF_FUNC_get_attach_cookie, SPB_COOKIE}};
	b->lacks = do_without();
	/* None of them came later; of older kernels, distributions' have some. */
	bool has_all = cap_kernel_is_from(5, 19);
	for (size_t i = 0; !has_all && i < sizeof helpers / sizeof *helpers; i++)
		if (libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, helpers[i].id, NULL) == 0)
			b->lacks |= helpers[i].bit;
	if (!off_cpu)
		return 0;
	struct cap_btf btf;
	int rc = cap_btf_read(&btf, BTF_FILE, err);
	if (rc < 0)
		return rc;
	if (!cap_btf_find(&btf, "bpf_probe_read_user_dynptr", BTF_KIND_FUNC))
		b->lacks |= SPB_USER_DYN;
	if (!cap_btf_find(&btf, "bpf_task_work_schedule_resume_impl", BTF_KIND_FUNC))
		b->lacks |= SPB_TASK_WORK;
	b->parked = cap_btf_find(&btf, "bpf_copy_from_user_task_dynptr", BTF_KIND_FUNC) != 0;
	if (!cap_btf_find(&btf, "btf_trace_sched_exit_tp", BTF_KIND_TYPEDEF))
		b->lacks |= SPB_EXIT;
	/* The first argument is the program's context; the state came as one more. */
	b->has_state_arg = cap_btf_n_args(&btf, "btf_trace_sched_switch") >= 5;
	cap_btf_deinit(&btf);
	return 0;
}

static void set_off_cpu(struct cap_bpf *b, const struct cap_bpf_want *want)
{
	struct capture_bpf *k = b->skel;
	struct bpf_program *programs[] = {
		b->plain ? k->progs.off_switch_plain : k->progs.off_switch, k->progs.off_waking,
		k->progs.off_fork, k->progs.off_exec};
	bpf_program__set_autoload(k->progs.off_exit, !(b->lacks & SPB_EXIT));
	bpf_program__set_autoload(k->progs.off_parked, b->parked);
	for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
		bpf_program__set_autoload(programs[i], true);
	uint64_t per_window = (want->max_waits << SPB_WINDOW_SHIFT) / 1000000000;
	k->rodata->spb_min_ns = want->min_ns;
	k->rodata->spb_by_thread = want->by_thread;
	k->rodata->spb_follow = want->follow;
	k->rodata->spb_all = want->all;
	k->rodata->spb_kthreads = want->kernel_threads;
	k->rodata->spb_in_group = want->in_group;
	if (want->all)
		bpf_map__set_max_entries(k->maps.spb_waits, MAX_THREADS);
	k->rodata->spb_after = b->after;
	k->rodata->spb_exit = !(b->lacks & SPB_EXIT);
	k->rodata->spb_state_arg = b->has_state_arg;
	k->rodata->spb_window = per_window < 1            ? 1
				: per_window < UINT32_MAX ? (uint32_t)per_window
							  : UINT32_MAX;
	if (b->after)
		bpf_map__set_max_entries(k->maps.spb_resumes, MAX_RESUMES);
}

static uint64_t wake_bytes(size_t ring_bytes)
{
	return ring_bytes / 3;
}

/* The programs' next records go into that ring. The kernel returns when none that began before still
 * runs (kernel/bpf/syscall.c, maybe_wait_bpf_programs). */
static int put_in_place(struct cap_bpf *b, int fd, size_t ring_bytes)
{
	uint32_t key = 0;
	int rc = bpf_map_update_elem(b->light->maps.spb_rings.map_fd, &key, &fd, BPF_ANY);
	if (rc >= 0)
		__atomic_store_n(&b->light->bss->spb_wake_bytes, wake_bytes(ring_bytes),
				 __ATOMIC_RELAXED);
	return rc;
}

static uint32_t max_stack(const struct cap_bpf_want *want)
{
	return want->max_stack && want->max_stack < SPB_MAX_STACK ? want->max_stack : SPB_MAX_STACK;
}

static uint32_t n_scratch(const struct cap_bpf *b, const struct cap_bpf_want *want)
{
	return b->lacks & SPB_DYNPTR ? (uint32_t)want->n_cpus_avail * 2 : 1;
}

/* Threads whose stacks' ends are kept. All of them are allocated at once, and a thread that has dropped
 * out costs 10 us at its next sample: so many as take turns on the CPUs. */
static uint32_t n_ends(const struct cap_bpf_want *want)
{
	uint64_t n = (uint64_t)want->n_cpus_avail * (want->all ? 4096 : 1024);
	return n < MAX_ENDS ? (uint32_t)n : MAX_ENDS;
}

/* Asked of a kernel that can load by itself. Its BTF takes half a millisecond to search. */
static bool has_user_dynptr(void)
{
	struct cap_btf btf;
	struct sp_err err;
	if (cap_kernel_is_from(6, 16))
		return true;
	bool has = cap_btf_map(&btf, BTF_FILE, &err) == 0 &&
		   cap_btf_find(&btf, "bpf_probe_read_user_dynptr", BTF_KIND_FUNC);
	cap_btf_deinit(&btf);
	return has;
}

/* The program of samples, by the kernel's own means: it has the BTF that libbpf would read first.
 * Beside that of waits, whose ring it will share, it needs none of its own. */
static int load_light(struct cap_bpf *b, const struct cap_bpf_want *want)
{
	size_t ring_bytes = want->off_cpu ? b->page_bytes : want->first_bytes;
	b->light = light_bpf__open();
	if (!b->light)
		return -ENOMEM;
	b->light->rodata->spb_without = b->lacks | (has_user_dynptr() ? 0 : SPB_USER_DYN);
	b->light->rodata->spb_kernel = want->kernel_frames;
	b->light->rodata->spb_counted = want->counted;
	b->light->bss->spb_wake_bytes = wake_bytes(ring_bytes);
	memset(b->light->bss->spb_hole, NO_ADDRESS, sizeof b->light->bss->spb_hole);
	b->light->rodata->spb_max_stack = max_stack(want);
	b->light->maps.spb_ring.max_entries = (uint32_t)ring_bytes;
	b->light->maps.spb_scratch.max_entries = n_scratch(b, want);
	b->light->maps.spb_ends.max_entries = n_ends(want);
	int rc = light_bpf__load(b->light);
	if (rc < 0) {
		light_bpf__destroy(b->light);
		b->light = NULL;
		return rc;
	}
	b->ring = b->light->maps.spb_ring.map_fd;
	b->on_cpu = b->light->progs.on_cpu.prog_fd;
	b->shared[b->n_shared++] = (struct shared){
		&b->light->bss->spb_woken, (const uint64_t *)b->light->bss->spb_lost};
	return 0;
}

static int load_full(struct cap_bpf *b, const struct cap_bpf_want *want)
{
	b->skel = capture_bpf__open();
	if (!b->skel)
		return -errno;
	struct bpf_program *on_cpu =
		b->plain ? b->skel->progs.on_cpu_plain : b->skel->progs.on_cpu;
	b->skel->rodata->spb_without = b->lacks;
	b->skel->rodata->spb_kernel = want->kernel_frames;
	b->skel->rodata->spb_counted = want->counted;
	b->skel->bss->spb_wake_bytes = wake_bytes(want->ring_bytes);
	memset(b->skel->bss->spb_hole, NO_ADDRESS, sizeof b->skel->bss->spb_hole);
	b->skel->rodata->spb_max_stack = max_stack(want);
	bpf_map__set_max_entries(b->skel->maps.spb_ring, (uint32_t)want->ring_bytes);
	bpf_map__set_max_entries(b->skel->maps.spb_scratch, n_scratch(b, want));
	bpf_map__set_max_entries(b->skel->maps.spb_ends, n_ends(want));
	bpf_program__set_autoload(on_cpu, !b->light);
	if (want->off_cpu)
		set_off_cpu(b, want);
	int rc = capture_bpf__load(b->skel);
	if (rc >= 0 && want->off_cpu)
		rc = capture_bpf__attach(b->skel);
	if (rc < 0)
		return rc;
	b->ring = bpf_map__fd(b->skel->maps.spb_ring);
	b->shared[b->n_shared++] = (struct shared){
		&b->skel->bss->spb_woken, (const uint64_t *)b->skel->bss->spb_lost};
	if (b->light)
		return put_in_place(b, b->ring, want->ring_bytes);
	b->on_cpu = bpf_program__fd(on_cpu);
	return 0;
}

static int load(struct cap_bpf *b, const struct cap_bpf_want *want, char cure[200],
		struct sp_err *err)
{
	b->after = want->off_cpu && !(b->lacks & (SPB_TASK_WORK | SPB_EXIT)) &&
		   want->min_ns >= AFTER_MIN_NS;
	b->plain = b->lacks & SPB_FIND_VMA && !b->after;
	/* Where waits end by samples (off_cpu.h, untold), theirs is one program with those of waits. */
	bool is_apart = !b->plain && !(b->lacks & SPB_LOADER) &&
			(!want->off_cpu || !(b->lacks & SPB_EXIT));
	int rc = is_apart ? load_light(b, want) : -ENOSYS;
	/* What is not allowed the one way is not the other: no use to read the BTF. */
	if (want->off_cpu || rc < 0)
		rc = rc == -EPERM || rc == -EACCES ? rc : load_full(b, want);
	if (rc < 0)
		return explain(rc, cure, err);
	return open_ring(b, b->skel ? want->ring_bytes : want->first_bytes, err);
}

/*
 * Asked before anything is tried: where descriptors end, libbpf's probes take the kernel for an
 * older one and fail later, for a reason that misleads.
 */
static int reserve_fds(char cure[200], struct sp_err *err)
{
	rlim_t limit = 0;
	for (unsigned n_free = 0; n_free < NEEDED_FDS; limit++)
		n_free += fcntl((int)limit, F_GETFD) < 0;
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= limit)
		return 0;
	if (r.rlim_max >= limit && cap_fds_raise())
		return 0;
	snprintf(cure, 200, "raise the limit of open files: ulimit -n %llu",
		 (unsigned long long)limit);
	return sp_err_set(err, SP_ERR_UNSUPPORTED, EMFILE,
			  "cannot use the BPF engine: it needs %u descriptors, and the limit is "
			  "%llu with %llu open",
			  NEEDED_FDS, (unsigned long long)r.rlim_max,
			  (unsigned long long)limit - NEEDED_FDS);
}

int cap_bpf_open(struct cap_bpf **out, const struct cap_bpf_want *want, char cure[200],
		 struct sp_err *err)
{
	cure[0] = 0;
	int rc = check_here(cure, err);
	if (rc == 0)
		rc = reserve_fds(cure, err);
	if (rc < 0)
		return rc;
	struct cap_bpf *b = calloc(1, sizeof *b);
	if (!b)
		return sp_err_nomem(err);
	b->epoll_fd = -1;
	b->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	libbpf_set_print(say);
	rc = find_lacks(b, want->off_cpu, err);
	if (rc >= 0)
		rc = load(b, want, cure, err);
	if (rc < 0) {
		cap_bpf_close(b);
		return rc;
	}
	*out = b;
	return 0;
}

void cap_bpf_close(struct cap_bpf *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->n_links; i++)
		close(b->links[i]);
	free(b->links);
	cap_ring_unmap(&b->mapped);
	if (b->epoll_fd >= 0)
		close(b->epoll_fd);
	if (b->light)
		light_bpf__destroy(b->light);
	if (b->skel)
		capture_bpf__destroy(b->skel);
	free(b);
}

int cap_bpf_hang(struct cap_bpf *b, int event_fd, uint64_t cookie, struct sp_err *err)
{
	if (cookie && !(b->lacks & SPB_COOKIE)) {
		struct bpf_link_create_opts opts = {.sz = sizeof opts,
						    .perf_event.bpf_cookie = cookie};
		int fd = bpf_link_create(b->on_cpu, event_fd, BPF_PERF_EVENT, &opts);
		int *slot = fd < 0 ? NULL : SP_PUSH(&b->links, &b->n_links, &b->cap_links);
		if (slot) {
			*slot = fd;
			return 0;
		}
		if (fd >= 0)
			close(fd);
	}
	if (ioctl(event_fd, PERF_EVENT_IOC_SET_BPF, b->on_cpu) < 0)
		return sp_err_errno(err, "cannot sample by a BPF program: PERF_EVENT_IOC_SET_BPF");
	return 0;
}

const char *cap_bpf_lacks(const struct cap_bpf *b)
{
	static const char *const what[] = {"copies of at most 64 KiB (before Linux 5.19)",
					   "copies page by page (before 6.16)",
					   "no stack ends (before 5.17)",
					   "registers by their place (before 5.15)",
					   "waits copied before they are long (before 6.18)",
					   "no marks on events (before 5.15)",
					   "some switches back found late (before 6.14)"};
	static char list[400];
	size_t n = 0;
	list[0] = 0;
	for (size_t i = 0; i < sizeof what / sizeof *what; i++)
		if (b->lacks >> i & 1 && n < sizeof list)
			n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? "; " : "",
					      what[i]);
	return list;
}

uint64_t cap_bpf_lost(const struct cap_bpf *b, uint32_t cpu)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < b->n_shared && cpu < SPB_MAX_CPUS; i++)
		sum += __atomic_load_n(&b->shared[i].lost[cpu], __ATOMIC_RELAXED);
	return sum;
}

int cap_bpf_target(struct cap_bpf *b, int32_t id, bool from_exec, struct sp_err *err)
{
	uint32_t key = (uint32_t)id, active = !from_exec;
	if (bpf_map_update_elem(bpf_map__fd(b->skel->maps.spb_targets), &key, &active, BPF_ANY) < 0)
		return sp_err_errno(err, "cannot follow the waits of %d: bpf_map_update_elem", id);
	return 0;
}

void cap_bpf_untarget(struct cap_bpf *b, int32_t id)
{
	uint32_t key = (uint32_t)id;
	bpf_map_delete_elem(bpf_map__fd(b->skel->maps.spb_targets), &key);
}

int cap_bpf_group(struct cap_bpf *b, int cgroup_fd, struct sp_err *err)
{
	uint32_t key = 0;
	if (bpf_map_update_elem(bpf_map__fd(b->skel->maps.spb_group), &key, &cgroup_fd, BPF_ANY) <
	    0)
		return sp_err_errno(
			err, "cannot follow the waits of a control group: bpf_map_update_elem");
	return 0;
}

/* What was seen before waits were switched off tells nothing. */
static void forget_waits(struct cap_bpf *b)
{
	int map = bpf_map__fd(b->skel->maps.spb_waits);
	uint32_t tid;
	while (bpf_map_get_next_key(map, NULL, &tid) == 0 && bpf_map_delete_elem(map, &tid) == 0)
		;
}

void cap_bpf_switch(struct cap_bpf *b, bool on)
{
	if (on)
		forget_waits(b);
	uint64_t now = cap_now_ns();
	if (on)
		b->since_ns = now;
	__atomic_store_n(&b->skel->data->spb_since_ns, on ? now : UINT64_MAX, __ATOMIC_RELAXED);
}

uint64_t cap_bpf_since(const struct cap_bpf *b)
{
	return b->since_ns;
}

void cap_bpf_asleep(struct cap_bpf *b, int32_t pid, int32_t tid, uint32_t state, uint64_t since_ns)
{
	uint32_t key = (uint32_t)tid;
	struct spb_wait w = {.out_ns = since_ns, .state = state, .pid = (uint32_t)pid};
	bpf_map_update_elem(bpf_map__fd(b->skel->maps.spb_waits), &key, &w, BPF_NOEXIST);
}

bool cap_bpf_stacks_after(const struct cap_bpf *b)
{
	return b->after;
}

void cap_bpf_parked(struct cap_bpf *b)
{
	char nothing[64];
	int fd = b->skel->links.off_parked ? bpf_iter_create(bpf_link__fd(b->skel->links.off_parked))
					   : -1;
	while (fd >= 0 && read(fd, nothing, sizeof nothing) > 0)
		;
	if (fd >= 0)
		close(fd);
}

void cap_bpf_unfinished(struct cap_bpf *b, uint64_t now_ns,
			void (*each)(void *arg, const struct spb_sample *s), void *arg)
{
	int map = bpf_map__fd(b->skel->maps.spb_waits);
	uint32_t tid, *before = NULL;
	struct spb_wait w;
	while (bpf_map_get_next_key(map, before, &tid) == 0) {
		before = &tid;
		if (bpf_map_lookup_elem(map, &tid, &w) < 0 || !w.out_ns || w.out_ns < b->since_ns ||
		    w.out_ns > now_ns || now_ns - w.out_ns < b->skel->rodata->spb_min_ns)
			continue;
		struct spb_sample s = {.time_ns = now_ns,
				       .pid = w.pid,
				       .tid = tid,
				       .kind = SPB_WAIT,
				       .flags = SPB_LATE,
				       .id = w.out_ns,
				       .period = now_ns - w.out_ns,
				       .state = w.state};
		each(arg, &s);
	}
	forget_waits(b);
}

void cap_bpf_waits(const struct cap_bpf *b, struct cap_waits_counts *out)
{
	*out = (struct cap_waits_counts){0};
	for (size_t i = 0; i < SPB_MAX_CPUS; i++) {
		const struct spb_cpu *cpu = &b->skel->bss->spb_cpus[i];
		out->n_short += cpu->n_short;
		out->short_ns += cpu->short_ns;
		out->n_over += cpu->n_over;
		out->over_ns += cpu->over_ns;
		out->n_untold += cpu->n_untold;
		out->n_missed += cpu->n_missed;
		out->missed_ns += cpu->missed_ns;
	}
}

void cap_bpf_looking(struct cap_bpf *b)
{
	struct epoll_event ev;
	uint32_t woken = 0;
	for (size_t i = 0; i < b->n_shared; i++)
		woken |= __atomic_load_n(b->shared[i].woken, __ATOMIC_RELAXED);
	if (!woken)
		return;
	epoll_wait(b->epoll_fd, &ev, 1, 0);
	for (size_t i = 0; i < b->n_shared; i++)
		__atomic_store_n(b->shared[i].woken, 0, __ATOMIC_RELAXED);
}

void cap_bpf_ring(struct cap_bpf *b, struct cap_ring *r)
{
	*r = b->mapped;
	b->mapped = (struct cap_ring){.fd = -1};
}

int cap_bpf_grow(struct cap_bpf *b, struct cap_ring *r, struct cap_ring *old, size_t bytes,
		 struct sp_err *err)
{
	struct cap_ring m;
	if (b->skel)
		return 0;
	int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "spb_ring", 0, 0, (uint32_t)bytes, NULL);
	if (fd < 0)
		return sp_err_errno(err, "cannot make a larger ring: bpf_map_create");
	int rc = cap_bpf_ring_map(&m, fd, bytes, b->page_bytes, err);
	if (rc < 0)
		return rc;
	rc = watch_ring(b, fd, err);
	if (rc >= 0 && put_in_place(b, fd, bytes) < 0)
		rc = sp_err_errno(err, "cannot put a larger ring in place: bpf_map_update_elem");
	if (rc < 0) {
		cap_ring_unmap(&m);
		return rc;
	}
	*old = *r;
	old->fd = -1;
	*r = m;
	r->fd = b->epoll_fd;
	return 1;
}

#else

int cap_bpf_open(struct cap_bpf **out, const struct cap_bpf_want *want, char cure[200],
		 struct sp_err *err)
{
	(void)out, (void)want;
	snprintf(cure, 200, "build sp-capture with libbpf: make BPF=yes");
	return sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
			  "cannot use the BPF engine: it is not built in (BPF=no)");
}

void cap_bpf_close(struct cap_bpf *b)
{
	(void)b;
}

const char *cap_bpf_lacks(const struct cap_bpf *b)
{
	(void)b;
	return "";
}

int cap_bpf_hang(struct cap_bpf *b, int event_fd, uint64_t cookie, struct sp_err *err)
{
	(void)b, (void)event_fd, (void)cookie;
	return sp_err_set(err, SP_ERR_UNSUPPORTED, 0, "the BPF engine is not built in");
}

uint64_t cap_bpf_lost(const struct cap_bpf *b, uint32_t cpu)
{
	(void)b, (void)cpu;
	return 0;
}

int cap_bpf_target(struct cap_bpf *b, int32_t id, bool from_exec, struct sp_err *err)
{
	(void)b, (void)id, (void)from_exec, (void)err;
	return 0;
}

void cap_bpf_untarget(struct cap_bpf *b, int32_t id)
{
	(void)b, (void)id;
}

int cap_bpf_group(struct cap_bpf *b, int cgroup_fd, struct sp_err *err)
{
	(void)b, (void)cgroup_fd, (void)err;
	return 0;
}

void cap_bpf_switch(struct cap_bpf *b, bool on)
{
	(void)b, (void)on;
}

uint64_t cap_bpf_since(const struct cap_bpf *b)
{
	(void)b;
	return 0;
}

void cap_bpf_asleep(struct cap_bpf *b, int32_t pid, int32_t tid, uint32_t state, uint64_t since_ns)
{
	(void)b, (void)pid, (void)tid, (void)state, (void)since_ns;
}

bool cap_bpf_stacks_after(const struct cap_bpf *b)
{
	(void)b;
	return false;
}

void cap_bpf_parked(struct cap_bpf *b)
{
	(void)b;
}

void cap_bpf_unfinished(struct cap_bpf *b, uint64_t now_ns,
			void (*each)(void *arg, const struct spb_sample *s), void *arg)
{
	(void)b, (void)now_ns, (void)each, (void)arg;
}

void cap_bpf_waits(const struct cap_bpf *b, struct cap_waits_counts *out)
{
	(void)b;
	*out = (struct cap_waits_counts){0};
}

void cap_bpf_looking(struct cap_bpf *b)
{
	(void)b;
}

void cap_bpf_ring(struct cap_bpf *b, struct cap_ring *r)
{
	(void)b;
	*r = (struct cap_ring){.fd = -1};
}

int cap_bpf_grow(struct cap_bpf *b, struct cap_ring *r, struct cap_ring *old, size_t bytes,
		 struct sp_err *err)
{
	(void)b, (void)r, (void)old, (void)bytes, (void)err;
	return 0;
}

#endif
