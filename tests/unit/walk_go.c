/* The walk through Go's programs that hold no CFI, by their function table, on stacks made by hand.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_dump.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c
 * unit: sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c
 * unit: sp-unwind/guess.c sp-unwind/insn.c sp-unwind/reuse.c sp-unwind/rule.c
 * unit: sp-unwind/walk.c sp-unwind/walk_full.c */
#include "walk_stack.h"

#include "elf/pclntab.h"
#include "../../sp-unwind/rule.h"
#include "go_image.h"

enum {
	RECORD = GO_TEXT,          /* push %rbp; mov %rsp,%rbp; sub $16,%rsp; …; pops, ret */
	BARE = GO_TEXT + 0x40,     /* sub $24,%rsp: no record */
	SWITCH = GO_TEXT + 0x80,   /* a record; mov 0x38(%r14),%rsp */
	SCHEDULE = GO_TEXT + 0xc0, /* mov 0x38(%rbx),%rsp: morestack */
	SAME = GO_TEXT + 0x100,    /* the same bytes, of a function that never does that */
	EXIT = GO_TEXT + 0x140,    /* goexit: nop; call; nop */
	START = GO_TEXT + 0x180,   /* rt0_go, in other code than Go's today */
	MSTART = GO_TEXT + 0x1c0,  /* the end of a stack for Go; something calls it */
	OLD = GO_TEXT + 0x200,     /* mov %rbx,%rsp: systemstack until 1.20 */
	BEHIND = GO_TEXT + 0x238,  /* padding */
};

static void function(struct go_image *m, uint32_t svma, const char *name, uint8_t flags,
		     uint32_t pcsp)
{
	struct go_func f = {
		.entry = svma - GO_TEXT, .size = 0x38, .name = name, .flags = flags, .pcsp = pcsp};
	go_func(m, &f);
}

static struct uw_module *go_module(const struct go_image *m)
{
	struct sp_elf *e = calloc(1, sizeof *e);
	struct uw_module *made = NULL;
	struct sp_err err = {0};
	if (!e || sp_elf_init(e, m->data, GO_SIZE, &err) < 0 ||
	    uw_module_new(&made, e, NULL, &err) < 0)
		printf("# %s\n", err.msg);
	return made;
}

static void make(struct go_image *m)
{
	static const uint8_t record[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 16};
	static const uint8_t switches[] = {0x55, 0x48, 0x89, 0xe5, 0x49, 0x8b, 0x66, 0x38};
	static const uint8_t schedules[] = {0x48, 0x8b, 0x63, 0x38};
	static const uint8_t goexit[] = {0x90, 0xe8, 1, 2, 3, 0, 0x90},
			     by_rbx[] = {0x48, 0x89, 0xdc};
	go_new(m, &(struct go_options){EM_X86_64, .sections = true, .place = GO_IN_HEAD});
	uint32_t framed = GO_LIST(m, {0, 1}, {8, 8}, {24, 0x36}, {8, 0x37}, {0, 0x38});
	uint32_t none = GO_LIST(m, {0, 0x38}), sub = GO_LIST(m, {0, 4}, {24, 0x38});
	uint32_t push = GO_LIST(m, {0, 1}, {8, 0x37}, {0, 0x38}), odd = GO_LIST(m, {12, 0x38});
	memcpy(m->data + RECORD, record, sizeof record);
	memcpy(m->data + SWITCH, switches, sizeof switches);
	memcpy(m->data + SCHEDULE, schedules, sizeof schedules);
	memcpy(m->data + SAME, schedules, sizeof schedules);
	memcpy(m->data + EXIT, goexit, sizeof goexit);
	memcpy(m->data + OLD, by_rbx, sizeof by_rbx);
	function(m, RECORD, "main.record", 0, framed);
	function(m, BARE, "main.bare", 0, sub);
	function(m, SWITCH, "runtime.systemstack", SP_GO_SP_WRITE | SP_GO_ASM, push);
	function(m, SCHEDULE, "runtime.morestack", SP_GO_SP_WRITE | SP_GO_ASM, none);
	function(m, SAME, "main.same", 0, none);
	function(m, EXIT, "runtime.goexit", SP_GO_TOP_FRAME | SP_GO_ASM, none);
	function(m, START, "runtime.rt0_go", SP_GO_TOP_FRAME | SP_GO_SP_WRITE | SP_GO_ASM, none);
	function(m, MSTART, "runtime.mstart", SP_GO_TOP_FRAME | SP_GO_ASM, none);
	function(m, OLD, "runtime.systemstack", SP_GO_SP_WRITE | SP_GO_ASM, none);
	function(m, OLD + 0x40, "main.odd", 0, odd);
	go_finish(m);
	module = go_module(m);
}

