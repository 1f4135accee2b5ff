/* flamegraph: one HTML file that needs nothing else. Without scripts it shows an SVG picture of
 * what is wide enough; the script draws the same from the data below it, with zoom, search and
 * grouping. */
#include <stdio.h>
#include <stdlib.h>

#include "base/counters.h"
#include "counts.h"
#include "formats.h"
#include "term.h"
#include "tree.h"

#define CHART_WIDTH 1200
#define ROW_HEIGHT 18
#define CHAR_WIDTH 6.95
#define STATIC_PERCENT 0.25 /* of the picture without scripts: 3 pixels of 1200 */
#define MAX_NODES 300000u   /* in the data: more make a browser slow */

/* The style and the script as they are in the files beside this one. */
#define EMBED(name, file)                                                                          \
	__asm__(".pushsection .rodata\n" #name ":\n.incbin \"sp-sym/" file "\"\n.byte 0\n"         \
		".popsection\n");                                                                  \
	extern const char name[] __attribute__((visibility("hidden")))

EMBED(flamegraph_css, "flamegraph.css");
EMBED(flamegraph_js, "flamegraph.js");

static const char *const kind_names[] = {
	[VIEW_NATIVE] = "native",     [VIEW_PYTHON] = "Python",   [VIEW_JIT] = "JIT",
	[VIEW_KERNEL] = "kernel",     [VIEW_ADDRESS] = "no name", [VIEW_TRUNCATED] = "cut stack",
	[VIEW_NO_STACK] = "no stack", [VIEW_GROUP] = "group",
};

struct colour {
	double hue, spread, saturation, lightness;
};

static const struct colour kind_colours[] = {
	[VIEW_NATIVE] = {34, 22, 0.88, 0.66},  [VIEW_PYTHON] = {125, 24, 0.42, 0.66},
	[VIEW_JIT] = {172, 16, 0.45, 0.62},    [VIEW_KERNEL] = {215, 20, 0.62, 0.74},
	[VIEW_ADDRESS] = {40, 6, 0.08, 0.74},  [VIEW_TRUNCATED] = {40, 0, 0.15, 0.78},
	[VIEW_NO_STACK] = {40, 0, 0.05, 0.82}, [VIEW_GROUP] = {92, 4, 0.12, 0.72},
};

/* One of red (n = 0), green (8) and blue (4) of a hue, as CSS Color 4 defines hsl(). */
static double channel(double n, const struct colour *c)
{
	double k = n + c->hue / 30;
	k = k >= 12 ? k - 12 : k;
	double least = k - 3 < 9 - k ? k - 3 : 9 - k;
	least = least > 1 ? 1 : least < -1 ? -1 : least;
	double other = 1 - c->lightness;
	return c->lightness - c->saturation * (c->lightness < other ? c->lightness : other) * least;
}

static void colour_hex(char buf[8], const struct colour *c)
{
	snprintf(buf, 8, "#%02x%02x%02x", (unsigned)(255 * channel(0, c) + 0.5) & 0xff,
		 (unsigned)(255 * channel(8, c) + 0.5) & 0xff,
		 (unsigned)(255 * channel(4, c) + 0.5) & 0xff);
}

/* A colour by kind, with a shade by name (FNV-1a, so that it is the same in every profile). Inlined
 * functions are paler. */
