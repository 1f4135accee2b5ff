/* The walk on stacks made by hand: every kind of rule, every stop, PLTs, guesses without CFI.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c
 * unit: sp-unwind/guess.c sp-unwind/insn.c sp-unwind/reuse.c sp-unwind/rule.c
 * unit: sp-unwind/walk.c sp-unwind/walk_full.c */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "walk_stack.h"

static void test_rules(void)
{
	at(LEAF);
	stack[0] = RA(PUSHED);
	stack[1] = ADDR(6); /* rbp of FRAMED */
	stack[2] = RA(FRAMED);
	stack[6] = 0;
	stack[7] = RA(ROOT);
	EXPECT("sp rules, a frame pointer that was saved, the root", UW_END, LEAF, SITE(PUSHED),
	       SITE(FRAMED), SITE(ROOT));
	tap_ok(out.return_addrs[0] == MAPPED(LEAF) && out.return_addrs[1] == RA(PUSHED),
	       "return addresses are given as they were found");
	tap_ok(out.stop_map && out.stop_map->tag == 7, "the map where it ended is told");

	at(ODD + 0x20);
	memcpy((uint8_t *)stack + 12, &(uint64_t){RA(ROOT)}, 8);
	EXPECT("an odd CFA offset is exact", UW_END, ODD + 0x20, SITE(ROOT));

	at(PLT + 0x0a);
	stack[0] = RA(ROOT);
	EXPECT("a PLT entry before its push", UW_END, PLT + 0x0a, SITE(ROOT));
	at(PLT + 0x0b);
	stack[1] = RA(ROOT);
	EXPECT("a PLT entry behind its push", UW_END, PLT + 0x0b, SITE(ROOT));

	at(LEAF);
	stack[0] = RA(SAVES_RBX);
	stack[1] = ADDR(8); /* rbx */
	stack[2] = RA(BY_RBX);
	stack[9] = RA(ROOT);
	regs[BX] = 1;
	EXPECT("a CFA from a callee-saved register that a callee saved", UW_END, LEAF,
	       SITE(SAVES_RBX), SITE(BY_RBX), SITE(ROOT));

	at(DRAP);
	regs[BP] = ADDR(4);
	stack[3] = ADDR(10); /* *(rbp - 8): the CFA */
	stack[4] = ADDR(20); /* *rbp: the caller's rbp */
	stack[9] = RA(FRAMED);
	stack[21] = RA(ROOT);
	EXPECT("a realigned stack", UW_END, DRAP, SITE(FRAMED), SITE(ROOT));

	at(LEAVING); /* sp is reset from r10 behind `leave` */
	regs[R10] = ADDR(10);
	regs[BP] = ADDR(20); /* the caller's: so is rbx */
	regs[BX] = ADDR(30);
	stack[9] = RA(FRAMED);
	stack[20] = ADDR(40);
	stack[21] = RA(BY_RBX);
	stack[31] = RA(ROOT);
	EXPECT("behind a realigned frame's leave", UW_END, LEAVING, SITE(FRAMED), SITE(BY_RBX),
	       SITE(ROOT));
	regs[BP] = ADDR(4); /* before it */
	stack[2] = ADDR(30);
	stack[4] = ADDR(20);
	regs[BX] = 1;
	EXPECT("before it", UW_END, LEAVING, SITE(FRAMED), SITE(BY_RBX), SITE(ROOT));

	at(LEFT);
	regs[BP] = ADDR(20);
	stack[0] = RA(FRAMED);
	stack[20] = ADDR(40);
	stack[21] = RA(FRAMED);
	stack[41] = RA(ROOT);
	EXPECT("at its return", UW_END, LEFT, SITE(FRAMED), SITE(FRAMED), SITE(ROOT));

	at(VFORK);
	regs[DI] = RA(ROOT);
	EXPECT("a return address in a register", UW_END, VFORK, SITE(ROOT));

	at(PUSHED + 4);
	stack[1] = RA(ROOT);
	EXPECT("a frame of 16 bytes", UW_END, PUSHED + 4, SITE(ROOT));

	at(POPPED);
	regs[BP] = ADDR(6);
	stack[0] = RA(FRAMED);
	stack[7] = RA(ROOT);
	EXPECT("in an epilogue the frame pointer has its value back", UW_END, POPPED, SITE(FRAMED),
	       SITE(ROOT));
}

