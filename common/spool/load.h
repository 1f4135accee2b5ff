/* The reader's inside: what was loaded, and the walk over a file's blocks. */
#ifndef SP_SPOOL_LOAD_H
#define SP_SPOOL_LOAD_H

#include <zstd.h>

#include "base/table.h"
#include "spool/format.h"
#include "stackpulse/spool.h"

/* --- blocks of a file --- */
struct sp_scan {
	int fd; /* owned */
	uint64_t at, size;
	uint64_t salt;
	bool salt_known;
	ZSTD_DCtx *zstd; /* owned */
	struct sp_buf stored, raw;
};

enum sp_scan_found {
	SP_SCAN_END = 0,   /* the file ends here */
	SP_SCAN_BLOCK = 1, /* *b and its payload */
	SP_SCAN_TAIL = 2,  /* the file ends inside a block */
	SP_SCAN_BAD = 3,   /* damage at *at; the scan goes on behind it */
};

/* The block at s->at, which moves on. *at: where it stood. payload is valid until the next call.
 * why: what is wrong, a static text. */
int sp_scan_next(struct sp_scan *s, struct sp_block *b, uint64_t *at, const uint8_t **payload,
		 const char **why, struct sp_err *err);
void sp_scan_deinit(struct sp_scan *s);

/* --- dictionaries --- */
struct sp_rstring {
	size_t at;
	uint32_t len; /* SP_NONE: lost */
};

struct sp_rfile {
	uint32_t path, maj, min, flags;
	uint64_t ino, gen;
	size_t id_at, content_at; /* content_at: with SP_SPOOL_FILE_CONTENT */
	uint32_t number; /* the same for equal files of all epochs */
	uint8_t id_len;
	bool lost;
};

struct sp_rseg {
	uint32_t file; /* SP_NONE: lost */
	uint64_t foff, len;
};

struct sp_rset {
	int32_t pid;
	uint32_t origin, epoch;
	uint32_t first, last, n; /* modules, linked in the order of their places */
	bool lost;
};

struct sp_rmodule {
	uint32_t set, file; /* file SP_NONE: lost */
	uint64_t start, len, foff;
	uint32_t next; /* of the same set */
};

struct sp_rframe {
	uint64_t off;
	uint32_t file;
	uint16_t kind, copy;
};

struct sp_rnode {
	uint32_t parent, frame; /* frame SP_NONE: lost */
	uint32_t depth;
};

struct sp_rthread {
	struct sp_spool_thread pub;
	uint32_t origin;
	bool lost;
};

struct sp_revent {
	uint32_t name;
	bool is_time, lost;
};

struct sp_rwait {
	uint32_t state, comm; /* comm SP_NONE: lost */
	int32_t waker_pid, waker_tid;
	bool lost;
};

struct sp_repoch {
	uint32_t string, origin, file, seg, event, thread, set, module, frame, node, wait; /* first ids */
	uint64_t samples; /* before this epoch */
	uint64_t resolution;
	int64_t shift_ns;
	uint64_t first_ns; /* of its samples that have a time, on the file's clock; 0 = none */
	struct sp_counters counters;
	bool ended;
};

struct sp_rsample {
	uint64_t time, weight;
	uint32_t group, stack, cpu; /* stack: SP_NONE empty, SP_STACK_LOST */
	uint32_t wait; /* 0: none */
};
#define SP_STACK_LOST (SP_NONE - 1)

struct sp_rgroup {
	uint32_t thread, comm, set, event;
	uint32_t n;
	uint64_t weight;
	bool lost;
};

struct sp_rblock {
	uint64_t at;
	uint32_t epoch;
};

/* The samples of one block at a time. */
struct sp_rcursor {
	size_t first_block, end_block, at_block; /* the next one to load */
	uint32_t epoch;
	uint64_t first_ns;
	struct sp_rsample *sample, *spare; /* owned; spare: room for merging */
	size_t n_sample, cap_sample, cap_spare, at;
	struct sp_rgroup *group; /* owned */
	size_t n_group, cap_group;
};

struct sp_data {
	struct sp_cols cols;
	uint64_t head[SP_HEAD_N];
	uint32_t next_copy; /* the first new set that is not yet the copy that it is to be */
};

struct sp_spool {
	struct sp_scan scan;
	struct sp_data data; /* of the block at hand */
	enum sp_spool_state state;
	bool tail_cut;
	char complaint[400];
	uint64_t n_bad, n_unknown, n_lost;
	uint64_t n_bad_seen; /* damage that explains missing blocks so far */
	bool ended;          /* the last block was an end record */
	bool open_end;       /* INCOMPLETE for no other reason than that the end has not come */
	uint64_t load_at;    /* where the first pass goes on when the file has grown */
	uint64_t n_lost_counted; /* of n_lost: found by count_lost() */
	uint64_t used, stored; /* bytes of dictionaries; of blocks read */
	uint64_t good_end;     /* offset behind the last intact block */
	uint32_t next_seq;

