#include "options.h"

#include <dirent.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cli.h"
#include "command.h"
#include "elf/archive.h"
#include "view.h"

enum {
	OPT_FORMAT,
	OPT_OUTPUT,
	OPT_DIFF,
	OPT_FILE,
	OPT_TABLE,
	OPT_TIME,
	OPT_PID,
	OPT_TID,
	OPT_COMM,
	OPT_EVENT,
	OPT_MODULE,
	OPT_FUNCTION,
	OPT_KERNEL,
	OPT_USER,
	OPT_HIDE_RUNTIME,
	OPT_NO_INLINE,
	OPT_GROUP,
	OPT_REVERSE,
	OPT_LINES,
	OPT_WEIGHT,
	OPT_MIN_PERCENT,
	OPT_DEPTH,
	OPT_LIMIT,
	OPT_SORT,
	OPT_WIDTH,
	OPT_FOLLOW,
	OPT_REQUIRE,
	OPT_PATH_MAP,
	OPT_SYMFS,
	OPT_DEBUG_DIR,
	OPT_DEBUGINFOD,
	OPT_PERF_MAPS,
	OPT_PERF_MAP_DIR,
	OPT_NO_DEMANGLE,
	OPT_SYMBOLIZER,
	OPT_NO_CACHE,
	OPT_JOBS,
	OPT_EXE,
};

static const struct sp_opt opts[] = {
	[OPT_FORMAT] =
		{"format", 'f', "NAME",
		 "top (the default), tree, text, raw, folded, flamegraph, json, pprof,\n"
		 "firefox, speedscope, callgrind, diff, lines, jsonl, otlp, stats, stats-json"},
	[OPT_OUTPUT] = {"output", 'o', "FILE",
			"write FILE, whole or not at all (else standard output)"},
	[OPT_DIFF] = {"diff", 0, "OLD.spool", "what got slower since: --format=diff"},
	[OPT_FILE] = {"file", 0, "NAME",
		      "lines: all of the source files with that name (--format=lines)"},
	[OPT_TABLE] = {"table", 0, "samples|stacks", "which one of jsonl's two tables"},
	[OPT_TIME] = {"time", 0, "FROM..TO",
		      "samples of that time: seconds from the first one, or @EPOCH;\n"
		      "either end may be left open"},
	[OPT_PID] = {"pid", 'p', "PID[,PID]", "samples of these processes"},
	[OPT_TID] = {"tid", 't', "TID[,TID]", "samples of these threads"},
	[OPT_COMM] = {"comm", 0, "NAME",
		      "samples of threads with that name (a part of it, or with * and ?)"},
	[OPT_EVENT] = {"event", 'e', "NAME", "samples of that event"},
	[OPT_MODULE] = {"module", 0, "NAME", "stacks that pass through that file"},
	[OPT_FUNCTION] = {"function", 0, "NAME", "stacks that pass through that function"},
	[OPT_KERNEL] = {"kernel", 0, NULL, "kernel frames only"},
	[OPT_USER] = {"user", 0, NULL, "without kernel frames"},
	[OPT_HIDE_RUNTIME] = {"hide-runtime", 0, NULL, "without the interpreter's own frames"},
	[OPT_NO_INLINE] = {"no-inline", 0, NULL, "without inlined functions"},
	[OPT_GROUP] = {"group", 'g', "WHAT",
		       "roots by none, process, thread, comm, pool (digits folded), container,\n"
		       "or by the state and the waker of times off the CPU"},
	[OPT_REVERSE] = {"reverse", 'r', NULL,
			 "from the leaf to its callers (tree, folded, flamegraph)"},
	[OPT_LINES] = {"lines", 0, NULL,
		       "each line of a function apart (top, tree, text, folded, flamegraph,\n"
		       "speedscope, diff)"},
	[OPT_WEIGHT] = {"weight", 'w', "samples|time|weight",
			"count samples, or the events' own weight: ns for clocks and\n"
			"offcpu-time (time: nothing else), numbers for others"},
	[OPT_MIN_PERCENT] = {"min-percent", 'm', "P",
			     "leave out what has less: it counts for its caller"},
	[OPT_DEPTH] = {"depth", 'd', "N", "levels below the root that are shown"},
	[OPT_LIMIT] = {"limit", 'n', "N",
		       "lines of top (40), of each half of diff (20), files of lines (8);\n"
		       "0 = all"},
	[OPT_SORT] = {"sort", 0, "self|total", "order of top and diff"},
	[OPT_WIDTH] = {"width", 0, "N",
		       "columns of top, tree, diff and lines (else the terminal's)"},
	[OPT_FOLLOW] = {"follow", 0, NULL,
			"watch a recording that goes on: the view anew each second"},
	[OPT_REQUIRE] = {"require", 0, "P%", "fail when fewer frames have names"},
	[OPT_PATH_MAP] = {"path-map", 0, "OLD=NEW", "find files below OLD at NEW"},
	[OPT_SYMFS] = {"symfs", 0, "DIR", "find all files below DIR"},
	[OPT_DEBUG_DIR] = {"debug-dir", 0, "DIR",
			   "more debug files (also STACKPULSE_DEBUG_DIRS, by colons);\n"
			   "a tarball of perf archive will do"},
	[OPT_DEBUGINFOD] = {"debuginfod", 0, "WHEN",
			    "ask the servers of DEBUGINFOD_URLS for debug files (auto), never,\n"
			    "or look into their cache only (cache)"},
	[OPT_PERF_MAPS] = {"perf-maps", 0, "WHICH",
			   "JIT maps of marked processes (marked), none, any, the one marked last\n"
			   "(last) or these: PID,…"},
	[OPT_PERF_MAP_DIR] = {"perf-map-dir", 0, "DIR", "where the perf-PID.map files are"},
	[OPT_NO_DEMANGLE] = {"no-demangle", 0, NULL, "names as the linker knows them"},
	[OPT_SYMBOLIZER] = {"symbolizer", 0, "COMMAND",
			    "names of files from a command that speaks as llvm-symbolizer does"},
	[OPT_NO_CACHE] = {"no-cache", 0, NULL,
			  "do not use or keep what was found before (~/.cache/stackpulse/symbols)"},
	[OPT_JOBS] = {"jobs", 'j', "N", "workers (default: all cores)"},
	[OPT_EXE] = {"exe", 0, "FILE",
		     "names for ADDRESSes of an ELF file, as addr2line -afiC prints them"},
	{0},
};

