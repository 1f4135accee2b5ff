/* One ELF image that mappings point into, with its unwinding module; and the files that travelled
 * in the stream. */
#ifndef SP_UNWIND_IMAGE_H
#define SP_UNWIND_IMAGE_H

#include <stdatomic.h>

#include "elf/debugfile.h"
#include "elf/find.h"
#include "maps/procs.h"
#include "perf/ext.h"
#include "walk.h"

struct un_image {
	struct uw_module *module; /* owned */
	struct un_image *next;    /* of the same file; the table's */
	uint64_t image_foff;      /* where the image begins in its file */
	_Atomic uint32_t refs;    /* parts of views that need it */
	uint64_t used, build;     /* the table's clock and build that met it last */
};

/* Takes elf (malloc'ed, open) over, on failure too. Looks for a debug file, when a rule is asked for,
 * if the image has hardly any CFI of its own; dirs must live as long. NULL when memory ends. */
struct un_image *un_image_new(struct sp_elf *elf, const struct sp_debug_dirs *dirs,
			      struct sp_err *err);
void un_image_free(struct un_image *i);
/* The bias of a mapping of the image's file; false when the image does not explain it. */
bool un_image_bias(const struct un_image *i, const struct sp_mapping *map, uint64_t *bias);

/* Embedded files, newest last. */
struct un_embedded {
	struct un_object *objects; /* owned */
	size_t n, cap;
	size_t bytes, max_bytes;
};

void un_embedded_deinit(struct un_embedded *e);
/* Copies o. 1 kept, 0 not a file or over the limit. */
int un_embedded_add(struct un_embedded *e, const struct sp_ext_object *o, struct sp_err *err);
/* The embedded file that q names in process pid, opened in *elf; its bytes live as long as e. */
bool un_embedded_open(const struct un_embedded *e, struct sp_elf *elf,
		      const struct sp_file_query *q, int32_t pid);

#endif
