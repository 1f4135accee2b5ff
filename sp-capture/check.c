#define _GNU_SOURCE
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cli.h"
#include "bpf_engine.h"
#include "cgroup.h"
#include "events.h"
#include "rings.h"
#include "session.h"
#include "tasks.h"

static void number(const char *what, int64_t v)
{
	if (v == CAP_UNKNOWN)
		printf("  %-40s unreadable\n", what);
	else if (v == INT64_MAX)
		printf("  %-40s unlimited\n", what);
	else
		printf("  %-40s %lld\n", what, (long long)v);
}

static void limits(const struct cap_kernel *k)
{
	struct rlimit r = {0};
	getrlimit(RLIMIT_NOFILE, &r);
	printf("limits\n");
	number("kernel.perf_event_paranoid", k->paranoid);
	number("kernel.perf_event_max_sample_rate (Hz)", k->max_rate_hz);
	number("kernel.perf_event_mlock_kb (per CPU)", k->mlock_kb);
	number("ulimit -l, locked memory (KiB)", k->memlock_kb);
	number("ulimit -n, descriptors (hard)", (int64_t)r.rlim_max);
	number("CPUs online", (int64_t)k->n_cpus);
}

static void line(const char *what, bool works, const char *why, const char *cure)
{
	printf("  %-18s %s%s%s\n", what, works ? "yes" : "no", *why ? ": " : "", why);
	if (!works && *cure)
		printf("  %-18s cure: %s\n", "", cure);
}

/* One way of sampling, tried on ourselves. */
static bool try_way(const struct cap_options *asked, const struct cap_kernel *k, const char *event,
		    bool kernel, const char *label)
{
	struct cap_options o = *asked;
	struct cap_sampler s;
	struct sp_err err = {0};
	o.event = event;
	o.kernel = kernel;
	o.command = NULL;
	if (cap_sampler_init(&s, &o, k, &err) < 0) {
		line(label, false, err.msg, s.cure);
		return false;
	}
	bool works = cap_sampler_probe(&s, &err) >= 0;
	if (works && kernel && !s.kernel_frames)
		line(label, false, s.kernel_refusal,
		     "run it as root, or: sudo sysctl kernel.perf_event_paranoid=1");
	else
		line(label, works, works ? "" : err.msg, s.cure);
	if (works && !s.has_lost)
		line("exact loss", false, "this kernel is older than 6.0: LOST records are summed",
		     "");
	return works;
}

/* The rings of the engine that would be taken; the one that the CPUs share by BPF has been mapped
 * with its programs. */
static bool rings(struct cap_session *s, size_t shared)
{
	struct sp_err err = {0};
	size_t n = shared ? s->n_cpus : s->n_fds;
	struct cap_ring *r = calloc(n, sizeof *r);
	char why[240], more[80] = "";
	const struct cap_options *o = s->o;
	if (!r || cap_sampler_init(&s->sampler, o, &s->kernel, &err) < 0) {
		free(r);
		return false;
	}
	size_t wanted = shared ? CAP_SIDE_RING : cap_session_perf_ring(s);
	size_t got = wanted;
	int rc = cap_rings_map(r, n, &s->sampler, &got, shared ? 8 : o->stack_bytes, &err);
	if (rc < 0)
		line("rings", false, err.msg, s->sampler.cure);
	if (got < wanted)
		snprintf(more, sizeof more,
			 "; %zu KiB are wanted: ulimit -l %zu, or a smaller -s", wanted / 1024,
			 cap_rings_lock_kb(&s->kernel, n, wanted));
	if (rc >= 0 && shared)
		snprintf(why, sizeof why,
			 "%zu KiB for all CPUs, %zu KiB when stacks are large, which take what they "
			 "use; %zu KiB per CPU for side-band",
			 shared / 1024, s->most_ring_bytes / 1024, got / 1024);
	else if (rc >= 0)
		snprintf(why, sizeof why, "%zu KiB per CPU, %llu samples of %u stack bytes%s",
			 got / 1024, (unsigned long long)(got / cap_sample_bytes(o->stack_bytes)),
			 o->stack_bytes, more);
	if (rc >= 0)
		line("rings", true, why, "");
	for (size_t i = 0; rc >= 0 && i < n; i++)
		cap_ring_unmap(&r[i]);
	free(r);
	return rc >= 0;
}

/* Whether it can be sampled, and what descriptors that takes. */
static bool target(struct cap_session *s, int32_t id, bool is_process, bool is_bpf)
{
	struct sp_err err = {0};
	struct rlimit r = {0};
	int32_t *tids = NULL;
	size_t n = is_process ? 0 : 1, cap = 0;
	char label[32], why[120] = "";
	snprintf(label, sizeof label, "%s %d", is_process ? "process" : "thread", id);
	int rc = cap_sampler_init(&s->sampler, s->o, &s->kernel, &err);
	if (rc >= 0)
		rc = cap_attach_check_one(s, id, is_process, &err);
	if (rc >= 0 && is_process)
		rc = sp_tasks_list(id, &tids, &n, &cap, &err);
	free(tids);
	if (rc < 0) {
		line(label, false, err.msg, s->sampler.cure);
		return false;
	}
	size_t needed = cap_session_fds(s, n, is_bpf);
	getrlimit(RLIMIT_NOFILE, &r);
	bool works = needed <= r.rlim_max;
	snprintf(why, sizeof why, "%zu thread%s, some %zu descriptors", n, n == 1 ? "" : "s",
		 needed);
	snprintf(s->sampler.cure, sizeof s->sampler.cure,
		 "raise the limit: ulimit -n %zu (as root)", needed);
	line(label, works, why, s->sampler.cure);
	return works;
}

