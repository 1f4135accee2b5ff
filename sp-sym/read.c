/* Samples into rows: one pass over the spool. */
#include <stdlib.h>

#include "base/stop.h"
#include "view.h"

static uint32_t new_frame(struct view *v, const struct sp_spool_frame *f, int32_t pid,
			  uint64_t time_ns)
{
	struct view_frame *frame = SP_PUSH(&v->frames, &v->n_frames, &v->frames_cap);
	if (!frame)
		return SP_NOT_FOUND;
	frame->f = *f;
	frame->pid = pid;
	frame->time_ns = time_ns;
	return (uint32_t)v->n_frames - 1;
}

/* Where the number + 1 of a frame is that all processes share; NULL when memory ends. The spool's
 * own numbers are dense. */
static uint32_t *shared_frame(struct view *v, uint32_t frame_id)
{
	size_t old = v->shared_cap;
	if (frame_id >= old) {
		if (!sp_grow(&v->shared, &v->shared_cap, (size_t)frame_id + 1, sizeof *v->shared))
			return NULL;
		memset(v->shared + old, 0, (v->shared_cap - old) * sizeof *v->shared);
	}
	return &v->shared[frame_id];
}

/* Files and the kernel are the same for all processes; code without a file is named by the
 * process's own perf map. */
static uint32_t add_frame(struct view *v, const struct sp_spool_frame *f, uint32_t pid_index,
			  int32_t pid, uint64_t time_ns)
{
	if (f->frame_id < v->shared_cap && v->shared[f->frame_id]) /* seen before: not its own */
		return v->shared[f->frame_id] - 1;
	if (!sp_resolver_is_own(v->resolver, f)) {
		uint32_t *slot = shared_frame(v, f->frame_id);
		if (slot && !*slot)
			*slot = new_frame(v, f, pid, time_ns) + 1;
		return slot ? *slot - 1 : SP_NOT_FOUND;
	}
	uint64_t key = (uint64_t)f->frame_id << 32 | (pid_index + 1);
	uint32_t variant;
	if (sp_resolver_variant(v->resolver, pid, f, time_ns, &variant))
		key = (uint64_t)UINT32_MAX << 32 | variant;
	uint32_t id = sp_map64_get(&v->frame_ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	id = new_frame(v, f, pid, time_ns);
	return id != SP_NOT_FOUND && sp_map64_put(&v->frame_ids, key, id) ? id : SP_NOT_FOUND;
}

/* The stack of equal frames that exists already, or the new one at the end of stack_frames. */
static uint32_t intern_stack(struct view *v, size_t at, uint32_t n)
{
	const uint32_t *frames = v->stack_frames + at;
	for (uint64_t seed = 0;; seed++) {
		uint64_t hash = sp_hash(n ? frames : NULL, n * sizeof *frames, seed);
		uint32_t id = sp_map64_get(&v->stack_hashes, hash);
		if (id == SP_NOT_FOUND) {
			struct view_stack *s = SP_PUSH(&v->stacks, &v->n_stacks, &v->stacks_cap);
			id = (uint32_t)v->n_stacks - 1;
			if (!s || !sp_map64_put(&v->stack_hashes, hash, id))
				return SP_NOT_FOUND;
			*s = (struct view_stack){.at = at, .n = n};
			return id;
		}
		const struct view_stack *s = &v->stacks[id];
		if (s->n == n &&
		    (!n || !memcmp(v->stack_frames + s->at, frames, n * sizeof *frames))) {
			v->n_stack_frames = at;
			return id;
		}
	}
}

/* The sample's stack: its frames are looked at only when the spool's stack is new in its process.
 */
static uint32_t add_stack(struct view *v, const struct sp_spool_sample *s, uint32_t epoch)
{
	uint32_t pid_index = v->pid_index[s->thread];
	uint64_t key = (uint64_t)s->stack << 32 | pid_index;
	uint32_t id = epoch ? SP_NOT_FOUND : sp_map64_get(&v->stack_ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	const struct sp_spool_frame *f = NULL;
	size_t n = sp_spool_sample_frames(v->spool, s, &f), at = v->n_stack_frames;
	if (!sp_grow(&v->stack_frames, &v->stack_frames_cap, at + n + 1, sizeof *v->stack_frames))
		return SP_NOT_FOUND;
	int32_t pid = sp_spool_thread(v->spool, s->thread)->pid;
	for (size_t i = 0; i < n; i++) {
		uint32_t frame = add_frame(v, &f[i], pid_index, pid, s->time_ns);
		if (frame == SP_NOT_FOUND)
			return frame;
		v->stack_frames[at + i] = frame;
	}
	v->n_stack_frames += n;
	id = intern_stack(v, at, (uint32_t)n);
	if (epoch || id == SP_NOT_FOUND)
		return id;
	return sp_map64_put(&v->stack_ids, key, id) ? id : SP_NOT_FOUND;
}

/* The thread under the name that it has now. */
static uint32_t add_task(struct view *v, const struct sp_spool_sample *s)
{
	const char *comm = s->comm ? s->comm : "";
	uint32_t name = sp_intern_add(&v->comms, comm, strlen(comm), NULL);
	if (name == SP_NOT_FOUND)
		return name;
	uint64_t key = (uint64_t)s->thread << 32 | name;
	uint32_t id = sp_map64_get(&v->task_ids, key);
	if (id == SP_NOT_FOUND) {
		struct view_task *t = SP_PUSH(&v->tasks, &v->n_tasks, &v->tasks_cap);
		id = (uint32_t)v->n_tasks - 1;
		if (!t || !sp_map64_put(&v->task_ids, key, id))
			return SP_NOT_FOUND;
		const struct sp_spool_thread *thread = sp_spool_thread(v->spool, s->thread);
		*t = (struct view_task){thread->pid, thread->tid, s->thread, strdup(comm)};
		if (!t->comm)
			return SP_NOT_FOUND;
	}
	return id;
}

/* The first task that is shown as this one is. Processes stay apart: code of their own is named by
 * process. */
static uint32_t first_alike(struct view *v, uint32_t task)
{
	const struct view_format *f = v->opt->format;
	const struct view_task *t = &v->tasks[task];
	enum view_group how = f->by_task                        ? GROUP_THREAD
			      : v->opt->group != GROUP_DEFAULT ? v->opt->group
			      : f->by_name                     ? GROUP_COMM
							       : GROUP_NONE;
	bool names = how == GROUP_COMM || how == GROUP_POOL;
	if (how == GROUP_THREAD)
		return task;
	uint32_t name = names ? sp_intern_find(&v->comms, t->comm, strlen(t->comm)) : 0;
	uint64_t key = (uint64_t)v->pid_index[t->thread] << 32 | name;
	uint32_t first = sp_map64_get(&v->alike_ids, key);
	if (first != SP_NOT_FOUND)
		return first;
	return sp_map64_put(&v->alike_ids, key, task) ? task : SP_NOT_FOUND;
}

static uint32_t put_lane(struct view *v, struct sp_map64 *ids, uint64_t key, struct view_lane lane)
{
	uint32_t id = sp_map64_get(ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct view_lane *slot = SP_PUSH(&v->lanes, &v->n_lanes, &v->lanes_cap);
	id = (uint32_t)v->n_lanes - 1;
	if (!slot || !sp_map64_put(ids, key, id))
		return SP_NOT_FOUND;
	lane.shared = SP_NONE;
	*slot = lane;
	return id;
}

/* Task, event and wait in one small number. */
static uint32_t find_own_lane(struct view *v, uint32_t task, uint32_t event, uint32_t wait)
{
	uint64_t key = (uint64_t)task << 32 | event;
	uint32_t id = put_lane(v, &v->lane_ids, key, (struct view_lane){task, event, 0, 0, 0});
	if (!wait || id == SP_NOT_FOUND)
		return id;
	return put_lane(v, &v->wait_lanes, (uint64_t)id << 32 | wait,
			(struct view_lane){task, event, wait, 0, 0});
}

/* The same, with the lane whose rows it shares. */
static uint32_t add_lane(struct view *v, uint32_t task, uint32_t event, uint32_t wait)
{
	uint32_t id = find_own_lane(v, task, event, wait);
	if (id == SP_NOT_FOUND || v->lanes[id].shared != SP_NONE)
		return id;
	uint32_t first = first_alike(v, task), shared = id;
	if (first == SP_NOT_FOUND ||
	    (first != task && (shared = find_own_lane(v, first, event, wait)) == SP_NOT_FOUND))
		return SP_NOT_FOUND;
	v->lanes[id].shared = shared;
	return id;
}

/* The task and lane of a sample: mostly those that its thread last had. */
static const struct view_last *find_lane(struct view *v, const struct sp_spool_sample *s)
{
	struct view_last *last = &v->last[s->thread];
	if (last->task != SP_NONE && last->comm == s->comm && last->event == s->event &&
	    last->wait == s->wait)
		return last;
	uint32_t task = add_task(v, s);
	uint32_t lane = task == SP_NOT_FOUND ? task : add_lane(v, task, s->event, s->wait);
	if (lane == SP_NOT_FOUND)
		return NULL;
	int32_t pid = sp_spool_thread(v->spool, s->thread)->pid;
	*last = (struct view_last){s->comm, task, s->event, s->wait, lane, v->lanes[lane].shared,
				   sp_resolver_has_epochs(v->resolver, pid)};
	return last;
}

/* The row of a sample that is new in its lane: the row of an equal stack, or a new one. */
static uint32_t new_row(struct view *v, const struct view_item *item)
{
	uint32_t stack = add_stack(v, &item->s, item->epoch);
	if (stack == SP_NOT_FOUND)
		return stack;
	uint64_t key = (uint64_t)stack << 32 | item->shared;
	uint32_t id = sp_map64_get(&v->row_ids, key);
	if (id != SP_NOT_FOUND)
		return id;
	struct view_row *row = SP_PUSH(&v->rows, &v->n_rows, &v->rows_cap);
	id = (uint32_t)v->n_rows - 1;
	if (!row || !sp_map64_put(&v->row_ids, key, id))
		return SP_NOT_FOUND;
	row->stack = stack;
	row->task = v->lanes[item->shared].task;
	row->event = item->s.event;
	row->wait = item->s.wait;
	return id;
}

/* Code of JITs may be replaced: then equal stacks of different times have different names, and are
 * counted apart. */
static bool set_epoch(struct view *v, struct view_item *item, const struct view_last *last)
{
	const struct sp_spool_sample *s = &item->s;
	item->epoch = last->epochs ? sp_resolver_epoch(v->resolver,
						       sp_spool_thread(v->spool, s->thread)->pid,
						       s->time_ns)
				   : 0;
	if (!item->epoch)
		return true;
	uint64_t key = (uint64_t)item->shared << 32 | item->epoch;
	uint32_t id = sp_map64_get(&v->epoch_lanes, key);
	if (id == SP_NOT_FOUND) {
		id = v->epoch_lanes.n;
		if (!sp_map64_put(&v->epoch_lanes, key, id))
			return false;
	}
	item->key = (uint64_t)s->stack << 32 | UINT32_C(0x80000000) | id;
	return true;
}

/* The next sample that passes the sample filters, into the ring. In the first pass *n_read is not
 * known to end; the second one ends where the first did, which a signal may have ended early. */
static int fetch(struct view *v, uint64_t *n_read, uint64_t end, struct sp_err *err)
{
	struct view_ahead *a = &v->ahead;
	struct view_item *item = &a->v[a->in % VIEW_AHEAD];
	int r = 0;
	while (*n_read < end && (r = sp_spool_next(v->spool, &item->s, err)) > 0) {
		if ((*n_read & 0xfff) == 0 && end == UINT64_MAX && sp_stop_level() > 0) {
			r = 0;
			break;
		}
		item->seq = (*n_read)++;
		if (!view_sample_passes(v, &item->s))
			continue;
		const struct view_last *last = find_lane(v, &item->s);
		if (!last)
			return sp_err_nomem(err);
		item->task = last->task;
		item->lane = last->lane;
		item->shared = last->shared;
		item->key = (uint64_t)item->s.stack << 32 | item->shared;
		if (!set_epoch(v, item, last))
			return sp_err_nomem(err);
		__builtin_prefetch(tally_place(&v->seen, item->key));
		a->in++;
		return 1;
	}
	a->ended = true;
	return r < 0 ? r : 0;
}

/* The next sample in order, with those behind it on their way: 1, or 0 at the end. */
static int next_item(struct view *v, struct view_item **out, uint64_t *n_read, uint64_t end,
		     struct sp_err *err)
{
	struct view_ahead *a = &v->ahead;
	while (!a->ended && a->in - a->out < VIEW_AHEAD) {
		int r = fetch(v, n_read, end, err);
		if (r < 0)
			return r;
	}
	if (a->in == a->out)
		return 0;
	*out = &a->v[a->out++ % VIEW_AHEAD];
	return 1;
}

/* The slot of a sample; NULL when memory ends. One look into a large table, in the common case: by
 * the spool's own number of the stack. */
static struct tally_slot *find_slot(struct view *v, const struct view_item *item)
{
	struct tally_slot *slot = tally_find(&v->seen, item->key);
	if (slot)
		return slot;
	uint32_t row = new_row(v, item);
	return row == SP_NOT_FOUND ? NULL : tally_add(&v->seen, item->key, row);
}

/* What a slot counted, to its row. */
static void settle(struct view *v, struct tally_slot *slot)
{
	struct view_row *row = &v->rows[slot->row - 1];
	row->n += slot->n;
	row->weight += slot->weight;
	slot->n = 0;
	slot->weight = 0;
}

static void settle_all(struct view *v)
{
	for (size_t i = 0; v->seen.slots && i <= v->seen.mask; i++)
		if (v->seen.slots[i].row)
			settle(v, &v->seen.slots[i]);
}

/* A dense number per pid, and which events pass --event. */
static int prepare(struct view *v, struct sp_err *err)
{
	struct sp_map64 pids = {0};
	size_t n = sp_spool_n_threads(v->spool), n_events = sp_spool_n_events(v->spool);
	v->last = calloc(n + 1, sizeof *v->last);
	v->pid_index = malloc((n + 1) * sizeof *v->pid_index);
	v->event_shown = calloc(n_events + 1, 1);
	bool ok = v->last && v->pid_index && v->event_shown;
	for (size_t i = 0; ok && i < n; i++) {
		uint64_t pid = (uint32_t)sp_spool_thread(v->spool, (uint32_t)i)->pid;
		v->last[i].task = SP_NONE;
		v->pid_index[i] = sp_map64_get(&pids, pid);
		if (v->pid_index[i] == SP_NOT_FOUND) {
			v->pid_index[i] = pids.n;
			ok = sp_map64_put(&pids, pid, pids.n);
		}
	}
	v->n_last = n;
	const struct view_words *events = &v->opt->events;
	for (size_t i = 0; ok && i < n_events; i++) {
		const char *name = sp_spool_event(v->spool, (uint32_t)i)->name;
		v->event_shown[i] = events->n == 0;
		for (size_t j = 0; j < events->n; j++)
			v->event_shown[i] |= view_match(events->v[j], name);
	}
	sp_map64_deinit(&pids);
	return ok ? 0 : sp_err_nomem(err);
}

int view_init(struct view *v, struct sp_spool *spool, const struct view_options *opt,
	      struct sp_err *err)
{
	*v = (struct view){.spool = spool, .opt = opt};
	return prepare(v, err);
}

int view_load(struct view *v, struct sp_err *err)
{
	struct view_item *item;
	int r = sp_resolver_new(&v->resolver, v->spool, &v->opt->resolver, err);
	v->first_ns = UINT64_MAX;
	while (r >= 0 && (r = next_item(v, &item, &v->n_read, UINT64_MAX, err)) > 0) {
		struct tally_slot *slot = find_slot(v, item);
		if (!slot)
			return sp_err_nomem(err);
		if (slot->n == UINT32_MAX)
			settle(v, slot);
		slot->n++;
		slot->weight += item->s.weight;
		v->lanes[item->lane].n++;
		uint64_t time = item->s.time_ns;
		v->first_ns = time < v->first_ns ? time : v->first_ns;
		v->last_ns = time > v->last_ns ? time : v->last_ns;
	}
	settle_all(v);
	if (v->first_ns == UINT64_MAX)
		v->first_ns = 0;
	return r;
}

void view_rewind(struct view *v)
{
	sp_spool_rewind(v->spool);
	v->n_again = 0;
	v->ahead = (struct view_ahead){0};
	v->by_stack.base = NULL;
	for (size_t i = 0; i < v->n_last; i++)
		v->last[i].task = SP_NONE;
}

/* Half-way through the ring a sample's slot is there, and tells which row comes next. */
static void look_for_rows(struct view *v)
{
	struct view_ahead *a = &v->ahead;
	uint64_t to = a->ended ? a->in : a->in - VIEW_AHEAD / 2;
	for (; a->half < to; a->half++) {
		struct view_item *item = &a->v[a->half % VIEW_AHEAD];
		const struct tally_slot *slot = tally_find(&v->seen, item->key);
		item->row = slot ? slot->row - 1 : SP_NONE;
		if (slot)
			__builtin_prefetch(&v->rows[item->row]);
	}
}

/* Later on, that row is there too. */
static const void *soon_wanted(const struct view *v)
{
	const struct view_ahead *a = &v->ahead;
	const struct view_item *item = &a->v[(a->out + VIEW_AHEAD / 4) % VIEW_AHEAD];
	if (!v->by_stack.base || a->out + VIEW_AHEAD / 4 >= a->half || item->row == SP_NONE)
		return NULL;
	return (const char *)v->by_stack.base + v->by_stack.size * v->rows[item->row].stack;
}

int view_next(struct view *v, struct view_sample *out, struct sp_err *err)
{
	struct view_item *item;
	int r;
	while ((r = next_item(v, &item, &v->n_again, v->n_read, err)) > 0) {
		look_for_rows(v);
		__builtin_prefetch(soon_wanted(v));
		if (item->row == SP_NONE)
			return sp_err_set(
				err, SP_ERR_CORRUPT, 0,
				"cannot read the samples a second time: the spool changed");
		if (!v->rows[item->row].n)
			continue;
		*out = (struct view_sample){item->s.time_ns, item->s.weight, item->seq, item->row,
					    item->s.cpu, item->lane};
		return 1;
	}
	return r;
}

int view_count_lanes(struct view *v, struct sp_err *err)
{
	struct view_sample s;
	uint64_t n = 0;
	int r;
	for (size_t i = 0; i < v->n_lanes; i++)
		n += v->lanes[i].n;
	if (n == v->n_samples)
		return 0;
	for (size_t i = 0; i < v->n_lanes; i++)
		v->lanes[i].n = 0;
	view_rewind(v);
	while ((r = view_next(v, &s, err)) > 0)
		v->lanes[s.lane].n++;
	return r;
}

void view_deinit(struct view *v)
{
	view_all(v);
	sp_resolver_free(v->resolver);
	for (size_t i = 0; i < v->n_tasks; i++)
		free((char *)(uintptr_t)v->tasks[i].comm);
	for (size_t i = 0; i < v->n_funcs; i++)
		if (v->funcs[i].kind == VIEW_GROUP || v->funcs[i].by_line)
			free((char *)(uintptr_t)v->funcs[i].name);
	free(v->rows);
	free(v->tasks);
	free(v->stacks);
	free(v->stack_frames);
	free(v->frames);
	free(v->levels);
	free(v->places);
	free(v->funcs);
	free(v->lanes);
	free(v->last);
	free(v->pid_index);
	free(v->event_shown);
	sp_map64_deinit(&v->stack_ids);
	sp_map64_deinit(&v->frame_ids);
	free(v->shared);
	sp_map64_deinit(&v->task_ids);
	sp_map64_deinit(&v->alike_ids);
	sp_map64_deinit(&v->lane_ids);
	sp_map64_deinit(&v->wait_lanes);
	sp_map64_deinit(&v->epoch_lanes);
	sp_map64_deinit(&v->row_ids);
	tally_deinit(&v->seen);
	sp_map64_deinit(&v->stack_hashes);
	sp_intern_deinit(&v->comms);
	sp_intern_deinit(&v->func_keys);
	sp_buf_deinit(&v->func_key);
	sp_intern_deinit(&v->file_names);
	sp_map64_deinit(&v->place_ids);
}
