/* The bytes of a spool (stackpulse-spool.5): file header, block header, columns.
 *
 * File: a 32-byte header, then blocks. Block: a 32-byte header with its own checksum, then the
 * stored payload, which is the raw payload or one zstd frame of it. All integers little-endian. */
#ifndef SP_SPOOL_FORMAT_H
#define SP_SPOOL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/build_id.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/le.h"

#define SP_SPOOL_VERSION 1

/* The first byte is no text, CR LF shows a transfer that changed line ends. */
#define SP_SPOOL_MAGIC "\x8fSPOOL\r\n"
#define SP_SPOOL_FILE_HEAD 32
#define SP_SPOOL_BLOCK_HEAD 32
#define SP_SPOOL_BLOCK_MARK UINT32_C(0x4b425053) /* "SPBK" */
#define SP_SPOOL_RAW_MAX (4u << 20)

enum sp_block_type {
	SP_BLOCK_INFO = 1,   /* begins an epoch: dictionaries start anew; facts as columns */
	SP_BLOCK_DATA = 2,   /* definitions, then samples */
	SP_BLOCK_EVENTS = 3, /* losses, execs, runtime markers */
	SP_BLOCK_OBJECT = 4, /* a piece of an embedded file */
	SP_BLOCK_STAGE = 5,  /* the counters of one stage */
	SP_BLOCK_END = 6,    /* totals, and whether the input was whole */
	SP_BLOCK_FACTS = 7,  /* INFO's columns once more, for facts that were learnt late */
};

enum sp_block_flag {
	SP_BLOCK_ZSTD = 1,     /* stored is one zstd frame of raw */
	SP_BLOCK_CRITICAL = 2, /* who does not know the type must not use what follows */
};

struct sp_block {
	uint8_t type, flags;
	uint32_t stored, raw; /* bytes of the payload */
	uint32_t seq;         /* 0, 1, 2, … through the file */
	uint32_t salt;        /* low half of the file's salt */
	uint32_t crc;         /* of the stored payload */
};

/* Blocks' headers: encode into 32 bytes; decode gives false when mark, checksum or lengths are
 * wrong. */
void sp_block_encode(uint8_t out[SP_SPOOL_BLOCK_HEAD], const struct sp_block *b);
bool sp_block_decode(struct sp_block *b, const uint8_t in[SP_SPOOL_BLOCK_HEAD]);

void sp_spool_head_encode(uint8_t out[SP_SPOOL_FILE_HEAD], uint64_t salt);
/* 0, SP_ERR_CORRUPT (no spool, or a damaged header), SP_ERR_UNSUPPORTED (another version). */
int sp_spool_head_decode(const uint8_t in[SP_SPOOL_FILE_HEAD], uint64_t *salt, struct sp_err *err);

uint32_t sp_spool_crc(const void *data, size_t n);

/* --- columns ---
 * A payload of INFO, DATA, EVENTS, STAGE and END is a sequence of columns with rising ids:
 * u8 id, u8 width, u32 bytes, then the bytes. Width 1 to 8: bytes / width integers as planes, all
 * lowest bytes first, then all second bytes, …; width 0: plain bytes. A column whose values are all
 * zero is left out, so a missing column reads as zeros. Unknown ids are skipped. */
