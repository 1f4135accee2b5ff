/* sp-capture's small parsers: ids, CPU lists, events, output names, control commands, the stack's
 * end, Python command lines, kallsyms.
 * unit: sp-capture/options.c sp-capture/limit.c
 * unit: sp-capture/events.c
 * unit: sp-capture/kernel.c
 * unit: sp-capture/control.c sp-capture/control_socket.c sp-capture/sudo.c
 * unit: sp-capture/stacks.c
 * unit: sp-capture/embed.c
 * unit: sp-capture/embed_jit.c
 * unit: sp-capture/python.c
 * unit: sp-capture/kallsyms.c
 * unit: sp-capture/emit.c sp-capture/emit_process.c sp-capture/emit_bpf.c
 * sp-capture/switches.c sp-capture/waits.c sp-capture/throttles.c sp-capture/label.c sp-capture/container.c
 * unit: sp-capture/output.c sp-capture/privileges.c
 * unit: sp-capture/procs.c
 * unit: sp-capture/ring.c
 * unit: sp-capture/tasks.c sp-capture/cmdlines.c */
#include <stdlib.h>
#include <string.h>

#include "../../sp-capture/control.h"
#include "../../sp-capture/embed.h"
#include "../../sp-capture/events.h"
#include "../../sp-capture/kallsyms.h"
#include "../../sp-capture/limit.h"
#include "../../sp-capture/options.h"
#include "../../sp-capture/python.h"
#include "../../sp-capture/stacks.h"
#include "base/le.h"
#include "base/proc.h"
#include "tap.h"

static bool ids(const char *text, size_t n_want, int32_t last)
{
	int32_t *v = NULL;
	size_t n = 0, cap = 0, len;
	const char *bad;
	bool ok = cap_ids_parse(&v, &n, &cap, text, &bad, &len) && n == n_want && v[n - 1] == last;
	free(v);
	return ok;
}

static void test_ids(void)
{
	tap_ok(ids("1", 1, 1), "one pid");
	tap_ok(ids("12,34,12", 2, 34), "several pids, each once");
	tap_ok(ids("2147483647", 1, INT32_MAX), "the largest pid");
	static const char *const wrong[] = {"0",  "-1",  "",           "1,",
					    ",1", "12x", "2147483648", "99999999999999999999",
					    " 1", "1 2"};
	bool none = true;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		none &= !ids(wrong[i], 1, 1);
	tap_ok(none, "0, negative, too large and malformed ids are refused");
}

static bool cpus(const char *text, const char *want)
{
	uint32_t *v = NULL;
	size_t n = 0, cap = 0, at = 0;
	char got[100] = "";
	if (!cap_cpu_list_parse(&v, &n, &cap, text, strlen(text)))
		strcpy(got, "no");
	else
		for (size_t i = 0; i < n; i++)
			at += (size_t)snprintf(got + at, sizeof got - at, "%s%u", i ? " " : "",
					       v[i]);
	free(v);
	return !strcmp(got, want);
}

static void test_names(void)
{
	tap_ok(cpus("0-3,8,10-11\n", "0 1 2 3 8 10 11"), "a CPU list with gaps");
	tap_ok(cpus("2,0-1", "0 1 2"), "an unsorted one");
	tap_ok(cpus("", "no") && cpus("\n", "no") && cpus("3-1", "no") && cpus("0-", "no") &&
		       cpus("a", "no") && cpus("0-99999999", "no"),
	       "empty, reversed, cut and huge lists are refused");
	tap_ok(cap_event_find("faults") == cap_event_find("page-faults"),
	       "an event by its other name");
	tap_ok(!cap_event_find("nonsense"), "an unknown event is not found");
	tap_ok(cap_output_kind("a.spool") == CAP_TO_SPOOL &&
		       cap_output_kind("a.data") == CAP_TO_DATA &&
		       cap_output_kind("-") == CAP_TO_STDOUT && cap_output_kind("a") < 0 &&
		       cap_output_kind(".data") < 0,
	       "an output's kind is in its name");
	int32_t pid = 0;
	tap_ok(cap_command_parse("add 12", &pid) == CAP_ADD && pid == 12, "control: add PID");
	tap_ok(cap_command_parse("stop", &pid) == CAP_STOP &&
		       cap_command_parse("stop now", &pid) == CAP_BAD,
	       "control: stop, and nothing after it");
	tap_ok(cap_command_parse("add 0", &pid) == CAP_BAD &&
		       cap_command_parse("add", &pid) == CAP_BAD &&
		       cap_command_parse("add 1x", &pid) == CAP_BAD &&
		       cap_command_parse("add -5", &pid) == CAP_BAD,
	       "control: wrong pids are refused");
}

