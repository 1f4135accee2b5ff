/* sp-sym: a spool in, a view of it out (sp-sym.1). */
#define _GNU_SOURCE
#include <libgen.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/sandbox.h"
#include "base/stop.h"
#include "command.h"
#include "elf/archive.h"
#include "exe.h"
#include "scratch.h"
#include "unnamed.h"
#include "view.h"

/* What to run on a file that is not a spool; NULL when there is no better idea. */
static const char *what_to_run(const char *path, char *buf, size_t size)
{
	uint8_t head[16] = {0};
	struct sp_err err;
	int fd = strcmp(path, "-") != 0 ? sp_file_open(path, 0, &err) : -1;
	if (fd < 0)
		return NULL;
	ssize_t n = sp_fd_read(fd, head, sizeof head, path, &err);
	close(fd);
	if (n < 4)
		return n == 0 ? "the file is empty: did the recording fail?" : NULL;
	if (n >= 8 && (!memcmp(head, "PERFILE2", 8) || !memcmp(head, "2ELIFREP", 8)))
		snprintf(buf, size,
			 "it is a perf recording: run 'sp-unwind %.300s | sp-spool -o x.spool' "
			 "first, "
			 "then 'sp-sym x.spool'",
			 path);
	else if (!memcmp(head, "\177ELF", 4))
		snprintf(buf, size,
			 "it is an ELF file: 'sp-sym --exe %.300s ADDRESS…' names addresses", path);
	else if (head[0] == 0x1f && head[1] == 0x8b)
		snprintf(buf, size,
			 "it is a gzip file: if a recording is inside, run "
			 "'zcat %.300s | sp-unwind | sp-spool -o x.spool' first",
			 path);
	else
		snprintf(buf, size,
			 "a spool is made by 'sp-capture … | sp-unwind | sp-spool -o x.spool'");
	return buf;
}

static struct timespec progress_start;
static atomic_bool progress_shown; /* any worker shows */

/* On a terminal, and only once naming takes long. */
static void progress(void *ctx, size_t done, size_t total)
{
	struct timespec now;
	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &now);
	double s = (double)(now.tv_sec - progress_start.tv_sec) +
		   (double)(now.tv_nsec - progress_start.tv_nsec) / 1e9;
	if (s < 0.7 || !total)
		return;
	fprintf(stderr, "\rsp-sym: naming %zu of %zu addresses (%zu %%)\033[K", done, total,
		done * 100 / total);
	fflush(stderr);
	progress_shown = true;
}

/* The same for a debug file that comes from a server, which is worth a word at once. */
static void fetching(const char *build_id, int64_t done, int64_t total)
{
	fprintf(stderr,
		"\rsp-sym: fetching the debug file of build-id %.12s: %.1f of %.1f MB\033[K",
		build_id, (double)done / 1e6, (double)total / 1e6);
	fflush(stderr);
	progress_shown = true;
}

static int fill(struct view *v, struct sp_err *err)
{
	int r = view_load(v, err);
	if (r < 0)
		return r;
	r = view_resolve(v, err);
	if (progress_shown)
		fputs("\r\033[K", stderr);
	if (r >= 0)
		r = view_shape(v, err);
	if (r >= 0 && v->opt->format->says_tasks)
		r = view_count_lanes(v, err);
	if (r >= 0 && v->opt->by_line)
		r = view_by_line(v, err);
	return r >= 0 && v->opt->format->stacks ? view_prune(v, err) : r;
}

/* Nothing to show is worth a line, with the next step. */
static void say_empty(const struct view *v)
{
	if (v->n_samples)
		return;
	if (sp_spool_info(v->spool)->n_samples && v->n_read)
		sp_warn("0 samples: the filters leave none of %llu; try fewer filters, or "
			"--format=stats for what there is",
			(unsigned long long)v->n_read);
	else
		sp_warn("0 samples: was the target idle? Record longer, while it is busy, or with "
			"--off-cpu; "
			"'sp-capture --check' says what works here");
}

#define FEW_NAMES 80 /* percent of the frames: below this the view is worth a word */

/* Paths are of others, and this goes to a terminal. */
static void note_unnamed(const struct view *v, const struct unnamed *u, double percent)
{
	struct sp_buf path = {0};
	out_text_buf(&path, u->v[0].path, strlen(u->v[0].path), 0);
	sp_buf_u8(&path, 0);
	sp_note("%.0f %% of the frames have no names, most of them in %s: %s "
		"(--format=stats says more)",
		percent, path.failed ? "?" : (const char *)path.data,
		unnamed_cause(v, &u->v[0]));
	sp_buf_deinit(&path);
}

/* --require: fails when too few frames have names. Without it a view of which much is nameless
 * says why. */
static int check_names(const struct view *v, struct sp_err *err)
{
	struct unnamed u;
	bool asked = v->opt->require >= 0;
	if (v->opt->format->no_names || (!asked && !strcmp(v->opt->format->name, "stats")))
		return SP_EXIT_OK;
	int r = unnamed_init(&u, v, err);
	if (r < 0)
		return r;
	double named = unnamed_named_percent(&u);
	if (!asked && u.n && named < FEW_NAMES)
		note_unnamed(v, &u, 100 - named);
	unnamed_deinit(&u);
	if (!asked || named >= v->opt->require)
		return SP_EXIT_OK;
	sp_warn("%.2f %% of the frames have names, less than the %g %% required; --format=stats "
		"says "
		"which modules have none",
		named, v->opt->require);
	return SP_EXIT_FAILED;
}

