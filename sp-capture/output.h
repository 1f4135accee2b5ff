/* Where the stream goes: blocks of records, written by a thread of its own, so that the loop that
 * drains the rings never waits for a reader.
 *
 * Between the two lie at most CAP_BLOCKS blocks (64 MiB). When they are full, samples are refused
 * (the caller counts them as lost); side-band has CAP_SPARE_BLOCKS more. */
#ifndef CAP_OUTPUT_H
#define CAP_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "perf/writer.h"

#define CAP_BLOCK_BYTES (256u << 10)
#define CAP_BLOCKS 256u
#define CAP_SPARE_BLOCKS 64u

struct cap_output;

/* writer: the head of the stream was given to it; it is finished with the output. fd: where a
 * stream's blocks go (is_file: through the writer instead, which keeps a file's books). */
int cap_output_new(struct cap_output **out, struct sp_writer *writer, int fd, const char *name,
		   bool is_file, struct sp_err *err);

/* Room for one record of `size` bytes (at most 65,535) in the current block, to be filled before
 * the next call. NULL when the blocks are full or the output is dead. */
uint8_t *cap_output_take(struct cap_output *o, size_t size, bool is_sample);

/* Whether large objects may go on now: half of the blocks are free. */
bool cap_output_has_room(struct cap_output *o);

/* Hand all that was taken to the writing thread. */
void cap_output_push(struct cap_output *o);

/* Bytes taken so far. */
uint64_t cap_output_bytes(const struct cap_output *o);

/* 0, or the error that ended the writing. Any thread. */
int cap_output_error(struct cap_output *o, struct sp_err *err);

/* Push, wait until everything is written, finish the writer, free. */
int cap_output_finish(struct cap_output *o, struct sp_err *err);

#endif
