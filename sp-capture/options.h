/* The command line of sp-capture as a value. */
#ifndef CAP_OPTIONS_H
#define CAP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum cap_output_kind {
	CAP_TO_STDOUT,
	CAP_TO_DATA,  /* -o FILE.data: a perf.data file */
	CAP_TO_SPOOL, /* -o FILE.spool: the rest of the pipeline is run */
};

enum cap_engine { CAP_ENGINE_AUTO, CAP_ENGINE_PERF, CAP_ENGINE_BPF };

enum cap_embed { CAP_EMBED_AUTO, CAP_EMBED_NONE, CAP_EMBED_ALL };

#define CAP_DEFAULT_HZ 999u
#define CAP_DEFAULT_STACK (60u << 10)
#define CAP_MAX_STACK 65528u

struct cap_options {
	int32_t *pids; /* owned; distinct */
	size_t n_pids, cap_pids;
	int32_t *tids; /* owned; distinct */
	size_t n_tids, cap_tids;
	int32_t *excluded; /* owned; distinct: what -a leaves out */
	size_t n_excluded, cap_excluded;
	char **command;       /* borrowed from argv, NULL-terminated; NULL = none */
	uint64_t rate_hz;     /* 0 = the kernel's maximum */
	uint32_t stack_bytes; /* a multiple of 8 */
	bool stack_given;
	bool off_cpu;
	uint64_t off_min_ns; /* shorter waits make no sample */
	enum cap_engine engine;
	bool kernel, follow, descendants, stop, check;
	bool all;                  /* every process, or every one of a control group */
	bool kernel_threads, idle; /* with all: not left out */
	bool has_duration, has_start_time;
	uint64_t duration_ns, delay_ns;
	uint64_t start_time_us, interval_us;
	uint64_t ring_bytes; /* 0 = sized from rate and stack */
	uint64_t max_bytes;  /* of what is written; 0 = no limit */
	bool has_min_free;
	uint64_t min_free_bytes; /* to be left on the file system */
	const char *event;   /* borrowed; NULL = cycles, else cpu-clock */
	const char *output;  /* borrowed; NULL = stdout */
	const char *control; /* borrowed; NULL = none */
	const char *cgroup;  /* borrowed; NULL = all of them */
	enum cap_output_kind output_kind;
	enum cap_embed embed;
};

/* Parse; exits 2 on a wrong line (through the CLI helper). */
void cap_options_parse(struct cap_options *o, int argc, char **argv);
void cap_options_deinit(struct cap_options *o);

/* --- the pure parts --- */

/* "12,34" appended to a list of distinct ids, each from 1 to INT32_MAX. False on anything else;
 * *bad is the offending part (not NUL-terminated, *bad_len bytes). */
bool cap_ids_parse(int32_t **ids, size_t *n, size_t *cap, const char *text, const char **bad,
		   size_t *bad_len);

/* Which output a file name asks for; -1 when its ending says neither. */
int cap_output_kind(const char *name);

#endif
