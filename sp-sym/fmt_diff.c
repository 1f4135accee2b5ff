/* diff: what got slower from one recording to another, per function. Recordings differ in length,
 * so shares are compared. */
#include <stdio.h>
#include <stdlib.h>

#include "counts.h"
#include "formats.h"
#include "head.h"
#include "term.h"

#define DIFF_LINES 20 /* of each half */

struct change {
	const struct view_func *f;  /* of either view */
	uint64_t self[2], total[2]; /* before, now */
	double self_by, total_by;   /* percentage points */
	bool noise;
};

struct changes {
	struct sp_intern keys;
	struct change *v; /* owned; by key */
	size_t n, cap;
};

/* A function is the same one when name, module, kind and the file's base name are: builds lie in
 * different folders. */
static bool add_counts(struct changes *c, const struct counts *counts, int side)
{
	struct sp_buf key = {0};
	bool ok = true;
	for (size_t i = 0; ok && i < counts->n; i++) {
		const struct func_count *x = &counts->v[i];
		bool is_new = false;
		if (!x->n_total)
			continue;
		key.len = 0;
		sp_buf_add(&key, x->f->name, strlen(x->f->name) + 1);
		sp_buf_add(&key, x->f->module, strlen(x->f->module) + 1);
		sp_buf_str(&key, x->f->file ? view_base(x->f->file) : "");
		sp_buf_u8(&key, (uint8_t)x->f->kind);
		uint32_t id = key.failed ? SP_NOT_FOUND
					 : sp_intern_add(&c->keys, key.data, key.len, &is_new);
		ok = id != SP_NOT_FOUND;
		if (ok && is_new) {
			struct change *slot = SP_PUSH(&c->v, &c->n, &c->cap);
			ok = slot != NULL;
			if (ok)
				*slot = (struct change){.f = x->f};
		}
		if (ok) {
			c->v[id].self[side] += x->self;
			c->v[id].total[side] += x->total;
		}
	}
	sp_buf_deinit(&key);
	return ok;
}

/* Two shares of n samples each differ by chance: below two standard deviations (of the difference
 * of two binomial shares) it is called noise. Compared as squares. */
static bool is_noise(double p, double q, uint64_t n, uint64_t m)
{
	if (!n || !m)
		return false;
	p /= 100;
	q /= 100;
	double variance = p * (1 - p) / (double)n + q * (1 - q) / (double)m;
	return (p - q) * (p - q) < 4 * variance;
}

static void compare(struct changes *c, const struct view *old, const struct view *new)
{
	bool by_total = new->opt->sort_total;
	uint64_t before = view_total(old), now = view_total(new);
	for (size_t i = 0; i < c->n; i++) {
		struct change *x = &c->v[i];
		const uint64_t *by = by_total ? x->total : x->self;
		x->self_by = view_percent(x->self[1], now) - view_percent(x->self[0], before);
		x->total_by = view_percent(x->total[1], now) - view_percent(x->total[0], before);
		x->noise = is_noise(view_percent(by[0], before), view_percent(by[1], now),
				    old->n_samples, new->n_samples);
	}
}

/* Slower first; what did not change in one column is ordered by the other. */
static int by_self(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	if (x->self_by > y->self_by || x->self_by < y->self_by)
		return x->self_by > y->self_by ? -1 : 1;
	if (x->total_by > y->total_by || x->total_by < y->total_by)
		return x->total_by > y->total_by ? -1 : 1;
	return counts_compare_funcs(x->f, y->f);
}

static int by_total(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	if (x->total_by > y->total_by || x->total_by < y->total_by)
		return x->total_by > y->total_by ? -1 : 1;
	return by_self(a, b);
}

static void write_line(struct out *o, const struct term *t, const struct change *x, size_t width,
		       uint64_t before, uint64_t now)
{
	size_t module = width >= 60 ? width / 4 : 0;
	char buf[80];
	snprintf(buf, sizeof buf, "%+8.2f%c%8.2f%9.2f  %+8.2f  ", x->self_by, x->noise ? '~' : ' ',
		 view_percent(x->self[0], before), view_percent(x->self[1], now), x->total_by);
	out_str(o, x->noise ? term_dim(t) : x->self_by > 0 ? term_heat(t, 100) : "");
	out_str(o, buf);
	out_str(o, term_end(t));
	const char *name = *x->f->name ? x->f->name : "?";
	if (module && *x->f->module) {
		term_fit(o, name, width - module - 2);
		out_str(o, term_dim(t));
		out_str(o, "  ");
		term_shorten(o, x->f->module, module);
		out_str(o, term_end(t));
	} else {
		term_shorten(o, name, width);
	}
	out_char(o, '\n');
}

/* Lines from `from` on, in steps, as long as the sign is right. */
static void write_half(struct view *v, struct out *o, const struct term *t, const struct changes *c,
		       bool slower)
{
	uint64_t before = view_total(v->before), now = view_total(v);
	size_t limit = v->opt->limit ? v->opt->limit : DIFF_LINES, n = 0, left = 0;
	double least = v->opt->min_percent >= 0 ? v->opt->min_percent : 0.005;
	for (size_t i = 0; i < c->n; i++) {
		const struct change *x = &c->v[slower ? i : c->n - 1 - i];
		double by = v->opt->sort_total ? x->total_by : x->self_by;
		if ((slower ? by : -by) < least)
			break;
		if (n >= limit) {
			left++;
			continue;
		}
		if (!n++)
			out_printf(
				o,
				"\n%s%s%s\n%s SELF BY    BEFORE      NOW  TOTAL BY  FUNCTION%s\n",
				term_bold(t), slower ? "Slower" : "Faster", term_end(t),
				term_dim(t), term_end(t));
		write_line(o, t, x, t->width > 50 ? t->width - 38 : 12, before, now);
	}
	if (left)
		out_printf(o, "… and %zu more (-n 0 shows all)\n", left);
	if (!n && slower)
		out_str(o, "\nNothing got slower.\n");
}

int format_diff(struct view *v, struct out *o, struct sp_err *err)
{
	struct counts counts[2] = {{0}, {0}};
	struct changes c = {0};
	struct term t;
	int r = counts_init(&counts[0], v->before, err);
	if (r >= 0)
		r = counts_init(&counts[1], v, err);
	if (r >= 0 && (!add_counts(&c, &counts[0], 0) || !add_counts(&c, &counts[1], 1)))
		r = sp_err_nomem(err);
	if (r >= 0) {
		term_init(&t, v, o);
		compare(&c, v->before, v);
		if (c.n)
			qsort(c.v, c.n, sizeof *c.v, v->opt->sort_total ? by_total : by_self);
		out_str(o, "before: ");
		head_write(v->before, o, &t);
		out_str(o, "now:    ");
		head_write(v, o, &t);
		out_str(o,
			"Percentage points of each one's own total; ~ within the noise of so many "
			"samples.\n");
		write_half(v, o, &t, &c, true);
		write_half(v, o, &t, &c, false);
	}
	counts_deinit(&counts[0]);
	counts_deinit(&counts[1]);
	sp_intern_deinit(&c.keys);
	free(c.v);
	return r < 0 ? r : 0;
}
