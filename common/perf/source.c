#define _GNU_SOURCE
#include "perf/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stop.h"

/* Room in a chunk below which a fresh one is begun, so that reads stay long. */
#define READ_MIN ((size_t)128 << 10)
/* A mapped file's size below which it is read before another thread has begun to help. */
#define HELP_MIN ((size_t)4 << 20)

void sp_source_memory(struct sp_source *s, const void *data, size_t size)
{
	*s = (struct sp_source){.mapped = true, .fd = -1, .limit = UINT64_MAX, .map_fd = -1};
	s->trim.fd = -1;
	s->map.data = data;
	s->map.size = size;
	atomic_store(&s->map_chunk.refs, 1);
	s->chunk = &s->map_chunk;
	s->at = data;
	s->end = size ? s->at + size : s->at;
}

static int open_path(const char *path, struct sp_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return fd < 0 ? sp_err_errno(err, "cannot open %s", path) : fd;
}

int sp_source_open(struct sp_source *s, const char *path, struct sp_chunk_pool *pool,
		   struct sp_err *err)
{
	bool own = path && strcmp(path, "-") != 0;
	const char *name = own ? path : "standard input";
	int fd = own ? open_path(path, err) : 0;
	if (fd < 0)
		return fd;
	struct sp_source out = {
		.fd = -1, .limit = UINT64_MAX, .pool = pool, .map_fd = -1, .trim.fd = -1};
	struct stat st;
	int rc = 0;
	if (fstat(fd, &st) < 0)
		rc = sp_err_errno(err, "cannot stat %s", name);
	else if (S_ISDIR(st.st_mode))
		rc = sp_err_set(err, SP_ERR_UNSUPPORTED, 0,
				"cannot read %s: a folder", name);
	else if (isatty(fd))
		rc = sp_err_set(err, SP_ERR_INVALID, 0,
				"cannot read %s: a terminal; give a perf.data file, or put "
				"sp-capture or perf record -o - in front",
				name);
	else if (S_ISREG(st.st_mode))
		rc = sp_map_file_fd(&out.map, fd, name, err);
	if (rc == 0 && !(out.name = strdup(name)))
		rc = sp_err_nomem(err);
	bool regular = rc == 0 && S_ISREG(st.st_mode);
	if (own && rc < 0)
		close(fd);
	if (rc < 0) {
		sp_map_file_close(&out.map);
		return rc;
	}
	if (regular) {
		char *kept = out.name;
		struct sp_map_file map = out.map;
		/* A redirected file is read from where its descriptor stands. */
		off_t at = own ? 0 : lseek(fd, 0, SEEK_CUR);
		sp_source_memory(s, map.data, map.size);
		s->map = map;
		s->map_fd = own ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
		s->name = kept;
		s->pool = pool;
		if (at > 0 && (uint64_t)at <= map.size)
			sp_source_take(s, (size_t)at);
		return 0;
	}
	*s = out;
	s->fd = fd;
	s->close_fd = own;
	sp_pipe_enlarge(fd);
	return 0;
}

void sp_source_share(struct sp_source *s)
{
	if (!s->mapped && !s->share)
		s->share = sp_share_offer(s->fd);
}

bool sp_source_enter(struct sp_source *s, uint32_t slot, uint32_t offset, uint32_t bytes)
{
	const uint8_t *data;
	struct sp_chunk *c = s->share && !s->in_share
				     ? sp_share_piece(s->share, slot, offset, bytes, &data)
				     : NULL;
	if (!c)
		return false;
	s->behind.at = s->at;
	s->behind.end = s->end;
	s->behind.chunk = s->chunk;
	s->chunk = c;
	s->at = data;
	s->end = data + bytes;
	s->in_share = true;
	return true;
}

/* Back to the pipe. The records in shared memory are whole ones. */
static int leave_share(struct sp_source *s, struct sp_err *err)
{
	if (s->at != s->end)
		return sp_err_set(err, SP_ERR_CORRUPT, 0,
				  "cannot read %s: the record at offset %llu goes beyond its "
				  "shared memory",
				  s->name, (unsigned long long)s->pos);
	sp_chunk_release(s->chunk);
	s->chunk = s->behind.chunk;
	s->at = s->behind.at;
	s->end = s->behind.end;
	s->in_share = false;
	return 1;
}

void sp_source_close(struct sp_source *s)
{
	if (s->in_share)
		sp_chunk_release(s->behind.chunk);
	sp_share_withdraw(s->share);
	if (!s->mapped)
		sp_chunk_release(s->chunk);
	else if (s->name) /* memory that was given has no name and no map of ours */
		sp_map_file_close(&s->map);
	sp_chunk_release(s->trim.chunk);
	if (s->map_fd >= 0)
		close(s->map_fd);
	if (s->close_fd)
		close(s->fd);
	free(s->name);
	*s = (struct sp_source){.fd = -1, .map_fd = -1, .trim.fd = -1};
}

