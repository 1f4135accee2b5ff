/* stackpulse/counters.h - the counters that travel with a profile, under the names that the Rust
 * crate gave them and our own. One list: streams, spools and statistics are made from it. A counter
 * that a producer did not know is absent, not zero. */
#ifndef STACKPULSE_COUNTERS_H
#define STACKPULSE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SP_COUNTERS(X)                                                                             \
	X(sample_events, "samples seen, before any rejection")                                     \
	X(samples, "samples kept")                                                                 \
	X(lost_events, "records that the kernel could not write")                                  \
	X(lost_samples, "LOST_SAMPLES records' sum; repeats lost_events")                          \
	X(lifecycle_gaps, "times that a loss made the state be read again")                        \
	X(throttled, "throttle periods")                                                           \
	X(out_of_order, "records later than their round allows")                                   \
	X(kernel_enabled, "1 when kernel frames were recorded")                                    \
	X(minimum_ring_buffer_bytes, "smallest ring's data bytes")                                 \
	X(maximum_ring_buffer_bytes, "largest ring's data bytes")                                  \
	X(missing_pid_samples, "samples without a usable pid")                                     \
	X(missing_tid_samples, "samples without a usable tid")                                     \
	X(idle_tid_samples, "samples of tid 0")                                                    \
	X(missing_timestamp_samples, "samples without a time")                                     \
	X(empty_stack_samples, "samples without any address")                                      \
	X(rejected_samples, "sample records that could not be parsed")                             \
	X(excluded_kernel_samples, "kernel-mode samples left out")                                 \
	X(not_unwound_samples, "samples whose stack bytes nobody unwound")                         \
	X(truncated_frame_markers, "samples that stopped before their root")                       \
	X(ignored_user_callchain_frames, "user addresses of the kernel's chains not used")         \
	X(zero_chain_entries, "zeros in the kernel's chains, which mean nothing")                  \
	X(spliced_samples, "samples continued by the kernel's frame-pointer chain")                \
	X(skipped_records, "records of unknown kinds")                                             \
	X(native_register_capture, "stops: registers incomplete")                                  \
	X(native_stack_read, "stops: no stack bytes")                                              \
	X(native_stack_truncated, "stops: stack bytes exhausted")                                  \
	X(did_not_advance, "stops: loop")                                                          \
	X(return_address_null, "stops: return address 0 where none is due")                        \
	X(moved_backwards, "stops: CFA below sp")                                                  \
	X(integer_overflow, "stops: address arithmetic overflowed")                                \
	X(user_registers_missing, "stops: no user registers, or a 32-bit task")                    \
	X(no_cfi_stops, "stops: no CFI and no frame pointer")                                      \
	X(no_module_stops, "stops: address in no module")                                          \
	X(bad_cfa_stops, "stops: CFA or return address not recoverable")                           \
	X(depth_stops, "stops: depth limit")                                                       \
	X(frame_pointer_frames, "frames found by the frame pointer")                               \
	X(scanned_frames, "frames found by the return address at sp")                              \
	X(frames, "user frames unwound")                                                           \
	X(rule_hits, "unwind rules found in the cache")                                            \
	X(rule_misses, "unwind rules made from an FDE")                                            \
	X(reused_frames, "frames taken over from the thread's last walk")

enum sp_counter {
#define X(name, text) SP_C_##name,
	SP_COUNTERS(X)
#undef X
		SP_N_COUNTERS
};

struct sp_counters {
	uint64_t v[SP_N_COUNTERS];
	uint64_t known; /* bit n: v[n] was set by somebody */
};


static inline bool sp_counter_known(const struct sp_counters *c, enum sp_counter which)
{
	return c->known >> which & 1;
}

const char *sp_counter_name(enum sp_counter which);
const char *sp_counter_text(enum sp_counter which);
/* The counter of that name, or SP_N_COUNTERS. */
enum sp_counter sp_counter_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
