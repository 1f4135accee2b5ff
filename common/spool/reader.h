/* Between the loading of a spool and what its public functions show. */
#ifndef SP_SPOOL_READER_H
#define SP_SPOOL_READER_H

#include "spool/load.h"

/* After all blocks, and again when more have come: public modules, events, canonical numbers. */
int sp_show_make(struct sp_spool *s, struct sp_err *err);
/* The cursors that samples are given from; again when more blocks have come: they go on. */
int sp_replay_make(struct sp_spool *s, struct sp_err *err);
void sp_replay_deinit(struct sp_spool *s);
void sp_show_counters(struct sp_spool *s);
/* A string, "" when it was lost. */
const char *sp_show_string(const struct sp_spool *s, uint32_t id);
/* The set of the kernel's modules that a thread sees, or SP_NONE. */
uint32_t sp_show_kernel_set(const struct sp_spool *s, uint32_t epoch, uint32_t thread);

/* What the tools need besides the public interface. */
uint64_t sp_spool_good_end(const struct sp_spool *s); /* offset behind the last sound block */
uint32_t sp_spool_next_seq(const struct sp_spool *s);
uint64_t sp_spool_salt(const struct sp_spool *s);
size_t sp_spool_n_epochs(const struct sp_spool *s);
uint64_t sp_spool_n_bad_blocks(const struct sp_spool *s);
uint64_t sp_spool_n_unknown_blocks(const struct sp_spool *s);
uint32_t sp_spool_current_set(const struct sp_spool *s); /* of the sample just given */
size_t sp_spool_n_sets(const struct sp_spool *s);
size_t sp_spool_n_stages(const struct sp_spool *s);
const char *sp_spool_stage(const struct sp_spool *s, size_t index, const char **text);

#endif
