/* The filter as a whole: records in, records out. */
#ifndef SP_UNWIND_PIPELINE_H
#define SP_UNWIND_PIPELINE_H

#include "base/counters.h"
#include "modules.h"
#include "perf/reader.h"
#include "worker.h"

struct un_options {
	const char *input;  /* NULL: standard input */
	bool input_is_pipe; /* signals: only the second SIGINT ends it */
	int out_fd;
	const char *out_name; /* for messages */
	bool as_file;         /* write a perf.data file */
	unsigned n_workers;   /* >= 1 */
	bool has_n_workers;   /* it was asked for: they start at once */
	struct un_modules_options modules;
};

struct un_result {
	struct sp_counters counters;
	struct un_stops stops;
	enum sp_input_state state;
	char complaint[300]; /* what was wrong with the input; "" */
	uint64_t n_samples, n_walked;
	uint64_t worker_ns; /* CPU time of what -j shares */
	unsigned n_by_path;
	bool stopped; /* by a signal */
	bool is_ours;
	bool had_stacks; /* some event of the input copies registers or stacks */
	bool had_chains; /* some sample came with a call chain */
	/* Paths of the files in stops, by tag; owned. */
	char **paths;
	size_t n_paths;
};

/* Run. 0, also for cut and damaged input (result->state); an error when nothing useful can be
 * written: then the output is not whole. *result is to be deinit'ed in both cases. */
int un_run(const struct un_options *o, struct un_result *result, struct sp_err *err);
void un_result_deinit(struct un_result *r);

#endif
