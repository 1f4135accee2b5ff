/* Go's function table, .gopclntab: what the runtime itself unwinds and names frames by, so that
 * every Go program has it, stripped or not. By SVMA: functions, their names, what of the stack each
 * instruction has used, files, lines and inlined calls. Of Go 1.18 and later.
 *
 * Pure over the file's bytes; nothing is allocated, nothing is trusted, strings are borrowed from
 * the file. An open reads a header and a few words; a look-up is a binary search and one short list
 * of deltas: 50 to 200 ns.
 * Sources: Go 1.19 to 1.26, src/cmd/link/internal/ld/pcln.go, src/runtime/symtab.go and
 * symtabinl.go, src/internal/abi/symtab.go. */
#ifndef SP_ELF_PCLNTAB_H
#define SP_ELF_PCLNTAB_H

#include "elf/elf_file.h"

struct sp_pclntab {
	const struct sp_elf *elf; /* borrowed */
	const uint8_t *data;      /* the table; borrowed from elf */
	size_t size;
	uint64_t svma;       /* of data[0] */
	uint64_t text_svma;  /* runtime.text, from which functions are counted */
	bool has_start_line; /* functions are of Go 1.20's form, else of 1.18's */
	uint8_t quantum;     /* bytes of code that a delta of 1 means */
	uint8_t word_bytes;
	uint32_t n_funcs;
	/* Offsets of its parts, each of which may go on to the end. */
	size_t names, units, files, values, funcs;
	/* The inlined calls of all functions: go:func.*; NULL: not to be found. */
	const uint8_t *inlined;
	size_t inlined_size;
};

/* Of struct sp_go_func: flags. */
#define SP_GO_TOP_FRAME                                                                            \
	1u                /* the end of a stack: goexit, rt0_go, and mstart, which has a caller    \
			   */
#define SP_GO_SP_WRITE 2u /* sets sp to something else: goes on on another stack */
#define SP_GO_ASM 4u

struct sp_go_func {
	uint64_t begin, end; /* SVMA; end: where the next one begins, behind some padding */
	size_t off;          /* of its record, in the table */
	uint32_t name, unit;
	uint32_t pcsp, pcfile, pcln; /* lists of values; 0: none */
	uint32_t n_pcdata;
	uint8_t n_funcdata, flags;
};

/* False: it has none, or one of another form. */
bool sp_pclntab_open(struct sp_pclntab *t, const struct sp_elf *e);
/* Look for the inlined calls: reads all of the writable segments or relocations of programs that
 * were linked before Go 1.26. Once, before sp_pclntab_levels. */
void sp_pclntab_find_inlined(struct sp_pclntab *t);

/* The function that holds an address, or in whose padding it is. */
bool sp_pclntab_find(const struct sp_pclntab *t, uint64_t svma, struct sp_go_func *out);
/* How many functions begin at an address or below. */
uint32_t sp_pclntab_count(const struct sp_pclntab *t, uint64_t svma);
/* The i-th of n_funcs, by address. */
bool sp_pclntab_func(const struct sp_pclntab *t, uint32_t i, struct sp_go_func *out);

/* As Go's own tracebacks print it: without the suffix that a symbol table has for assembly code
 * (.abi0). NULL: there is none. */
const char *sp_pclntab_name(const struct sp_pclntab *t, uint32_t name);

/* What a list of values has at an address of f, and around it. False: nothing, as in padding. */
struct sp_go_value {
	int32_t value;
	uint64_t begin, end; /* SVMA */
};
bool sp_pclntab_value(const struct sp_pclntab *t, const struct sp_go_func *f, uint32_t list,
		      uint64_t svma, struct sp_go_value *out);

/* All values of a list in turn. sp_pclntab_next is false at its end. */
struct sp_go_values {
	struct sp_cursor list;
	uint64_t begin, to, end; /* SVMA: of the function; where the next value begins */
	uint32_t value;
	uint8_t quantum;
};
void sp_pclntab_values(const struct sp_pclntab *t, const struct sp_go_func *f, uint32_t list,
		       struct sp_go_values *out);
bool sp_pclntab_next(struct sp_go_values *v, struct sp_go_value *out);

/* A function or inlined call at an address of f, innermost first; the last one is f itself. file
 * may be NULL, then line is 0. At most max are written, max >= 1; returns how many. */
struct sp_go_level {
	const char *name, *file;
	uint32_t line;
};
unsigned sp_pclntab_levels(const struct sp_pclntab *t, const struct sp_go_func *f, uint64_t svma,
			   struct sp_go_level *out, unsigned max);

#endif