static const char examples[] =
	"Examples:\n"
	"  sp-sym out.spool                              the hottest functions\n"
	"  sp-sym -f tree --comm worker out.spool        who calls them\n"
	"  sp-sym -f flamegraph -o flame.html out.spool  a picture for the browser\n"
	"  sp-sym -f folded out.spool | flamegraph.pl    for the usual tools\n"
	"  sp-sym --diff old.spool new.spool             what got slower\n"
	"  sp-sym --file parser.c out.spool              that file, with shares per line\n"
	"  sp-sym -f pprof -o p.pb.gz out.spool; go tool pprof -http=: p.pb.gz";

static bool is_file(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static void add_archive(struct view_options *opt, const char *path)
{
	struct sp_err err;
	if (!sp_archives_add(&opt->resolver.archives, path)) {
		sp_err_nomem(&err);
		sp_die(&err, NULL);
	}
}

static void push_word(struct view_words *w, const char *word)
{
	const char **slot = SP_PUSH(&w->v, &w->n, &w->cap);
	struct sp_err err;
	if (!slot) {
		sp_err_nomem(&err);
		sp_die(&err, NULL);
	}
	*slot = word;
}

static void add_debug_dir(struct view_options *opt, const char *arg)
{
	struct sp_err err;
	int tarball = sp_archives_is_tarball(arg, &err);
	if (tarball < 0)
		sp_warn("--debug-dir: %s", err.msg);
	else if (tarball)
		add_archive(opt, arg);
	else
		push_word(&opt->debug_dirs, arg);
}

static void push_ids(struct view_ids *ids, const char *option, const char *text)
{
	for (;;) {
		char *end;
		long long v = strtoll(text, &end, 10);
		if (end == text || (*end && *end != ',') || v < -1 || v > INT32_MAX)
			sp_usage_error("%s: '%s' is not a list of numbers", option, text);
		int64_t *slot = SP_PUSH(&ids->v, &ids->n, &ids->cap);
		if (slot)
			*slot = v;
		if (!*end)
			return;
		text = end + 1;
	}
}

static double parse_percent(const char *option, const char *text)
{
	char *end;
	double v = strtod(text, &end);
	if (end == text || (*end && strcmp(end, "%") != 0) || !(v >= 0 && v <= 100))
		sp_usage_error("%s: '%s' is not a percentage", option, text);
	return v;
}

static int choose(const char *option, const char *text, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], text))
			return i;
	sp_usage_error("%s: '%s' is not known", option, text);
}

