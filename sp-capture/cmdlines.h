/* Command lines of execs whose markers have not left yet: short processes are gone by then. They
 * are told by the exec itself (execs.h), read from /proc as soon as its record is seen in a ring,
 * or known before. */
#ifndef CAP_CMDLINES_H
#define CAP_CMDLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define CAP_CMDLINE_MAX (60u << 10)

enum cap_cmdline_source {
	CAP_CMDLINE_GIVEN, /* of the pid's next exec */
	CAP_CMDLINE_PROC,  /* read for the exec of this time */
	CAP_CMDLINE_EXEC,  /* of the end of an exec, whose record is a little older */
};

struct cap_cmdline {
	int32_t pid;
	enum cap_cmdline_source source;
	uint64_t time_ns;
	struct sp_buf args; /* owned; NUL-separated */
};

struct cap_cmdlines {
	struct cap_cmdline *v; /* owned; few: those of execs that wait in the rings */
	size_t n, cap;
};

void cap_cmdlines_deinit(struct cap_cmdlines *c);

/* What a process that will call exec was told to run. */
void cap_cmdlines_give(struct cap_cmdlines *c, int32_t pid, char *const *args);
/* What an exec that ended at time_ns was called with. */
void cap_cmdlines_tell(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns, const void *args,
		       size_t len);
/* The same of one that does not tell it: out of /proc, while the process lives. */
void cap_cmdlines_look(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns);
/* Read /proc for the exec whose record is of time_ns, unless it is told already. */
void cap_cmdlines_read(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns);

/* Read /proc for who is met at time_ns, with no exec seen. Returns when that was, on the
 * recording's clock: the line is of an exec before, and of none since, as it is read before and
 * after. */
uint64_t cap_cmdlines_see(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns);

/* The command line of the exec of time_ns, out of the list, or read now; empty when nobody knows.
 * The caller's to free. */
struct sp_buf cap_cmdlines_take(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns);

/* All records up to time_ns have left: what was not taken till then is of nobody's exec. */
void cap_cmdlines_expire(struct cap_cmdlines *c, uint64_t time_ns);

#endif
