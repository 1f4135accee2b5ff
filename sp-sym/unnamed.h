/* How much of a profile has names, and which modules have none: with the cause, and what cures it.
 */
#ifndef SYM_UNNAMED_H
#define SYM_UNNAMED_H

#include "view.h"

struct unnamed_module {
	const char *path; /* of the spool */
	uint32_t module;  /* the spool's id of one of its mappings, or SP_NONE: code in no module */
	bool is_anon, is_kernel;
	uint64_t samples; /* with a nameless frame of this module */
	uint64_t leaf;    /* whose leaf is one */
};

struct unnamed {
	struct unnamed_module *v; /* owned; the largest share first */
	size_t n, cap;
	uint64_t frames, named; /* frames of all samples, and those with a name */
};

int unnamed_init(struct unnamed *u, const struct view *v, struct sp_err *err);
void unnamed_deinit(struct unnamed *u);

/* Share of the frames that have names, in percent (100 without frames). */
double unnamed_named_percent(const struct unnamed *u);
const char *unnamed_cause(const struct view *v, const struct unnamed_module *m);
const char *unnamed_cure(const struct view *v, const struct unnamed_module *m);

#endif
