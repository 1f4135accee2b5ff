/* Both ends of an output stream: the head (common/perf/head.h) with our start record, and the
 * counters with our end record. */
#ifndef SP_UNWIND_ENDS_H
#define SP_UNWIND_ENDS_H

#include "perf/ext.h"
#include "perf/reader.h"
#include "perf/writer.h"

struct un_ends {
	struct sp_writer *w;       /* borrowed */
	const struct sp_reader *r; /* borrowed */
	bool started;              /* the start record was written */
	bool site;                 /* our chains hold looked-up addresses: chain=site */
	struct sp_buf end;         /* the input's end record, kept for ours */
	struct sp_buf scratch;
};

/* Write what comes before all records. A file's head is written whole; a stream's comes as records.
 */
int un_ends_begin(struct un_ends *e, struct sp_writer *w, const struct sp_reader *r,
		  struct sp_err *err);
void un_ends_deinit(struct un_ends *e);

/* Whether a record describes events or the recording and goes to un_ends_head. Such records may
 * come before the start record. */
bool un_ends_takes(const struct sp_record *rec);
/* Pass such a record on, changed as unwinding demands. */
int un_ends_head(struct un_ends *e, const struct sp_record *rec, struct sp_err *err);

/* The start record: once, before the first record that is not of the head. from: the payload of the
 * input's own start record, or NULL: then one is made from the input's facts. */
int un_ends_start(struct un_ends *e, const uint8_t *from, size_t size, struct sp_err *err);
/* Keep the input's end record. */
void un_ends_keep(struct un_ends *e, const uint8_t *payload, size_t size);
/* Counters and end record. state and complaint: how the input ended, for the stages behind us. */
int un_ends_finish(struct un_ends *e, const struct sp_counters *c, enum sp_input_state state,
		   const char *complaint, struct sp_err *err);

#endif
