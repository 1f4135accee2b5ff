/* Records of the other byte order into native order. */
#ifndef SP_PERF_SWAP_H
#define SP_PERF_SWAP_H

#include "base/buf.h"
#include "perf/events.h"

/* Swap the header alone, in place (type, misc, size). */
void sp_swap_header(uint8_t *rec);

/* Swap the body of a record whose header is swapped already, in place: what its type and (for
 * kernel records) its event's sample_type lay out. Stops quietly where a record contradicts
 * itself; parsing finds that again. False: the type's layout is not known. */
bool sp_swap_body(uint8_t *rec, size_t size, const struct sp_events *e);

/* HEADER_ATTR and HEADER_FEATURE change their size: the whole native record appended to out. 1, or
 * 0 when it is not one of these or cannot be represented (a feature of unknown shape). */
int sp_swap_head_record(struct sp_buf *out, const uint8_t *rec, size_t size);

#endif
