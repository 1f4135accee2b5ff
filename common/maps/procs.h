/* Processes and their executable mappings, from the records of a stream: fork clones, exec
 * replaces, exit closes, pids are reused. Pure: nothing is read from /proc here.
 *
 * An address space is an immutable, sorted list of mappings once it has been handed out
 * (sp_space_hold); the next change makes a copy. Workers keep the snapshot they were given.
 *
 * Cost: a fork shares its parent's space until one of the two changes it, and most of it after
 * that: a space is an array of chunks of at most SP_CHUNK_MAPPINGS mappings, a new mapping is a
 * binary search, a new chunk and a copy of the chunks' addresses. Memory is bounded: exited
 * processes and threads are kept for late samples, the last SP_PROCS_EXITED of them; live ones up
 * to SP_PROCS_LIVE, mappings of a space up to SP_SPACE_MAPPINGS, files up to SP_PROCS_FILES (later
 * ones share one nameless entry). */
#ifndef SP_MAPS_PROCS_H
#define SP_MAPS_PROCS_H

#include <stdatomic.h>

#include "base/build_id.h"
#include "base/err.h"
#include "perf/record.h"

#define SP_PROCS_EXITED 512u
#define SP_PROCS_LIVE (1u << 18)
#define SP_PROCS_FILES (1u << 20)
#define SP_SPACE_MAPPINGS (1u << 17)

/* The identity of a mapped file, interned: equal identity, equal id. */
struct sp_file_id {
	const char *path; /* as recorded, owned by the table */
	uint32_t maj, min;
	uint64_t ino, ino_gen; /* zero = unknown */
	struct sp_build_id build_id;
};

struct sp_mapping {
	uint64_t start, end, foff; /* AVMA range [start, end), offset in the file of start */
	uint32_t file;             /* index of sp_procs_file() */
	uint32_t flags;            /* SP_MAPPING_* */
};
#define SP_MAPPING_KERNEL 1u
#define SP_MAPPING_ANON                                                                            \
	2u /* //anon, [heap], [stack…, /dev/zero, memfd-less: see sp_path_is_anon                \
	    */

#define SP_CHUNK_MAPPINGS 64u
/* Some neighbouring mappings, sorted by start, disjoint; never changed, shared by many spaces. */
struct sp_chunk {
	_Atomic uint32_t refs;
	uint32_t n; /* at least 1 */
	/* What a user derived from these mappings and wants to keep with them; freed with drop()
	 * when the last space that has them goes. Set by the thread that applies records. */
	void *attached;
	void (*drop)(void *attached);
	struct sp_mapping maps[];
};

struct sp_space {
	_Atomic uint32_t refs;
	uint32_t n;          /* mappings */
	uint64_t generation; /* unique over all spaces and versions */
	struct sp_chunk **chunks; /* owned, a reference to each, in order of address */
	size_t n_chunks, cap_chunks;
	/* What a user derived from this version and wants to keep with it; freed with drop() when
	 * the space changes or goes. Set by the thread that applies records. */
	void *attached;
	void (*drop)(void *attached);
};

void sp_space_hold(struct sp_space *s);
void sp_space_release(struct sp_space *s); /* NULL is fine */
/* All mappings in order of address, one per call: *at begins as zeros. NULL after the last. */
struct sp_space_at {
	size_t chunk;
	uint32_t at;
};
const struct sp_mapping *sp_space_next(const struct sp_space *s, struct sp_space_at *at);
/* The mapping that holds addr, or NULL. */
const struct sp_mapping *sp_space_find(const struct sp_space *s, uint64_t addr);

struct sp_proc {
	int32_t pid, ppid;
	uint32_t generation; /* counts uses of this pid (exit then reuse) */
	uint32_t exec_count;
	uint64_t serial; /* of this entry: a pid that was forgotten and comes again has another */
	bool exited;            /* all threads that were known have ended */
	struct sp_space *space; /* never NULL */
	char comm[64];
};

struct sp_procs;
struct sp_procs *sp_procs_new(void); /* NULL when memory ends */
void sp_procs_free(struct sp_procs *p);

/* Apply MMAP, MMAP2, COMM, FORK, EXIT; everything else is ignored. Non-executable mappings are
 * ignored (MMAP2 without PROT_EXEC, MMAP of data), guests' too. Overlapped mappings are split. 1
 * when something changed, 0 not, an error when memory ends. */
int sp_procs_apply(struct sp_procs *p, const struct sp_record *rec, struct sp_err *err);

/* The mappings that the last sp_procs_apply cut or took away, as they were, in a process's space
 * (not the kernel's). What FORK and exec leave behind is told by serial, generation and exec_count.
 * Valid until the next apply. */
const struct sp_mapping *sp_procs_replaced(const struct sp_procs *p, size_t *n);

/* The process of a pid, made when unknown; pid -1 is the kernel's own address space. Valid until
 * the next sp_procs_apply or sp_procs_get. NULL when memory ends. */
struct sp_proc *sp_procs_get(struct sp_procs *p, int32_t pid);
struct sp_space *sp_procs_kernel(struct sp_procs *p);
/* Name of a thread (comm), or its process's, or "". The idle thread, 0 of process 0, has no COMM
 * record: it is "swapper" (INIT_TASK_COMM in include/linux/init_task.h), as perf calls it. */
const char *sp_procs_comm(const struct sp_procs *p, int32_t pid, int32_t tid);

uint32_t sp_procs_n_files(const struct sp_procs *p);
const struct sp_file_id *sp_procs_file(const struct sp_procs *p, uint32_t file);

/* "//anon", "[anon…", "[heap]", "[stack…", "/dev/zero…", "/anon_hugepage…", "/SYSV…": memory whose
 * code a perf map may describe. */
bool sp_path_is_anon(const char *path);

/* One line of /proc/PID/maps: 1 and *m (path inside the line, octal escapes left as they are; ""
 * when none), 0 for a malformed line. line[len] must be a NUL, which ends the path: callers cut a
 * file into lines by writing NULs over its newlines. */
int sp_maps_line(const char *line, size_t len, struct sp_perf_mmap *m);

#endif
