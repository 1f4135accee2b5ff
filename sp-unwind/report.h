/* What sp-unwind says at its end: one line, details with -v, one JSON object with --stats=json. */
#ifndef SP_UNWIND_REPORT_H
#define SP_UNWIND_REPORT_H

#include "base/buf.h"
#include "pipeline.h"

/* "51204 samples, 98.7% complete, 0.9% truncated (stack bytes), …" */
void un_report_line(struct sp_buf *b, const struct un_result *r);
/* The next step when something is off, or NULL. */
const char *un_report_advice(const struct un_result *r);
/* Lines "COUNT REASON in PATH", most frequent first; at most max. Each ends in a NUL; returns their
 * number. */
size_t un_report_stops(struct sp_buf *b, const struct un_result *r, size_t max);
void un_report_json(struct sp_buf *b, const struct un_result *r, uint64_t cpu_us);

#endif
