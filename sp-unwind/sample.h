/* One SAMPLE record: where its parts lie, and the record that leaves instead. */
#ifndef SP_UNWIND_SAMPLE_H
#define SP_UNWIND_SAMPLE_H

#include "perf/attr.h"
#include "walk.h"

/* A call chain as it came, parted by context. Entries are u64s at any address. */
struct un_chain {
	uint32_t n_kernel, n_user;
	uint64_t kernel[UW_MAX_FRAMES]; /* with its context markers, as they came */
	uint64_t user[UW_MAX_FRAMES]; /* return addresses but for the first; no marker, no zeros */
};

/* mode: the sample's cpumode, for entries before the first marker. */
void un_chain_parse(struct un_chain *c, const uint8_t *entries, uint64_t n, unsigned mode);

/* Whether attr's samples lose registers and stacks and get a chain of looked-up addresses. */
static inline bool un_attr_unwinds(const struct sp_attr *attr)
{
	return attr->sample_type & (SP_SAMPLE_REGS_USER | SP_SAMPLE_STACK_USER);
}

/* The user part of an outgoing chain. */
struct un_user_chain {
	const uint64_t *addrs; /* looked-up addresses, leaf first */
	uint32_t n;
	const uint64_t *tail; /* return addresses of the kernel's own chain that go on below */
	uint32_t n_tail;
	bool cut; /* stopped before the root: a last 0 */
};

#define UN_SAMPLE_MAX 65528u

/* The record that leaves instead of rec, a SAMPLE, into out (UN_SAMPLE_MAX bytes): its size. The
 * chain is replaced, user registers and stack are gone, all other fields stay. A chain that does
 * not fit in loses its root side and is cut. 0: even without a chain it is too long. */
uint32_t un_sample_encode(uint8_t *out, const struct sp_record *rec, const struct un_chain *in,
			  const struct un_user_chain *user);

#endif
