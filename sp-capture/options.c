#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cli.h"
#include "events.h"

enum opt {
	O_PID,
	O_TID,
	O_FREQUENCY,
	O_STACK,
	O_KERNEL,
	O_FOLLOW,
	O_NO_FOLLOW,
	O_DESCENDANTS,
	O_DURATION,
	O_DELAY,
	O_EVENT,
	O_STOP,
	O_EMBED,
	O_OUTPUT,
	O_CONTROL,
	O_START_TIME,
	O_INTERVAL,
	O_RING,
	O_MAX_SIZE,
	O_MIN_FREE,
	O_CHECK,
	O_ENGINE,
	O_OFF_CPU,
	O_ALL,
	O_CGROUP,
	O_EXCLUDE,
	O_KERNEL_THREADS,
	O_IDLE,
};

static const struct sp_opt opts[] = {
	[O_PID] = {"pid", 'p', "PID[,PID]", "attach to running processes, all their threads"},
	[O_TID] = {"tid", 't', "TID[,TID]", "attach to threads"},
	[O_FREQUENCY] = {"frequency", 'F', "HZ|max",
			 "samples per second and thread on CPU (default 999)"},
	[O_STACK] = {"stack-size", 's', "BYTES",
		     "user stack copied per sample, at most 65528 (default 60K)"},
	[O_KERNEL] = {"kernel", 'k', NULL, "kernel frames too"},
	[O_FOLLOW] = {"follow", 'f', NULL,
		      "children forked after the start too (default for COMMAND)"},
	[O_NO_FOLLOW] = {"no-follow", 0, NULL, "not the children (default for -p)"},
	[O_DESCENDANTS] = {"descendants", 0, NULL, "also the descendants that exist now"},
	[O_DURATION] = {"duration", 'd', "TIME", "stop after this time: 10, 1.5s, 500ms, 2m"},
	[O_DELAY] = {"delay", 'D', "TIME", "start sampling after this time"},
	[O_EVENT] = {"event", 'e', "EVENT",
		     "what to sample: cycles, cpu-clock, task-clock, page-faults, …\n"
		     "(default: hardware cycles, else cpu-clock)"},
	[O_STOP] = {"stop", 0, NULL, "hold the target's threads while attaching, at most 2 s"},
	[O_EMBED] = {"embed", 0, "none|auto|all", "which files travel in the stream"},
	[O_OUTPUT] = {"output", 'o', "FILE",
		      "FILE.spool: run the rest of the pipeline; FILE.data: a\n"
		      "perf.data file (default: the stream on standard output)"},
	[O_CONTROL] = {"control", 0, "PATH",
		       "commands while running: enable, disable, stop, … from a socket\n"
		       "if the name ends in .sock, else from a fifo"},
	[O_START_TIME] = {"start-time-us", 0, "US", "wall clock of the start, stored as given"},
	[O_INTERVAL] = {"interval-us", 0, "US", "a hint about the sample interval, stored"},
	[O_RING] = {"ring", 0, "SIZE", "ring memory per CPU (default: from rate and stack)"},
	[O_MAX_SIZE] = {"max-size", 0, "SIZE",
			"end when the spool, else the stream, has this size: 500M, 2G"},
	[O_MIN_FREE] = {"min-free", 0, "SIZE",
			"end when the file system has less left (default: 1 %, at most 512M)"},
	[O_CHECK] = {"check", 0, NULL, "say what would work here and why not; record nothing"},
	[O_ENGINE] = {"engine", 0, "auto|perf|bpf",
		      "what copies the samples: perf (everywhere), bpf (used stacks,\n"
		      "whole; root), auto (the default): bpf where it loads, else perf"},
	[O_OFF_CPU] = {"off-cpu", 0, "[=MIN]",
		       "time off the CPU too: waits of at least MIN (default 0); by BPF,\n"
		     "else by context switch events"},
	[O_ALL] = {"all-cpus", 'a', NULL, "all processes, those to come too"},
	[O_CGROUP] = {"cgroup", 0, "NAME",
		      "all processes of a control group: a path of cgroup v2, or the\n"
		      "beginning of a container's id, or its name"},
	[O_EXCLUDE] = {"exclude", 0, "PID[,PID]", "with -a: not these processes"},
	[O_KERNEL_THREADS] = {"kernel-threads", 0, NULL, "with -a: kernel threads too; implies -k"},
	[O_IDLE] = {"idle", 0, NULL, "with -a: what idle CPUs do too; implies -k"},
	{0},
};

