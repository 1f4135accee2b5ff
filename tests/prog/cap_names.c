/* A pool of threads that take new names: one letter of standard input is a step.
 *
 * s: each worker names itself NAME-self-N; o: the first thread names the others NAME-other-N; r: the
 * first thread takes a name RENAMES times; c: a child is born, which works too; l: libplugin.so beside
 * the program is loaded, and the first worker works in it; d: it is not dumpable any more; D: it is
 * again; x: the process runs itself anew, without
 * threads, as "next"; end of input: it ends. All work meanwhile.
 * Each step is answered by a line once it is done. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "target.h"

#define N 2
#define RENAMES 100000 /* records of 7 MB */

static _Atomic int round_no, done;

static NOINLINE unsigned pool_hot(unsigned x)
{
	for (int i = 0; i < 20000; i++)
		x = keep(x * 1664525 + 1013904223);
	return x;
}

static NOINLINE unsigned next_hot(unsigned x)
{
	for (int i = 0; i < 20000; i++)
		x = keep(x * 22695477 + 1);
	return x;
}

typedef unsigned plug_fn(unsigned n);
static _Atomic(plug_fn *) plugin;

static void load_plugin(const char *self)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/libplugin.so", dirname(strdup(self)));
	void *lib = dlopen(path, RTLD_NOW);
	atomic_store(&plugin, lib ? (plug_fn *)dlsym(lib, "plug_entry") : NULL);
}

static NOINLINE unsigned child_hot(unsigned x)
{
	for (int i = 0; i < 20000; i++)
		x = keep(x * 134775813 + 1);
	return x;
}

static _Atomic int n_made;

static void *maker(void *arg)
{
	pid_t parent = getpid();
	unsigned x = 1;
	if (fork() != 0) {
		atomic_fetch_add(&n_made, 1);
		return arg;
	}
	while (getppid() == parent)
		x = child_hot(x);
	_exit(x == 1);
}

/* By a thread that is not the first. */
static void make_child(void)
{
	pthread_t t;
	int before = atomic_load(&n_made);
	pthread_create(&t, NULL, maker, NULL);
	while (atomic_load(&n_made) == before)
		usleep(1000);
}

static void *worker(void *arg)
{
	int mine = 0;
	long n = (long)arg;
	char name[16];
	for (unsigned x = 1;; x = pool_hot(x)) {
		plug_fn *entry = n == 0 ? atomic_load(&plugin) : NULL;
		if (entry)
			x = entry(20000);
		int now = atomic_load(&round_no);
		if (now == mine)
			continue;
		mine = now;
		snprintf(name, sizeof name, "%c-self-%ld", 'a' + now - 1, n);
		prctl(PR_SET_NAME, name);
		atomic_fetch_add(&done, 1);
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[N];
	char step, name[16];
	if (argc > 1) {
		puts("next");
		fflush(stdout);
		for (unsigned x = 1;; x = next_hot(x))
			;
	}
	for (long i = 0; i < N; i++)
		pthread_create(&t[i], NULL, worker, (void *)i);
	puts("ready");
	fflush(stdout);
	while (read(0, &step, 1) == 1) {
		if (step == 's') {
			atomic_store(&done, 0);
			atomic_fetch_add(&round_no, 1);
			while (atomic_load(&done) < N)
				usleep(1000);
		}
		for (long i = 0; step == 'o' && i < N; i++) {
			snprintf(name, sizeof name, "other-%ld", i);
			pthread_setname_np(t[i], name);
		}
		for (int i = 0; step == 'r' && i < RENAMES; i++)
			prctl(PR_SET_NAME, i % 2 ? "first" : "fifteen letters");
		if (step == 'c')
			make_child();
		if (step == 'd' || step == 'D')
			prctl(PR_SET_DUMPABLE, step == 'D');
		if (step == 'l')
			load_plugin(argv[0]);
		if (step == 'x')
			execl("/proc/self/exe", argv[0], "next", (char *)NULL);
		if (step == '\n')
			continue;
		printf("done %c\n", step);
		fflush(stdout);
	}
	return 0;
}
