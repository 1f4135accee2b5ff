/* From a sample's process and chain to the spool's sets and stacks.
 *
 * Four caches make the usual case cheap: thread -> its ids, whole chain -> stack, a stack's root
 * part -> node, address -> frame. All are of bounded size and exact (chains and root parts are told
 * apart by 96 and more bits of a hash with a secret seed). */
#ifndef SPOOL_INTERN_H
#define SPOOL_INTERN_H

#include "base/table.h"
#include "chain.h"
#include "maps/procs.h"
#include "perf/reader.h"
#include "spool/writer.h"

/* What is known of a process: which set its samples name, whose modules are all mapped in its space
 * as the set says. */
struct spool_process {
	int32_t pid;
	uint32_t generation, exec_count; /* of sp_proc when the set began */
	uint64_t serial;
	uint32_t set; /* SP_NONE: none yet */
};

struct spool_thread {
	int32_t pid, tid;
	uint64_t version; /* of the intern when it was looked up; 0 = free */
	uint32_t thread, comm, process;
	uint64_t space; /* generation of its process's */
};

/* 16 bytes: what a busy stream costs is to a good part the cache misses of this table. */
struct spool_known_chain {
	uint64_t h2;        /* 0 = free; says where it stands, too */
	uint32_t h1;        /* the upper half */
	uint32_t odd_stack; /* stack + 1, and SPOOL_ODD when the entry of `odd` is not 0 */
};
#define SPOOL_ODD (1u << 31)

/* A root part of a stack that has a node already. */
struct spool_known_root {
	uint64_t h1, h2; /* 0, 0 = free */
	uint32_t node;
};

struct spool_hash {
	uint64_t h1, h2;
};

struct spool_known_addr {
	uint64_t addr, space; /* space 0: the kernel's, see kernel_space */
	uint32_t frame_1;     /* frame + 1, 0 = free */
	uint32_t set;
};

struct spool_intern {
	struct sp_spool_writer *w;      /* borrowed */
	const struct sp_reader *reader; /* borrowed */
	struct sp_procs *procs;         /* owned */
	bool site;
	uint32_t origin;
	uint64_t version; /* grows with every change of names or maps */

	struct spool_process *process; /* owned */
	size_t n_process, cap_process;
	struct sp_map64 by_pid;
	uint32_t *file; /* owned: writer's file + 1 by the process table's */
	size_t n_file, cap_file;
	uint32_t kset;
	/* Modules that were put, and those that forked children's sets were compared with or began
	 * with. */
	uint64_t n_put, n_copied;

	struct spool_thread *threads; /* owned, direct-mapped */
	struct spool_known_chain *chains; /* owned, n_chains of chain_mask + 1 used */
	uint8_t *odd; /* owned, by chain: n_zeros * 2 + truncated */
	uint32_t n_chains, chain_mask;
	struct spool_known_root *roots; /* owned, direct-mapped, n_roots of root_mask + 1 used */
	struct spool_hash *root_hash;   /* owned: of the chain at hand, by frames from the root */
	size_t cap_root_hash;
	struct spool_known_addr *addrs; /* owned, direct-mapped, n_addrs of addr_mask + 1 used */
	uint32_t n_roots, n_addrs, root_mask, addr_mask;
	uint64_t seed[2];
	struct spool_chain chain;
	const struct sp_space *space; /* of the process at hand, borrowed while a stack is built */
	uint32_t *path; /* owned: frames of the chain at hand, leaf first */
	size_t cap_path;
};

int spool_intern_init(struct spool_intern *x, struct sp_spool_writer *w,
		      const struct sp_reader *reader, const uint64_t seed[2], struct sp_err *err);
void spool_intern_deinit(struct spool_intern *x);

/* Another writer, which knows nothing yet. */
void spool_intern_restart(struct spool_intern *x, struct sp_spool_writer *w);
/* False when a process is known to have ended. */
bool spool_intern_runs(const struct spool_intern *x, int32_t pid);

/* Side-band: MMAP, MMAP2, COMM, FORK, EXIT. */
int spool_intern_record(struct spool_intern *x, const struct sp_record *rec, struct sp_err *err);

struct spool_placed {
	uint32_t thread, comm, set, stack; /* set, stack may be SP_NONE */
	bool truncated;
	uint32_t n_zeros;
};
/* A sample's thread, name, set and stack. */
int spool_intern_sample(struct spool_intern *x, const struct sp_record *rec,
			struct spool_placed *out, struct sp_err *err);

#endif