static void test_frames(void)
{
	at(BARE + 0x10);
	regs[BP] = ADDR(9);
	stack[3] = RA(RECORD);
	stack[6] = ADDR(30);
	stack[7] = RA(SAME);
	stack[8] = MAPPED(EXIT + 1);
	stack[9] = RA(BARE); /* left by another owner */
	EXPECT("frames are as large as the table says, goexit is the root", UW_END, BARE + 0x10,
	       SITE(RECORD), SITE(SAME), EXIT);
	at(BARE);
	stack[0] = RA(SAME);
	stack[1] = MAPPED(EXIT + 1);
	EXPECT("a first instruction has no frame", UW_END, BARE, SITE(SAME), EXIT);
	at(RECORD + 0x36);
	stack[1] = MAPPED(EXIT + 1);
	EXPECT("half of the frame is gone in an epilogue", UW_END, RECORD + 0x36, EXIT);
	at(RECORD + 0x20);
	stack[3] = RA(START);
	stack[4] = 1;
	EXPECT("the first thread's root", UW_END, RECORD + 0x20, SITE(START));
	at(RECORD + 0x20);
	stack[3] = RA(MSTART);
	stack[4] = MAPPED(EXIT + 1);
	EXPECT("mstart has a caller", UW_END, RECORD + 0x20, SITE(MSTART), EXIT);
}

static void test_switches(void)
{
	at(RECORD + 0x20);
	stack[2] = ADDR(10);
	stack[3] = RA(SWITCH);
	stack[10] = 1;
	stack[11] = MAPPED(EXIT + 1);
	EXPECT("who went to another stack is left by its frame record", UW_END, RECORD + 0x20,
	       SITE(SWITCH), EXIT);
	at(RECORD + 0x20);
	stack[2] = 0xc000001000;
	stack[3] = RA(SWITCH);
	EXPECT("which may lie on a stack of which there are no bytes", UW_NO_STACK, RECORD + 0x20,
	       SITE(SWITCH));
	at(RECORD + 0x20);
	stack[2] = 0;
	stack[3] = RA(SWITCH);
	EXPECT("there is no record: nothing called the scheduler", UW_END, RECORD + 0x20,
	       SITE(SWITCH));
	at(RECORD + 0x20);
	stack[2] = ADDR(10);
	stack[3] = RA(SCHEDULE);
	stack[4] = MAPPED(EXIT + 1);
	EXPECT("a goroutine that needs more stack is on another one", UW_NO_STACK, RECORD + 0x20,
	       SITE(SCHEDULE));
	at(RECORD + 0x20);
	stack[2] = ADDR(10);
	stack[3] = RA(OLD);
	stack[4] = MAPPED(EXIT + 1);
	EXPECT("so is who switched by a register", UW_NO_STACK, RECORD + 0x20, SITE(OLD));
	at(SCHEDULE);
	stack[0] = MAPPED(EXIT + 1);
	EXPECT("not before it has switched", UW_END, SCHEDULE, EXIT);
}

