/* Runs itself again from a memfd, where it computes for the CPU milliseconds of the argument; with
 * a second argument it also maps a jitdump (jit-PID.dump in the current folder) as a JIT does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target.h"

static int from_memfd(char **argv)
{
	int self = open("/proc/self/exe", O_RDONLY);
	int fd = memfd_create("cap_memfd", 0);
	struct stat st;
	if (self < 0 || fd < 0 || fstat(self, &st) < 0 ||
	    sendfile(fd, self, NULL, (size_t)st.st_size) != st.st_size)
		return 1;
	setenv("CAP_MEMFD", "1", 1);
	fexecve(fd, argv, environ);
	return 1;
}

/* The marker mapping of perf's jitdump specification; the file holds a header alone. */
static int jitdump(void)
{
	char name[64];
	unsigned head[10] = {0x4a695444, 1, 40, 62, 0, (unsigned)getpid(), 0, 0, 0, 0};
	snprintf(name, sizeof name, "jit-%d.dump", (int)getpid());
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, head, sizeof head) != sizeof head)
		return 1;
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED;
}

__attribute__((noinline)) void memfd_hot(unsigned ms)
{
	while (target_cpu_ms() < ms)
		;
}

int main(int argc, char **argv)
{
	if (!getenv("CAP_MEMFD"))
		return from_memfd(argv);
	if (argc > 2 && jitdump())
		return 1;
	memfd_hot(target_ms(argc, argv, 300));
	return 0;
}
