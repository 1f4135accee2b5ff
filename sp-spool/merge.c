#include "merge.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/counters.h"
#include "base/err.h"
#include "base/table.h"

/* One input and what its numbers are in the output. */
struct source {
	struct sp_spool *s; /* borrowed */
	int64_t shift;      /* to the first one's clock */
	uint32_t *origin, *event, *thread, *set, *module, *wait; /* owned; number + 1, 0 = not yet; a wait's number */
	struct sp_map64 stacks; /* (stack, set) to stack */
	struct sp_spool_sample next;
	bool has_next;
};

struct merge {
	struct source *v;
	size_t n;
	struct sp_spool_writer *w;
	struct spool_filter *filter; /* borrowed, or NULL */
	uint64_t n_left_out, first_ns; /* first_ns: of the samples wanted */
	struct sp_counters counters;   /* of the samples wanted, when filter is set */
	uint32_t *ksets; /* owned, by the output's origin; number + 1 */
	size_t n_ksets, cap_ksets;
};

static bool same_host(const char *host, const char *boot, const struct sp_spool_info *i)
{
	return !strcmp(boot, i->boot_id) && !strcmp(host, i->hostname);
}

static uint32_t origin_of(struct merge *m, struct source *x, uint32_t origin)
{
	if (!x->origin[origin]) {
		struct sp_spool_origin o = sp_spool_origin(x->s, origin);
		uint32_t id = same_host(o.hostname, o.boot_id, sp_spool_info(m->v[0].s))
				      ? 0
				      : sp_spool_put_origin(m->w, o.hostname, o.boot_id);
		if (id == SP_NONE)
			return SP_NONE;
		x->origin[origin] = id + 1;
	}
	return x->origin[origin] - 1;
}

static uint32_t module_of(struct merge *m, struct source *x, uint32_t id, uint32_t set)
{
	const struct sp_spool_module *p = sp_spool_module(x->s, id);
	struct sp_spool_wfile f = {
		.path = p->path,
		.maj = p->dev_major,
		.min = p->dev_minor,
		.ino = p->inode,
		.ino_gen = p->inode_generation,
		.build_id = p->build_id,
		.build_id_len = p->build_id_len,
		.content_hash = sp_spool_content_hash(x->s, id),
		.is_kernel = p->is_kernel,
		.is_anon = p->is_anon,
	};
	uint32_t file = sp_spool_put_file(m->w, &f);
	return file == SP_NONE ? SP_NONE
			       : sp_spool_put_module(m->w, set, p->start, p->end, p->file_offset,
						     file);
}

static bool kernel_module(struct merge *m, struct source *x, const struct sp_spool_frame *f,
			  uint32_t origin)
{
	if (f->module == SP_NONE || x->module[f->module])
		return true;
	if (origin >= m->n_ksets) {
		if (!sp_grow(&m->ksets, &m->cap_ksets, origin + 1, sizeof *m->ksets))
			return false;
		memset(m->ksets + m->n_ksets, 0, (origin + 1 - m->n_ksets) * sizeof *m->ksets);
		m->n_ksets = origin + 1;
	}
	if (!m->ksets[origin])
		m->ksets[origin] = sp_spool_put_set(m->w, origin, -1, SP_NONE) + 1;
	uint32_t set = m->ksets[origin] - 1;
	uint32_t place = set == SP_NONE ? SP_NONE : module_of(m, x, f->module, set);
	x->module[f->module] = place + 1;
	return place != SP_NONE;
}

static uint32_t frame_of(struct merge *m, struct source *x, const struct sp_spool_frame *f,
			 uint32_t set, uint32_t origin)
{
	if (f->mode == SP_FRAME_TRUNCATED)
		return SP_SPOOL_MARKER;
	if (f->mode == SP_FRAME_KERNEL)
		return kernel_module(m, x, f, origin)
			       ? sp_spool_put_addr(m->w, f->abs_ip, true)
			       : SP_NONE;
	if (f->module == SP_NONE || set == SP_NONE)
		return sp_spool_put_addr(m->w, f->abs_ip, false);
	if (!x->module[f->module])
		x->module[f->module] = module_of(m, x, f->module, set) + 1;
	if (!x->module[f->module])
		return SP_NONE;
	return sp_spool_put_site(m->w, set, x->module[f->module] - 1, f->abs_ip);
}

