/* Where the stream goes.
 *
 * As long as the reader of a pipe keeps up, the loop that drains the rings writes to it itself,
 * without ever being made to wait by the pipe (RWF_NOWAIT; pipes have it since Linux 6.4): stack
 * bytes go from the ring into the pipe, and are copied nowhere else. What a pipe does not take in
 * time, and all that goes anywhere else, is copied into blocks that a thread of its own writes, so
 * that the loop never waits for a reader.
 *
 * Where the reader of the pipe offers memory (perf/share.h; sp-unwind does), records are copied
 * there once, and the pipe is told where they lie: it costs less than half of a pipe's two copies
 * and its pages. As long as a slot is free, and in the stream's order with all that goes through
 * the pipe.
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

/* A record that is made of a head, of bytes that stay where they are until the next push (in two
 * pieces, the second may be empty), and of a tail. Returns the head, *tail is the tail, both to be
 * filled before the next call; NULL as above. */
struct cap_pieces {
	size_t head, tail;
	uint8_t *data[2]; /* borrowed until cap_output_push; only read (an iovec knows no const) */
	size_t n[2];
};
uint8_t *cap_output_gather(struct cap_output *o, const struct cap_pieces *x, uint8_t **tail);

/* Until when a pipe that is full may be waited for, on CLOCK_MONOTONIC: as long as there is room
 * for what comes meanwhile. 0: not at all. */
void cap_output_patience(struct cap_output *o, uint64_t until_ns);

/* Write, or hand to the writing thread, all that was taken; nothing is borrowed afterwards. */
void cap_output_push(struct cap_output *o);

/* Bytes taken so far. */
uint64_t cap_output_bytes(const struct cap_output *o);

/* 0, or the error that ended the writing. Any thread. */
int cap_output_error(struct cap_output *o, struct sp_err *err);

/* Push, wait until everything is written, finish the writer, free. */
int cap_output_finish(struct cap_output *o, struct sp_err *err);

#endif
