/* The walk through what has rules of its own, on stacks made by hand: Go, musl, JIT code, CPython's
 * trampolines.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/golang.c
 * unit: sp-unwind/guess.c sp-unwind/insn.c sp-unwind/reuse.c sp-unwind/rule.c
 * unit: sp-unwind/walk.c sp-unwind/walk_full.c */
#include "walk_stack.h"

/* Go's goroutines return to goexit's second byte; its first thread's stack is the process's. */
static void test_go(void)
{
	const uint8_t goexit[] = {0x90, 0xe8, 1, 2, 3, 0, 0x90};
	memcpy(image.data + NO_CFI + 0x600, goexit, sizeof goexit);
	at(NO_CFI + 0x108);
	regs[BP] = ADDR(4);
	stack[5] = MAPPED(NO_CFI + 0x601);
	EXPECT("a goroutine's root is goexit", UW_END, NO_CFI + 0x108, NO_CFI + 0x600);

	at(FRAMED);
	regs[BP] = ADDR(4);
	stack[5] = 2; /* argc */
	stack[6] = ADDR(100);
	stack[7] = ADDR(101);
	EXPECT("argc and argv are no caller", UW_END, FRAMED);
	stack[7] = ADDR(99);
	EXPECT("an argv does not descend", UW_NO_MODULE, FRAMED);
	stack[7] = ADDR(101);
	stack[8] = 1;
	EXPECT("an argv has an end", UW_NO_MODULE, FRAMED);
	stack[8] = 0;
	stack[6] = ADDR(6);
	EXPECT("arguments lie above argv", UW_NO_MODULE, FRAMED);
}

/* Go's functions, in an image of their own with sections: all that its .debug_frame says of them is
 * how far sp is from the return address. */
enum {
	GO_RECORD = 0x1000, /* 1.20: sub $24,%rsp; mov %rbp,16(%rsp); lea 16(%rsp),%rbp */
	GO_SWITCH = 0x1040, /* push %rbp; mov %rsp,%rbp; mov 0x38(%r14),%rsp; …; pop %rbp; ret */
	GO_BARE = 0x1080,   /* mov 0x38(%rbx),%rsp */
	GO_EXIT = 0x10c0,   /* nop; call; nop */
	GO_START = 0x1100,  /* rt0_go */
	GO_CLONE = 0x1140,  /* call *%r12; mov $111,%edi */
	GO_FRAME = 0x6000,  /* .debug_frame */
	GO_SECTIONS = 0x7000,
};

