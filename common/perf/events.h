/* What a recording says about its events and itself: attrs, ids, names, strings, build-ids. Filled
 * from a file's header or from the records of a stream; limits keep hostile input small. */
#ifndef SP_PERF_EVENTS_H
#define SP_PERF_EVENTS_H

#include "base/build_id.h"
#include "base/table.h"
#include "perf/feature.h"
#include "perf/reader.h"

struct events_build_id {
	int32_t pid;
	uint16_t misc; /* cpumode */
	uint8_t len, id[20];
	uint32_t maj, min;
	uint64_t ino; /* 0 = of the path, whichever file it is */
};

struct sp_events {
	struct sp_event **v; /* owned; each stays where it is until deinit */
	size_t n, cap;
	struct sp_map64 by_id; /* id to index */
	size_t n_ids;
	int sample_id_at, trailer_id_at; /* of the first event; parse.h */

	struct sp_perf_info info;
	char *strings[5];                          /* owned: what info's strings point to */
	struct sp_buf raw_features[SP_N_FEATURES]; /* as they came, native order */
	size_t features_bytes;
	uint64_t n_name_looks;
	uint64_t comp_mmap_len;

	struct sp_intern paths; /* of build_ids, same index: path, NUL, then the file if it is known */
	struct events_build_id *build_ids; /* owned */
	size_t cap_build_ids;

	struct sp_intern contents;                        /* what has a content hash, as paths */
	uint8_t (*content_hashes)[SP_CONTENT_HASH_BYTES]; /* owned; same index */
	size_t cap_content_hashes;
};

void sp_events_init(struct sp_events *e);
void sp_events_deinit(struct sp_events *e);

/* Add one event; ids are n_ids words, swapped when swap. attr: SP_ATTR_BYTES, native. */
int sp_events_add(struct sp_events *e, const uint8_t *attr, const uint8_t *ids, size_t n_ids,
		  bool swap, struct sp_err *err);
/* The event that a record belongs to (NULL when there is none). */
const struct sp_event *sp_events_of(const struct sp_events *e, const uint8_t *raw, size_t size);
/* The event of an id, or NULL. */
struct sp_event *sp_events_find(const struct sp_events *e, uint64_t id);

/* Take in one feature (native order). Contents that cannot be read are ignored: 0, or 1. */
int sp_events_feature(struct sp_events *e, unsigned feature, const uint8_t *data, size_t size);
/* One HEADER_BUILD_ID record (native order). */
void sp_events_build_id(struct sp_events *e, const uint8_t *rec, size_t size);
/* Kernels before 2.6.37 wrote no pid: the name begins four bytes early, and the kernel's shows it
 * ("[ker" is where the pid would be: perf_header__read_build_ids_abi_quirk). Either byte order. */
bool sp_build_id_lacks_pid(const uint8_t *rec, size_t size);
/* Of that file, else of that path; or NULL. */
const struct events_build_id *sp_events_find_build_id(const struct sp_events *e, const char *path,
						      uint32_t maj, uint32_t min, uint64_t ino);
/* Our record of a file's content (ext.h); what is too much is left out. Of that file, or NULL. */
struct sp_ext_content;
void sp_events_content(struct sp_events *e, const struct sp_ext_content *c);
const uint8_t *sp_events_find_content(const struct sp_events *e, const char *path, uint32_t maj,
				      uint32_t min, uint64_t ino);
/* A HEADER_* record of a stream (native order); anything else is ignored. */
int sp_events_record(struct sp_events *e, const uint8_t *rec, size_t size, struct sp_err *err);

#endif
