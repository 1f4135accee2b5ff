/* stats: what a profile holds, what it lacks, and what to do about it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli.h"
#include "base/counters.h"
#include "formats.h"
#include "group.h"
#include "head.h"
#include "unnamed.h"
#include "wait.h"

#define MAX_CONTAINERS 20u
#define MAX_WAKERS 10u

/* A counter that is high against the samples, what it means, and what to do. */
struct symptom {
	enum sp_counter counter;
	double percent; /* from this share of the samples on */
	const char *meaning, *cure;
};

static const struct symptom symptoms[] = {
	{SP_C_lost_events, 0.1,
	 "the kernel had no room for records: the profile lacks samples, in busy "
	 "moments above all",
	 "a larger --ring, a lower -F, or a smaller -s"},
	{SP_C_throttled, 0.1, "the kernel slowed sampling down to save its own time",
	 "a lower -F, or raise kernel.perf_cpu_time_max_percent"},
	{SP_C_truncated_frame_markers, 1,
	 "stacks end before their root; they hang under [truncated]",
	 "the stops below say why; for 'stack bytes exhausted' use -s 65528"},
	{SP_C_native_stack_truncated, 1, "the copied part of the stack was too short",
	 "sp-capture -s 65528, the most that the kernel copies"},
	{SP_C_no_cfi_stops, 1, "code without unwind information and without frame pointers",
	 "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer; for JITs, frame "
	 "pointers (node --interpreted-frames-native-stack, java -XX:+PreserveFramePointer)"},
	{SP_C_no_module_stops, 1, "addresses in no known mapping",
	 "code made at run time, or a file that was not found: sp-unwind -v names it"},
	{SP_C_did_not_advance, 0.1, "unwinding went in a circle",
	 "a fault in the code's unwind tables"},
	{SP_C_moved_backwards, 0.5,
	 "a caller's frame below its callee's: a coroutine or another stack",
	 "nothing; the outer frames are of the other stack"},
	{SP_C_user_registers_missing, 0.1, "samples without user registers, or 32-bit tasks",
	 "32-bit code gets its leaf only"},
	{SP_C_not_unwound_samples, 0.1, "stacks were recorded but not unwound",
	 "put sp-unwind between sp-capture and sp-spool"},
	{SP_C_empty_stack_samples, 0.5, "samples without any address",
	 "often exiting tasks: harmless"},
	{SP_C_rejected_samples, 0.001, "sample records that could not be parsed",
	 "the recording is damaged, or of an unknown kind"},
	{SP_C_missing_timestamp_samples, 0.1, "samples without a time",
	 "record with perf record -T, or with sp-capture"},
	{SP_C_excluded_kernel_samples, 1, "samples in the kernel were left out", "sp-capture -k"},
	{SP_C_out_of_order, 0.1, "records came later than their round allows",
	 "times near them may be in the wrong order"},
};

static void line(struct out *o, const char *label, const char *text)
{
	if (!text || !*text)
		return;
	out_printf(o, "%-16s", label);
	out_text(o, text, 0);
	out_char(o, '\n');
}

static void write_about(struct view *v, struct out *o)
{
	static const char *const states[] = {"whole", "incomplete", "damaged"};
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	line(o, "host", info->hostname);
	line(o, "kernel", info->osrelease);
	line(o, "machine", info->arch);
	line(o, "command", info->cmdline);
	line(o, "clock", info->clock);
	if (info->sample_interval_us)
		out_printf(o, "%-16s%llu us\n", "interval",
			   (unsigned long long)info->sample_interval_us);
	line(o, "spool", states[sp_spool_state(v->spool)]);
	line(o, "complaint", sp_spool_complaint(v->spool));
	out_printf(o, "%-16s%zu modules, %zu distinct frames, %zu distinct stacks\n", "size",
		   sp_spool_n_modules(v->spool), sp_spool_n_frames(v->spool),
		   sp_spool_n_stacks(v->spool));
}

static void write_counters(const struct sp_counters *c, uint64_t samples, struct out *o,
			   const struct term *t)
{
	out_printf(o, "\n%sCounters%s\n", term_bold(t), term_end(t));
	for (int i = 0; i < SP_N_COUNTERS; i++) {
		enum sp_counter which = (enum sp_counter)i;
		bool always = which == SP_C_sample_events || which == SP_C_samples ||
			      which == SP_C_lost_events;
		uint64_t value = which == SP_C_samples ? samples : c->v[i];
		if (value || always)
			out_printf(o, "%14llu  %-30s %s\n", (unsigned long long)value,
				   sp_counter_name(which), sp_counter_text(which));
	}
}

static void write_names(const struct view *v, const struct unnamed *u, struct out *o,
			const struct term *t)
{
	size_t shown = 0;
	out_printf(o, "\n%sNames%s\n%.2f %% of the frames have names\n", term_bold(t), term_end(t),
		   unnamed_named_percent(u));
	for (size_t i = 0; i < u->n && shown < 20; i++) {
		const struct unnamed_module *m = &u->v[i];
		if (!m->samples)
			continue;
		if (!shown++)
			out_str(o, "Modules without them, by the share of samples that pass "
				   "through:\n");
		out_printf(o, "%7.2f %%  (leaf %.2f %%)  ", view_percent(m->samples, v->n_samples),
			   view_percent(m->leaf, v->n_samples));
		out_text(o, *m->path ? m->path : "(no path)", 0);
		out_str(o, "\n           cause: ");
		out_text(o, unnamed_cause(v, m), 0);
		out_printf(o, "\n           cure:  %s\n", unnamed_cure(v, m));
	}
}

