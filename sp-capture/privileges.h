/* What sp-capture may do once all that has to be opened is open: what the rest of a recording
 * needs, no more. No fault in reading others' memory and files then loads a module, changes a user
 * or mounts something. */
#ifndef CAP_PRIVILEGES_H
#define CAP_PRIVILEGES_H

#include <stdbool.h>

struct cap_privileges {
	bool owns_output;  /* a file is given to the user behind sudo at the end */
	bool owns_control; /* a fifo or socket, perhaps in a user's folder, goes at the end */
};

/* For the calling thread, for good: of its capabilities it keeps CAP_PERFMON, CAP_BPF and
 * CAP_IPC_LOCK (events of processes and CPUs that come), CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and
 * CAP_DAC_READ_SEARCH (maps, map_files and files of others, perf maps at their exit), CAP_SYSLOG
 * (/proc/kallsyms), CAP_KILL (to hold and resume, to pass on signals); and none is gained by exec.
 * CAP_SYS_ADMIN too where the kernel wants it for perf events (patched ones do with
 * kernel.perf_event_paranoid 3 and more) or does not know those (before Linux 5.9). */
void cap_privileges_drop(const struct cap_privileges *p);

/* A thread that needs none. */
void cap_privileges_drop_all(void);

#endif
