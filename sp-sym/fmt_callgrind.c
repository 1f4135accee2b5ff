/* callgrind: for kcachegrind, qcachegrind and callgrind_annotate (Valgrind's "Callgrind Format
 * Specification", version 1). Samples are no calls: `calls=` holds the samples that passed through
 * a call. Its readers take the sum of the calls of a function for its inclusive cost; so that it is
 * one, a stack adds to the call of each function's outermost frame only, and a function named after
 * the thread calls the outermost of all. */
#include <stdlib.h>

#include "formats.h"
#include "group.h"

/* Own costs by line, and costs of calls by line and callee; all in lists per function. */
struct entry {
	uint32_t func, place, callee; /* callee SP_NONE: own cost */
	uint32_t costs;               /* in costs[], n_costs of them */
};

struct callgrind {
	struct view *v;
	struct out *o;
	struct entry *entries; /* owned */
	size_t n, cap;
	/* Samples, then the weight; of each event its own when there are several. */
	uint64_t *costs; /* owned */
	size_t n_costs, costs_cap;
	uint32_t *column; /* owned; by event: its weight's */
	struct sp_map64 callers, ids; /* (func, place) to a number; (number, callee) to the entry */
	struct sp_map64 named[2];     /* by string id: its name was written as ob, as fl */
	struct sp_intern strings;
	uint8_t *fn_named; /* owned; by function: its name was written */
	size_t *stamps;    /* owned; by function: the row that counted it last, + 1 */
};

static struct entry *entry_of(struct callgrind *c, uint32_t func, uint32_t place, uint32_t callee)
{
	uint64_t key = (uint64_t)func << 32 | place;
	uint32_t caller = sp_map64_get(&c->callers, key);
	if (caller == SP_NOT_FOUND) {
		caller = c->callers.n;
		if (!sp_map64_put(&c->callers, key, caller))
			return NULL;
	}
	key = (uint64_t)caller << 32 | callee;
	uint32_t id = sp_map64_get(&c->ids, key);
	if (id != SP_NOT_FOUND)
		return &c->entries[id];
	struct entry *e = SP_PUSH(&c->entries, &c->n, &c->cap);
	if (!e || !sp_map64_put(&c->ids, key, (uint32_t)c->n - 1))
		return NULL;
	size_t at = (c->n - 1) * c->n_costs;
	if (!sp_grow(&c->costs, &c->costs_cap, at + c->n_costs, sizeof *c->costs) ||
	    at > UINT32_MAX)
		return NULL;
	memset(c->costs + at, 0, c->n_costs * sizeof *c->costs);
	*e = (struct entry){func, place, callee, (uint32_t)at};
	return e;
}

static bool add_cost(struct callgrind *c, const struct view_row *row, uint32_t func, uint32_t place,
		     uint32_t callee)
{
	struct entry *e = entry_of(c, func, place, callee);
	if (!e)
		return false;
	c->costs[e->costs] += row->n;
	c->costs[e->costs + c->column[row->event]] += row->weight;
	return true;
}

static bool add_row(struct callgrind *c, size_t row_index, uint32_t root, uint32_t *levels)
{
	const struct view *v = c->v;
	const struct view_row *row = &v->rows[row_index];
	struct view_level caller = {.func = root};
	for (size_t i = view_stack_levels(v, row->stack, levels); i-- > 0;) {
		const struct view_level *l = &v->levels[levels[i]];
		bool first = c->stamps[l->func] != row_index + 1;
		c->stamps[l->func] = row_index + 1;
		if (first && !add_cost(c, row, caller.func, caller.place, l->func))
			return false;
		caller = *l;
	}
	return add_cost(c, row, caller.func, caller.place, SP_NONE);
}

