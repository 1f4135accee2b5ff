/* stats-json: one flat JSON object about the recording, under the counters' own names. */
#include <stdio.h>
#include <string.h>

#include "base/counters.h"
#include "base/stop.h"
#include "formats.h"

static void key(struct out *o, const char *name)
{
	out_str(o, o->buf.len > 1 ? ",\n" : "\n");
	out_char(o, ' ');
	out_json(o, name);
	out_str(o, ": ");
}

static void number(struct out *o, const char *name, uint64_t value)
{
	key(o, name);
	out_u64(o, value);
}

static void text(struct out *o, const char *name, const char *value)
{
	key(o, name);
	out_json(o, value ? value : "");
}

static void flag(struct out *o, const char *name, bool value)
{
	key(o, name);
	out_str(o, value ? "true" : "false");
}

/* The three that are always there, then all that some stage knew. What was read is the truth: a
 * spool that was cut has older counters than samples. */
static void counters(struct view *v, struct out *o, uint64_t n_read)
{
	const struct sp_counters *c = sp_spool_counters(v->spool);
	static const struct sp_counters none;
	c = c ? c : &none;
	uint64_t events = c->v[SP_C_sample_events];
	number(o, "sample_events", events > n_read ? events : n_read);
	number(o, "samples", n_read);
	number(o, "lost_events", c->v[SP_C_lost_events]);
	for (int i = 0; i < SP_N_COUNTERS; i++) {
		enum sp_counter which = (enum sp_counter)i;
		if (!sp_counter_known(c, which) || which == SP_C_sample_events ||
		    which == SP_C_samples || which == SP_C_lost_events)
			continue;
		if (which == SP_C_kernel_enabled)
			flag(o, sp_counter_name(which), c->v[i] != 0);
		else
			number(o, sp_counter_name(which), c->v[i]);
	}
}

/* What tells of a process's code: not its control group. */
static size_t n_execs(const struct sp_spool *s)
{
	size_t n = 0;
	for (size_t i = 0; i < sp_spool_n_execs(s); i++)
		n += sp_spool_exec(s, i)->kind != 4;
	return n;
}

static void about(struct view *v, struct out *o)
{
	static const char *const states[] = {"whole", "incomplete", "damaged"};
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	struct sp_spool *s = v->spool;
	text(o, "state", states[sp_spool_state(s)]);
	text(o, "complaint", sp_spool_complaint(s));
	flag(o, "recovered_from_truncated_tail", sp_spool_recovered_from_truncated_tail(s));
	number(o, "spool_version", info->version);
	number(o, "start_timestamp_us", info->start_timestamp_us);
	number(o, "sample_interval_us", info->sample_interval_us);
	number(o, "first_ns", info->first_ns);
	number(o, "last_ns", info->last_ns);
	number(o, "threads", sp_spool_n_threads(s));
	number(o, "modules", sp_spool_n_modules(s));
	number(o, "frames", sp_spool_n_frames(s));
	number(o, "stacks", sp_spool_n_stacks(s));
	number(o, "losses", sp_spool_n_losses(s));
	number(o, "process_execs", n_execs(s));
	text(o, "hostname", info->hostname);
	text(o, "osrelease", info->osrelease);
	text(o, "arch", info->arch);
	text(o, "cmdline", info->cmdline);
	text(o, "clock", info->clock);
}

/* Times off the CPU whose state is told, by its word. */
struct by_state {
	struct {
		const char *word;
		uint64_t ns;
	} v[16];
	size_t n;
	uint64_t n_waits;
};

static void add_wait(struct by_state *b, const struct view *v, const struct sp_spool_sample *s)
{
	const char *word = sp_spool_wait_state(sp_spool_wait(v->spool, s->wait).state);
	size_t i = 0;
	while (i < b->n && strcmp(b->v[i].word, word) != 0)
		i++;
	if (i == sizeof b->v / sizeof *b->v)
		return;
	b->n += i == b->n;
	b->v[i].word = word;
	b->v[i].ns += s->weight;
	b->n_waits++;
}

static void waits(struct out *o, const struct by_state *b)
{
	if (b->n)
		number(o, "waits", b->n_waits);
	for (size_t i = 0; i < b->n; i++) {
		char name[64];
		snprintf(name, sizeof name, "wait_ns_%s", b->v[i].word);
		for (char *c = name; *c; c++)
			*c = *c == ' ' ? '_' : *c;
		number(o, name, b->v[i].ns);
	}
}

int format_stats_json(struct view *v, struct out *o, struct sp_err *err)
{
	struct sp_spool_sample s;
	struct by_state by_state = {0};
	struct out object = {.memory = true};
	int r;
	while ((r = sp_spool_next(v->spool, &s, err)) > 0) {
		if ((v->n_read & 0xfff) == 0 && sp_stop_level() > 0) {
			r = 0;
			break;
		}
		v->n_read++;
		if (s.wait)
			add_wait(&by_state, v, &s);
	}
	if (r < 0)
		return r;
	v->n_samples = v->n_read;
	out_char(&object, '{');
	counters(v, &object, v->n_read);
	waits(&object, &by_state);
	about(v, &object);
	out_str(&object, "\n}\n");
	out_add(o, object.buf.data, object.buf.len);
	r = object.buf.failed ? sp_err_nomem(err) : 0;
	sp_buf_deinit(&object.buf);
	return r;
}
