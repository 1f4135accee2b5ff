/* stackpulse/spool.h - reading a spool (stackpulse-spool.5).
 *
 * A spool is a self-contained profile: modules, frames, stacks, threads, samples, losses,
 * embedded files and counters, in checksummed blocks. Any prefix of whole blocks is a profile.
 *
 * Opening loads the dictionaries (memory by distinct data, not by samples); samples are then
 * streamed from the file in time order. Errors are values: functions return >= 0, or a negative
 * SP_ERR_* with struct sp_err filled. Nothing prints, exits or keeps global state. A reader serves
 * one thread at a time. */
#ifndef STACKPULSE_SPOOL_H
#define STACKPULSE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stackpulse/counters.h"
#include "stackpulse/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sp_spool;

#define SP_NONE UINT32_MAX

enum sp_spool_state {
	SP_SPOOL_WHOLE,
	SP_SPOOL_INCOMPLETE, /* no end record: a prefix, or still being written */
	SP_SPOOL_DAMAGED,    /* a block was bad; what could be resolved was kept */
};

enum sp_frame_mode {
	SP_FRAME_USER,
	SP_FRAME_KERNEL,
	SP_FRAME_TRUNCATED, /* marker: the stack goes on towards its root, unseen */
};

/* A mapping of a file into a process, or a kernel module. Ids are dense from 0. */
struct sp_spool_module {
	uint32_t id;
	int32_t pid;               /* -1 for the kernel */
	uint64_t start, end;       /* AVMA */
	uint64_t file_offset;      /* of start */
	uint64_t inode;            /* 0 = unknown */
	uint64_t inode_generation; /* 0 = unknown */
	uint32_t dev_major, dev_minor;
	const uint8_t *build_id;   /* build_id_len bytes, or NULL */
	uint8_t build_id_len;
	const char *path;          /* any bytes but NUL; as recorded */
	uint32_t file;             /* equal files of different processes have the same number */
	bool is_kernel;
	bool is_anon; /* code without a file: JIT, heap, stack … */
	uint32_t origin;
};

/* One frame of a stack. frame_id is a dense number for caches: equal (file, offset) or (kernel
 * address) or (pid-less absolute address) gives the same. */
struct sp_spool_frame {
	uint32_t frame_id;
	uint32_t module; /* id, or SP_NONE */
	enum sp_frame_mode mode;
	uint64_t rel_ip; /* offset in the module's file (abs_ip when module is SP_NONE) */
	uint64_t abs_ip; /* AVMA after the call-site rule: look it up as it is */
};

struct sp_spool_thread {
	uint32_t id;
	int32_t pid, tid;
	uint32_t origin; /* merged recordings: whose pid this is; see sp_spool_origin() */
};

struct sp_spool_event {
	const char *name;    /* "cpu-clock" … */
	bool weight_is_time; /* weights are ns */
};

struct sp_spool_sample {
	uint64_t time_ns;
	uint32_t thread; /* id of sp_spool_thread() */
	uint32_t event;  /* index of sp_spool_event() */
	uint32_t stack;  /* dense id, 0 the empty one; another process's same one may have it */
	uint32_t cpu;    /* UINT32_MAX = unknown */
	uint32_t maps;   /* what its process had mapped: stack, maps and thread name the frames */
	uint32_t wait;   /* of a time off the CPU: for sp_spool_wait(); 0 = nothing more is known */
	uint64_t weight;
	const char *comm; /* the thread's name at this time; valid until the next call */
};

/* What is known of a time off the CPU (a sample of the event offcpu-time, whose weight is its
 * length) besides. Recorded by sp-capture --off-cpu; other recorders tell the length alone. */
struct sp_spool_wait {
	uint32_t state; /* the kernel's task state bits (include/linux/sched.h): 0 could have run, 1
			 * asleep, 2 uninterruptible …; UINT32_MAX = not known */
	int32_t waker_pid, waker_tid; /* who woke it; 0: an interrupt, or not known */
	const char *waker_comm;       /* that thread's name then, "" = not known */
};

struct sp_spool_info {
	uint32_t version;
	const char *hostname, *osrelease, *arch, *cmdline, *boot_id, *clock; /* or "" */
	uint64_t start_timestamp_us;  /* wall clock; 0 = unknown */
	uint64_t sample_interval_us;  /* 0 = unknown */
	uint64_t clock_ns, wall_ns; /* the same instant on the samples' clock and the wall clock */
	uint64_t time_resolution_ns;
	uint64_t first_ns, last_ns;   /* of the samples */
	uint64_t n_samples;
	uint64_t n_lost_samples; /* of a damaged spool: those not given, as far as known */
};

struct sp_spool_loss {
	uint64_t from_ns, to_ns, count;
	uint32_t cpu;
	uint32_t kind; /* 0 lost records, 1 throttled */
};

struct sp_spool_exec { /* an exec, or another marker of a process */
	uint64_t time_ns;
	int32_t pid;
	uint32_t kind; /* 0 exec, 1 python, 2 perf map, 3 jitdump, 4 control group */
	bool on;
	const char *cmdline; /* exec: NUL-separated words, may be NULL; control group: its path, and
			      * the container's runtime, id, name, each ended by NUL, may be "" */
	uint32_t cmdline_len;
	uint32_t origin;
};

