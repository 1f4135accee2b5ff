#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define FLUSH_BYTES ((size_t)64 << 10) /* of output that may wait in the writer */

enum state { FREE, FILLED, TAKEN, DONE };

struct slot {
	struct un_batch *batch; /* owned; NULL until the ring gets here for the first time */
	enum state state;
};

struct thread {
	pthread_t id;
	struct un_pool *pool;
	struct un_worker *worker; /* owned; NULL: not started, nor its thread */
};

struct un_pool {
	struct sp_writer *w; /* borrowed */
	/* Owned. The first works in the submitting thread, the others have threads of their own,
	 * which are started when there is work for them: most of a short input's cost would be
	 * threads that come too late. All of this is the submitting thread's. */
	struct thread *threads;
	unsigned n_workers, n_started; /* n_started: threads besides the submitting one */
	uint16_t machine;
	struct slot *slots; /* owned; a ring by sequence number */
	uint64_t n_slots;
	struct un_batch *filling; /* the submitting thread's own, as alone is; in a slot */
	bool alone;
	bool (*idle)(void *ctx); /* or NULL; all threads' but the submitting one's */
	void *idle_ctx;

	_Atomic unsigned n_asleep; /* threads that wait for work; changed with the lock */
	pthread_mutex_t lock;      /* all below */
	pthread_cond_t work, space;
	uint64_t n_submitted, n_taken, n_written;
	bool writing, ending;
	struct sp_late bad;  /* the first of the batches' */
	struct sp_err error; /* code 0: none */
};

static int failed(const struct un_pool *p, struct sp_err *err)
{
	if (err)
		*err = p->error;
	return p->error.code;
}

/* Write one batch's output; an error's code. Called with the baton, without the lock. */
static int write_out(struct sp_writer *w, struct un_batch *b, struct sp_err *err)
{
	int rc = b->out.failed ? sp_err_nomem(err)
		 : b->out.len  ? sp_writer_batch(w, b->out.data, b->out.len, err)
			       : 0;
	if (rc == 0 && (b->flush || sp_writer_pending(w) >= FLUSH_BYTES))
		rc = sp_writer_flush(w, err);
	b->out.len = 0;
	b->flush = false;
	return rc;
}

/* With the lock: if nobody else does, write what is due. */
static void write_due(struct un_pool *p)
{
	if (p->writing)
		return;
	p->writing = true;
	struct slot *s;
	while (p->n_written < p->n_submitted &&
	       (s = &p->slots[p->n_written % p->n_slots])->state == DONE) {
		bool skip = p->error.code != 0;
		struct sp_err err;
		pthread_mutex_unlock(&p->lock);
		int rc = skip ? 0 : write_out(p->w, s->batch, &err);
		s->batch->out.len = 0;
		pthread_mutex_lock(&p->lock);
		if (rc < 0 && !p->error.code)
			p->error = err;
		if (!p->bad.raw)
			p->bad = s->batch->bad;
		s->state = FREE;
		p->n_written++;
		pthread_cond_broadcast(&p->space);
	}
	p->writing = false;
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t = {0};
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t un_thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* With the lock: compute the next batch in line. */
static void work_one(struct un_pool *p, struct un_worker *w)
{
	struct slot *s = &p->slots[p->n_taken++ % p->n_slots];
	s->state = TAKEN;
	pthread_mutex_unlock(&p->lock);
	/* Of the other threads the clock is asked once: un_pool_sums. */
	bool own = w == p->threads[0].worker;
	uint64_t begin = own ? un_thread_ns() : 0;
	un_worker_run(w, s->batch);
	w->cpu_ns += own ? un_thread_ns() - begin : 0;
	pthread_mutex_lock(&p->lock);
	s->state = DONE;
	write_due(p);
}

/* To sleep and to be woken costs as much as a few of these. */
#define IDLE_TRIES 40

/* With the lock: something else than a batch; false when there is nothing to do. */
static bool work_idle(struct un_pool *p)
{
	if (!p->idle)
		return false;
	bool did = false;
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < IDLE_TRIES && !(did = p->idle(p->idle_ctx)); i++)
		sched_yield();
	pthread_mutex_lock(&p->lock);
	return did;
}