static const struct view_format *parse_format(const char *name)
{
	const struct view_format *f = view_format_find(name);
	if (f)
		return f;
	char list[400];
	size_t n = 0;
	for (f = view_formats; f->name && n < sizeof list; f++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", f->name);
	sp_usage_error("--format: there is no '%s'; there are %s", name, list);
}

/* In the order of the enum of sp_resolver_options; or a list of processes. */
static void set_perf_maps(struct view_options *opt, const char *arg)
{
	static const char *const words[] = {"marked", "none", "any", "last", NULL};
	if (*arg < '0' || *arg > '9') {
		opt->resolver.perf_maps = (unsigned)choose("--perf-maps", arg, words);
		return;
	}
	push_ids(&opt->perf_map_pids, "--perf-maps", arg);
	opt->resolver.perf_maps = SP_PERF_MAPS_LISTED;
}

/* Options that say where names come from. */
static void set_source(struct view_options *opt, int which, const char *arg)
{
	static const char *const whens[] = {"auto", "never", "cache", NULL};
	switch (which) {
	case OPT_PATH_MAP:
		if (!strchr(arg, '=') || arg[0] == '=')
			sp_usage_error("--path-map: '%s' is not OLD=NEW", arg);
		push_word(&opt->path_maps, arg);
		break;
	case OPT_SYMFS:
		opt->resolver.symfs = arg;
		break;
	case OPT_DEBUG_DIR:
		add_debug_dir(opt, arg);
		break;
	case OPT_PERF_MAPS:
		set_perf_maps(opt, arg);
		break;
	case OPT_DEBUGINFOD:
		opt->debuginfod = (enum sp_debuginfod_mode)choose("--debuginfod", arg, whens);
		break;
	case OPT_PERF_MAP_DIR:
		opt->resolver.perf_map_dir = arg;
		break;
	case OPT_SYMBOLIZER:
		if (!*arg)
			sp_usage_error("--symbolizer: there is no command");
		opt->symbolizer = arg;
		break;
	case OPT_NO_INLINE:
		opt->resolver.no_inline = true;
		break;
	case OPT_NO_DEMANGLE:
		opt->resolver.no_demangle = true;
		break;
	case OPT_NO_CACHE:
		opt->no_cache = true;
		break;
	case OPT_JOBS:
		opt->resolver.n_workers = (unsigned)sp_arg_u64("--jobs", arg, 1, 1024);
		break;
	default:
		opt->exe = arg;
	}
}

/* Options that say what is shown, and how. */
static void set_view(struct view_options *opt, int which, const char *arg)
{
	static const char *const groups[] = {"none",      "process", "thread", "comm", "pool",
					     "container", "state",   "waker",  NULL};
	static const char *const weights[] = {"samples", "weight", "time", NULL};
	static const char *const tables[] = {"samples", "stacks", NULL};
	static const char *const sorts[] = {"self", "total", NULL};
	switch (which) {
	case OPT_KERNEL:
		opt->kernel_only = true;
		break;
	case OPT_USER:
		opt->user_only = true;
		break;
	case OPT_HIDE_RUNTIME:
		opt->hide_runtime = true;
		break;
	case OPT_GROUP:
		opt->group = (enum view_group)(GROUP_NONE + choose("--group", arg, groups));
		break;
	case OPT_REVERSE:
		opt->reverse = true;
		break;
	case OPT_LINES:
		opt->by_line = true;
		break;
	case OPT_WEIGHT:
		opt->weight = (enum view_weight)(WEIGHT_SAMPLES + choose("--weight", arg, weights));
		break;
	case OPT_MIN_PERCENT:
		opt->min_percent = parse_percent("--min-percent", arg);
		break;
	case OPT_TABLE:
		opt->stacks_table = choose("--table", arg, tables) == 1;
		break;
	case OPT_DEPTH:
		opt->depth = sp_arg_u64("--depth", arg, 1, UINT32_MAX);
		break;
	case OPT_LIMIT:
		opt->limit = sp_arg_u64("--limit", arg, 0, UINT32_MAX);
		opt->limit = opt->limit ? opt->limit : UINT64_MAX;
		break;
	case OPT_SORT:
		opt->sort_total = choose("--sort", arg, sorts) == 1;
		break;
	case OPT_WIDTH:
		opt->width = sp_arg_u64("--width", arg, 40, 10000);
		break;
	case OPT_FOLLOW:
		opt->follow = true;
		break;
	default:
		opt->require = parse_percent("--require", arg);
	}
}

static void set(struct view_options *opt, int which, const char *arg)
{
	switch (which) {
	case OPT_FORMAT:
		opt->format = parse_format(arg);
		break;
	case OPT_OUTPUT:
		opt->output = arg;
		break;
	case OPT_DIFF:
		opt->diff = arg;
		opt->format = opt->format == view_formats ? parse_format("diff") : opt->format;
		break;
	case OPT_FILE:
		push_word(&opt->files, arg);
		opt->format = opt->format == view_formats ? parse_format("lines") : opt->format;
		break;
	case OPT_TIME:
		sp_arg_moments("--time", arg, &opt->from, &opt->to);
		break;
	case OPT_PID:
		push_ids(&opt->pids, "--pid", arg);
		break;
	case OPT_TID:
		push_ids(&opt->tids, "--tid", arg);
		break;
	case OPT_COMM:
		push_word(&opt->comms, arg);
		break;
	case OPT_EVENT:
		push_word(&opt->events, arg);
		break;
	case OPT_MODULE:
		push_word(&opt->modules, arg);
		break;
	case OPT_FUNCTION:
		push_word(&opt->functions, arg);
		break;
	case OPT_PATH_MAP:
	case OPT_SYMFS:
	case OPT_DEBUG_DIR:
	case OPT_DEBUGINFOD:
	case OPT_SYMBOLIZER:
	case OPT_PERF_MAPS:
	case OPT_PERF_MAP_DIR:
	case OPT_NO_INLINE:
	case OPT_NO_DEMANGLE:
	case OPT_NO_CACHE:
	case OPT_JOBS:
	case OPT_EXE:
		set_source(opt, which, arg);
		break;
	default:
		set_view(opt, which, arg);
	}
}

/* STACKPULSE_DEBUG_DIRS, after what the command line names. The pieces live as long as we do. */
static void add_env_dirs(struct view_options *opt)
{
	const char *env = getenv("STACKPULSE_DEBUG_DIRS");
	char *save = NULL, *copy = env ? strdup(env) : NULL;
	for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir;
	     dir = strtok_r(NULL, ":", &save))
		push_word(&opt->debug_dirs, dir);
	opt->env_dirs = copy;
}

