/* What a stream begins with: header, attrs, features, our start record, the kernel's map, the vdso.
 */
#ifndef CAP_HEAD_H
#define CAP_HEAD_H

#include "session.h"

/* Header, attr and features to a new writer, flushed. The sampler must have settled. */
int cap_head_write(struct sp_writer **w, const struct cap_session *s, char *const *argv,
		   struct sp_err *err);
/* The start record and what follows it at once, through the emitter. */
void cap_head_emit(struct cap_session *s);

#endif