/* The event of the other spool that has the same name, or SP_NONE. */
static uint32_t same_event(const struct view *v, const struct sp_spool_event *e)
{
	for (uint32_t i = 0; e && i < sp_spool_n_events(v->spool); i++)
		if (!strcmp(sp_spool_event(v->spool, i)->name, e->name))
			return i;
	return SP_NONE;
}

/* An event alone, after a blank line unless it is the first; old is the other spool's number of it.
 */
static int write_event(struct view *v, uint32_t event, uint32_t old, uint32_t n, struct out *out,
		       struct sp_err *err)
{
	if (n)
		out_char(out, '\n');
	int status = view_only(v, event, err);
	if (status >= 0 && v->before)
		status = view_only(v->before, old, err);
	return status < 0 ? status : v->opt->format->write(v, out, err);
}

/* Formats that show one event at a time: all of them, one after the other; for diff, those that
 * only the old spool has too. */
static int write_events(struct view *v, struct out *out, struct sp_err *err)
{
	struct view *before = v->before;
	uint32_t n = 0;
	int status = 0;
	for (uint32_t e = 0; status >= 0 && view_next_event(v, &e); e++) {
		uint32_t old = before ? same_event(before, sp_spool_event(v->spool, e)) : SP_NONE;
		status = write_event(v, e, old, n++, out, err);
	}
	for (uint32_t old = 0; before && status >= 0 && view_next_event(before, &old); old++) {
		uint32_t same = same_event(v, sp_spool_event(before->spool, old)), has = same;
		if (same == SP_NONE || !view_next_event(v, &has) || has != same)
			status = write_event(v, same, old, n++, out, err);
	}
	view_all(v);
	if (before)
		view_all(before);
	return status;
}

static int write_view(struct view *v, struct out *out, struct sp_err *err)
{
	bool apart = v->apart || (v->before && v->before->apart);
	return apart && v->opt->format->by_event ? write_events(v, out, err)
						 : v->opt->format->write(v, out, err);
}

/* Load, name, shape and write; an exit status, or an error. */
static int show(struct view *v, struct out *out, struct sp_err *err)
{
	int r = v->before ? fill(v->before, err) : 0;
	if (r >= 0)
		r = v->opt->format->no_names ? 0 : fill(v, err);
	if (r >= 0)
		r = write_view(v, out, err);
	if (r >= 0)
		r = out_close(out, err);
	if (r < 0)
		return r;
	if (sp_debuginfod_complaint())
		sp_warn("%s", sp_debuginfod_complaint());
	if (command_complaint(v->opt->command))
		sp_warn("%s", command_complaint(v->opt->command));
	for (size_t i = 0; sp_archives_problem(v->opt->resolver.archives, i); i++)
		sp_note("%s", sp_archives_problem(v->opt->resolver.archives, i));
	if (v->note)
		sp_note("%s", v->note);
	say_empty(v);
	int status = check_names(v, err);
	if (status == SP_EXIT_OK && sp_stop_level() > 0) {
		sp_warn("stopped by a signal after %llu samples: the rest is not shown",
			(unsigned long long)v->n_read);
		status = SP_EXIT_PARTIAL;
	}
	return status;
}

/* What the spool lacks, and the exit status that says so. */
static int check_whole(const char *name, const struct sp_spool *spool, int status)
{
	if (sp_spool_state(spool) == SP_SPOOL_WHOLE)
		return status;
	const char *complaint = sp_spool_complaint(spool);
	sp_warn("%s: %s", !strcmp(name, "-") ? "standard input" : name,
		*complaint ? complaint : "the spool is not whole");
	return status == SP_EXIT_OK ? SP_EXIT_PARTIAL : status;
}

/* Opens, or ends with a message that says what to run first. */
static struct sp_spool *open_spool(const char *path, struct out *out)
{
	struct sp_spool *spool;
	struct sp_err err;
	char buf[700];
	if (sp_spool_open(&spool, path, &err) < 0) {
		out_discard(out);
		sp_die(&err, what_to_run(path, buf, sizeof buf));
	}
	return spool;
}

static const char *cache_path(const struct view_options *opt)
{
	return opt->resolver.cache ? opt->cache.path : NULL;
}

/* From here on everything is read-only but the folder of the output and the cache. */
static void enter_sandbox(const struct view_options *opt, const struct out *out)
{
	static bool inside;
	if (inside)
		return;
	inside = true;
	char *dir = out->tmp ? strdup(out->tmp) : NULL;
	const char *write_dirs[] = {dir ? dirname(dir) : NULL, cache_path(opt)};
	sp_sandbox_enter(&(struct sp_sandbox){.write_dirs = write_dirs, .n_write_dirs = 2});
	free(dir);
}