static void test_signals(void)
{
	at(LEAF);
	stack[0] = RA(SIGNAL);
	stack[1] = MAPPED(LEAF); /* interrupted at its first instruction */
	stack[2] = 0;            /* its rbp */
	stack[3] = ADDR(30);     /* its sp */
	stack[30] = RA(ROOT);
	EXPECT("below a signal frame the pc is exact, a first instruction too", UW_END, LEAF,
	       SITE(SIGNAL), LEAF, SITE(ROOT));

	at(LEAF);
	stack[0] = RA(SIGNAL);
	stack[1] = MAPPED(PUSHED);
	stack[3] = SP - 0x10000; /* a signal stack above: the interrupted one was not copied */
	EXPECT("an interrupted stack that was not copied", UW_NO_STACK, LEAF, SITE(SIGNAL), PUSHED);

	at(LEAF);
	stack[0] = RA(SIMPLE);
	stack[2] = MAPPED(LEAF);
	stack[3] = RA(ROOT);
	EXPECT("so it is where the frame's rules are common ones", UW_END, LEAF, SITE(SIMPLE), LEAF,
	       SITE(ROOT));

	at(LEAF);
	stack[0] = MAPPED(NO_CFI + 0x300);
	uint64_t *uc = &stack[1];
	uc[5 + 10] = ADDR(60);       /* rbp */
	uc[5 + 11] = ADDR(50);       /* rbx */
	uc[5 + 15] = ADDR(48);       /* rsp */
	uc[5 + 16] = MAPPED(BY_RBX); /* rip */
	stack[51] = RA(FRAMED);
	stack[61] = RA(ROOT);
	EXPECT("a trampoline without CFI, known by its bytes, gives all registers", UW_END, LEAF,
	       NO_CFI + 0x2ff, BY_RBX, SITE(FRAMED), SITE(ROOT));
	static const uint64_t inside[] = {NO_CFI + 0x300, NO_CFI + 0x307, NO_CFI + 0x309};
	for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
		regs[IP] = MAPPED(inside[i]);
		regs[SPI] = ADDR(1);
		sample.stack = (const uint8_t *)(stack + 1);
		sample.stack_bytes = sizeof stack - 8;
		EXPECT("the trampoline itself, while the kernel works too", UW_END, inside[i],
		       BY_RBX, SITE(FRAMED), SITE(ROOT));
	}
}

/* A call to where nothing is, of which a handler tells. */
static void test_nowhere(void)
{
	at(LEAF);
	stack[0] = RA(SIMPLE);
	stack[2] = 0;
	stack[3] = MAPPED(NO_CFI + 0x120);
	regs[BP] = ADDR(8);
	stack[9] = RA(ROOT);
	EXPECT("a call through a null pointer", UW_END, LEAF, SITE(SIMPLE), NO_CFI + 0x11f,
	       SITE(ROOT));
	stack[2] = MAPPED(0x70000);
	EXPECT("a call into a hole", UW_END, LEAF, SITE(SIMPLE), 0x70000, NO_CFI + 0x11f,
	       SITE(ROOT));
	stack[3] = MAPPED(NO_CFI + 0x214);
	EXPECT("there is no call, and the frame pointer is not its own", UW_NO_MODULE, LEAF,
	       SITE(SIMPLE), 0x70000);
	stack[2] = 0;
	EXPECT("at address 0 it is a return address that is not due", UW_NULL_RETURN, LEAF,
	       SITE(SIMPLE));

	at(LEAF);
	stack[0] = RA(SIGNAL);
	stack[2] = ADDR(8); /* rbp */
	stack[3] = ADDR(6); /* sp */
	stack[6] = MAPPED(NO_CFI + 0x120);
	stack[9] = RA(ROOT);
	EXPECT("the same, with all registers", UW_END, LEAF, SITE(SIGNAL), NO_CFI + 0x11f,
	       SITE(ROOT));
	stack[3] = SP - 0x10000;
	EXPECT("on a stack that was not copied", UW_NO_STACK, LEAF, SITE(SIGNAL));
}

