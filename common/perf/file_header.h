/* The frame of a perf.data file: header, attrs, features. Pure: works on bytes in memory. */
#ifndef SP_PERF_FILE_HEADER_H
#define SP_PERF_FILE_HEADER_H

#include "perf/events.h"

#define SP_FILE_HEADER_BYTES 104

struct sp_file_section {
	uint64_t offset, size;
};

struct sp_file_layout {
	bool is_pipe, swapped;
	uint64_t header_size, attr_size;
	struct sp_file_section attrs, data, event_types;
	uint8_t features[SP_N_FEATURES / 8];
};

/* A stretch of a file: bytes [offset, offset + size). */
struct sp_file_part {
	const uint8_t *data;
	uint64_t offset, size;
};

/* What begins here? 1 and *out: a stream or file of perf; 0: something else; SP_ERR_CORRUPT: perf's
 * magic with an impossible header. p has n bytes; 16 are enough for a stream, a file needs
 * SP_FILE_HEADER_BYTES (72 in its oldest form). */
int sp_file_header_parse(struct sp_file_layout *out, const uint8_t *p, size_t n,
			 struct sp_err *err);

/* Attrs with ids and the old table of event names. 0, or 1 when some ids lie outside of the part.
 */
int sp_file_attrs_parse(struct sp_events *e, const struct sp_file_layout *l,
			const struct sp_file_part *part, struct sp_err *err);
/* The feature table behind the data section and the sections. 1 when some lie outside. */
int sp_file_features_parse(struct sp_events *e, const struct sp_file_layout *l,
			   const struct sp_file_part *part);

/* What bytes that are no recording look like, and what to do: a sentence's end. */
const char *sp_file_looks_like(const uint8_t *p, size_t n);

#endif
