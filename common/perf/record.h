/* Records of perf's stream, decoded: what one PERF_RECORD_* says, whatever its producer's byte
 * order and sample_type. Sources: perf_event_open(2); the kernel's include/uapi/linux/perf_event.h
 * and tools/perf/Documentation/perf.data-file-format.txt. */
#ifndef SP_PERF_RECORD_H
#define SP_PERF_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/le.h"

/* Types above the kernel's, written by perf (tools/lib/perf/include/perf/event.h). */
enum sp_perf_type {
	SP_PERF_MMAP = 1,
	SP_PERF_LOST = 2,
	SP_PERF_COMM = 3,
	SP_PERF_EXIT = 4,
	SP_PERF_THROTTLE = 5,
	SP_PERF_UNTHROTTLE = 6,
	SP_PERF_FORK = 7,
	SP_PERF_READ = 8,
	SP_PERF_SAMPLE = 9,
	SP_PERF_MMAP2 = 10,
	SP_PERF_AUX = 11,
	SP_PERF_ITRACE_START = 12,
	SP_PERF_LOST_SAMPLES = 13,
	SP_PERF_SWITCH = 14,
	SP_PERF_SWITCH_CPU_WIDE = 15,
	SP_PERF_NAMESPACES = 16,
	SP_PERF_KSYMBOL = 17,
	SP_PERF_BPF_EVENT = 18,
	SP_PERF_CGROUP = 19,
	SP_PERF_TEXT_POKE = 20,
	SP_PERF_AUX_OUTPUT_HW_ID = 21,
	SP_PERF_HEADER_ATTR = 64,
	SP_PERF_HEADER_EVENT_TYPE = 65, /* ours, with the magic; see ext.h */
	SP_PERF_HEADER_TRACING_DATA = 66,
	SP_PERF_HEADER_BUILD_ID = 67,
	SP_PERF_FINISHED_ROUND = 68,
	SP_PERF_ID_INDEX = 69,
	SP_PERF_AUXTRACE_INFO = 70,
	SP_PERF_AUXTRACE = 71,
	SP_PERF_AUXTRACE_ERROR = 72,
	SP_PERF_THREAD_MAP = 73,
	SP_PERF_CPU_MAP = 74,
	SP_PERF_STAT_CONFIG = 75,
	SP_PERF_STAT = 76,
	SP_PERF_STAT_ROUND = 77,
	SP_PERF_EVENT_UPDATE = 78,
	SP_PERF_TIME_CONV = 79,
	SP_PERF_HEADER_FEATURE = 80,
	SP_PERF_COMPRESSED = 81,
	SP_PERF_FINISHED_INIT = 82,
	SP_PERF_COMPRESSED2 = 83,
};

/* A type that this file names. */
static inline bool sp_record_is_known(uint32_t type)
{
	return (type && type <= SP_PERF_AUX_OUTPUT_HW_ID) ||
	       (type >= SP_PERF_HEADER_ATTR && type <= SP_PERF_COMPRESSED2);
}

#define SP_CONTEXT_HV ((uint64_t)-32)
#define SP_CONTEXT_KERNEL ((uint64_t)-128)
#define SP_CONTEXT_USER ((uint64_t)-512)
#define SP_CONTEXT_MAX ((uint64_t)-4095) /* values from here up are context markers */

#define SP_MAX_RECORD 65535u
#define SP_TRACING_HEAD_BYTES 16 /* TRACING_DATA: header, u32 bytes that follow, u32 0 */
#define SP_MAX_STACK 65528u

enum sp_cpumode {
	SP_CPUMODE_UNKNOWN,
	SP_CPUMODE_KERNEL,
	SP_CPUMODE_USER,
	SP_CPUMODE_HV,
	SP_CPUMODE_GUEST_KERNEL,
	SP_CPUMODE_GUEST_USER
};

