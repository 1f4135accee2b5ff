/* The writer's dictionaries: what was interned, and how much of it has left in blocks. */
#ifndef SP_SPOOL_DICT_H
#define SP_SPOOL_DICT_H

#include <zstd.h>

#include "base/build_id.h"
#include "base/table.h"
#include "spool/format.h"
#include "spool/writer.h"

struct sp_wseg {
	uint32_t file;
	uint64_t foff, len;
};

struct sp_wmodule {
	uint32_t set, seg, place;
	uint64_t start;
	struct sp_wseg s; /* what seg stands for */
};

struct sp_wset {
	int32_t pid;
	uint32_t origin, parent, n_copied;
	struct sp_wmodule *mods; /* owned */
	size_t n, cap;
};

struct sp_wframe {
	uint64_t off;
	uint32_t file;
	uint16_t kind, copy;
};

struct sp_wnode {
	uint32_t prefix, frame; /* prefix SP_NONE: root */
	uint32_t out;           /* stored id + 1; 0 = not stored yet */
	uint32_t depth;         /* frames down to the root */
};

struct sp_wthread {
	int32_t pid, tid;
	uint32_t origin;
	uint32_t block, group; /* its last group and the block that this was in */
};

struct sp_wgroup {
	uint32_t thread, comm, set, event, n;
	uint32_t older; /* group + 1 of the same thread in this block */
	uint64_t weight;
};

struct sp_wwait { /* the key of an entry of waits */
	uint32_t state, comm;
	int32_t waker_pid, waker_tid;
};

struct sp_wpending {
	uint64_t time, weight; /* time in units of the resolution */
	uint32_t group, stack, cpu, wait;
};

/* How many entries of each dictionary have been stored. */
struct sp_wstored {
	uint32_t strings, origins, files, segs, events, threads, sets, modules, frames, nodes, waits;
	uint64_t samples;
};

struct sp_spool_writer {
	struct sp_spool_wopts opts;
	struct sp_err failed; /* code != 0: dead */
	ZSTD_CCtx *zstd;      /* owned */
	uint32_t seq;
	bool begun; /* header and INFO are out */
	uint64_t n_bytes;

	struct sp_intern strings, origins, files, segs, events, threads, frames, waits;
	struct sp_wfile_rec {
		uint32_t path, maj, min, flags;
		uint64_t ino, gen;
		uint8_t id_len, id[64], content[SP_CONTENT_HASH_BYTES];
	} *file; /* owned, by id, like all below */
	size_t n_file, cap_file;
	struct sp_wthread *thread;
	size_t n_thread, cap_thread;
	struct sp_wset *set;
	size_t n_set, cap_set;
	struct sp_wmodule *mod_log; /* modules in order of arrival, not yet stored */
	size_t n_mod_log, cap_mod_log;
	struct sp_map64 node_map;
	struct sp_wnode *node;
	size_t n_node, cap_node;
	uint32_t *frame_out; /* stored id + 1 by frame */
	size_t n_frame_out, cap_frame_out;

	struct sp_wpending *pending;
	size_t n_pending, cap_pending;
	struct sp_wgroup *group;
	size_t n_group, cap_group;
	uint32_t block; /* numbers DATA blocks for sp_wthread.block */
	uint32_t pops; /* in the block being encoded */
	size_t nodes_before; /* n_node at the last flush */

	struct sp_counters counters, counters_out;
	struct sp_buf info; /* INFO's payload */
	struct sp_buf raw, stored;
	struct sp_col_out col[256];
	struct sp_buf ev_bytes;
	size_t n_ev;
	/* Last offset of each file's frames in the block being encoded; before the files stand the
	 * kinds without a file. */
	struct sp_wlast {
		uint64_t off;
		uint32_t block;
	} *last;
	size_t cap_last;
	uint32_t *path, *order, *at; /* owned: work space of the encoder */
	size_t cap_path, cap_order, cap_at;
	struct sp_wstored out;
	uint64_t n_samples;
	uint64_t object_no, object_bytes;
};

/* Compress and hand over raw as one block. */
int sp_spool_block(struct sp_spool_writer *w, enum sp_block_type type, const void *raw, size_t n,
		   struct sp_err *err);
/* The pending definitions, samples and counters as one DATA block. */
int sp_spool_encode(struct sp_spool_writer *w, struct sp_err *err);

/* Remember that memory ended: the writer is dead. */
int sp_spool_nomem(struct sp_spool_writer *w, struct sp_err *err);

#define SP_SPOOL_N_LAST_KINDS 8u /* slots of last[] before the files' */

#endif
