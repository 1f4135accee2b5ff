/* One profile, gathered for the formats: distinct stacks with their weight per task (thread under
 * one name) and event, and the names of their frames. Memory goes with what is distinct, not with
 * the number of samples; formats that show each sample stream the spool a second time.
 *
 *     view_load       reads all samples once       (read.c)
 *     view_resolve    names all distinct frames    (resolve.c)
 *     view_shape      applies the filters that need names or change stacks (filter.c)
 *     view_by_line    does as --lines says    (resolve.c)
 *     view_prune      does as --min-percent and --depth say (prune.c)
 *     view_next       each sample again, in time order, as a row of the above
 *
 * Everything is in the order of first appearance in time: equal spools give equal views. */
#ifndef SYM_VIEW_H
#define SYM_VIEW_H

#include "base/table.h"
#include "options.h"
#include "out.h"
#include "stackpulse/spool.h"
#include "sym/resolver.h"
#include "tally.h"

enum view_kind {
	VIEW_NATIVE,
	VIEW_PYTHON,
	VIEW_JIT,
	VIEW_KERNEL,
	VIEW_ADDRESS,   /* an address that nobody could name */
	VIEW_TRUNCATED, /* stands for the callers that were not seen */
	VIEW_NO_STACK,  /* stands for the leaf of a sample without any address */
	VIEW_GROUP,     /* a process, thread or name, above the roots */
};

/* A function: equal name, source file, module and kind. A function whose lines come from several
 * files (an included body) has the file where it begins. Texts are the resolver's; a group's name
 * is the view's own copy. */
struct view_func {
	const char *name;   /* any bytes */
	const char *file;   /* NULL = unknown */
	const char *module; /* "" = none */
	enum view_kind kind;
	uint32_t flags; /* SP_NAME_* */
	bool by_line;   /* one line of a function; the name, with that line, is the view's own */
};

/* One level of a frame: frames with inlined functions have several. */
struct view_level {
	uint32_t func, place; /* place: in places[], 0 = unknown */
	bool inlined;
};

struct view_place {
	const char *file; /* NULL = unknown */
	uint32_t line;    /* 0 = unknown */
};

struct view_frame {
	struct sp_spool_frame f; /* as first seen */
	int32_t pid;
	uint64_t time_ns; /* of that: code of JITs may be replaced */
	uint32_t level_at, n_levels; /* in levels[], innermost first; set by view_resolve */
	uint64_t function_offset;
	enum sp_origin origin;
};

struct view_stack {
	size_t at;  /* in stack_frames[], leaf first */
	uint32_t n; /* frames */
};

struct view_task { /* a thread, as long as it had one name */
	int32_t pid, tid;
	uint32_t thread;  /* of the spool */
	const char *comm; /* any bytes */
};

/* Tasks that the format and --group do not tell apart share rows: the first of them stands for all
 * (struct view_format: by_task, by_name). */
struct view_row {
	uint32_t stack, task, event, wait; /* wait: sp_spool_wait's, 0 = not known */
	uint64_t n, weight; /* n is 0 when a filter took the row away: skip it */
};

struct view_sample {
	uint64_t time_ns, weight;
	uint64_t seq; /* its number in the whole spool, from 0 */
	uint32_t row, cpu;
	uint32_t lane; /* tells its task: the row's may be another */
};

/* Samples that are read before their turn: what each will touch in the large tables is under way
 * to the cache by then. */
#define VIEW_AHEAD 32u

struct view_ahead {
	struct view_item {
		struct sp_spool_sample s; /* but for the comm, which is in the task */
		uint64_t seq, key;        /* key: of the tally */
		uint32_t task, lane, shared; /* as in struct view_last */
		uint32_t epoch; /* of the process's own code: sp_resolver_epoch */
		uint32_t row;   /* set half-way, when known by then; else SP_NONE */
	} v[VIEW_AHEAD];
	uint64_t in, out; /* items that came and went, modulo VIEW_AHEAD */
	uint64_t half;    /* items whose row was looked for */
	bool ended;
};

