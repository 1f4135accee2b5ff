/* Our rows against elfutils' libdw (dwarf_cfi_addrframe) on the machine's own binaries: at random
 * addresses the CFA, the return address and the frame pointer must be the same.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c
 * libs: -ldw -lelf */
#define _GNU_SOURCE
#include "tap.h"

#include <dirent.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../sp-unwind/cfi_module.h"

static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

struct tally {
	uint64_t asked, known, differ;
	char first[300];
};

/* The text of libdw's location: "bregx 7 16" for a CFA, "call_frame_cfa plus_uconst…" for a saved
 * register: the operations' codes and operands. */
static void text_of_ops(const Dwarf_Op *ops, size_t n, char out[600])
{
	size_t at = 0;
	out[0] = 0;
	for (size_t i = 0; i < n && at < 500; i++)
		at += (size_t)snprintf(out + at, 600 - at, "%x:%llx:%llx ", ops[i].atom,
				       (unsigned long long)ops[i].number,
				       (unsigned long long)ops[i].number2);
}

/* What libdw gives for a simple rule, made from ours; an expression's own operations follow from
 * its bytes as libdw itself decodes them, so that only its first one is looked at. */
static void text_of_reg(const struct cfi_reg *r, char out[600])
{
	out[0] = 0;
	switch ((enum cfi_rule)r->rule) {
	case CFI_UNSPEC: /* the walk ends at such a return address */
		snprintf(out, 600, "same");
		break;
	case CFI_UNDEF:
		snprintf(out, 600, "undefined");
		break;
	case CFI_SAME:
		snprintf(out, 600, "same");
		break;
	case CFI_OFFSET:
		snprintf(out, 600, "9c:0:0 %s%.0llx%s", r->off ? "23:" : "",
			 (unsigned long long)r->off, r->off ? ":0 " : "");
		break;
	case CFI_VAL_OFFSET:
		snprintf(out, 600, "9c:0:0 %s%.0llx%s9f:0:0 ", r->off ? "23:" : "",
			 (unsigned long long)r->off, r->off ? ":0 " : "");
		break;
	case CFI_REG:
		snprintf(out, 600, "90:%llx:0 ", (unsigned long long)r->off);
		break;
	case CFI_EXPR:
	case CFI_VAL_EXPR:
		snprintf(out, 600, "9c:0:0 %x", r->expr[0]);
		break;
	}
}

static bool same_reg(Dwarf_Frame *frame, int reg, const struct cfi_reg *ours, char got[600],
		     char want[600])
{
	Dwarf_Op mem[3], *ops;
	size_t n;
	text_of_reg(ours, got);
	if (dwarf_frame_register(frame, reg, mem, &ops, &n) != 0) {
		snprintf(want, 600, "error %s", dwarf_errmsg(-1));
		return false;
	}
	if (n == 0)
		snprintf(want, 600, ops ? "undefined" : "same");
	else
		text_of_ops(ops, n, want);
	if (ours->rule == CFI_EXPR || ours->rule == CFI_VAL_EXPR)
		return !strncmp(got, want, strlen(got));
	return !strcmp(got, want);
}

static bool same_cfa(Dwarf_Frame *frame, const struct cfi_row *row, char got[600], char want[600])
{
	Dwarf_Op *ops;
	size_t n;
	got[0] = want[0] = 0;
	if (dwarf_frame_cfa(frame, &ops, &n) != 0)
		return row->cfa.rule == CFI_UNSPEC;
	text_of_ops(ops, n, want);
	if (row->cfa.rule == CFI_EXPR) {
		snprintf(got, 600, "%x:", row->cfa.expr[0]);
		return !strncmp(got, want, strlen(got));
	}
	snprintf(got, 600, "92:%x:%llx ", row->cfa_reg, (unsigned long long)row->cfa.off);
	return !strcmp(got, want);
}

/* By meaning: the structure has padding, and no offset means nothing for some rules. */
static bool equal_rules(const struct cfi_reg *a, const struct cfi_reg *b)
{
	if (a->rule != b->rule)
		return false;
	switch ((enum cfi_rule)a->rule) {
	case CFI_OFFSET:
	case CFI_VAL_OFFSET:
	case CFI_REG:
		return a->off == b->off;
	case CFI_EXPR:
	case CFI_VAL_EXPR:
		return a->len == b->len && a->expr == b->expr;
	case CFI_UNSPEC:
	case CFI_UNDEF:
	case CFI_SAME:
		break;
	}
	return true;
}

