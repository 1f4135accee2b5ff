#include "report.h"

#include <stdlib.h>

static const struct {
	const char *name; /* in JSON */
	const char *text;
} stops[UW_N_STOPS] = {
	[UW_END] = {"end", "complete"},
	[UW_NO_REGS] = {"no_regs", "no user registers"},
	[UW_BAD_REGS] = {"bad_regs", "registers incomplete"},
	[UW_NO_STACK] = {"no_stack", "no stack bytes"},
	[UW_STACK_EXHAUSTED] = {"stack_exhausted", "truncated (stack bytes)"},
	[UW_NO_MODULE] = {"no_module", "in no known file"},
	[UW_NO_CFI] = {"no_cfi", "no CFI"},
	[UW_GUESSED] = {"guessed", "with a guessed caller"},
	[UW_BAD_CFA] = {"bad_cfa", "CFA not recoverable"},
	[UW_LOOP] = {"loop", "did not advance"},
	[UW_BACKWARDS] = {"backwards", "moved backwards"},
	[UW_NULL_RETURN] = {"null_return", "return address 0"},
	[UW_OVERFLOW] = {"overflow", "address overflow"},
	[UW_DEPTH] = {"depth", "too deep"},
};

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

void un_report_line(struct sp_buf *b, const struct un_result *r)
{
	sp_buf_printf(b, "%llu samples", (unsigned long long)r->n_samples);
	if (r->n_walked)
		sp_buf_printf(b, ", %.1f%% complete",
			      percent(r->stops.n[UW_END] + r->stops.n[UW_GUESSED], r->n_walked));
	if (r->stops.n[UW_GUESSED])
		sp_buf_printf(b, " (%.1f%% %s)", percent(r->stops.n[UW_GUESSED], r->n_walked),
			      stops[UW_GUESSED].text);
	/* Reasons, most frequent first. */
	bool done[UW_N_STOPS] = {[UW_END] = true, [UW_GUESSED] = true};
	for (unsigned round = 1; round < UW_N_STOPS; round++) {
		unsigned best = UW_END;
		for (unsigned k = 0; k < UW_N_STOPS; k++)
			if (!done[k] && r->stops.n[k] &&
			    (best == UW_END || r->stops.n[k] > r->stops.n[best]))
				best = k;
		if (best == UW_END)
			break;
		done[best] = true;
		sp_buf_printf(b, ", %.1f%% %s", percent(r->stops.n[best], r->n_walked),
			      stops[best].text);
	}
	uint64_t rest = r->n_samples - r->n_walked - r->counters.v[SP_C_rejected_samples];
	if (rest)
		sp_buf_printf(b, ", %llu without user stacks", (unsigned long long)rest);
	if (r->counters.v[SP_C_rejected_samples])
		sp_buf_printf(b, ", %llu unreadable",
			      (unsigned long long)r->counters.v[SP_C_rejected_samples]);
	if (r->counters.v[SP_C_lost_events])
		sp_buf_printf(b, ", %llu lost",
			      (unsigned long long)r->counters.v[SP_C_lost_events]);
}

const char *un_report_advice(const struct un_result *r)
{
	const uint64_t *n = r->stops.n;
	if (r->n_samples && !r->had_stacks && r->had_chains)
		return "the recording holds call chains of its own and no user stacks: they go on "
		       "as they are, sp-spool reads such a file directly";
	if (r->n_samples && !r->had_stacks)
		return "the recording holds no user stacks: record with sp-capture, or with "
		       "perf record --call-graph dwarf";
	if (percent(n[UW_STACK_EXHAUSTED], r->n_walked) >= 5.0)
		return "many stacks are cut: record more bytes of them (sp-capture -s 65528, as root "
		       "--engine=bpf for all of them; perf record --call-graph dwarf,65528)";
	if (percent(n[UW_NO_CFI] + n[UW_NO_MODULE], r->n_walked) >= 5.0)
		return "many stacks stop at files without unwind data: -v names them; --path-map "
		       "and --symfs say where copies are";
	return NULL;
}