static int stack_of(struct merge *m, struct source *x, uint32_t set, uint32_t origin, uint32_t *out,
		    struct sp_err *err)
{
	uint64_t key = (uint64_t)x->next.stack << 32 | sp_spool_current_set(x->s);
	uint32_t known = sp_map64_get(&x->stacks, key);
	if (known != SP_NOT_FOUND) {
		*out = known - 1;
		return 0;
	}
	const struct sp_spool_frame *f;
	size_t n = sp_spool_frames(x->s, &f);
	uint32_t stack = SP_NONE;
	while (n--) {
		uint32_t frame = frame_of(m, x, &f[n], set, origin);
		stack = frame == SP_NONE ? SP_NONE : sp_spool_put_node(m->w, stack, frame);
		if (stack == SP_NONE)
			return sp_err_nomem(err);
	}
	*out = stack;
	return sp_map64_put(&x->stacks, key, stack + 1) ? 0 : sp_err_nomem(err);
}

/* A sample's own counters, as those of a stream are. */
static void count_sample(struct merge *m, struct source *x, const struct sp_spool_thread *t)
{
	const struct sp_spool_frame *f;
	size_t n = sp_spool_frames(x->s, &f);
	struct sp_counters *c = &m->counters;
	if (t->pid < 0)
		sp_count(c, SP_C_missing_pid_samples, 1);
	else if (t->tid < 0)
		sp_count(c, SP_C_missing_tid_samples, 1);
	else if (t->tid == 0)
		sp_count(c, SP_C_idle_tid_samples, 1);
	else if (!x->next.time_ns)
		sp_count(c, SP_C_missing_timestamp_samples, 1);
	else if (!n)
		sp_count(c, SP_C_empty_stack_samples, 1);
	if (n && f[n - 1].mode == SP_FRAME_TRUNCATED)
		sp_count(c, SP_C_truncated_frame_markers, 1);
}

static bool is_wanted(struct merge *m, struct source *x, const struct sp_spool_thread *t)
{
	const struct sp_spool_sample *p = &x->next;
	uint64_t time_ns = p->time_ns ? p->time_ns + (uint64_t)x->shift : 0;
	if (!spool_filter_wants(m->filter, time_ns, t->pid, t->tid, p->comm)) {
		m->n_left_out++;
		return false;
	}
	if (!m->first_ns)
		m->first_ns = time_ns;
	count_sample(m, x, t);
	return true;
}

static bool wait_of(struct merge *m, struct source *x, uint32_t wait)
{
	if (!wait || x->wait[wait])
		return true;
	struct sp_spool_wait p = sp_spool_wait(x->s, wait);
	uint32_t comm = sp_spool_put_string(m->w, p.waker_comm, strlen(p.waker_comm)), id = SP_NONE;
	if (comm != SP_NONE)
		id = sp_spool_put_wait(m->w, p.state, p.waker_pid, p.waker_tid, comm);
	x->wait[wait] = id == SP_NONE ? 0 : id;
	return id != SP_NONE;
}

static int put_next(struct merge *m, struct source *x, struct sp_err *err)
{
	const struct sp_spool_sample *p = &x->next;
	const struct sp_spool_thread *t = sp_spool_thread(x->s, p->thread);
	if (m->filter && !is_wanted(m, x, t))
		return 0;
	uint32_t origin = origin_of(m, x, t->origin);
	if (origin == SP_NONE)
		return sp_err_nomem(err);
	if (!x->thread[p->thread])
		x->thread[p->thread] = sp_spool_put_thread(m->w, origin, t->pid, t->tid) + 1;
	if (!x->event[p->event]) {
		const struct sp_spool_event *e = sp_spool_event(x->s, p->event);
		x->event[p->event] = sp_spool_put_event(m->w, e->name, e->weight_is_time) + 1;
	}
	uint32_t from = sp_spool_current_set(x->s), set = SP_NONE;
	if (from != SP_NONE) {
		if (!x->set[from])
			x->set[from] = sp_spool_put_set(m->w, origin, t->pid, SP_NONE) + 1;
		set = x->set[from] - 1;
	}
	struct sp_spool_wsample out = {
		.time_ns = p->time_ns ? p->time_ns + (uint64_t)x->shift : 0,
		.weight = p->weight,
		.thread = x->thread[p->thread] - 1,
		.event = x->event[p->event] - 1,
		.cpu = p->cpu,
		.comm = sp_spool_put_string(m->w, p->comm, strlen(p->comm)),
		.set = set,
	};
	if (out.thread == SP_NONE || out.event == SP_NONE || out.comm == SP_NONE ||
	    (from != SP_NONE && set == SP_NONE) || !wait_of(m, x, p->wait))
		return sp_err_nomem(err);
	out.wait = x->wait[p->wait];
	int rc = stack_of(m, x, set, origin, &out.stack, err);
	return rc < 0 ? rc : sp_spool_put_sample(m->w, &out, err);
}

