/* sp-capture: sample programs, write a perf stream. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/stop.h"
#include "check.h"
#include "control.h"
#include "session.h"
#include "signals.h"
#include "sink.h"

static void refuse_terminal(const struct cap_options *o)
{
	char target[64];
	if (o->output_kind != CAP_TO_STDOUT || !isatty(STDOUT_FILENO))
		return;
	if (o->all)
		snprintf(target, sizeof target, "%s%s", o->cgroup ? "--cgroup " : "-a",
			 o->cgroup ? o->cgroup : "");
	else if (o->command)
		snprintf(target, sizeof target, "-- %s …", o->command[0]);
	else
		snprintf(target, sizeof target, "%s %d", o->n_pids ? "-p" : "-t",
			 o->n_pids ? o->pids[0] : o->tids[0]);
	sp_usage_error("a stream is not for a terminal; type:\n"
		       "  sp-capture %s | sp-unwind | sp-spool -o out.spool; sp-sym out.spool\n"
		       "or: sp-capture -o out.spool %s",
		       target, target);
}

/* On a terminal: what is going on, over and over on one line. */
static void live_line(const struct cap_session *s)
{
	if (sp_verbosity < 0)
		return;
	fprintf(stderr, "\r\033[K%.0f s, %llu samples, %zu process%s, %llu lost\r",
		(double)(cap_now_ns() - s->enabled_ns) / 1e9,
		(unsigned long long)s->emit.counters.v[SP_C_samples], s->emit.procs.n_alive,
		s->emit.procs.n_alive == 1 ? "" : "es",
		(unsigned long long)s->emit.counters.v[SP_C_lost_events]);
	fflush(stderr);
}

static double cpu_us(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* Waits that made no sample. */
static void say_waits(const struct cap_session *s)
{
	struct cap_waits_counts w = s->emit.waits.counts;
	if (!s->o->off_cpu)
		return;
	if (s->bpf)
		cap_bpf_waits(s->bpf, &w);
	if (w.n_over)
		sp_note("%llu waits (%.3f s) beyond %u a second and CPU are not in the recording; "
			"to have fewer: a larger --off-cpu=MIN",
			(unsigned long long)w.n_over, (double)w.over_ns / 1e9, CAP_MAX_WAITS);
	if (w.n_short)
		sp_note("%llu waits (%.3f s) shorter than the least of --off-cpu",
			(unsigned long long)w.n_short, (double)w.short_ns / 1e9);
	if (w.n_missed)
		sp_note("%llu waits (at most %.3f s) have no end: the kernel told of no switch "
			"back",
			(unsigned long long)w.n_missed, (double)w.missed_ns / 1e9);
	if (w.n_untold)
		sp_detail("%llu waits ended by switches that the kernel did not tell of",
			  (unsigned long long)w.n_untold);
	if (s->emit.waits.n_bare)
		sp_detail("%llu waits without a user stack",
			  (unsigned long long)s->emit.waits.n_bare);
}

/* What was off, and the next step to take. */
static void tell_step(const struct cap_session *s, char *out, size_t size)
{
	const struct sp_counters *c = &s->emit.counters;
	unsigned long long lost = c->v[SP_C_lost_events], held = c->v[SP_C_throttled];
	int n = snprintf(out, size, "%s",
			 lost <= s->system.n_came ? ""
			 : s->emit.n_dropped * 2 > lost
				 ? "; to lose less: a faster reader of the stream"
			 : s->rings_are_small
				 ? "; to lose less: a larger ulimit -l, a lower -F or -s"
				 : "; to lose less: a larger --ring, a lower -F or -s");
	if (held)
		snprintf(out + n, size - (size_t)n,
			 "; the kernel throttled sampling %llu times, %.3f s of threads in all: a "
			 "lower -F",
			 held, (double)s->emit.throttles.total_ns / 1e9);
}

/* Bytes that came into the rings of the BPF engine. */
static unsigned long long bpf_written(const struct cap_session *s)
{
	uint64_t n = s->old_rings_written;
	for (size_t i = s->n_cpus; s->bpf && i < s->n_rings; i++)
		n += s->rings[i].scanned;
	return n;
}

static void say_closing(const struct cap_session *s)
{
	char step[256];
	const struct sp_counters *c = &s->emit.counters;
	double seconds = s->enabled_ns ? (double)(s->end_ns - s->enabled_ns) / 1e9 : 0;
	unsigned long long samples = c->v[SP_C_samples], lost = c->v[SP_C_lost_events];
	size_t threads = s->n_threads + s->emit.n_born;
	double cpu = cpu_us();
	if (s->on_tick && sp_verbosity >= 0)
		fputs("\r\033[K", stderr);
	sp_detail("%.3f s of CPU, %.2f us a sample; %.1f MB written; rings of %zu KiB", cpu / 1e6,
		  samples ? cpu / (double)samples : 0, (double)s->n_bytes / 1e6,
		  s->ring_bytes / 1024);
	if (sp_stats_json) {
		fprintf(stderr,
			"{\"stage\": \"sp-capture\", \"samples\": %llu, \"lost_events\": %llu, "
			"\"clock\": \"%s\", \"rate_hz\": %llu, \"threads\": %zu, \"ring_bytes\": "
			"%zu, \"ring_written\": %llu, \"bytes\": %llu, \"engine\": \"%s\", "
			"\"throttled\": %llu, \"cpu_us\": %.0f, \"seconds\": %.3f}\n",
			samples, lost, s->sampler.event->name,
			(unsigned long long)s->sampler.rate_hz, threads, s->ring_bytes,
			bpf_written(s),
			(unsigned long long)s->n_bytes, s->bpf ? "bpf" : "perf",
			(unsigned long long)c->v[SP_C_throttled], cpu, seconds);
		return;
	}
	tell_step(s, step, sizeof step);
	sp_note("%llu samples, %llu lost; %s %llu Hz; %zu thread%s; %.1f s%s", samples, lost,
		s->sampler.event->name, (unsigned long long)s->sampler.rate_hz, threads,
		threads == 1 ? "" : "s", seconds, step);
}

/* Exit as the command did. */
static int as_command(const struct cap_launch *l)
{
	if (!l->ended)
		return SP_EXIT_OK;
	if (WIFSIGNALED(l->status)) {
		int sig = WTERMSIG(l->status);
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none); /* the core that counts is the command's */
		signal(sig, SIG_DFL);
		raise(sig);
		return 128 + sig;
	}
	return WEXITSTATUS(l->status);
}

