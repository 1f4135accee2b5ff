/* Where a spool goes: a new file that takes its name once its first data is safe, the end of an
 * existing spool, or a stream. */
#ifndef SPOOL_OUTPUT_H
#define SPOOL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct spool_output {
	int fd;
	char *path;   /* owned; the name to have, NULL for standard output */
	char *tmp;    /* owned; the name so far, NULL when it has its own or none */
	bool unnamed; /* has no name yet: it goes away with us */
	char *dir;    /* owned; the folder that is written to, or NULL */
	bool regular; /* a file that can be cut back */
	bool emptied; /* in place: the old content is gone */
	bool in_place, sync, failed;
	uint64_t whole; /* offset behind the last whole block */
	unsigned n_writes;
};

/* path "-": standard output. append: the file is there, and nobody else writes to it from now on;
 * where it goes on, spool_output_cut says. */
int spool_output_open(struct spool_output *o, const char *path, bool append, bool sync,
		      struct sp_err *err);
int spool_output_cut(struct spool_output *o, uint64_t end, struct sp_err *err);
/* A writer's sink. ctx: the output. What was written before a failure stays a valid spool. */
int spool_output_sink(void *ctx, const void *bytes, size_t n, struct sp_err *err);
/* Everything to the disk, and the file to its name. */
int spool_output_finish(struct spool_output *o, struct sp_err *err);
/* Without finish: a file that never got its name goes away. */
void spool_output_close(struct spool_output *o);

#endif
