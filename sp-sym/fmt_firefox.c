/* firefox: the Firefox profiler's processed format, gzipped JSON. The version that is named below
 * is read by all later ones (their upgraders; firefox-devtools/profiler,
 * docs-developer/CHANGELOG-formats.md). Loading checks little, so indexes are kept in range, a
 * stack's prefix is always an earlier one, and times do not decrease. */
#include <stdlib.h>

#include "build_id.h"
#include "firefox.h"
#include "formats.h"
#include "group.h"

#define PROCESSED_VERSION 48
#define GECKO_VERSION 27

/* Of each thread of the spool, the name that most of its samples have, and how many names it had.
 */
static bool name_threads(struct firefox *w)
{
	const struct view *v = w->v;
	uint64_t *n = calloc(v->n_tasks + 1, sizeof *n);
	w->names = calloc(sp_spool_n_threads(v->spool) + 1, sizeof *w->names);
	for (size_t i = 0; n && i < v->n_lanes; i++)
		n[v->lanes[i].task] += v->lanes[i].n;
	for (size_t i = 0; n && w->names && i < v->n_tasks; i++) {
		struct firefox_names *names = &w->names[v->tasks[i].thread];
		if (!n[i])
			continue;
		if (!names->n++ || n[i] > n[names->task])
			names->task = (uint32_t)i;
	}
	free(n);
	return n && w->names;
}

/* Where events are apart, a thread stands once for each: their names tell them apart, and a tid
 * that is a text (as the format allows) where there would be two of one number. */
static void write_names(const struct view *v, struct out *o, const struct view_task *task,
			const struct sp_spool_event *event, bool again)
{
	struct out name = {.memory = true};
	out_str(&name, *task->comm ? task->comm : "?");
	if (v->apart) {
		out_str(&name, " (");
		out_str(&name, event->name);
		out_char(&name, ')');
	}
	out_char(&name, 0);
	out_json(o, name.buf.failed ? "?" : (const char *)name.buf.data);
	if (again) {
		name.buf.len = 0;
		out_printf(&name, "%d ", task->tid);
		out_str(&name, event->name);
		out_char(&name, 0);
		out_str(o, ",\"tid\":");
		out_json(o, name.buf.failed ? "?" : (const char *)name.buf.data);
	} else {
		out_printf(o, ",\"tid\":%d", task->tid);
	}
	sp_buf_deinit(&name.buf);
}

static void write_thread(struct firefox *w, const struct series *s, size_t list,
			 const uint32_t *process)
{
	struct out *o = w->o;
	const struct view *v = w->v;
	struct firefox_tables t = {0};
	const struct view_lane *lane = &v->lanes[s->lists[list].first.lane];
	const struct firefox_names *names = &w->names[v->tasks[lane->task].thread];
	const struct view_task *task = &v->tasks[names->task];
	const struct view_task *main = &v->tasks[process[task - v->tasks]];
	size_t n_events = v->apart ? sp_spool_n_events(v->spool) : 1;
	bool again = false; /* the thread has an earlier list */
	for (size_t i = list - list % n_events; i < list; i++)
		again |= s->lists[i].n > 0;
	bool first = w->thread++ == 0, is_main = task->tid == task->pid && !again;
	bool first_of_pid = sp_map64_get(&w->pids, (uint32_t)task->pid) == SP_NOT_FOUND;
	w->failed |= !sp_map64_put(&w->pids, (uint32_t)task->pid, 0);
	out_str(o, first ? "\n{\"name\":" : ",\n{\"name\":");
	write_names(v, o, task, sp_spool_event(v->spool, lane->event), again);
	out_str(o, ",\"processName\":");
	out_json(o, *main->comm ? main->comm : "?");
	out_printf(o,
		   ",\"isMainThread\":%s,\"pid\":\"%d\",\"processType\":\"default\","
		   "\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,"
		   "\"unregisterTime\":null,\"pausedRanges\":[],\"showMarkersInTimeline\":true,\n",
		   is_main ? "true" : "false", task->pid);
	firefox_write_samples(w, &t, s, list);
	firefox_write_tables(w, &t);
	firefox_write_markers(w, &t, s, list, first_of_pid, first);
	firefox_write_strings(o, &t);
	out_char(o, '}');
	firefox_tables_deinit(&t);
}

