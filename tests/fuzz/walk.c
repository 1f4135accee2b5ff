/* CFI and the unwinder: an ELF file's rules, and a stack that is walked with them. The last KiB
 * of the input is the stack, before it 9 registers.
 *
 * fuzz: sp-unwind/[a-z]*.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sp-unwind/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STACK 1024
#define REGS (9 * 8)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct uw_stack stack, alone;
	static FILE *null;
	struct sp_elf *elf = calloc(1, sizeof(*elf));
	struct uw_module *module = NULL;
	struct sp_err err;

	if (!null)
		null = fopen("/dev/null", "w");
	if (!elf || size < STACK + REGS || sp_elf_init(elf, data, size - STACK - REGS, &err) < 0) {
		free(elf);
		return 0;
	}
	if (uw_module_new(&module, elf, NULL, &err) < 0)
		return 0;
	struct uw_map map = {
		.start = 0x400000, .end = 0x400000 + size, .bias = 0x400000, .module = module};
	const struct uw_maps part = {&map, 1};
	struct uw_space space = {.parts = &part, .n = 1, .id = 1};
	struct uw_sample sample = {
		.machine = elf->machine,
		/* ax, bx, cx, dx, si, di, bp, sp, ip */
		.regs_mask = 0x1ff,
		.regs = data + size - STACK - REGS,
		.regs_abi = 2,
		.stack = data + size - STACK,
		.stack_bytes = STACK,
		.space = &space,
		.thread = 1,
	};
	struct uw_walker *walker = uw_walker_new();

	if (walker) {
		uw_walk(walker, &sample, &stack);
		/* With a stack that differs a little, what was kept and what was not give the same.
		 */
		uint8_t *copy = malloc(STACK);
		if (copy) {
			memcpy(copy, sample.stack, STACK);
			copy[sample.stack[0] * 4] ^= sample.stack[1];
			sample.stack = copy;
		}
		uw_walk_ahead(walker, &sample);
		uw_walk(walker, &sample, &stack);
		sample.thread = 0;
		uw_walk(walker, &sample, &alone);
		if (stack.n != alone.n || stack.stop != alone.stop ||
		    memcmp(stack.addrs, alone.addrs, stack.n * sizeof *stack.addrs))
			abort();
		free(copy);
		uw_walker_free(walker);
	}
	uw_dump_cfi(module, null, &err);
	uw_module_free(module);
	return 0;
}
