/* unit: sp-spool/chain.c - call chains to addresses. */
#include <stdlib.h>
#include <string.h>

#include "../../sp-spool/chain.h"
#include "tap.h"

#define KERNEL ((uint64_t)-128)
#define USER ((uint64_t)-512)
#define GUEST_USER ((uint64_t)-2560)
#define KADDR UINT64_C(0xffffffff81000010)

static struct spool_chain c;

/* Fill from entries; the number of addresses. */
static size_t fill(bool site, unsigned cpumode, uint64_t ip, const uint64_t *v, size_t n)
{
	struct sp_record rec = {.type = SP_PERF_SAMPLE, .misc = (uint16_t)cpumode};
	rec.sample.has_ip = ip != 0;
	rec.sample.ip = ip;
	rec.sample.has_chain = n != 0;
	rec.sample.chain = (const uint8_t *)v;
	rec.sample.n_chain = n;
	if (!spool_chain_fill(&c, &rec, site))
		abort();
	return c.n;
}

static bool is(size_t i, uint64_t addr, enum spool_mode mode)
{
	return i < c.n && c.v[i].addr == addr && c.v[i].mode == mode;
}

static void contexts(void)
{
	const uint64_t v[] = {KERNEL, KADDR, KADDR + 8, USER, 0x1000, 0x2000, 0x3000};
	fill(false, SP_CPUMODE_KERNEL, KADDR, v, 7);
	tap_ok(c.n == 5 && is(0, KADDR, SPOOL_KERNEL) && is(1, KADDR + 7, SPOOL_KERNEL) &&
		       is(2, 0x1000, SPOOL_USER) && is(3, 0x1fff, SPOOL_USER) &&
		       is(4, 0x2fff, SPOOL_USER),
	       "1 is subtracted from all but the first entry of each context");
	fill(true, SP_CPUMODE_KERNEL, KADDR, v, 7);
	tap_ok(c.n == 5 && is(0, KADDR, SPOOL_KERNEL) && is(1, KADDR + 7, SPOOL_KERNEL) &&
		       is(2, 0x1000, SPOOL_USER) && is(3, 0x2000, SPOOL_USER) &&
		       is(4, 0x3000, SPOOL_USER),
	       "a site chain's user entries stay, the kernel's are still return addresses");
	const uint64_t empty[] = {KERNEL, USER, USER, 0x1000, 0x2000};
	fill(false, SP_CPUMODE_USER, 0x1000, empty, 5);
	tap_ok(c.n == 2 && is(0, 0x1000, SPOOL_USER) && is(1, 0x1fff, SPOOL_USER),
	       "empty contexts leave nothing behind");
	const uint64_t guest[] = {GUEST_USER, 0x1000};
	fill(false, SP_CPUMODE_GUEST_USER, 0x1000, guest, 2);
	tap_ok(c.n == 1 && is(0, 0x1000, SPOOL_GUEST), "a guest's addresses are nobody's here");
	const uint64_t bare[] = {KADDR, 0x1000};
	fill(false, SP_CPUMODE_KERNEL, KADDR, bare, 2);
	tap_ok(c.n == 2 && is(0, KADDR, SPOOL_KERNEL), "a chain without contexts");
}

static void zeros(void)
{
	const uint64_t v[] = {USER, 0x1000, 0x2000, 0};
	fill(true, SP_CPUMODE_USER, 0x1000, v, 4);
	tap_ok(c.n == 2 && c.truncated && c.n_zeros == 0, "a last 0 of a site chain is the marker");
	fill(false, SP_CPUMODE_USER, 0x1000, v, 4);
	tap_ok(c.n == 2 && !c.truncated && c.n_zeros == 1,
	       "of another chain it is dropped, counted");
	const uint64_t middle[] = {USER, 0x1000, 0, 0x3000};
	fill(true, SP_CPUMODE_USER, 0x1000, middle, 4);
	tap_ok(c.n == 2 && !c.truncated && c.n_zeros == 1, "a 0 in the middle is no marker");
	const uint64_t first[] = {USER, 0, 0x3000};
	fill(false, SP_CPUMODE_USER, 0, first, 3);
	tap_ok(c.n == 1 && is(0, 0x2fff, SPOOL_USER),
	       "what comes after a first 0 is a return address");
	const uint64_t only[] = {USER, 0};
	fill(true, SP_CPUMODE_USER, 0, only, 2);
	tap_ok(c.n == 0 && c.truncated, "a marker may stand alone");
}

