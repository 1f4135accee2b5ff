/* --check: what would work here and why not. */
#ifndef CAP_CHECK_H
#define CAP_CHECK_H

#include "options.h"

/* Print the report to standard output; the exit status: 0 when the asked-for recording would work,
 * else 1. */
int cap_check(const struct cap_options *o);

#endif
