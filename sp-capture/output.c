#include "output.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/le.h"

#define WAKE_BLOCKS 4u

struct block {
	struct block *next;
	size_t len;
	uint8_t data[CAP_BLOCK_BYTES];
};

struct cap_output {
	struct sp_writer *writer; /* owned; used by the thread once it runs */
	int fd;                   /* borrowed */
	const char *name;         /* borrowed */
	bool is_file;
	uint64_t taken;
	struct block *current; /* owned by the drain loop */

	pthread_t thread;
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t more;
	struct block *first, *last; /* full ones, oldest first */
	struct block *free;         /* the last used one first: it is in the cache */
	size_t n_blocks;            /* allocated, wherever they are */
	size_t n_waiting;           /* full ones, or being written */
	bool ending;
	int code; /* of the first failed write */
	struct sp_err err;
};

static int write_block(struct cap_output *o, const struct block *b, struct sp_err *err)
{
	if (!o->is_file)
		return sp_fd_write(o->fd, b->data, b->len, o->name, err);
	for (size_t at = 0; at < b->len;) {
		size_t size = sp_get16(b->data + at + 6);
		int rc = sp_writer_raw(o->writer, b->data + at, size, err);
		if (rc < 0)
			return rc;
		at += size;
	}
	/* What the writer holds back would be lost with us. */
	return sp_writer_flush(o->writer, err);
}

static struct block *next_block(struct cap_output *o)
{
	while (!o->first && !o->ending)
		pthread_cond_wait(&o->more, &o->lock);
	struct block *b = o->first;
	if (b)
		o->first = b->next;
	if (!o->first)
		o->last = NULL;
	return b;
}

static void *run(void *arg)
{
	struct cap_output *o = arg;
	struct block *b;
	pthread_mutex_lock(&o->lock);
	while ((b = next_block(o))) {
		if (o->code == 0) {
			struct sp_err err = {0};
			pthread_mutex_unlock(&o->lock);
			int rc = write_block(o, b, &err);
			pthread_mutex_lock(&o->lock);
			if (rc < 0) {
				o->code = rc;
				o->err = err;
			}
		}
		o->n_waiting--;
		b->next = o->free;
		o->free = b;
	}
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

int cap_output_new(struct cap_output **out, struct sp_writer *writer, int fd, const char *name,
		   bool is_file, struct sp_err *err)
{
	struct cap_output *o = calloc(1, sizeof *o);
	if (!o)
		return sp_err_nomem(err);
	o->writer = writer;
	o->fd = fd;
	o->name = name;
	o->is_file = is_file;
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->more, NULL);
	int os = pthread_create(&o->thread, NULL, run, o);
	if (os) {
		free(o);
		return sp_err_set(err, SP_ERR_IO, os, "cannot start the writing thread");
	}
	*out = o;
	return 0;
}

/* An empty block within the limit, or NULL. */
static struct block *block_get(struct cap_output *o, size_t limit)
{
	pthread_mutex_lock(&o->lock);
	struct block *b = o->code == 0 ? o->free : NULL;
	bool may_make = o->code == 0 && !b && o->n_blocks < limit;
	if (b)
		o->free = b->next;
	else if (may_make)
		o->n_blocks++;
	pthread_mutex_unlock(&o->lock);
	if (may_make)
		b = malloc(sizeof *b);
	if (b) {
		b->next = NULL;
		b->len = 0;
	}
	return b;
}

/* Queue the current block. Waking the thread costs a switch: a few blocks at a time. */
static void queue_block(struct cap_output *o, bool now)
{
	struct block *b = o->current;
	o->current = NULL;
	pthread_mutex_lock(&o->lock);
	if (o->last)
		o->last->next = b;
	else
		o->first = b;
	o->last = b;
	o->n_waiting++;
	bool wake = now || o->n_waiting % WAKE_BLOCKS == 0;
	pthread_mutex_unlock(&o->lock);
	if (wake) /* not under the lock, on which it would wait at once */
		pthread_cond_signal(&o->more);
}

uint8_t *cap_output_take(struct cap_output *o, size_t size, bool is_sample)
{
	if (o->current && CAP_BLOCK_BYTES - o->current->len < size)
		queue_block(o, false);
	if (!o->current)
		o->current = block_get(o, CAP_BLOCKS + (is_sample ? 0 : CAP_SPARE_BLOCKS));
	if (!o->current)
		return NULL;
	uint8_t *p = o->current->data + o->current->len;
	o->current->len += size;
	o->taken += size;
	return p;
}

bool cap_output_has_room(struct cap_output *o)
{
	pthread_mutex_lock(&o->lock);
	bool room = o->code == 0 && o->n_waiting < CAP_BLOCKS / 2;
	pthread_mutex_unlock(&o->lock);
	return room;
}

void cap_output_push(struct cap_output *o)
{
	if (o->current && o->current->len) {
		queue_block(o, true);
		return;
	}
	pthread_mutex_lock(&o->lock);
	bool wake = o->first != NULL;
	pthread_mutex_unlock(&o->lock);
	if (wake)
		pthread_cond_signal(&o->more);
}

uint64_t cap_output_bytes(const struct cap_output *o)
{
	return o->taken;
}

int cap_output_error(struct cap_output *o, struct sp_err *err)
{
	pthread_mutex_lock(&o->lock);
	int code = o->code;
	if (code < 0 && err)
		*err = o->err;
	pthread_mutex_unlock(&o->lock);
	return code;
}

static void blocks_free(struct block *b)
{
	while (b) {
		struct block *next = b->next;
		free(b);
		b = next;
	}
}

int cap_output_finish(struct cap_output *o, struct sp_err *err)
{
	cap_output_push(o);
	pthread_mutex_lock(&o->lock);
	o->ending = true;
	pthread_cond_signal(&o->more);
	pthread_mutex_unlock(&o->lock);
	pthread_join(o->thread, NULL);
	int code = o->code;
	if (code < 0) {
		if (err)
			*err = o->err;
		sp_writer_abandon(o->writer);
	} else {
		code = sp_writer_finish(o->writer, err);
	}
	blocks_free(o->free);
	blocks_free(o->first);
	free(o->current);
	pthread_cond_destroy(&o->more);
	pthread_mutex_destroy(&o->lock);
	free(o);
	return code;
}
