/* sp-spool: a perf stream with call chains into a spool; several spools into one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/sandbox.h"
#include "base/stop.h"
#include "check.h"
#include "merge.h"
#include "output.h"
#include "stream.h"

enum {
	OPT_OUTPUT,
	OPT_APPEND,
	OPT_ROTATE,
	OPT_CUT,
	OPT_ONLY,
	OPT_RESOLUTION,
	OPT_SYNC,
	OPT_LEVEL,
	OPT_MIN_FREE,
	OPT_CHECK,
};

static const struct sp_opt opts[] = {
	{"output", 'o', "FILE", "where the spool goes; - is standard output"},
	{"append", 'a', NULL, "go on behind what FILE holds already"},
	{"rotate", 0, "SIZE|TIME",
	 "begin another file after so much (100M, 10m): FILE.0001.spool, …;\neach can be read alone"},
	{"cut", 0, "FROM..TO",
	 "only samples of that time: seconds from the first one, or @EPOCH;\neither end may be left out"},
	{"only", 0, "WHAT",
	 "only samples of pid=N,… or tid=N,… or comm=PATTERN,…; all of them\nwhen given several times"},
	{"time-resolution", 0, "TIME",
	 "round times down to TIME (1us, 100us, 1ms): smaller files;\nthe spool tells it (default 1ns)"},
	{"sync", 0, NULL, "each block to the disk at once, not only at the end"},
	{"level", 0, "N", "effort of compression, 1 to 19 (default 7)"},
	{"min-free", 0, "SIZE",
	 "of a stream: end with status 3 when the file system has less than\nthis left (500M, 2G)"},
	{"check", 0, "FILE", "say whether a spool is whole, incomplete or damaged, and where"},
	{0},
};

static struct sp_cli cli = {
	.tool = "sp-spool",
	.synopsis = "sp-spool [options] [-o FILE] [STREAM | SPOOL…]\n"
		    "       sp-spool --check SPOOL",
	.about = "Writes a perf stream with call chains (standard input, or a perf.data file) as a spool, a\n"
		 "compact profile that sp-sym reports from. Several spools are merged into one.",
	.opts = opts,
	.examples = "Examples:\n"
		    "  sp-capture -p 4711 | sp-unwind | sp-spool -o out.spool\n"
		    "  sp-unwind perf.data | sp-spool -o - | sp-sym -\n"
		    "  sp-spool monday.spool tuesday.spool -o both.spool\n"
		    "  sp-spool --cut 10..20 --only pid=4711 long.spool -o part.spool\n"
		    "\nExit status: 0 complete, 1 failed, 2 usage, 3 the input was cut or damaged,\n"
		    "or the disk was nearly full.",
};

struct options {
	const char *output, *check;
	bool append, sync;
	uint64_t resolution_ns;
	int level;
	uint64_t rotate_bytes, rotate_ns, min_free_bytes;
	struct spool_filter filter;
	const char **input;
	size_t n_input;
};

/* A time of at least 1 ns and at most 1 s with a unit. */
static uint64_t arg_resolution(const char *text)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (text[0] >= '0' && text[0] <= '9' && !strcmp(end, units[i].unit) && !errno &&
		    v >= 1 && v <= 1000000000 / units[i].ns)
			return v * units[i].ns;
	sp_usage_error("--time-resolution: '%s' is not a time from 1ns to 1s (like 1us)", text);
}

static void arg_rotate(struct options *o, const char *text)
{
	size_t n = strlen(text);
	o->rotate_bytes = o->rotate_ns = 0;
	if (n && strchr("KMG", text[n - 1]))
		o->rotate_bytes = sp_arg_size("--rotate", text, UINT64_C(1) << 50);
	else if (n && strchr("smh", text[n - 1]))
		o->rotate_ns = sp_arg_time_ns("--rotate", text);
	if (!o->rotate_bytes && !o->rotate_ns)
		sp_usage_error("--rotate: '%s' is neither a size (100M) nor a time (30s, 10m, 1h)",
			       text);
}

