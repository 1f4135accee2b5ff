#define _GNU_SOURCE
#include <poll.h>

#include "asleep.h"
#include "kallsyms.h"
#include "recover.h"
#include "session.h"
#include "switches.h"

/* Until half of the blocks are free: what follows must not get lost. */
static void wait_room(struct cap_session *s)
{
	while (!cap_output_has_room(s->out) && cap_output_error(s->out, NULL) == 0) {
		cap_output_push(s->out);
		poll(NULL, 0, 2);
	}
}

static void emit_final_losses(struct cap_session *s)
{
	if (!s->sampler.has_lost || s->bpf)
		return;
	for (size_t i = 0; i < s->n_cpus; i++) {
		uint64_t truth = cap_attach_lost(s, i), told = 0;
		for (size_t at = i; at < s->n_rings; at += s->n_cpus)
			told += s->rings[at].lost;
		if (truth > told)
			cap_emit_lost(&s->emit, i, s->rings[i].last_ns, s->end_ns, truth - told);
	}
}

static void emit_counters(struct cap_session *s)
{
	struct sp_counters *c = &s->emit.counters;
	struct sp_buf b = {0};
	sp_count(c, SP_C_lost_events, 0);
	sp_count(c, SP_C_samples, 0);
	sp_count(c, SP_C_sample_events, 0);
	sp_count(c, SP_C_kernel_enabled, s->sampler.kernel_frames);
	sp_count(c, SP_C_minimum_ring_buffer_bytes, s->first_ring_bytes);
	sp_count(c, SP_C_maximum_ring_buffer_bytes, s->ring_bytes);
	sp_buf_str(&b, "stage sp-capture\n");
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		if (sp_counter_known(c, (enum sp_counter)i))
			sp_buf_printf(&b, "%s %llu\n", sp_counter_name((enum sp_counter)i),
				      (unsigned long long)c->v[i]);
	if (!b.failed)
		cap_emit_ext(&s->emit, SP_EXT_COUNTERS, b.data, b.len);
	sp_buf_deinit(&b);
}

/* why: NULL for a whole recording. */
static void emit_end(struct cap_session *s, const char *why)
{
	struct sp_buf b = {0};
	sp_buf_str(&b, why ? "status=cut\n" : "status=0\n");
	if (why)
		sp_buf_printf(&b, "reason=sp-capture failed: %s\n", why);
	else if (s->ended_by)
		sp_buf_printf(&b, "ended_by=%s\n", s->ended_by);
	sp_buf_printf(&b, "end_ns=%llu\n", (unsigned long long)cap_now_ns());
	if (s->launch.ended)
		sp_buf_printf(&b, "command_status=%d\n", s->launch.status);
	if (!b.failed)
		cap_emit_ext(&s->emit, SP_EXT_END, b.data, b.len);
	sp_buf_deinit(&b);
}

/* What travels at the end: perf maps of the living, kernel names; until it is out, or nobody wants
 * it. */
static void embed_all(struct cap_session *s)
{
	for (size_t i = 0; i < s->emit.procs.n; i++)
		if (s->emit.procs.procs[i])
			cap_embed_end(&s->embed, s->emit.procs.procs[i], 0);
	if (s->sampler.kernel_frames && s->o->embed != CAP_EMBED_NONE)
		cap_kallsyms_embed(&s->embed);
	while (cap_embed_pump(&s->embed, CAP_PUMP_BYTES) && cap_output_error(s->out, NULL) == 0)
		wait_room(s);
}

static void on_unfinished(void *arg, const struct spb_sample *wait)
{
	struct cap_session *s = arg;
	cap_waits_end(&s->emit, wait, NULL, 0);
}

void cap_session_limit(struct cap_session *s)
{
	if (!s->bpf)
		return;
	int64_t max = cap_number_read("/proc/sys/kernel/perf_event_max_sample_rate");
	cap_throttles_limit(&s->emit, s->kernel.cpus, s->n_cpus,
			    max > 0 && (uint64_t)max < s->sampler.rate_hz, cap_now_ns());
}

static void end_waits(struct cap_session *s, uint64_t now_ns)
{
	if (s->bpf && s->o->off_cpu)
		cap_bpf_unfinished(s->bpf, now_ns, on_unfinished, s);
	else
		cap_switches_unfinished(&s->emit, now_ns);
}

int cap_session_pause(struct cap_session *s, struct sp_err *err)
{
	uint64_t off_ns = cap_now_ns(), told_ns;
	int rc = 0;
	if (s->is_paused)
		return 0;
	cap_attach_switch(s, false);
	s->is_paused = true;
	s->disabled_ns = off_ns;
	if (!s->o->off_cpu)
		return 0;
	if (s->bpf)
		cap_bpf_parked(s->bpf);
	told_ns = cap_now_ns();
	while (rc >= 0 && s->told_ns < told_ns) {
		poll(NULL, 0, 2);
		rc = cap_session_drain(s, false, err);
	}
	if (rc >= 0)
		end_waits(s, off_ns);
	return rc < 0 ? rc : 0;
}

void cap_session_resume(struct cap_session *s)
{
	if (s->is_paused) {
		s->is_paused = false;
		cap_attach_switch(s, true);
		if (s->o->off_cpu)
			cap_asleep_all(s);
	}
	cap_recover_all(s, s->disabled_ns);
}

int cap_session_finish(struct cap_session *s, struct sp_err *err)
{
	cap_session_limit(s);
	cap_system_look(s);
	cap_recover(s, true);
	cap_attach_switch(s, false);
	s->end_ns = cap_now_ns();
	if (s->bpf && s->o->off_cpu)
		cap_bpf_parked(s->bpf);
	int rc = cap_session_drain(s, true, err);
	if (rc < 0)
		return rc;
	if (s->launch.pid > 0)
		cap_launch_wait(&s->launch, false);
	wait_room(s);
	end_waits(s, s->end_ns);
	cap_waits_flush(&s->emit);
	embed_all(s);
	emit_final_losses(s);
	cap_throttles_end(&s->emit, s->end_ns);
	emit_counters(s);
	cap_emit_round(&s->emit, s->rings, true);
	emit_end(s, NULL);
	s->n_bytes = cap_output_bytes(s->out);
	return 0;
}

void cap_session_tell_failure(struct cap_session *s, const struct sp_err *err)
{
	if (cap_output_error(s->out, NULL) < 0)
		return;
	cap_attach_switch(s, false);
	s->end_ns = cap_now_ns();
	cap_throttles_end(&s->emit, s->end_ns);
	emit_counters(s);
	cap_emit_round(&s->emit, s->rings, true);
	emit_end(s, err->msg);
}
