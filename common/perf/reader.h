/* Reading perf streams and perf.data files: attributes, features, records in time order.
 *
 * One reader serves a pipe (perf's pipe format, ours included) and a file (mapped; both layouts of
 * perf.data). Compressed records are expanded, other-endian ones swapped, AUX data skipped by its
 * true length. Not thread-safe but for sp_reader_help; records may be handed to other threads while
 * their chunk is held.
 */
#ifndef SP_PERF_READER_H
#define SP_PERF_READER_H

#include "perf/record.h"
#include "base/counters.h"
#include "base/err.h"

struct sp_reader;

/* Memory that records point into; a mapped file has one that lives as long as the reader. */
struct sp_chunk;
void sp_chunk_hold(struct sp_chunk *c);    /* any thread */
void sp_chunk_release(struct sp_chunk *c); /* any thread; frees or recycles with the last one */

/* What a stream or file says about itself (absent strings are NULL, numbers 0). */
struct sp_perf_info {
	const char *hostname, *osrelease, *version, *arch, *cmdline; /* cmdline: blank-separated */
	uint32_t n_cpus;
	int32_t clockid;            /* of the first attr, -1 when it uses none */
	uint64_t clock_ns, wall_ns; /* CLOCK_DATA: the same instant on both clocks */
	bool is_pipe, is_ours;      /* is_ours: begun with our start record */
	bool chain_is_site;         /* chains hold looked-up addresses (stream.md) */
	bool swapped;
};

enum sp_reader_flag {
	SP_READER_UNORDERED = 1, /* give records as they stand in the input, do not order them */
	SP_READER_SHARE = 2,     /* of a pipe: offer its writer memory for them (share.h) */
	SP_READER_TRIM = 4, /* of a file: leave the far side of large stacks where it is (trim.h);
			     * in raw and size such a sample is shorter than in the file */
	SP_READER_LATE = 8, /* give samples undecoded: sp_late_decode */
	SP_READER_SPLIT = 16, /* other threads decode them: leave as much as can be to those */
};

/* Open an input: path "-" or NULL reads fd 0; a folder is that of perf record --threads. Parses the
 * header, all attrs and features of a file; of a pipe they come as records. SP_ERR_CORRUPT when it
 * is no perf stream at all (the message says what it looks like and what to run). */
int sp_reader_open(struct sp_reader **out, const char *path, unsigned flags, struct sp_err *err);
/* The same over bytes in memory, which must outlive the reader. */
int sp_reader_open_bytes(struct sp_reader **out, const void *data, size_t size, unsigned flags,
			 struct sp_err *err);
void sp_reader_close(struct sp_reader *r);

/* The next record, in time order within rounds (stream.md, Order): 1 and *rec; 0 at the end; an
 * error when reading fails (after all that was read has been given). A record with a malformed
 * body is given with rec->malformed. rec and all it points to are valid until the next call; hold
 * sp_reader_chunk() to keep the bytes longer. Perf's own records (HEADER_ATTR, features, ours of
 * type 65, …) are given too, at their place: a filter must pass them on or replace them. */
int sp_reader_next(struct sp_reader *r, struct sp_record *rec, struct sp_err *err);
struct sp_chunk *sp_reader_chunk(struct sp_reader *r); /* of the record just returned */

/* With SP_READER_LATE all samples that are not known to be malformed are given with is_late: to
 * order them and to find their processes takes one cache line of each, and what else they say is
 * read by whom it is for, in any thread that holds their chunk. False: it is malformed after all,
 * of which the reader is to be told (in its own thread, before its state is asked for; of several
 * samples the first is enough). */
bool sp_late_decode(struct sp_record *rec, const struct sp_late *late);
void sp_reader_reject(struct sp_reader *r, const struct sp_late *late);

/* How the input ended, after sp_reader_next gave 0 or an error. */
enum sp_input_state {
	SP_INPUT_WHOLE,
	SP_INPUT_CUT,     /* ended inside a record, or before our end record, or size 0 in a file */
	SP_INPUT_DAMAGED, /* a record could not be parsed or the framing was lost */
};
enum sp_input_state sp_reader_state(const struct sp_reader *r);
/* A sentence about it with the offset, "" when whole. */
const char *sp_reader_complaint(const struct sp_reader *r);

const struct sp_perf_info *sp_reader_info(const struct sp_reader *r);
size_t sp_reader_n_events(const struct sp_reader *r);
const struct sp_event *sp_reader_event(const struct sp_reader *r, size_t index);
/* The event that has this id, or NULL. */
const struct sp_event *sp_reader_event_of(const struct sp_reader *r, uint64_t id);
/* Build-ids from HEADER_BUILD_ID records and the file's table: of a file, by its device and inode
 * where the record has them (ino 0: not known), else of its path. */
const uint8_t *sp_reader_build_id(const struct sp_reader *r, const char *path, uint32_t maj,
				  uint32_t min, uint64_t ino, uint8_t *len);
/* The hash of the content of a file without build-id, SP_CONTENT_HASH_BYTES, as our own record told
 * it (ext.h); NULL: not told. Until the next record. */
const uint8_t *sp_reader_content_hash(const struct sp_reader *r, const char *path, uint32_t maj,
				      uint32_t min, uint64_t ino);
/* A feature's content as it came, in native order, or NULL (feature.h has numbers and shapes). Of a
 * stream: what has come so far. */
const uint8_t *sp_reader_feature(const struct sp_reader *r, unsigned feature, size_t *size);
/* Every build-id that the input told, for a filter that passes a file's table on. False when i is
 * beyond the last. */
struct sp_build_id_record; /* writer.h; the path is the reader's until the next record */
bool sp_reader_build_id_at(const struct sp_reader *r, size_t i, struct sp_build_id_record *out);
/* How often the next record was waited for: of a live stream, when all that had come was read. A
 * file is never waited for. */
uint64_t sp_reader_n_waits(const struct sp_reader *r);
/* Any thread, until the reader is closed: bring some of what a mapped file's reading needs next
 * into memory, which is most of a warm file's cost. False: there is nothing to do at the moment. */
bool sp_reader_help(struct sp_reader *r);
/* No record is looked at any more: from now on to help is to let go of the file's pages, which
 * closing the reader would do in one thread. */
void sp_reader_done(struct sp_reader *r);
/* Whether there is so much of it that a thread is worth its start. */
bool sp_reader_wants_help(const struct sp_reader *r);
/* Tell threads that sleep when there is again: called in the reader's thread, now and then. */
void sp_reader_on_help(struct sp_reader *r, void (*wake)(void *ctx), void *ctx);
/* Counters that the reader itself keeps, of the records that it gave so far: out_of_order,
 * skipped_records (unknown kinds, which are given all the same, AUX data, which is not, and tracing
 * data, whose record is given while its content is the feature of that name), lost_events (sum of
 * LOST), lost_samples (sum of LOST_SAMPLES), throttled. In a stream of ours the loss records
 * (ext.h) and counters of the stages say more than LOST does. */
const struct sp_counters *sp_reader_counters(const struct sp_reader *r);

/* Parse one record body with a given event list; the reader's core, pure, for the fuzzers and for
 * sp-capture's ring records. Returns 0, or SP_ERR_CORRUPT with rec->malformed set. */
int sp_record_parse(struct sp_record *rec, const uint8_t *raw, size_t size,
		    const struct sp_event *const *events, size_t n_events, struct sp_err *err);

#endif