static void write_symptoms(const struct sp_counters *c, uint64_t samples, struct out *o,
			   const struct term *t)
{
	size_t shown = 0;
	out_printf(o, "\n%sWhat stands out%s\n", term_bold(t), term_end(t));
	for (size_t i = 0; i < sizeof symptoms / sizeof *symptoms; i++) {
		const struct symptom *s = &symptoms[i];
		uint64_t value = c->v[s->counter];
		/* Lost samples are a share of all that there were. */
		double share = view_percent(value, s->counter == SP_C_lost_events ? samples + value
										  : samples);
		if (!value || share < s->percent)
			continue;
		shown++;
		out_printf(o, "%s (%.2f %%): %s\n    try: %s\n", sp_counter_name(s->counter), share,
			   s->meaning, s->cure);
	}
	if (!shown)
		out_str(o, samples ? "nothing: no counter is high\n"
				   : "there are no samples: was the target idle? Record longer, "
				     "while it is busy, or with --off-cpu\n");
}

/* The containers by their samples, when there are any. */
static int write_containers(const struct view *v, struct out *o, const struct term *t,
			    struct sp_err *err)
{
	struct groups g;
	int rc = groups_init(&g, v, GROUP_CONTAINER, err);
	if (rc < 0)
		return rc;
	uint64_t *n = calloc(g.n + 1, sizeof *n);
	bool any = false;
	for (size_t i = 0; n && i < v->n_lanes; i++)
		n[g.of_task[v->lanes[i].task]] += v->lanes[i].n;
	for (size_t i = 0; i < g.n; i++)
		any |= strcmp(g.names[i], "host") != 0;
	if (any && n)
		out_printf(o, "\n%sContainers%s\n", term_bold(t), term_end(t));
	for (unsigned shown = 0; any && n && shown < MAX_CONTAINERS; shown++) {
		size_t best = 0;
		for (size_t i = 1; i < g.n; i++)
			best = n[i] > n[best] ? i : best;
		if (!n[best])
			break;
		out_printf(o, "%14llu  ", (unsigned long long)n[best]);
		out_text(o, g.names[best], 0);
		out_char(o, '\n');
		n[best] = 0;
	}
	groups_deinit(&g);
	if (!n)
		return sp_err_nomem(err);
	free(n);
	return 0;
}

/* The groups of times off the CPU, the longest first. */
static int write_wait_groups(const struct view *v, enum view_group how, const char *what,
			     unsigned limit, struct out *o, struct sp_err *err)
{
	struct groups g;
	char text[24];
	int rc = groups_init(&g, v, how, err);
	if (rc < 0)
		return rc;
	struct {
		uint64_t n, ns;
	} *sum = calloc(g.n + 1, sizeof *sum);
	uint64_t all = 0;
	for (size_t i = 0; sum && i < v->n_rows; i++) {
		const struct view_row *row = &v->rows[i];
		if (!row->n || !row->wait)
			continue;
		sum[groups_of(&g, v, i)].n += row->n;
		sum[groups_of(&g, v, i)].ns += row->weight;
		all += row->weight;
	}
	for (unsigned shown = 0; sum && shown < limit; shown++) {
		size_t best = 0;
		for (size_t i = 1; i < g.n; i++)
			best = sum[i].ns > sum[best].ns ? i : best;
		if (!sum[best].n)
			break;
		out_str(o, shown ? "" : what);
		out_printf(o, "%14s  %5.1f %%  ", term_duration(text, sum[best].ns),
			   view_percent(sum[best].ns, all));
		out_text(o, g.names[best], 0);
		out_printf(o, " (%llu)\n", (unsigned long long)sum[best].n);
		sum[best].n = sum[best].ns = 0;
	}
	groups_deinit(&g);
	if (!sum)
		return sp_err_nomem(err);
	free(sum);
	return 0;
}

/* Of times off the CPU: what threads waited in, and for whom. */
static int write_waits(const struct view *v, struct out *o, const struct term *t,
		       struct sp_err *err)
{
	bool any = false;
	for (size_t i = 0; i < v->n_rows && !any; i++)
		any = v->rows[i].n && v->rows[i].wait;
	if (!any)
		return 0;
	out_printf(o, "\n%sOff the CPU%s\n", term_bold(t), term_end(t));
	int rc = write_wait_groups(v, GROUP_STATE, "By state:\n", UINT32_MAX, o, err);
	return rc < 0 ? rc : write_wait_groups(v, GROUP_WAKER, "By waker:\n", MAX_WAKERS, o, err);
}

int format_stats(struct view *v, struct out *o, struct sp_err *err)
{
	static const struct sp_counters none;
	const struct sp_counters *c = sp_spool_counters(v->spool);
	struct unnamed u;
	struct term t;
	int r = unnamed_init(&u, v, err);
	if (r < 0)
		return r;
	c = c ? c : &none;
	term_init(&t, v, o);
	head_write(v, o, &t);
	write_about(v, o);
	write_counters(c, v->n_read, o, &t);
	if (write_containers(v, o, &t, err) < 0 || write_waits(v, o, &t, err) < 0) {
		unnamed_deinit(&u);
		return SP_ERR_NOMEM;
	}
	write_names(v, &u, o, &t);
	write_symptoms(c, v->n_read, o, &t);
	unnamed_deinit(&u);
	return 0;
}