static int advance(struct source *x, struct sp_err *err)
{
	int rc = sp_spool_next(x->s, &x->next, err);
	x->has_next = rc == 1;
	return rc < 0 ? rc : 0;
}

static int put_samples(struct merge *m, struct sp_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < m->n && rc == 0; i++)
		rc = advance(&m->v[i], err);
	while (rc == 0) {
		struct source *first = NULL;
		for (size_t i = 0; i < m->n; i++) {
			struct source *x = &m->v[i];
			if (x->has_next &&
			    (!first || (int64_t)(x->next.time_ns + (uint64_t)x->shift -
						 first->next.time_ns - (uint64_t)first->shift) < 0))
				first = x;
		}
		if (!first)
			break;
		rc = put_next(m, first, err);
		if (rc == 0)
			rc = advance(first, err);
	}
	return rc;
}

/* Losses, markers, embedded files, the stages' words. */
static int put_rest(struct merge *m, struct source *x, struct sp_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < sp_spool_n_losses(x->s) && rc == 0; i++) {
		struct sp_spool_loss l = *sp_spool_loss(x->s, i);
		l.from_ns += (uint64_t)x->shift;
		l.to_ns += (uint64_t)x->shift;
		if (m->filter && !spool_filter_wants_time(m->filter, l.from_ns, l.to_ns))
			continue;
		if (l.kind == 0)
			sp_count(&m->counters, SP_C_lost_events, l.count);
		rc = sp_spool_put_loss(m->w, &l, err);
	}
	for (size_t i = 0; i < sp_spool_n_execs(x->s) && rc == 0; i++) {
		struct sp_spool_exec e = *sp_spool_exec(x->s, i);
		if (m->filter && !spool_filter_wants_pid(m->filter, e.pid))
			continue;
		e.time_ns += (uint64_t)x->shift;
		e.origin = origin_of(m, x, e.origin);
		rc = e.origin == SP_NONE ? sp_err_nomem(err) : sp_spool_put_exec(m->w, &e, err);
	}
	for (size_t i = 0; i < sp_spool_n_objects(x->s) && rc == 0; i++) {
		struct sp_spool_object o = *sp_spool_object(x->s, i);
		if (m->filter && !spool_filter_wants_pid(m->filter, o.pid))
			continue;
		o.time_ns += (uint64_t)x->shift;
		o.origin = origin_of(m, x, o.origin);
		rc = o.origin == SP_NONE ? sp_err_nomem(err) : sp_spool_put_object(m->w, &o, err);
	}
	for (size_t i = 0; i < sp_spool_n_stages(x->s) && rc == 0; i++) {
		const char *text, *name = sp_spool_stage(x->s, i, &text);
		rc = sp_spool_put_stage(m->w, name, text, strlen(text), err);
	}
	return rc;
}

static void add_counters(struct sp_counters *to, const struct sp_counters *from)
{
	for (unsigned i = 0; i < SP_N_COUNTERS; i++) {
		bool had = sp_counter_known(to, i);
		if (!sp_counter_known(from, i))
			continue;
		to->known |= UINT64_C(1) << i;
		if (i == SP_C_kernel_enabled || i == SP_C_maximum_ring_buffer_bytes)
			to->v[i] = from->v[i] > to->v[i] ? from->v[i] : to->v[i];
		else if (i == SP_C_minimum_ring_buffer_bytes)
			to->v[i] = had && to->v[i] < from->v[i] ? to->v[i] : from->v[i];
		else
			to->v[i] += from->v[i];
	}
}

