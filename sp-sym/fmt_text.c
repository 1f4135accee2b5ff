/* text: what `perf script` prints, for its many readers: stackcollapse-perf.pl, inferno,
 * speedscope, the Firefox profiler. They split lines with patterns, so names are made to fit those:
 * no blanks in comm and module, no ';', no "->" in functions (it would split a frame in two), none
 * that begins with a parenthesis (such frames would be dropped). What perf does not tell, the state
 * and the waker of a time off the CPU, stands in a line behind the sample's first one that begins
 * with '#': all skip those, but not as the first line of a file. */
#include <stdlib.h>

#include "base/stop.h"
#include "formats.h"
#include "pieces.h"
#include "wait.h"

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

/* The beginnings of the first lines, by task, and their ends, by event, made once. */
struct head_texts {
	struct out text;
	size_t *at; /* owned; of tasks, then of events; one more at the end */
};

static int make_heads(struct head_texts *h, const struct view *v, struct sp_err *err)
{
	size_t n_events = sp_spool_n_events(v->spool), n = v->n_tasks + n_events;
	*h = (struct head_texts){.text = {.memory = true}};
	h->at = calloc(n + 1, sizeof *h->at);
	for (size_t i = 0; h->at && i < n; i++) {
		if (i < v->n_tasks) {
			const struct view_task *t = &v->tasks[i];
			/* A thread whose name nobody told is called by its number, as in perf. */
			if (*t->comm)
				out_text(&h->text, t->comm, OUT_NO_SPACE | OUT_NO_SEMICOLON);
			else
				out_printf(&h->text, ":%d", t->tid);
			/* stackcollapse-perf.pl wants two characters at least. */
			if (strlen(t->comm) == 1)
				out_char(&h->text, '_');
			/* The patterns want digits: an unknown pid of -1 is 4294967295. */
			out_printf(&h->text, " %u/%u ", (unsigned)t->pid, (unsigned)t->tid);
		} else {
			uint32_t event = (uint32_t)(i - v->n_tasks);
			out_char(&h->text, ' ');
			out_text(&h->text, sp_spool_event(v->spool, event)->name, OUT_NO_SPACE);
			out_str(&h->text, ": \n");
		}
		h->at[i + 1] = h->text.buf.len;
	}
	return h->at && !h->text.buf.failed ? 0 : sp_err_nomem(err);
}

static void add_head(struct out *o, const struct head_texts *h, size_t i)
{
	out_add(o, h->text.buf.data + h->at[i], h->at[i + 1] - h->at[i]);
}

/* A number in that many columns at least. */
static uint8_t *put_padded(uint8_t *p, uint64_t n, size_t columns, uint8_t fill)
{
	uint8_t digits[OUT_DIGITS];
	size_t len = (size_t)(out_put_u64(digits, n) - digits);
	for (; columns > len; columns--)
		*p++ = fill;
	memcpy(p, digits, len);
	return p + len;
}

static void write_wait(const struct view *v, struct out *o, const struct view_row *row)
{
	struct sp_spool_wait w = sp_spool_wait(v->spool, row->wait);
	out_str(o, "# state: ");
	out_str(o, wait_state(v, row));
	if (w.waker_tid) {
		out_str(o, ", waker: ");
		out_text(o, wait_comm(&w), OUT_NO_SPACE);
		out_printf(o, " %d/%d", w.waker_pid, w.waker_tid);
	}
	out_char(o, '\n');
}

static void write_head(const struct view *v, struct out *o, const struct head_texts *h,
		       const struct view_sample *s)
{
	const struct view_row *row = &v->rows[s->row];
	add_head(o, h, v->lanes[s->lane].task);
	if (!out_room(o, 4 * OUT_DIGITS))
		return;
	uint8_t *p = o->buf.data + o->buf.len;
	if (s->cpu != UINT32_MAX) {
		*p++ = '[';
		p = put_padded(p, s->cpu, 3, '0');
		p = out_put(p, "] ", 2);
	}
	p = put_padded(p, s->time_ns / 1000000000, 5, ' ');
	*p++ = '.';
	p = out_put_pairs(p, (unsigned)(s->time_ns / 1000 % 1000000), 3);
	p = out_put(p, ": ", 2);
	p = put_padded(p, s->weight, 10, ' ');
	o->buf.len = (size_t)(p - o->buf.data);
	add_head(o, h, v->n_tasks + row->event);
	if (row->wait)
		write_wait(v, o, row);
}

static bool write_stack(const struct view *v, struct out *o, struct pieces *p,
			const struct frame_texts *t, uint32_t stack)
{
	const struct view_stack *s = &v->stacks[stack];
	struct out *text = &p->text;
	if (pieces_write(p, stack, o))
		return true;
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t f = v->stack_frames[s->at + i];
		out_add(text, t->text.buf.data + t->at[f], t->at[f + 1] - t->at[f]);
	}
	if (!s->n) {
		write_address(text, 0);
		out_str(text, "[no stack] ([unknown])\n");
	}
	out_char(text, '\n');
	return pieces_end(p, stack, o);
}

int format_text(struct view *v, struct out *o, struct sp_err *err)
{
	struct frame_texts t = {0};
	struct head_texts h = {0};
	struct pieces pieces = PIECES;
	struct view_sample s;
	int r = make_texts(&t, v, err);
	if (r >= 0)
		r = make_heads(&h, v, err);
	if (r >= 0 && !pieces_dense(&pieces, v->n_stacks))
		r = sp_err_nomem(err);
	view_rewind(v);
	v->by_stack.base = pieces.v;
	v->by_stack.size = sizeof *pieces.v;
	while (r >= 0 && sp_stop_level() < 2 && (r = view_next(v, &s, err)) > 0) {
		write_head(v, o, &h, &s);
		if (!write_stack(v, o, &pieces, &t, v->rows[s.row].stack))
			r = sp_err_nomem(err);
	}
	free(t.at);
	free(h.at);
	sp_buf_deinit(&t.text.buf);
	sp_buf_deinit(&h.text.buf);
	pieces_deinit(&pieces, o);
	return r < 0 ? r : 0;
}
