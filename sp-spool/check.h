/* sp-spool --check: is a spool whole, incomplete or damaged, and where. */
#ifndef SPOOL_CHECK_H
#define SPOOL_CHECK_H

/* Says it on standard output; an exit status. */
int spool_check(const char *path);

#endif
