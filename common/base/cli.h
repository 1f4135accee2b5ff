/* What the tools share at their edge: options, help, messages, exit status. Only main.c files and
 * this module print or exit. */
#ifndef SP_BASE_CLI_H
#define SP_BASE_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/moment.h"

#define SP_VERSION "0.1.0"

enum sp_exit {
	SP_EXIT_OK = 0,
	SP_EXIT_FAILED = 1,
	SP_EXIT_USAGE = 2,
	SP_EXIT_PARTIAL = 3, /* finished, but the input was cut or damaged */
};

struct sp_opt {
	const char *name; /* long name without dashes; NULL ends the table */
	char letter;      /* 0 = none */
	const char *arg;  /* name of the argument in the help; NULL = takes none; "[=NAME]" = only
			   * after a "=", and NULL without */
	const char *help; /* may hold newlines; NULL hides the option */
};

struct sp_cli {
	const char *tool;     /* "sp-capture" */
	const char *synopsis; /* lines after "Usage: " */
	const char *about;    /* one or two sentences */
	const struct sp_opt *opts;
	const char *examples; /* last part of the help */
	bool permutes;        /* options may stand behind operands */
	/* state of sp_cli_next */
	int argc, at, cluster, n_operands;
	char **argv;
};

#define SP_CLI_END (-1)

/* Begin; --help, --version, -q, -v and --stats=json are handled by sp_cli_next for all tools. */
void sp_cli_init(struct sp_cli *cli, int argc, char **argv);

/* The index in opts of the next option, *arg its argument (NULL when it takes none); SP_CLI_END at
 * the first operand or after "--", whose index in argv is then cli->at. With cli->permutes it comes
 * when all options were given; argv is put in another order then. Exits 2 on a wrong one. */
int sp_cli_next(struct sp_cli *cli, const char **arg);

/* "sp-x: MESSAGE" on stderr and exit 2, with a hint at --help. */
_Noreturn void sp_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "sp-x: cannot …: why" and exit 1. cure (may be NULL) goes on a second line. */
_Noreturn void sp_die(const struct sp_err *err, const char *cure);

/* One line on stderr, prefixed by the tool's name. Levels: warnings always, notes unless -q,
 * details with -v, debugging with -vv. */
void sp_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sp_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sp_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern int sp_verbosity;    /* -1 with -q, 0, 1 with -v, 2 with -vv */
extern bool sp_stats_json;  /* --stats=json: the closing line as one JSON object */

/* Numbers in options: whole text or usage error naming the option. */
uint64_t sp_arg_u64(const char *option, const char *text, uint64_t min, uint64_t max);
/* Bytes with an optional suffix K, M or G (powers of 1024). */
uint64_t sp_arg_size(const char *option, const char *text, uint64_t max);
/* Seconds with fractions and an optional suffix us, ms, s, m or h; in ns. */
uint64_t sp_arg_time_ns(const char *option, const char *text);

/* "FROM..TO", each end may be missing; exits 2 on anything else, also when it is empty. */
void sp_arg_moments(const char *option, const char *text, struct sp_moment *from,
		    struct sp_moment *to);

/* Flush and close stdout; exit status 1 with a message when that fails and status was less bad. */
int sp_finish_stdout(int status);

#endif
