/* Runs code at one address in anonymous memory, first as "before_rejit", then replaced by
 * "after_rejit", for half of the CPU milliseconds of the argument each, and describes both with
 * their times in ./jit-PID.dump (tools/perf/Documentation/jitdump-specification.txt of Linux),
 * mapped as runtimes map theirs. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "target.h"

static FILE *dump;
static void *page;
/* mov ecx, 400000; 1: dec ecx; jnz 1b; ret */
static const unsigned char code[] = {0xb9, 0x80, 0x1a, 0x06, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void load(const char *name, uint64_t index)
{
	uint32_t head[2] = {0, (uint32_t)(16 + 8 + 32 + strlen(name) + 1 + sizeof code)};
	uint64_t time = now_ns(), body[4] = {(uintptr_t)page, (uintptr_t)page, sizeof code, index};
	uint32_t ids[2] = {(uint32_t)getpid(), (uint32_t)getpid()};
	memcpy(page, code, sizeof code);
	fwrite(head, 1, sizeof head, dump);
	fwrite(&time, 1, sizeof time, dump);
	fwrite(ids, 1, sizeof ids, dump);
	fwrite(body, 1, sizeof body, dump);
	fwrite(name, 1, strlen(name) + 1, dump);
	fwrite(code, 1, sizeof code, dump);
	fflush(dump);
}

int main(int argc, char **argv)
{
	unsigned ms = target_ms(argc, argv, 400);
	char path[64];
	uint32_t head[6] = {0x4a695444, 1, 40, 62, 0, (uint32_t)getpid()};
	uint64_t times[2] = {now_ns(), 0};
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	snprintf(path, sizeof path, "jit-%d.dump", (int)getpid());
	dump = fopen(path, "w+");
	if (page == MAP_FAILED || !dump)
		return 1;
	fwrite(head, 1, sizeof head, dump);
	fwrite(times, 1, sizeof times, dump);
	fflush(dump);
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
		return 1;
	void (*run)(void);
	memcpy(&run, &page, sizeof run);
	load("before_rejit", 0);
	while (target_cpu_ms() < ms / 2)
		run();
	load("after_rejit", 1);
	while (target_cpu_ms() < ms)
		run();
	fclose(dump);
	return 0;
}