static bool source_init(struct source *x, struct sp_spool *s, const struct sp_spool_info *first)
{
	const struct sp_spool_info *i = sp_spool_info(s);
	*x = (struct source){.s = s};
	if (strcmp(i->boot_id, first->boot_id) != 0 && i->wall_ns && first->wall_ns)
		x->shift = (int64_t)((i->wall_ns - i->clock_ns) -
				     (first->wall_ns - first->clock_ns));
	x->origin = calloc(sp_spool_n_origins(s), sizeof *x->origin);
	x->event = calloc(sp_spool_n_events(s) + 1, sizeof *x->event);
	x->thread = calloc(sp_spool_n_threads(s) + 1, sizeof *x->thread);
	x->set = calloc(sp_spool_n_sets(s) + 1, sizeof *x->set);
	x->module = calloc(sp_spool_n_modules(s) + 1, sizeof *x->module);
	x->wait = calloc(sp_spool_n_waits(s), sizeof *x->wait);
	return x->origin && x->event && x->thread && x->set && x->module && x->wait;
}

static void source_deinit(struct source *x)
{
	free(x->origin);
	free(x->event);
	free(x->thread);
	free(x->set);
	free(x->module);
	free(x->wait);
	sp_map64_deinit(&x->stacks);
}

/* Put the range on the first one's clock: it counts from the earliest of all samples. */
static void begin_filter(struct merge *m)
{
	uint64_t first = 0;
	for (size_t i = 0; i < m->n; i++) {
		const struct sp_spool_info *info = sp_spool_info(m->v[i].s);
		uint64_t t = info->first_ns ? info->first_ns + (uint64_t)m->v[i].shift : 0;
		if (t && (!first || t < first))
			first = t;
	}
	spool_filter_begin(m->filter, sp_spool_info(m->v[0].s), first);
}

/* The facts of the first one; again when the first sample that was wanted is a later one. */
static int put_info(struct merge *m, struct sp_err *err)
{
	struct sp_spool_info i = *sp_spool_info(m->v[0].s);
	if (i.start_timestamp_us && i.first_ns && m->first_ns)
		i.start_timestamp_us += (uint64_t)((int64_t)(m->first_ns - i.first_ns) / 1000);
	else if (m->first_ns)
		return 0;
	return sp_spool_put_info(m->w, &i, err);
}

int spool_merge(struct sp_spool *const *in, size_t n_in, struct sp_spool_writer *w,
		struct spool_filter *filter, struct sp_counters *counters, uint64_t *n_left_out,
		char *cut, size_t cut_size, struct sp_err *err)
{
	struct merge m = {.n = n_in, .w = w, .filter = filter};
	struct sp_counters sum = {0};
	m.v = calloc(n_in, sizeof *m.v);
	int rc = m.v ? 0 : sp_err_nomem(err);
	cut[0] = 0;
	for (size_t i = 0; i < n_in && rc == 0; i++) {
		if (!source_init(&m.v[i], in[i], sp_spool_info(in[0])))
			rc = sp_err_nomem(err);
		if (sp_spool_state(in[i]) != SP_SPOOL_WHOLE && !cut[0])
			snprintf(cut, cut_size, "%s", sp_spool_complaint(in[i]));
		add_counters(&sum, sp_spool_counters(in[i]));
	}
	if (rc == 0 && filter)
		begin_filter(&m);
	if (rc == 0)
		rc = put_info(&m, err);
	for (size_t i = 0; i < n_in && rc == 0; i++)
		rc = put_rest(&m, &m.v[i], err);
	if (!filter)
		sp_spool_put_counters(w, &sum);
	if (rc == 0)
		rc = put_samples(&m, err);
	if (rc == 0 && filter) {
		struct sp_counters kept = spool_filter_counters(&sum);
		add_counters(&kept, &m.counters);
		sum = kept;
		sp_spool_put_counters(w, &sum);
		rc = put_info(&m, err);
	}
	if (rc == 0)
		rc = sp_spool_flush(w, err);
	*counters = sum;
	*n_left_out = m.n_left_out;
	for (size_t i = 0; m.v && i < n_in; i++)
		source_deinit(&m.v[i]);
	free(m.v);
	free(m.ksets);
	return rc;
}