/* "ob=(3) name" the first time, "ob=(3)" then. */
static void write_name(struct callgrind *c, const char *key, size_t table, const char *name)
{
	bool is_new;
	uint32_t id = sp_intern_add(&c->strings, name, strlen(name), &is_new);
	bool known = sp_map64_get(&c->named[table], id) != SP_NOT_FOUND;
	out_printf(c->o, "%s=(%u)", key, id + 1);
	if (!known) {
		out_char(c->o, ' ');
		out_text(c->o, *name ? name : "???", 0);
		if (!sp_map64_put(&c->named[table], id, 0))
			c->o->buf.failed = true;
	}
	out_char(c->o, '\n');
}

/* Functions have numbers of their own: equal names in other files are other functions. */
static void write_function(struct callgrind *c, const char *key, uint32_t func)
{
	const struct view_func *f = &c->v->funcs[func];
	out_printf(c->o, "%s=(%u)", key, func + 1);
	if (!c->fn_named[func]) {
		out_char(c->o, ' ');
		out_text(c->o, *f->name ? f->name : "?", 0);
		c->fn_named[func] = 1;
	}
	out_char(c->o, '\n');
}

static void write_cost(struct callgrind *c, const struct entry *e)
{
	out_u64(c->o, c->v->places[e->place].line);
	for (size_t i = 0; i < c->n_costs; i++) {
		out_char(c->o, ' ');
		out_u64(c->o, c->costs[e->costs + i]);
	}
	out_char(c->o, '\n');
}

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	if (x->func != y->func)
		return x->func < y->func ? -1 : 1;
	if ((x->callee == SP_NONE) != (y->callee == SP_NONE))
		return x->callee == SP_NONE ? -1 : 1;
	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	return (x->callee > y->callee) - (x->callee < y->callee);
}

/* A line in another file than its function's is announced by fi=, and the way back by fe=. */
static const char *write_file(struct callgrind *c, const struct entry *e, const char *now)
{
	const struct view_func *f = &c->v->funcs[e->func];
	const char *own = f->file ? f->file : "???", *file = c->v->places[e->place].file;
	file = file ? file : own;
	if (strcmp(file, now) != 0)
		write_name(c, strcmp(file, own) != 0 ? "fi" : "fe", 1, file);
	return file;
}

static void write_entries(struct callgrind *c)
{
	const char *now = "";
	for (size_t i = 0; i < c->n; i++) {
		const struct entry *e = &c->entries[i];
		const struct view_func *f = &c->v->funcs[e->func];
		if (!i || e->func != c->entries[i - 1].func) {
			out_char(c->o, '\n');
			now = f->file ? f->file : "???";
			write_name(c, "ob", 0, f->module);
			write_name(c, "fl", 1, now);
			write_function(c, "fn", e->func);
		}
		now = write_file(c, e, now);
		if (e->callee != SP_NONE) {
			const struct view_func *callee = &c->v->funcs[e->callee];
			write_name(c, "cob", 0, callee->module);
			write_name(c, "cfi", 1, callee->file ? callee->file : "???");
			write_function(c, "cfn", e->callee);
			out_printf(c->o, "calls=%llu 0\n", (unsigned long long)c->costs[e->costs]);
		}
		write_cost(c, e);
	}
}

/* Names of events are words of letters, digits and underscores there. */
static void write_event_name(struct out *o, uint32_t event, const char *name)
{
	out_printf(o, "E%u_", event);
	for (; *name; name++) {
		bool word = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
			    (*name >= '0' && *name <= '9');
		out_char(o, word ? *name : '_');
	}
}

static void write_event_names(struct callgrind *c)
{
	const struct view *v = c->v;
	for (uint32_t e = 0; view_next_event(v, &e); e++) {
		const struct sp_spool_event *event = sp_spool_event(v->spool, e);
		out_str(c->o, "event: ");
		write_event_name(c->o, e, event->name);
		out_str(c->o, " : ");
		out_text(c->o, event->name, 0);
		out_str(c->o, event->weight_is_time ? ", nanoseconds\n" : "\n");
	}
	out_str(c->o, "events: Samples");
	for (uint32_t e = 0; view_next_event(v, &e); e++) {
		out_char(c->o, ' ');
		write_event_name(c->o, e, sp_spool_event(v->spool, e)->name);
	}
	out_char(c->o, '\n');
}