static const char maps[] =
	"55d0-55d4 r-xp 00000000 08:01 12 /bin/x y\n"
	"garbage\n"
	"7f0000000000-7f0000800000 rw-p 00000000 00:00 0 \n"
	"7f0000800000-7f0000801000 ---p 00000000 00:00 0\n"
	"7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n";

static void test_stack_top(void)
{
	static uint8_t top[CAP_STACK_TOP];
	const uint64_t hi = 0x7f0000800000, tcb = hi - 0x900;
	uint8_t *at = top + sizeof top - 0x900;
	sp_put64(at, tcb);
	sp_put64(at + 16, tcb);
	sp_put64(top + 64, hi - sizeof top + 64); /* a pointer to itself alone says nothing */
#if defined(__x86_64__)
	tap_eq(cap_stack_tcb(top, sizeof top, hi), 0, "a control block has a dtv");
	sp_put64(at + 8, 1);
	tap_eq(cap_stack_tcb(top, sizeof top, hi), tcb, "glibc's control block is found");
	tap_eq(cap_stack_tcb(at + 8, 0x8f8, hi), 0, "but not one that begins before the bytes");
#endif
	tap_eq(cap_stack_tcb(top, 0, hi), 0, "no bytes, no control block");
	struct cap_stack_slot slot = {.lo = tcb, .hi = hi, .look_at_top = true};
	cap_stack_top_set(&slot, top, sizeof top);
	tap_ok(slot.hi == hi && !slot.look_at_top, "nothing is left of a stack below its limit");
}

static void test_stacks(void)
{
	uint64_t lo, hi;
	bool is_main;
	tap_ok(cap_stack_in_maps(maps, sizeof maps - 1, 0x7f00007ff000, &lo, &hi, &is_main) &&
		       lo == 0x7f0000000000 && hi == 0x7f0000800000 && !is_main,
	       "a thread's stack ends with its mapping");
	tap_ok(cap_stack_in_maps(maps, sizeof maps - 1, 0x7ffc0001f000, &lo, &hi, &is_main) &&
		       lo == 0x7f0000801000 && hi == 0x7ffc00021000 && is_main,
	       "the main stack may grow down to the mapping before it");
	tap_ok(!cap_stack_in_maps(maps, sizeof maps - 1, 0x1000, &lo, &hi, &is_main),
	       "an sp outside of all mappings is not known");
	tap_eq(cap_stack_used(61440, 1000, 1500), 500, "bytes past the stack's end are left out");
	tap_eq(cap_stack_used(400, 1000, 1500), 400, "bytes that were not copied do not count");
	tap_eq(cap_stack_used(400, 1000, 0), 400, "an unknown end leaves all that was copied");
	tap_eq(cap_stack_used(400, 2000, 1500), 400, "so does an end below sp");
	static const char stat[] = "42 (a b) c) S 7 8 9";
	tap_eq(sp_stat_field(stat, sizeof stat - 1, 4), 7,
	       "stat's fields count from the last ')'");
	tap_eq(sp_stat_field(stat, sizeof stat - 1, 28), 0, "a field that is not there is 0");
	tap_eq(sp_stat_field("1 2", 3, 2), 0, "no name, no fields");

	struct cap_stacks s = {0};
	for (int32_t tid = 1; tid <= 1000; tid++)
		cap_stacks_end(&s, 999999999, tid, 5, 0);
	for (int32_t tid = 1; tid <= 1000; tid += 2)
		cap_stacks_forget(&s, tid);
	tap_eq(s.n, 500, "threads that ended are forgotten");
	bool kept = true;
	for (int32_t tid = 2; tid <= 1000; tid += 2) {
		cap_stacks_end(&s, 999999999, tid, 5, 0);
		kept &= s.n == 500;
	}
	tap_ok(kept, "the others are still known");
	cap_stacks_deinit(&s);
}

static bool module(const char *name)
{
	return cap_is_python_module(name, strlen(name));
}

