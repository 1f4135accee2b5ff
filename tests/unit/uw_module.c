/* A module whose .eh_frame_hdr lacks functions, one that has gaps, and one that is not asked yet.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c
 * unit: sp-unwind/guess.c sp-unwind/insn.c sp-unwind/reuse.c sp-unwind/rule.c
 * unit: sp-unwind/walk.c sp-unwind/walk_full.c */
#include "tap.h"

#include "../../sp-unwind/walker.h"
#include "elf/find.h"
#include "image.h"

enum { FIRST = 0x1400, N = 20, GAP = 0x3000, BEHIND = 0x3800 };

/* Functions of 0x20 bytes, the second part of them in front of the first in .eh_frame: then a gap. */
static void make(struct image *m)
{
	image_new(m, EM_X86_64);
	for (uint32_t i = N / 2; i < N; i++)
		IMAGE_FDE(m, false, FIRST + 0x20 * i, 0x20, 0x0e, 16);
	image_x86_basics(m);
	for (uint32_t i = 0; i < N / 2; i++)
		IMAGE_FDE(m, false, FIRST + 0x20 * i, 0x20, 0x0e, 16);
	IMAGE_FDE(m, false, GAP - 0x20, 0x20, 0x0e, 16);
	IMAGE_FDE(m, false, BEHIND, 0x20, 0x0e, 16);
	for (size_t i = 1; i < m->n; i++)
		for (size_t j = i; j > 0 && m->table[j].begin < m->table[j - 1].begin; j--) {
			__typeof__(m->table[0]) t = m->table[j];
			m->table[j] = m->table[j - 1];
			m->table[j - 1] = t;
		}
	image_finish(m);
}

/* Whether all functions are found, and nothing in the gap. */
static bool finds_all(const struct uw_module *m)
{
	const struct cfi_section *s;
	struct cfi_fde fde;
	bool good = !uw_module_find(m, GAP, &s, &fde) && !uw_module_find(m, BEHIND - 1, &s, &fde);
	for (uint32_t i = 0; i < N; i++)
		for (uint32_t in = 0; in < 0x20; in += 0x1f)
			good &= uw_module_find(m, FIRST + 0x20 * i + in, &s, &fde) &&
				fde.begin == FIRST + 0x20 * i;
	return good && uw_module_find(m, LEAF, &s, &fde) && uw_module_find(m, ROOT, &s, &fde) &&
	       uw_module_find(m, GAP - 1, &s, &fde) && uw_module_find(m, BEHIND, &s, &fde);
}

static unsigned n_asked;

static struct sp_elf *no_debug(const struct sp_elf *elf, const void *ctx)
{
	n_asked += elf->n_sections && ctx == &n_asked;
	return NULL;
}

static void test_later(void)
{
	const struct sp_find_options options = {0};
	const struct sp_file_query q = {
		.path = "/proc/self/exe", .live_pid = -1, .sections_later = true};
	struct sp_elf *elf = calloc(1, sizeof *elf);
	struct uw_module *m = NULL;
	struct sp_err err;
	char why[200];
	int rc = elf ? sp_find_elf(elf, &options, &q, why, &err) : -1;
	if (!tap_ok(rc == SP_FOUND_BY_PATH &&
			    uw_module_new_later(&m, elf, no_debug, &n_asked, &err) == 0,
		    "this program is found"))
		return;
	tap_ok(elf->sections_unread && m->code.n && m->svma_end > m->base_svma && !n_asked,
	       "where its code lies is known, its sections are not read");
	uint64_t entry = elf->entry_svma;
	tap_ok(uw_rule_make(m, entry, NULL).kind == UW_RULE_END && !elf->sections_unread &&
		       n_asked == 1,
	       "they are for the first rule, and a debug file is asked for");
	(void)uw_rule_make(m, entry + 1, NULL);
	tap_ok(n_asked == 1, "once");
	uw_module_free(m);
}

int main(void)
{
	struct image m;
	struct cfi_fde fde;
	const struct cfi_section *s;
	make(&m);
	struct uw_module *module = image_module(&m);
	tap_ok(!uw_module_find(module, GAP + 0x100, &s, &fde) && !module->table_checked &&
		       !module->eh_index,
	       "a gap between neighbours is one without .eh_frame being read");
	tap_ok(finds_all(module) && !module->eh_index, "a whole table is enough");
	tap_ok(!uw_module_find(module, BEHIND + 0x20, &s, &fde) && module->table_checked,
	       "behind the last entry all is read once");
	uw_module_free(module);

	const struct image whole = m;
	unsigned lost = 0;
	for (size_t k = 0; k < whole.n; k++) {
		m = whole;
		m.n--;
		memmove(&m.table[k], &m.table[k + 1], (m.n - k) * sizeof *m.table);
		image_finish(&m);
		module = image_module(&m);
		lost += !finds_all(module);
		uw_module_free(module);
	}
	tap_ok(!lost, "whichever entry is missing, its function is found");
	free(m.data);
	test_later();
	return tap_done();
}
