/* What an exec was called with: the arguments on a new program's stack, and which of the lines that
 * are known belongs to an exec. unit: sp-capture/execs.c sp-capture/cmdlines.c
 * unit: sp-capture/events.c sp-capture/kernel.c
 * unit: sp-capture/emit.c sp-capture/emit_process.c sp-capture/emit_bpf.c
 * sp-capture/waits.c sp-capture/throttles.c sp-capture/label.c sp-capture/container.c
 * unit: sp-capture/output.c sp-capture/privileges.c sp-capture/procs.c sp-capture/python.c sp-capture/ring.c
 * unit: sp-capture/stacks.c sp-capture/tasks.c sp-capture/switches.c */
#include <string.h>
#include <unistd.h>

#include "../../sp-capture/execs.h"
#include "../../sp-capture/kernel.h"
#include "base/le.h"
#include "tap.h"

#define SP UINT64_C(0x7ffd00000100)

static uint8_t stack[512];

/* A stack of two arguments and a variable: pointers, a gap, the texts. */
static void make_stack(size_t word)
{
	static const char texts[] = "/bin/prog\0two words\0HOME=/";
	const uint64_t values[] = {2, SP + 300, SP + 310, 0, SP + 320, 0};
	memset(stack, 0, sizeof stack);
	memcpy(stack + 300, texts, sizeof texts);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		if (word == 8)
			sp_put64(stack + i * 8, values[i]);
		else
			sp_put32(stack + i * 4, (uint32_t)values[i]);
	}
}

static bool args_are(size_t n, uint64_t sp, size_t word, const char *want, size_t len)
{
	struct sp_buf b = {0};
	bool all = cap_execs_args(stack, n, sp, word, &b);
	bool same = all && b.len == len && (!len || !memcmp(b.data, want, len));
	sp_buf_deinit(&b);
	return want ? same : !all;
}

static void test_args(void)
{
	static const char want[] = "/bin/prog\0two words";
	make_stack(8);
	tap_ok(args_are(512, SP, 8, want, sizeof want), "the arguments, without the environment");
	tap_ok(args_are(321, SP, 8, want, sizeof want), "nothing behind them is needed");
	tap_ok(args_are(319, SP, 8, NULL, 0), "an argument that is cut");
	tap_ok(args_are(24, SP, 8, NULL, 0), "pointers that are cut");
	tap_ok(args_are(0, SP, 8, NULL, 0) && args_are(7, SP, 8, NULL, 0), "no stack");
	sp_put64(stack + 16, SP - 8);
	tap_ok(args_are(512, SP, 8, NULL, 0), "an argument below the stack");
	sp_put64(stack, UINT64_MAX);
	tap_ok(args_are(512, SP, 8, NULL, 0), "a number of arguments that cannot be");
	make_stack(4);
	tap_ok(args_are(512, (uint32_t)SP, 4, want, sizeof want), "words of 4 bytes");
	sp_put64(stack, 0);
	tap_ok(args_are(512, SP, 8, "", 0), "no arguments");
}

static bool takes(struct cap_cmdlines *c, int32_t pid, uint64_t time_ns, const char *want)
{
	struct sp_buf b = cap_cmdlines_take(c, pid, time_ns);
	size_t len = want ? strlen(want) + 1 : 0;
	bool same = b.len == len && (!len || !memcmp(b.data, want, len));
	sp_buf_deinit(&b);
	return same;
}

static void test_lines(void)
{
	struct cap_cmdlines c = {0};
	const int32_t gone = 0x7ffffff0; /* a pid that nobody has */
	char given[] = "given";
	char *const args[] = {given, NULL};
	cap_cmdlines_give(&c, gone, args);
	cap_cmdlines_tell(&c, gone, 205, "second", 7);
	cap_cmdlines_tell(&c, gone, 105, "first", 6);
	cap_cmdlines_tell(&c, gone - 1, 101, "other", 6);
	tap_ok(takes(&c, gone, 100, "first"), "the next that is told after an exec's record");
	tap_ok(takes(&c, gone, 200, "second"), "each exec has its own");
	tap_ok(takes(&c, gone, 300, NULL), "what was given was the first one's");
	tap_ok(takes(&c, gone - 1, 100, "other"), "another process's");
	cap_cmdlines_give(&c, gone, args);
	tap_ok(takes(&c, gone, 400, "given"), "what was given, where nothing is told");
	cap_cmdlines_tell(&c, gone, 505, "late", 5);
	cap_cmdlines_expire(&c, 504);
	tap_eq(c.n, 1, "what may still be asked for stays");
	cap_cmdlines_expire(&c, 505);
	tap_eq(c.n, 0, "what nobody asked for goes");
	tap_ok(!takes(&c, getpid(), 600, NULL), "a process that lives is asked");
	tap_eq(c.n, 0, "nothing is left of that");
	uint64_t before = cap_now_ns(), seen = cap_cmdlines_see(&c, getpid(), 700);
	tap_ok(seen >= before && seen <= cap_now_ns() && c.n == 1 && !takes(&c, getpid(), 700, NULL),
	       "and one that is met, at a time");
	cap_cmdlines_give(&c, getpid(), args);
	cap_cmdlines_see(&c, getpid(), 800);
	tap_ok(takes(&c, getpid(), 800, "given"), "what was given is its next exec's");
	cap_cmdlines_deinit(&c);
}

int main(void)
{
	test_args();
	test_lines();
	return tap_done();
}