/* Code at address 0 whose signal frames lead there again. */
static void test_circle(void)
{
	at(LEAF);
	maps[1] = maps[0];
	part.n = 2;
	regs[IP] = 0;
	maps[0] = (struct uw_map){0, 0x100, 0 - (uint64_t)(NO_CFI + 0x300), module, 0, 7};
	stack[5 + 15] = SP;
	walk();
	tap_ok(out.stop == UW_DEPTH && out.n == UW_MAX_FRAMES, "a circle at address 0 ends");
	maps[0].bias = 0 - (uint64_t)SIGNAL;
	stack[2] = ADDR(8);
	stack[10] = ADDR(0);
	walk();
	tap_ok(out.stop == UW_DEPTH && out.n == UW_MAX_FRAMES, "so it does with all registers");
}

/* A throw on its way to the landing pad in CATCHES: where libgcc saved rbp stands already the one
 * of that frame, or what it had in there. */
static void test_landing(void)
{
	static const uint64_t landing_rbp[] = {ADDR(20), ADDR(12), 3};
	for (size_t i = 0; i < 6; i++) {
		uint64_t throws = i < 3 ? THROWS : COLD;
		at(LEAF);
		stack[0] = RA(LANDS);
		stack[4] = landing_rbp[i % 3]; /* rbp at CFA - 16 */
		stack[5] = RA(throws);         /* its sp is 6 words up */
		stack[12] = ADDR(20);          /* its frame record */
		stack[13] = RA(CATCHES);
		stack[20] = 0; /* that of CATCHES */
		stack[21] = RA(ROOT);
		EXPECT("a frame that throws is found whosever frame pointer is there",
		       i % 3 == 2 ? UW_GUESSED : UW_END, LEAF, SITE(LANDS), SITE(throws), SITE(CATCHES),
		       SITE(ROOT));
	}
	at(LEAF);
	stack[0] = RA(LANDS);
	stack[4] = 3;
	stack[5] = RA(CATCHES);
	walk();
	tap_ok(out.stop != UW_END, "where it is not found the chain does not seem whole");
}

/* The sp that CFI looks for below sp also stands in the frame. */
static void test_saved_sp(void)
{
	at(REDZONE + 0x10);
	regs[BP] = ADDR(48);
	stack[3] = ADDR(30); /* points to no return address */
	stack[5] = 12;
	stack[7] = ADDR(40);
	stack[30] = MAPPED(NO_CFI + 0x214);
	stack[40] = MAPPED(NO_CFI + 0x120);
	stack[49] = RA(ROOT);
	EXPECT("a saved sp in the red zone and in the frame", UW_END, REDZONE + 0x10,
	       NO_CFI + 0x11f, SITE(ROOT));
	stack[7] = ADDR(6);
	stack[6] = MAPPED(NO_CFI + 0x120);
	EXPECT("it points up", UW_NO_STACK, REDZONE + 0x10);
	at(LEAF);
	stack[0] = RA(REDZONE);
	stack[7] = ADDR(40);
	stack[40] = MAPPED(NO_CFI + 0x120);
	walk();
	tap_eq(out.n, 2, "who calls has nothing below sp that is its own");
}

/* CFI that is wrong where the function ends: repz ret. */
static void test_wrong(void)
{
	image.data[WRONG + 0x20] = 0xf3;
	image.data[WRONG + 0x21] = 0xc3;
	at(WRONG + 0x20);
	regs[BP] = ADDR(8);
	stack[0] = MAPPED(NO_CFI + 0x120);
	stack[9] = RA(ROOT);
	stack[20] = 77;
	EXPECT("CFI leads to no code, a return to its caller", UW_END, WRONG + 0x20, NO_CFI + 0x11f,
	       SITE(ROOT));
	stack[0] = MAPPED(NO_CFI + 0x214);
	EXPECT("neither does the code", UW_NO_MODULE, WRONG + 0x20);

	/* As glibc's __start_context, which goes to the next context or ends the process: test;
	 * call; mov %rax,%rdi; call; hlt. */
	static const uint8_t code[] = {0x48, 0x85, 0xff, 0xe8, 1, 2, 3, 4,   0x48,
				       0x89, 0xc7, 0xe8, 1,    2, 3, 4, 0xf4};
	memcpy(image.data + WRONG + 0x40, code, sizeof code);
	at(LEAF);
	stack[0] = MAPPED(WRONG + 0x48);
	stack[21] = 77;
	EXPECT("nothing returns there: a root", UW_END, LEAF, WRONG + 0x47);
	at(WRONG + 0x40);
	stack[20] = 77;
	EXPECT("the same in the leaf", UW_END, WRONG + 0x40);
}

