/* Contents of perf.data's feature sections, the same bytes as in HEADER_FEATURE records. Sources:
 * tools/perf/Documentation/perf.data-file-format.txt, tools/perf/util/header.h. */
#ifndef SP_PERF_FEATURE_H
#define SP_PERF_FEATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"

enum sp_feature {
	SP_FEATURE_TRACING_DATA = 1,
	SP_FEATURE_BUILD_ID = 2,
	SP_FEATURE_HOSTNAME = 3,
	SP_FEATURE_OSRELEASE = 4,
	SP_FEATURE_VERSION = 5,
	SP_FEATURE_ARCH = 6,
	SP_FEATURE_NRCPUS = 7,
	SP_FEATURE_CPUDESC = 8,
	SP_FEATURE_CPUID = 9,
	SP_FEATURE_TOTAL_MEM = 10,
	SP_FEATURE_CMDLINE = 11,
	SP_FEATURE_EVENT_DESC = 12,
	SP_FEATURE_CPU_TOPOLOGY = 13,
	SP_FEATURE_NUMA_TOPOLOGY = 14,
	SP_FEATURE_BRANCH_STACK = 15,
	SP_FEATURE_PMU_MAPPINGS = 16,
	SP_FEATURE_GROUP_DESC = 17,
	SP_FEATURE_AUXTRACE = 18,
	SP_FEATURE_STAT = 19,
	SP_FEATURE_CACHE = 20,
	SP_FEATURE_SAMPLE_TIME = 21,
	SP_FEATURE_MEM_TOPOLOGY = 22,
	SP_FEATURE_CLOCKID = 23,
	SP_FEATURE_DIR_FORMAT = 24,
	SP_FEATURE_BPF_PROG_INFO = 25,
	SP_FEATURE_BPF_BTF = 26,
	SP_FEATURE_COMPRESSED = 27,
	SP_FEATURE_CPU_PMU_CAPS = 28,
	SP_FEATURE_CLOCK_DATA = 29,
	SP_FEATURE_HYBRID_TOPOLOGY = 30,
	SP_FEATURE_PMU_CAPS = 31,
	SP_FEATURE_LAST = 32, /* perf 6.1's end mark in a stream */
	SP_FEATURE_SIMPLEPERF_META = 129, /* Android's simpleperf: strings, each key with a value */
	SP_N_FEATURES = 256,
};

/* perf's string: u32 length of what follows, the bytes, at least one NUL, padded to 64. */
void sp_feature_put_string(struct sp_buf *out, const char *s);
/* Such a string in place: NUL-terminated inside, or NULL (and c->bad). */
const char *sp_feature_string(struct sp_cursor *c);

/* EVENT_DESC: called for each event with its attr bytes (native order, SP_ATTR_BYTES), its name and
 * its ids, to be read with the swap that was given. Returns the number of events. */
typedef int sp_event_desc_fn(void *arg, const uint8_t *attr, const char *name, const uint8_t *ids,
			     size_t n_ids, struct sp_err *err);
int sp_event_desc_parse(const void *data, size_t size, bool swap, sp_event_desc_fn *fn, void *arg,
			struct sp_err *err);

/* A feature's content of the other byte order into native order: 1, or 0 when its shape is not
 * known (then out is untouched). */
int sp_feature_swap(struct sp_buf *out, unsigned feature, const void *data, size_t size);

#endif
