/* text: what `perf script` prints, for its many readers: stackcollapse-perf.pl, inferno,
 * speedscope, the Firefox profiler. They split lines with patterns, so names are made to fit those:
 * no blanks in comm and module, no ';', no "->" in functions (it would split a frame in two), none
 * that begins with a parenthesis (such frames would be dropped). */
#include <stdlib.h>

#include "base/stop.h"
#include "formats.h"

/* The lines of each distinct frame, made once. */
struct frame_texts {
	struct out text;
	size_t *at; /* owned; n_frames + 1 */
};

static void write_name(struct out *o, const char *name)
{
	const char *arrow;
	if (!*name)
		name = "?";
	if (*name == '(')
		out_str(o, "::");
	while ((arrow = strstr(name, "->"))) {
		out_text_n(o, name, (size_t)(arrow - name), OUT_NO_SEMICOLON);
		out_str(o, "- >");
		name = arrow + 2;
	}
	out_text(o, name, OUT_NO_SEMICOLON);
}

static void write_module(const struct view *v, struct out *o, const struct view_frame *f)
{
	const struct sp_spool_module *m = view_module(v, &f->f);
	if (f->f.mode == SP_FRAME_KERNEL)
		out_str(o, "[kernel.kallsyms]");
	else if (f->origin == SP_ORIGIN_PERF_MAP)
		out_printf(o, "/tmp/perf-%d.map", f->pid);
	else if (m && *m->path)
		out_text(o, m->path, OUT_NO_SPACE);
	else
		out_str(o, "[unknown]");
}

static void write_address(struct out *o, uint64_t address)
{
	out_printf(o, "\t%16llx ", (unsigned long long)address);
}

/* perf (since 5.18, sample__fprintf_callchain) shows a frame of a file by its offset in the file,
 * all others by their address. */
static uint64_t shown_address(const struct view *v, const struct view_frame *f)
{
	const struct sp_spool_module *m = view_module(v, &f->f);
	bool in_file = m && !m->is_anon && f->f.mode == SP_FRAME_USER;
	return in_file && f->origin != SP_ORIGIN_PERF_MAP ? f->f.rel_ip : f->f.abs_ip;
}

static void write_frame(const struct view *v, struct out *o, const struct view_frame *f)
{
	if (f->f.mode == SP_FRAME_TRUNCATED) {
		write_address(o, 0);
		out_str(o, "[truncated] ([unknown])\n");
		return;
	}
	for (uint32_t i = 0; i < f->n_levels; i++) {
		write_address(o, shown_address(v, f));
		write_name(o, view_level_func(v, f->level_at + i)->name);
		if (v->levels[f->level_at + i].inlined) {
			out_str(o, " (inlined)\n");
			continue;
		}
		if (f->origin != SP_ORIGIN_ADDRESS) {
			out_str(o, "+0x");
			out_hex(o, f->function_offset);
		}
		out_str(o, " (");
		write_module(v, o, f);
		out_str(o, ")\n");
	}
}

static int make_texts(struct frame_texts *t, const struct view *v, struct sp_err *err)
{
	*t = (struct frame_texts){.text = {.memory = true}};
	t->at = calloc(v->n_frames + 1, sizeof *t->at);
	for (size_t i = 0; t->at && i < v->n_frames; i++) {
		write_frame(v, &t->text, &v->frames[i]);
		t->at[i + 1] = t->text.buf.len;
	}
	return t->at && !t->text.buf.failed ? 0 : sp_err_nomem(err);
}

static void write_head(const struct view *v, struct out *o, const struct view_sample *s)
{
	const struct view_row *row = &v->rows[s->row];
	const struct view_task *t = &v->tasks[row->task];
	out_text(o, *t->comm ? t->comm : "?", OUT_NO_SPACE | OUT_NO_SEMICOLON);
	/* stackcollapse-perf.pl wants two characters at least. */
	if (strlen(t->comm) < 2)
		out_char(o, '_');
	/* The patterns want digits: an unknown pid of -1 is written as 4294967295. */
	out_printf(o, " %u/%u ", (unsigned)t->pid, (unsigned)t->tid);
	if (s->cpu != UINT32_MAX)
		out_printf(o, "[%03u] ", s->cpu);
	out_printf(o, "%5llu.%06llu: %10llu ", (unsigned long long)(s->time_ns / 1000000000),
		   (unsigned long long)(s->time_ns / 1000 % 1000000),
		   (unsigned long long)s->weight);
	out_text(o, sp_spool_event(v->spool, row->event)->name, OUT_NO_SPACE);
	out_str(o, ": \n");
}

int format_text(struct view *v, struct out *o, struct sp_err *err)
{
	struct frame_texts t;
	struct view_sample s;
	int r = make_texts(&t, v, err);
	view_rewind(v);
	while (r >= 0 && sp_stop_level() < 2 && (r = view_next(v, &s, err)) > 0) {
		const struct view_stack *stack = &v->stacks[v->rows[s.row].stack];
		write_head(v, o, &s);
		for (uint32_t i = 0; i < stack->n; i++) {
			uint32_t f = v->stack_frames[stack->at + i];
			out_add(o, t.text.buf.data + t.at[f], t.at[f + 1] - t.at[f]);
		}
		if (!stack->n) {
			write_address(o, 0);
			out_str(o, "[no stack] ([unknown])\n");
		}
		out_char(o, '\n');
	}
	free(t.at);
	sp_buf_deinit(&t.text.buf);
	return r < 0 ? r : 0;
}