/* A PLT without CFI: at each instruction the caller, of whom the words above sp are the index and
 * what the first entry pushes. */
static void plt(const char *name, const uint8_t *code, size_t n, size_t at_byte, unsigned words)
{
	memset(image.data + NO_CFI + 0x500, 0xcc, 0x40);
	memcpy(image.data + NO_CFI + 0x500, code, n);
	struct uw_walker *was = walker;
	walker = uw_walker_new(); /* the rules of other bytes are not remembered */
	at(NO_CFI + 0x500 + at_byte);
	stack[words - 1] = RA(ROOT);
	EXPECT(name, UW_END, NO_CFI + 0x500 + at_byte, SITE(ROOT));
	uw_walker_free(walker);
	walker = was;
}

static void test_plt(void)
{
	/* clang-format off */
	const uint8_t lld[] = {0xff, 0x35, 1, 2, 3, 0, 0xff, 0x25, 1, 2, 3, 0, 0x0f, 0x1f, 0x40, 0,
			       0xff, 0x25, 1, 2, 3, 0, 0x68, 5, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff};
	const uint8_t mold[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35, 1, 2, 3, 0, 0xff, 0x25, 1, 2, 3, 0,
				0xcc, 0xcc, 0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 5, 0, 0, 0, 0xff, 0x25, 1, 2, 3, 0};
	const uint8_t bnd[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x68, 5, 0, 0, 0, 0xf2, 0xe9, 0xe1, 0xff, 0xff, 0xff, 0x90,
			       0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1, 2, 3, 0};
	/* clang-format on */
	plt("lld's first entry: the index was pushed", lld, sizeof lld, 0, 2);
	plt("its jump: GOT + 8 too", lld, sizeof lld, 6, 3);
	plt("lld's entry", lld, sizeof lld, 16, 1);
	plt("before the index is pushed", lld, sizeof lld, 22, 1);
	plt("behind", lld, sizeof lld, 27, 2);
	plt("mold's first entry", mold, sizeof mold, 0, 1);
	plt("behind endbr64", mold, sizeof mold, 4, 1);
	plt("the index was pushed", mold, sizeof mold, 6, 2);
	plt("and GOT + 8", mold, sizeof mold, 12, 3);
	plt("mold's entry", mold, sizeof mold, 20, 1);
	plt("mov $5,%r11d", mold, sizeof mold, 24, 1);
	plt("its jump", mold, sizeof mold, 30, 1);
	plt("an entry with bnd", bnd, sizeof bnd, 0, 1);
	plt("its push", bnd, sizeof bnd, 4, 1);
	plt("its jump", bnd, sizeof bnd, 9, 2);
	plt("its part in .plt.sec", bnd, sizeof bnd, 16, 1);
	plt("and the jump there", bnd, sizeof bnd, 20, 1);
}