/* What the walk puts into rbp, which nobody but it sees: its next rule is by rbp. */
static void test_rules(void)
{
	struct uw_rule r = uw_rule_make(module, RECORD + 0x20, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 4 && r.ra_slot == -1 && r.fp_slot == -2,
	       "rbp lies below the return address where a record was made");
	r = uw_rule_make(module, RECORD + 1, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 2 && r.fp_slot == UW_SLOT_KEEP,
	       "not before rbp points to it");
	r = uw_rule_make(module, RECORD + 0x37, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 1 && r.fp_slot == UW_SLOT_KEEP,
	       "nor when it was popped");
	r = uw_rule_make(module, BARE + 0x10, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 4 && r.fp_slot == UW_SLOT_KEEP,
	       "nor without a record");
	r = uw_rule_make(module, BEHIND, NULL);
	tap_ok(r.kind != UW_RULE_SP, "padding is nobody's");
	r = uw_rule_make(module, OLD + 0x50, NULL);
	tap_ok(r.kind != UW_RULE_SP, "a frame of half words is no frame");
}

static void test_dump(void)
{
	char *text = NULL;
	size_t size = 0;
	struct sp_err err;
	FILE *f = open_memstream(&text, &size);
	bool good = f && uw_dump_cfi(module, f, &err) >= 0 && fclose(f) == 0;
	tap_ok(good && !strncmp(text,
				"1200\trsp+8\tc-8\tu\n1201\trsp+16\tc-8\tu\n"
				"1208\trsp+32\tc-8\tu\n1236\trsp+16\tc-8\tu\n"
				"1237\trsp+8\tc-8\tu\n1238\t-\n1240\trsp+8\tc-8\tu\n",
				100),
	       "--dump-cfi has the table's rows, and gaps between them");
	free(text);
}

/* stp's and subs: the return address at sp, x29's slot below. */
static void test_arm(void)
{
	struct go_image m;
	enum { A_FRAME = GO_TEXT, A_SWITCH = GO_TEXT + 0x40, A_BOTH = GO_TEXT + 0x80 };
	go_new(&m, &(struct go_options){EM_AARCH64, .sections = true, .place = GO_IN_HEAD});
	uint32_t list = GO_LIST(&m, {0, 8}, {32, 0x34}, {0, 0x38});
	function(&m, A_FRAME, "main.frame", 0, list);
	function(&m, A_SWITCH, "runtime.systemstack", SP_GO_SP_WRITE | SP_GO_ASM, list);
	function(&m, A_BOTH, "runtime.cgocallback", SP_GO_SP_WRITE | SP_GO_ASM, list);
	go_finish(&m);
	struct uw_module *arm = go_module(&m);
	struct uw_rule r = uw_rule_make(arm, A_FRAME + 4, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 0 && r.ra_slot == UW_SLOT_KEEP &&
		       r.fp_slot == UW_SLOT_KEEP,
	       "AArch64: the link register holds the return address of who has no frame");
	r = uw_rule_make(arm, A_FRAME + 0x20, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 4 && r.ra_slot == -4 && r.fp_slot == -5,
	       "it is stored at sp, x29 a word below");
	r = uw_rule_make(arm, A_SWITCH + 0x20, NULL);
	tap_ok(r.kind == UW_RULE_FP && r.cfa == 5 && r.ra_slot == -4 && r.fp_slot == -5 &&
		       r.flags == UW_RULE_SWITCHED,
	       "who writes sp is left by x29, which points a word below sp");
	r = uw_rule_make(arm, A_BOTH + 0x20, NULL);
	tap_ok(r.kind == UW_RULE_SP && r.cfa == 4, "but for who has a frame on both stacks");
	uw_module_free(arm);
	free(m.data);
}

int main(void)
{
	struct go_image m;
	make(&m);
	walker = uw_walker_new();
	if (!tap_ok(module && walker, "a module and a walker"))
		return tap_done();
	test_frames();
	test_switches();
	test_rules();
	test_dump();
	test_arm();
	uw_walker_free(walker);
	uw_module_free(module);
	free(m.data);
	return tap_done();
}
