/* One DATA block: the definitions that are new, then the samples, as columns. */
#include "spool/dict.h"

#include <stdlib.h>

static void put(struct sp_spool_writer *w, enum sp_column id, uint64_t v)
{
	sp_col_push(&w->col[id], v);
}

static void put_strings(struct sp_spool_writer *w)
{
	for (size_t i = w->out.strings; i < w->strings.n; i++)
		put(w, SP_COL_STR_LEN, w->strings.items[i].len);
	for (size_t i = w->out.origins; i < w->origins.n; i++) {
		uint32_t key[2];
		memcpy(key, sp_intern_get(&w->origins, (uint32_t)i, NULL), sizeof key);
		put(w, SP_COL_ORIGIN_HOST, key[0] + 1);
		put(w, SP_COL_ORIGIN_BOOT, key[1] + 1);
	}
}

static void put_files(struct sp_spool_writer *w)
{
	for (size_t i = w->out.files; i < w->n_file; i++) {
		const struct sp_wfile_rec *f = &w->file[i];
		put(w, SP_COL_FILE_PATH, f->path);
		put(w, SP_COL_FILE_MAJ, f->maj);
		put(w, SP_COL_FILE_MIN, f->min);
		put(w, SP_COL_FILE_INO, f->ino);
		put(w, SP_COL_FILE_GEN, f->gen);
		put(w, SP_COL_FILE_FLAGS, f->flags);
		put(w, SP_COL_FILE_ID_LEN, f->id_len);
	}
	for (size_t i = w->out.segs; i < w->segs.n; i++) {
		struct sp_wseg seg;
		memcpy(&seg, sp_intern_get(&w->segs, (uint32_t)i, NULL), sizeof seg);
		put(w, SP_COL_SEG_FILE, seg.file);
		put(w, SP_COL_SEG_FOFF, seg.foff);
		put(w, SP_COL_SEG_LEN, seg.len);
	}
	for (size_t i = w->out.events; i < w->events.n; i++) {
		uint32_t key[2];
		memcpy(key, sp_intern_get(&w->events, (uint32_t)i, NULL), sizeof key);
		put(w, SP_COL_EVENT_NAME, key[0]);
		put(w, SP_COL_EVENT_FLAGS, key[1]);
	}
}

static void put_waits(struct sp_spool_writer *w)
{
	for (size_t i = w->out.waits; i < w->waits.n; i++) {
		struct sp_wwait k;
		memcpy(&k, sp_intern_get(&w->waits, (uint32_t)i, NULL), sizeof k);
		put(w, SP_COL_WAIT_STATE, k.state);
		put(w, SP_COL_WAIT_PID, (uint32_t)k.waker_pid);
		put(w, SP_COL_WAIT_TID, (uint32_t)k.waker_tid);
		put(w, SP_COL_WAIT_COMM, k.comm);
	}
}

static int by_place(const void *a, const void *b)
{
	const struct sp_wmodule *x = a, *y = b;
	return x->set != y->set ? (x->set > y->set) - (x->set < y->set)
				: (x->place > y->place) - (x->place < y->place);
}

static void put_processes(struct sp_spool_writer *w)
{
	int64_t before = 0;
	for (size_t i = w->out.threads; i < w->n_thread; i++) {
		const struct sp_wthread *t = &w->thread[i];
		put(w, SP_COL_THREAD_PID, sp_zigzag(t->pid - before));
		put(w, SP_COL_THREAD_TID, sp_zigzag((int64_t)t->tid - t->pid));
		put(w, SP_COL_THREAD_ORIGIN, t->origin);
		before = t->pid;
	}
	before = 0;
	for (size_t i = w->out.sets; i < w->n_set; i++) {
		const struct sp_wset *s = &w->set[i];
		put(w, SP_COL_SET_PID, sp_zigzag(s->pid - before));
		put(w, SP_COL_SET_ORIGIN, s->origin);
		put(w, SP_COL_SET_PARENT, s->parent + 1);
		put(w, SP_COL_SET_COPIED, s->n_copied);
		before = s->pid;
	}
	uint64_t start = 0;
	uint32_t set = 0;
	if (w->n_mod_log)
		qsort(w->mod_log, w->n_mod_log, sizeof *w->mod_log, by_place);
	for (size_t i = 0; i < w->n_mod_log; i++) {
		const struct sp_wmodule *m = &w->mod_log[i];
		put(w, SP_COL_MOD_SET, m->set - set);
		set = m->set;
		put(w, SP_COL_MOD_SEG, m->seg);
		put(w, SP_COL_MOD_PLACE, m->place);
		put(w, SP_COL_MOD_START, sp_zigzag((int64_t)(m->start - start)));
		start = m->start;
	}
}

