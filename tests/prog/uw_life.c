/* Lives of processes, one per word: uw_life fork|threadfork|exec|after|leader|vdso|recurse|churn
 * [MS]. Each spends its CPU time in a function of its own, below named callers. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target.h"

static unsigned ms;

/* Each function is another body, so that none is folded into another. */
#define SPIN(name, tweak)                                                                          \
	NOINLINE unsigned name(unsigned x)                                                         \
	{                                                                                          \
		unsigned end = target_thread_ms() + ms;                                            \
		while (target_thread_ms() < end)                                                   \
			for (unsigned i = 0; i < 20000; i++)                                       \
				x = keep(x * (tweak) + i);                                         \
		return x;                                                                          \
	}
SPIN(parent_spin, 3)
SPIN(child_spin, 5)
SPIN(before_exec, 7)
SPIN(after_exec, 11)
SPIN(worker_spin, 13)
SPIN(bottom_spin, 17)

NOINLINE unsigned below(unsigned (*spin)(unsigned))
{
	return keep(spin(1)) + 1;
}

NOINLINE void fork_and_wait(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		below(child_spin);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void *thread_that_forks(void *arg)
{
	fork_and_wait();
	return arg;
}

static void *thread_that_stays(void *arg)
{
	below(worker_spin);
	exit(0);
	return arg;
}

NOINLINE unsigned ask_clock(void)
{
	struct timespec t;
	unsigned x = 0, end = target_thread_ms() + ms;
	while (target_thread_ms() < end)
		for (unsigned i = 0; i < 10000; i++) {
			clock_gettime(CLOCK_MONOTONIC, &t);
			x = keep(x + (unsigned)t.tv_nsec);
		}
	return x;
}

NOINLINE unsigned recurse(unsigned depth)
{
	volatile char room[200];
	room[0] = (char)depth;
	return depth ? keep(recurse(depth - 1)) + (unsigned)room[0] : keep(below(bottom_spin)) + 1;
}

/* Load the plugin beside the program, call it, unload it, again and again. */
static int churn(char *program)
{
	char path[PATH_MAX];
	unsigned end = target_cpu_ms() + ms;
	snprintf(path, sizeof(path), "%s/libplugin.so", dirname(program));
	while (target_cpu_ms() < end) {
		void *plugin = dlopen(path, RTLD_NOW);
		unsigned (*entry)(unsigned) =
			plugin ? (unsigned (*)(unsigned))dlsym(plugin, "plug_entry") : NULL;
		if (!entry) {
			fprintf(stderr, "uw_life: %s\n", dlerror());
			return 1;
		}
		keep(entry(1000));
		dlclose(plugin);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	pthread_t thread;
	ms = target_ms(argc - 1, argv + 1, 150);
	if (!strcmp(word, "fork")) {
		fork_and_wait();
		below(parent_spin);
	} else if (!strcmp(word, "threadfork")) {
		pthread_create(&thread, NULL, thread_that_forks, NULL);
		pthread_join(thread, NULL);
	} else if (!strcmp(word, "exec")) {
		below(before_exec);
		execl("/proc/self/exe", argv[0], "after", argc > 2 ? argv[2] : NULL, (char *)NULL);
	} else if (!strcmp(word, "after")) {
		below(after_exec);
	} else if (!strcmp(word, "leader")) {
		pthread_create(&thread, NULL, thread_that_stays, NULL);
		pthread_exit(NULL);
	} else if (!strcmp(word, "vdso")) {
		ask_clock();
	} else if (!strcmp(word, "recurse")) {
		recurse(200);
	} else if (!strcmp(word, "churn")) {
		return churn(argv[0]);
	} else {
		fprintf(stderr, "uw_life: no such life: %s\n", word);
		return 2;
	}
	return 0;
}
