/* The running system, where the stream was made on it: its vdso, and whether a recorded process
 * still lives. */
#ifndef SP_UNWIND_LIVE_H
#define SP_UNWIND_LIVE_H

#include "elf/elf_file.h"

/* CLOCK_BOOTTIME - CLOCK_MONOTONIC: time that the machine was suspended. */
int64_t un_boot_offset_ns(void);
/* Whether the process that has this pid now had it at time_ns (CLOCK_MONOTONIC): it had begun. */
bool un_is_alive(int32_t pid, uint64_t time_ns, int64_t boot_offset_ns);
/* This kernel's vdso, when a mapping of that size can be it, and the build-id (none: len 0) is its.
 * The image is the process's own. */
bool un_own_vdso(struct sp_elf *elf, uint64_t mapped_bytes, const struct sp_build_id *id);
/* The boot id of this boot, 36 characters; false when it can't be read. */
bool un_boot_id(char out[40]);
/* Whether name and release are those of this machine's kernel. */
bool un_is_host(const char *hostname, const char *release);
/* Whether perf's mapping of the kernel ("[kernel.kallsyms]_text", of which symbol is what follows
 * the bracket) is of the one that runs: its code begins at the same address, which most kernels
 * choose at boot, and is as long to the byte, which another build hardly is. Costs what the kernel
 * needs to print its symbols, 40 ms; false where /proc/kallsyms hides addresses, and for mappings
 * whose end perf had to guess. */
bool un_is_kernel(const char *symbol, uint64_t start, uint64_t bytes);

#endif