static void colour_text(char buf[8], const struct view_func *f, bool inlined)
{
	uint32_t h = 2166136261u;
	for (const char *p = f->name; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	h ^= h >> 15;
	struct colour c = kind_colours[f->kind];
	c.hue += c.spread * ((double)(h % 101) / 50 - 1);
	c.lightness += 0.05 * ((double)(h / 101 % 101) / 50 - 1) + (inlined ? 0.1 : 0);
	colour_hex(buf, &c);
}

static const char *unit(const struct view *v)
{
	return !v->by_weight ? "samples" : view_weight_is_time(v) ? "ns" : "weight";
}

/* A name in at most `columns` columns, as XML: C++ names lose the insides of their brackets, then
 * all lose their end. */
static void write_label(struct out *o, const char *name, size_t columns)
{
	struct sp_buf b = {0};
	uint32_t c;
	out_text_buf(&b, name, strlen(name), 0);
	if (term_columns_n((const char *)b.data, b.len) > columns)
		term_elide(&b, columns);
	bool cut = term_columns_n((const char *)b.data, b.len) > columns;
	size_t i = 0;
	while (cut && i < b.len && term_columns_n((const char *)b.data, i) + 2 <= columns)
		i += out_utf8((const char *)b.data + i, b.len - i, &c);
	b.len = cut ? i : b.len;
	sp_buf_u8(&b, 0);
	if (!b.failed)
		out_xml(o, (const char *)b.data);
	o->buf.failed |= b.failed;
	sp_buf_deinit(&b);
	if (cut)
		out_str(o, "…");
}

static void write_rect(const struct view *v, struct out *o, const struct tree_node *n, double x,
		       double width, uint64_t all)
{
	const struct view_func *f = n->depth ? &v->funcs[n->func] : NULL;
	const char *name = !f ? "all" : *f->name ? f->name : "?";
	char colour[8] = "#c9c2b4";
	if (f)
		colour_text(colour, f, n->inlined);
	out_str(o, n->inlined ? "<g class=\"inl\"><title>" : "<g><title>");
	out_xml(o, name);
	if (f && *f->module) {
		out_str(o, " (");
		out_xml(o, f->module);
		out_char(o, ')');
	}
	out_printf(o,
		   ": %llu %s, %.2f %%</title><rect x=\"%.2f\" y=\"%u.5\" width=\"%.2f\" "
		   "height=\"%u\" rx=\"1.5\" fill=\"%s\"/>",
		   (unsigned long long)n->total, unit(v), view_percent(n->total, all), x,
		   n->depth * ROW_HEIGHT, width, ROW_HEIGHT - 1,
		   f && f->kind == VIEW_TRUNCATED ? "url(#cut)" : colour);
	double room = (width - 7) / CHAR_WIDTH;
	if (room >= 2) {
		out_printf(o, "<text x=\"%.2f\" y=\"%u\">", x + 4, n->depth * ROW_HEIGHT + 13);
		write_label(o, name, (size_t)room);
		out_str(o, "</text>");
	}
	out_str(o, "</g>\n");
}

/* Depth-first; x[depth] is where the next node of that depth begins. */
static int write_svg(struct view *v, struct out *o, struct sp_err *err)
{
	struct tree t;
	struct sp_buf places = {0};
	enum view_group group = v->opt->group == GROUP_DEFAULT ? GROUP_COMM : v->opt->group;
	int r = tree_build(&t, v, group, err);
	if (r < 0)
		return r;
	uint64_t all = t.nodes[TREE_ROOT].total;
	tree_prune(&t, (uint64_t)((double)all * STATIC_PERCENT / 100), 0);
	if (v->opt->reverse)
		tree_prune_by_options(&t, v, 0);
	r = tree_sort(&t, v, false, err);
	double *x = (double *)(void *)sp_buf_zero(&places, (t.max_depth + 2) * sizeof *x);
	if (r >= 0 && !x)
		r = sp_err_nomem(err);
	if (r >= 0) {
		out_printf(o,
			   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" "
			   "font-family=\"monospace\" font-size=\"11.5\">\n",
			   CHART_WIDTH, (t.max_depth + 1) * ROW_HEIGHT);
		out_str(o,
			"<defs><pattern id=\"cut\" width=\"6\" height=\"6\" "
			"patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
			"<rect width=\"6\" height=\"6\" fill=\"#d8d2c5\"/>"
			"<rect width=\"2.5\" height=\"6\" fill=\"#a59d8c\"/></pattern></defs>\n");
		for (uint32_t i = TREE_ROOT; i != TREE_NONE; i = tree_next(&t, i)) {
			const struct tree_node *n = &t.nodes[i];
			double width =
				all ? (double)n->total * CHART_WIDTH / (double)all : CHART_WIDTH;
			write_rect(v, o, n, x[n->depth], width, all);
			x[n->depth + 1] = x[n->depth];
			x[n->depth] += width;
		}
		out_str(o, "</svg>");
	}
	sp_buf_deinit(&places);
	tree_deinit(&t);
	return r;
}

static void write_funcs(struct view *v, struct out *o)
{
	struct sp_intern strings = {0};
	struct sp_buf ids = {0};
	for (size_t i = 0; i < v->n_funcs; i++) {
		const struct view_func *f = &v->funcs[i];
		const char *three[] = {*f->name ? f->name : "?", f->module, f->file ? f->file : ""};
		for (size_t j = 0; j < 3; j++)
			sp_buf_u32(&ids, sp_intern_add(&strings, three[j], strlen(three[j]), NULL));
	}
	if (ids.failed || strings.bytes.failed) {
		o->buf.failed = true;
		goto out;
	}
	out_str(o, "\"strings\":[");
	for (size_t i = 0; i < strings.n; i++) {
		out_str(o, i ? ",\n" : "\n");
		out_json(o, sp_intern_get(&strings, (uint32_t)i, NULL));
	}
	out_str(o, "],\n\"funcs\":[");
	for (size_t i = 0; i < v->n_funcs; i++) {
		uint32_t id[3];
		char plain[8], pale[8];
		memcpy(id, ids.data + i * sizeof id, sizeof id);
		colour_text(plain, &v->funcs[i], false);
		colour_text(pale, &v->funcs[i], true);
		out_printf(o, "%s[%u,%u,%u,%d,\"%s\",\"%s\"]", i ? ",\n" : "\n", id[0], id[1],
			   id[2], (int)v->funcs[i].kind, plain, pale);
	}
	out_str(o, "]");
out:
	sp_intern_deinit(&strings);
	sp_buf_deinit(&ids);
}

/* Groups that threads do not tell: the tree is made by them, and the browser can only leave them out. */
static bool is_fixed(enum view_group group)
{
	return group >= GROUP_CONTAINER;
}

static void write_labels(struct view *v, struct out *o, const struct tree *t)
{
	out_str(o, "\"threads\":[");
	bool first = true;
	for (uint32_t c = t->nodes[TREE_ROOT].child; c != TREE_NONE; c = t->nodes[c].next) {
		out_str(o, first ? "\n{\"label\":" : ",\n{\"label\":");
		first = false;
		out_json(o, v->funcs[t->nodes[c].func].name);
		out_char(o, '}');
	}
	out_str(o, "],\n");
}

/* Threads in the order of the tree's first level: the group node's name leads to its task. */
static void write_threads(struct view *v, struct out *o, const struct tree *t,
			  const uint32_t *process)
{
	out_str(o, "\"threads\":[");
	bool first = true;
	for (uint32_t c = t->nodes[TREE_ROOT].child; c != TREE_NONE; c = t->nodes[c].next) {
		const char *name = v->funcs[t->nodes[c].func].name;
		size_t i = 0;
		while (i + 1 < v->n_tasks &&
		       strcmp(t->groups.names[t->groups.of_task[i]], name) != 0)
			i++;
		const struct view_task *task = &v->tasks[i];
		const char *process_comm = v->tasks[process[i]].comm;
		out_printf(o, "%s{\"pid\":%d,\"tid\":%d,\"comm\":", first ? "\n" : ",\n", task->pid,
			   task->tid);
		first = false;
		out_json(o, *task->comm ? task->comm : "?");
		out_str(o, ",\"process\":");
		out_json(o, *process_comm ? process_comm : "?");
		out_char(o, '}');
	}
	out_str(o, "],\n");
}

static void write_nodes(struct out *o, const struct tree *t)
{
	out_str(o, "\"nodes\":[");
	size_t k = 0;
	for (uint32_t i = tree_next(t, TREE_ROOT); i != TREE_NONE; i = tree_next(t, i), k++) {
		const struct tree_node *n = &t->nodes[i];
		out_str(o, k ? (k & 15 ? "," : ",\n") : "\n");
		out_u64(o, n->depth);
		out_char(o, ',');
		out_u64(o, (uint64_t)n->func << 1 | n->inlined);
		out_char(o, ',');
		out_u64(o, n->total);
	}
	out_char(o, ']');
}

/* Too many nodes for a browser: the smallest leave, at a threshold that is raised until it does. */
static void limit_nodes(struct tree *t)
{
	size_t left = t->n;
	for (uint64_t least = 2; left > MAX_NODES && least < t->nodes[TREE_ROOT].total; least *= 2)
		left = tree_prune(t, least, 0);
}

/* The tree of one event, or of all that is shown. */
static int write_event(struct view *v, struct out *o, const char *name, struct sp_err *err)
{
	struct tree t;
	bool fixed = is_fixed(v->opt->group);
	int r = tree_build(&t, v, fixed ? v->opt->group : GROUP_THREAD, err);
	if (r < 0)
		return r;
	if (v->opt->reverse)
		tree_prune_by_options(&t, v, 0);
	limit_nodes(&t);
	r = tree_sort(&t, v, false, err);
	uint32_t *process = r < 0 ? NULL : groups_process_tasks(v, err);
	if (process) {
		out_str(o, "{\"name\":");
		out_json(o, name);
		out_printf(o, ",\"unit\":\"%s\",\"total\":%llu,\n", unit(v),
			   (unsigned long long)t.nodes[TREE_ROOT].total);
		if (fixed)
			write_labels(v, o, &t);
		else
			write_threads(v, o, &t, process);
		write_nodes(o, &t);
		out_char(o, '}');
	} else if (r >= 0) {
		r = SP_ERR_NOMEM;
	}
	free(process);
	tree_deinit(&t);
	return r;
}

static int write_events(struct view *v, struct out *o, struct sp_err *err)
{
	int r = 0;
	size_t n = 0;
	out_str(o, "\"events\":[");
	if (!v->apart)
		r = write_event(v, o, "", err);
	for (uint32_t e = 0; v->apart && r >= 0 && view_next_event(v, &e); e++) {
		out_str(o, n++ ? ",\n" : "");
		r = view_only(v, e, err);
		if (r >= 0)
			r = write_event(v, o, sp_spool_event(v->spool, e)->name, err);
	}
	view_all(v);
	out_str(o, "],\n");
	return r;
}

static const char *const group_names[] = {
	[GROUP_DEFAULT] = "comm",	  [GROUP_NONE] = "none",   [GROUP_PROCESS] = "process",
	[GROUP_THREAD] = "thread",	  [GROUP_COMM] = "comm",   [GROUP_POOL] = "pool",
	[GROUP_CONTAINER] = "container", [GROUP_STATE] = "state", [GROUP_WAKER] = "waker",
};

static int write_data(struct view *v, struct out *o, struct sp_err *err)
{
	o->in_html = true;
	out_printf(o, "{\"group\":\"%s\",\"kinds\":[", group_names[v->opt->group]);
	for (size_t i = 0; i < sizeof kind_names / sizeof *kind_names; i++)
		out_printf(o, "%s\"%s\"", i ? "," : "", kind_names[i]);
	out_str(o, "],\n");
	int r = write_events(v, o, err);
	write_funcs(v, o); /* with the groups that the trees have added */
	out_char(o, '}');
	o->in_html = false;
	return r;
}

static void write_about(struct view *v, struct out *o)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	const struct sp_counters *c = sp_spool_counters(v->spool);
	struct count_summary s = counts_summary(v);
	size_t n = 0;
	out_printf(o, "<span class=\"about\">%llu samples of ", (unsigned long long)v->n_samples);
	for (size_t i = 0; i < sp_spool_n_events(v->spool); i++) {
		if (!v->event_shown[i])
			continue;
		out_str(o, n++ ? ", " : "");
		out_xml(o, sp_spool_event(v->spool, (uint32_t)i)->name);
	}
	out_printf(o, " · %zu process%s, %zu thread%s · %.1f s", s.n_processes,
		   s.n_processes == 1 ? "" : "es", s.n_threads, s.n_threads == 1 ? "" : "s",
		   (double)(v->last_ns - v->first_ns) / 1e9);
	if (info->hostname && *info->hostname) {
		out_str(o, " · ");
		out_xml(o, info->hostname);
	}
	if (s.n_truncated)
		out_printf(o, " · %.1f %% of the stacks are cut",
			   view_percent(s.n_truncated, v->n_samples));
	if (c && c->v[SP_C_lost_events])
		out_printf(o, " · <span class=\"warn\">%llu lost</span>",
			   (unsigned long long)c->v[SP_C_lost_events]);
	if (!v->n_samples)
		out_str(o, " · <span class=\"warn\">nothing to show</span>");
	out_str(o, "</span>");
}

