/* raw: the samples as they are, without names; stable for programs (sp-sym.1, "raw"). */
#include "base/stop.h"
#include "formats.h"
#include "pieces.h"
#include "wait.h"

static void write_frame(const struct view *v, struct out *o, const struct sp_spool_frame *f)
{
	out_char(o, '\t');
	if (f->mode == SP_FRAME_TRUNCATED) {
		out_str(o, "[truncated]\n");
		return;
	}
	const struct sp_spool_module *m = view_module(v, f);
	out_hex(o, f->abs_ip);
	out_char(o, ' ');
	if (f->mode == SP_FRAME_KERNEL)
		out_str(o, "[kernel]");
	else if (m && *m->path)
		out_octal(o, m->path);
	else
		out_char(o, '-');
	out_char(o, ' ');
	out_hex(o, f->mode == SP_FRAME_KERNEL || !m || !*m->path ? f->abs_ip : f->rel_ip);
	out_char(o, '\n');
}

static void write_head(struct view *v, struct out *o, const struct sp_spool_sample *s)
{
	const struct sp_spool_thread *t = sp_spool_thread(v->spool, s->thread);
	out_add(o, "sample ", 7);
	out_u64(o, s->time_ns);
	out_char(o, ' ');
	out_i64(o, t->pid);
	out_char(o, ' ');
	out_i64(o, t->tid);
	out_char(o, ' ');
	out_octal(o, sp_spool_event(v->spool, s->event)->name);
	out_char(o, ' ');
	out_u64(o, s->weight);
	if (s->wait) {
		struct sp_spool_wait w = sp_spool_wait(v->spool, s->wait);
		out_printf(o, " %u %d %d ", w.state, w.waker_pid, w.waker_tid);
		if (w.waker_tid)
			out_octal(o, wait_comm(&w));
		else
			out_char(o, '-');
	}
	out_char(o, '\n');
}

/* Equal numbers of stack and maps are equal frames. */
static bool write_stack(struct view *v, struct pieces *p, struct out *o,
			const struct sp_spool_sample *s)
{
	uint64_t key = (uint64_t)s->stack << 32 | s->maps;
	if (pieces_write(p, key, o))
		return true;
	const struct sp_spool_frame *f = NULL;
	size_t n = sp_spool_frames(v->spool, &f);
	for (size_t i = 0; i < n; i++)
		write_frame(v, &p->text, &f[i]);
	out_char(&p->text, '\n');
	return pieces_end(p, key, o);
}

int format_raw(struct view *v, struct out *o, struct sp_err *err)
{
	struct pieces pieces = PIECES;
	struct sp_spool_sample s;
	int r;
	while ((r = sp_spool_next(v->spool, &s, err)) > 0) {
		if ((v->n_read++ & 0xfff) == 0 && sp_stop_level() > 0) {
			r = 0;
			break;
		}
		if (!view_sample_passes(v, &s))
			continue;
		v->n_samples++;
		write_head(v, o, &s);
		if (!write_stack(v, &pieces, o, &s)) {
			r = sp_err_nomem(err);
			break;
		}
	}
	pieces_deinit(&pieces, o);
	return r;
}