/* Options may stand between and behind the inputs. */
static void parse(struct options *o, int argc, char **argv)
{
	o->input = calloc((size_t)argc + 1, sizeof *o->input);
	if (!o->input)
		sp_die(&(struct sp_err){.msg = "out of memory"}, NULL);
	sp_cli_init(&cli, argc, argv);
	bool only_operands = false;
	while (cli.at < argc) {
		const char *arg;
		int before = cli.at, which = only_operands ? SP_CLI_END : sp_cli_next(&cli, &arg);
		switch (which) {
		case OPT_OUTPUT:
			o->output = arg;
			break;
		case OPT_APPEND:
			o->append = true;
			break;
		case OPT_ROTATE:
			arg_rotate(o, arg);
			break;
		case OPT_CUT:
			spool_filter_cut(&o->filter, arg);
			break;
		case OPT_ONLY:
			spool_filter_only(&o->filter, arg);
			break;
		case OPT_RESOLUTION:
			o->resolution_ns = arg_resolution(arg);
			break;
		case OPT_SYNC:
			o->sync = true;
			break;
		case OPT_LEVEL:
			o->level = (int)sp_arg_u64("--level", arg, 1, 19);
			break;
		case OPT_MIN_FREE:
			o->min_free_bytes = sp_arg_size("--min-free", arg, UINT64_C(1) << 60);
			break;
		case OPT_CHECK:
			o->check = arg;
			break;
		default:
			if (cli.at > before && cli.at <= argc && !strcmp(argv[cli.at - 1], "--"))
				only_operands = true;
			if (cli.at < argc)
				o->input[o->n_input++] = argv[cli.at++];
		}
	}
}

/* "-": standard input, when it is a file; of a pipe nothing can be read twice. */
static bool is_spool(const char *path)
{
	uint8_t head[8];
	int fd = strcmp(path, "-") ? sp_file_open(path, 0, NULL) : dup(STDIN_FILENO);
	bool yes = fd >= 0 && pread(fd, head, sizeof head, 0) == sizeof head &&
		   !memcmp(head, SP_SPOOL_MAGIC, sizeof head);
	if (fd >= 0)
		close(fd);
	return yes;
}

/* With --append: a file that holds something. */
static bool goes_on(const struct options *o)
{
	struct stat st;
	return o->append && (stat(o->output, &st) == 0 ? !S_ISREG(st.st_mode) || st.st_size
						       : errno != ENOENT);
}

/* The file to append to, opened to learn how it goes on; its facts must outlive the stream. */
static struct sp_spool *open_old(const struct options *o, struct sp_spool_wopts *w)
{
	struct sp_spool *old;
	struct sp_err err;
	if (sp_spool_open(&old, o->output, &err) < 0)
		sp_die(&err, "only spools can be appended to");
	w->salt = sp_spool_salt(old);
	w->seq = sp_spool_next_seq(old);
	w->epoch = (uint32_t)sp_spool_n_epochs(old);
	return old;
}

/* What is not exported by the name of a counter's number. */
static unsigned long long of(const struct sp_counters *c, enum sp_counter which)
{
	return c->v[which];
}

static void say_json(const struct sp_counters *c, uint64_t samples, uint64_t bytes, int status)
{
	fprintf(stderr, "{\"stage\":\"sp-spool\",\"status\":%d,\"bytes\":%llu", status,
		(unsigned long long)bytes);
	for (unsigned i = 0; i < SP_N_COUNTERS; i++)
		if (sp_counter_known(c, i) && i != SP_C_samples)
			fprintf(stderr, ",\"%s\":%llu", sp_counter_name(i), of(c, i));
	fprintf(stderr, ",\"samples\":%llu}\n", (unsigned long long)samples);
}

