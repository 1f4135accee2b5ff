/* Go's function table: the bytes are a program's read-only and writable data, which holds it
 * somewhere. */
#include <stdlib.h>

#include "elf/pclntab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DATA 0x100000u
#define CODE 0x1000u

static const uint8_t go_note[] = {4, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 'G', 'o', 0, 0, 'x'};

static void look_at(const struct sp_elf *e);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	uint8_t *data = malloc(size + sizeof go_note);
	if (!data)
		return 0;
	memcpy(data, bytes, size);
	memcpy(data + size, go_note, sizeof go_note);
	struct sp_segment segments[] = {
		{PT_LOAD, PF_R | PF_X, 0, CODE, 0, 0x10000, 0x1000},
		{PT_LOAD, PF_R | PF_W, 0, DATA, size, size, 0x1000},
		{PT_DYNAMIC, PF_R, 0, DATA + size / 2, size / 2, size / 2, 8},
		{PT_NOTE, PF_R, size, DATA + size, sizeof go_note, sizeof go_note, 4},
	};
	const struct sp_elf e = {.data = data,
				 .size = size + sizeof go_note,
				 .is64 = true,
				 .machine = EM_X86_64,
				 .segments = segments,
				 .n_segments = 4};
	look_at(&e);
	free(data);
	return 0;
}

static void look_at(const struct sp_elf *e)
{
	struct sp_pclntab t;
	struct sp_go_func f;
	struct sp_go_level levels[16];
	struct sp_go_value v;

	if (!sp_pclntab_open(&t, e))
		return;
	sp_pclntab_find_inlined(&t);
	for (uint32_t i = 0; i < t.n_funcs && i < 64; i++) {
		if (!sp_pclntab_func(&t, i, &f))
			continue;
		for (uint64_t step = 0; step < 8; step++) {
			uint64_t svma = f.begin + step * ((f.end - f.begin) / 8 + 1);

			sp_pclntab_value(&t, &f, f.pcsp, svma, &v);
			if (!sp_pclntab_levels(&t, &f, svma, levels, 16))
				__builtin_trap();
		}
	}
	for (uint64_t a = t.text_svma; a < t.text_svma + 256; a += 8)
		if (sp_pclntab_find(&t, a, &f) && (a < f.begin || a >= f.end))
			__builtin_trap();
}
