/* The symbols of an ELF file and its debug file, by SVMA: a sorted index of what covers code.
 *
 * A symbol with a size covers its size, one without ends at the next symbol, at its section's end
 * and where the CFI says that another function begins or its own ends: a stripped file never lends
 * a far symbol's name. Data, mapping symbols ($x, $d) and undefined symbols are left out. Entries
 * of .plt, .plt.sec and .plt.got are known by the function whose slot they jump through.
 * Strings are borrowed from the files or owned by the table.
 *
 * Who says beforehand what will be asked (expect) gets the same answers without a table of all
 * symbols: one pass keeps those that matter. A question beyond that reads the rest. */
#ifndef SP_SYM_SYMTAB_H
#define SP_SYM_SYMTAB_H

#include "elf/elf_file.h"
#include "sym/fde.h"
#include "sym/ranges.h"
#include "sym/strpool.h"
#include "sym/wanted.h"

#define SP_SYMTAB_SOURCES 8

struct sp_symtab {
	struct sp_symtab_source {
		const struct sp_elf *elf;         /* borrowed */
		const struct sp_section *section; /* of the symbols: borrowed from elf */
		const uint8_t *syms;
		size_t n;
		const char *strings;
		size_t strings_size;
	} sources[SP_SYMTAB_SOURCES];
	unsigned n_sources;
	const struct sp_elf *code;      /* borrowed: the file with the code */
	struct sp_ranges sized, points; /* id: source << 29 | index of the symbol */
	struct sp_ranges plt_sections;  /* where PLT entries are */
	struct sp_ranges plt;           /* id: index in plt_names; read when first asked */
	bool plt_read;
	const char **plt_names; /* owned array */
	size_t n_plt, plt_cap;
	struct sp_strpool pool;
	struct sp_fdes fdes;
	bool fdes_read;
	bool has_code;   /* some symbol is of code */
	bool is_partial; /* in sized is what meets wanted, in gaps what is to be known of the rest */
	struct sp_wanted wanted;
	struct sp_symtab_gap {
		uint64_t last_lo, last_hi; /* the last start and end of what lies before it */
	} *gaps; /* owned: by interval of wanted */
};

struct sp_symbol {
	const char *name; /* mangled; without a symbol version */
	uint64_t start;
	bool is_plt; /* not the function: its entry in a PLT ("foo@plt") */
};

void sp_symtab_deinit(struct sp_symtab *t);

/* Before finish, or not at all: these n addresses will be asked, and hardly any other. Of two calls
 * the last one counts. */
int sp_symtab_expect(struct sp_symtab *t, const uint64_t *svmas, size_t n, struct sp_err *err);
/* Add the tables of a file that outlives t: .symtab, .dynsym. Then, once, finish: code is the file
 * that holds the code (for PLT entries and CFI). */
void sp_symtab_add(struct sp_symtab *t, const struct sp_elf *e);
int sp_symtab_finish(struct sp_symtab *t, const struct sp_elf *code, struct sp_err *err);

/* The symbol that covers svma. Of several names for one place the one that equals `prefer` (may be
 * NULL) but for leading underscores is taken, else global before local, fewer leading underscores,
 * global before weak, the shorter, the first in the alphabet. The name is valid until deinit. */
bool sp_symtab_find(struct sp_symtab *t, uint64_t svma, const char *prefer, struct sp_symbol *out);

/* The symbol that begins one byte behind svma, when svma is where the CFI lets that function begin:
 * glibc's FDE of __restore_rt starts a byte early, so that the return address less 1 that a handler
 * leaves is found in it (sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c). out->start is svma. */
bool sp_symtab_find_trampoline(struct sp_symtab *t, uint64_t svma, struct sp_symbol *out);

/* Whether there is any symbol of code. */
bool sp_symtab_is_empty(const struct sp_symtab *t);

/* symtab_plt.c: where they are, called by finish; the entries, called by find. */
int sp_symtab_find_plt(struct sp_symtab *t, struct sp_err *err);
bool sp_symtab_read_plt(struct sp_symtab *t);
/* The name of the symbol by number in a source's table, or NULL. */
const char *sp_symtab_source_name(const struct sp_symtab_source *s, uint32_t index);

#endif