/* The closing line: what was written, what is missing, what to do next. */
static void say_end(const char *file, const struct sp_counters *c, uint64_t samples,
		    uint64_t bytes, uint64_t left_out, int status)
{
	if (sp_stats_json) {
		say_json(c, samples, bytes, status);
		return;
	}
	char text[600];
	int n = snprintf(text, sizeof text, "%llu samples, %llu bytes", (unsigned long long)samples,
			 (unsigned long long)bytes);
	if (samples)
		n += snprintf(text + n, sizeof text - (size_t)n, " (%.1f per sample)",
			      (double)bytes / (double)samples);
	n += snprintf(text + n, sizeof text - (size_t)n, ", %llu lost", of(c, SP_C_lost_events));
	if (of(c, SP_C_rejected_samples))
		n += snprintf(text + n, sizeof text - (size_t)n, ", %llu not readable",
			      of(c, SP_C_rejected_samples));
	if (of(c, SP_C_truncated_frame_markers))
		n += snprintf(text + n, sizeof text - (size_t)n, ", %llu stop before their root",
			      of(c, SP_C_truncated_frame_markers));
	if (of(c, SP_C_not_unwound_samples))
		snprintf(text + n, sizeof text - (size_t)n,
			 "; %llu have stacks that nobody unwound: put sp-unwind in front",
			 of(c, SP_C_not_unwound_samples));
	else if (!samples)
		snprintf(text + n, sizeof text - (size_t)n, "; %s",
			 left_out ? "no sample is what --cut and --only ask for"
				  : "the process was idle? record longer, or with --off-cpu");
	else if (strcmp(file, "-") != 0)
		snprintf(text + n, sizeof text - (size_t)n, "; next: sp-sym %.200s", file);
	sp_note("%s", text);
}

/* A write failed: what is there stays valid. */
static _Noreturn void die_writing(struct spool_output *out, const struct sp_spool_writer *w,
				  const struct sp_err *err)
{
	char cure[200] = "";
	if (out->failed && out->regular && !out->tmp && !out->unnamed &&
	    sp_spool_written_bytes(w))
		snprintf(cure, sizeof cure,
			 "what was written before that is kept and can be read (%llu bytes)",
			 (unsigned long long)out->whole);
	else if (out->failed && err->os == EPIPE)
		snprintf(cure, sizeof cure, "the reader of the spool has ended");
	spool_output_close(out);
	sp_die(err, cure[0] ? cure : NULL);
}

static void enter_sandbox(const struct spool_output *out)
{
	const char *dirs[] = {out->dir};
	sp_sandbox_enter(&(struct sp_sandbox){.write_dirs = dirs, .n_write_dirs = 1});
}

struct job {
	const struct options *o;
	struct spool_output out;
	struct sp_spool_writer *w;
	struct sp_spool *old;    /* appended to */
	uint64_t samples, bytes; /* in files that are complete */
	uint64_t n_left_out;     /* by the filter */
	unsigned n_files;
	bool broken; /* the next file could not be begun */
	bool is_low; /* of room, as --min-free has it: */
	char low[200];
	char first_file[PATH_MAX];
};

/* With --rotate: NAME.spool is NAME.0001.spool, NAME.0002.spool, …; a name without a suffix gets
 * the number at its end. */
static void name_file(const struct options *o, unsigned number, char out[PATH_MAX])
{
	const char *slash = strrchr(o->output, '/'), *name = slash ? slash + 1 : o->output;
	const char *dot = strrchr(name, '.');
	if (!dot || dot == name)
		dot = name + strlen(name);
	snprintf(out, PATH_MAX, "%.*s.%04u%s", (int)(dot - o->output), o->output, number, dot);
}

static bool rotates(const struct options *o)
{
	return o->rotate_bytes || o->rotate_ns;
}

static int begin_file(struct job *j, struct sp_err *err)
{
	struct sp_spool_wopts w = {.sink = spool_output_sink, .ctx = &j->out,
				   .resolution_ns = j->o->resolution_ns, .level = j->o->level};
	if (getrandom(&w.salt, sizeof w.salt, 0) != sizeof w.salt)
		w.salt = (uint64_t)getpid();
	const char *path = j->o->output;
	char numbered[PATH_MAX];
	j->n_files++;
	if (rotates(j->o)) {
		name_file(j->o, j->n_files, numbered);
		path = numbered;
	} else {
		w.append = goes_on(j->o);
	}
	if (j->n_files == 1)
		snprintf(j->first_file, sizeof j->first_file, "%s", path);
	int rc = spool_output_open(&j->out, path, w.append, j->o->sync, err);
	if (rc == 0 && w.append) {
		j->old = open_old(j->o, &w);
		rc = spool_output_cut(&j->out, sp_spool_good_end(j->old), err);
	}
	return rc < 0 ? rc : sp_spool_writer_new(&j->w, &w, err);
}