static void test_stops(void)
{
	at(LEAF);
	sample.regs = NULL;
	walk();
	tap_ok(out.n == 0 && out.stop == UW_NO_REGS, "no registers");
	at(LEAF);
	sample.regs_abi = 1;
	EXPECT("a 32-bit task: one frame", UW_NO_REGS, LEAF);
	at(LEAF);
	sample.regs_mask = 1u << 8; /* ip only */
	regs[0] = MAPPED(LEAF);
	EXPECT("no sp: one frame", UW_BAD_REGS, LEAF);
	at(LEAF);
	sample.stack_bytes = 0;
	EXPECT("no stack bytes", UW_NO_STACK, LEAF);
	at(ROOT);
	sample.stack_bytes = 0;
	EXPECT("a root needs no stack bytes", UW_END, ROOT);
	at(LEAF);
	stack[0] = RA(PUSHED);
	sample.stack_bytes = 16;
	EXPECT("the copy ends", UW_STACK_EXHAUSTED, LEAF, SITE(PUSHED));
	at(HUGE);
	EXPECT("a frame larger than the copy", UW_STACK_EXHAUSTED, HUGE);
	/* As in SBCL, whose Lisp functions were called on another stack. */
	static const uint32_t by_rbp[] = {FRAMED, DRAP};
	for (int i = 0; i < 2; i++) {
		at(by_rbp[i] + 0x30);
		regs[BP] = ADDR(WORDS + 10);
		EXPECT("a frame behind the copy", UW_STACK_EXHAUSTED, by_rbp[i] + 0x30);
		regs[BP] = SP + (UINT64_C(16) << 20);
		EXPECT("a frame on another stack", UW_NO_STACK, by_rbp[i] + 0x30);
	}
	at(LEAF);
	stack[0] = 0x1234;
	EXPECT("a return address in no module is none", UW_NO_MODULE, LEAF);
	at(LEAF);
	stack[0] = MAPPED(IMAGE_SIZE) + 1;
	EXPECT("what lies right behind a map is in none", UW_NO_MODULE, LEAF);
	at(LEAF);
	EXPECT("a return address of 0 is an end", UW_END, LEAF);
	at(LEAF);
	stack[0] = RA(LOOPING);
	EXPECT("a frame that does not advance", UW_LOOP, LEAF, SITE(LOOPING));
	at(AGAIN + 0x20);
	stack[8] = RA(AGAIN);
	EXPECT("a signal frame that is its own caller", UW_LOOP, AGAIN + 0x20);
	at(LEAF);
	stack[0] = RA(BACK);
	regs[BP] = SP - 4096;
	EXPECT("a CFA below sp", UW_BACKWARDS, LEAF, SITE(BACK));
	at(LEAF);
	stack[0] = RA(ENDLESS);
	EXPECT("an endless expression", UW_BAD_CFA, LEAF, SITE(ENDLESS));
	at(LEAF);
	stack[0] = RA(BROKEN);
	EXPECT("a program that can't be understood", UW_BAD_CFA, LEAF, SITE(BROKEN));
	at(LEAF);
	for (int i = 0; i < WORDS; i++)
		stack[i] = RA(LEAF);
	walk();
	tap_ok(out.n == WORDS + 1 && out.stop == UW_STACK_EXHAUSTED,
	       "recursion up to the copy's end");
	static uint64_t deep[UW_MAX_FRAMES + 10];
	for (int i = 0; i < UW_MAX_FRAMES + 10; i++)
		deep[i] = RA(LEAF);
	sample.stack = (const uint8_t *)deep;
	sample.stack_bytes = sizeof deep;
	walk();
	tap_ok(out.n == UW_MAX_FRAMES && out.stop == UW_DEPTH, "the depth limit");
	at(LEAF);
	regs[SPI] = UINT64_MAX - 7;
	stack[0] = RA(LEAF);
	EXPECT("sp at the end of the address space", UW_OVERFLOW, LEAF);
	at(LEAF);
	sample.space = NULL;
	walk();
	tap_ok(out.n == 1 && out.stop == UW_NO_MODULE, "no maps at all: the leaf");
}

/* A stack whose far side stands in a file. */
static void test_far(void)
{
	enum { N = 900, HERE = 64, BEFORE = 100 };
	static uint64_t words[N];
	for (int i = 0; i < N; i++)
		words[i] = RA(LEAF);
	words[N - 1] = RA(ROOT);
	int fd = memfd_create("stack", MFD_CLOEXEC);
	tap_ok(pwrite(fd, words, sizeof words, BEFORE) == sizeof words, "a file of a stack");
	at(LEAF);
	memcpy(stack, words, 8 * HERE);
	sample.stack_here = 8 * HERE;
	sample.stack_bytes = sizeof words;
	sample.stack_fd = fd;
	sample.stack_foff = BEFORE;
	walk();
	if (!tap_ok(out.n == N + 1 && out.stop == UW_END, "its far side is read from the file"))
		print();
	tap_ok(ftruncate(fd, BEFORE + 8 * 300) == 0, "which is cut");
	uw_walker_free(walker);
	walker = uw_walker_new(); /* what was read is not remembered */
	walk();
	if (!tap_ok(out.n == 301 && out.stop == UW_STACK_EXHAUSTED, "and then ends the stack"))
		print();
	close(fd);
}