enum sp_column {
	/* DATA: definitions. The id of an entry is its base in HEAD plus its place. */
	SP_COL_HEAD = 1, /* plain: uleb values, see enum sp_head */
	SP_COL_STR_LEN = 2,
	SP_COL_STR_BYTES = 3, /* plain */
	SP_COL_ORIGIN_HOST = 4, /* string ids + 1 */
	SP_COL_ORIGIN_BOOT = 5,
	SP_COL_FILE_PATH = 10, /* string */
	SP_COL_FILE_MAJ = 11,
	SP_COL_FILE_MIN = 12,
	SP_COL_FILE_INO = 13,
	SP_COL_FILE_GEN = 14,
	SP_COL_FILE_FLAGS = 15, /* SP_SPOOL_FILE_* */
	SP_COL_FILE_ID_LEN = 16,
	SP_COL_FILE_ID = 17, /* plain: the build-ids, one after the other */
	SP_COL_FILE_CONTENT = 18, /* plain: 20 bytes of each file with SP_SPOOL_FILE_CONTENT */
	SP_COL_SEG_FILE = 20,
	SP_COL_SEG_FOFF = 21,
	SP_COL_SEG_LEN = 22,
	SP_COL_EVENT_NAME = 23,
	SP_COL_EVENT_FLAGS = 24, /* 1: weights are ns */
	SP_COL_THREAD_PID = 25,  /* zigzag of the step from the thread before */
	SP_COL_THREAD_TID = 26,  /* zigzag of tid - pid */
	SP_COL_THREAD_ORIGIN = 27,
	SP_COL_SET_PID = 28, /* zigzag of the step from the set before */
	SP_COL_SET_ORIGIN = 29,
	SP_COL_SET_PARENT = 30, /* 0, or the set + 1 that this one begins as a copy of */
	SP_COL_SET_COPIED = 31, /* so many of its modules */
	SP_COL_MOD_SET = 32, /* step from the module before: they stand in the order of their sets */
	SP_COL_MOD_SEG = 33,
	SP_COL_MOD_START = 34, /* zigzag of the step from the module before */
	SP_COL_MOD_PLACE = 35, /* its place in the set, copies included */
	SP_COL_FRAME_KIND = 40, /* enum sp_fkind */
	SP_COL_FRAME_FILE = 41, /* of FILE and COPY frames */
	SP_COL_FRAME_OFF = 42,  /* zigzag of the step from the same file's (kind's) frame before */
	SP_COL_FRAME_COPY = 43, /* of COPY frames */
	SP_COL_WAIT_STATE = 44,
	SP_COL_WAIT_PID = 45, /* the waker's; 0: nobody's, or not known */
	SP_COL_WAIT_TID = 46,
	SP_COL_WAIT_COMM = 47, /* string */
	/* DATA: samples, see stackpulse-spool.5. */
	SP_COL_GRP_THREAD = 50,
	SP_COL_GRP_COMM = 51,
	SP_COL_GRP_SET = 52, /* set + 1 */
	SP_COL_GRP_EVENT = 53,
	SP_COL_GRP_N = 54,
	SP_COL_GRP_WEIGHT = 55,
	SP_COL_S_GROUP = 60,
	SP_COL_S_TIME = 61,
	SP_COL_S_KIND = 62, /* enum sp_skind */
	SP_COL_S_NODE = 63,
	SP_COL_S_POP = 64,
	SP_COL_S_PUSH = 65,
	SP_COL_S_FRAME = 66,
	SP_COL_S_WEIGHT = 67,
	SP_COL_S_CPU = 68,
	SP_COL_S_WAIT = 69, /* wait, from 1, or 0 */
	SP_COL_COUNT_NAME = 70,  /* running counters: string … */
	SP_COL_COUNT_DELTA = 71, /* … and zigzag of the growth since the block before */
	/* INFO, STAGE, END: plain text or one integer (width 8). */
	SP_COL_HOSTNAME = 100,
	SP_COL_OSRELEASE = 101,
	SP_COL_ARCH = 102,
	SP_COL_CMDLINE = 103,
	SP_COL_BOOT_ID = 104,
	SP_COL_CLOCK = 105,
	SP_COL_START_US = 106,
	SP_COL_INTERVAL_US = 107,
	SP_COL_CLOCK_NS = 108,
	SP_COL_WALL_NS = 109,
	SP_COL_RESOLUTION_NS = 110,
	SP_COL_SHIFT_NS = 111, /* added to this epoch's times to put them on the first one's clock */
	SP_COL_PRODUCER = 112,
	SP_COL_STAGE_NAME = 120,
	SP_COL_STAGE_TEXT = 121, /* "counter value\n" lines */
	SP_COL_END_SAMPLES = 130,
	SP_COL_END_BLOCKS = 131,
	SP_COL_END_CUT = 132, /* 1: the input was cut or damaged … */
	SP_COL_END_WHY = 133, /* … and how */
	/* EVENTS */
	SP_COL_EV_KIND = 140, /* kind << 1, and 1 when an exec or marker, 0 when a loss */
	SP_COL_EV_TIME = 141, /* loss: from; exec: when */
	SP_COL_EV_A = 142,    /* loss: to - from; exec: zigzag pid */
	SP_COL_EV_B = 143,    /* loss: count */
	SP_COL_EV_C = 144,    /* loss: cpu + 1; exec: on */
	SP_COL_EV_D = 145,    /* exec: bytes of cmdline + 1, 0 = none */
	SP_COL_EV_ORIGIN = 146,
	SP_COL_EV_BYTES = 147,
	SP_COL_EV_N = 148,
};

/* HEAD of a DATA block: these values as ulebs, in this order; more may follow in later versions.
 * Those from SP_HEAD_WAIT on are missing where the epoch has no waits so far. */
enum sp_head {
	SP_HEAD_EPOCH,
	SP_HEAD_RESOLUTION, /* ns per unit of time */
	SP_HEAD_STRING, SP_HEAD_N_STRINGS, /* first id, number of entries */
	SP_HEAD_ORIGIN, SP_HEAD_N_ORIGINS,
	SP_HEAD_FILE, SP_HEAD_N_FILES,
	SP_HEAD_SEG, SP_HEAD_N_SEGS,
	SP_HEAD_EVENT, SP_HEAD_N_EVENTS,
	SP_HEAD_THREAD, SP_HEAD_N_THREADS,
	SP_HEAD_SET, SP_HEAD_N_SETS,
	SP_HEAD_MODULE, SP_HEAD_N_MODULES, /* a running number; modules have no stored id */
	SP_HEAD_FRAME, SP_HEAD_N_FRAMES,
	SP_HEAD_NODE, SP_HEAD_N_NODES,
	SP_HEAD_SAMPLE, SP_HEAD_N_SAMPLES, /* samples before this block, in it */
	SP_HEAD_N_GROUPS,
	SP_HEAD_N_COUNTS,
	SP_HEAD_MODE, /* 0 grouped, 1 in explicit order */
	SP_HEAD_TIME, /* base of the times, in units of the resolution */
	SP_HEAD_PERIOD,
	SP_HEAD_FIRST, /* earliest and latest time, of the samples that have one */
	SP_HEAD_LAST,
	SP_HEAD_WAIT, SP_HEAD_N_WAITS,
	SP_HEAD_N
};

