#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/sandbox.h"
#include "base/stop.h"
#include "pipeline.h"
#include "report.h"

enum { OPT_OUTPUT, OPT_JOBS, OPT_PATH_MAP, OPT_SYMFS, OPT_DEBUG_DIR, OPT_DUMP_CFI };

static const struct sp_opt opts[] = {
	[OPT_OUTPUT] = {"output", 'o', "FILE",
			"write there, not to standard output; FILE.data:\na perf.data file"},
	[OPT_JOBS] =
		{"jobs", 'j', "N",
		 "threads that unwind (default: one per CPU);\nthe output is the same for every N"},
	[OPT_PATH_MAP] =
		{"path-map", 0, "OLD=NEW",
		 "look for recorded files below OLD in NEW\n(whole components, may be repeated)"},
	[OPT_SYMFS] = {"symfs", 0, "DIR", "look for recorded files below DIR first"},
	[OPT_DEBUG_DIR] = {"debug-dir", 0, "DIR",
			   "look for debug files, and for programs by their build-ids,\n"
			   "there too: a folder, or a tarball of perf archive\n(may be repeated)"},
	[OPT_DUMP_CFI] = {"dump-cfi", 0, "FILE", "print the unwind rules of an ELF file and end"},
	{0},
};

static struct sp_cli cli = {
	.tool = "sp-unwind",
	.synopsis = "sp-unwind [options] [FILE]\n       sp-unwind --dump-cfi FILE",
	.about = "Turns the stack bytes of a recording into call chains. Reads a perf stream or a\n"
		 "perf.data file (default: standard input) and writes a perf stream.",
	.opts = opts,
	.permutes = true,
	.examples = "Examples:\n"
		    "  sp-capture -p PID | sp-unwind | sp-spool -o out.spool\n"
		    "  perf record --call-graph dwarf -o - CMD | sp-unwind | perf report -i -\n"
		    "  sp-unwind perf.data | perf script -i -",
};

#define MAX_LISTED 64

struct arguments {
	struct un_options run;
	const char *output, *dump_cfi;
	const char *path_maps[MAX_LISTED], *debug_dirs[MAX_LISTED];
};

static unsigned n_cpus(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	return n < 1 ? 1 : n > 256 ? 256 : (unsigned)n;
}

static void say(int level, const char *path, const char *what)
{
	bool named = !strncmp(what, path, strlen(path));
	if (level == 0)
		sp_note("not used: %s%s%s", named ? "" : path, named ? "" : ": ", what);
	else
		sp_detail("%s%s%s", named ? "" : path, named ? "" : ": ", what);
}

static void add_archive(struct arguments *a, const char *path)
{
	struct sp_err err;
	if (!sp_archives_add(&a->run.modules.find.archives, path)) {
		sp_err_nomem(&err);
		sp_die(&err, NULL);
	}
}

static void add_debug_dir(struct arguments *a, const char *arg)
{
	struct un_modules_options *m = &a->run.modules;
	struct sp_err err;
	int tarball = sp_archives_is_tarball(arg, &err);
	if (tarball < 0) {
		sp_warn("--debug-dir: %s", err.msg);
	} else if (tarball) {
		add_archive(a, arg);
	} else if (m->debug_dirs.n < MAX_LISTED) {
		a->debug_dirs[m->debug_dirs.n++] = arg;
		m->find.n_debug_dirs = m->debug_dirs.n;
	} else {
		sp_usage_error("--debug-dir: more than %d", MAX_LISTED);
	}
}

static void parse(struct arguments *a, int argc, char **argv)
{
	struct un_modules_options *m = &a->run.modules;
	sp_cli_init(&cli, argc, argv);
	m->find.path_maps = a->path_maps;
	m->debug_dirs.dirs = a->debug_dirs;
	m->find.debug_dirs = a->debug_dirs;
	m->say = say;
	a->run.n_workers = n_cpus();
	const char *arg;
	for (int o; (o = sp_cli_next(&cli, &arg)) != SP_CLI_END;) {
		switch (o) {
		case OPT_OUTPUT:
			a->output = strcmp(arg, "-") == 0 ? NULL : arg;
			break;
		case OPT_JOBS:
			a->run.n_workers = (unsigned)sp_arg_u64("--jobs", arg, 1, 256);
			a->run.has_n_workers = true;
			break;
		case OPT_PATH_MAP:
			if (!strchr(arg, '=') || arg[0] == '=')
				sp_usage_error("--path-map: '%s' is not OLD=NEW", arg);
			if (m->find.n_path_maps == MAX_LISTED)
				sp_usage_error("--path-map: more than %d", MAX_LISTED);
			a->path_maps[m->find.n_path_maps++] = arg;
			break;
		case OPT_SYMFS:
			m->find.symfs = arg;
			break;
		case OPT_DEBUG_DIR:
			add_debug_dir(a, arg);
			break;
		default:
			a->dump_cfi = arg;
			break;
		}
	}
	if (argc - cli.at > 1 || (a->dump_cfi && argc > cli.at))
		sp_usage_error("one input at a time, not '%s' too", argv[argc - 1]);
	if (argc > cli.at && strcmp(argv[cli.at], "-") != 0)
		a->run.input = argv[cli.at];
}

static bool ends_in(const char *text, const char *tail)
{
	size_t n = strlen(text), k = strlen(tail);
	return n > k && !strcmp(text + n - k, tail);
}