static void begin(struct job *j, struct sp_err *err)
{
	if (begin_file(j, err) < 0)
		die_writing(&j->out, j->w, err);
}

/* The end record, and the file's name. */
static int end_file(struct job *j, const char *cut, struct sp_err *err)
{
	int rc = sp_spool_finish(j->w, cut, err);
	if (rc < 0)
		return rc;
	j->samples += sp_spool_written_samples(j->w);
	j->bytes += sp_spool_written_bytes(j->w);
	rc = spool_output_finish(&j->out, err);
	sp_spool_writer_free(j->w);
	j->w = NULL;
	return rc;
}

static int next_file(void *ctx, struct sp_spool_writer **w, struct sp_err *err)
{
	struct job *j = ctx;
	int rc = end_file(j, NULL, err);
	if (rc == 0)
		rc = begin_file(j, err);
	*w = j->w;
	j->broken = rc < 0;
	return rc;
}

static bool is_low(void *ctx)
{
	struct job *j = ctx;
	uint64_t free_bytes, size_bytes;
	if (!j->out.regular || !sp_disk_room(NULL, j->out.fd, &free_bytes, &size_bytes) ||
	    free_bytes >= j->o->min_free_bytes)
		return false;
	snprintf(j->low, sizeof j->low,
		 "its file system has %llu MiB left, and %llu are to stay free (--min-free)",
		 (unsigned long long)(free_bytes >> 20),
		 (unsigned long long)(j->o->min_free_bytes >> 20));
	j->is_low = true;
	return true;
}

/* The last file's end, and the closing line. */
static int end(struct job *j, const struct sp_counters *c, const char *cut, struct sp_err *err)
{
	if (end_file(j, cut, err) < 0)
		die_writing(&j->out, j->w, err);
	int status = cut ? SP_EXIT_PARTIAL : SP_EXIT_OK;
	if (j->is_low)
		sp_warn("ended: %s: %s", j->o->output, cut);
	else if (cut)
		sp_warn("the input is incomplete: %s", cut);
	if (j->n_files > 1)
		sp_note("%u files, from %s", j->n_files, j->first_file);
	if (spool_filter_active(&j->o->filter))
		sp_note("%llu samples left out", (unsigned long long)j->n_left_out);
	say_end(j->first_file, c, j->samples, j->bytes, j->n_left_out, status);
	sp_spool_close(j->old);
	return status;
}

static int run_stream(struct options *o, bool from_file)
{
	struct job j = {.o = o};
	struct sp_err err = {0};
	const char *path = strcmp(o->input[0], "-") ? o->input[0] : NULL;
	if (!path && isatty(STDIN_FILENO))
		sp_usage_error("standard input is a terminal; try: sp-unwind perf.data | sp-spool -o "
			       "out.spool");
	begin(&j, &err);
	if (o->min_free_bytes && is_low(&j)) {
		spool_output_close(&j.out);
		sp_err_set(&err, SP_ERR_LIMIT, 0, "cannot write %s: %s", o->output, j.low);
		sp_die(&err, "make room there, or write elsewhere");
	}
	enter_sandbox(&j.out);
	struct spool_stream s;
	if (spool_stream_open(&s, path, j.old ? sp_spool_info(j.old) : NULL, &err) < 0) {
		spool_output_close(&j.out);
		sp_die(&err, NULL);
	}
	spool_stream_set_writer(&s, j.w);
	s.from_file = from_file;
	s.filter = spool_filter_active(&o->filter) ? &o->filter : NULL;
	s.next_file = rotates(o) ? next_file : NULL;
	s.next_ctx = &j;
	s.is_over = o->min_free_bytes ? is_low : NULL;
	s.rotate_bytes = o->rotate_bytes;
	s.rotate_ns = o->rotate_ns;
	uint64_t seed[2];
	if (getrandom(seed, sizeof seed, 0) != sizeof seed)
		seed[0] = seed[1] = (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15);
	int rc = spool_stream_run(&s, seed, &err);
	if (rc < 0 && (j.out.failed || j.broken || !s.info_put))
		die_writing(&j.out, j.w, &err);
	const char *cut = NULL;
	if (rc < 0)
		cut = err.msg; /* reading failed: what came before it is kept */
	else if (j.is_low)
		cut = j.low;
	else if (s.stopped)
		cut = "reading was stopped by a signal";
	else if (sp_reader_state(s.r) != SP_INPUT_WHOLE)
		cut = sp_reader_complaint(s.r);
	struct sp_counters c = spool_stream_counters(&s);
	if (s.objects_refused)
		sp_warn("%u embedded files were left out: together they are larger than 512 MiB",
			s.objects_refused);
	j.n_left_out = s.n_left_out;
	struct sp_err end_err = {0};
	int status = end(&j, &c, cut, &end_err);
	spool_stream_close(&s);
	return rc < 0 ? SP_EXIT_FAILED : status;
}