static void write_tools(const struct view *v, struct out *o)
{
	static const enum view_kind shown[] = {VIEW_NATIVE, VIEW_KERNEL, VIEW_PYTHON, VIEW_JIT,
					       VIEW_ADDRESS};
	out_str(o,
		"\n<div class=\"tools scripted\">"
		"<input type=\"search\" id=\"search\" placeholder=\"Search (regular expression)\" "
		"aria-label=\"Search\" spellcheck=\"false\"><span class=\"hits\" "
		"id=\"hits\"></span>");
	if (v->apart)
		out_str(o, "<label>event <select id=\"event\"></select></label>");
	out_str(o, "<label>by <select id=\"group\">");
	if (is_fixed(v->opt->group))
		out_printf(o, "<option>%s</option>", group_names[v->opt->group]);
	else
		out_str(o, "<option value=\"comm\">name</option>"
			   "<option value=\"process\">process</option>"
			   "<option value=\"thread\">thread</option>"
			   "<option value=\"pool\">pool</option>");
	out_str(o,
		"<option value=\"none\">nothing</option></select></label><button id=\"turn\">Flame</button>"
		"<button id=\"reset\">Whole profile</button><span class=\"legend\">");
	for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
		char colour[8];
		colour_hex(colour, &kind_colours[shown[i]]);
		out_printf(o, "<span><i style=\"background:%s\"></i>%s</span>", colour,
			   kind_names[shown[i]]);
	}
	out_str(o,
		"<span><i style=\"background:repeating-linear-gradient(45deg,#d8d2c5 0 3px,#a59d8c "
		"3px 5px)\"></i>cut</span><span><em>italic</em> inlined</span></span></div>");
}

