/* A sample's call chain to addresses to be looked up (stream.md, Chains). */
#ifndef SPOOL_CHAIN_H
#define SPOOL_CHAIN_H

#include "perf/record.h"

enum spool_mode {
	SPOOL_USER,   /* an address of the sample's process */
	SPOOL_KERNEL, /* of the kernel or the hypervisor */
	SPOOL_GUEST,  /* of a guest's program: no mapping of ours holds it */
};

struct spool_entry {
	uint64_t addr;
	enum spool_mode mode;
};

struct spool_chain {
	struct spool_entry *v; /* owned; leaf first */
	size_t n, cap;
	bool truncated;   /* goes on towards the root, unseen */
	uint64_t n_zeros; /* entries 0 that mean nothing: dropped */
};

void spool_chain_deinit(struct spool_chain *c);

/* Whether the sample holds a branch stack of calls under way. */
bool spool_chain_has_calls(const struct sp_record *rec);
/* Fill c from a sample. site: user entries are addresses to look up as they are, and a last 0 says
 * that the stack stopped before its root. Else, and always for the kernel's entries, they are
 * return addresses: 1 is subtracted from every entry but the first of each context. Without any
 * entry the sample's ip is the stack.
 *
 * A branch stack in call-stack mode (perf record --call-graph lbr) holds the calls under way, the
 * innermost first: where the chain has fewer user entries than these give, they are its user part.
 * False when memory ends. */
bool spool_chain_fill(struct spool_chain *c, const struct sp_record *rec, bool site);

#endif
