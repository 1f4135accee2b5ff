/* --cut and --only: which samples go into the spool. */
#ifndef SPOOL_FILTER_H
#define SPOOL_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/moment.h"
#include "stackpulse/spool.h"

struct spool_filter {
	struct sp_moment from, to;
	int32_t *pid, *tid; /* owned */
	size_t n_pid, cap_pid, n_tid, cap_tid;
	char **comm; /* owned, with their texts: patterns as the shell's */
	size_t n_comm, cap_comm;

	bool begun;
	uint64_t from_ns, to_ns; /* on the samples' clock; to_ns is not in it */
};

/* The options' arguments; usage errors end the program. */
void spool_filter_cut(struct spool_filter *f, const char *text);
void spool_filter_only(struct spool_filter *f, const char *text);
void spool_filter_deinit(struct spool_filter *f);

bool spool_filter_active(const struct spool_filter *f);
bool spool_filter_has_range(const struct spool_filter *f);
/* The range on the samples' clock, whose first one is at first_ns. */
void spool_filter_begin(struct spool_filter *f, const struct sp_spool_info *info,
			uint64_t first_ns);
bool spool_filter_wants(const struct spool_filter *f, uint64_t time_ns, int32_t pid, int32_t tid,
			const char *comm);
/* A loss; false before the start, too. */
bool spool_filter_wants_time(const struct spool_filter *f, uint64_t from_ns, uint64_t to_ns);
/* A marker or an embedded file of a process; pid 0 and -1 are the host's. */
bool spool_filter_wants_pid(const struct spool_filter *f, int32_t pid);
/* What remains of a whole recording's counters: those that do not depend on the samples chosen. */
struct sp_counters spool_filter_counters(const struct sp_counters *all);

#endif
