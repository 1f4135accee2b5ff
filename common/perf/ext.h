/* Our own records: type 65 with a magic (stream.md, "Our own records"; stackpulse-stream.5).
 *
 * Record: 8-byte perf header, magic "STKPULSE", u16 version, u16 kind, u32 payload_bytes, u64
 * object, u64 offset, u64 total, payload, zero padding to a multiple of 8 and at least 80 bytes.
 * Payloads longer than SP_EXT_PAYLOAD_MAX travel as fragments of one object (same object number,
 * growing offset, same total). */
#ifndef SP_PERF_EXT_H
#define SP_PERF_EXT_H

#include "base/build_id.h"
#include "perf/record.h"
#include "perf/writer.h"
#include "base/counters.h"

#define SP_EXT_VERSION 1
#define SP_EXT_HEAD 48 /* 8 + 8 + 2 + 2 + 4 + 8 + 8 + 8 */
#define SP_EXT_MIN 80  /* newer perf warns about smaller ones */
#define SP_EXT_PAYLOAD_MAX (65528u - SP_EXT_HEAD)

/* Payloads, little-endian:
 * START     key=value lines, see below
 * EXEC      u64 time_ns, i32 pid, u32 exec_count, then cmdline (NUL-separated)
 * RUNTIME   u64 time_ns, i32 pid, u32 kind (1 python, 2 perf map, 3 jitdump, 4 control group),
 *           u32 on, u32 0; kind 4: then path, runtime, id and name of the container, each with NUL
 * OBJECT    an embedded object: struct sp_ext_object's encoding
 * LOSS      u64 from_ns, u64 to_ns, u32 cpu, u32 kind (0 lost, 1 throttle), u64 count
 * COUNTERS  "stage NAME\n" then "counter value\n" lines
 * END       key=value lines: status=0|whole|cut|damaged, reason=…, command_status=…
 * STACK_TAIL u64 time_ns, i32 pid, i32 tid, u64 at, then stack bytes from sp + at
 * WAIT      u64 time_ns, i32 pid, i32 tid, u64 ns, u32 state, i32 waker_pid, i32 waker_tid, u32 0,
 *           char waker_comm[16], u64 end_ns (0 = time_ns):
 *           what the sample of the event offcpu-time with this time, pid and tid cannot say. state:
 *           the kernel's task state bits (include/linux/sched.h; 0 = it could have run), or
 *           SP_WAIT_STATE_UNKNOWN. waker 0: an interrupt, or not known
 * CONTENT   what identifies a mapped file without build-id: struct sp_ext_content's encoding
 * SHARED    u32 slot, u32 offset, u32 bytes, u32 0: whole records stand here, but lie in memory that
 *           the reader offered (share.h); the reader gives them, and not this */
enum sp_ext_kind {
	SP_EXT_START = 1,
	SP_EXT_EXEC = 2,
	SP_EXT_RUNTIME = 3,
	SP_EXT_OBJECT = 4,
	SP_EXT_LOSS = 5,
	SP_EXT_COUNTERS = 6,
	SP_EXT_END = 7,
	SP_EXT_STACK_TAIL = 8,
	SP_EXT_WAIT = 9,
	SP_EXT_CONTENT = 10,
	SP_EXT_SHARED = 11,
};

/* perf events tell of a thread that it was switched away from, and no more. */
#define SP_WAIT_STATE_UNKNOWN UINT32_MAX

struct sp_ext {
	uint16_t version, kind;
	uint64_t object, offset, total;
	const uint8_t *payload;
	uint32_t payload_bytes;
};

/* 1 and *out when rec is one of ours, 0 when it is not (an old perf's event name), SP_ERR_CORRUPT
 * when it has the magic but lies about its lengths. Payloads of a kind grow only at their end
 * (text: by new keys); a record of another version has kind 0, which is to be counted and skipped
 * like every unknown kind. */
int sp_ext_parse(const struct sp_record *rec, struct sp_ext *out, struct sp_err *err);

