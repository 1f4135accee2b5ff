/* Everything that makes a stack hard to walk, to be stepped by walk_oracle.c. */
#ifndef SP_TESTS_TORTURE_H
#define SP_TESTS_TORTURE_H

#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

static volatile int torture_sink;

static NOINLINE int torture_leaf(int x)
{
	return x * 3 + torture_sink;
}

static NOINLINE int torture_recurse(int n)
{
	return n ? torture_recurse(n - 1) + torture_leaf(n) : torture_leaf(0);
}

/* A frame of a size that only the run knows: CFA from the frame pointer. */
static NOINLINE int torture_alloca(int n)
{
	char *p = alloca((size_t)n * 16 + 1);
	memset(p, n, (size_t)n * 16 + 1);
	torture_sink = p[n];
	return torture_leaf(n);
}

/* A realigned stack: CFA by an expression (DRAP). */
static NOINLINE int torture_align(int n)
{
	int v[32] __attribute__((aligned(64)));
	for (int i = 0; i < 32; i++)
		v[i] = n + i;
	torture_sink = v[n & 31];
	return torture_leaf(v[3]) + torture_alloca(n);
}

/* Many callee-saved registers pushed. */
static NOINLINE int torture_pushes(int a, int b, int c, int d, int e, int f)
{
	int x = torture_leaf(a), y = torture_leaf(b), z = torture_leaf(c);
	int u = torture_leaf(d), v = torture_leaf(e), w = torture_leaf(f);
	return x + y * 2 + z * 3 + u * 4 + v * 5 + w * 6 + torture_recurse(2);
}

static NOINLINE int torture_tail(int n)
{
	return torture_pushes(n, 1, 2, 3, 4, 5);
}

static int torture_order(const void *a, const void *b)
{
	torture_leaf(1);
	return *(const int *)a - *(const int *)b;
}

/* Rows that compilers do not write: odd offsets, another register, expressions. */
__asm__(".text\n"
	".type torture_odd,@function\n"
	"torture_odd:\n"
	" .cfi_startproc\n"
	" sub $12,%rsp\n"
	" .cfi_adjust_cfa_offset 12\n"
	" nop\n"
	" add $12,%rsp\n"
	" .cfi_adjust_cfa_offset -12\n"
	" ret\n"
	" .cfi_endproc\n"
	".type torture_rbx,@function\n"
	"torture_rbx:\n"
	" .cfi_startproc\n"
	" push %rbx\n"
	" .cfi_adjust_cfa_offset 8\n"
	" .cfi_rel_offset %rbx, 0\n"
	" mov %rsp,%rbx\n"
	" .cfi_def_cfa_register %rbx\n"
	" and $-64,%rsp\n"
	" sub $64,%rsp\n"
	" mov %rdi,%rax\n"
	" call *%rax\n"
	" mov %rbx,%rsp\n"
	" .cfi_def_cfa_register %rsp\n"
	" pop %rbx\n"
	" .cfi_adjust_cfa_offset -8\n"
	" .cfi_restore %rbx\n"
	" ret\n"
	" .cfi_endproc\n"
	/* OpenSSL's way: the old sp is kept in the frame. */
	".type torture_saved_sp,@function\n"
	"torture_saved_sp:\n"
	" .cfi_startproc\n"
	" mov %rsp,%rax\n"
	" .cfi_def_cfa_register %rax\n"
	" sub $200,%rsp\n"
	" and $-64,%rsp\n"
	" mov %rax,16(%rsp)\n"
	/* def_cfa_expression: breg7 16; deref; plus_uconst 8 */
	" .cfi_escape 0x0f,0x05,0x77,0x10,0x06,0x23,0x08\n"
	" call *%rdi\n"
	" mov 16(%rsp),%rsp\n"
	" .cfi_def_cfa %rsp,8\n"
	" ret\n"
	" .cfi_endproc\n"
	/* The return address leaves the stack for a register, as vfork's does. */
	".type torture_ra_in_reg,@function\n"
	"torture_ra_in_reg:\n"
	" .cfi_startproc\n"
	" pop %r11\n"
	" .cfi_adjust_cfa_offset -8\n"
	" .cfi_register %rip,%r11\n"
	" nop\n"
	" push %r11\n"
	" .cfi_adjust_cfa_offset 8\n"
	" .cfi_offset %rip,-8\n"
	" ret\n"
	" .cfi_endproc\n"
	/* Without CFI: pushes and room; the old sp kept in the frame, and bytes written to ah, whose
	 * number is rsp's; a jump through a table. */
	".type torture_bare,@function\n"
	"torture_bare:\n"
	" push %rbx\n"
	" push %rbp\n"
	" sub $24,%rsp\n"
	" mov $2,%ebp\n"
	" mov %rdi,%rbx\n"
	"1: call *%rbx\n"
	" dec %ebp\n"
	" jnz 1b\n"
	" add $24,%rsp\n"
	" pop %rbp\n"
	" pop %rbx\n"
	" ret\n"
	".type torture_bare_aligned,@function\n"
	"torture_bare_aligned:\n"
	" mov %rsp,%r11\n"
	" sub $200,%rsp\n"
	" and $-64,%rsp\n"
	" mov %r11,16(%rsp)\n"
	" call *%rdi\n"
	" xor $1,%ah\n"
	" test %eax,%eax\n"
	" js 2f\n"
	" xor $2,%ah\n"
	"2: mov 16(%rsp),%rsp\n"
	" ret\n"
	".type torture_bare_switch,@function\n"
	"torture_bare_switch:\n"
	" push %r12\n"
	" lea 3f(%rip),%r12\n"
	" jmp *%r12\n"
	" nop\n"
	"3: call *%rdi\n"
	" pop %r12\n"
	" ret\n"
	/* Interrupted at its first instruction. */
	".type torture_trap,@function\n"
	"torture_trap:\n"
	" .cfi_startproc\n"
	" ud2\n"
	" ret\n"
	" .cfi_endproc\n");
