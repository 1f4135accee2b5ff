/* Kernel symbols for a set of addresses, from the text of /proc/kallsyms (or System.map): only the
 * neighbours of the addresses that are needed are kept, whatever the order of the lines.
 *
 * Taken: types T, W, D, B of either case; not: address 0 (all of them are where kptr_restrict hides
 * addresses), names that begin with "$", ".L" or "L0", symbols of the core before the first _text
 * or _stext (per-CPU offsets). Of several names for an address the last one counts. A symbol ends
 * where the next one begins. */
#ifndef SP_SYM_KALLSYMS_H
#define SP_SYM_KALLSYMS_H

#include <stdbool.h>

#include "base/err.h"
#include "sym/strpool.h"

#define SP_KALLSYMS_REACH (UINT64_C(256) << 10) /* of a symbol that nothing follows */

struct sp_kallsyms {
	const uint64_t *needed; /* borrowed: sorted, distinct */
	size_t n;
	bool all;         /* needed are where all symbols begin: */
	uint64_t *starts; /* owned, or NULL */
	struct sp_kallsyms_near {
		uint64_t start,
			above; /* of the symbol below, and of the one above; 0, UINT64_MAX */
		const char *name, *module; /* in the text that was parsed last, then in the pool */
		uint32_t name_len, module_len;
	} * near;         /* owned: one for each needed address */
	size_t n_symbols; /* lines that were taken */
	struct sp_strpool pool;
};

/* needed must outlive k. */
int sp_kallsyms_init(struct sp_kallsyms *k, const uint64_t *needed, size_t n, struct sp_err *err);
/* All symbols, for addresses that are not known yet. */
void sp_kallsyms_init_all(struct sp_kallsyms *k);
void sp_kallsyms_deinit(struct sp_kallsyms *k);
/* May be called for several texts: all of their symbols count. */
int sp_kallsyms_add(struct sp_kallsyms *k, const char *text, size_t size, struct sp_err *err);
/* Only the core's symbols, which lie delta higher: a copy made in another boot, when the modules
 * were elsewhere. */
int sp_kallsyms_add_core(struct sp_kallsyms *k, const char *text, size_t size, uint64_t delta,
			 struct sp_err *err);

/* For a copy made in this boot, in the order in which the kernel prints it (its core's symbols
 * rise: scripts/kallsyms.c sorts them): looks only where the needed addresses are, in microseconds
 * instead of the milliseconds of a whole text. 1 when each of them, from `first` on, lies between
 * two symbols of the core, and all are taken; 0 when not, and then nothing is. */
int sp_kallsyms_add_sorted(struct sp_kallsyms *k, const char *text, size_t size, uint64_t first,
			   struct sp_err *err);

/* Whether the address is one of the needed ones. */
bool sp_kallsyms_needs(const struct sp_kallsyms *k, uint64_t addr);

/* Where a text says that a symbol of type T is; 0 when it does not. */
uint64_t sp_kallsyms_address(const char *text, size_t size, const char *name);

struct sp_kernel_symbol {
	const char *name, *module; /* module without brackets, or NULL; valid until deinit */
	uint64_t start;
};
/* For one of the needed addresses; where there are all symbols, for any. */
bool sp_kallsyms_find(const struct sp_kallsyms *k, uint64_t addr, struct sp_kernel_symbol *out);

#endif
