/* Record bodies, with the event already found: what reader.c and sp_record_parse share. */
#ifndef SP_PERF_PARSE_H
#define SP_PERF_PARSE_H

#include "base/table.h"
#include "perf/attr.h"
#include "perf/reader.h"

/* Everything about one record (native order): false when its body is malformed. event may be NULL
 * (a stream without attrs). */
bool sp_record_decode(struct sp_record *rec, const uint8_t *raw, size_t size,
		      const struct sp_event *event);

/* Whose process a sample is of, when that and its time stand where its event says: false for one
 * that is too short for them, lacks one, or has them elsewhere. */
bool sp_sample_pid(const uint8_t *raw, size_t size, const struct sp_event *event, int32_t *pid);

/* Where a sample, of which n bytes are there, says how long its stack is: the offset of that word,
 * or 0. */
size_t sp_sample_stack_at(const uint8_t *raw, size_t n, const struct sp_event *event);

/* The time alone, for ordering: 0 when absent or out of reach. */
uint64_t sp_record_time(const uint8_t *raw, size_t size, const struct sp_event *event);

/* Bytes of the sample_id that ends the records of an attr; 0 without sample_id_all. */
size_t sp_sample_id_size(const struct sp_attr *a);

/* Where the id of its event stands in a sample and, counted from the end, in other records of a
 * recording with this attr: offset in bytes, or -1. All attrs of a recording agree on it. */
int sp_sample_id_offset(const struct sp_attr *a);
int sp_trailer_id_offset(const struct sp_attr *a);

/* Linux 3.12 to 3.15 (and RHEL 7) wrote MMAP2 without protection and flags: p, n bytes behind the
 * inode's generation, is the path then (f972eb63b100 of Linux 3.16 put them before it). Of the
 * protections only read, write and execute are ever written, and no path begins with such a byte:
 * the first byte tells, in either byte order. */
bool sp_mmap2_has_prot(const uint8_t *p, size_t n);

/* perf since 6.15 records off-CPU time as bpf-output whose raw data is the sample: u32 pid, tid,
 * u64 period, chain, u64 cgroup (tools/perf/util/evsel.c). stream.md: read, never written. */
bool sp_event_is_offcpu_raw(const struct sp_event *event);

#endif