/* The stored id of a frame, stored now when it is new; *is_new says so. */
static uint32_t store_frame(struct sp_spool_writer *w, uint32_t id, bool *is_new)
{
	*is_new = w->frame_out[id] == 0;
	if (!*is_new)
		return w->frame_out[id] - 1;
	struct sp_wframe f;
	memcpy(&f, sp_intern_get(&w->frames, id, NULL), sizeof f);
	bool has_file = f.kind == SP_FKIND_FILE || f.kind == SP_FKIND_COPY;
	put(w, SP_COL_FRAME_KIND, f.kind);
	if (has_file)
		put(w, SP_COL_FRAME_FILE, f.file);
	if (f.kind == SP_FKIND_COPY)
		put(w, SP_COL_FRAME_COPY, f.copy);
	struct sp_wlast *last = &w->last[has_file ? SP_SPOOL_N_LAST_KINDS + f.file : f.kind];
	uint64_t before = last->block == w->block ? last->off : 0;
	put(w, SP_COL_FRAME_OFF, sp_zigzag((int64_t)(f.off - before)));
	*last = (struct sp_wlast){.off = f.off, .block = w->block};
	w->frame_out[id] = ++w->out.frames;
	return w->frame_out[id] - 1;
}

/* Whether `node` is on the stack `of`, and how many frames below its top. */
static bool is_ancestor(const struct sp_spool_writer *w, uint32_t node, uint32_t of, uint32_t *pops)
{
	if (of == SP_NONE || w->node[of].depth < w->node[node].depth)
		return false;
	*pops = w->node[of].depth - w->node[node].depth;
	for (uint32_t i = 0; i < *pops; i++)
		of = w->node[of].prefix;
	return of == node;
}

static void store_stack(struct sp_spool_writer *w, uint32_t stack, uint32_t prev)
{
	if (stack == prev) {
		put(w, SP_COL_S_KIND, SP_SKIND_SAME);
		return;
	}
	if (stack == SP_NONE || w->node[stack].out) {
		put(w, SP_COL_S_KIND, SP_SKIND_NODE);
		put(w, SP_COL_S_NODE, stack == SP_NONE ? 0 : w->node[stack].out);
		return;
	}
	uint32_t base = stack, n = 0, pops = 0;
	for (; base != SP_NONE && !w->node[base].out; base = w->node[base].prefix) {
		if (!sp_grow(&w->path, &w->cap_path, n + 1, sizeof *w->path)) {
			w->raw.failed = true;
			return;
		}
		w->path[n++] = base;
	}
	if (base != SP_NONE && is_ancestor(w, base, prev, &pops) &&
	    pops <= SP_SPOOL_MAX_POPS - w->pops) {
		w->pops += pops;
		put(w, SP_COL_S_KIND, SP_SKIND_POP);
		put(w, SP_COL_S_POP, pops);
	} else {
		put(w, SP_COL_S_KIND, SP_SKIND_NEW);
		put(w, SP_COL_S_NODE, base == SP_NONE ? 0 : w->node[base].out);
	}
	put(w, SP_COL_S_PUSH, n);
	while (n--) {
		struct sp_wnode *node = &w->node[w->path[n]];
		bool is_new;
		uint32_t frame = store_frame(w, node->frame, &is_new);
		put(w, SP_COL_S_FRAME, is_new ? 0 : (uint64_t)frame + 1);
		node->out = ++w->out.nodes;
	}
}

