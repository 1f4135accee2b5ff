#define _GNU_SOURCE
#include "base/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static _Atomic int level;
#define AGAIN_MS 100 /* timeout(1) sends its signal to its child and to the group */
#define GRACE_S 3u

static _Atomic long long first_int_ms, first_end_ms;
static int pipe_fds[2] = {-1, -1};
static enum sp_stop_mode stop_mode;

int sp_stop_level(void)
{
	return atomic_load_explicit(&level, memory_order_relaxed);
}

int sp_stop_fd(void)
{
	return pipe_fds[0];
}

void sp_stop_raise(int to)
{
	int saved = errno;
	if (atomic_load(&level) < to)
		atomic_store(&level, to);
	if (pipe_fds[1] >= 0 && write(pipe_fds[1], "", 1) < 0)
		errno = saved; /* full: the reader is awake already */
	errno = saved;
}

static void on_int(long long now_ms)
{
	long long before = atomic_exchange(&first_int_ms, now_ms);
	if (before && now_ms - before <= 2000)
		sp_stop_raise(2);
	else if (stop_mode == SP_STOP_FIRST)
		sp_stop_raise(1);
}

/* Of a pipeline all stages get it at once: the source ends, and what is in the pipes is the rest.
 * SIGHUP comes twice: by the kernel, and by the shell that ends. */
static void on_end(int sig, long long now_ms)
{
	long long none = 0;
	if (atomic_compare_exchange_strong(&first_end_ms, &none, now_ms))
		alarm(GRACE_S);
	else if (sig == SIGTERM && now_ms - none > AGAIN_MS)
		sp_stop_raise(2);
}

static void on_signal(int sig)
{
	struct timespec ts;
	int saved = errno;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	long long now_ms = ts.tv_sec * 1000LL + ts.tv_nsec / 1000000 + 1;
	if (sig == SIGINT)
		on_int(now_ms);
	else if (stop_mode == SP_STOP_FIRST || sig == SIGALRM)
		sp_stop_raise(2);
	else
		on_end(sig, now_ms);
	errno = saved;
}

void sp_stop_install(enum sp_stop_mode mode)
{
	stop_mode = mode;
	if (pipe_fds[0] < 0 && pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
		pipe_fds[0] = pipe_fds[1] = -1;
	struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: reads must wake */
	sigaction(SIGINT, &sa, NULL);
	for (int i = 0; i < 2; i++) {
		static const int signals[] = {SIGTERM, SIGHUP};
		struct sigaction was;
		if (sigaction(signals[i], NULL, &was) < 0 || was.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL);
	}
	if (mode == SP_STOP_PIPE)
		sigaction(SIGALRM, &sa, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
	sigaction(SIGXFSZ, &sa, NULL); /* a file that may not grow is EFBIG */
}