static void test_guesses(void)
{
	at(NO_CFI + 0x108);
	stack[0] = MAPPED(NO_CFI + 0x20); /* a direct call to NO_CFI + 0x100 stands before */
	regs[BP] = ADDR(4);
	stack[5] = RA(ROOT);
	EXPECT("a leaf without CFI: the return address at sp, then the frame pointer", UW_END,
	       NO_CFI + 0x108, NO_CFI + 0x1f, SITE(ROOT));

	at(THREAD - 8); /* behind clone's system call */
	stack[0] = MAPPED(NO_CFI + 0x20);
	EXPECT("a new thread's first instruction has no caller", UW_END, THREAD - 8);
	at(THREAD - 8);
	regs[AX] = 4711;
	stack[0] = MAPPED(NO_CFI + 0x120);
	stack[1] = 0;
	walk();
	tap_ok(out.n == 2 && out.addrs[1] == MAPPED(NO_CFI + 0x11f), "who called clone has one");
	at(THREAD - 0x20);
	EXPECT("farther away: no CFI", UW_NO_CFI, THREAD - 0x20);

	at(NO_CFI + 0x108);
	stack[0] = MAPPED(NO_CFI + 0x220); /* in code, but no call before it */
	regs[BP] = ADDR(4);
	stack[5] = MAPPED(NO_CFI + 0x20);
	EXPECT("what no call precedes is no return address", UW_END, NO_CFI + 0x108, NO_CFI + 0x1f);

	at(NO_CFI + 0x108);
	stack[0] = MAPPED(NO_CFI + 0x120); /* left from an earlier, indirect call */
	regs[BP] = ADDR(4);
	stack[4] = 0;
	stack[5] = MAPPED(NO_CFI + 0x20);
	EXPECT("a direct call to the function itself is the better evidence", UW_END,
	       NO_CFI + 0x108, NO_CFI + 0x1f);

	at(NO_CFI + 0x101);
	regs[BP] = 77;
	stack[0] = 77;
	stack[1] = MAPPED(NO_CFI + 0x20);
	walk();
	tap_ok(out.n == 2 && out.addrs[1] == MAPPED(NO_CFI + 0x1f), "behind push %rbp");

	at(NO_CFI + 0x108);
	regs[BP] = 5;
	EXPECT("neither: no CFI", UW_NO_CFI, NO_CFI + 0x108);
	at(NO_CFI + 0x108);
	regs[BP] = ADDR(4) + 4;
	memcpy((uint8_t *)&stack[5] + 4, &(uint64_t){RA(ROOT)}, 8);
	EXPECT("a frame pointer is a multiple of a word", UW_NO_CFI, NO_CFI + 0x108);
	at(NO_CFI + 0x108);
	regs[BP] = SP + (UINT64_C(16) << 20);
	stack[0] = MAPPED(NO_CFI + 0x20);
	EXPECT("what lies 16 MiB behind the copy is no frame", UW_NO_CFI, NO_CFI + 0x108,
	       NO_CFI + 0x1f);
	at(NO_CFI + 0x108);
	regs[BP] = ADDR(WORDS + 10);
	stack[0] = MAPPED(NO_CFI + 0x20);
	EXPECT("a frame pointer behind the copy", UW_STACK_EXHAUSTED, NO_CFI + 0x108,
	       NO_CFI + 0x1f);
}

