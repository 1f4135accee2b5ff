/* A signal handler that interrupts a function at its very first instruction, for ever: the frame
 * under the trampoline is an exact pc, and looking up pc - 1 would name the function in front of
 * it (bare_before), whose frame has another size.
 *
 * Chain in the handler: main, outer, spin_first_insn, <signal frame>, on_alarm, handler_hot. */
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "target.h"

void spin_first_insn(void);
void bare_before(void);

__asm__(".text\n"
	".p2align 4\n"
	".globl bare_before\n"
	".type bare_before, @function\n"
	"bare_before:\n"
	"	.cfi_startproc\n"
	"	subq $4000, %rsp\n"
	"	.cfi_def_cfa_offset 4008\n"
	"	nop\n"
	"	.cfi_endproc\n"
	".size bare_before, . - bare_before\n"
	".globl spin_first_insn\n"
	".type spin_first_insn, @function\n"
	"spin_first_insn:\n"
	"	.cfi_startproc\n"
	"1:	jmp 1b\n"
	"	.cfi_endproc\n"
	".size spin_first_insn, . - spin_first_insn\n");

static unsigned wanted_ms;

NOINLINE unsigned handler_hot(unsigned n)
{
	unsigned x = n;
	for (unsigned i = 0; i < n; i++)
		x = x * 1664525u + 1013904223u;
	return keep(x);
}

NOINLINE void on_alarm(int signal)
{
	unsigned x = keep(handler_hot(1000000u + (unsigned)signal));
	if (target_cpu_ms() >= wanted_ms)
		_exit(x == 1);
}

NOINLINE unsigned outer(unsigned x)
{
	spin_first_insn();
	return keep(x);
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = on_alarm};
	struct itimerval every = {{0, 5000}, {0, 5000}};

	wanted_ms = target_ms(argc, argv, 800);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	return (int)outer((unsigned)argc);
}