/* A command that outlives the recording is waited for, unless told not to. Its status is ours when
 * the recording is whole; failed: the status of one that is not, or 0. */
static int wait_command(struct cap_session *s, int failed)
{
	if (s->launch.pid <= 0)
		return failed;
	if (!cap_launch_wait(&s->launch, false))
		sp_note("the recording %s; waiting for %s (process %d), Ctrl-C twice to leave it",
			failed ? "is over" : "is complete", s->o->command[0], (int)s->launch.pid);
	cap_signals_forward(s->launch.pid);
	while (!cap_launch_wait(&s->launch, true)) {
		if (sp_stop_level() > 1 && !cap_signals_forward(s->launch.pid))
			break;
		cap_signals_forward(s->launch.pid);
	}
	return failed ? failed : as_command(&s->launch);
}

static _Noreturn void fail(struct cap_session *s, struct cap_sink *sink,
			   struct cap_control *control, const struct sp_err *err, const char *cure)
{
	cap_control_close(control);
	if (!s->enabled_ns)
		cap_sink_drop_stages(sink);
	cap_sink_close(sink);
	if (!s->launch_failed)
		sp_die(err, cure[0] ? cure : NULL);
	sp_warn("%s", err->msg);
	exit(err->os == EACCES || err->os == ENOEXEC || err->os == EPERM ? 126 : 127);
}

int main(int argc, char **argv)
{
	struct cap_options o;
	struct cap_session s;
	struct cap_sink sink;
	struct cap_control control = {.fd = -1, .listener = -1};
	struct sp_err err = {0};
	char cure[400];
	cap_options_parse(&o, argc, argv);
	if (o.check)
		return cap_check(&o);
	refuse_terminal(&o);
	cap_launch_prepare();
	if (cap_sink_open(&sink, &o, argv[0], &err) < 0)
		sp_die(&err, NULL);
	sp_stop_install(SP_STOP_FIRST);
	cap_signals_install();
	if (o.control && cap_control_open(&control, o.control, &err) < 0)
		sp_die(&err, NULL);
	s = (struct cap_session){.o = &o,
				 .control = o.control ? &control : NULL,
				 .on_tick = isatty(STDERR_FILENO) ? live_line : NULL};
	if (cap_session_run(&s, sink.fd, sink.name, argv, cure, &err) < 0)
		fail(&s, &sink, &control, &err, cure);
	cap_control_close(&control);
	say_closing(&s);
	say_waits(&s);
	cap_limit_say(&s.limit);
	int worst = cap_sink_close(&sink);
	if (!worst && s.limit.state == CAP_LOW)
		worst = SP_EXIT_PARTIAL;
	int status = wait_command(&s, worst);
	cap_launch_close(&s.launch);
	cap_session_deinit(&s);
	cap_options_deinit(&o);
	return status;
}
