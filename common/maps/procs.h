/* Processes and their executable mappings, from the records of a stream: fork clones, exec
 * replaces, exit closes, pids are reused. Pure: nothing is read from /proc here.
 *
 * An address space is an immutable, sorted array of mappings once it has been handed out
 * (sp_space_hold); the next change makes a copy. Workers keep the snapshot they were given. */
#ifndef SP_MAPS_PROCS_H
#define SP_MAPS_PROCS_H

#include <stdatomic.h>

#include "perf/record.h"
#include "elf/elf_file.h"

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
#define SP_MAPPING_ANON 2u /* //anon, [heap], [stack…, /dev/zero, memfd-less: see sp_path_is_anon */

struct sp_space {
	_Atomic uint32_t refs;
	uint32_t n, cap;
	uint64_t generation;     /* unique over all spaces and versions */
	struct sp_mapping *maps; /* sorted by start, disjoint */
};

void sp_space_hold(struct sp_space *s);
void sp_space_release(struct sp_space *s); /* NULL is fine */
/* The mapping that holds addr, or NULL. */
const struct sp_mapping *sp_space_find(const struct sp_space *s, uint64_t addr);

struct sp_proc {
	int32_t pid, ppid;
	uint32_t generation; /* counts uses of this pid (exit then reuse) */
	uint32_t exec_count;
	bool exited;
	struct sp_space *space; /* never NULL */
	char comm[64];
};

struct sp_procs;
struct sp_procs *sp_procs_new(void);
void sp_procs_free(struct sp_procs *p);

/* Apply MMAP, MMAP2, COMM, FORK, EXIT; everything else is ignored. Non-executable mappings are
 * ignored (MMAP2 without PROT_EXEC, MMAP of data). Overlapped mappings are split. 1 when something
 * changed, 0 not, an error when memory ends. */
int sp_procs_apply(struct sp_procs *p, const struct sp_record *rec, struct sp_err *err);

/* The process of a pid, made when unknown; pid -1 is the kernel's own address space. */
struct sp_proc *sp_procs_get(struct sp_procs *p, int32_t pid);
struct sp_space *sp_procs_kernel(struct sp_procs *p);
/* Name of a thread (comm), or its process's, or "". */
const char *sp_procs_comm(const struct sp_procs *p, int32_t pid, int32_t tid);

uint32_t sp_procs_n_files(const struct sp_procs *p);
const struct sp_file_id *sp_procs_file(const struct sp_procs *p, uint32_t file);

/* "//anon", "[anon…", "[heap]", "[stack…", "/dev/zero…", "/anon_hugepage…", "/SYSV…": memory whose
 * code a perf map may describe. */
bool sp_path_is_anon(const char *path);

/* One line of /proc/PID/maps: 1 and *m, *prot (path inside the line, octal escapes left as they
 * are; "" when none), 0 for a malformed line. */
int sp_maps_line(const char *line, size_t len, struct sp_perf_mmap *m);

#endif
