/* Records held by other threads while the reader goes on and ends: for the thread sanitizer too. */
#define _GNU_SOURCE
#include "tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf_enc.h"
#include "perf/ext.h"
#include "perf/reader.h"

enum { N = 40000, SLOTS = 256, WORKERS = 3 };

static const uint64_t id = 1;

struct job {
	const uint8_t *raw;
	struct sp_chunk *chunk; /* held for the worker */
	uint32_t tid;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job jobs[SLOTS];
	unsigned n;
	bool done;
	uint64_t taken, wrong;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void put(struct job j)
{
	pthread_mutex_lock(&queue.lock);
	while (queue.n == SLOTS)
		pthread_cond_wait(&queue.changed, &queue.lock);
	queue.jobs[queue.n++] = j;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.lock);
}

static void *work(void *arg)
{
	(void)arg;
	for (;;) {
		pthread_mutex_lock(&queue.lock);
		while (queue.n == 0 && !queue.done)
			pthread_cond_wait(&queue.changed, &queue.lock);
		if (queue.n == 0) {
			pthread_mutex_unlock(&queue.lock);
			return NULL;
		}
		struct job j = queue.jobs[--queue.n];
		pthread_cond_broadcast(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
		bool good = sp_get32(j.raw + 12) == j.tid && j.raw[sp_get16(j.raw + 6) - 40] == 'x';
		sp_chunk_release(j.chunk);
		pthread_mutex_lock(&queue.lock);
		queue.taken++;
		queue.wrong += !good;
		pthread_mutex_unlock(&queue.lock);
	}
}

/* A stream of COMM records whose size varies; in rounds when it is a foreign one. */
static void make(struct enc *e, bool ours)
{
	struct sp_attr a = e_plain_attr();
	e_pipe(e);
	e_head_attr(e, &a, 128, &id, 1);
	if (ours)
		e_ext(&e->b, SP_EXT_START, 1, "chain=site\n", 11);
	for (uint32_t i = 0; i < N; i++) {
		e_begin(e, SP_PERF_COMM, 0);
		e32(e, 1), e32(e, i);
		sp_buf_zero(&e->b, 8 * (i % 90));
		ebytes(e, "\0\0\0\0\0\0\0\0x\0\0\0\0\0\0\0", 16);
		e_sid(e, 1, i, i % 2 ? i : i + 2, 0, id);
		e_end(e);
		if (i % 1000 == 0)
			e_round(e);
	}
	if (ours)
		e_ext(&e->b, SP_EXT_END, 2, "status=0\n", 9);
}

static pid_t feed(const struct sp_buf *b, int fd)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	for (size_t at = 0; at < b->len;) {
		ssize_t n = write(fd, b->data + at, b->len - at);
		if (n < 0)
			_exit(1);
		at += (size_t)n;
	}
	_exit(0);
}

static void test(bool ours)
{
	int fds[2];
	char path[40];
	struct enc e = {0};
	pthread_t threads[WORKERS];
	struct sp_reader *r = NULL;
	struct sp_record rec;
	uint64_t n = 0;
	make(&e, ours);
	if (pipe(fds) < 0)
		return;
	pid_t pid = feed(&e.b, fds[1]);
	close(fds[1]);
	snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
	if (sp_reader_open(&r, path, 0, NULL) < 0)
		r = NULL;
	queue.done = false;
	queue.taken = 0;
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	while (r && sp_reader_next(r, &rec, NULL) == 1) {
		if (rec.type != SP_PERF_COMM)
			continue;
		sp_chunk_hold(sp_reader_chunk(r));
		put((struct job){rec.raw, sp_reader_chunk(r), (uint32_t)rec.tid});
		n++;
	}
	sp_reader_close(r); /* while workers still hold chunks */
	pthread_mutex_lock(&queue.lock);
	queue.done = true;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.lock);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	tap_eq(n, N, "the reader gives all records");
	tap_eq(queue.taken, N, "workers get each of them");
	tap_eq(queue.wrong, 0, "with its own bytes");
	close(fds[0]);
	waitpid(pid, NULL, 0);
	sp_buf_deinit(&e.b);
}

int main(void)
{
	test(true);
	test(false);
	return tap_done();
}