#define VIEW_RECENT 1024u

struct view {
	struct sp_spool *spool;         /* borrowed */
	const struct view_options *opt; /* borrowed */
	struct sp_resolver *resolver;   /* owned */
	struct view *before;            /* borrowed: what diff compares with, or NULL */

	struct view_row *rows; /* owned, as all below */
	size_t n_rows, rows_cap;
	bool apart; /* samples of several events are shown */
	struct view_rest {
		struct view_row *rows; /* NULL, or all rows while those of one event are alone */
		size_t n_rows;
		uint8_t *event_shown;
		uint64_t n_samples, weight;
	} rest;
	struct view_task *tasks;
	size_t n_tasks, tasks_cap;
	struct view_stack *stacks;
	size_t n_stacks, stacks_cap;
	uint32_t *stack_frames; /* indexes of frames[] */
	size_t n_stack_frames, stack_frames_cap;
	struct view_frame *frames;
	size_t n_frames, frames_cap;
	struct view_level *levels;
	size_t n_levels, levels_cap;
	struct view_place *places; /* the first one is unknown */
	size_t n_places, places_cap;
	struct view_func *funcs;
	size_t n_funcs, funcs_cap;
	uint32_t special[8]; /* level of VIEW_TRUNCATED and VIEW_NO_STACK, by kind */
	size_t max_levels;   /* the longest stack's, with inlined ones */

	uint64_t n_read, n_again;   /* samples read from the spool, by load and by next */
	struct view_ahead ahead;
	uint64_t n_samples, weight; /* shown: of all rows */
	uint64_t first_ns, last_ns; /* of the samples that passed the sample filters */
	struct {
		const void *base;
		size_t size;
	} by_stack; /* borrowed: what a format looks up for each sample, by its stack; or NULL */
	bool by_weight;             /* what counts; see view_value */
	const char *note;           /* what a format has to say about its output, or NULL */

	struct sp_map64 epoch_lanes; /* lane and epoch: a number */
	uint32_t *shared; /* owned: by the spool's frame, index in frames + 1; 0 = not there yet */
	size_t shared_cap;
	struct sp_map64 stack_ids, frame_ids, task_ids, alike_ids, lane_ids, wait_lanes, row_ids,
		stack_hashes;
	struct tally seen;         /* by the spool's stack and the lane that has the rows */
	struct sp_map64 place_ids; /* by number of the file and line */
	struct sp_intern comms, func_keys, file_names;
	struct sp_buf func_key; /* the one that is looked for */
	uint32_t recent_funcs[VIEW_RECENT]; /* by the name's address */
	struct view_lane {
		uint32_t task, event, wait;
		uint32_t shared; /* the lane whose rows it shares; itself, when it has its own */
		uint64_t n;      /* samples; see view_count_lanes */
	} * lanes;
	size_t n_lanes, lanes_cap;
	struct view_last {
		const char *comm; /* the spool's own text, which it keeps: the same one is equal */
		uint32_t task, event, wait, lane, shared;
		bool epochs; /* sp_resolver_has_epochs */
	} * last; /* by the spool's thread: what it last was; task may be SP_NONE */
	size_t n_last;
	uint32_t *pid_index; /* by spool thread */
	uint8_t *event_shown;
};

/* view_deinit is due whatever these return. */
int view_init(struct view *v, struct sp_spool *spool, const struct view_options *opt,
	      struct sp_err *err);
int view_load(struct view *v, struct sp_err *err);
int view_resolve(struct view *v, struct sp_err *err);
int view_shape(struct view *v, struct sp_err *err);
int view_prune(struct view *v, struct sp_err *err);
void view_deinit(struct view *v);

/* Each shown sample again, in time order: 1 and *out, 0 at the end. */
void view_rewind(struct view *v);
int view_next(struct view *v, struct view_sample *out, struct sp_err *err);

/* The lanes' counts are of the samples that were read; from here on of those that are shown, after
 * view_shape. (read.c) */