/* Wait for input or a signal: 1 to read, 0 to stop. */
static int wait_for_input(struct sp_source *s)
{
	struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN},
			      {.fd = sp_stop_fd(), .events = POLLIN}};
	if (sp_stop_level() > 1)
		return 0;
	if (p[1].fd < 0 || sp_stop_level() > 0)
		return 1; /* nobody to tell us, or told already: read() waits by itself */
	if (poll(p, 2, 0) > 0)
		return sp_stop_level() > 1 ? 0 : 1;
	s->n_waits++;
	while (poll(p, 2, -1) < 0 && errno == EINTR)
		if (sp_stop_level() > 1)
			return 0;
	return sp_stop_level() > 1 ? 0 : 1;
}

static int fresh_chunk(struct sp_source *s, struct sp_err *err)
{
	struct sp_chunk *c = sp_chunk_get(s->pool);
	if (!c)
		return sp_err_nomem(err);
	size_t rest = (size_t)(s->end - s->at);
	uint8_t *start = c->data + SP_CHUNK_HEADROOM - rest; /* reads begin on a page */
	if (rest)
		memcpy(start, s->at, rest);
	sp_chunk_release(s->chunk);
	s->chunk = c;
	s->at = start;
	s->end = c->data + SP_CHUNK_HEADROOM;
	return 0;
}

/* One read() into the chunk: 1, or 0 at the end. */
static int read_more(struct sp_source *s, struct sp_err *err)
{
	size_t room = s->chunk ? (size_t)(s->chunk->data + SP_CHUNK_BYTES - s->end) : 0;
	if (room < READ_MIN) {
		int rc = fresh_chunk(s, err);
		if (rc < 0)
			return rc;
		room = SP_CHUNK_BYTES - SP_CHUNK_HEADROOM;
	}
	for (;;) {
		if (!wait_for_input(s)) {
			s->ended = s->stopped = true;
			return 0;
		}
		ssize_t n = read(s->fd, s->chunk->data + (s->end - s->chunk->data), room);
		if (n > 0) {
			s->end += n;
			return 1;
		}
		if (n == 0) {
			s->ended = true;
			return 0;
		}
		struct pollfd p = {.fd = s->fd, .events = POLLIN};
		if (errno == EAGAIN) /* somebody made it non-blocking */
			poll(&p, 1, -1);
		else if (errno != EINTR)
			return sp_err_errno(err, "cannot read %s", s->name);
	}
}

int sp_source_fill(struct sp_source *s, size_t n, struct sp_err *err)
{
	if (s->limit - s->pos < n)
		return 0;
	while ((size_t)(s->end - s->at) < n) {
		if (!s->in_share && (s->mapped || s->ended))
			return 0;
		int rc = s->in_share ? leave_share(s, err) : read_more(s, err);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

void sp_source_moved(struct sp_source *s)
{
	s->moved_at = s->name ? sp_window_move(&s->window, &s->map, s->pos) : UINT64_MAX;
	if (s->wake && sp_window_wants(&s->window, &s->map))
		s->wake(s->wake_ctx);
}

void sp_source_round(struct sp_source *s)
{
	atomic_store_explicit(&s->window.needed, s->rounds[0], memory_order_relaxed);
	s->rounds[0] = s->rounds[1];
	s->rounds[1] = s->pos;
}

bool sp_source_help(struct sp_source *s)
{
	return atomic_load_explicit(&s->window.wanted, memory_order_relaxed) &&
	       sp_window_help(&s->window, &s->map);
}

void sp_source_done(struct sp_source *s)
{
	atomic_store_explicit(&s->window.ended, true, memory_order_release);
}

bool sp_source_wants_help(const struct sp_source *s)
{
	return atomic_load_explicit(&s->window.wanted, memory_order_relaxed) &&
	       s->map.size >= HELP_MIN;
}

int sp_source_skip(struct sp_source *s, uint64_t n, struct sp_err *err)
{
	bool whole = s->limit - s->pos >= n;
	if (!whole)
		n = s->limit - s->pos;
	while (n) {
		int rc = sp_source_need(s, 1, err);
		if (rc <= 0)
			return rc;
		size_t have = (size_t)(s->end - s->at);
		size_t part = have < n ? have : (size_t)n;
		sp_source_take(s, part);
		n -= part;
	}
	return whole;
}

int sp_source_read(struct sp_source *s, uint64_t upto, size_t max, struct sp_buf *b,
		   struct sp_err *err)
{
	size_t before = b->len;
	while (s->pos < upto) {
		int rc = sp_source_need(s, 1, err);
		if (rc < 0)
			return rc;
		if (rc == 0)
			break;
		uint64_t part = (uint64_t)(s->end - s->at);
		if (part > upto - s->pos)
			part = upto - s->pos;
		if (part > s->limit - s->pos)
			part = s->limit - s->pos;
		if (b->len - before + part > max)
			return sp_err_set(err, SP_ERR_LIMIT, 0,
					  "cannot read %s: its header is larger than %zu bytes",
					  s->name ? s->name : "the input", max);
		sp_buf_add(b, s->at, (size_t)part);
		if (b->failed)
			return sp_err_nomem(err);
		sp_source_take(s, (size_t)part);
	}
	return 0;
}