/* What perf archive packed lies beside its recording, where the spool often lies too. */
static void add_archives_beside(struct view_options *opt)
{
	static const char tail[] = ".data.tar.bz2";
	DIR *d = opendir(opt->resolver.spool_dir);
	char path[4096];
	for (struct dirent *e; d && (e = readdir(d));) {
		size_t len = strlen(e->d_name);
		int n = snprintf(path, sizeof path, "%s/%s", opt->resolver.spool_dir, e->d_name);
		if (len > sizeof tail - 1 && !strcmp(e->d_name + len - (sizeof tail - 1), tail) &&
		    n > 0 && (size_t)n < sizeof path && is_file(path))
			add_archive(opt, path);
	}
	if (d)
		closedir(d);
}

/* Perf maps are sought beside the spool too. */
static void set_spool_dir(struct view_options *opt)
{
	if (!strcmp(opt->input, "-"))
		return;
	opt->spool_dir = strdup(opt->input);
	opt->resolver.spool_dir = opt->spool_dir ? dirname(opt->spool_dir) : NULL;
	if (opt->resolver.spool_dir)
		add_archives_beside(opt);
}

static void check(const struct view_options *opt)
{
	const struct view_format *f = opt->format;
	if (opt->kernel_only && opt->user_only)
		sp_usage_error("--kernel and --user exclude each other");
	if (opt->reverse && !f->reverse)
		sp_usage_error("--reverse has no meaning for --format=%s", f->name);
	if (opt->by_line && !f->lines)
		sp_usage_error("--lines has no meaning for --format=%s%s", f->name,
			       f->no_names ? "" : ", which has the lines anyway");
	if (!strcmp(f->name, "diff") != (opt->diff != NULL))
		sp_usage_error(opt->diff
				       ? "--diff has no meaning for --format=%s"
				       : "--format=%s needs two spools: --diff OLD.spool NEW.spool",
			       f->name);
	if (opt->follow && (opt->diff || !strcmp(opt->input, "-")))
		sp_usage_error("--follow needs the name of one spool");
	if (opt->files.n && strcmp(f->name, "lines") != 0)
		sp_usage_error("--file has no meaning for --format=%s", f->name);
	if (opt->stacks_table && strcmp(f->name, "jsonl") != 0)
		sp_usage_error("--table has no meaning for --format=%s", f->name);
	bool filtered = opt->from.kind != SP_MOMENT_OPEN || opt->to.kind != SP_MOMENT_OPEN ||
			opt->pids.n || opt->tids.n || opt->comms.n || opt->events.n;
	bool by_name = opt->modules.n || opt->functions.n || opt->kernel_only || opt->user_only ||
		       opt->hide_runtime;
	if (f->no_names && by_name)
		sp_usage_error("--format=%s has no names: filter by time, process, thread or event",
			       f->name);
	if (f->whole_only && filtered)
		sp_usage_error("--format=%s is about the whole recording: it takes no filter",
			       f->name);
}

