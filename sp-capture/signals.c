#define _GNU_SOURCE
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof forwarded / sizeof *forwarded)
static void (*stop_handler[N_SIGNALS])(int);
static _Atomic unsigned pending; /* bit n: forwarded[n] came from a process */

static void on_signal(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	(void)context;
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (forwarded[i] != sig)
			continue;
		if (info->si_code <= 0) /* SI_USER, SI_QUEUE, SI_TKILL; the terminal's are above */
			atomic_fetch_or(&pending, 1u << i);
		stop_handler[i](sig);
	}
	errno = saved;
}

void cap_signals_install(void)
{
	for (size_t i = 0; i < N_SIGNALS; i++) {
		struct sigaction old;
		sigaction(forwarded[i], NULL, &old);
		if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)
			continue;
		stop_handler[i] = old.sa_handler;
		struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
		sigaction(forwarded[i], &sa, NULL);
	}
}

bool cap_signals_forward(pid_t pid)
{
	unsigned bits = atomic_exchange(&pending, 0);
	for (size_t i = 0; i < N_SIGNALS; i++)
		if (bits >> i & 1 && pid > 0)
			kill(pid, forwarded[i]);
	return bits != 0;
}
