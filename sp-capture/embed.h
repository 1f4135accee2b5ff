/* Files that would be gone, or of others, when the profile is looked at: into the stream, as
 * objects whose fragments go between the samples.
 *
 * auto: the vdso, memfd, deleted and replaced files, files of other mount namespaces; perf maps
 * and jitdumps at a process's exit and at the end. all: every file with code that is mapped. Files
 * are read through /proc/PID (map_files, exe, root), checked by device and inode; a perf map must
 * be a regular file of the process's user, not older than the process, reached by no link. */
#ifndef CAP_EMBED_H
#define CAP_EMBED_H

#include "base/file.h"
#include "emit.h"
#include "options.h"

#define CAP_EMBED_ONE (UINT64_C(64) << 20)      /* bytes of one object */
#define CAP_HASH_ONE_NS UINT64_C(250000000)     /* to read a file for the hash of its content */
#define CAP_HASH_ALL_NS UINT64_C(2000000000) /* for all of a recording: then it is told of none */
#define CAP_EMBED_ALL_MAX (UINT64_C(512) << 20) /* of all objects of a recording */

struct cap_object {
	struct sp_buf head;     /* owned: the payload's beginning */
	struct sp_map_file map; /* owned: the rest, when it is a file's bytes */
	struct sp_buf bytes;    /* owned: or these */
	uint64_t number, at;
	int kind; /* enum sp_ext_kind */
};

/* What is kept of a process that runs generated code, to find its perf map after its exit. */
struct cap_jit {
	int32_t pid, ns_pid;
	int root_fd; /* owned; -1 = our own root */
	uint32_t uid;
	bool map_seen;
	struct sp_buf dump; /* owned: path of its jitdump, "" = none */
};

struct cap_embed_state {
	struct cap_emit *emit; /* borrowed */
	enum cap_embed what;
	struct cap_object *queue; /* owned; in order */
	size_t n, cap, at;
	uint64_t total;
	struct sp_map64 seen; /* files looked at, by hash of their identity */
	struct cap_jit *jits; /* owned */
	size_t n_jits, cap_jits;
	uint64_t start_ns, start_wall_ns;
	bool full; /* the limit was reached and said */
	bool lazy; /* files are looked at once a process that maps them is sampled */
	uint64_t hashed_ns; /* spent on hashes of files without build-id */
};

void cap_embed_init(struct cap_embed_state *s, struct cap_emit *emit, enum cap_embed what,
		    uint64_t start_ns, uint64_t start_wall_ns);
void cap_embed_deinit(struct cap_embed_state *s);

/* The vdso image of this machine, from our own memory: it is the same in every 64-bit process. */
void cap_embed_vdso(struct cap_embed_state *s);

/* A mapping appeared: markers, what identifies the file, and the file when it would be missed. */
void cap_embed_map(struct cap_embed_state *s, struct cap_proc *q, const struct cap_range *r,
		   uint64_t time_ns);
/* A process was sampled for the first time. */
void cap_embed_sampled(struct cap_embed_state *s, struct cap_proc *q, uint64_t time_ns);
/* A process was sampled in anonymous memory. */
void cap_embed_jit(struct cap_embed_state *s, struct cap_proc *q);
/* A process calls exec: what it was is over. */
void cap_embed_off(struct cap_embed_state *s, const struct cap_proc *q, uint64_t time_ns);
/* A process ends, or calls exec at end_ns (0: it goes on, or its files cannot be the next image's):
 * its perf map and jitdump. */
void cap_embed_end(struct cap_embed_state *s, struct cap_proc *q, uint64_t end_ns);

/* Fragments of waiting objects, at most budget bytes. True when more wait. */
bool cap_embed_pump(struct cap_embed_state *s, size_t budget);

#endif
