/* Frames taken over from a thread's last walk: what is taken, what not, and that thousands of
 * random stacks come out as without.
 *
 * unit: sp-unwind/arch.c sp-unwind/cfi_entry.c sp-unwind/cfi_module.c sp-unwind/cfi_program.c
 * unit: sp-unwind/cfi_table.c sp-unwind/code.c sp-unwind/code_arm.c sp-unwind/expr.c
 * unit: sp-unwind/insn.c
 * unit: sp-unwind/guess.c sp-unwind/reuse.c
 * unit: sp-unwind/golang.c sp-unwind/rule.c sp-unwind/walk.c sp-unwind/walk_full.c */
#include "tap.h"

#include <stdlib.h>

#include "../../sp-unwind/memo.h"
#include "image.h"

#define BIAS 0x555500000000u
#define SP 0x7ffe00001000u
#define WORDS 4096u

enum {
	BY_RBX = 0x1400,    /* CFA = rbx + 16: all registers are needed */
	SAVES_RBX = 0x1500, /* CFA = rsp + 16, rbx at CFA - 16 */
	NO_CFI = 0x2000,    /* a frame pointer */
};

static struct image image;
static struct uw_module *module;
static struct uw_walker *walker, *plain;
static struct uw_stack out, want;
static uint64_t stack[WORDS], regs[24];
static struct uw_map maps[2];
static const struct uw_maps part = {maps, 1};
static struct uw_space space;

#define MAPPED(svma) (BIAS + (uint64_t)(svma))
#define RA(function) MAPPED((function) + 0x20)
#define ADDR(word) (SP + 8 * (uint64_t)(word))

enum { BX = 1, BP = 6, SPI = 7, IP = 8 };

static void make_image(void)
{
	image_new(&image, EM_X86_64);
	struct image *m = &image;
	image_x86_basics(m);
	IMAGE_FDE(m, false, BY_RBX, 0x100, 0x0c, 3, 16);
	IMAGE_FDE(m, false, SAVES_RBX, 0x100, 0x0e, 16, 0x83, 2);
	image_finish(m);
	image.data[NO_CFI + 0x1e] = 0xff; /* call *%rax before RA(NO_CFI) */
	image.data[NO_CFI + 0x1f] = 0xd0;
}

static struct uw_sample sample_at(unsigned word, uint64_t thread)
{
	regs[SPI] = ADDR(word);
	return (struct uw_sample){.machine = EM_X86_64,
				  .regs_mask = 0xff01ff,
				  .regs = (const uint8_t *)regs,
				  .regs_abi = 2,
				  .stack = (const uint8_t *)&stack[word],
				  .stack_bytes = (WORDS - word) * 8,
				  .space = &space,
				  .thread = thread};
}

static uint64_t reused(void)
{
	return uw_walker_counters(walker)->v[SP_C_reused_frames];
}

/* Walk with what was kept and without: the frames that were taken over, or UINT64_MAX when the
 * stacks differ. */
static uint64_t both(unsigned word, uint64_t thread)
{
	uint64_t before = reused();
	struct uw_sample s = sample_at(word, thread);
	uw_walk_ahead(walker, &s);
	uw_walk(walker, &s, &out);
	s.thread = 0;
	uw_walk(plain, &s, &want);
	bool same = out.n == want.n && out.stop == want.stop && out.stop_map == want.stop_map &&
		    !memcmp(out.addrs, want.addrs, out.n * sizeof *out.addrs) &&
		    !memcmp(out.return_addrs, want.return_addrs, out.n * sizeof *out.addrs);
	return same ? reused() - before : UINT64_MAX;
}

/* LEAF <- PUSHED <- PUSHED <- FRAMED <- NO_CFI <- ROOT, sp at word 100. */
static void chain(void)
{
	memset(stack, 0, sizeof stack);
	regs[IP] = MAPPED(LEAF + 0x20);
	regs[BP] = 5;
	stack[100] = RA(PUSHED);
	stack[101] = 7;
	stack[102] = RA(PUSHED) + 1;
	stack[103] = ADDR(110);
	stack[104] = RA(FRAMED);
	stack[110] = ADDR(120);
	stack[111] = RA(NO_CFI);
	stack[120] = 0;
	stack[121] = RA(ROOT);
}