static struct sp_cli cli = {
	.tool = "sp-capture",
	.synopsis = "sp-capture [options] -p PID[,PID…]\n"
		    "       sp-capture [options] -t TID[,TID…]\n"
		    "       sp-capture [options] -a | --cgroup NAME [-- COMMAND [ARG…]]\n"
		    "       sp-capture [options] -- COMMAND [ARG…]",
	.about =
		"Sample running or launched programs with user registers and stack bytes; write a\n"
		"perf stream for sp-unwind (or perf script) to standard output.",
	.opts = opts,
	.examples = "Examples:\n"
		    "  sp-capture -p PID | sp-unwind | sp-spool -o out.spool\n"
		    "  sp-capture -o out.spool -- make -j4\n"
		    "  sp-capture -p PID -d 10 | perf script -i -",
};

static bool id_add(int32_t **ids, size_t *n, size_t *cap, int32_t id)
{
	for (size_t i = 0; i < *n; i++)
		if ((*ids)[i] == id)
			return true;
	int32_t *slot = SP_PUSH(ids, n, cap);
	if (slot)
		*slot = id;
	return slot != NULL;
}

bool cap_ids_parse(int32_t **ids, size_t *n, size_t *cap, const char *text, const char **bad,
		   size_t *bad_len)
{
	for (const char *p = text;;) {
		size_t len = strcspn(p, ",");
		uint64_t v = 0;
		bool ok = len > 0 && len <= 10;
		for (size_t i = 0; ok && i < len; i++) {
			ok = p[i] >= '0' && p[i] <= '9';
			v = v * 10 + (uint64_t)(p[i] - '0');
		}
		if (!ok || v < 1 || v > INT32_MAX || !id_add(ids, n, cap, (int32_t)v)) {
			*bad = p;
			*bad_len = len;
			return false;
		}
		if (!p[len])
			return true;
		p += len + 1;
	}
}

int cap_output_kind(const char *name)
{
	size_t len = strlen(name);
	if (!strcmp(name, "-"))
		return CAP_TO_STDOUT;
	if (len > 5 && !strcmp(name + len - 5, ".data"))
		return CAP_TO_DATA;
	if (len > 6 && !strcmp(name + len - 6, ".spool"))
		return CAP_TO_SPOOL;
	return -1;
}

static void take_ids(int32_t **ids, size_t *n, size_t *cap, const char *option, const char *arg)
{
	const char *bad;
	size_t len;
	if (!cap_ids_parse(ids, n, cap, arg, &bad, &len))
		sp_usage_error("%s: '%.*s' is not an id from 1 to %d", option, (int)len, bad,
			       INT32_MAX);
}

static void take_stack(struct cap_options *o, const char *arg)
{
	uint64_t v = sp_arg_size("--stack-size", arg, UINT64_C(1) << 40);
	if (v > CAP_MAX_STACK)
		sp_usage_error("--stack-size: %s is more than the kernel copies, at most %u bytes",
			       arg, CAP_MAX_STACK);
	if (v == 0)
		sp_usage_error("--stack-size: 0 bytes leave nothing to unwind; at least 8");
	o->stack_bytes = (uint32_t)((v + 7) & ~UINT64_C(7));
	o->stack_given = true;
}