void torture_odd(void);
void torture_rbx(void (*f)(void));
void torture_saved_sp(void (*f)(void));
void torture_ra_in_reg(void);
void torture_trap(void);
void torture_bare(void (*f)(void));
void torture_bare_aligned(void (*f)(void));
void torture_bare_switch(void (*f)(void));

static NOINLINE void torture_void(void)
{
	torture_sink = torture_leaf(2);
	torture_odd();
}

static void torture_handler(int sig)
{
	torture_sink = torture_recurse(sig & 3);
}

static sigjmp_buf torture_buf;

static void torture_jump(int sig)
{
	torture_leaf(sig);
	siglongjmp(torture_buf, 1);
}

static NOINLINE void torture_signals(void)
{
	struct sigaction sa = {.sa_handler = torture_handler};
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
	sa.sa_handler = torture_jump;
	sigaction(SIGILL, &sa, NULL);
	if (!sigsetjmp(torture_buf, 1))
		torture_trap();
}

static NOINLINE void torture_jumps(int depth)
{
	if (depth)
		torture_jumps(depth - 1);
	else
		siglongjmp(torture_buf, 2);
	torture_leaf(depth);
}

static NOINLINE int torture(void)
{
	static volatile int i; /* survives longjmp */
	int v[] = {5, 3, 9, 1, 7, 2};
	char text[100];
	__asm__ volatile("int3"); /* the stepper begins here */
	for (i = 0; i < 10; i++) {
		torture_recurse(30);
		torture_alloca(i);
		torture_align(i);
		torture_tail(i);
		torture_odd();
		torture_rbx(torture_void);
		torture_saved_sp(torture_void);
		torture_ra_in_reg();
		torture_bare(torture_void);
		torture_bare_aligned(torture_void);
		torture_bare_switch(torture_void);
		qsort(v, 6, sizeof *v, torture_order);
		snprintf(text, sizeof text, "%d %s %.3f %p", i, "text", i / 3.0, (void *)text);
		free(malloc((size_t)i * 100));
		struct timespec t;
		clock_gettime(CLOCK_MONOTONIC, &t); /* through the vdso */
		torture_signals();
		if (!sigsetjmp(torture_buf, 0))
			torture_jumps(5);
	}
	return 0;
}

#endif
