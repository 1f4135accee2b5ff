/* What -o names: standard output, a perf.data file, or a spool behind the rest of the pipeline,
 * which is run here. */
#ifndef CAP_SINK_H
#define CAP_SINK_H

#include <sys/types.h>

#include "options.h"

struct cap_sink {
	int fd;           /* where the stream goes; owned unless it is standard output */
	const char *name; /* for messages; borrowed */
	const char *file; /* made here, or NULL; borrowed */
	pid_t stages[2];  /* sp-unwind, sp-spool; 0 = none */
};

/* argv0: where the siblings are looked for, after the folder of our own binary and before PATH. */
int cap_sink_open(struct cap_sink *k, const struct cap_options *o, const char *argv0,
		  struct sp_err *err);
/* Nothing was recorded: end the stages before they say so, or put an empty spool in the place of
 * one that is there, which stays whose it is. */
void cap_sink_drop_stages(struct cap_sink *k);
/* Close it, wait for the stages, give the file to the user behind sudo. The worst exit status of
 * the stages (0, 1, 3; a stage that a signal ended: 1). */
int cap_sink_close(struct cap_sink *k);

#endif