/* Whether ordering by (time, group) gives the samples back in the order they have. A resolution
 * coarser than 1 ns makes ties of what was ordered: those may be put in the groups' order. */
static bool order_by_group(struct sp_spool_writer *w)
{
	struct sp_wpending *p = w->pending;
	bool coarse = w->opts.resolution_ns > 1;
	for (size_t i = 1; i < w->n_pending; i++) {
		if (p[i].time < p[i - 1].time)
			return false;
		if (p[i].time > p[i - 1].time || p[i].group >= p[i - 1].group)
			continue;
		if (!coarse)
			return false;
		struct sp_wpending one = p[i];
		size_t at = i;
		for (; at && p[at - 1].time == one.time && p[at - 1].group > one.group; at--)
			p[at] = p[at - 1];
		p[at] = one;
	}
	return true;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The usual distance of a group's samples: the median of a few. */
static uint64_t find_period(struct sp_spool_writer *w, const uint32_t *order)
{
	uint64_t steps[255];
	size_t n = 0, stride = w->n_pending / 255 + 1;
	for (size_t i = 1; i < w->n_pending && n < 255; i += stride) {
		const struct sp_wpending *a = &w->pending[order[i - 1]], *b = &w->pending[order[i]];
		if (a->group == b->group && b->time > a->time)
			steps[n++] = b->time - a->time;
	}
	qsort(steps, n, sizeof *steps, by_value);
	return n ? steps[n / 2] : 0;
}

/* Indices of the pending samples in stored order: group after group, or as they are. */
static bool make_order(struct sp_spool_writer *w, bool grouped)
{
	if (!sp_grow(&w->order, &w->cap_order, w->n_pending, sizeof *w->order) ||
	    !sp_grow(&w->at, &w->cap_at, w->n_group + 1, sizeof *w->at))
		return false;
	if (!grouped) {
		for (size_t i = 0; i < w->n_pending; i++)
			w->order[i] = (uint32_t)i;
		return true;
	}
	uint32_t sum = 0;
	for (size_t g = 0; g < w->n_group; g++) {
		w->at[g] = sum;
		sum += w->group[g].n;
	}
	for (size_t i = 0; i < w->n_pending; i++)
		w->order[w->at[w->pending[i].group]++] = (uint32_t)i;
	return true;
}

static void put_groups(struct sp_spool_writer *w)
{
	for (size_t g = 0; g < w->n_group; g++) {
		const struct sp_wgroup *p = &w->group[g];
		put(w, SP_COL_GRP_THREAD, p->thread);
		put(w, SP_COL_GRP_COMM, p->comm);
		put(w, SP_COL_GRP_SET, p->set + 1);
		put(w, SP_COL_GRP_EVENT, p->event);
		put(w, SP_COL_GRP_N, p->n);
		put(w, SP_COL_GRP_WEIGHT, p->weight);
	}
}

static void put_samples(struct sp_spool_writer *w, bool grouped, uint64_t base, uint64_t period)
{
	uint32_t prev = SP_NONE, group = SP_NONE, cpu = 0;
	uint64_t time = base;
	for (size_t i = 0; i < w->n_pending; i++) {
		const struct sp_wpending *p = &w->pending[w->order[i]];
		uint64_t expected = grouped ? time + period : time;
		if (grouped && p->group != group) {
			expected = base;
			cpu = 0;
		}
		if (!grouped)
			put(w, SP_COL_S_GROUP, p->group);
		group = p->group;
		put(w, SP_COL_S_TIME, sp_zigzag((int64_t)(p->time - expected)));
		time = p->time;
		store_stack(w, p->stack, prev);
		prev = p->stack;
		put(w, SP_COL_S_WEIGHT, sp_zigzag((int64_t)(p->weight - w->group[group].weight)));
		put(w, SP_COL_S_CPU, sp_zigzag((int64_t)(p->cpu + 1) - (int64_t)cpu));
		cpu = p->cpu + 1;
		put(w, SP_COL_S_WAIT, p->wait);
	}
}

static size_t put_counts(struct sp_spool_writer *w)
{
	size_t n = 0;
	for (unsigned i = 0; i < SP_N_COUNTERS; i++) {
		/* These two follow from the samples. */
		if (i == SP_C_samples || i == SP_C_sample_events ||
		    (w->counters.v[i] == w->counters_out.v[i] &&
		     sp_counter_known(&w->counters, i) == sp_counter_known(&w->counters_out, i)))
			continue;
		const char *name = sp_counter_name(i);
		put(w, SP_COL_COUNT_NAME, sp_spool_put_string(w, name, strlen(name)));
		put(w, SP_COL_COUNT_DELTA,
		    sp_zigzag((int64_t)(w->counters.v[i] - w->counters_out.v[i])));
		n++;
	}
	w->counters_out = w->counters;
	return n;
}

static void put_head(struct sp_spool_writer *w, const struct sp_wstored *before, size_t n_counts,
		     bool grouped, uint64_t base, uint64_t period)
{
	uint64_t first = 0, last = 0;
	for (size_t i = 0; i < w->n_pending; i++) {
		uint64_t t = w->pending[i].time;
		first = t && (!first || t < first) ? t : first;
		last = t > last ? t : last;
	}
	const uint64_t v[SP_HEAD_N] = {
		[SP_HEAD_EPOCH] = w->opts.epoch,
		[SP_HEAD_RESOLUTION] = w->opts.resolution_ns,
		[SP_HEAD_STRING] = before->strings,
		[SP_HEAD_N_STRINGS] = w->strings.n - before->strings,
		[SP_HEAD_ORIGIN] = before->origins,
		[SP_HEAD_N_ORIGINS] = w->origins.n - before->origins,
		[SP_HEAD_FILE] = before->files,
		[SP_HEAD_N_FILES] = w->n_file - before->files,
		[SP_HEAD_SEG] = before->segs,
		[SP_HEAD_N_SEGS] = w->segs.n - before->segs,
		[SP_HEAD_EVENT] = before->events,
		[SP_HEAD_N_EVENTS] = w->events.n - before->events,
		[SP_HEAD_THREAD] = before->threads,
		[SP_HEAD_N_THREADS] = w->n_thread - before->threads,
		[SP_HEAD_SET] = before->sets,
		[SP_HEAD_N_SETS] = w->n_set - before->sets,
		[SP_HEAD_MODULE] = before->modules,
		[SP_HEAD_N_MODULES] = w->n_mod_log,
		[SP_HEAD_FRAME] = before->frames,
		[SP_HEAD_N_FRAMES] = w->out.frames - before->frames,
		[SP_HEAD_NODE] = before->nodes,
		[SP_HEAD_N_NODES] = w->out.nodes - before->nodes,
		[SP_HEAD_SAMPLE] = before->samples,
		[SP_HEAD_N_SAMPLES] = w->n_pending,
		[SP_HEAD_N_GROUPS] = w->n_group,
		[SP_HEAD_N_COUNTS] = n_counts,
		[SP_HEAD_MODE] = !grouped,
		[SP_HEAD_TIME] = base,
		[SP_HEAD_PERIOD] = period,
		[SP_HEAD_FIRST] = first,
		[SP_HEAD_LAST] = last,
		[SP_HEAD_WAIT] = before->waits,
		[SP_HEAD_N_WAITS] = w->waits.n - before->waits,
	};
	struct sp_buf head = {0};
	unsigned n = w->waits.n ? SP_HEAD_N : SP_HEAD_WAIT;
	for (unsigned i = 0; i < n; i++)
		sp_buf_uleb(&head, v[i]);
	if (head.failed)
		w->raw.failed = true;
	sp_col_bytes(&w->raw, SP_COL_HEAD, head.data, head.len);
	sp_buf_deinit(&head);
}

/* All columns, in the order of their ids, the plain ones in their places. */
static void flush_columns(struct sp_spool_writer *w, const struct sp_wstored *before)
{
	for (unsigned id = 0; id <= SP_COL_COUNT_DELTA; id++) {
		if (id == SP_COL_STR_BYTES) {
			struct sp_buf b = {0};
			for (size_t i = before->strings; i < w->strings.n; i++) {
				size_t len;
				const char *s = sp_intern_get(&w->strings, (uint32_t)i, &len);
				sp_buf_add(&b, s, len);
			}
			w->raw.failed |= b.failed;
			sp_col_bytes(&w->raw, id, b.data, b.len);
			sp_buf_deinit(&b);
		} else if (id == SP_COL_FILE_ID) {
			struct sp_buf b = {0};
			for (size_t i = before->files; i < w->n_file; i++)
				sp_buf_add(&b, w->file[i].id, w->file[i].id_len);
			w->raw.failed |= b.failed;
			sp_col_bytes(&w->raw, id, b.data, b.len);
			sp_buf_deinit(&b);
		} else if (id == SP_COL_FILE_CONTENT) {
			struct sp_buf b = {0};
			for (size_t i = before->files; i < w->n_file; i++)
				if (w->file[i].flags & SP_SPOOL_FILE_CONTENT)
					sp_buf_add(&b, w->file[i].content,
						   sizeof w->file[i].content);
			w->raw.failed |= b.failed;
			sp_col_bytes(&w->raw, id, b.data, b.len);
			sp_buf_deinit(&b);
		} else {
			sp_col_flush(&w->raw, id, &w->col[id]);
		}
	}
}

static bool same_counters(const struct sp_counters *a, const struct sp_counters *b)
{
	return a->known == b->known && !memcmp(a->v, b->v, sizeof a->v);
}

int sp_spool_encode(struct sp_spool_writer *w, struct sp_err *err)
{
	if (!w->n_pending && w->events.n == w->out.events &&
	    same_counters(&w->counters, &w->counters_out))
		return 0;
	struct sp_wstored before = w->out;
	size_t n_last = SP_SPOOL_N_LAST_KINDS + w->n_file, had = w->cap_last;
	w->block++;
	w->pops = 0;
	if (!sp_grow(&w->last, &w->cap_last, n_last, sizeof *w->last))
		return sp_spool_nomem(w, err);
	if (w->cap_last > had)
		memset(w->last + had, 0, (w->cap_last - had) * sizeof *w->last);
	bool grouped = order_by_group(w);
	if (!make_order(w, grouped))
		return sp_spool_nomem(w, err);
	size_t n_counts = put_counts(w); /* may intern strings: first */
	uint64_t base = w->n_pending ? w->pending[0].time : 0;
	uint64_t period = grouped ? find_period(w, w->order) : 0;
	put_strings(w);
	put_files(w);
	put_processes(w);
	put_waits(w);
	put_groups(w);
	put_samples(w, grouped, base, period);
	w->raw.len = 0;
	put_head(w, &before, n_counts, grouped, base, period);
	flush_columns(w, &before);
	if (w->raw.failed || w->strings.n > SP_NONE - 1)
		return sp_spool_nomem(w, err);
	w->out.strings = (uint32_t)w->strings.n;
	w->out.origins = (uint32_t)w->origins.n;
	w->out.files = (uint32_t)w->n_file;
	w->out.segs = (uint32_t)w->segs.n;
	w->out.events = (uint32_t)w->events.n;
	w->out.threads = (uint32_t)w->n_thread;
	w->out.sets = (uint32_t)w->n_set;
	w->out.waits = (uint32_t)w->waits.n;
	w->out.modules += (uint32_t)w->n_mod_log;
	w->out.samples += w->n_pending;
	w->n_mod_log = 0;
	w->n_pending = 0;
	w->n_group = 0;
	w->nodes_before = w->n_node;
	return sp_spool_block(w, SP_BLOCK_DATA, w->raw.data, w->raw.len, err);
}