static void go_fde(struct image *m, uint64_t begin, const uint8_t *ops, uint32_t n)
{
	const uint64_t range[] = {begin, 0x40};
	image_u32(m, 20 + n);
	image_u32(m, 0); /* its CIE */
	image_bytes(m, range, sizeof range);
	image_bytes(m, ops, n);
}
#define GO_FDE(m, begin, ...)                                                                      \
	go_fde(m, begin, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void go_image(struct image *m, const char *note)
{
	static const uint8_t cie[] = {3, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0};
	static const uint8_t record[] = {0x48, 0x83, 0xec, 24,   0x48, 0x89, 0x6c,
					 0x24, 16,   0x48, 0x8d, 0x6c, 0x24, 16};
	static const uint8_t switches[] = {0x55, 0x48, 0x89, 0xe5, 0x49, 0x8b, 0x66, 0x38};
	static const uint8_t bare[] = {0x48, 0x8b, 0x63, 0x38},
			     goexit[] = {0x90, 0xe8, 1, 2, 3, 0, 0x90};
	static const uint8_t rt0[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf3, 0x48,
				      0x83, 0xec, 0x28, 0x48, 0x83, 0xe4, 0xf0};
	static const uint8_t clone[] = {0x41, 0xff, 0xd4, 0xbf, 111, 0, 0, 0};
	image_new(m, EM_X86_64);
	memcpy(m->data + GO_START, rt0, sizeof rt0);
	memcpy(m->data + GO_CLONE + 0x20 - 3, clone, sizeof clone);
	memcpy(m->data + GO_RECORD, record, sizeof record);
	memcpy(m->data + GO_SWITCH, switches, sizeof switches);
	memcpy(m->data + GO_BARE, bare, sizeof bare);
	memcpy(m->data + GO_EXIT, goexit, sizeof goexit);
	m->at = GO_FRAME;
	image_u32(m, 4 + sizeof cie);
	image_u32(m, UINT32_MAX);
	image_bytes(m, cie, sizeof cie);
	GO_FDE(m, GO_RECORD, 0x44, 0x0e, 32);
	GO_FDE(m, GO_SWITCH, 0x41, 0x0e, 16, 0x6f, 0x0e, 8); /* 1 on: 16; 0x30 on: 8 */
	GO_FDE(m, GO_BARE, 0);
	GO_FDE(m, GO_EXIT, 0);
	GO_FDE(m, GO_START, 0);
	GO_FDE(m, GO_CLONE, 0);
	char names[64];
	size_t frame_name = (size_t)snprintf(names, sizeof names, "%c%s", 0, note) + 1;
	size_t table_name = frame_name + sizeof ".debug_frame";
	memcpy(names + frame_name, ".debug_frame", sizeof ".debug_frame");
	memcpy(names + table_name, ".shstrtab", sizeof ".shstrtab");
	memcpy(m->data + GO_SECTIONS + 0x200, names, sizeof names);
	const Elf64_Shdr sections[] = {
		{0},
		{.sh_name = 1,
		 .sh_type = SHT_NOTE,
		 .sh_offset = GO_SECTIONS + 0x300,
		 .sh_size = 16},
		{.sh_name = (uint32_t)frame_name,
		 .sh_type = SHT_PROGBITS,
		 .sh_offset = GO_FRAME,
		 .sh_size = m->at - GO_FRAME},
		{.sh_name = (uint32_t)table_name,
		 .sh_type = SHT_STRTAB,
		 .sh_offset = GO_SECTIONS + 0x200,
		 .sh_size = sizeof names},
	};
	memcpy(m->data + GO_SECTIONS, sections, sizeof sections);
	Elf64_Ehdr *e = (void *)m->data;
	e->e_shoff = GO_SECTIONS;
	e->e_shentsize = sizeof *sections;
	e->e_shnum = 4;
	e->e_shstrndx = 3;
}

/* Where the walk of a stack of record, switch and goexit ends. */
static void go_expect(const char *name, uint64_t fp, enum uw_stop stop, uint32_t n)
{
	at(GO_RECORD + 0x20);
	stack[2] = fp; /* saved by GO_RECORD */
	stack[3] = RA(GO_SWITCH);
	stack[10] = 1;
	stack[11] = MAPPED(GO_EXIT + 1);
	stack[12] = RA(GO_RECORD); /* left by another owner */
	const uint64_t all[] = {GO_RECORD + 0x20, SITE(GO_SWITCH), GO_EXIT};
	expect(name, stop, all, n);
}

static void test_go_rules(void)
{
	struct image of_go, of_c;
	struct uw_module *was = module;
	go_image(&of_go, ".note.go.buildid");
	go_image(&of_c, ".note.gnu.build-id");
	module = image_module(&of_go);
	go_expect("a function that went to another stack is left by its frame record, goexit is "
		  "the root",
		  ADDR(10), UW_END, 3);
	go_expect("its record lies on the other stack, of which there are no bytes", 0xc000001000,
		  UW_NO_STACK, 2);
	go_expect("there is no record: nothing called the scheduler", 0, UW_END, 2);
	at(GO_SWITCH + 0x30);
	stack[0] = MAPPED(GO_EXIT + 1);
	EXPECT("back on its own stack, rbp popped", UW_END, GO_SWITCH + 0x30, GO_EXIT);
	at(GO_RECORD + 0x20);
	stack[3] = RA(GO_START);
	stack[4] = 1;
	EXPECT("the first thread's root", UW_END, GO_RECORD + 0x20, SITE(GO_START));
	at(GO_RECORD + 0x20);
	stack[3] = RA(GO_CLONE);
	stack[4] = 1; /* what lies above a thread's stack */
	EXPECT("another thread's root", UW_END, GO_RECORD + 0x20, SITE(GO_CLONE));
	at(GO_RECORD + 0x20);
	stack[3] = RA(GO_BARE);
	stack[4] = MAPPED(GO_EXIT + 1);
	EXPECT("on another stack, and no record at all", UW_NO_STACK, GO_RECORD + 0x20,
	       SITE(GO_BARE));
	uw_module_free(module);
	module = image_module(&of_c);
	at(GO_SWITCH + 0x20);
	regs[BP] = ADDR(10);
	stack[1] = MAPPED(GO_EXIT + 1);
	stack[2] = 1;
	EXPECT("the same bytes in C are what their CFI says", UW_NO_MODULE, GO_SWITCH + 0x20,
	       GO_EXIT);
	uw_module_free(module);
	module = was;
	free(of_go.data);
	free(of_c.data);
}

/* musl: no CFI, no frame pointers; what calls main keeps five words below _start's return address,
 * which lies right below argc. clone's code behind its call is a thread's root. */
static void test_musl(void)
{
	const uint8_t exits[] = {0x41, 0xff, 0xd1, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05};
	memcpy(image.data + NO_CFI + 0x700, exits, sizeof exits);
	const uint64_t clone = MAPPED(NO_CFI + 0x703);
	at(LEAF);
	regs[BP] = 1;
	stack[0] = MAPPED(NO_CFI + 0x120);
	stack[1] = MAPPED(IMAGE_SIZE + 8); /* what a callee saved: in no code */
	stack[4] = clone;
	EXPECT("the first call of a thread without CFI", UW_END, LEAF, NO_CFI + 0x11f,
	       NO_CFI + 0x702);
	stack[3] = MAPPED(NO_CFI + 0x20);
	EXPECT("another return address stands before the root's", UW_NO_CFI, LEAF, NO_CFI + 0x11f);
	stack[3] = 0;
	stack[4] = 0;
	stack[33] = clone;
	EXPECT("the root is too far away", UW_NO_CFI, LEAF, NO_CFI + 0x11f);

	struct image of_musl;
	struct uw_module *was = module;
	image_new(&of_musl, EM_X86_64);
	((Elf64_Ehdr *)(void *)of_musl.data)->e_entry = NO_CFI;
	image_x86_basics(&of_musl);
	image_finish(&of_musl);
	memcpy(of_musl.data + NO_CFI, "\x48\x83\xe4\xf0\xe8\0\0\0\0", 9);
	memcpy(of_musl.data + NO_CFI + 0x11e, "\xff\xd0", 2);
	module = image_module(&of_musl);
	at(LEAF);
	regs[BP] = 1;
	stack[0] = MAPPED(NO_CFI + 0x120);
	stack[6] = MAPPED(NO_CFI + 9);
	stack[7] = 2; /* argc */
	stack[8] = ADDR(100);
	stack[9] = ADDR(101);
	EXPECT("the entry's call, below argc", UW_END, LEAF, NO_CFI + 0x11f, NO_CFI + 8);
	sample.stack_bytes = 9 * 8;
	EXPECT("the copy ends in argv", UW_END, LEAF, NO_CFI + 0x11f, NO_CFI + 8);
	sample.stack_bytes = 8 * 8;
	EXPECT("argc alone is a number like any other", UW_NO_CFI, LEAF, NO_CFI + 0x11f);
	sample.stack_bytes = sizeof stack;
	stack[7] = 0;
	EXPECT("no argc above the entry's call", UW_NO_CFI, LEAF, NO_CFI + 0x11f);
	uw_module_free(module);
	module = was;
	free(of_musl.data);
}

/* JIT code: an anonymous map behind the image. */
static void with_jit(uint64_t svma)
{
	at(svma);
	maps[1] = (struct uw_map){MAPPED(0x10000), MAPPED(0x20000), 0, NULL, UW_MAP_ANON, 9};
	part.n = 2;
}

static void test_jit(void)
{
	with_jit(LEAF);
	stack[0] = MAPPED(0x10050);
	regs[BP] = ADDR(8);
	stack[8] = ADDR(12);
	stack[9] = MAPPED(0x10070);
	stack[13] = RA(ROOT);
	EXPECT("JIT frames by the frame pointer", UW_END, LEAF, 0x1004f, 0x1006f, SITE(ROOT));

	/* The interrupted function is JIT code itself: behind its push, and in its body, where an
	 * old return address into the file lies at sp. */
	with_jit(0x10058);
	regs[BP] = ADDR(8);
	stack[0] = ADDR(8);
	stack[1] = MAPPED(0x10070);
	stack[8] = ADDR(12);
	stack[9] = RA(ROOT);
	EXPECT("JIT code behind its push, called by JIT code", UW_END, 0x10058, 0x1006f,
	       SITE(ROOT));
	stack[0] = MAPPED(NO_CFI + 0x120);
	stack[9] = MAPPED(0x10070);
	stack[13] = RA(ROOT);
	EXPECT("JIT code with a frame, an old address at sp", UW_END, 0x10058, 0x1006f, SITE(ROOT));
	/* An address in JIT code, where nobody can see whether a call stands before it. */
	stack[0] = MAPPED(0x10030);
	EXPECT("JIT code with two possible callers", UW_GUESSED, 0x10058, 0x1006f, SITE(ROOT));
	tap_ok(out.stop_map == &maps[1], "that it is a guess is told of the JIT code");
	stack[13] = MAPPED(0x30000);
	EXPECT("no guess hides a stop", UW_NO_CFI, 0x10058, 0x1006f);
	stack[13] = RA(ROOT);
	/* As in V8: rcx still holds the address of the function that was called. */
	stack[0] = MAPPED(0x10030);
	regs[CX] = MAPPED(0x10050);
	EXPECT("JIT code that has just begun: the address at sp", UW_END, 0x10058, 0x1002f, 0x1006f,
	       SITE(ROOT));
	regs[CX] = MAPPED(0x10040);
	EXPECT("JIT code that began a while ago", UW_GUESSED, 0x10058, 0x1006f, SITE(ROOT));

	/* BEAM's and PHP's, which keep no frame pointers: 0 in rbp is a number like others. */
	with_jit(LEAF);
	stack[0] = MAPPED(0x10050);
	regs[BP] = 0;
	EXPECT("no frame pointer in JIT code is no root", UW_NO_CFI, LEAF, 0x1004f);
	regs[BP] = ADDR(8);
	stack[8] = 0;
	stack[9] = MAPPED(0x10070);
	EXPECT("unless a frame record says so", UW_END, LEAF, 0x1004f, 0x1006f);
}

/* HotSpot's compiled code: sp is a multiple of 16 in its body. */
static void test_hotspot(void)
{
	for (uint64_t entry = 0; entry < 2; entry++) {
		with_jit(0x10058);
		space.has_jvm = true;
		regs[SPI] = ADDR(2 + entry);
		sample.stack = (const uint8_t *)(stack + 2 + entry);
		sample.stack_bytes -= 16 + 8 * entry;
		regs[BP] = ADDR(8);
		stack[2 + entry] = MAPPED(0x10030);
		stack[8] = ADDR(12);
		stack[9] = MAPPED(0x10070);
		stack[13] = RA(ROOT);
		if (entry)
			EXPECT("compiled Java without its frame: the address at sp", UW_END,
			       0x10058, 0x1002f, 0x1006f, SITE(ROOT));
		else
			EXPECT("compiled Java with its frame, an address at sp", UW_GUESSED,
			       0x10058, 0x1006f, SITE(ROOT));
		space.has_jvm = false;
	}
}

/* A builtin in the file, with a frame: its body, its first and last instructions. */
static void test_builtin(void)
{
	static const uint8_t builtin[] = {0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0xc9, 0xc3};
	memcpy(image.data + NO_CFI + 0x800, builtin, sizeof builtin);
	static const uint32_t with_frame[] = {0x804, 0x805}, without[] = {0x800, 0x807};
	for (int i = 0; i < 2; i++) {
		with_jit(NO_CFI + with_frame[i]);
		regs[BP] = ADDR(8);
		stack[0] = MAPPED(0x10050);
		stack[8] = ADDR(12);
		stack[9] = MAPPED(0x10070);
		stack[13] = RA(ROOT);
		EXPECT("a builtin's body, an old address at sp", UW_END, NO_CFI + with_frame[i],
		       0x1006f, SITE(ROOT));
		regs[IP] = MAPPED(NO_CFI + without[i]);
		EXPECT("a builtin before and behind its frame", UW_END, NO_CFI + without[i],
		       0x1004f, 0x1006f, SITE(ROOT));
	}
	image.data[NO_CFI + 0x807] = 0xc2; /* ret $8 */
	walk();
	tap_ok(out.n == 4 && out.addrs[1] == MAPPED(0x1004f), "one that takes its arguments away");
}

/* A builtin's way out: pop %rcx; lea 16(%r15),%rsp; push %rcx; ret. */
static void test_held(void)
{
	static const uint8_t code[] = {0x59, 0x49, 0x8d, 0x67, 16, 0x51, 0xc3};
	memcpy(image.data + NO_CFI + 0x900, code, sizeof code);
	for (uint64_t i = 0; i < 2; i++) {
		with_jit(NO_CFI + 0x901 + 4 * i);
		regs[SPI] = ADDR(i ? 6 : 1);
		sample.stack = (const uint8_t *)(stack + (i ? 6 : 1));
		sample.stack_bytes -= i ? 48 : 8;
		regs[CX] = MAPPED(NO_CFI + 0x120);
		regs[R8 + 7] = ADDR(4);
		regs[BP] = ADDR(8);
		stack[1] = stack[6] = MAPPED(0x10050); /* left there */
		stack[9] = RA(ROOT);
		EXPECT("the return address is in a register", UW_END, NO_CFI + 0x901 + 4 * i,
		       NO_CFI + 0x11f, SITE(ROOT));
	}
	regs[CX] = MAPPED(NO_CFI + 0x214);
	walk();
	tap_ok(out.n == 1 || out.addrs[1] != MAPPED(NO_CFI + 0x213), "no call is before it");
}

/* CPython's trampoline: called by NO_CFI (the interpreter's part), calls LEAF, same file. */
static void test_cpython(void)
{
	with_jit(LEAF);
	space.has_python = true;
	stack[0] = MAPPED(0x10050);
	stack[2] = MAPPED(NO_CFI + 0x120);
	stack[9] = MAPPED(0x10070);
	regs[BP] = 3;
	walk();
	tap_ok(out.n == 3 && out.addrs[1] == MAPPED(0x1004f) &&
		       out.addrs[2] == MAPPED(NO_CFI + 0x11f),
	       "a CPython trampoline has sixteen bytes");
}

int main(void)
{
	if (!walk_begin())
		return tap_done();
	test_go();
	test_go_rules();
	test_musl();
	test_jit();
	test_hotspot();
	test_builtin();
	test_held();
	test_cpython();
	return walk_end();
}