static int run_merge(struct options *o)
{
	struct job j = {.o = o};
	struct sp_err err = {0};
	char cut[500];
	struct sp_spool **in = calloc(o->n_input, sizeof(struct sp_spool *));
	if (!in)
		sp_die(&(struct sp_err){.msg = "out of memory"}, NULL);
	begin(&j, &err);
	enter_sandbox(&j.out);
	for (size_t i = 0; i < o->n_input; i++)
		if (sp_spool_open(&in[i], o->input[i], &err) < 0) {
			spool_output_close(&j.out);
			sp_die(&err, NULL);
		}
	struct spool_filter *filter = spool_filter_active(&o->filter) ? &o->filter : NULL;
	struct sp_counters c = {0};
	if (spool_merge(in, o->n_input, j.w, filter, &c, &j.n_left_out, cut, sizeof cut, &err) < 0)
		die_writing(&j.out, j.w, &err);
	for (size_t i = 0; i < o->n_input; i++)
		sp_spool_close(in[i]);
	free(in);
	return end(&j, &c, cut[0] ? cut : NULL, &err);
}

int main(int argc, char **argv)
{
	struct options o = {0};
	sp_heap_prepare();
	parse(&o, argc, argv);
	if (o.check && (o.n_input || o.output))
		sp_usage_error("--check takes one spool and nothing else");
	if (o.check) {
		free(o.input);
		return spool_check(o.check);
	}
	if (!o.output)
		o.output = "-";
	if (!strcmp(o.output, "-") && isatty(STDOUT_FILENO))
		sp_usage_error("a spool is not for a terminal; try: sp-spool -o out.spool");
	if (o.append && !strcmp(o.output, "-"))
		sp_usage_error("--append needs -o FILE");
	if (rotates(&o) && (o.append || !strcmp(o.output, "-")))
		sp_usage_error("--rotate needs -o FILE%s", o.append ? ", and goes without --append" : "");
	if (!o.n_input)
		o.input[o.n_input++] = "-";
	size_t n_spools = 0;
	for (size_t i = 0; i < o.n_input; i++)
		n_spools += is_spool(o.input[i]);
	if (n_spools != o.n_input && o.n_input > 1)
		sp_usage_error("takes one perf stream, or several spools: '%s' is no spool",
			       o.input[is_spool(o.input[0]) ? 1 : 0]);
	if (rotates(&o) && n_spools)
		sp_usage_error("--rotate is for a stream; of a spool, take parts with --cut");
	if (o.min_free_bytes && n_spools)
		sp_usage_error("--min-free is for a stream");
	struct stat st;
	bool from_file = strcmp(o.input[0], "-") || (fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode));
	sp_stop_install(from_file ? SP_STOP_FIRST : SP_STOP_PIPE);
	int status = n_spools ? run_merge(&o) : run_stream(&o, from_file);
	spool_filter_deinit(&o.filter);
	free(o.input);
	return status;
}