static void no_chain(void)
{
	fill(true, SP_CPUMODE_USER, 0x1234, NULL, 0);
	tap_ok(c.n == 1 && is(0, 0x1234, SPOOL_USER), "without a chain the ip is the stack");
	fill(false, SP_CPUMODE_HV, 0x1234, NULL, 0);
	tap_ok(c.n == 1 && is(0, 0x1234, SPOOL_KERNEL), "a hypervisor's ip is kernel mode");
	fill(false, SP_CPUMODE_UNKNOWN, KADDR, NULL, 0);
	tap_ok(c.n == 1 && is(0, KADDR, SPOOL_KERNEL), "unknown mode: the address tells");
	const uint64_t markers[] = {KERNEL, USER};
	fill(false, SP_CPUMODE_USER, 0x99, markers, 2);
	tap_ok(c.n == 1 && is(0, 0x99, SPOOL_USER), "markers alone are no chain");
	fill(false, SP_CPUMODE_USER, 0, NULL, 0);
	tap_eq(c.n, 0, "neither chain nor ip is the empty stack");
}

/* perf record --call-graph lbr: what frame pointers gave, and the calls under way. */
static void calls_under_way(void)
{
	static struct sp_event lbr = {.attr.branch_sample_type = 1u << 11 | 1};
	/* from, to, flags; the innermost first */
	static const uint64_t b[] = {0x2005, 0x3000, 0, 0x1005, 0x2000, 0, 0x905, 0x1000, 0};
	const uint64_t fp[] = {KERNEL, KADDR, USER, 0x3010, 0x9999};
	struct sp_record rec = {.type = SP_PERF_SAMPLE, .misc = SP_CPUMODE_KERNEL, .event = &lbr};
	struct sp_perf_sample *s = &rec.sample;
	*s = (struct sp_perf_sample){.has_ip = true,
				     .ip = KADDR,
				     .has_chain = true,
				     .chain = (const uint8_t *)fp,
				     .n_chain = 5,
				     .branches = (const uint8_t *)b,
				     .n_branches = 3};
	tap_ok(spool_chain_fill(&c, &rec, false) && c.n == 5 && is(0, KADDR, SPOOL_KERNEL) &&
		       is(1, 0x3010, SPOOL_USER) && is(2, 0x2005, SPOOL_USER) &&
		       is(3, 0x1005, SPOOL_USER) && is(4, 0x905, SPOOL_USER),
	       "calls under way stand for the user part, behind its exact leaf");
	s->n_chain = 2;
	tap_ok(spool_chain_fill(&c, &rec, false) && c.n == 5 && is(1, 0x3000, SPOOL_USER) &&
		       is(4, 0x905, SPOOL_USER),
	       "without a leaf the entry of the innermost function is it");
	s->has_chain = false;
	rec.misc = SP_CPUMODE_USER;
	s->ip = 0x3010;
	tap_ok(spool_chain_fill(&c, &rec, false) && c.n == 4 && is(0, 0x3010, SPOOL_USER) &&
		       is(3, 0x905, SPOOL_USER),
	       "without any chain they are the stack, behind the ip");
	s->has_chain = true;
	s->n_chain = 5;
	s->n_branches = 1;
	tap_ok(spool_chain_fill(&c, &rec, false) && c.n == 3 && is(2, 0x9998, SPOOL_USER),
	       "a chain that is as long stays");
	static struct sp_event any = {.attr.branch_sample_type = 1u << 3};
	s->n_branches = 3;
	rec.event = &any;
	tap_ok(spool_chain_fill(&c, &rec, false) && c.n == 3 && is(2, 0x9998, SPOOL_USER),
	       "branches taken last are no stack");
}

int main(void)
{
	contexts();
	calls_under_way();
	zeros();
	no_chain();
	spool_chain_deinit(&c);
	return tap_done();
}
