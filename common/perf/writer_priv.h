/* Shared by writer.c (records, streams) and writer_file.c (the frame of a perf.data file). */
#ifndef SP_PERF_WRITER_PRIV_H
#define SP_PERF_WRITER_PRIV_H

#include "perf/attr.h"
#include "perf/feature.h"
#include "perf/writer.h"

struct writer_attr {
	uint8_t bytes[SP_ATTR_BYTES];
	char *name;    /* owned; NULL: nobody said */
	uint64_t *ids; /* owned */
	size_t n_ids;
};

struct sp_writer {
	int fd;
	char *name; /* owned */
	bool as_file;
	struct sp_err sticky; /* code 0: no write has failed */
	struct sp_buf buf;
	uint64_t written, next_object;
	struct writer_attr *attrs; /* owned */
	size_t n_attrs, cap_attrs;

	/* files */
	bool head_out;     /* header and attrs stand in the file */
	uint64_t data_at;  /* offset of the data section */
	uint64_t attrs_at; /* and of the attrs that were written with the header */
	size_t n_attrs_out;
	struct sp_buf features[SP_N_FEATURES]; /* contents, by id */
	struct sp_buf build_ids;
};

/* The header before the first data byte; the rest at the end. */
int sp_writer_file_head(struct sp_writer *w, struct sp_err *err);
int sp_writer_file_end(struct sp_writer *w, struct sp_err *err);
/* A HEADER_* record of a stream: 1 when the file's header took it, 0 when it belongs to the data.
 */
int sp_writer_file_absorb(struct sp_writer *w, const uint8_t *rec, size_t size, struct sp_err *err);

int sp_writer_add_attr(struct sp_writer *w, const uint8_t *attr, const char *name,
		       const uint64_t *ids, size_t n_ids, struct sp_err *err);
void sp_writer_event_desc(const struct sp_writer *w, struct sp_buf *out, bool with_ids);

#endif
