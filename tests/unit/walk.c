/* The walk on stacks made by hand: every kind of rule, every stop, guesses without CFI, AArch64.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/expr.c sp-unwind/golang.c sp-unwind/guess.c
 * sp-unwind/rule.c unit: sp-unwind/reuse.c sp-unwind/walk.c sp-unwind/walk_full.c */
#include "tap.h"

#include "image.h"

#define BIAS 0x555500000000u
#define SP 0x7ffe00001000u
#define WORDS 512

/* The functions of the x86-64 image. */
enum {
	ODD = 0x1400,       /* CFA = rsp + 20 */
	BY_RBX = 0x1500,    /* CFA = rbx + 16 */
	PLT = 0x1600,       /* the PLT's expression */
	DRAP = 0x1700,      /* CFA = *(rbp - 8), rbp at *rbp */
	SIGNAL = 0x1800,    /* a signal frame: all by expressions over rsp */
	VFORK = 0x1900,     /* return address in rdi */
	LOOPING = 0x1a00,   /* CFA = rsp + 0 */
	BACK = 0x1b00,      /* CFA = rbp + 16, and no saved rbp */
	ENDLESS = 0x1c00,   /* an expression that never ends */
	SAVES_RBX = 0x1d00, /* CFA = rsp + 16, rbx at CFA - 16 */
	BROKEN = 0x1e00,    /* a program that nobody understands */
	HUGE = 0x1f00,      /* CFA = rsp + 1 MiB */
	NO_CFI = 0x2000,    /* up to 0x2fff, but for */
	THREAD = 0x2c0a,    /* a thread's root */
};

static struct image image;
static struct uw_module *module;
static struct uw_walker *walker;
static struct uw_stack out;
static uint64_t stack[WORDS];
static uint64_t regs[24];
static struct uw_map maps[2];
static struct uw_space space = {.maps = maps, .n = 1};
static struct uw_sample sample;

#define MAPPED(svma) (BIAS + (uint64_t)(svma))
/* A return address into a function. */
#define RA(function) MAPPED((function) + 0x20)

enum { AX, BX, CX, DX, SI, DI, BP, SPI, IP, R8 = 9 };

static void x86_image(void)
{
	image_new(&image, EM_X86_64);
	struct image *m = &image;
	image_x86_basics(m);
	IMAGE_FDE(m, false, ODD, 0x100, 0x0e, 20);
	IMAGE_FDE(m, false, BY_RBX, 0x100, 0x0c, 3, 16);
	IMAGE_FDE(m, false, PLT, 0x100, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33,
		  0x24, 0x22);
	IMAGE_FDE(m, false, DRAP, 0x100, 0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0);
	/* CFA = *(rsp + 16), pc at rsp + 0, rbp at rsp + 8 */
	IMAGE_FDE(m, true, SIGNAL, 0x100, 0x0f, 3, 0x77, 16, 0x06, 0x10, 16, 2, 0x77, 0, 0x10, 6, 2,
		  0x77, 8);
	IMAGE_FDE(m, false, VFORK, 0x100, 0x0e, 0, 0x09, 16, 5);
	IMAGE_FDE(m, false, LOOPING, 0x100, 0x0e, 0, 0x11, 16, 0x78);
	IMAGE_FDE(m, false, BACK, 0x100, 0x0c, 6, 16);
	IMAGE_FDE(m, false, ENDLESS, 0x100, 0x0f, 4, 0x31, 0x2f, 0xfd, 0xff);
	IMAGE_FDE(m, false, SAVES_RBX, 0x100, 0x0e, 16, 0x83, 2);
	IMAGE_FDE(m, false, BROKEN, 0x100, 0x3e);
	IMAGE_FDE(m, false, HUGE, 0x100, 0x0e, 0x80, 0x80, 0x40);
	IMAGE_FDE(m, false, THREAD, 0x10, 0x07, 16);
	image_finish(m);
	/* Calls before the return addresses without CFI: one direct, to NO_CFI + 0x100. */
	image.data[NO_CFI + 0x1b] = 0xe8;
	const int32_t rel = 0x100 - 0x20;
	memcpy(image.data + NO_CFI + 0x1c, &rel, 4);
	image.data[NO_CFI + 0x11e] = 0xff; /* call *%rax before 0x120 */
	image.data[NO_CFI + 0x11f] = 0xd0;
	image.data[NO_CFI + 0x210] = 0x90; /* not blank, no call */
	const uint8_t restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	memcpy(image.data + NO_CFI + 0x300, restorer, sizeof restorer);
}

/* A fresh stack and registers: pc in a function. */
static void at(uint64_t svma)
{
	memset(stack, 0, sizeof stack);
	memset(regs, 0, sizeof regs);
	maps[0] = (struct uw_map){MAPPED(0), MAPPED(IMAGE_SIZE), BIAS, module, 0, 7};
	space = (struct uw_space){.maps = maps, .n = 1};
	regs[SPI] = SP;
	regs[IP] = MAPPED(svma);
	sample = (struct uw_sample){
		.machine = EM_X86_64,
		.regs_mask = 0xff01ff,
		.regs = (const uint8_t *)regs,
		.regs_abi = 2,
		.stack = (const uint8_t *)stack,
		.stack_bytes = sizeof stack,
		.space = &space,
	};
}

