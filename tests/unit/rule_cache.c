/* The rule cache against the rules themselves: what an address, or the code around it, had left
 * there is what its FDE says.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/insn.c
 * unit: sp-unwind/golang.c sp-unwind/guess.c
 * unit: sp-unwind/reuse.c sp-unwind/rule.c sp-unwind/walk.c sp-unwind/walk_full.c */
#include "tap.h"

#include <stdlib.h>

#include "../../sp-unwind/walker.h"

static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static bool same_rule(struct uw_rule a, struct uw_rule b)
{
	return !memcmp(&a, &b, sizeof a);
}

static struct uw_module *open_module(const char *path)
{
	struct sp_err err;
	struct uw_module *m = NULL;
	struct sp_elf *e = calloc(1, sizeof *e);
	if (!e || sp_elf_open(e, path, &err) < 0) {
		printf("# %s\n", err.msg);
		free(e);
		return NULL;
	}
	if (uw_module_new(&m, e, NULL, &err) < 0)
		return NULL;
	return m;
}

static uint64_t place(const struct uw_module *m)
{
	const struct cfi_code_range *r = &m->code.v[next_random() % m->code.n];
	return r->begin + next_random() % (r->end - r->begin);
}

/* Both ends of a span and what lies between have the address's rule; behind it another row begins. */
static void test_spans(const struct uw_module *m)
{
	unsigned spans = 0, outside = 0, differ = 0;
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t at = place(m);
		struct uw_span same;
		struct uw_rule rule = uw_rule_make(m, at, &same);
		if (same.begin == same.end)
			continue;
		spans++;
		outside += at < same.begin || at >= same.end;
		uint64_t in[] = {same.begin, same.end - 1,
				 same.begin + next_random() % (same.end - same.begin)};
		for (size_t j = 0; j < 3; j++)
			differ += !same_rule(uw_rule_make(m, in[j], NULL), rule);
	}
	printf("# %u spans\n", spans);
	tap_ok(spans > 10000 && !outside && !differ, "a rule holds in all of its span");
}

/* Addresses that lie together, in several modules, and more than the cache has room for. */
static void test_cache(struct uw_module *const *modules, size_t n)
{
	struct uw_walker *w = uw_walker_new();
	const uint64_t *misses = &uw_walker_counters(w)->v[SP_C_rule_misses];
	unsigned asked = 0, differ = 0;
	for (unsigned i = 0; i < 4000; i++) {
		const struct uw_module *m = modules[next_random() % n];
		const struct uw_map map = {.module = m, .bias = 0x10000};
		uint64_t from = place(m);
		for (unsigned j = 0; j < 10; j++, asked++) {
			uint64_t at = from + next_random() % 300;
			differ += !same_rule(uw_rule_get(w, &map, at + map.bias),
					     uw_rule_make(m, at, NULL));
		}
	}
	printf("# %u rules, %u interpreted\n", asked, (unsigned)*misses);
	tap_ok(!differ, "what the cache says is what the FDE says");
	tap_ok(*misses < asked * 3 / 4, "the code around an address often has its rule");
	uw_walker_free(w);
}

int main(int argc, char **argv)
{
	(void)argc;
	struct uw_module *m[] = {open_module(argv[0]), open_module("/lib/x86_64-linux-gnu/libc.so.6")};
	if (tap_ok(m[0] && m[1], "this program and the C library open")) {
		test_spans(m[1]);
		test_cache(m, 2);
	}
	uw_module_free(m[0]);
	uw_module_free(m[1]);
	return tap_done();
}