	struct sp_buf bytes; /* strings and build-ids */
	struct sp_rstring *str;
	size_t n_str, cap_str;
	struct { uint32_t host, boot; } *origin;
	size_t n_origin, cap_origin;
	struct sp_rfile *file;
	size_t n_file, cap_file;
	struct sp_rseg *seg;
	size_t n_seg, cap_seg;
	struct sp_revent *event;
	size_t n_event, cap_event;
	struct sp_rthread *thread;
	size_t n_thread, cap_thread;
	struct sp_rset *set;
	size_t n_set, cap_set;
	struct sp_rmodule *module;
	size_t n_module, cap_module;
	struct sp_rframe *frame;
	size_t n_frame, cap_frame;
	struct sp_rnode *node;
	size_t n_node, cap_node;
	struct sp_rwait *wait;
	size_t n_wait, cap_wait;
	bool has_lost_nodes; /* else no sample need be looked at for it */
	struct sp_repoch *epoch;
	size_t n_epoch, cap_epoch;
	struct sp_rblock *block; /* those with samples */
	size_t n_block, cap_block, n_block_shown;

	struct sp_spool_loss *loss;
	size_t n_loss, cap_loss;
	struct sp_rexec { struct sp_spool_exec pub; size_t at; } *exec;
	size_t n_exec, cap_exec;
	struct sp_robject {
		struct sp_spool_object pub;
		struct sp_buf data;
		uint64_t no, total;
		size_t path_at, id_at;
		uint32_t epoch;
	} *object;
	size_t n_object, cap_object, n_object_shown;
	uint64_t object_bytes;
	struct sp_rstage { uint32_t epoch; size_t name_at, text_at; } *stage;
	size_t n_stage, cap_stage;

	/* What the public functions show; made when everything is loaded. */
	struct sp_spool_info info;
	size_t info_at[6];
	bool info_known;
	struct sp_counters counters;
	struct sp_spool_module *pub_module;
	struct sp_spool_event *pub_event;
	size_t n_canon;
	uint32_t *canon; /* frame -> public number, or NULL when that is itself */
	uint64_t *kernel_addrs;
	size_t n_kernel_addrs;
	bool kernel_addrs_known;
	uint32_t *kset; /* sets of pid -1, one per epoch and origin */
	size_t n_kset, cap_kset;
	struct sp_rwhere { uint32_t set, module; } *where; /* by frame: its module in that set */

	/* Where the samples are given from: one cursor per epoch, in the order of their first
	 * times. */
	struct sp_rcursor first_pass, *cur;
	struct sp_rcursor *cursor; /* owned */
	size_t n_cursor, cap_cursor, at_cursor;
	uint32_t cur_stack, cur_set, cur_kset;
	struct sp_spool_frame *frames;
	size_t n_frames, cap_frames;
	uint32_t frames_stack, frames_set, frames_kset;
	bool frames_valid;
};

/* Take in one block of the first pass. 0, or why it can't be used (a static text). */
const char *sp_load_data(struct sp_spool *s, const uint8_t *payload, size_t n, uint64_t at);
const char *sp_load_info(struct sp_spool *s, const uint8_t *payload, size_t n, bool late);
const char *sp_load_events(struct sp_spool *s, const uint8_t *payload, size_t n);
/* No more pieces come for the last object. */
void sp_load_object_end(struct sp_spool *s);
const char *sp_load_object(struct sp_spool *s, const uint8_t *payload, size_t n);
const char *sp_load_stage(struct sp_spool *s, const uint8_t *payload, size_t n);
const char *sp_load_end(struct sp_spool *s, const uint8_t *payload, size_t n);
/* Decode the samples of a DATA block into s->cur, in time order. */
const char *sp_load_samples(struct sp_spool *s, const uint8_t *payload, size_t n, uint32_t epoch);

/* Bytes about to be allocated for dictionaries: false when a file asks for more than its size
 * can justify. */
bool sp_load_afford(struct sp_spool *s, uint64_t bytes);
/* Append bytes and a NUL to s->bytes; where they stand. False when memory ends. */
bool sp_load_text(struct sp_spool *s, const void *text, size_t n, size_t *at);
void sp_load_complain(struct sp_spool *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The frames of a stack in a set; false when something about them was lost. */
bool sp_load_expand(struct sp_spool *s, uint32_t stack, uint32_t set, uint32_t kset);

#endif
