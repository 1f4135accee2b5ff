/* The inside of struct uw_module (walk.h). */
#ifndef SP_UNWIND_CFI_MODULE_H
#define SP_UNWIND_CFI_MODULE_H

#include <pthread.h>
#include <stdatomic.h>

#include "arch.h"
#include "cfi_table.h"
#include "elf/pclntab.h"
#include "walk.h"

/* One .debug_frame with its index; made at the first address that .eh_frame does not know. */
struct cfi_debug {
	struct cfi_section section;
	void *owned; /* the inflated bytes, or NULL */
	struct cfi_index index;
};

/* The marks of a long program of .eh_frame, made when it is met. */
struct cfi_marked {
	size_t off; /* of the FDE */
	struct cfi_marks marks;
	struct cfi_marked *next; /* of the same bucket */
};
#define CFI_MARKED_BUCKETS 64u
#define CFI_MARKED_MAX 32768u /* marks of a module, 2.5 MiB; all of cc1plus would have 988 */

/* Where in the table each page of so much code begins. */
#define CFI_PLACE_SHIFT 10
#define CFI_PLACES_MAX (UINT64_C(1) << 19)
#define CFI_PLACES_FROM 64u /* look-ups without: most files of a process get few */

/* Of the file, of its debug file. */
#define CFI_DEBUGS 2

struct uw_module {
	struct sp_elf *elf, *debug; /* owned; debug may be NULL */
	uint32_t id;
	uint32_t salt; /* of its addresses in the rule cache */
	const struct uw_arch *arch;
	uint64_t base_svma;   /* of the first byte that is loaded */
	uint64_t svma_end;    /* behind the last one */
	struct cfi_code code; /* executable segments, for .debug_frame; its v owned */
	struct cfi_code eh_code;
	uw_find_debug *find_debug; /* NULL: debug is there already */
	const void *find_debug_ctx;

	/* From here to the lock: once is_ready. */
	const struct sp_section *crt[2]; /* .init and .fini, of elf, or NULL */
	struct cfi_section eh;           /* .eh_frame; data NULL: none */
	void *eh_owned;
	struct cfi_cie cies[4]; /* those that come first in .eh_frame */
	struct cfi_row cie_rows[4];
	struct cfi_table table;

	/* Made on demand under the lock, then published; never changed again. */
	pthread_mutex_t lock;
	atomic_bool is_ready;
	_Atomic(struct cfi_index *) eh_index;     /* instead of a table that can't be trusted */
	atomic_bool table_checked;                /* a gap was met, and the table found whole */
	_Atomic(struct cfi_debug *) debug_frames; /* [CFI_DEBUGS] */
	_Atomic(struct sp_pclntab *) pclntab;     /* Go's, once pclntab_sought; or NULL */
	atomic_bool pclntab_sought;
	_Atomic(struct cfi_marked *) marked[CFI_MARKED_BUCKETS];
	unsigned n_marked;
	/* By page: cfi_table_place of its first address; 0: not known yet. NULL: none yet. */
	_Atomic(_Atomic uint32_t *) places;
	atomic_uint n_asked; /* before there are places */
};

void uw_module_make_ready(const struct uw_module *m);

/* Before anything else but uw_module_bytes. */
static inline void uw_module_ready(const struct uw_module *m)
{
	if (__builtin_expect(!atomic_load_explicit(&m->is_ready, memory_order_acquire), 0))
		uw_module_make_ready(m);
}

/* The FDE in force at an address and the section that holds it. False: none. */
bool uw_module_find(const struct uw_module *m, uint64_t svma, const struct cfi_section **section,
		    struct cfi_fde *fde);
/* The two halves of it. The first goes by .eh_frame's table as it is; in doubt, the second looks
 * whether that lacks something, for which all of .eh_frame is read. */
enum uw_listed { UW_NOT_LISTED, UW_LISTED, UW_IN_DOUBT };
enum uw_listed uw_module_look(const struct uw_module *m, uint64_t svma, struct cfi_fde *fde);
bool uw_module_search(const struct uw_module *m, uint64_t svma, enum uw_listed listed,
		      const struct cfi_section **section, struct cfi_fde *fde);
/* Whether the address stands in the entry stub: code without CFI from the ELF entry on, where
 * nothing returns to (ld.so's and musl's _start). */
bool uw_module_in_entry(const struct uw_module *m, uint64_t svma);
/* Bytes of a read-only segment, or NULL: n at the address. */
const uint8_t *uw_module_bytes(const struct uw_module *m, uint64_t svma, size_t n);
/* All of the read-only segment that holds an address: its bytes, and where it begins; or NULL. */
const uint8_t *uw_module_code(const struct uw_module *m, uint64_t svma, uint64_t *begin,
			      size_t *size);
/* The marks of an FDE's program, or NULL: it is short, or not .eh_frame's. */
const struct cfi_marks *uw_module_marks(const struct uw_module *m, const struct cfi_section *s,
					const struct cfi_fde *fde);
/* Go's function table, or NULL: there is none. */
const struct sp_pclntab *uw_module_pclntab(const struct uw_module *m);
/* The .debug_frame's, CFI_DEBUGS of them, indexed; or NULL when memory ends. */
const struct cfi_debug *uw_module_debug(const struct uw_module *m);

#endif
