/* --rotate: what a file needs of those before it, so that it can be read alone: the markers and
 * embedded files of the processes that still run. */
#ifndef SPOOL_CARRY_H
#define SPOOL_CARRY_H

#include "intern.h"

struct spool_carry {
	struct sp_spool_exec *exec; /* owned, with their command lines */
	size_t n_exec, cap_exec;
	struct sp_spool_object *object; /* owned, with their paths, build-ids and bytes */
	size_t n_object, cap_object;
};

void spool_carry_deinit(struct spool_carry *c);
/* Copies; false when memory ends. */
bool spool_carry_exec(struct spool_carry *c, const struct sp_spool_exec *e);
bool spool_carry_object(struct spool_carry *c, const struct sp_spool_object *o);
/* Put what is still needed into the intern's writer, and forget the rest. */
int spool_carry_put(struct spool_carry *c, const struct spool_intern *x, struct sp_err *err);

#endif