static void take_embed(struct cap_options *o, const char *arg)
{
	if (!strcmp(arg, "none"))
		o->embed = CAP_EMBED_NONE;
	else if (!strcmp(arg, "auto"))
		o->embed = CAP_EMBED_AUTO;
	else if (!strcmp(arg, "all"))
		o->embed = CAP_EMBED_ALL;
	else
		sp_usage_error("--embed takes none, auto or all, not '%s'", arg);
}

static void take_engine(struct cap_options *o, const char *arg)
{
	if (!strcmp(arg, "auto"))
		o->engine = CAP_ENGINE_AUTO;
	else if (!strcmp(arg, "perf"))
		o->engine = CAP_ENGINE_PERF;
	else if (!strcmp(arg, "bpf"))
		o->engine = CAP_ENGINE_BPF;
	else
		sp_usage_error("--engine takes auto, perf or bpf, not '%s'", arg);
}

static void take_output(struct cap_options *o, const char *arg)
{
	int kind = cap_output_kind(arg);
	if (kind < 0)
		sp_usage_error("-o %s: the name must end in .spool (a spool) or .data (a perf.data "
			       "file)",
			       arg);
	o->output_kind = (enum cap_output_kind)kind;
	o->output = kind == CAP_TO_STDOUT ? NULL : arg;
}

static void take_number(struct cap_options *o, int which, const char *arg)
{
	switch (which) {
	case O_FREQUENCY:
		o->rate_hz = strcmp(arg, "max") ? sp_arg_u64("--frequency", arg, 1, UINT32_MAX) : 0;
		break;
	case O_DURATION:
		o->has_duration = true;
		o->duration_ns = sp_arg_time_ns("--duration", arg);
		break;
	case O_DELAY:
		o->delay_ns = sp_arg_time_ns("--delay", arg);
		break;
	case O_START_TIME:
		o->has_start_time = true;
		o->start_time_us = sp_arg_u64("--start-time-us", arg, 0, UINT64_MAX / 1000);
		break;
	case O_INTERVAL:
		o->interval_us = sp_arg_u64("--interval-us", arg, 0, UINT64_MAX / 1000);
		break;
	case O_MAX_SIZE:
		o->max_bytes = sp_arg_size("--max-size", arg, UINT64_C(1) << 60);
		if (o->max_bytes == 0)
			sp_usage_error("--max-size: 0 bytes leave nothing to record");
		break;
	case O_MIN_FREE:
		o->has_min_free = true;
		o->min_free_bytes = sp_arg_size("--min-free", arg, UINT64_C(1) << 60);
		break;
	default:
		o->ring_bytes = sp_arg_size("--ring", arg, UINT64_C(1) << 30);
		if (o->ring_bytes == 0)
			sp_usage_error("--ring: a ring needs memory; at least one sample's");
		break;
	}
}

struct seen {
	bool follow, no_follow;
};

/* What chooses among all processes; false when it does not. */
static bool take_of_all(struct cap_options *o, int which, const char *arg)
{
	switch (which) {
	case O_ALL:
		o->all = true;
		break;
	case O_CGROUP:
		if (!*arg)
			sp_usage_error("--cgroup: the name is empty");
		o->cgroup = arg;
		o->all = true;
		break;
	case O_EXCLUDE:
		take_ids(&o->excluded, &o->n_excluded, &o->cap_excluded, "--exclude", arg);
		break;
	case O_KERNEL_THREADS:
		o->kernel_threads = o->kernel = true;
		break;
	case O_IDLE:
		o->idle = o->kernel = true;
		break;
	default:
		return false;
	}
	return true;
}

