/* Writing perf's pipe format, or a perf.data file.
 *
 * Records are built in one buffer and leave in batches: sp_writer_flush when the caller decides,
 * by itself when the buffer is full. A failed write is sticky and is returned by every later call.
 */
#ifndef SP_PERF_WRITER_H
#define SP_PERF_WRITER_H

#include "perf/record.h"
#include "base/buf.h"
#include "base/err.h"

struct sp_writer;

/* fd: where to; name: for messages; both stay the caller's. as_file: a perf.data file instead of a
 * stream: fd must be a regular file at its start. The same calls serve both: what describes the
 * events goes to the file's header, raw HEADER_ATTR, HEADER_FEATURE and HEADER_BUILD_ID records
 * too. A file whose writer was killed holds data of size 0, which perf and we read to its end. */
int sp_writer_new(struct sp_writer **out, int fd, const char *name, bool as_file,
		  struct sp_err *err);
/* Flush, complete a file's header (section table, attrs, features), free. */
int sp_writer_finish(struct sp_writer *w, struct sp_err *err);
void sp_writer_abandon(struct sp_writer *w); /* free without writing */

/* --- the head of a stream, in this order (stream.md) --- */
int sp_writer_begin(struct sp_writer *w, struct sp_err *err); /* 16-byte pipe header */
/* HEADER_ATTR with its one canonical id. name: for EVENT_DESC and EVENT_UPDATE; NULL takes the name
 * that type and config give. */
int sp_writer_attr(struct sp_writer *w, const struct sp_attr *attr, const char *name, uint64_t id,
		   struct sp_err *err);
/* The same for an attr of a recording that goes on with its own ids (n_ids 0 too), from attr bytes
 * of SP_ATTR_BYTES (attr.h). More ids than one record holds make a second attr of that name. */
int sp_writer_attr_ids(struct sp_writer *w, const uint8_t *attr, const char *name,
		       const uint64_t *ids, size_t n_ids, struct sp_err *err);
struct sp_writer_features {
	const char *hostname, *osrelease, *version, *arch;
	uint32_t n_cpus_online, n_cpus_avail;
	char *const *cmdline;
	size_t n_cmdline;
	int32_t clockid;
	uint64_t wall_ns, clock_ns; /* CLOCK_DATA: one instant on both clocks */
};
/* HEADER_FEATURE records incl. EVENT_DESC of the attrs given before, LAST_FEATURE; then
 * EVENT_UPDATE/NAME for each. */
int sp_writer_features(struct sp_writer *w, const struct sp_writer_features *f, struct sp_err *err);
/* One feature's content as it stands in a file's section, native order (ids: perf's header.h,
 * HEADER_HOSTNAME 3 …). Larger than a record holds: left out of a stream. */
int sp_writer_feature(struct sp_writer *w, unsigned feature, const void *data, size_t size,
		      struct sp_err *err);
/* TRACING_DATA: a record with the data behind it, or a file's section. perf script 6.1 crashes at a
 * tracepoint's sample without it. */
int sp_writer_tracing_data(struct sp_writer *w, const void *data, size_t size, struct sp_err *err);
/* EVENT_DESC of all attrs, LAST_FEATURE, EVENT_UPDATE/NAME: what sp_writer_features does at its
 * end, for those who wrote the features one by one. */
int sp_writer_head_end(struct sp_writer *w, struct sp_err *err);
/* HEADER_BUILD_ID: pid -1 for all processes; misc says kernel or user (SP_CPUMODE_*). Several files
 * may have had one path: device and inode, when they are known, follow the path where perf does not
 * look (after its NUL and padding: magic "STKPULSE", u32 maj, u32 min, u64 ino). */
struct sp_build_id_record {
	int32_t pid;
	uint16_t misc;
	uint8_t len, id[20];
	uint32_t maj, min;
	uint64_t ino; /* 0 = not known: the path alone says which file */
	const char *path;
};
#define SP_BUILD_ID_RECORD_MAX 4224u
int sp_writer_build_id(struct sp_writer *w, const struct sp_build_id_record *b, struct sp_err *err);
/* The record's bytes; 0 when the path is longer than perf reads. */
size_t sp_build_id_encode(uint8_t out[SP_BUILD_ID_RECORD_MAX], const struct sp_build_id_record *b);

/* --- records --- */
/* A whole record as it stands (its size field must equal size). */
int sp_writer_raw(struct sp_writer *w, const void *record, size_t size, struct sp_err *err);
/* Several whole records at once, none of which describes events (a batch of samples). */
int sp_writer_batch(struct sp_writer *w, const void *records, size_t size, struct sp_err *err);
/* Room for one record of at most size bytes, to be filled in place, and its end: used bytes of it
 * count (0 takes it back). NULL on failure, kept for later calls. Not for HEADER_* records. */
uint8_t *sp_writer_reserve(struct sp_writer *w, size_t size, struct sp_err *err);
void sp_writer_commit(struct sp_writer *w, size_t used);
/* The sample_id that ends every kernel-type record of an attr with sample_id_all and sample_type
 * IDENTIFIER|TID|TIME|CPU (stream.md): TID, TIME, CPU (+ res), IDENTIFIER. */
struct sp_sample_id {
	int32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu;
	uint64_t id;
};
#define SP_SAMPLE_ID_BYTES 32
void sp_sample_id_put(uint8_t out[SP_SAMPLE_ID_BYTES], const struct sp_sample_id *sid);
int sp_writer_flush(struct sp_writer *w, struct sp_err *err);
/* Bytes waiting in the buffer. */
size_t sp_writer_pending(const struct sp_writer *w);
/* A fresh object number for extension records, 1, 2, … */
uint64_t sp_writer_next_object(struct sp_writer *w);

#endif
