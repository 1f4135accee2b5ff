/* The writers, one per format and file. Each gets a view that is loaded, named and shaped (unless
 * its entry in formats.c says no_names) and writes all of it. */
#ifndef SYM_FORMATS_H
#define SYM_FORMATS_H

#include "view.h"

int format_top(struct view *v, struct out *o, struct sp_err *err);
int format_tree(struct view *v, struct out *o, struct sp_err *err);
int format_text(struct view *v, struct out *o, struct sp_err *err);
int format_raw(struct view *v, struct out *o, struct sp_err *err);
int format_folded(struct view *v, struct out *o, struct sp_err *err);
int format_flamegraph(struct view *v, struct out *o, struct sp_err *err);
int format_json(struct view *v, struct out *o, struct sp_err *err);
int format_pprof(struct view *v, struct out *o, struct sp_err *err);
int format_firefox(struct view *v, struct out *o, struct sp_err *err);
int format_speedscope(struct view *v, struct out *o, struct sp_err *err);
int format_callgrind(struct view *v, struct out *o, struct sp_err *err);
int format_diff(struct view *v, struct out *o, struct sp_err *err);
int format_lines(struct view *v, struct out *o, struct sp_err *err);
int format_jsonl(struct view *v, struct out *o, struct sp_err *err);
int format_otlp(struct view *v, struct out *o, struct sp_err *err);
int format_stats(struct view *v, struct out *o, struct sp_err *err);
int format_stats_json(struct view *v, struct out *o, struct sp_err *err);

#endif