int view_count_lanes(struct view *v, struct sp_err *err);

/* The levels of a stack, leaf first, into out[v->max_levels]: indexes of levels[]. Never none: a
 * stack without frames has the level of VIEW_NO_STACK. */
size_t view_stack_levels(const struct view *v, uint32_t stack, uint32_t *out);

/* The function of that description (added when new); SP_NOT_FOUND when memory ends. */
uint32_t view_func_add(struct view *v, const struct view_func *f);

static inline const struct view_func *view_level_func(const struct view *v, uint32_t level)
{
	return &v->funcs[v->levels[level].func];
}

static inline const struct view_place *view_level_place(const struct view *v, uint32_t level)
{
	return &v->places[v->levels[level].place];
}

/* What a row counts: samples, or weight with --weight. */
static inline uint64_t view_value(const struct view *v, const struct view_row *r)
{
	return v->by_weight ? r->weight : r->n;
}

/* The sum of that. */
static inline uint64_t view_total(const struct view *v)
{
	return v->by_weight ? v->weight : v->n_samples;
}

static inline double view_percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* Events count different things: a view of several shows them apart. (apart.c)
 * From view_only on the view is as if it had the samples of that event alone (its rows and sums:
 * not view_next), until view_all. SP_NONE is an event that has no samples. */
int view_only(struct view *v, uint32_t event, struct sp_err *err);
void view_all(struct view *v);
/* The next event from *event on that has shown samples. */
bool view_next_event(const struct view *v, uint32_t *event);
/* Counts what --weight says, else what fits the events and the format. */
void view_choose_weight(struct view *v);
/* The event's weight is the time off CPU: it says more than the number of its samples. */
bool view_is_offcpu(const struct sp_spool_event *e);
/* --lines: levels of different lines get functions of their own, "name:12", or "name:file.h:12" in
 * another file than the function's. (resolve.c) */
int view_by_line(struct view *v, struct sp_err *err);

/* All weights are times in ns (and there is at least one event). */
bool view_weight_is_time(const struct view *v);

/* The spool's module of a frame, or NULL. */
static inline const struct sp_spool_module *view_module(const struct view *v,
							const struct sp_spool_frame *f)
{
	return f->module == SP_NONE ? NULL : sp_spool_module(v->spool, f->module);
}

/* Wall clock ns of a time on the samples' clock; 0 = the spool does not tell. */
static inline uint64_t view_wall_ns(const struct view *v, uint64_t time_ns)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	if (info->wall_ns)
		return info->wall_ns + (time_ns - info->clock_ns);
	return info->start_timestamp_us ? sp_spool_timestamp_us(v->spool, time_ns) * 1000 : 0;
}

/* Does this sample pass --time, --pid, --tid, --comm and --event? (filter.c) */
bool view_sample_passes(const struct view *v, const struct sp_spool_sample *s);
/* TEXT of a filter against a name: a part of it, or a pattern of all of it with * and ?. */
bool view_match(const char *pattern, const char *name);

/* Base name of a path. */
const char *view_base(const char *path);

/* The formats: each writes the whole view. */
struct view_format {
	const char *name;
	int (*write)(struct view *v, struct out *o, struct sp_err *err);
	bool no_names;   /* needs only the spool: v->spool and v->opt are set, nothing is loaded */
	bool whole_only; /* takes no filter */
	bool reverse;    /* knows --reverse */
	bool stacks;     /* wants view_prune */
	bool lines;      /* knows --lines */
	bool bare;       /* shows neither files nor lines but with --lines */
	bool by_event;   /* is written for each event of its own */
	bool people;     /* counts time rather than samples where events are mixed */
	bool by_task;    /* wants rows of each task */
	bool by_name;    /* groups by name where --group does not say */
	bool scratch;    /* puts samples aside */
	bool says_tasks; /* tells how many threads are shown: the lanes' counts must be right */
};
extern const struct view_format view_formats[];
const struct view_format *view_format_find(const char *name);

#endif