#define SP_SPOOL_FILE_KERNEL 1u
#define SP_SPOOL_FILE_ANON 2u
#define SP_SPOOL_FILE_CONTENT 4u /* the hash of its content is known */

/* Kinds of frames. Frame 0 of every epoch is the truncation marker and is not stored. */
enum sp_fkind {
	SP_FKIND_TRUNCATED,
	SP_FKIND_FILE,   /* (file, offset): in the set's first module that holds it */
	SP_FKIND_COPY,   /* the same, in its n-th module that holds it (mapped more than once) */
	SP_FKIND_ADDR,   /* user address outside of all modules */
	SP_FKIND_ANON,   /* user address in the set's module at that address */
	SP_FKIND_KERNEL, /* kernel address */
	SP_FKIND_LOST,   /* reader: its definition was lost */
};

/* How a sample names its stack. "Previous" is the stack of the sample before in stored order. */
enum sp_skind {
	SP_SKIND_SAME, /* the previous one */
	SP_SKIND_NODE, /* a known node: S_NODE holds node + 1, 0 for the empty stack */
	SP_SKIND_POP,  /* new: S_POP frames off the previous, then S_PUSH new nodes */
	SP_SKIND_NEW,  /* new: from node S_NODE - 1 (0: from nothing), S_PUSH new nodes */
};

/* Limits that a writer keeps and a reader enforces, so that no block can ask for much. */
#define SP_SPOOL_MAX_SAMPLES (1u << 16)   /* in a block */
#define SP_SPOOL_MAX_NODES (1u << 19)     /* new ones, in a block */
#define SP_SPOOL_MAX_DEFS (1u << 18)      /* new entries of any other kind, in a block */
#define SP_SPOOL_MAX_DEPTH 65000u         /* frames of a stack */
#define SP_SPOOL_MAX_POPS (1u << 22)      /* sum of S_POP in a block */
#define SP_SPOOL_MAX_STRING 65535u
/* The most that stored bytes may expand to; what zstd shrinks further is stored as it is. */
#define SP_SPOOL_RATIO(stored) ((uint64_t)(stored) * 512 + 4096)
#define SP_SPOOL_MAX_OBJECTS (UINT64_C(512) << 20) /* bytes of embedded files */

static inline uint64_t sp_zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

static inline int64_t sp_unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

/* Values of one column on their way out. */
struct sp_col_out {
	uint64_t *v; /* owned */
	size_t n, cap;
	bool failed;
};

static inline void sp_col_push(struct sp_col_out *c, uint64_t value)
{
	if (c->n == c->cap && !sp_grow(&c->v, &c->cap, c->n + 1, sizeof *c->v)) {
		c->failed = true;
		return;
	}
	c->v[c->n++] = value;
}

void sp_col_out_deinit(struct sp_col_out *c);
/* Append the column to a payload and empty it. */
void sp_col_flush(struct sp_buf *out, unsigned id, struct sp_col_out *c);
void sp_col_bytes(struct sp_buf *out, unsigned id, const void *data, size_t n);
void sp_col_u64(struct sp_buf *out, unsigned id, uint64_t v); /* nothing when 0 */

/* A column being read. */
struct sp_col {
	const uint8_t *p; /* borrowed from the payload; NULL: missing, reads as zeros */
	uint32_t n, at;   /* values, of width bytes each */
	uint8_t width;
	bool bad; /* read past its end */
};

static inline uint64_t sp_col_next(struct sp_col *c)
{
	if (!c->p)
		return 0;
	if (c->at >= c->n) {
		c->bad = true;
		return 0;
	}
	const uint8_t *p = c->p + c->at++;
	uint64_t v = *p;
	for (unsigned i = 1; i < c->width; i++)
		v |= (uint64_t)p[(size_t)i * c->n] << 8 * i;
	return v;
}

/* All columns of a payload by id. False when it is malformed. */
struct sp_cols {
	struct sp_col c[256];
};
bool sp_cols_parse(struct sp_cols *cols, const uint8_t *payload, size_t n);
/* A whole column as bytes (never NULL) or as one number. */
const uint8_t *sp_cols_bytes(const struct sp_cols *cols, unsigned id, size_t *n);
uint64_t sp_cols_u64(const struct sp_cols *cols, unsigned id);

#endif
