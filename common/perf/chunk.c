#include "perf/chunk.h"

#include <pthread.h>
#include <stdlib.h>

#define KEEP_FREE 16 /* chunks kept for the next reads; more go back to the system */

struct sp_chunk_pool {
	pthread_mutex_t lock;
	struct sp_chunk *free; /* owned */
	size_t n_free, n_out;  /* n_out: chunks that somebody holds */
	bool closed;
};

struct sp_chunk_pool *sp_chunk_pool_new(void)
{
	struct sp_chunk_pool *p = calloc(1, sizeof *p);
	if (p)
		pthread_mutex_init(&p->lock, NULL);
	return p;
}

static void chunk_free(struct sp_chunk *c)
{
	free(c->data);
	free(c);
}

static void pool_free(struct sp_chunk_pool *p)
{
	while (p->free) {
		struct sp_chunk *c = p->free;
		p->free = c->next;
		chunk_free(c);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void sp_chunk_pool_close(struct sp_chunk_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->closed = true;
	bool last = p->n_out == 0;
	pthread_mutex_unlock(&p->lock);
	if (last)
		pool_free(p);
}

struct sp_chunk *sp_chunk_get(struct sp_chunk_pool *p)
{
	pthread_mutex_lock(&p->lock);
	struct sp_chunk *c = p->free;
	if (c) {
		p->free = c->next;
		p->n_free--;
	}
	p->n_out++;
	pthread_mutex_unlock(&p->lock);
	if (!c) {
		c = calloc(1, sizeof *c);
		if (c)
			c->data = aligned_alloc(4096, SP_CHUNK_BYTES);
		if (!c || !c->data) {
			free(c);
			pthread_mutex_lock(&p->lock);
			p->n_out--;
			pthread_mutex_unlock(&p->lock);
			return NULL;
		}
		c->pool = p;
	}
	c->next = NULL;
	c->n_queued = 0;
	atomic_store_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}

void sp_chunk_hold(struct sp_chunk *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void sp_chunk_release(struct sp_chunk *c)
{
	if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (!c->pool) {
		if (c->gone)
			c->gone(c);
		return;
	}
	struct sp_chunk_pool *p = c->pool;
	pthread_mutex_lock(&p->lock);
	p->n_out--;
	bool keep = !p->closed && p->n_free < KEEP_FREE;
	if (keep) {
		c->next = p->free;
		p->free = c;
		p->n_free++;
	}
	bool last = p->closed && p->n_out == 0;
	pthread_mutex_unlock(&p->lock);
	if (!keep)
		chunk_free(c);
	if (last)
		pool_free(p);
}