/* Bits of misc beside the cpumode; their meaning depends on the type. */
#define SP_MISC_COMM_EXEC (UINT16_C(1) << 13)
#define SP_MISC_MMAP_DATA (UINT16_C(1) << 13)
#define SP_BUILD_ID_FILE_MAGIC "STKPULSE" /* at the end of a HEADER_BUILD_ID, writer.h */
#define SP_BUILD_ID_FILE_BYTES 24u
#define SP_MISC_BUILD_ID (UINT16_C(1) << 14)      /* MMAP2 with a build-id */
#define SP_MISC_BUILD_ID_SIZE (UINT16_C(1) << 15) /* HEADER_BUILD_ID tells the length */

struct sp_attr {
	uint32_t type, size;
	uint64_t config, sample_period, sample_type, read_format, flags;
	uint64_t branch_sample_type, sample_regs_user, sample_regs_intr, config1, config2;
	uint32_t sample_stack_user, wakeup, bp_type;
	int32_t clockid;
	uint16_t sample_max_stack;
};
/* Bits of attr.flags (the bit-field after read_format). */
#define SP_ATTR_DISABLED (UINT64_C(1) << 0)
#define SP_ATTR_INHERIT (UINT64_C(1) << 1)
#define SP_ATTR_EXCLUDE_USER (UINT64_C(1) << 4)
#define SP_ATTR_EXCLUDE_KERNEL (UINT64_C(1) << 5)
#define SP_ATTR_EXCLUDE_HV (UINT64_C(1) << 6)
#define SP_ATTR_MMAP (UINT64_C(1) << 8)
#define SP_ATTR_COMM (UINT64_C(1) << 9)
#define SP_ATTR_FREQ (UINT64_C(1) << 10)
#define SP_ATTR_ENABLE_ON_EXEC (UINT64_C(1) << 12)
#define SP_ATTR_TASK (UINT64_C(1) << 13)
#define SP_ATTR_WATERMARK (UINT64_C(1) << 14)
#define SP_ATTR_SAMPLE_ID_ALL (UINT64_C(1) << 18)
#define SP_ATTR_EXCLUDE_GUEST (UINT64_C(1) << 20)
#define SP_ATTR_EXCLUDE_CALLCHAIN_KERNEL (UINT64_C(1) << 21)
#define SP_ATTR_EXCLUDE_CALLCHAIN_USER (UINT64_C(1) << 22)
#define SP_ATTR_MMAP2 (UINT64_C(1) << 23)
#define SP_ATTR_COMM_EXEC (UINT64_C(1) << 24)
#define SP_ATTR_USE_CLOCKID (UINT64_C(1) << 25)
#define SP_ATTR_CONTEXT_SWITCH (UINT64_C(1) << 26)
#define SP_ATTR_INHERIT_THREAD (UINT64_C(1) << 35)

/* An event of the recording: one attr with its ids and name. Owned by the reader. */
struct sp_event {
	struct sp_attr attr;
	uint8_t attr_bytes[128]; /* the whole attr, native order, attr.size 128 (attr.h) */
	uint64_t *ids;
	size_t n_ids, cap_ids;
	char *name; /* from EVENT_DESC, EVENT_UPDATE, or made from type and config; never NULL */
	uint32_t index;
};