void options_parse(struct view_options *opt, int argc, char **argv)
{
	struct sp_cli cli = {
		.tool = "sp-sym",
		.synopsis = "sp-sym [options] [FILE.spool]\n"
			    "       sp-sym --diff OLD.spool [options] NEW.spool\n"
			    "       sp-sym --exe FILE [--debug-dir DIR] [ADDRESS…]",
		.about = "Shows a profile: names its addresses and writes it in one of many "
			 "formats.\n"
			 "Without FILE, or with -, the spool is read from standard input.",
		.opts = opts,
		.examples = examples,
	};
	const char *arg;
	int which, n = 1;
	*opt = (struct view_options){
		.min_percent = -1, .require = -1, .format = view_formats, .scratch_fd = -1};
	sp_cli_init(&cli, argc, argv);
	for (;;) {
		while ((which = sp_cli_next(&cli, &arg)) != SP_CLI_END)
			set(opt, which, arg);
		/* Options may follow operands; after "--" there are only operands. */
		bool only = cli.at > 1 && !strcmp(argv[cli.at - 1], "--") && cli.at - 1 >= n;
		if (cli.at >= argc)
			break;
		do
			argv[n++] = argv[cli.at++];
		while (only && cli.at < argc);
	}
	opt->operands = argv + 1;
	opt->n_operands = (size_t)(n - 1);
	if (opt->exe && opt->symbolizer)
		sp_usage_error("--symbolizer has no meaning for --exe");
	if (opt->exe && opt->resolver.archives)
		sp_warn("--debug-dir: --exe looks into folders only, not into a tarball");
	if (!opt->exe) {
		if (opt->n_operands == 2 && !opt->diff && !strcmp(opt->format->name, "diff")) {
			opt->diff = *opt->operands++;
			opt->n_operands--;
		}
		if (opt->n_operands > 1)
			sp_usage_error("one spool at a time: '%s' is one too many",
				       opt->operands[1]);
		opt->input = opt->n_operands ? opt->operands[0] : "-";
		check(opt);
		set_spool_dir(opt);
	}
	add_env_dirs(opt);
	opt->resolver.perf_map_pids = opt->perf_map_pids.v;
	opt->resolver.n_perf_map_pids = opt->perf_map_pids.n;
	opt->resolver.path_maps = opt->path_maps.v;
	opt->resolver.n_path_maps = opt->path_maps.n;
	opt->resolver.no_lines = opt->format->bare && !opt->by_line;
	opt->resolver.debug_dirs = opt->debug_dirs.v;
	opt->resolver.n_debug_dirs = opt->debug_dirs.n;
}

void options_deinit(struct view_options *opt)
{
	command_free(opt->command);
	if (opt->scratch_fd >= 0)
		close(opt->scratch_fd);
	if (opt->resolver.cache)
		sp_cachedir_close(&opt->cache);
	free(opt->pids.v);
	free(opt->tids.v);
	free(opt->perf_map_pids.v);
	free(opt->comms.v);
	free(opt->events.v);
	free(opt->modules.v);
	free(opt->functions.v);
	free(opt->files.v);
	free(opt->path_maps.v);
	free(opt->debug_dirs.v);
	free(opt->env_dirs);
	sp_archives_free(opt->resolver.archives);
	free(opt->spool_dir);
}
