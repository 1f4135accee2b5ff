/* The command line of sp-sym. */
#ifndef SYM_OPTIONS_H
#define SYM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/moment.h"
#include "elf/debuginfod.h"
#include "sym/cachedir.h"
#include "sym/resolver.h"

enum view_weight { WEIGHT_DEFAULT, WEIGHT_SAMPLES, WEIGHT_WEIGHT, WEIGHT_TIME };
enum view_group { GROUP_DEFAULT, GROUP_NONE, GROUP_PROCESS, GROUP_THREAD, GROUP_COMM, GROUP_POOL,
		  GROUP_CONTAINER, GROUP_STATE, GROUP_WAKER };

struct view_words {     /* arguments of a repeated option; borrowed from argv */
	const char **v; /* owned */
	size_t n, cap;
};

struct view_ids {
	int64_t *v; /* owned */
	size_t n, cap;
};

struct view_options {
	const char *input, *output; /* "-" = standard input; output NULL = standard output */
	const struct view_format *format;
	const char *diff; /* the spool to compare with, or NULL */
	const char *exe;

	struct sp_moment from, to;
	struct view_ids pids, tids, perf_map_pids;
	struct view_words comms, events, modules, functions, files;
	bool kernel_only, user_only, hide_runtime, reverse, by_line, sort_total;
	enum view_weight weight;
	bool stacks_table; /* of jsonl */
	enum view_group group;
	double min_percent;           /* < 0 = the format's own */
	double require;               /* < 0 = not asked */
	bool follow;                  /* the view anew each second, until the recording ends */
	uint64_t limit, depth, width; /* 0 = the format's own; limit UINT64_MAX = all */

	struct view_words path_maps, debug_dirs;
	char *spool_dir; /* owned: what resolver.spool_dir points into */
	char *env_dirs;  /* owned: the words of STACKPULSE_DEBUG_DIRS */
	bool no_cache;
	struct sp_cachedir cache; /* open, unless no_cache: what resolver.cache points to */
	const char *symbolizer;  /* the command of --symbolizer, or NULL */
	struct command *command; /* owned: that, running; or NULL */
	int scratch_fd;          /* owned: for what formats put aside (scratch.h); or -1 */
	struct sp_resolver_options resolver;
	enum sp_debuginfod_mode debuginfod;
	char **operands; /* after the input: addresses of --exe */
	size_t n_operands;
};

/* Parses, or exits with a message. */
void options_parse(struct view_options *opt, int argc, char **argv);
void options_deinit(struct view_options *opt);

#endif