static void take(struct cap_options *o, struct seen *seen, int which, const char *arg)
{
	switch (which) {
	case O_PID:
		take_ids(&o->pids, &o->n_pids, &o->cap_pids, "--pid", arg);
		break;
	case O_TID:
		take_ids(&o->tids, &o->n_tids, &o->cap_tids, "--tid", arg);
		break;
	case O_STACK:
		take_stack(o, arg);
		break;
	case O_KERNEL:
		o->kernel = true;
		break;
	case O_FOLLOW:
		seen->follow = true;
		break;
	case O_NO_FOLLOW:
		seen->no_follow = true;
		break;
	case O_DESCENDANTS:
		o->descendants = true;
		break;
	case O_EVENT:
		if (!cap_event_find(arg))
			sp_usage_error("--event: unknown event '%s'; known: %s", arg,
				       cap_event_names());
		o->event = arg;
		break;
	case O_STOP:
		o->stop = true;
		break;
	case O_EMBED:
		take_embed(o, arg);
		break;
	case O_ENGINE:
		take_engine(o, arg);
		break;
	case O_OFF_CPU:
		o->off_cpu = true;
		o->off_min_ns = arg ? sp_arg_time_ns("--off-cpu", arg) : 0;
		break;
	case O_OUTPUT:
		take_output(o, arg);
		break;
	case O_CONTROL:
		o->control = arg;
		break;
	case O_CHECK:
		o->check = true;
		break;
	default:
		if (!take_of_all(o, which, arg))
			take_number(o, which, arg);
		break;
	}
}

/* What goes with -a and --cgroup. */
static void check_all(const struct cap_options *o, int kinds)
{
	const char *only = o->n_excluded         ? "exclude"
			   : o->kernel_threads ? "kernel-threads"
			   : o->idle           ? "idle"
					       : NULL;
	if (!o->all && only)
		sp_usage_error("--%s belongs to -a and --cgroup", only);
	if (!o->all)
		return;
	const char *what = o->cgroup ? "--cgroup" : "-a";
	if (kinds)
		sp_usage_error("%s records every process%s: not with -p or -t", what,
			       o->cgroup ? " of the group" : "");
	if (o->stop)
		sp_usage_error("--stop holds chosen processes: not with %s", what);
	if (o->descendants)
		sp_usage_error("%s records every process%s: --descendants adds nothing", what,
			       o->cgroup ? " of the group" : "");
}

static void check_targets(const struct cap_options *o)
{
	int kinds = (o->n_pids > 0) + (o->n_tids > 0) + (o->command != NULL && !o->all);
	check_all(o, kinds);
	if (kinds == 0 && !o->all && !o->check)
		sp_usage_error("nothing to record: give -p PID, -t TID, -a or -- COMMAND");
	if (kinds > 1)
		sp_usage_error("one of -p, -t and COMMAND at a time");
	if (o->command && o->stop)
		sp_usage_error("--stop is for attaching; a command is launched suspended anyway");
	if (o->n_tids && (o->descendants || o->follow))
		sp_usage_error("-t records chosen threads only; use -p with --follow and "
			       "--descendants");
}

void cap_options_parse(struct cap_options *o, int argc, char **argv)
{
	*o = (struct cap_options){.rate_hz = CAP_DEFAULT_HZ, .stack_bytes = CAP_DEFAULT_STACK};
	struct seen seen = {0};
	sp_cli_init(&cli, argc, argv);
	const char *arg = NULL;
	int which;
	while ((which = sp_cli_next(&cli, &arg)) != SP_CLI_END)
		take(o, &seen, which, arg);
	if (cli.at < argc)
		o->command = argv + cli.at;
	if (seen.follow && seen.no_follow)
		sp_usage_error("--follow and --no-follow contradict each other");
	if (o->all && seen.no_follow)
		sp_usage_error("-a and --cgroup record the processes to come too: not with "
			       "--no-follow");
	o->follow = seen.follow || o->all || (o->command && !seen.no_follow);
	check_targets(o);
}

void cap_options_deinit(struct cap_options *o)
{
	free(o->pids);
	free(o->tids);
	free(o->excluded);
	*o = (struct cap_options){0};
}
