/* struct perf_event_attr as stored bytes: every size that the kernel ever used (64 and up), both
 * byte orders, and the few changes that the stages make to it.
 *
 * Source: include/uapi/linux/perf_event.h. Offsets: type 0, size 4, config 8, sample_period 16,
 * sample_type 24, read_format 32, flags 40, wakeup 48, bp_type 52, config1 56, config2 64,
 * branch_sample_type 72, sample_regs_user 80, sample_stack_user 88, clockid 92,
 * sample_regs_intr 96, aux_watermark 104, sample_max_stack 108, aux_sample_size 112,
 * sig_data 120; ends of the versions: 64, 72, 80, 96, 104, 112, 120, 128, 136, … */
#ifndef SP_PERF_ATTR_H
#define SP_PERF_ATTR_H

#include "perf/record.h"
#include "base/err.h"

#define SP_ATTR_BYTES 128    /* what we write: the size that perf 6.1 knows */
#define SP_ATTR_MIN_BYTES 64 /* PERF_ATTR_SIZE_VER0; also meant by a size of 0 */

/* Bits of attr.sample_type. */
#define SP_SAMPLE_IP (UINT64_C(1) << 0)
#define SP_SAMPLE_TID (UINT64_C(1) << 1)
#define SP_SAMPLE_TIME (UINT64_C(1) << 2)
#define SP_SAMPLE_ADDR (UINT64_C(1) << 3)
#define SP_SAMPLE_READ (UINT64_C(1) << 4)
#define SP_SAMPLE_CALLCHAIN (UINT64_C(1) << 5)
#define SP_SAMPLE_ID (UINT64_C(1) << 6)
#define SP_SAMPLE_CPU (UINT64_C(1) << 7)
#define SP_SAMPLE_PERIOD (UINT64_C(1) << 8)
#define SP_SAMPLE_STREAM_ID (UINT64_C(1) << 9)
#define SP_SAMPLE_RAW (UINT64_C(1) << 10)
#define SP_SAMPLE_BRANCH_STACK (UINT64_C(1) << 11)
#define SP_SAMPLE_REGS_USER (UINT64_C(1) << 12)
#define SP_SAMPLE_STACK_USER (UINT64_C(1) << 13)
#define SP_SAMPLE_WEIGHT (UINT64_C(1) << 14)
#define SP_SAMPLE_DATA_SRC (UINT64_C(1) << 15)
#define SP_SAMPLE_IDENTIFIER (UINT64_C(1) << 16)
#define SP_SAMPLE_TRANSACTION (UINT64_C(1) << 17)
#define SP_SAMPLE_REGS_INTR (UINT64_C(1) << 18)
#define SP_SAMPLE_PHYS_ADDR (UINT64_C(1) << 19)
#define SP_SAMPLE_AUX (UINT64_C(1) << 20)
#define SP_SAMPLE_CGROUP (UINT64_C(1) << 21)
#define SP_SAMPLE_DATA_PAGE_SIZE (UINT64_C(1) << 22)
#define SP_SAMPLE_CODE_PAGE_SIZE (UINT64_C(1) << 23)
#define SP_SAMPLE_WEIGHT_STRUCT (UINT64_C(1) << 24)
#define SP_SAMPLE_KNOWN ((UINT64_C(1) << 25) - 1)

/* Bits of attr.read_format. */
#define SP_READ_ENABLED (UINT64_C(1) << 0)
#define SP_READ_RUNNING (UINT64_C(1) << 1)
#define SP_READ_ID (UINT64_C(1) << 2)
#define SP_READ_GROUP (UINT64_C(1) << 3)
#define SP_READ_LOST (UINT64_C(1) << 4)

#define SP_BRANCH_CALL_STACK (UINT64_C(1) << 11) /* branch_sample_type: calls under way only */
#define SP_BRANCH_HW_INDEX (UINT64_C(1) << 17) /* branch_sample_type: a word before the entries */
#define SP_BRANCH_COUNTERS (UINT64_C(1) << 19) /* a word per entry behind them (kernel 6.8) */

/* Fill out with the attr in native order, attr.size SP_ATTR_BYTES; fields that struct sp_attr does
 * not hold are zero. */
void sp_attr_encode(const struct sp_attr *a, uint8_t out[SP_ATTR_BYTES]);

/* Decode an attr of which at most avail bytes are there; its own size field decides how many count
 * (0 = 64). Returns that size, or SP_ERR_CORRUPT. a->size is what the bytes said, never 0. */
int sp_attr_decode(struct sp_attr *a, const uint8_t *p, size_t avail, bool swap,
		   struct sp_err *err);

/* The same attr, bytes to bytes: native order, attr.size SP_ATTR_BYTES, every field below that
 * kept. What newer attrs have beyond 128 bytes is dropped (perf 6.1 refuses longer ones).
 * Returns the size of the input attr. */
int sp_attr_normalize(uint8_t out[SP_ATTR_BYTES], const uint8_t *p, size_t avail, bool swap,
		      struct sp_err *err);

/* What sp-unwind does to an attr of its output: samples carry no user registers and stacks any
 * more, and have user call chains (stream.md). Attrs whose samples carry neither stay as they are.
 * In place, on native bytes of at least 96. */
void sp_attr_bytes_unwound(uint8_t *attr);

/* A name for an event that nobody named: "cycles", "cpu-clock", "L1-dcache-load-misses",
 * "raw 0x1a2", "mem:0x…:rw", "pmu12/0x3c/" … size of at least 64. */
void sp_attr_name(const struct sp_attr *a, char *out, size_t size);

#endif
