/* The build-id of a spool's module: the recorded one, else that of the file, when the file is known
 * to be the recorded one. */
#ifndef SYM_BUILD_ID_H
#define SYM_BUILD_ID_H

#include "base/build_id.h"
#include "view.h"

/* len 0 when there is none. Opens the file. */
void view_build_id(const struct view *v, const struct sp_spool_module *m, struct sp_build_id *out);

/* In hexadecimal; "" when there is none. */
const char *view_build_id_hex(const struct view *v, const struct sp_spool_module *m,
			      char out[2 * SP_BUILD_ID_MAX + 1]);

#endif