static void test_python(void)
{
	static const char *const yes[] = {"/usr/bin/python",
					  "/usr/bin/python3",
					  "/x/python3.12",
					  "/x/python3.13t",
					  "/x/python3.12d",
					  "/x/python3.13td",
					  "/usr/lib/libpython3.11.so.1.0",
					  "/x/libpython3.13t.so",
					  "/x/libpython3.12d.so.1.0",
					  "/x/Python3.12",
					  "/x/python3.12 (deleted)"};
	static const char *const no[] = {"/x/python3-config",
					 "/x/ipython",
					 "/x/pythonw",
					 "/x/python311d",
					 "/x/python3.13m",
					 "/x/libpython_embedder.so",
					 "/x/_json.cpython-312-x86_64-linux-gnu.so",
					 "/x/libpython3.so",
					 "/python3.12/other"};
	bool ok = true;
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		if (!module(yes[i])) {
			printf("# not recognised: %s\n", yes[i]);
			ok = false;
		}
	tap_ok(ok, "Python's executables and libraries are recognised");
	ok = true;
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		if (module(no[i])) {
			printf("# taken for Python: %s\n", no[i]);
			ok = false;
		}
	tap_ok(ok, "names that only look like it are not");
#define PERF(args) cap_is_python_perf(args, sizeof(args) - 1)
	tap_ok(PERF("python\0-X\0perf\0x.py\0") && PERF("python\0-Xperf\0x\0") &&
		       PERF("python\0-X\0dev\0-X\0perf\0") && PERF("python\0-X\0perf_jit\0") &&
		       PERF("python\0-X\0perf,x\0"),
	       "each way to switch perf support on");
	tap_ok(!PERF("python\0-X\0dev\0x.py\0") && !PERF("python\0perf\0") &&
		       !PERF("python\0-X\0") && !PERF("python\0-X\0perfect\0") && !PERF(""),
	       "and what is none");
}

static void test_kallsyms(void)
{
	static const char text[] = "ffffffff81000000 T _text\n"
				   "ffffffff81000100 T first\n"
				   "ffffffff81000200 t second\r\n"
				   "malformed\n"
				   "ffffffff81000200 T alias\n"
				   "ffffffff81000300 T third\n"
				   "ffffffff81000400 T fourth\n"
				   "ffffffffc0000000 t mod_fn\t[mod]\n";
	static const uint64_t addrs[] = {0xffffffff81000210, 0xffffffff81000250};
	struct sp_buf out = {0};
	cap_kallsyms_pick(text, sizeof text - 1, addrs, 2, &out);
	sp_buf_u8(&out, 0);
	tap_str((const char *)out.data,
		"ffffffff81000000 T _text\nffffffff81000200 t second\r\nffffffff81000200 T alias\n"
		"ffffffff81000300 T third\n",
		"only the symbol of an address, its aliases and the next one travel");
	out.len = 0;
	static const char unsorted[] = "ffffffffc0000000 t mod_fn\t[mod]\nffffffff81000100 T first";
	static const uint64_t in_module[] = {0xffffffffc0000010};
	cap_kallsyms_pick(unsorted, sizeof unsorted - 1, in_module, 1, &out);
	sp_buf_u8(&out, 0);
	tap_str((const char *)out.data, "ffffffffc0000000 t mod_fn\t[mod]\n",
		"an unsorted text, an address behind all symbols");
	out.len = 0;
	tap_ok(cap_kallsyms_pick("0000000000000000 T hidden\n", 26, addrs, 2, &out) && out.len == 0,
	       "hidden addresses give nothing");
	sp_buf_deinit(&out);
}

static void test_room(void)
{
	tap_eq(cap_limit_min_free((uint64_t)20 << 30), ((uint64_t)20 << 30) / 100,
	       "a hundredth of a file system is left");
	tap_eq(cap_limit_min_free((uint64_t)4 << 40), (uint64_t)512 << 20, "at most 512 MiB");
	struct cap_limit l = {.on_disk = true,
			      .looked_ns = 5000000000,
			      .looked_bytes = 1000,
			      .free_bytes = 3 << 20,
			      .min_free_bytes = 1 << 20};
	uint64_t half = 1000 + (1 << 20);
	tap_ok(!cap_limit_is_due(&l, half, 5099999999), "half the room is there: no look");
	tap_ok(cap_limit_is_due(&l, half, 5100000000), "but after a tenth of a second");
	tap_ok(cap_limit_is_due(&l, half + 1, 5000000001), "and once half of it may be used up");
	l.free_bytes = 0;
	tap_ok(cap_limit_is_due(&l, 1001, 5000000001), "and at each byte when there is none");
	l.on_disk = false;
	tap_ok(!cap_limit_is_due(&l, half * 9, 5000000001), "a pipe has no room to look at");
}

int main(void)
{
	test_ids();
	test_names();
	test_stack_top();
	test_stacks();
	test_python();
	test_kallsyms();
	test_room();
	return tap_done();
}