struct stop_line {
	uint64_t n;
	enum uw_stop stop;
	uint32_t tag;
};

static int by_count(const void *va, const void *vb)
{
	const struct stop_line *a = va, *b = vb;
	if (a->n != b->n)
		return a->n < b->n ? 1 : -1;
	if (a->tag != b->tag)
		return a->tag < b->tag ? -1 : 1;
	return (int)a->stop - (int)b->stop;
}

static struct stop_line *sorted_stops(const struct un_result *r, size_t *n)
{
	struct stop_line *v = calloc(r->stops.n_rows * UW_N_STOPS + 1, sizeof *v);
	*n = 0;
	for (size_t i = 0; v && i < r->stops.n_rows; i++)
		for (unsigned k = 0; k < UW_N_STOPS; k++)
			if (r->stops.rows[i].n[k])
				v[(*n)++] = (struct stop_line){.n = r->stops.rows[i].n[k],
							       .stop = (enum uw_stop)k,
							       .tag = r->stops.rows[i].tag};
	if (v)
		qsort(v, *n, sizeof *v, by_count);
	return v;
}

static const char *path_of(const struct un_result *r, uint32_t tag)
{
	const char *path = tag < r->n_paths ? r->paths[tag] : NULL;
	return path ? path : "no mapping";
}

size_t un_report_stops(struct sp_buf *b, const struct un_result *r, size_t max)
{
	size_t n;
	struct stop_line *v = sorted_stops(r, &n);
	n = n < max ? n : max;
	for (size_t i = 0; v && i < n; i++) {
		sp_buf_printf(b, "%8llu %s in %s", (unsigned long long)v[i].n,
			      stops[v[i].stop].text, path_of(r, v[i].tag));
		sp_buf_u8(b, 0);
	}
	free(v);
	return v ? n : 0;
}

/* Any bytes as a JSON string: what is not ASCII goes out as Latin-1 escapes, so that the object is
 * valid whatever a path holds. */
static void json_string(struct sp_buf *b, const char *s)
{
	sp_buf_u8(b, '"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c < 0x20 || c >= 0x7f)
			sp_buf_printf(b, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			sp_buf_printf(b, "\\%c", c);
		else
			sp_buf_u8(b, c);
	}
	sp_buf_u8(b, '"');
}

void un_report_json(struct sp_buf *b, const struct un_result *r, uint64_t cpu_us)
{
	static const char *const states[] = {"whole", "cut", "damaged"};
	sp_buf_printf(b,
		      "{\"tool\":\"sp-unwind\",\"state\":\"%s\",\"complaint\":", states[r->state]);
	json_string(b, r->complaint);
	sp_buf_printf(b,
		      ",\"sample_events\":%llu,\"unwound\":%llu,\"cpu_us\":%llu,"
		      "\"worker_cpu_us\":%llu",
		      (unsigned long long)r->n_samples, (unsigned long long)r->n_walked,
		      (unsigned long long)cpu_us, (unsigned long long)(r->worker_ns / 1000));
	for (unsigned k = 0; k < UW_N_STOPS; k++)
		sp_buf_printf(b, ",\"stop_%s\":%llu", stops[k].name,
			      (unsigned long long)r->stops.n[k]);
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		if (sp_counter_known(&r->counters, (enum sp_counter)i) && i != SP_C_sample_events)
			sp_buf_printf(b, ",\"%s\":%llu", sp_counter_name((enum sp_counter)i),
				      (unsigned long long)r->counters.v[i]);
	size_t n;
	struct stop_line *v = sorted_stops(r, &n);
	sp_buf_str(b, ",\"stops\":[");
	for (size_t i = 0; v && i < n && i < 100; i++) {
		sp_buf_printf(b, "%s{\"reason\":\"%s\",\"count\":%llu,\"file\":", i ? "," : "",
			      stops[v[i].stop].name, (unsigned long long)v[i].n);
		json_string(b, path_of(r, v[i].tag));
		sp_buf_u8(b, '}');
	}
	sp_buf_str(b, "]}");
	free(v);
}
