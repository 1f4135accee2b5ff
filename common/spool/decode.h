/* A DATA block being decoded. */
#ifndef SP_SPOOL_DECODE_H
#define SP_SPOOL_DECODE_H

#include "base/cursor.h"
#include "spool/load.h"

/* NULL, or what is wrong with the block. */
const char *sp_data_parse(struct sp_data *d, const uint8_t *payload, size_t n);
/* The epoch of that number, begun when it is new. */
struct sp_repoch *sp_load_epoch(struct sp_spool *s, uint64_t number, const char **why);
/* Origins are numbered through the file; 0 is the first recording's own. */
uint32_t sp_load_origin(const struct sp_repoch *e, uint64_t local);
/* First pass: the new stacks of a block's samples. */
const char *sp_load_stacks(struct sp_spool *s, struct sp_data *d, const struct sp_repoch *e);

#endif
