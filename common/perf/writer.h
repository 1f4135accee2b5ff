/* Writing perf's pipe format, or a perf.data file.
 *
 * Records are built in one buffer and leave in batches: sp_writer_flush when the caller decides,
 * by itself when the buffer is full. A failed write is sticky and is returned by every later call. */
#ifndef SP_PERF_WRITER_H
#define SP_PERF_WRITER_H

#include "perf/record.h"
#include "base/buf.h"
#include "base/err.h"

struct sp_writer;

/* fd: where to; name: for messages. as_file: a perf.data file (seekable fd) instead of a stream. */
int sp_writer_new(struct sp_writer **out, int fd, const char *name, bool as_file,
		  struct sp_err *err);
/* Flush, complete a file's header (section table, attrs, features), free. */
int sp_writer_finish(struct sp_writer *w, struct sp_err *err);
void sp_writer_abandon(struct sp_writer *w); /* free without writing */

/* --- the head of a stream, in this order (stream.md) --- */
int sp_writer_begin(struct sp_writer *w, struct sp_err *err); /* 16-byte pipe header */
/* HEADER_ATTR with its one canonical id. */
int sp_writer_attr(struct sp_writer *w, const struct sp_attr *attr, const char *name, uint64_t id,
		   struct sp_err *err);
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

/* --- records --- */
/* A whole record as it stands (its size field must equal size). */
int sp_writer_raw(struct sp_writer *w, const void *record, size_t size, struct sp_err *err);
/* The sample_id that ends every kernel-type record of an attr with sample_id_all and sample_type
 * IDENTIFIER|TID|TIME|CPU (stream.md): TID, TIME, CPU (+ res), IDENTIFIER. */
struct sp_sample_id {
	int32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu;
	uint64_t id;
};
int sp_writer_comm(struct sp_writer *w, int32_t pid, int32_t tid, const char *comm, bool is_exec,
		   const struct sp_sample_id *sid, struct sp_err *err);
int sp_writer_mmap2(struct sp_writer *w, int32_t pid, int32_t tid, const struct sp_perf_mmap *m,
		    uint16_t misc, const struct sp_sample_id *sid, struct sp_err *err);
int sp_writer_mmap(struct sp_writer *w, int32_t pid, int32_t tid, const struct sp_perf_mmap *m,
		   uint16_t misc, const struct sp_sample_id *sid, struct sp_err *err);
int sp_writer_fork(struct sp_writer *w, int32_t pid, int32_t ppid, int32_t tid, int32_t ptid,
		   bool is_exit, const struct sp_sample_id *sid, struct sp_err *err);
int sp_writer_finished_round(struct sp_writer *w, struct sp_err *err);
int sp_writer_flush(struct sp_writer *w, struct sp_err *err);
/* Bytes handed to write() so far, and bytes waiting in the buffer. */
uint64_t sp_writer_written(const struct sp_writer *w);
size_t sp_writer_pending(const struct sp_writer *w);

#endif