static void write_head(struct callgrind *c)
{
	struct view *v = c->v;
	const char *cmd = sp_spool_info(v->spool)->cmdline;
	out_str(c->o, "# callgrind format\nversion: 1\ncreator: sp-sym\npositions: line\n");
	if (cmd && *cmd) {
		out_str(c->o, "cmd: ");
		out_text(c->o, cmd, 0);
		out_char(c->o, '\n');
	}
	out_str(c->o, "event: Samples : samples\n");
	if (v->apart)
		write_event_names(c);
	else
		out_printf(c->o, "event: Weight : %s\nevents: Samples Weight\n",
			   view_weight_is_time(v) ? "nanoseconds" : "weight of the events");
	out_str(c->o, "summary:");
	for (size_t i = 0; i < c->n_costs; i++) {
		uint64_t sum = 0;
		for (size_t j = 0; j < c->n; j++)
			if (c->entries[j].callee == SP_NONE)
				sum += c->costs[c->entries[j].costs + i];
		out_char(c->o, ' ');
		out_u64(c->o, sum);
	}
	out_char(c->o, '\n');
}

/* A column for the samples, and one for the weight of each event that is shown apart. */
static bool make_columns(struct callgrind *c)
{
	const struct view *v = c->v;
	c->column = calloc(sp_spool_n_events(v->spool) + 1, sizeof *c->column);
	c->n_costs = 1;
	for (uint32_t e = 0; c->column && view_next_event(v, &e); e++) {
		c->column[e] = v->apart ? (uint32_t)c->n_costs : 1;
		c->n_costs += v->apart || c->n_costs == 1;
	}
	if (c->n_costs == 1)
		c->n_costs = 2;
	return c->column != NULL;
}

/* The function that stands for each group of tasks. */
static uint32_t *add_roots(struct view *v, struct groups *g, struct sp_err *err)
{
	enum view_group how = v->opt->group == GROUP_DEFAULT ? GROUP_COMM : v->opt->group;
	if (groups_init(g, v, how, err) < 0)
		return NULL;
	uint32_t *roots = malloc((g->n + 1) * sizeof *roots);
	for (size_t i = 0; roots && i < g->n; i++) {
		struct view_func f = {.name = *g->names[i] ? g->names[i] : "[all]",
				      .module = "",
				      .kind = VIEW_GROUP};
		roots[i] = view_func_add(v, &f);
		if (roots[i] == SP_NOT_FOUND) {
			free(roots);
			roots = NULL;
		}
	}
	return roots;
}

int format_callgrind(struct view *v, struct out *o, struct sp_err *err)
{
	struct callgrind c = {.v = v, .o = o};
	struct groups groups = {0};
	uint32_t *roots = add_roots(v, &groups, err);
	uint32_t *levels = malloc((v->max_levels + 1) * sizeof *levels);
	c.fn_named = calloc(v->n_funcs + 1, 1);
	c.stamps = calloc(v->n_funcs + 1, sizeof *c.stamps);
	bool ok = roots && levels && c.fn_named && c.stamps && make_columns(&c);
	for (size_t i = 0; ok && i < v->n_rows; i++)
		ok = !v->rows[i].n ||
		     add_row(&c, i, roots[groups_of(&groups, v, i)], levels);
	if (ok) {
		if (c.n)
			qsort(c.entries, c.n, sizeof *c.entries, by_place);
		write_head(&c);
		write_entries(&c);
	}
	free(roots);
	groups_deinit(&groups);
	free(levels);
	free(c.entries);
	free(c.costs);
	free(c.column);
	free(c.fn_named);
	free(c.stamps);
	sp_map64_deinit(&c.callers);
	sp_map64_deinit(&c.ids);
	for (size_t i = 0; i < 2; i++)
		sp_map64_deinit(&c.named[i]);
	sp_intern_deinit(&c.strings);
	return ok ? 0 : sp_err_nomem(err);
}