int format_flamegraph(struct view *v, struct out *o, struct sp_err *err)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	const char *title = info->cmdline && *info->cmdline ? info->cmdline : "Flame graph";
	out_str(o, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		   "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
		   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		   "<meta name=\"generator\" content=\"sp-sym\">\n<title>");
	out_xml(o, title);
	out_str(o, "</title>\n<style>\n");
	out_str(o, flamegraph_css);
	out_str(o, "</style>\n</head>\n<body>\n<header><h1>");
	out_xml(o, title);
	out_str(o, "</h1>");
	write_about(v, o);
	write_tools(v, o);
	out_str(o, "</header>\n<main id=\"chart\" tabindex=\"0\">\n");
	uint32_t first = 0;
	int r = v->apart && view_next_event(v, &first) ? view_only(v, first, err) : 0;
	if (r >= 0)
		r = write_svg(v, o, err);
	view_all(v);
	if (r < 0)
		return r;
	out_str(o, "\n</main>\n<footer id=\"detail\" class=\"scripted\">"
		   "</footer>\n<script type=\"application/json\" id=\"data\">\n");
	r = write_data(v, o, err);
	if (r < 0)
		return r;
	out_str(o, "\n</script>\n<script>\n");
	out_str(o, flamegraph_js);
	out_str(o, "</script>\n</body>\n</html>\n");
	return 0;
}
