/* A stack made by hand, and the walk of it: the x86-64 image with every kind of rule, registers, a
 * map. One of each, as a test walks one stack at a time. */
#ifndef SP_TESTS_WALK_STACK_H
#define SP_TESTS_WALK_STACK_H

#include "image.h"
#include "tap.h"

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
	POPPED = 0x3000,    /* an epilogue: CFA = rsp + 8, rbp at CFA - 16 still */
	SIMPLE = 0x3100,    /* a signal frame by common rules: CFA = rsp + 16 */
	REDZONE = 0x3300,   /* CFA = *(rsp - 8) + 8 */
	WRONG = 0x3400,     /* CFA = rsp + 168, of code that has no frame */
	LEFT = 0x3500,      /* CFA = rsp + 8, rbp at *rbp: DRAP's last instruction */
	LEAVING = 0x3600,   /* CFA = r10, rbp at *rbp, rbx at *(rbp - 16) */
	LANDS = 0x3700,     /* CFA = rsp + 40; rbp, rdx, rax saved: it may leave for a landing pad */
	THROWS = 0x3800,    /* CFA = rbp + 16, a frame of 48 bytes; called by CATCHES + 0x20 */
	COLD = 0x3900,      /* THROWS's cold part */
	CATCHES = 0x3a00,   /* CFA = rbp + 16, called by ROOT */
	AGAIN = 0x3200,     /* a signal frame whose CFA is rsp, return address 64 above */
};

static struct image image;
static struct uw_module *module;
static struct uw_walker *walker;
static struct uw_stack out;
static uint64_t stack[WORDS];
static uint64_t regs[24];
static struct uw_map maps[2]; /* the image; a test's own */
static struct uw_maps part = {maps, 1};
static struct uw_space space = {.parts = &part, .n = 1};
static struct uw_sample sample;

#define MAPPED(svma) (BIAS + (uint64_t)(svma))
/* A return address into a function, and what is looked up for it. */
#define RA(function) MAPPED((function) + 0x20)
#define SITE(function) ((function) + 0x1f)

enum { AX, BX, CX, DX, SI, DI, BP, SPI, IP, R8 = 9, R10 = 11 };

/* A jump or call at an address of the image. */
static inline void image_call(uint32_t from, uint8_t op, uint32_t to)
{
	const int32_t rel = (int32_t)(to - from - 5);
	image.data[from] = op;
	memcpy(image.data + from + 1, &rel, 4);
}

static inline void x86_image(void)
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
	IMAGE_FDE(m, false, POPPED, 0x100, 0x0e, 8, 0x86, 2);
	IMAGE_FDE(m, true, SIMPLE, 0x100, 0x0e, 16);
	IMAGE_FDE(m, true, AGAIN, 0x100, 0x0e, 0, 0x11, 16, 0x78);
	IMAGE_FDE(m, false, REDZONE, 0x100, 0x0f, 5, 0x77, 0x78, 0x06, 0x23, 8);
	IMAGE_FDE(m, false, WRONG, 0x100, 0x0e, 0xa8, 0x01);
	IMAGE_FDE(m, false, LEFT, 0x100, 0x0e, 8, 0x10, 6, 2, 0x76, 0);
	IMAGE_FDE(m, false, LEAVING, 0x100, 0x0c, 10, 0, 0x10, 6, 2, 0x76, 0, 0x10, 3, 2, 0x76,
		  0x70);
	IMAGE_FDE(m, false, LANDS, 0x100, 0x0e, 40, 0x86, 2, 0x81, 3, 0x80, 4);
	IMAGE_FDE(m, false, THROWS, 0x100, 0x0c, 6, 16, 0x86, 2);
	IMAGE_FDE(m, false, COLD, 0x100, 0x0c, 6, 16, 0x86, 2);
	IMAGE_FDE(m, false, CATCHES, 0x100, 0x0c, 6, 16, 0x86, 2);
	image_finish(m);
	/* Calls before the return addresses without CFI: one direct, to NO_CFI + 0x100. */
	image.data[NO_CFI + 0x1b] = 0xe8;
	const int32_t rel = 0x100 - 0x20;
	memcpy(image.data + NO_CFI + 0x1c, &rel, 4);
	image.data[NO_CFI + 0x11e] = 0xff; /* call *%rax before 0x120 */
	image.data[NO_CFI + 0x11f] = 0xd0;
	image.data[NO_CFI + 0x210] = 0x90; /* not blank, no call */
	/* push %rbp; mov %rsp,%rbp; push %rbx; sub $40,%rsp; …; jmp COLD; the calls of both */
	const uint8_t prologue[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 40};
	memcpy(image.data + THROWS, prologue, sizeof prologue);
	image_call(THROWS + 0x40, 0xe9, COLD);
	image_call(CATCHES + 0x1b, 0xe8, THROWS);
	image_call(ROOT + 0x1b, 0xe8, CATCHES);
	const uint8_t restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	memcpy(image.data + NO_CFI + 0x300, restorer, sizeof restorer);
}

/* A fresh stack and registers: pc in a function. */
static inline void at(uint64_t svma)
{
	memset(stack, 0, sizeof stack);
	memset(regs, 0, sizeof regs);
	maps[0] = (struct uw_map){MAPPED(0), MAPPED(IMAGE_SIZE), BIAS, module, 0, 7};
	part.n = 1;
	space = (struct uw_space){.parts = &part, .n = 1};
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

static inline void walk(void)
{
	memset(&out, 0xee, sizeof out);
	uw_walk(walker, &sample, &out);
}

static inline void print(void)
{
	printf("# %u frames, stop %d:", out.n, (int)out.stop);
	for (uint32_t i = 0; i < out.n && i < 8; i++)
		printf(" %llx", (unsigned long long)(out.addrs[i] - BIAS));
	puts("");
}

/* The walk's looked-up addresses less the bias, and how it stopped. */
static inline void expect(const char *name, enum uw_stop stop, const uint64_t *want, uint32_t n)
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

/* The image, its module and the walker; false: there are none. */
static inline bool walk_begin(void)
{
	x86_image();
	module = image_module(&image);
	walker = uw_walker_new();
	return tap_ok(module && walker, "a module and a walker");
}

static inline int walk_end(void)
{
	uw_walker_free(walker);
	uw_module_free(module);
	free(image.data);
	return tap_done();
}

#endif
