/* Batches through workers and out in order. One thread fills and submits, the workers compute, and
 * whoever finishes the next batch in line writes it. Memory is bounded by the number of batches:
 * when all are on their way, the submitting thread computes too instead of waiting. It is one of
 * the workers: N of them are N threads, and with one there are no others. Threads start when
 * batches wait for them, or when there is other work.
 *
 * Of a live stream one thread easily keeps up, and to wake others for it costs more than they take
 * over, most of it to move the samples from one CPU's caches into another's: the submitting thread
 * can be told to do all of it alone. */
#ifndef SP_UNWIND_POOL_H
#define SP_UNWIND_POOL_H

#include "perf/writer.h"
#include "worker.h"

struct un_pool;

/* n_workers >= 1. */
int un_pool_new(struct un_pool **out, unsigned n_workers, struct sp_writer *w, struct sp_err *err);
/* Ends the threads; batches not yet written are dropped. */
void un_pool_free(struct un_pool *p);

/* Of more than one worker: work that threads without a batch do: a piece of it, from any thread;
 * false when there is none at the moment. It makes the threads worth their start before the first
 * batch. */
void un_pool_set_idle(struct un_pool *p, bool (*idle)(void *ctx), void *ctx);
/* There is such work again: a thread that sleeps looks for it. */
void un_pool_wake(struct un_pool *p);
/* The recording's machine; before the first batch that holds samples to walk. */
void un_pool_set_machine(struct un_pool *p, uint16_t machine);
/* The batch to fill; the same until it is submitted. */
struct un_batch *un_pool_batch(struct un_pool *p);
/* Whether the submitting thread is to compute what it submits from now on itself. */
void un_pool_set_alone(struct un_pool *p, bool alone);
/* Hand the batch over, and have the next one free. An error of any worker or of writing is
 * returned here and by every later call. */
int un_pool_submit(struct un_pool *p, struct sp_err *err);
/* Submit, and wait until everything is written: then the writer may be used directly. */
int un_pool_drain(struct un_pool *p, struct sp_err *err);

/* What all workers did. */
struct un_sums {
	struct sp_counters *counters; /* borrowed: added to */
	struct un_stops *stops;       /* the same */
	uint64_t cpu_ns; /* what any number of them shares: the rest is the submitting thread's */
	bool had_chains; /* some sample came with a call chain */
	struct sp_late bad; /* the first sample that could not be decoded; raw NULL: none */
};

/* After un_pool_drain. */
void un_pool_sums(const struct un_pool *p, struct un_sums *sums);

/* CPU time of the calling thread. */
uint64_t un_thread_ns(void);

#endif