struct sp_perf_sample {
	/* First what unwinding needs: other threads have it line by line. */
	uint64_t ip;
	const uint8_t *chain; /* n_chain u64s, unaligned, native order: read with sp_get64 */
	uint64_t n_chain;     /* 0 when absent */
	uint64_t regs_abi;    /* 0 none, 1 32-bit, 2 64-bit */
	const uint8_t *regs;  /* popcount(attr.sample_regs_user) u64s, unaligned, or NULL */
	const uint8_t *stack; /* stack_bytes bytes from sp upwards, or NULL */
	uint64_t stack_bytes; /* min(size, dyn_size): what was really copied */
	/* Where fields stand in the record, for those who rewrite it: the call chain (its count and
	 * entries) is [chain_off, chain_end), user registers and stack, which are neighbours,
	 * [user_off, user_end). An absent field is empty, at the place where it would stand. */
	uint16_t chain_off, chain_end, user_off, user_end;
	bool has_ip, has_period, has_chain, has_regs, has_stack;
	/* With SP_READER_TRIM, unless 0: only so many bytes are at `stack`, and all of them in a
	 * file: sp_sample_far. */
	uint16_t stack_here;
	uint64_t addr, period, weight;
	const uint8_t *branches; /* n_branches × 24 bytes (from, to, flags) */
	uint64_t n_branches;
	uint64_t id;                                       /* which event; 0 when absent */
	uint64_t phys_addr, data_src, transaction, cgroup; /* 0 when absent */
	const uint8_t *raw; /* raw_bytes of PERF_SAMPLE_RAW, or NULL */
	uint32_t raw_bytes;
	uint32_t n_values;     /* of counters, which PERF_SAMPLE_READ took along: sp_sample_value */
	const uint8_t *values; /* in the attr's read_format */
};

struct sp_perf_mmap {
	uint64_t start, len, pgoff;
	uint32_t maj, min;     /* 0 when unknown */
	uint64_t ino, ino_gen; /* 0 when unknown */
	uint8_t build_id[20];
	uint8_t build_id_len; /* 0 = none (MMAP2 with build-id has no maj, min, ino) */
	uint32_t prot, flags; /* MMAP: prot is PROT_EXEC unless misc says data */
	const char *path;     /* NUL-terminated inside the record */
	bool is_mmap2;
};

/* Where all bytes of a stack stand of which stack_here are there: behind those. */
static inline void sp_sample_far(const struct sp_perf_sample *s, int *fd, uint64_t *foff)
{
	*fd = (int)sp_get64(s->stack + s->stack_here + 8);
	*foff = sp_get64(s->stack + s->stack_here + 16);
}

/* A sample that is yet to be decoded, by whichever thread (SP_READER_LATE, reader.h). */
struct sp_late {
	const uint8_t *raw; /* as in struct sp_record */
	const struct sp_event *event;
	uint64_t pos, seq; /* the reader's: of what it says about a sample that is malformed */
	uint32_t size, whole; /* whole: before it was trimmed */
};

/* One record. raw points at the whole record (header included), in native byte order: the input
 * itself, or a copy of the reader's when the input is compressed or of the other byte order. All
 * decoded pointers lie in it. */
struct sp_record {
	uint32_t type, size;
	uint16_t misc;
	bool has_time, has_tid;
	bool malformed; /* its body could not be parsed: only type, misc, size, raw hold */
	bool is_late;   /* a sample of which only type, misc, event, pid, time and `late` hold */
	const uint8_t *raw;
	const struct sp_event *event; /* whose sample_type applied; NULL for perf's own types */
	int32_t pid, tid; /* -1 when absent; from the sample_id for records without own */
	union {
		struct sp_perf_sample sample;
		struct sp_late late;
		struct sp_perf_mmap mmap;
		struct {
			const char *comm;
			bool is_exec;
		} comm;
		struct {
			int32_t pid, ppid, tid, ptid;
			uint64_t time_ns;
		} task; /* FORK, EXIT */
		struct {
			uint64_t id, lost;
		} lost; /* LOST; LOST_SAMPLES: id 0 */
	};
	uint64_t time_ns; /* 0 when absent: see has_time */
	uint32_t cpu;     /* UINT32_MAX when absent */
};

/* One of a sample's counter values: how far the counter of that id had come. */
struct sp_sample_value {
	uint64_t value, id;
};
/* The i-th, of which there are sample.n_values: false beyond, and when they have no ids. */
bool sp_sample_value(const struct sp_record *rec, uint32_t i, struct sp_sample_value *out);

static inline unsigned sp_record_cpumode(const struct sp_record *r)
{
	return r->misc & 7;
}

#endif