#define ADDR(word) (SP + 8 * (uint64_t)(word))

static void walk(void)
{
	memset(&out, 0xee, sizeof out);
	uw_walk(walker, &sample, &out);
}

static void print(void)
{
	printf("# %u frames, stop %d:", out.n, (int)out.stop);
	for (uint32_t i = 0; i < out.n && i < 8; i++)
		printf(" %llx", (unsigned long long)(out.addrs[i] - BIAS));
	puts("");
}

/* The walk's looked-up addresses less the bias, and how it stopped. */
static void expect(const char *name, enum uw_stop stop, const uint64_t *want, uint32_t n)
{
	walk();
	bool same = out.n == n && out.stop == stop;
	for (uint32_t i = 0; i < n && same; i++)
		same = out.addrs[i] - BIAS == want[i];
	if (!tap_ok(same, name))
		print();
}
#define EXPECT(name, stop, ...)                                                                    \
	expect(name, stop, (const uint64_t[]){__VA_ARGS__},                                        \
	       sizeof((const uint64_t[]){__VA_ARGS__}) / 8)

#define SITE(function) ((function) + 0x1f) /* of RA(function) */

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

	at(VFORK);
	regs[DI] = RA(ROOT);
	EXPECT("a return address in a register", UW_END, VFORK, SITE(ROOT));

	at(PUSHED + 4);
	regs[BP] = ADDR(6);
	sample.stack_bytes = 8 * 100;
	/* In an epilogue: the row says rbp at CFA - 16, which is below sp. */
	IMAGE_FDE(&image, false, 0x3000, 0, 0);
	stack[1] = RA(ROOT);
	EXPECT("a frame of 16 bytes", UW_END, PUSHED + 4, SITE(ROOT));
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
	EXPECT("an interrupted stack that was not copied", UW_STACK_EXHAUSTED, LEAF, SITE(SIGNAL),
	       PUSHED);

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
	image_new(m, EM_X86_64);
	memcpy(m->data + GO_START, rt0, sizeof rt0);
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
	stack[3] = RA(GO_BARE);
	stack[4] = MAPPED(GO_EXIT + 1);
	EXPECT("on another stack, and no record at all", UW_BAD_CFA, GO_RECORD + 0x20,
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
	at(LEAF);
	stack[0] = 0x1234;
	EXPECT("a return address in no module is none", UW_NO_MODULE, LEAF);
	at(LEAF);
	EXPECT("a return address of 0 is an end", UW_END, LEAF);
	at(LEAF);
	stack[0] = RA(LOOPING);
	EXPECT("a frame that does not advance", UW_LOOP, LEAF, SITE(LOOPING));
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
	regs[BP] = ADDR(WORDS + 10);
	stack[0] = MAPPED(NO_CFI + 0x20);
	EXPECT("a frame pointer behind the copy", UW_STACK_EXHAUSTED, NO_CFI + 0x108,
	       NO_CFI + 0x1f);

	/* JIT code: an anonymous map. */
	at(LEAF);
	maps[1] = (struct uw_map){MAPPED(0x10000), MAPPED(0x20000), 0, NULL, UW_MAP_ANON, 9};
	space.n = 2;
	stack[0] = MAPPED(0x10050);
	regs[BP] = ADDR(8);
	stack[8] = ADDR(12);
	stack[9] = MAPPED(0x10070);
	stack[13] = RA(ROOT);
	EXPECT("JIT frames by the frame pointer", UW_END, LEAF, 0x1004f, 0x1006f, SITE(ROOT));

	/* The interrupted function is JIT code itself: behind its push, and in its body, where an
	 * old return address into the file lies at sp. */
	at(0x10058);
	space.n = 2;
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

	/* A builtin in the file that begins behind int3, with a frame: its body, its first and last
	 * instructions. */
	static const uint8_t builtin[] = {0xcc, 0xcc, 0x55, 0x48, 0x89,
					  0xe5, 0x90, 0x90, 0x5d, 0xc3};
	memcpy(image.data + NO_CFI + 0x7fe, builtin, sizeof builtin);
	static const uint32_t with_frame[] = {0x804, 0x805}, without[] = {0x800, 0x807};
	for (int i = 0; i < 2; i++) {
		at(NO_CFI + with_frame[i]);
		space.n = 2;
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

	/* CPython's trampoline: called by NO_CFI (the interpreter's part), calls LEAF, same file.
	 */
	at(LEAF);
	space.n = 2;
	stack[9] = MAPPED(0x10070);
	space.has_python = true;
	stack[0] = MAPPED(0x10050);
	stack[2] = MAPPED(NO_CFI + 0x120);
	regs[BP] = 3;
	walk();
	tap_ok(out.n == 3 && out.addrs[1] == MAPPED(0x1004f) &&
		       out.addrs[2] == MAPPED(NO_CFI + 0x11f),
	       "a CPython trampoline has sixteen bytes");
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

/* --- AArch64 --- */

enum {
	A_LEAF = 0x1000,   /* CFA = sp, return address live */
	A_FRAME = 0x1100,  /* CFA = sp + 16, x29 at CFA - 16, x30 at CFA - 8 */
	A_ROOT = 0x1200,   /* x30 undefined */
	A_SIGNED = 0x1300, /* as A_FRAME, the return address signed */
	A_RETURN = 0x2000, /* mov x8,#139; svc #0 */
	A_NO_CFI = 0x2100,
};

static void arm_at(uint64_t svma)
{
	at(svma);
	sample.machine = EM_AARCH64;
	sample.regs_mask = (UINT64_C(1) << 33) - 1;
	memset(regs, 0, sizeof regs);
}

static void test_arm(void)
{
	static uint64_t r[33];
	struct image arm;
	struct uw_module *x86 = module;
	image_new(&arm, EM_AARCH64);
	IMAGE_FDE(&arm, false, A_LEAF, 0x100, 0);
	IMAGE_FDE(&arm, false, A_FRAME, 0x100, 0x0e, 16, 0x9d, 2, 0x9e, 1);
	IMAGE_FDE(&arm, false, A_ROOT, 0x100, 0x07, 30);
	IMAGE_FDE(&arm, false, A_SIGNED, 0x100, 0x2d, 0x0e, 16, 0x9d, 2, 0x9e, 1);
	image_finish(&arm);
	const uint32_t code[] = {0xd2801168, 0xd4000001};
	memcpy(arm.data + A_RETURN, code, sizeof code);
	const uint32_t bl = 0x94000000 | (A_NO_CFI - (A_NO_CFI + 0x3c)) / 4 % 0x4000000;
	memcpy(arm.data + A_NO_CFI + 0x3c, &bl, 4);
	module = image_module(&arm);
	arm_at(A_LEAF);
	sample.regs = (const uint8_t *)r;
	r[32] = MAPPED(A_LEAF);
	r[31] = SP;
	r[30] = MAPPED(A_FRAME + 0x20);
	r[29] = ADDR(8);
	stack[0] = ADDR(8);
	/* Signed: bits above 47 hold a signature. */
	stack[1] = MAPPED(A_SIGNED + 0x20) | UINT64_C(0x2b) << 48;
	stack[2] = ADDR(20);
	stack[3] = MAPPED(A_ROOT + 0x20) | UINT64_C(0x7f) << 48;
	EXPECT("the link register, frames, signed return addresses, the root", UW_END, A_LEAF,
	       SITE(A_FRAME), SITE(A_SIGNED), SITE(A_ROOT));
	stack[1] = MAPPED(A_LEAF + 0x20);
	EXPECT("a link register that was overwritten is no return address", UW_LOOP, A_LEAF,
	       SITE(A_FRAME), SITE(A_LEAF));

	/* A signal in the middle: the trampoline's frame holds the registers. */
	memset(stack, 0, sizeof stack);
	r[30] = MAPPED(A_RETURN);
	uint64_t *mc = &stack[(128 + 176 + 8) / 8];
	mc[29] = ADDR(90);
	mc[30] = MAPPED(A_FRAME + 0x20);
	mc[31] = ADDR(80);
	mc[32] = MAPPED(A_LEAF + 8);
	stack[80] = ADDR(95);
	stack[81] = MAPPED(A_ROOT + 0x20);
	EXPECT("below a signal trampoline the link register is live again", UW_END, A_LEAF,
	       A_RETURN - 1, A_LEAF + 8, SITE(A_FRAME), SITE(A_ROOT));

	/* No CFI: a leaf without a frame, called by a BL. */
	memset(stack, 0, sizeof stack);
	r[32] = MAPPED(A_NO_CFI + 4);
	r[30] = MAPPED(A_NO_CFI + 0x40);
	r[29] = ADDR(4);
	stack[5] = MAPPED(A_ROOT + 0x20);
	walk();
	tap_ok(out.n >= 2, "a leaf without CFI has a caller");
	uw_module_free(module);
	free(arm.data);
	module = x86;
}

int main(void)
{
	x86_image();
	module = image_module(&image);
	walker = uw_walker_new();
	if (!tap_ok(module && walker, "a module and a walker"))
		return tap_done();
	test_rules();
	test_signals();
	test_plt();
	test_go();
	test_go_rules();
	test_musl();
	test_stops();
	test_guesses();
	test_headers();
	test_counters();
	test_arm();
	uw_walker_free(walker);
	uw_module_free(module);
	free(image.data);
	return tap_done();
}
