/* Which processes a recording of the whole machine is about: not the kernel's own threads, not idle
 * CPUs, not the pipeline that records, and not those that the user excludes. */
#ifndef CAP_SCOPE_H
#define CAP_SCOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "options.h"

enum cap_scope {
	CAP_UNSORTED, /* asked at its first sample */
	CAP_WANTED,
	CAP_KERNEL, /* a kernel thread */
	CAP_OWN,    /* sp-capture, or a stage of the pipeline behind it */
	CAP_EXCLUDED,
};

struct cap_pipe {
	dev_t dev;
	ino_t ino;
};

/* The pipeline is known by its pipes: who reads the stream, or what its readers write, belongs to
 * it. Process groups would not do: in a script all commands share one. */
struct cap_scopes {
	const struct cap_options *o; /* borrowed */
	struct cap_pipe *pipes;      /* owned: from us on, as far as they are found */
	size_t n_pipes, cap_pipes;
	uint64_t n_left_out; /* samples */
};

/* out_fd: where the stream goes. Looks at all processes when that is a pipe. */
void cap_scopes_init(struct cap_scopes *s, const struct cap_options *o, int out_fd);
void cap_scopes_deinit(struct cap_scopes *s);

/* What a living process is; CAP_WANTED for one that is gone. *more_pipes: it proved to be a stage
 * that nobody knew, and others may be what they were not before. */
enum cap_scope cap_scopes_sort(struct cap_scopes *s, int32_t pid, bool *more_pipes);

/* Whether samples of such a process are kept. */
bool cap_scopes_keep(const struct cap_scopes *s, enum cap_scope scope);

#endif
