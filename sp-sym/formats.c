#include "formats.h"

const struct view_format view_formats[] = {
	{.name = "top", .write = format_top},
	{.name = "tree", .write = format_tree, .reverse = true},
	{.name = "text", .write = format_text},
	{.name = "raw", .write = format_raw, .no_names = true},
	{.name = "folded", .write = format_folded, .reverse = true},
	{.name = "flamegraph", .write = format_flamegraph, .reverse = true},
	{.name = "json", .write = format_json},
	{.name = "pprof", .write = format_pprof},
	{.name = "firefox", .write = format_firefox},
	{.name = "speedscope", .write = format_speedscope},
	{.name = "callgrind", .write = format_callgrind},
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
