#include "base/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

int sp_verbosity;
bool sp_stats_json;
static const char *tool = "stackpulse";

static const struct sp_opt common_opts[] = {
	{"quiet", 'q', NULL, "say nothing but errors and warnings"},
	{"verbose", 'v', NULL, "say more; twice: still more"},
	{"stats", 0, "json", "the closing line as one JSON object"},
	{"help", 'h', NULL, "this text"},
	{"version", 'V', NULL, "the version"},
	{0},
};

/* Names come from recordings and from other users' programs: what a terminal would obey is shown as
 * the views show it. */
static void tame(char *line, bool has_lines)
{
	for (unsigned char *p = (unsigned char *)line; *p; p++) {
		bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
		if ((*p < 0x20 && *p != '\t' && !(has_lines && *p == '\n')) || *p == 0x7f)
			*p = '?';
		else if (c1)
			p[0] = p[1] = '?';
	}
}

__attribute__((format(printf, 1, 0))) static void vsay(const char *fmt, va_list ap)
{
	char line[2048];
	int n = snprintf(line, sizeof line, "%s: ", tool);
	vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	tame(line, strchr(fmt, '\n') != NULL); /* the format's own are ours */
	strcat(line, "\n");
	fputs(line, stderr); /* one call, so that lines of several stages do not mix */
}

#define SAY(name, level)                                                                           \
	void name(const char *fmt, ...)                                                            \
	{                                                                                          \
		if (sp_verbosity < (level))                                                        \
			return;                                                                    \
		va_list ap;                                                                        \
		va_start(ap, fmt);                                                                 \
		vsay(fmt, ap);                                                                     \
		va_end(ap);                                                                        \
	}
SAY(sp_warn, -1)
SAY(sp_note, 0)
SAY(sp_detail, 1)

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsay(fmt, ap);
	va_end(ap);
}

void sp_usage_error(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsay(fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: see '%s --help'\n", tool, tool);
	exit(SP_EXIT_USAGE);
}

void sp_die(const struct sp_err *err, const char *cure)
{
	say("%s", err->msg);
	if (cure)
		say("%s", cure);
	exit(SP_EXIT_FAILED);
}

/* A file that is opened while one of the three is closed would get its number, and messages would
 * go into a recording. What stands there instead cannot be read, or written, as before. */
static void fill_standard(void)
{
	static const int how[] = {O_WRONLY, O_RDONLY, O_WRONLY};
	for (int i = 0; i < 3; i++)
		if (fcntl(i, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", how[i]);
}

void sp_cli_init(struct sp_cli *cli, int argc, char **argv)
{
	tool = cli->tool;
	cli->argc = argc;
	cli->argv = argv;
	cli->at = 1;
	cli->cluster = 0;
	cli->n_operands = 0;
	fill_standard();
	sp_map_guard();
	/* A message is one write even when several stages share the terminal. */
	static char buffer[4096];
	setvbuf(stderr, buffer, _IOLBF, sizeof buffer);
}

static bool is_optional(const struct sp_opt *o)
{
	return o->arg && o->arg[0] == '[';
}

static void print_opts(const struct sp_opt *o)
{
	for (; o->name; o++) {
		if (!o->help)
			continue;
		char head[80];
		int n = o->letter ? snprintf(head, sizeof head, "  -%c, --%s", o->letter, o->name)
				  : snprintf(head, sizeof head, "      --%s", o->name);
		if (o->arg)
			snprintf(head + n, sizeof head - (size_t)n, "%s%s",
				 is_optional(o) ? ""
				 : o->letter    ? " "
						: "=",
				 o->arg);
		const char *text = o->help;
		if (strlen(head) > 28)
			printf("%s\n%30s", head, "");
		else
			printf("%-30s", head);
		for (const char *nl; (nl = strchr(text, '\n')); text = nl + 1)
			printf("%.*s\n%30s", (int)(nl - text), text, "");
		printf("%s\n", text);
	}
}

static _Noreturn void print_help(const struct sp_cli *cli)
{
	printf("Usage: %s\n\n%s\n\nOptions:\n", cli->synopsis, cli->about);
	print_opts(cli->opts);
	print_opts(common_opts);
	if (cli->examples)
		printf("\n%s\n", cli->examples);
	exit(sp_finish_stdout(SP_EXIT_OK));
}

static void do_common(const struct sp_cli *cli, const struct sp_opt *o, const char *arg)
{
	switch (o - common_opts) {
	case 0:
		sp_verbosity = -1;
		break;
	case 1:
		sp_verbosity++;
		break;
	case 2:
		if (strcmp(arg, "json") != 0)
			sp_usage_error("--stats takes json, not '%s'", arg);
		sp_stats_json = true;
		break;
	case 3:
		print_help(cli);
	default:
		printf("%s %s\n", cli->tool, SP_VERSION);
		exit(sp_finish_stdout(SP_EXIT_OK));
	}
}

static const struct sp_opt *find_long(const struct sp_opt *o, const char *name, size_t len)
{
	for (; o->name; o++)
		if (strlen(o->name) == len && !memcmp(o->name, name, len))
			return o;
	return NULL;
}

static const struct sp_opt *find_letter(const struct sp_opt *o, char letter)
{
	for (; o->name; o++)
		if (o->letter && o->letter == letter)
			return o;
	return NULL;
}

/* One option from argv: sets *arg and moves on. */
static const struct sp_opt *take(struct sp_cli *cli, const char **arg)
{
	const char *word = cli->argv[cli->at];
	const struct sp_opt *o;
	const char *value = NULL;
	if (cli->cluster == 0 && word[1] == '-') {
		const char *eq = strchr(word, '=');
		size_t len = eq ? (size_t)(eq - word) - 2 : strlen(word) - 2;
		o = find_long(cli->opts, word + 2, len);
		if (!o)
			o = find_long(common_opts, word + 2, len);
		if (!o)
			sp_usage_error("unknown option '%.*s'", (int)len + 2, word);
		if (eq && !o->arg)
			sp_usage_error("--%s takes no argument", o->name);
		value = eq ? eq + 1 : NULL;
		cli->at++;
	} else {
		char letter = word[1 + cli->cluster];
		o = find_letter(cli->opts, letter);
		if (!o)
			o = find_letter(common_opts, letter);
		if (!o)
			sp_usage_error("unknown option '-%c'", letter);
		const char *rest = word + 2 + cli->cluster;
		if (*rest && !o->arg) {
			cli->cluster++;
		} else {
			value = *rest ? rest : NULL;
			cli->cluster = 0;
			cli->at++;
		}
	}
	if (o->arg && !value && !is_optional(o)) {
		if (cli->at >= cli->argc)
			sp_usage_error("--%s needs an argument: %s", o->name, o->arg);
		value = cli->argv[cli->at++];
	}
	*arg = value;
	return o;
}

/* The operands that were passed over stand at argv[1…]; they go to where the rest begins. */
static int end_options(struct sp_cli *cli)
{
	cli->at -= cli->n_operands;
	memmove(cli->argv + cli->at, cli->argv + 1, (size_t)cli->n_operands * sizeof *cli->argv);
	cli->n_operands = 0;
	return SP_CLI_END;
}

int sp_cli_next(struct sp_cli *cli, const char **arg)
{
	while (cli->at < cli->argc) {
		char *word = cli->argv[cli->at];
		if (word[0] != '-' || !word[1]) {
			if (!cli->permutes)
				return SP_CLI_END;
			cli->argv[1 + cli->n_operands++] = word;
			cli->at++;
			continue;
		}
		if (!strcmp(word, "--")) {
			cli->at++;
			return end_options(cli);
		}
		const struct sp_opt *o = take(cli, arg);
		if (o >= common_opts && o < common_opts + sizeof common_opts / sizeof *common_opts)
			do_common(cli, o, *arg);
		else
			return (int)(o - cli->opts);
	}
	return end_options(cli);
}

uint64_t sp_arg_u64(const char *option, const char *text, uint64_t min, uint64_t max)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || v < min || v > max)
		sp_usage_error("%s: '%s' is not a whole number from %llu to %llu", option, text,
			       (unsigned long long)min, (unsigned long long)max);
	return v;
}

uint64_t sp_arg_size(const char *option, const char *text, uint64_t max)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	unsigned shift = 0;
	if (*end == 'K' || *end == 'k')
		shift = 10;
	else if (*end == 'M' || *end == 'm')
		shift = 20;
	else if (*end == 'G' || *end == 'g')
		shift = 30;
	if (shift)
		end++;
	if (text[0] < '0' || text[0] > '9' || *end || errno || v > max >> shift)
		sp_usage_error("%s: '%s' is not a size up to %llu bytes (suffixes K, M, G)", option,
			       text, (unsigned long long)max);
	return (uint64_t)v << shift;
}