static void sleep_for_work(struct un_pool *p)
{
	atomic_fetch_add_explicit(&p->n_asleep, 1, memory_order_relaxed);
	pthread_cond_wait(&p->work, &p->lock);
	atomic_fetch_sub_explicit(&p->n_asleep, 1, memory_order_relaxed);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	struct un_pool *p = t->pool;
	uw_walker_warm(t->worker->walker);
	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (p->n_taken == p->n_submitted && !p->ending)
			if (!work_idle(p) && p->n_taken == p->n_submitted && !p->ending)
				sleep_for_work(p);
		if (p->n_taken == p->n_submitted)
			break;
		work_one(p, t->worker);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int start_worker(struct un_pool *p, unsigned i, struct sp_err *err)
{
	struct un_worker *w = malloc(sizeof *w);
	if (!w || !un_worker_init(w)) {
		free(w);
		return sp_err_nomem(err);
	}
	w->machine = p->machine;
	p->threads[i] = (struct thread){.pool = p, .worker = w};
	return 0;
}

static void free_worker(struct thread *t)
{
	if (t->worker)
		un_worker_deinit(t->worker);
	free(t->worker);
	t->worker = NULL;
}

/* One thread more. Fewer than were asked for do as well. Signals are for the thread that reads: it
 * must wake from read(). */
static bool start_thread(struct un_pool *p)
{
	struct thread *t = &p->threads[p->n_started + 1];
	sigset_t all, before;
	if (start_worker(p, p->n_started + 1, NULL) < 0)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool ok = pthread_create(&t->id, NULL, run, t) == 0;
	if (ok)
		p->n_started++;
	else
		free_worker(t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok;
}

/* The batch that is filled next: the one before, when that is written, as long as no other is needed.
 * Only this thread changes n_submitted, and nobody looks at a slot that is free. */
static int make_batch(struct un_pool *p, bool all_written, struct sp_err *err)
{
	struct slot *s = &p->slots[p->n_submitted % p->n_slots];
	if (!s->batch && all_written && p->n_submitted) {
		struct slot *before = &p->slots[(p->n_submitted - 1) % p->n_slots];
		s->batch = before->batch;
		before->batch = NULL;
	}
	if (!s->batch && !(s->batch = un_batch_new()))
		return sp_err_nomem(err);
	p->filling = s->batch;
	return 0;
}

int un_pool_new(struct un_pool **out, unsigned n, struct sp_writer *w, struct sp_err *err)
{
	struct un_pool *p = calloc(1, sizeof *p);
	if (!p)
		return sp_err_nomem(err);
	p->w = w;
	p->n_workers = n;
	p->n_slots = n > 1 ? 2 * (uint64_t)n + 2 : 1;
	p->slots = calloc(p->n_slots, sizeof *p->slots);
	p->threads = calloc(n, sizeof *p->threads);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->space, NULL);
	int rc = p->slots && p->threads ? start_worker(p, 0, err) : sp_err_nomem(err);
	if (rc == 0)
		rc = make_batch(p, true, err);
	if (rc < 0) {
		un_pool_free(p);
		return rc;
	}
	*out = p;
	return 0;
}

void un_pool_free(struct un_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->ending = true;
	if (!p->error.code)
		sp_err_set(&p->error, SP_ERR_INVALID, 0, "ended early");
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 1; i <= p->n_started; i++)
		pthread_join(p->threads[i].id, NULL);
	for (unsigned i = 0; p->threads && i <= p->n_started; i++)
		free_worker(&p->threads[i]);
	for (uint64_t i = 0; p->slots && i < p->n_slots; i++)
		un_batch_free(p->slots[i].batch);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->space);
	pthread_mutex_destroy(&p->lock);
	free(p->threads);
	free(p->slots);
	free(p);
}

void un_pool_set_idle(struct un_pool *p, bool (*idle)(void *ctx), void *ctx)
{
	p->idle = idle;
	p->idle_ctx = ctx;
	while (p->n_started + 1 < p->n_workers && start_thread(p))
		;
	uw_walker_warm(p->threads[0].worker->walker);
}

/* Who falls asleep meanwhile is told the next time. */
void un_pool_wake(struct un_pool *p)
{
	if (!atomic_load_explicit(&p->n_asleep, memory_order_relaxed))
		return;
	pthread_mutex_lock(&p->lock);
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

void un_pool_set_machine(struct un_pool *p, uint16_t machine)
{
	p->machine = machine;
	for (unsigned i = 0; i <= p->n_started; i++)
		p->threads[i].worker->machine = machine;
}

void un_pool_set_alone(struct un_pool *p, bool alone)
{
	p->alone = alone;
}

struct un_batch *un_pool_batch(struct un_pool *p)
{
	return p->filling;
}

/* With the lock: compute what is left until at most `most` batches are on their way. */
static void help(struct un_pool *p, uint64_t most)
{
	while (p->n_submitted - p->n_written > most) {
		if (p->n_taken < p->n_submitted)
			work_one(p, p->threads[0].worker);
		else
			pthread_cond_wait(&p->space, &p->lock);
	}
}

int un_pool_submit(struct un_pool *p, struct sp_err *err)
{
	bool flush = p->filling->flush;
	pthread_mutex_lock(&p->lock);
	p->slots[p->n_submitted++ % p->n_slots].state = FILLED;
	if (p->alone)
		while (p->n_taken < p->n_submitted)
			work_one(p, p->threads[0].worker);
	else
		pthread_cond_signal(&p->work);
	bool busy = p->n_submitted - p->n_taken > 1;
	/* The next batch to fill must be free before its slot is lent out; and without another
	 * thread, what must reach the next stage is this one's work. */
	help(p, flush && !p->n_started ? 0 : p->n_slots - 1);
	bool all_written = p->n_written == p->n_submitted && !p->writing;
	int rc = p->error.code ? failed(p, err) : 0;
	pthread_mutex_unlock(&p->lock);
	if (busy && p->n_started + 1 < p->n_workers)
		start_thread(p);
	return rc < 0 ? rc : make_batch(p, all_written, err);
}

int un_pool_drain(struct un_pool *p, struct sp_err *err)
{
	const struct un_batch *b = p->filling;
	int rc = b->n || b->flush ? un_pool_submit(p, err) : 0;
	pthread_mutex_lock(&p->lock);
	help(p, 0);
	while (p->writing)
		pthread_cond_wait(&p->space, &p->lock);
	rc = p->error.code ? failed(p, err) : rc;
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void un_pool_sums(const struct un_pool *p, struct un_sums *sums)
{
	sums->bad = p->bad;
	for (unsigned i = 0; i <= p->n_started; i++) {
		const struct un_worker *w = p->threads[i].worker;
		clockid_t clock;
		sp_counters_add(sums->counters, &w->counters);
		sp_counters_add(sums->counters, uw_walker_counters(w->walker));
		un_stops_merge(sums->stops, &w->stops);
		if (!i)
			sums->cpu_ns += w->cpu_ns;
		else if (pthread_getcpuclockid(p->threads[i].id, &clock) == 0)
			sums->cpu_ns += clock_ns(clock);
		sums->had_chains |= w->had_chains;
	}
}
