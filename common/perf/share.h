/* Bytes of a stream beside the pipe: memory that both of its ends see.
 *
 * A pipe takes a copy of every byte, into pages that it gets and gives back one by one: of samples
 * with stacks that is most of what a live pipeline costs. So a reader of ours offers a piece of
 * memory to whoever writes into its pipe, and a writer of ours that finds the offer puts records
 * there and writes into the pipe where they lie (ext.h, SP_EXT_SHARED). The stream's order is the
 * pipe's, and so are its end, its back-pressure and who is woken when; all that the memory has no
 * room for goes through the pipe as ever. Writers that know of no offer and readers that make none
 * need not care: perf's pipe between perf and us stays what it is.
 *
 * The offer is a read lock (fcntl, F_SETLK) on the pipe's inode: F_GETLK tells the writer which
 * process holds it, and the lock's place which descriptor of /proc/PID/fd is the memory, a memfd.
 * Whoever may not open that (another user's, another pid namespace) writes into the pipe.
 *
 * The memory has SP_SHARE_SLOTS slots. The writer takes a free one, holds it as long as it has
 * room, and counts one reference more for each record that names it; the reader takes them back.
 * At 0 the slot is free. */
#ifndef SP_PERF_SHARE_H
#define SP_PERF_SHARE_H

#include <stdint.h>

#include "perf/reader.h"

#define SP_SHARE_SLOTS 32u
#define SP_SHARE_SLOT_BYTES (256u << 10)

struct sp_share;

/* --- the reader's end --- */

/* Offer memory to the writers of a pipe; NULL when it is no pipe, or cannot be. */
struct sp_share *sp_share_offer(int pipe_fd);
/* No offer any more. The memory stays until the last piece is released. */
void sp_share_withdraw(struct sp_share *s);
/* What a record says lies there: a chunk with one reference; *data its bytes. NULL when there is no
 * such place, or memory ends. A writer may change the bytes meanwhile: none may that could not
 * trace this process as well. */
struct sp_chunk *sp_share_piece(struct sp_share *s, uint32_t slot, uint32_t offset, uint32_t bytes,
				const uint8_t **data);

/* --- the writer's end --- */

/* The memory that the pipe's reader offers, or NULL. */
struct sp_share *sp_share_find(int pipe_fd);
void sp_share_leave(struct sp_share *s);
/* A free slot, held by the writer: its number, or -1. */
int sp_share_take(struct sp_share *s);
uint8_t *sp_share_slot(const struct sp_share *s, int slot); /* SP_SHARE_SLOT_BYTES */
/* Before a record that names the slot. */
void sp_share_hold(struct sp_share *s, int slot);
/* The writer's own hold, or one for a record that was not written. */
void sp_share_drop(struct sp_share *s, int slot);

#endif
