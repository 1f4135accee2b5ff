#include "formats.h"

const struct view_format view_formats[] = {
	{.name = "top", .write = format_top, .lines = true, .by_event = true, .people = true,
	 .says_tasks = true},
	{.name = "tree", .write = format_tree, .reverse = true, .lines = true, .by_event = true,
	 .people = true, .by_name = true, .says_tasks = true},
	{.name = "text", .write = format_text, .stacks = true, .lines = true},
	{.name = "raw", .write = format_raw, .no_names = true},
	{.name = "folded", .write = format_folded, .stacks = true, .reverse = true, .lines = true,
	 .bare = true, .by_name = true},
	{.name = "flamegraph", .write = format_flamegraph, .stacks = true, .reverse = true, .lines = true,
	 .people = true, .by_task = true, .says_tasks = true},
	{.name = "json", .write = format_json, .stacks = true},
	{.name = "pprof", .write = format_pprof, .stacks = true, .by_task = true},
	{.name = "firefox", .write = format_firefox, .stacks = true, .scratch = true},
	{.name = "speedscope", .write = format_speedscope, .stacks = true, .lines = true,
	 .by_task = true, .scratch = true},
	{.name = "callgrind", .write = format_callgrind, .stacks = true, .by_name = true},
	{.name = "diff", .write = format_diff, .lines = true, .by_event = true, .people = true,
	 .says_tasks = true},
	{.name = "lines", .write = format_lines, .by_event = true, .people = true, .says_tasks = true},
	{.name = "jsonl", .write = format_jsonl, .stacks = true},
	{.name = "otlp", .write = format_otlp, .stacks = true, .by_task = true},
	{.name = "stats", .write = format_stats, .whole_only = true},
	{.name = "stats-json", .write = format_stats_json, .no_names = true, .whole_only = true},
	{0},
};

const struct view_format *view_format_find(const char *name)
{
	for (const struct view_format *f = view_formats; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}
