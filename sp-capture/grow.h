/* Rings that start small and grow when they fill.
 *
 * The kernel clears a ring's memory as it is mapped (64 MiB a CPU take 20 to 200 ms), and a ring
 * that is larger than the caches makes every copy into it and out of it a cold one. So a recording
 * begins with rings of a quarter of the size that its rate asks for. When one fills, larger ones are
 * mapped and the events are moved over, both in a thread of their own: the kernel waits for an RCU
 * grace period for each event that is moved (Linux 6.18, ring_buffer_attach), while it writes on
 * into the old ring. Until that is drained and gone, the merge has two rings per CPU. */
#ifndef CAP_GROW_H
#define CAP_GROW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cap_session;

enum cap_grow_state {
	CAP_GROW_READY,   /* nothing to do yet */
	CAP_GROW_MAPPING, /* the thread maps the new rings */
	CAP_GROW_MOVING,  /* it moves the events; both rings are read */
	CAP_GROW_ENDING,  /* all events are moved; the old rings are read a little longer */
	CAP_GROW_DONE,
};

struct cap_grow {
	enum cap_grow_state state;
	size_t start_bytes;      /* at the start; `wanted` when growing is not worth it */
	size_t wanted;           /* bytes per CPU in the end */
	struct cap_ring *fresh;  /* owned; while they are mapped */
	int *moves;              /* owned: pairs of descriptors, an event's and its new ring's */
	size_t n_moves, n_cpus, page_bytes, bytes;
	pthread_t thread;
	bool running;            /* the thread is to be joined */
	_Atomic bool finished;   /* it has nothing more to do */
	bool failed;             /* of the thread */
	uint64_t moved_ns;
};

/* The size to begin with, of `wanted` bytes per CPU, for n_events events. */
size_t cap_grow_start(size_t wanted, uint32_t stack_bytes, size_t n_events);

/* One step, after a look at the rings: true when the rings are others than before. */
bool cap_grow_step(struct cap_session *s, uint64_t now_ns);

/* Wait for the thread; no more steps. The rings stay as they are. */
void cap_grow_end(struct cap_session *s);

#endif
