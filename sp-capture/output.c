#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/cli.h"
#include "base/file.h"
#include "base/le.h"
#include "privileges.h"
#include "perf/ext.h"
#include "perf/share.h"

#define WAKE_BLOCKS 4u
#define MAX_PARTS 1024u /* UIO_MAXIOV: of one writev */
/* One write to a pipe of 1 MiB: larger ones would be waited for, smaller ones wake the reader more
 * often than it takes. */
#define MAX_GATHERED ((size_t)960 << 10)

/* Pushes until the reader must have made its offer. */
#define ASK_FOR_SHARE 256u

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

	/* Of the drain loop alone. */
	struct block *current; /* owned */
	bool is_direct;        /* a pipe that can be written without waiting */
	bool gathering;        /* what current holds is in parts, not queued */
	struct iovec parts[MAX_PARTS]; /* borrowed: in current and in the rings */
	size_t n_parts, n_gathered;    /* n_gathered: bytes */
	uint64_t patience_ns;
	bool may_share;         /* a pipe */
	unsigned n_asked;       /* for an offer of its reader */
	struct sp_share *share; /* owned; what the reader offers, or NULL */
	int slot;               /* held, or -1 */
	size_t slot_used;
	uint8_t *place; /* in current: what will name the slot's bytes from place_from on; or NULL */
	size_t place_from;
	bool is_untold; /* places wait in parts */

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
	cap_privileges_drop_all(); /* it writes to what is open */
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
	struct stat st;
	o->is_direct = !is_file && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
	o->may_share = o->is_direct;
	o->slot = -1;
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

/* --- writing from the loop --- */

static void fail(struct cap_output *o, int code, const struct sp_err *err)
{
	pthread_mutex_lock(&o->lock);
	if (o->code == 0) {
		o->code = code;
		o->err = *err;
	}
	pthread_mutex_unlock(&o->lock);
}

/* Wait until the pipe has room again; false when patience ends first. */
static bool wait_for_reader(const struct cap_output *o)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	if (now >= o->patience_ns)
		return false;
	uint64_t left = o->patience_ns - now;
	struct timespec ts = {.tv_sec = (time_t)(left / 1000000000),
			      .tv_nsec = (long)(left % 1000000000)};
	struct pollfd p = {.fd = o->fd, .events = POLLOUT};
	return ppoll(&p, 1, &ts, NULL) > 0;
}

/* Parts from *at on, as far as the pipe takes them; a partly written one is cut. */
static void write_parts(struct cap_output *o, size_t *at)
{
	while (*at < o->n_parts) {
		ssize_t n = pwritev2(o->fd, o->parts + *at, (int)(o->n_parts - *at), -1,
				     RWF_NOWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (wait_for_reader(o))
				continue;
			return;
		}
		if (n < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS)) {
			o->is_direct = false; /* before Linux 6.4 */
			return;
		}
		if (n < 0) {
			struct sp_err err;
			fail(o, sp_err_errno(&err, "cannot write %s", o->name), &err);
			*at = o->n_parts;
			return;
		}
		for (size_t left = (size_t)n; left;) {
			struct iovec *v = &o->parts[*at];
			size_t part = left < v->iov_len ? left : v->iov_len;
			v->iov_base = (uint8_t *)v->iov_base + part;
			v->iov_len -= part;
			left -= part;
			*at += v->iov_len == 0;
		}
	}
}

/* What the pipe did not take, into blocks for the thread. */
static void queue_parts(struct cap_output *o, size_t at)
{
	struct block *arena = o->current;
	o->current = NULL;
	for (; at < o->n_parts; at++) {
		const uint8_t *p = o->parts[at].iov_base;
		for (size_t left = o->parts[at].iov_len; left;) {
			if (!o->current)
				o->current = block_get(o, CAP_BLOCKS + CAP_SPARE_BLOCKS);
			if (!o->current) { /* a hole inside of a record would spoil the rest */
				struct sp_err err;
				fail(o, sp_err_nomem(&err), &err);
				left = 0;
				continue;
			}
			size_t room = CAP_BLOCK_BYTES - o->current->len;
			size_t part = left < room ? left : room;
			memcpy(o->current->data + o->current->len, p, part);
			o->current->len += part;
			p += part;
			left -= part;
			if (part == room)
				queue_block(o, false);
		}
	}
	if (o->current)
		queue_block(o, true);
	pthread_mutex_lock(&o->lock);
	arena->next = o->free;
	o->free = arena;
	pthread_mutex_unlock(&o->lock);
}

/* Get rid of all that was gathered: nothing is borrowed afterwards. */
static void flush_parts(struct cap_output *o)
{
	size_t at = 0;
	write_parts(o, &at);
	if (at < o->n_parts) {
		queue_parts(o, at);
		o->gathering = false;
	} else {
		o->current->len = 0;
	}
	o->n_parts = o->n_gathered = 0;
	o->is_untold = false;
}

static void part_add(struct cap_output *o, uint8_t *p, size_t n)
{
	struct iovec *last = o->n_parts ? &o->parts[o->n_parts - 1] : NULL;
	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += n;
	else if (n)
		o->parts[o->n_parts++] = (struct iovec){.iov_base = p, .iov_len = n};
	o->n_gathered += n;
}

/* Whether the pipe is the next to be written to: nothing waits for the thread. */
static bool may_gather(struct cap_output *o)
{
	if (!o->is_direct)
		return false;
	pthread_mutex_lock(&o->lock);
	bool idle = o->n_waiting == 0;
	pthread_mutex_unlock(&o->lock);
	return idle;
}