/* One view of the spool as it is now. */
static int run(const struct view_options *opt)
{
	struct sp_err err;
	struct out out;
	struct sp_spool *old = NULL;
	struct view v = {0}, before = {0};
	int status = 0;
	if (out_open(&out, opt->output, &err) < 0)
		sp_die(&err, NULL);
	enter_sandbox(opt, &out);
	struct sp_spool *spool = open_spool(opt->input, &out);
	if (opt->diff) {
		old = open_spool(opt->diff, &out);
		status = view_init(&before, old, opt, &err);
	}
	if (status >= 0)
		status = view_init(&v, spool, opt, &err);
	v.before = old ? &before : NULL;
	if (status >= 0)
		status = show(&v, &out, &err);
	view_deinit(&v);
	view_deinit(&before);
	if (status < 0) {
		out_discard(&out);
		sp_die(&err, NULL);
	}
	status = check_whole(opt->input, spool, status);
	if (old)
		status = check_whole(opt->diff, old, status);
	sp_spool_close(old);
	sp_spool_close(spool);
	return status;
}

/* A second, less when a signal comes. */
static void wait_a_second(void)
{
	struct pollfd p = {.fd = sp_stop_fd(), .events = POLLIN};
	poll(&p, 1, 1000);
}

/* --follow: until the recording has ended. Meanwhile a terminal shows the view anew each second,
 * and a file is written anew; on a pipe, where nothing can be taken back, only the last one goes
 * out. */
static int follow(const struct view_options *opt)
{
	bool is_file = opt->output && strcmp(opt->output, "-") != 0;
	bool on_terminal = !is_file && isatty(STDOUT_FILENO);
	struct sp_spool *spool = NULL;
	struct sp_err err;
	bool said = false, whole = false;
	while (!whole && !sp_stop_level()) {
		int r = spool ? sp_spool_refresh(spool, &err)
			      : sp_spool_open(&spool, opt->input, &err);
		/* sp-spool gives a new file its name with the first data. */
		if (r < 0 && (spool || access(opt->input, F_OK) == 0))
			sp_die(&err, NULL);
		if (r < 0 && !said)
			sp_note("waiting for %s", opt->input);
		said = true;
		whole = spool && sp_spool_state(spool) != SP_SPOOL_INCOMPLETE;
		if (spool && !whole && (on_terminal || is_file)) {
			if (on_terminal && write(STDOUT_FILENO, "\033[H\033[2J", 7) != 7)
				break;
			run(opt);
		}
		if (!whole)
			wait_a_second();
	}
	sp_spool_close(spool);
	if (on_terminal && write(STDOUT_FILENO, "\033[H\033[2J", 7) != 7)
		return SP_EXIT_FAILED;
	return run(opt);
}

static int name_addresses(const struct view_options *opt)
{
	const char *write_dir = cache_path(opt);
	struct sp_symfile_options o = {.debug = {opt->resolver.debug_dirs,
						 opt->resolver.n_debug_dirs,
						 opt->resolver.fetch_debug, NULL},
				       .cache = opt->resolver.cache};
	sp_sandbox_enter(&(struct sp_sandbox){.write_dirs = &write_dir, .n_write_dirs = 1});
	return sym_exe_main(opt->exe, &o, opt->operands, opt->n_operands);
}

static void show_progress(struct view_options *opt)
{
	opt->resolver.progress = progress;
	sp_debuginfod_tell(fetching);
}

/* --symbolizer: before the sandbox, which it could not leave. */
static void start_command(struct view_options *opt)
{
	struct sp_err err;
	if (!opt->symbolizer || opt->format->no_names)
		return;
	if (command_start(&opt->command, opt->symbolizer, opt->resolver.no_inline, &err) < 0)
		sp_die(&err, NULL);
	opt->resolver.native = command_factory(opt->command);
}

int main(int argc, char **argv)
{
	struct view_options opt;
	struct stat st;
	int status;
	sp_heap_prepare();
	options_parse(&opt, argc, argv);
	bool from_stdin = !opt.exe && !strcmp(opt.input, "-");
	if (from_stdin && isatty(STDIN_FILENO))
		sp_usage_error("name a spool, or pipe one in");
	bool piped = from_stdin && fstat(STDIN_FILENO, &st) == 0 && !S_ISREG(st.st_mode);
	if (!opt.no_cache && sp_cachedir_open(&opt.cache))
		opt.resolver.cache = &opt.cache;
	if ((opt.exe || !opt.format->no_names) && sp_debuginfod_start(opt.debuginfod))
		opt.resolver.fetch_debug = sp_debuginfod_fetch;
	if (opt.exe) {
		status = name_addresses(&opt);
	} else {
		sp_stop_install(piped ? SP_STOP_PIPE : SP_STOP_FIRST);
		clock_gettime(CLOCK_MONOTONIC, &progress_start);
		if (isatty(STDERR_FILENO) && sp_verbosity >= 0)
			show_progress(&opt);
		start_command(&opt);
		if (opt.format->scratch)
			opt.scratch_fd = scratch_open(opt.output);
		status = opt.follow ? follow(&opt) : run(&opt);
	}
	options_deinit(&opt);
	return status;
}