static void test_what_is_taken(void)
{
	chain();
	tap_eq(both(100, 1), 0, "nothing is there for a first walk");
	tap_eq(out.n, 6, "which has six frames");
	(void)both(100, 1); /* by now it is known what stands before the frame pointer's answer */
	tap_eq(both(100, 1), 4, "the same again: all but the leaf and the root");
	regs[IP] = MAPPED(LEAF + 0x30);
	tap_eq(both(100, 1), 4, "another place in the leaf");
	tap_eq(both(100, 2), 0, "another thread has its own");
	tap_eq(both(100, 1), 4, "and leaves the first one's");
	stack[99] = RA(LEAF);
	tap_eq(both(99, 1), 4, "a frame more");
	tap_eq(out.n, 7, "is there");
	stack[101] = 8;
	tap_eq(both(100, 1), 2, "a saved register that goes two frames far: taken up behind them");
	stack[101] = 7;
	(void)both(100, 1);
	(void)both(100, 1);
	stack[111] = RA(PUSHED);
	tap_eq(both(100, 1), 2, "a return address changed: taken up to there");
	stack[111] = RA(NO_CFI);
	(void)both(100, 1);
	stack[120] = 77;
	tap_eq(both(100, 1), 3, "a saved frame pointer changed: taken up to there");
	space.id++;
	tap_eq(both(100, 1), 0, "other mappings: nothing");
	space.id = 0;
	(void)both(100, 1);
	tap_eq(both(100, 1), 0, "mappings without a number: nothing");
	space.id = 9;
}

static uint32_t seed = 1;

static uint32_t random_below(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)seed * n >> 32);
}

/* A stack that grows and shrinks by calls and returns. */
static struct {
	uint64_t function, fp;
	unsigned word;
} calls[600];
static unsigned n_calls;

static void call(void)
{
	static const uint64_t functions[] = {LEAF, PUSHED, FRAMED, NO_CFI, SAVES_RBX};
	uint64_t f = random_below(100) ? functions[random_below(5)] : BY_RBX;
	uint64_t caller = calls[n_calls - 1].function;
	/* Functions with a frame pointer may have more on their stack. */
	unsigned more = caller == FRAMED || caller == NO_CFI ? random_below(3) : 0;
	unsigned word = calls[n_calls - 1].word - more;
	uint64_t fp = calls[n_calls - 1].fp;
	stack[--word] = RA(caller) + (caller == NO_CFI ? 0 : random_below(3));
	if (f == PUSHED || f == FRAMED || f == NO_CFI)
		stack[--word] = fp;
	if (f == FRAMED || f == NO_CFI)
		fp = ADDR(word);
	if (f == SAVES_RBX) {
		word--;
		stack[word] = random_below(2) ? ADDR(word + 6) : 0;
	}
	calls[n_calls].function = f;
	calls[n_calls].fp = fp;
	calls[n_calls++].word = word;
}

static void test_random(void)
{
	unsigned differ = 0, frames = 0, taken = 0;
	memset(stack, 0, sizeof stack);
	calls[0].function = ROOT;
	calls[0].word = WORDS - 8;
	n_calls = 1;
	for (int i = 0; i < 20000; i++) {
		unsigned back = random_below(n_calls < 300 ? 6 : 400), on = random_below(8);
		n_calls = back + 1 < n_calls ? n_calls - back : 1;
		for (unsigned k = 0; k < on; k++)
			call();
		unsigned word = calls[n_calls - 1].word;
		regs[IP] = MAPPED(calls[n_calls - 1].function + random_below(0x40));
		regs[BP] = calls[n_calls - 1].fp;
		regs[BX] = ADDR(word + random_below(4));
		uint64_t *odd = &stack[word + random_below(WORDS - word)], old = *odd;
		if (random_below(4) == 0)
			*odd = random_below(2) ? RA(PUSHED) : ADDR(word + random_below(40));
		uint64_t n = both(word, 1 + random_below(2) * UW_MEMO_THREADS);
		*odd = old;
		differ += n == UINT64_MAX;
		taken += n == UINT64_MAX ? 0 : (unsigned)n;
		frames += out.n;
	}
	printf("# %u frames, %u taken over\n", frames, taken);
	tap_eq(differ, 0, "20,000 random stacks are the same with and without");
	tap_ok(taken > frames / 16, "and a good part of their frames was taken over");
	const struct sp_counters *a = uw_walker_counters(walker), *b = uw_walker_counters(plain);
	tap_ok(a->v[SP_C_frame_pointer_frames] == b->v[SP_C_frame_pointer_frames] &&
		       a->v[SP_C_frames] == b->v[SP_C_frames],
	       "frames are counted the same");
}

int main(void)
{
	make_image();
	module = image_module(&image);
	walker = uw_walker_new();
	plain = uw_walker_new();
	if (!tap_ok(module && walker && plain, "a module and walkers"))
		return tap_done();
	maps[0] = (struct uw_map){MAPPED(0), MAPPED(IMAGE_SIZE), BIAS, module, 0, 7};
	space = (struct uw_space){.parts = &part, .n = 1, .id = 9};
	test_what_is_taken();
	test_random();
	uw_walker_free(walker);
	uw_walker_free(plain);
	uw_module_free(module);
	free(image.data);
	return tap_done();
}