static void write_meta(struct view *v, struct out *o)
{
	const struct sp_spool_info *info = sp_spool_info(v->spool);
	static const char *const categories[][2] = {{"Other", "grey"},
						    {"User", "yellow"},
						    {"Kernel", "orange"},
						    {"Python", "green"},
						    {"JIT", "blue"}};
	uint64_t start_us = info->start_timestamp_us ? sp_spool_timestamp_us(v->spool, v->first_ns)
						     : view_wall_ns(v, v->first_ns) / 1000;
	uint64_t interval_us = info->sample_interval_us ? info->sample_interval_us : 1000;
	out_str(o, "{\"meta\":{\"categories\":[");
	for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
		out_printf(o, "%s{\"name\":\"%s\",\"color\":\"%s\",\"subcategories\":[\"Other\"]}",
			   i ? "," : "", categories[i][0], categories[i][1]);
	out_str(o, "],\"debug\":false,\"extensions\":{\"baseURL\":[],\"id\":[],\"length\":0,"
		   "\"name\":[]},\"interval\":");
	firefox_ms(o, interval_us * 1000);
	out_printf(o,
		   ",\"preprocessedProfileVersion\":%d,\"version\":%d,\"processType\":0,"
		   "\"stackwalk\":1,\"startTime\":%llu.%03llu,\"symbolicated\":true,"
		   "\"usesOnlyOneStackType\":true,\"doesNotUseFrameImplementation\":true,"
		   "\"sourceCodeIsNotOnSearchfox\":true,\"markerSchema\":[],\"importedFrom\":"
		   "\"stackpulse\",\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\","
		   "\"threadCPUDelta\":\"ns\"},\"product\":",
		   PROCESSED_VERSION, GECKO_VERSION, (unsigned long long)(start_us / 1000),
		   (unsigned long long)(start_us % 1000));
	out_json(o, info->cmdline && *info->cmdline ? info->cmdline : "stackpulse");
	out_str(o, ",\"platform\":\"Linux\",\"oscpu\":");
	out_json(o, info->osrelease ? info->osrelease : "");
	out_str(o, "}");
}

/* A debug id as Breakpad makes it of a build-id: its first 16 bytes as a GUID, and an age of 0. */
static void write_breakpad(struct out *o, const struct sp_build_id *id)
{
	static const uint8_t order[16] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
	for (size_t i = 0; i < 16; i++)
		out_printf(o, "%02X", order[i] < id->len ? id->bytes[order[i]] : 0);
	out_char(o, '0');
}

static void write_libs(struct firefox *w)
{
	struct out *o = w->o;
	out_str(o, ",\n\"libs\":[");
	for (size_t i = 0; i < w->n_libs; i++) {
		const struct sp_spool_module *m = sp_spool_module(w->v->spool, w->libs[i]);
		struct sp_build_id id;
		char hex[2 * SP_BUILD_ID_MAX + 1] = "";
		view_build_id(w->v, m, &id);
		sp_build_id_hex(&id, hex);
		out_str(o, i ? ",\n{\"name\":" : "\n{\"name\":");
		out_json(o, view_base(m->path));
		out_str(o, ",\"path\":");
		out_json(o, m->path);
		out_str(o, ",\"debugName\":");
		out_json(o, view_base(m->path));
		out_str(o, ",\"debugPath\":");
		out_json(o, m->path);
		out_str(o, ",\"breakpadId\":\"");
		write_breakpad(o, &id);
		out_printf(o, "\",\"codeId\":%s%s%s,\"arch\":null}", id.len ? "\"" : "",
			   id.len ? hex : "null", id.len ? "\"" : "");
	}
	out_char(o, ']');
}

static bool make_columns(struct firefox *w)
{
	const struct view *v = w->v;
	w->known_stacks = calloc(v->n_stacks + 1, sizeof *w->known_stacks);
	w->known = calloc(v->n_levels + 1, sizeof *w->known);
	w->leaf = calloc(v->n_stacks + 1, sizeof *w->leaf);
	w->path = calloc(v->max_levels + 1, sizeof *w->path);
	return w->known_stacks && w->known && w->leaf && w->path;
}

int format_firefox(struct view *v, struct out *o, struct sp_err *err)
{
	struct firefox w = {.v = v, .o = o, .err = err};
	struct series s = {0};
	uint32_t *process = NULL;
	w.r = out_gzip(o, err);
	if (w.r >= 0)
		w.r = series_init(&s, v, err);
	if (w.r >= 0) {
		process = groups_process_tasks(v, err);
		w.failed = !process || !name_threads(&w) || !make_columns(&w);
	}
	if (w.r >= 0 && !w.failed)
		firefox_make_nodes(&w);
	if (w.r >= 0 && !w.failed) {
		write_meta(v, o);
		out_str(o, ",\n\"pages\":[],\"counters\":[],\"profilerOverhead\":[],\"threads\":[");
		for (size_t i = 0; i < s.n_lists && w.r >= 0 && !w.failed; i++)
			if (s.lists[i].n)
				write_thread(&w, &s, i, process);
		out_char(o, ']');
		write_libs(&w);
		out_str(o, "}\n");
	}
	if (v->n_samples > 10000000)
		v->note = "the Firefox profiler reads files up to about 500 MB unpacked: --time, "
			  "--pid "
			  "or --tid make it shorter";
	free(process);
	free(w.libs);
	free(w.known);
	free(w.nodes);
	free(w.leaf);
	free(w.path);
	free(w.names);
	free(w.known_stacks);
	sp_map64_deinit(&w.lib_ids);
	sp_map64_deinit(&w.pids);
	series_deinit(&s);
	return w.r < 0 ? w.r : w.failed ? sp_err_nomem(err) : 0;
}
