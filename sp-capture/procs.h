/* The processes being recorded: their executable mappings as the stream has told them so far, their
 * threads and exec counts. Fed in time order by the emitter; a user ip outside of all mappings
 * shows that the stream misses one. */
#ifndef CAP_PROCS_H
#define CAP_PROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/table.h"
#include "perf/record.h"

struct cap_range {
	uint64_t start, end, foff, ino;
	uint32_t maj, min;
	uint32_t ino_gen; /* of the inode, whose number may be used again; 0 = not known */
	uint32_t path;    /* id in cap_procs.paths */
	uint64_t seen_ns; /* the time of its record, or when /proc showed it */
	bool is_anon;     /* memory whose code a perf map may describe */
	bool sampled;
};

struct cap_proc {
	int32_t pid;
	uint32_t exec_count;
	uint32_t n_born;          /* threads made */
	uint32_t n_threads;       /* alive, as far as the records say */
	struct cap_range *ranges; /* owned; sorted by start, disjoint */
	size_t n, cap, last;      /* last: index of the last hit */
	struct cap_range own;     /* of this image's files the first: its program; ino 0 = none yet */
	uint64_t *tried; /* owned: pages that no mapping explained, since the mappings changed */
	size_t n_tried, cap_tried;
	uint64_t maps_ns;                   /* when its maps were read last */
	uint64_t begin_ns;                  /* when this image began, 0 = before the recording */
	uint64_t taken_ino, taken_mtime_ns; /* of the perf map that was embedded last */
	uint32_t cgroup;                    /* id in cap_procs.paths, + 1; 0 = none is told */
	uint8_t scope;                      /* enum cap_scope */
	bool is_python, python_probed, runs_jit; /* runs_jit: was sampled in anonymous memory */
	bool sampled;                            /* this image was, in user mode */
	bool is_denied;                          /* its mappings could not be read: it was said */
	/* When /proc showed this image, which was told then; 0 = never. A record from before may
	 * wait in the rings: of its birth, its exec, its mappings and threads it tells nothing new.
	 */
	uint64_t shown_ns;
	uint64_t ended_ns; /* when it was first seen to be gone; 0 = it was there */
	bool args_say_perf; /* python's -X perf, as its exec had it: known also when it ended since
			     */
};

struct cap_procs {
	struct sp_map64 by_pid;  /* pid to index, SP_NOT_FOUND - 1 = gone */
	struct cap_proc **procs; /* owned */
	size_t n, cap;
	uint32_t *free_slots; /* owned */
	size_t n_free, cap_free;
	size_t n_alive;
	struct sp_intern paths;
};

void cap_procs_deinit(struct cap_procs *p);

struct cap_proc *cap_procs_find(struct cap_procs *p, int32_t pid); /* or NULL */
/* Found or made (with one thread); NULL when memory ends. */
struct cap_proc *cap_procs_get(struct cap_procs *p, int32_t pid);
/* A child with its parent's mappings; one that was there under this pid is replaced. */
struct cap_proc *cap_procs_fork(struct cap_procs *p, int32_t pid, int32_t ppid);
void cap_procs_remove(struct cap_procs *p, int32_t pid);

/* exec: all mappings end, the thread that called is the only one. */
void cap_proc_exec(struct cap_proc *q);

/* An executable mapping appears over whatever was there. False when memory ends. */
bool cap_proc_map(struct cap_procs *p, struct cap_proc *q, const struct sp_perf_mmap *m,
		  const char *path, size_t path_len, uint64_t seen_ns);

/* The mapping that holds ip, or NULL. */
struct cap_range *cap_proc_find(struct cap_proc *q, uint64_t ip);

/* Whether exactly this mapping is known. */
bool cap_proc_knows(const struct cap_procs *p, const struct cap_proc *q,
		    const struct sp_perf_mmap *m, const char *path, size_t path_len);

/* Whether /proc/PID/maps, as it is now, is of another image than the one that is known, whose exec
 * may have been lost after sure_ns: neither its program nor any file seen until then is where it
 * was. Files seen later tell nothing: they may be the new image's, when only its exec was lost.
 * False as long as the text has no code of a file: the memory of an exec that is still under way
 * holds a stack only, and its record comes later (Linux 6.1 fs/exec.c, begin_new_exec: exec_mmap
 * before perf_event_comm; load_elf_binary maps after both). */
bool cap_proc_is_replaced(const struct cap_procs *p, struct cap_proc *q, const char *maps,
			  size_t len, uint64_t sure_ns);

/* True the first time that a page is asked for since the mappings changed. */
bool cap_proc_try_page(struct cap_proc *q, uint64_t ip);

#endif