/* Room for `copied` bytes in the current block and, while gathering, for n_parts more parts. */
static bool make_room(struct cap_output *o, size_t copied, size_t borrowed, bool is_sample)
{
	if (o->current && o->gathering &&
	    (CAP_BLOCK_BYTES - o->current->len < copied || o->n_parts + 4 > MAX_PARTS ||
	     o->n_gathered + copied + borrowed > MAX_GATHERED))
		flush_parts(o);
	if (!o->gathering)
		copied += borrowed;
	if (o->current && CAP_BLOCK_BYTES - o->current->len < copied)
		queue_block(o, false);
	if (!o->current) {
		o->gathering = may_gather(o);
		o->current = block_get(o, CAP_BLOCKS + (is_sample ? 0 : CAP_SPARE_BLOCKS));
	}
	return o->current != NULL;
}

/* Room in the stream itself. */
static uint8_t *take(struct cap_output *o, size_t size, bool is_sample)
{
	if (!make_room(o, size, 0, is_sample))
		return NULL;
	uint8_t *p = o->current->data + o->current->len;
	o->current->len += size;
	if (o->gathering)
		part_add(o, p, size);
	return p;
}

/* --- beside the pipe --- */

/* What comes next in the stream is not in the slot, or is named by another record. */
static void place_end(struct cap_output *o)
{
	if (!o->place)
		return;
	const struct sp_ext_shared x = {.slot = (uint32_t)o->slot,
					.offset = (uint32_t)o->place_from,
					.bytes = (uint32_t)(o->slot_used - o->place_from)};
	sp_ext_shared_encode(o->place, &x);
	o->place = NULL;
	o->is_untold = o->gathering;
}

static void slot_end(struct cap_output *o)
{
	place_end(o);
	sp_share_drop(o->share, o->slot);
	o->slot = -1;
}

/* Room in the memory that the reader offers, or NULL: then nothing is between the stream so far and
 * what is put into it next. */
static uint8_t *share_take(struct cap_output *o, size_t size)
{
	if (!o->share)
		return NULL;
	if (o->slot >= 0 && SP_SHARE_SLOT_BYTES - o->slot_used < size)
		slot_end(o);
	if (o->slot < 0) {
		o->slot = sp_share_take(o->share);
		o->slot_used = 0;
	}
	if (o->slot < 0) { /* the reader does not know yet what waits for it */
		if (o->is_untold)
			flush_parts(o);
		return NULL;
	}
	if (!o->place) {
		o->place = take(o, SP_EXT_MIN, false);
		o->place_from = o->slot_used;
		if (!o->place)
			return NULL;
		sp_share_hold(o->share, o->slot);
	}
	uint8_t *p = sp_share_slot(o->share, o->slot) + o->slot_used;
	o->slot_used += size;
	return p;
}

static void look_for_offer(struct cap_output *o)
{
	if (o->share || !o->may_share || o->n_asked++ >= ASK_FOR_SHARE)
		return;
	o->share = sp_share_find(o->fd);
	if (o->share)
		sp_detail("the reader of %s offers memory for the samples", o->name);
}

uint8_t *cap_output_take(struct cap_output *o, size_t size, bool is_sample)
{
	uint8_t *p = share_take(o, size);
	if (!p)
		p = take(o, size, is_sample);
	if (p)
		o->taken += size;
	return p;
}

/* The pieces behind the head at p; where the tail is. */
static uint8_t *copy_pieces(uint8_t *p, const struct cap_pieces *x)
{
	memcpy(p + x->head, x->data[0], x->n[0]);
	if (x->n[1])
		memcpy(p + x->head + x->n[0], x->data[1], x->n[1]);
	return p + x->head + x->n[0] + x->n[1];
}

uint8_t *cap_output_gather(struct cap_output *o, const struct cap_pieces *x, uint8_t **tail)
{
	size_t borrowed = x->n[0] + x->n[1], size = x->head + borrowed + x->tail;
	uint8_t *p = share_take(o, size);
	if (!p && !make_room(o, x->head + x->tail, borrowed, true))
		return NULL;
	o->taken += size;
	if (p) {
		*tail = copy_pieces(p, x);
		return p;
	}
	p = o->current->data + o->current->len;
	if (o->gathering) {
		*tail = p + x->head;
		part_add(o, p, x->head);
		part_add(o, x->data[0], x->n[0]);
		part_add(o, x->data[1], x->n[1]);
		part_add(o, *tail, x->tail);
	} else {
		*tail = copy_pieces(p, x);
	}
	o->current->len = (size_t)(*tail + x->tail - o->current->data);
	return p;
}

void cap_output_patience(struct cap_output *o, uint64_t until_ns)
{
	o->patience_ns = until_ns;
}

bool cap_output_has_room(struct cap_output *o)
{
	pthread_mutex_lock(&o->lock);
	bool room = o->code == 0 && o->n_waiting < CAP_BLOCKS / 2;
	pthread_mutex_unlock(&o->lock);
	return room;
}

static void push(struct cap_output *o)
{
	place_end(o);
	if (o->current && o->gathering) {
		flush_parts(o);
		return;
	}
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

void cap_output_push(struct cap_output *o)
{
	push(o);
	look_for_offer(o);
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
	push(o);
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
	sp_share_leave(o->share);
	blocks_free(o->free);
	blocks_free(o->first);
	free(o->current);
	pthread_cond_destroy(&o->more);
	pthread_mutex_destroy(&o->lock);
	free(o);
	return code;
}