uint64_t sp_arg_time_ns(const char *option, const char *text)
{
	char *end;
	errno = 0;
	double v = strtod(text, &end);
	double unit = 1e9;
	if (!strcmp(end, "us"))
		unit = 1e3;
	else if (!strcmp(end, "ms"))
		unit = 1e6;
	else if (!strcmp(end, "m"))
		unit = 60e9;
	else if (!strcmp(end, "h"))
		unit = 3600e9;
	else if (*end && strcmp(end, "s") != 0)
		unit = 0;
	bool digit = text[0] == '.' || (text[0] >= '0' && text[0] <= '9');
	if (!digit || text[1] == 'x' || errno || unit == 0 || !(v >= 0 && v * unit < 9e18))
		sp_usage_error("%s: '%s' is not a time (seconds, or with us, ms, s, m, h)", option,
			       text);
	return (uint64_t)(v * unit);
}

static struct sp_moment arg_moment(const char *option, const char *text, size_t len)
{
	char word[64];
	struct sp_moment m = {SP_MOMENT_OPEN, 0};
	if (!len)
		return m;
	if (len >= sizeof word)
		sp_usage_error("%s: '%s' is too long", option, text);
	memcpy(word, text, len);
	word[len] = 0;
	m.kind = word[0] == '@' ? SP_MOMENT_EPOCH : SP_MOMENT_RELATIVE;
	m.ns = sp_arg_time_ns(option, word + (word[0] == '@'));
	return m;
}

void sp_arg_moments(const char *option, const char *text, struct sp_moment *from,
		    struct sp_moment *to)
{
	const char *dots = strstr(text, "..");
	if (!dots)
		sp_usage_error("%s: '%s' is not FROM..TO", option, text);
	*from = arg_moment(option, text, (size_t)(dots - text));
	*to = arg_moment(option, dots + 2, strlen(dots + 2));
	if (from->kind == to->kind && from->kind != SP_MOMENT_OPEN && from->ns >= to->ns)
		sp_usage_error("%s: '%s' is empty", option, text);
}

int sp_finish_stdout(int status)
{
	bool failed = ferror(stdout) != 0;
	errno = 0;
	if (fflush(stdout) != 0 || failed) {
		fprintf(stderr, "%s: cannot write standard output: %s\n", tool,
			errno ? strerror(errno) : "write error");
		return SP_EXIT_FAILED;
	}
	return status;
}