/* Where records lie that stand at a place in the stream. */
struct sp_ext_shared {
	uint32_t slot, offset, bytes;
};
/* Into a whole record of SP_EXT_MIN bytes. */
void sp_ext_shared_encode(uint8_t out[SP_EXT_MIN], const struct sp_ext_shared *x);
/* Whether the record says so. */
bool sp_ext_shared_decode(struct sp_ext_shared *x, const struct sp_record *rec);

/* Write payload as one record or as fragments; object numbers are the writer's own sequence. */
int sp_ext_write(struct sp_writer *w, enum sp_ext_kind kind, const void *payload, size_t size,
		 struct sp_err *err);

/* One fragment of an object into a buffer, for a producer that spreads a large one between other
 * records: the part that stands at offset of total bytes, at most SP_EXT_PAYLOAD_MAX. All fragments
 * carry the same kind and object number (sp_writer_next_object) and come in order. */
void sp_ext_encode_part(struct sp_buf *out, enum sp_ext_kind kind, uint64_t object, uint64_t offset,
			uint64_t total, const void *part, size_t part_size);

/* START and END payloads are text, "key=value\n" each: chain=site|return, boot_id, start_ns
 * (monotonic), wall_ns, interval_us, clock (cycles, cpu-clock, …), stack_bytes, rate_hz, kernel,
 * tool, version, start_time_us. The value of a key, or NULL; *len its length. */
const char *sp_ext_value(const uint8_t *payload, size_t size, const char *key, size_t *len);

/* Embedded objects. */
enum sp_object_kind {
	SP_OBJECT_FILE = 1,     /* the bytes of an ELF file or image (vdso, memfd, deleted …) */
	SP_OBJECT_PERF_MAP = 2, /* /tmp/perf-PID.map's text */
	SP_OBJECT_JITDUMP = 3,
	SP_OBJECT_KALLSYMS = 4, /* lines of /proc/kallsyms, only those needed */
};
struct sp_ext_object {
	uint32_t kind;
	int32_t pid;                  /* -1 = any */
	uint64_t time_ns, start, end; /* FILE: the mapping's range, 0 = any */
	uint32_t maj, min;
	uint64_t ino;
	uint8_t build_id_len, build_id[20];
	const char *path; /* path_len bytes, not NUL-terminated when decoded */
	uint32_t path_len;
	const uint8_t *data;
	size_t size;
};
/* Payload: u32 kind, i32 pid, u64 time, start, end, ino, u32 maj, min, u8 build_id_len, u8[20]
 * build_id, 3 zero bytes, u32 path_len, path, data to the end. */
void sp_ext_object_encode(struct sp_buf *out, const struct sp_ext_object *o);
int sp_ext_object_decode(struct sp_ext_object *o, const uint8_t *payload, size_t size,
			 struct sp_err *err);

/* The hash of a mapped file's content (elf/content_hash.h), before a sample that needs it. */
struct sp_ext_content {
	uint32_t maj, min;
	uint64_t ino;
	uint8_t hash[SP_CONTENT_HASH_BYTES];
	const char *path; /* path_len bytes, not NUL-terminated when encoded */
	uint32_t path_len;
};
/* Payload: u32 maj, min, u64 ino, u8[20] hash, u32 0, path, NUL. */
void sp_ext_content_encode(struct sp_buf *out, const struct sp_ext_content *c);
int sp_ext_content_decode(struct sp_ext_content *c, const uint8_t *payload, size_t size,
			  struct sp_err *err);

/* Fragments back to whole objects, bounded (512 MiB in all, 64 under way at once, the oldest gives
 * way). 1 and *payload (owned by the joiner, or in ext's record when that was the whole object;
 * until the next call) when ext completes an object, 0 when more is due; an incomplete object is
 * dropped when a fragment is missing or another uses its kind and number. */
struct sp_ext_joiner;
struct sp_ext_joiner *sp_ext_joiner_new(void);
void sp_ext_joiner_free(struct sp_ext_joiner *j);
int sp_ext_join(struct sp_ext_joiner *j, const struct sp_ext *ext, const uint8_t **payload,
		size_t *size, struct sp_err *err);

#endif