static bool targets(struct cap_session *s, bool is_bpf)
{
	bool all = true;
	const struct cap_options *o = s->o;
	for (size_t i = 0; i < o->n_pids; i++)
		all &= target(s, o->pids[i], true, is_bpf);
	for (size_t i = 0; i < o->n_tids; i++)
		all &= target(s, o->tids[i], false, is_bpf);
	return all;
}

/* *ring_bytes: what its ring has. */
static bool bpf_loads(const char *what, const struct cap_bpf_want *want, size_t *ring_bytes)
{
	struct cap_ring ring;
	struct cap_bpf *b;
	struct sp_err err = {0};
	char cure[200], why[500] = "";
	if (cap_bpf_open(&b, want, cure, &err) < 0) {
		line(what, false, err.msg, cure);
		return false;
	}
	if (*cap_bpf_lacks(b))
		snprintf(why, sizeof why, "with %s", cap_bpf_lacks(b));
	line(what, true, why, "");
	cap_bpf_ring(b, &ring);
	*ring_bytes = ring.size;
	cap_ring_unmap(&ring);
	cap_bpf_close(b);
	return true;
}

/* The BPF engine, by loading it: no condition of anything unless it is asked for. *shared: the ring
 * that all CPUs would share by it; 0 = the perf engine would be taken. */
static bool engine(struct cap_session *s, size_t *shared)
{
	const struct cap_options *o = s->o;
	struct sp_err err;
	struct cap_bpf_want want = {.kernel_frames = true,
				    .n_cpus_avail = s->kernel.n_cpus_avail,
				    .min_ns = o->off_min_ns,
				    .max_waits = 1};
	size_t sampling = 0, waiting = 0;
	char refusal[160];
	*shared = 0;
	cap_session_count(s);
	if (cap_sampler_init(&s->sampler, o, &s->kernel, &err) < 0)
		return false; /* which was said */
	cap_session_bpf_ring(s, &want.first_bytes, &want.ring_bytes);
	s->most_ring_bytes = want.ring_bytes;
	bool loads = bpf_loads("BPF", &want, &sampling);
	want.off_cpu = true;
	bool waits = bpf_loads("BPF, off-CPU", &want, &waiting);
	bool has_bpf = o->off_cpu ? waits : loads;
	bool works = has_bpf || o->engine != CAP_ENGINE_BPF;
	bool is_bpf = has_bpf && o->engine != CAP_ENGINE_PERF;
	line("engine", works, is_bpf ? "bpf" : works ? "perf" : "", "");
	if (is_bpf)
		*shared = o->off_cpu ? waiting : sampling;
	else if (o->off_cpu)
		s->stacks_of_switches = cap_sampler_tell_switches(&s->sampler, refusal);
	cap_session_count(s);
	return works;
}

/* -a, or the control group that was asked for. */
static bool whole_machine(const struct cap_options *o, const struct cap_kernel *k)
{
	struct cap_options all = *o;
	struct cap_sampler s;
	struct cap_cgroup group = {.fd = -1};
	struct sp_err err = {0};
	all.all = true;
	all.command = NULL;
	int fd = cap_sampler_init(&s, &all, k, &err);
	if (fd >= 0)
		fd = cap_sampler_probe(&s, &err);
	if (fd >= 0 && o->cgroup)
		fd = cap_cgroup_open(&group, o->cgroup, s.cure, &err);
	s.cgroup_fd = group.fd;
	if (fd >= 0)
		fd = cap_sampler_open_cpu(&s, CAP_SAMPLES_ALL, k->cpus[0], &err);
	line(o->cgroup ? "control group" : "all processes", fd >= 0,
	     fd < 0      ? err.msg
	     : o->cgroup ? group.path
			 : "",
	     s.cure);
	if (fd >= 0)
		close(fd);
	cap_cgroup_close(&group);
	return fd >= 0;
}

int cap_check(const struct cap_options *o)
{
	struct cap_kernel k;
	struct sp_err err;
	size_t shared;
	struct cap_session *s = calloc(1, sizeof *s);
	if (!s)
		sp_die(&(struct sp_err){.msg = "out of memory"}, NULL);
	if (cap_kernel_read(&k, &err) < 0)
		sp_die(&err, NULL);
	*s = (struct cap_session){.o = o, .kernel = k, .out_fd = STDOUT_FILENO};
	limits(&k);
	printf("sampling as %s\n", geteuid() == 0 ? "root" : "this user");
	try_way(o, &k, "cycles", false, "hardware cycles");
	bool works = try_way(o, &k, "cpu-clock", false, "cpu-clock");
	try_way(o, &k, "cpu-clock", true, "kernel frames");
	if (o->event)
		works = try_way(o, &k, o->event, false, o->event);
	works &= engine(s, &shared);
	works &= rings(s, shared);
	works &= targets(s, shared > 0);
	bool all = whole_machine(o, &k);
	works &= all || !o->all;
	cap_kernel_deinit(&k);
	free(s);
	return sp_finish_stdout(works ? SP_EXIT_OK : SP_EXIT_FAILED);
}