static bool same_file(int a, int b)
{
	struct stat sa, sb;
	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && S_ISREG(sa.st_mode) &&
	       sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* The output must not be the input: it would be emptied before it is read. */
static void check_not_input(const struct arguments *a, int out)
{
	int in = a->run.input ? open(a->run.input, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
			      : dup(STDIN_FILENO);
	bool same = in >= 0 && same_file(in, out);
	if (in >= 0)
		close(in);
	if (same)
		sp_usage_error("the output '%s' is the input", a->output);
}

static void open_output(struct arguments *a)
{
	struct sp_err err;
	a->run.out_fd = STDOUT_FILENO;
	a->run.out_name = "standard output";
	if (!a->output) {
		if (isatty(STDOUT_FILENO))
			sp_usage_error("a perf stream is not for terminals; write\n"
				       "  sp-unwind%s%s | sp-spool -o out.spool; sp-sym out.spool",
				       a->run.input ? " " : "", a->run.input ? a->run.input : "");
		sp_pipe_enlarge(STDOUT_FILENO);
		return;
	}
	int fd = open(a->output, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd >= 0)
		check_not_input(a, fd);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0 || (S_ISREG(st.st_mode) && ftruncate(fd, 0) < 0)) {
		sp_err_errno(&err, "cannot write %s", a->output);
		sp_die(&err, NULL);
	}
	a->run.out_fd = fd;
	a->run.out_name = a->output;
	a->run.as_file = ends_in(a->output, ".data");
}

static void open_input(struct arguments *a)
{
	struct stat st;
	if (!a->run.input && isatty(STDIN_FILENO))
		sp_usage_error("standard input is a terminal; name a perf.data file, or write\n"
			       "  sp-capture -p PID | sp-unwind | sp-spool -o out.spool");
	int rc = a->run.input ? stat(a->run.input, &st) : fstat(STDIN_FILENO, &st);
	a->run.input_is_pipe = rc == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
	if (a->run.input_is_pipe && !a->run.input)
		sp_pipe_enlarge(STDIN_FILENO);
	sp_stop_install(a->run.input_is_pipe ? SP_STOP_PIPE : SP_STOP_FIRST);
}

static int dump_cfi(const char *path)
{
	struct sp_err err;
	struct sp_elf *elf = calloc(1, sizeof *elf);
	struct uw_module *m = NULL;
	int rc = elf ? sp_elf_open(elf, path, &err) : sp_err_nomem(&err);
	if (rc < 0)
		sp_die(&err, NULL);
	rc = uw_module_new(&m, elf, NULL, &err);
	if (rc >= 0)
		rc = uw_dump_cfi(m, stdout, &err);
	if (rc < 0)
		sp_die(&err, NULL);
	uw_module_free(m);
	return sp_finish_stdout(SP_EXIT_OK);
}

static uint64_t cpu_us(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* perf archive leaves FILE.tar.bz2 beside FILE: the recorded programs, packed. */
static void use_archive(struct arguments *a)
{
	char path[4096];
	if (!a->run.input)
		return;
	int n = snprintf(path, sizeof path, "%s.tar.bz2", a->run.input);
	if (n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0)
		add_archive(a, path);
}

static void report(const struct un_result *r)
{
	struct sp_buf b = {0};
	if (sp_stats_json) {
		un_report_json(&b, r, cpu_us());
		if (!b.failed)
			fprintf(stderr, "%.*s\n", (int)b.len, (const char *)b.data);
		sp_buf_deinit(&b);
		return;
	}
	size_t n = un_report_stops(&b, r, sp_verbosity > 1 ? SIZE_MAX : 20);
	const char *line = (const char *)b.data;
	for (size_t i = 0; i < n && !b.failed; i++, line += strlen(line) + 1)
		sp_detail("%s", line);
	b.len = 0;
	un_report_line(&b, r);
	if (!b.failed)
		sp_note("%.*s", (int)b.len, (const char *)b.data);
	if (r->n_by_path)
		sp_note("%u files were taken on their paths: the recording says nothing to tell "
			"them by (-v lists them)",
			r->n_by_path);
	const char *advice = un_report_advice(r);
	if (advice)
		sp_note("%s", advice);
	sp_buf_deinit(&b);
}

static const char *cure_of(const struct sp_err *err)
{
	if (err->os == EPIPE)
		return "the next stage of the pipeline has ended; its own message says why";
	if (err->os == ENOSPC)
		return "make room there, or write elsewhere with -o";
	return NULL;
}

int main(int argc, char **argv)
{
	static struct arguments a;
	parse(&a, argc, argv);
	if (a.dump_cfi) {
		sp_sandbox_enter(&(struct sp_sandbox){0});
		return dump_cfi(a.dump_cfi);
	}
	open_input(&a);
	use_archive(&a);
	open_output(&a);
	sp_sandbox_enter(&(struct sp_sandbox){0});

	struct un_result result;
	struct sp_err err;
	int rc = un_run(&a.run, &result, &err);
	int status = SP_EXIT_OK;
	if (rc < 0) {
		un_result_deinit(&result);
		sp_die(&err, cure_of(&err));
	}
	if (a.output && close(a.run.out_fd) < 0) {
		sp_err_errno(&err, "cannot write %s", a.output);
		sp_die(&err, NULL);
	}
	if (result.state != SP_INPUT_WHOLE) {
		status = SP_EXIT_PARTIAL;
		sp_warn("the input is %s: %s; what came before is kept",
			result.state == SP_INPUT_CUT ? "not whole" : "damaged",
			*result.complaint ? result.complaint : "samples could not be read");
	}
	for (size_t i = 0; sp_archives_problem(a.run.modules.find.archives, i); i++)
		sp_note("%s", sp_archives_problem(a.run.modules.find.archives, i));
	report(&result);
	un_result_deinit(&result);
	sp_archives_free(a.run.modules.find.archives);
	return status;
}