struct sp_spool_object { /* an embedded file, perf map, kallsyms … (perf/ext.h's kinds) */
	uint32_t kind;
	int32_t pid;
	uint64_t time_ns, start, end, inode;
	uint32_t dev_major, dev_minor;
	const uint8_t *build_id;
	uint8_t build_id_len;
	const char *path;
	const uint8_t *data; /* owned by the reader, loaded at open */
	size_t size;
	uint32_t origin;
};

/* A host and boot that recordings were merged from. Equal pids of different origins are different
 * processes. Origin 0 is what sp_spool_info() describes. */
struct sp_spool_origin {
	const char *hostname, *boot_id;
};

/* Open a file; "-" reads standard input to its end. SP_ERR_CORRUPT: not a spool, or nothing of it
 * is readable. A damaged or incomplete spool opens; see sp_spool_state(). */
int sp_spool_open(struct sp_spool **out, const char *path, struct sp_err *err);
void sp_spool_close(struct sp_spool *s);

enum sp_spool_state sp_spool_state(const struct sp_spool *s);
bool sp_spool_recovered_from_truncated_tail(const struct sp_spool *s);
const char *sp_spool_complaint(const struct sp_spool *s); /* "" when whole */

const struct sp_spool_info *sp_spool_info(const struct sp_spool *s);
const struct sp_counters *sp_spool_counters(const struct sp_spool *s);

size_t sp_spool_n_origins(const struct sp_spool *s); /* at least 1 */
struct sp_spool_origin sp_spool_origin(const struct sp_spool *s, uint32_t origin);
size_t sp_spool_n_modules(const struct sp_spool *s);
const struct sp_spool_module *sp_spool_module(const struct sp_spool *s, uint32_t id);
/* What identifies the file of a module that has no build-id: 20 bytes, a hash of its content; NULL:
 * not recorded. Valid as the module is. */
const uint8_t *sp_spool_content_hash(const struct sp_spool *s, uint32_t id);
size_t sp_spool_n_threads(const struct sp_spool *s);
const struct sp_spool_thread *sp_spool_thread(const struct sp_spool *s, uint32_t id);
size_t sp_spool_n_events(const struct sp_spool *s);
const struct sp_spool_event *sp_spool_event(const struct sp_spool *s, uint32_t index);
size_t sp_spool_n_frames(const struct sp_spool *s); /* frame ids are below this */
size_t sp_spool_n_stacks(const struct sp_spool *s); /* stack ids are below this */
size_t sp_spool_n_waits(const struct sp_spool *s);  /* wait ids are below this; equal waits of one
						     * recording have one id */
struct sp_spool_wait sp_spool_wait(const struct sp_spool *s, uint32_t id);
/* A state as a word, those of /proc/PID/status: "runnable" (it could have run), "sleeping", "disk
 * sleep" (uninterruptible), "stopped", "tracing stop", "parked", "idle", or "unknown". Static. */
const char *sp_spool_wait_state(uint32_t state);
size_t sp_spool_n_losses(const struct sp_spool *s);
const struct sp_spool_loss *sp_spool_loss(const struct sp_spool *s, size_t index);
size_t sp_spool_n_execs(const struct sp_spool *s); /* the crate's process_execs */
const struct sp_spool_exec *sp_spool_exec(const struct sp_spool *s, size_t index);
size_t sp_spool_n_objects(const struct sp_spool *s);
const struct sp_spool_object *sp_spool_object(const struct sp_spool *s, size_t index);

/* Distinct kernel addresses of all frames, sorted, for sparse kallsyms loading. Returns the
 * number; *out is owned by the reader. */
size_t sp_spool_kernel_frame_addresses(struct sp_spool *s, const uint64_t **out);

/* Samples in time order, streamed: 1 and *out, 0 at the end. rewind starts again. A file that has
 * shrunk or changed since is an error, not a signal: it is read, not mapped. */
int sp_spool_next(struct sp_spool *s, struct sp_spool_sample *out, struct sp_err *err);
void sp_spool_rewind(struct sp_spool *s);

/* The frames of the sample just returned by sp_spool_next, leaf first: *out is owned by the reader
 * and valid until the next call; returns the number (0 for an empty stack). */
size_t sp_spool_frames(struct sp_spool *s, const struct sp_spool_frame **out);

/* The frames of any sample that was given before, as sp_spool_frames would: equal stack and maps
 * give equal frames within an origin. 0 for a sample of another spool that can't be one of this. */
size_t sp_spool_sample_frames(struct sp_spool *s, const struct sp_spool_sample *sample,
			      const struct sp_spool_frame **out);

/* Live tail: take in the whole blocks that were appended since the spool was opened or refreshed.
 * 1 when there were some, 0 when not; sp_spool_next, which had come to its end, then goes on with
 * the new samples. All ids stay; what pointed into the reader (modules, strings, objects, info …)
 * does not, after 1 or an error. While the end record has not come the state is INCOMPLETE, and
 * a block that is half there yet is waited for. SP_ERR_CORRUPT when the file has become shorter
 * than what was read of it. Cost: the new blocks, and the number of definitions. New samples are in
 * time order among themselves; those of a damaged spool are counted as their blocks claim.
 * sp-spool writes at least once a second; it gives a new file its name with the first data. */
int sp_spool_refresh(struct sp_spool *s, struct sp_err *err);

/* Microseconds on the recording's clock: start_timestamp_us + (time - first sample's time)/1000. */
uint64_t sp_spool_timestamp_us(const struct sp_spool *s, uint64_t time_ns);

#ifdef __cplusplus
}
#endif

#endif