/* What stands before a return address: only behind a call is it one. */
static void test_calls(void)
{
	static const struct {
		const char *name;
		uint8_t n, code[8];
		bool is_call;
	} codes[] = {
		{"call *%rax", 2, {0xff, 0xd0}, true},
		{"call *%r11", 3, {0x41, 0xff, 0xd3}, true},
		{"notrack call *%rax", 3, {0x3e, 0xff, 0xd0}, true},
		{"call *(%rax)", 2, {0xff, 0x10}, true},
		{"call *4(%rip)", 6, {0xff, 0x15, 4, 0, 0, 0}, true},
		{"call *8(%rsp)", 4, {0xff, 0x54, 0x24, 8}, true},
		{"call *256(%rsp)", 7, {0xff, 0x94, 0x24, 0, 1, 0, 0}, true},
		{"call *256", 7, {0xff, 0x14, 0x25, 0, 1, 0, 0}, true},
		{"call *(%rsp)", 3, {0xff, 0x14, 0x24}, true},
		{"jmp *%rax", 2, {0xff, 0xe0}, false},
		{"jmp *4(%rip)", 6, {0xff, 0x25, 4, 0, 0, 0}, false},
		{"a call that is cut", 5, {0xff, 0x15, 4, 0, 0}, false},
	};
	/* Behind int3: the way of the code at pc does not lead there. */
	memset(image.data + NO_CFI + 0x3f0, 0xcc, 0x10);
	memset(image.data + NO_CFI + 0x400, 0x90, 0x100);
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		uint64_t end = NO_CFI + 0x400 + 16 * (i + 1);
		memcpy(image.data + end - codes[i].n, codes[i].code, codes[i].n);
		at(NO_CFI + 0x108);
		regs[BP] = 5;
		stack[0] = MAPPED(end);
		const uint64_t want[] = {NO_CFI + 0x108, end - 1};
		expect(codes[i].name, UW_NO_CFI, want, codes[i].is_call ? 2 : 1);
	}
}

static void test_headers(void)
{
	static const struct {
		const char *name;
		size_t at;
		uint8_t byte;
	} patches[] = {
		{"an unknown header version", IMAGE_HDR, 9},
		{"an indirect table", IMAGE_HDR + 3, 0xbb},
		{"a table encoding that can't be searched", IMAGE_HDR + 3, 0x1b},
		{"a count beyond the file", IMAGE_HDR + 10, 0xff},
		{"a count that is too small", IMAGE_HDR + 8, 3},
		{"an entry out of order", IMAGE_HDR + 12 + 8 * 7 + 1, 0x00},
		{"an FDE pointer to nowhere", IMAGE_HDR + 12 + 8 * 13 + 6, 0x55},
	};
	for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
		uint8_t *p = image.data + patches[i].at, old = *p;
		*p = patches[i].byte;
		struct uw_module *good = module;
		module = image_module(&image);
		at(LEAF);
		stack[0] = RA(SAVES_RBX);
		stack[2] = RA(DRAP);
		regs[BP] = ADDR(4);
		stack[3] = ADDR(10);
		stack[9] = RA(ROOT);
		/* The header tells where .eh_frame is: without it nothing is found here. */
		walk();
		bool needs_hdr = i == 0;
		bool whole = out.n == 4 && out.stop == UW_END;
		if (!tap_ok(needs_hdr ? out.n >= 1 : whole, patches[i].name))
			print();
		uw_module_free(module);
		module = good;
		*p = old;
	}
}

static void test_counters(void)
{
	const struct sp_counters *c = uw_walker_counters(walker);
	uint64_t misses = c->v[SP_C_rule_misses], hits = c->v[SP_C_rule_hits],
		 fp = c->v[SP_C_frame_pointer_frames], frames = c->v[SP_C_frames];
	at(LEAF);
	stack[0] = RA(LEAF);
	stack[1] = RA(ROOT);
	walk();
	tap_ok(c->v[SP_C_rule_misses] - misses <= 3 && c->v[SP_C_frames] - frames == 3,
	       "frames and rule misses are counted");
	misses = c->v[SP_C_rule_misses];
	walk();
	tap_ok(c->v[SP_C_rule_misses] == misses && c->v[SP_C_rule_hits] >= hits + 3,
	       "the second walk finds all rules");
	at(NO_CFI + 0x108);
	regs[BP] = ADDR(4);
	stack[5] = RA(ROOT);
	walk();
	tap_eq(c->v[SP_C_frame_pointer_frames] - fp, 1, "frame-pointer frames are counted");
}

int main(void)
{
	if (!walk_begin())
		return tap_done();
	test_rules();
	test_signals();
	test_nowhere();
	test_circle();
	test_landing();
	test_saved_sp();
	test_wrong();
	test_plt();
	test_stops();
	test_far();
	test_guesses();
	test_calls();
	test_headers();
	test_counters();
	return walk_end();
}
