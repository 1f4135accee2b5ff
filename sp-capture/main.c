/* sp-capture: sample programs, write a perf stream. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/stop.h"
#include "session.h"

static void refuse_terminal(const struct cap_options *o)
{
	char target[64];
	if (o->output_kind != CAP_TO_STDOUT || !isatty(STDOUT_FILENO))
		return;
	if (o->command)
		snprintf(target, sizeof target, "-- %s …", o->command[0]);
	else
		snprintf(target, sizeof target, "%s %d", o->n_pids ? "-p" : "-t",
			 o->n_pids ? o->pids[0] : o->tids[0]);
	sp_usage_error("a stream is not for a terminal; type:\n"
		       "  sp-capture %s | sp-unwind | sp-spool -o out.spool && sp-sym out.spool\n"
		       "or: sp-capture -o out.spool %s",
		       target, target);
}

static void say_closing(const struct cap_session *s)
{
	const struct sp_counters *c = &s->emit.counters;
	double seconds = (double)(cap_now_ns() - s->start_ns) / 1e9;
	unsigned long long samples = c->v[SP_C_samples], lost = c->v[SP_C_lost_events];
	if (sp_stats_json) {
		fprintf(stderr,
			"{\"stage\": \"sp-capture\", \"samples\": %llu, \"lost_events\": %llu, "
			"\"clock\": \"%s\", \"rate_hz\": %llu, \"threads\": %zu, \"ring_bytes\": "
			"%zu, \"bytes\": %llu, \"seconds\": %.3f}\n",
			samples, lost, s->sampler.event->name,
			(unsigned long long)s->sampler.rate_hz, s->n_threads, s->ring_bytes,
			(unsigned long long)s->emit.round_bytes, seconds);
		return;
	}
	sp_note("%llu samples, %llu lost; %s %llu Hz; %zu thread%s; %.1f s%s", samples, lost,
		s->sampler.event->name, (unsigned long long)s->sampler.rate_hz, s->n_threads,
		s->n_threads == 1 ? "" : "s", seconds,
		lost ? "; to lose less: a larger --ring, a lower -F or -s" : "");
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

int main(int argc, char **argv)
{
	struct cap_options o;
	struct cap_session s;
	struct sp_err err = {0};
	char cure[400];
	cap_options_parse(&o, argc, argv);
	refuse_terminal(&o);
	cap_launch_prepare();
	sp_stop_install(SP_STOP_FIRST);
	sp_pipe_enlarge(STDOUT_FILENO);
	int rc = cap_session_run(&s, &o, STDOUT_FILENO, "standard output", argv, cure, &err);
	if (rc < 0)
		sp_die(&err, cure[0] ? cure : NULL);
	say_closing(&s);
	while (s.launch.pid > 0 && !cap_launch_wait(&s.launch, true))
		if (sp_stop_level() > 1)
			break;
	int status = as_command(&s.launch);
	cap_session_deinit(&s);
	cap_options_deinit(&o);
	return status;
}
