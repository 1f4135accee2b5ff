/* Runs generated code in anonymous memory for the CPU milliseconds of the argument, and describes it
 * in /tmp/perf-PID.map as "jit_loop". The map is removed at the end with a second argument. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target.h"

int main(int argc, char **argv)
{
	/* mov ecx, 400000; 1: dec ecx; jnz 1b; ret */
	static const unsigned char code[] = {0xb9, 0x80, 0x1a, 0x06, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
	unsigned ms = target_ms(argc, argv, 300);
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char name[64];
	if (page == MAP_FAILED)
		return 1;
	memcpy(page, code, sizeof code);
	snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
	FILE *f = fopen(name, "w");
	if (!f)
		return 1;
	fprintf(f, "%lx %zx jit_loop\n", (unsigned long)page, sizeof code);
	fclose(f);
	void (*run)(void);
	memcpy(&run, &page, sizeof run);
	while (target_cpu_ms() < ms)
		run();
	if (argc > 2)
		unlink(name);
	return 0;
}