static void ask(struct tally *t, const struct uw_module *m, Dwarf_CFI *cfi, uint64_t pc,
		const char *path)
{
	const struct cfi_section *s;
	struct cfi_fde fde;
	struct cfi_row full, small;
	Dwarf_Frame *frame = NULL;
	char got[600] = "", want[600] = "";
	bool theirs = dwarf_cfi_addrframe(cfi, pc, &frame) == 0;
	bool ours = uw_module_find(m, pc, &s, &fde) && cfi_row_full(s, &fde, pc, &full) &&
		    cfi_row_small(s, &fde, pc, m->arch->fp, NULL, &small);
	const char *what = "presence";
	bool same = theirs == ours;
	t->asked++;
	if (same && ours) {
		t->known++;
		const struct cfi_reg *ra = &full.reg[cfi_ra_slot(&fde.cie)];
		what = "CFA";
		same = same_cfa(frame, &full, got, want);
		if (same) {
			what = "return address";
			same = same_reg(frame, (int)fde.cie.ra_reg, ra, got, want);
		}
		if (same) {
			what = "frame pointer";
			same = same_reg(frame, m->arch->fp, &full.reg[m->arch->fp], got, want);
		}
		if (same) {
			what = "signal flag";
			bool signal = false;
			same = dwarf_frame_info(frame, NULL, NULL, &signal) >= 0 &&
			       signal == fde.cie.signal;
		}
		if (same) { /* both interpreters of ours */
			what = "small row";
			bool by_reg = full.cfa.rule != CFI_EXPR;
			same = small.cfa.rule == full.cfa.rule &&
			       (by_reg ? small.cfa.off == full.cfa.off &&
						 small.cfa_reg == full.cfa_reg
				       : equal_rules(&small.cfa, &full.cfa)) &&
			       equal_rules(&small.reg[CFI_SMALL_RA], ra) &&
			       equal_rules(&small.reg[CFI_SMALL_FP], &full.reg[m->arch->fp]);
		}
	}
	if (!same && !t->differ++)
		snprintf(t->first, sizeof t->first, "%.100s %llx: %s: %.80s, libdw %.80s", path,
			 (unsigned long long)pc, what, got, want);
	free(frame);
}

static void compare_file(struct tally *t, const char *path, unsigned n)
{
	struct sp_elf *e = calloc(1, sizeof *e);
	struct sp_err err;
	struct uw_module *m;
	if (!e || sp_elf_open(e, path, &err) < 0) {
		free(e);
		return;
	}
	if (e->machine != EM_X86_64 || uw_module_new(&m, e, NULL, &err) < 0) {
		sp_elf_close(e);
		free(e);
		return;
	}
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	Dwarf_CFI *cfi = elf ? dwarf_getcfi_elf(elf) : NULL;
	for (unsigned i = 0; cfi && i < n && m->code.n; i++) {
		const struct cfi_code_range *r = &m->code.v[next_random() % m->code.n];
		ask(t, m, cfi, r->begin + next_random() % (r->end - r->begin), path);
	}
	if (cfi)
		dwarf_cfi_end(cfi);
	elf_end(elf);
	close(fd);
	uw_module_free(m);
}

static void compare_folder(struct tally *t, const char *folder, const char *start, unsigned files,
			   unsigned n)
{
	DIR *d = opendir(folder);
	struct dirent *entry;
	while (d && files && (entry = readdir(d))) {
		char path[600];
		snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		if (strncmp(entry->d_name, start, strlen(start)) != 0)
			continue;
		uint64_t before = t->asked;
		compare_file(t, path, n);
		files -= t->asked != before;
	}
	if (d)
		closedir(d);
}

static void report(const struct tally *t, uint64_t at_least, const char *name)
{
	printf("# %llu addresses, %llu with a row, %llu differ\n", (unsigned long long)t->asked,
	       (unsigned long long)t->known, (unsigned long long)t->differ);
	if (!tap_ok(t->known >= at_least && !t->differ, name) && t->differ)
		printf("# %s\n", t->first);
}

int main(int argc, char **argv)
{
	struct tally t = {0};
	elf_version(EV_CURRENT);
	if (argc > 1) {
		for (int i = 1; i < argc; i++)
			compare_file(&t, argv[i], 20000);
		report(&t, 1, "the named files");
		return tap_done();
	}
	compare_file(&t, "/lib/x86_64-linux-gnu/libc.so.6", 20000);
	compare_file(&t, "/lib64/ld-linux-x86-64.so.2", 5000);
	report(&t, 10000, "the C library's rows are libdw's");
	t = (struct tally){0};
	compare_file(&t, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 20000);
	compare_file(&t, "/bin/bash", 10000);
	compare_file(&t, argv[0], 5000);
	report(&t, 5000, "the rows of libstdc++, bash and this program are libdw's");
	t = (struct tally){0};
	compare_folder(&t, "/usr/lib/x86_64-linux-gnu", "lib", 300, 500);
	compare_folder(&t, "/usr/bin", "", 300, 300);
	report(&t, 5000, "the rows of the system's libraries and programs are libdw's");
	return tap_done();
}
