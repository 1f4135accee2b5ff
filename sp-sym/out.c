#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file.h"

#define OUT_BUFFER (256u << 10)
#define OUT_PIECES 1024 /* Linux takes no more in one call (UIO_MAXIOV) */

/* One member, however long: viewers in browsers read only the first of a gzip file. ISA-L's highest
 * level takes a sixth of the time of libdeflate's level 6, for 1.14 times the bytes, and bounded
 * memory. */
#define GZIP_LEVEL 3
struct out_gzip {
	struct isal_zstream z;
	uint8_t work[ISAL_DEF_LVL3_DEFAULT];
	uint8_t packed[OUT_BUFFER];
};

/* A temporary file beside the target, readable as a new file would be. */
static int open_beside(struct out *o, const char *path, struct sp_err *err)
{
	/* A link stays a link: the file behind it is replaced. */
	o->path = realpath(path, NULL);
	if (!o->path)
		o->path = strdup(path);
	size_t size = o->path ? strlen(o->path) + 8 : 0;
	o->tmp = size ? malloc(size) : NULL;
	if (!o->tmp)
		return sp_err_nomem(err);
	snprintf(o->tmp, size, "%s.XXXXXX", o->path);
	o->fd = mkstemp(o->tmp);
	if (o->fd < 0) {
		int r = sp_err_errno(err, "cannot write %s", path);
		free(o->tmp);
		o->tmp = NULL;
		return r;
	}
	fcntl(o->fd, F_SETFD, FD_CLOEXEC);
	mode_t mask = umask(0);
	umask(mask);
	if (fchmod(o->fd, 0666 & ~mask) != 0)
		return sp_err_errno(err, "cannot set the mode of %s", o->tmp);
	return 0;
}

int out_open(struct out *o, const char *path, struct sp_err *err)
{
	struct stat st;
	int r = 0;
	*o = (struct out){.fd = STDOUT_FILENO, .name = "standard output"};
	if (!sp_buf_reserve(&o->buf, OUT_BUFFER))
		return sp_err_nomem(err);
	if (!path || !strcmp(path, "-"))
		return 0;
	o->name = path;
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		if (S_ISDIR(st.st_mode))
			r = sp_err_set(err, SP_ERR_INVALID, 0, "cannot write %s: it is a folder",
				       path);
		else if ((o->fd = open(path, O_WRONLY | O_CLOEXEC)) < 0)
			r = sp_err_errno(err, "cannot write %s", path);
	} else {
		r = open_beside(o, path, err);
	}
	if (r < 0)
		out_discard(o);
	return r;
}

int out_binary(struct out *o, struct sp_err *err)
{
	if (isatty(o->fd))
		return sp_err_set(err, SP_ERR_INVALID, 0,
				  "cannot write binary data to a terminal: use -o FILE, or a pipe");
	return 0;
}

int out_gzip(struct out *o, struct sp_err *err)
{
	int r = out_binary(o, err);
	if (r < 0)
		return r;
	struct out_gzip *g = calloc(1, sizeof *g);
	if (!g)
		return sp_err_nomem(err);
	/* The header's time is 0, so that equal profiles give equal bytes. */
	isal_deflate_init(&g->z);
	g->z.gzip_flag = IGZIP_GZIP;
	g->z.level = GZIP_LEVEL;
	g->z.level_buf = g->work;
	g->z.level_buf_size = sizeof g->work;
	o->gzip = g;
	return 0;
}

static void put(struct out *o, const void *data, size_t n)
{
	struct sp_err err;
	if (o->os_error || !n)
		return;
	errno = 0;
	if (sp_fd_write(o->fd, data, n, o->name, &err) < 0)
		o->os_error = err.os ? err.os : EIO;
}

/* n bytes more, or with last the member's end after them. */
static void put_gzip(struct out *o, const void *data, size_t n, bool last)
{
	struct out_gzip *g = o->gzip;
	g->z.next_in = (uint8_t *)(uintptr_t)data;
	do {
		uint32_t piece = n < OUT_BUFFER ? (uint32_t)n : OUT_BUFFER;
		g->z.avail_in = piece;
		g->z.end_of_stream = last && piece == n;
		n -= piece;
		do {
			g->z.next_out = g->packed;
			g->z.avail_out = sizeof g->packed;
			isal_deflate(&g->z);
			put(o, g->packed, sizeof g->packed - g->z.avail_out);
		} while (!g->z.avail_out);
	} while (n);
}

static void put_or_pack(struct out *o, const void *data, size_t n)
{
	if (o->gzip)
		put_gzip(o, data, n, false);
	else
		put(o, data, n);
}

/* All pieces, however many calls that takes. */
static void put_pieces(struct out *o)
{
	struct iovec *v = o->pieces;
	size_t n = o->n_pieces;
	while (n && !o->os_error) {
		ssize_t put = writev(o->fd, v, (int)n);
		if (put < 0 && errno != EINTR)
			o->os_error = errno;
		for (size_t left = put > 0 ? (size_t)put : 0; left;) {
			size_t step = left < v->iov_len ? left : v->iov_len;
			v->iov_base = (uint8_t *)v->iov_base + step;
			v->iov_len -= step;
			left -= step;
			if (!v->iov_len) {
				v++;
				n--;
			}
		}
	}
	o->n_pieces = 0;
}

static void add_piece(struct out *o, const void *data, size_t n)
{
	if (n)
		o->pieces[o->n_pieces++] = (struct iovec){(void *)(uintptr_t)data, n};
}

void out_flush(struct out *o)
{
	if (o->n_pieces) {
		add_piece(o, o->buf.data + o->split, o->buf.len - o->split);
		put_pieces(o);
	} else {
		put_or_pack(o, o->buf.data, o->buf.len);
	}
	o->buf.len = o->split = 0;
}

void out_add_kept(struct out *o, const void *data, size_t n)
{
	if (o->memory || o->gzip || n < 256) {
		out_add(o, data, n);
		return;
	}
	if (!o->pieces && !(o->pieces = malloc(OUT_PIECES * sizeof *o->pieces))) {
		o->buf.failed = true;
		return;
	}
	if (o->n_pieces + 3 > OUT_PIECES)
		out_flush(o);
	add_piece(o, o->buf.data + o->split, o->buf.len - o->split);
	add_piece(o, data, n);
	o->split = o->buf.len;
}

static void release(struct out *o)
{
	free(o->gzip);
	free(o->pieces);
	free(o->path);
	free(o->tmp);
	sp_buf_deinit(&o->buf);
	*o = (struct out){.fd = -1}; /* discarding again does nothing */
}

void out_discard(struct out *o)
{
	if (!o->name)
		return;
	if (o->fd > STDERR_FILENO)
		close(o->fd);
	if (o->tmp)
		unlink(o->tmp);
	release(o);
}

int out_close(struct out *o, struct sp_err *err)
{
	out_flush(o);
	if (o->gzip)
		put_gzip(o, NULL, 0, true);
	bool failed = o->buf.failed;
	/* Errors that only close() reports (NFS, quotas) count; a dup keeps standard output itself.
	 */
	int fd = o->fd > STDERR_FILENO ? o->fd : dup(o->fd);
	o->fd = -1;
	if ((fd < 0 || close(fd) != 0) && !o->os_error)
		o->os_error = errno ? errno : EIO;
	int r = 0;
	if (failed) {
		r = sp_err_nomem(err);
	} else if (o->os_error) {
		errno = o->os_error;
		r = sp_err_errno(err, "cannot write %s", o->name);
	} else if (o->tmp && rename(o->tmp, o->path) != 0) {
		r = sp_err_errno(err, "cannot write %s", o->name);
	} else if (o->tmp) {
		free(o->tmp);
		o->tmp = NULL;
	}
	out_discard(o);
	return r;
}

void out_add(struct out *o, const void *data, size_t n)
{
	if (!n)
		return;
	if (o->memory) {
		sp_buf_add(&o->buf, data, n);
		return;
	}
	if (o->buf.cap - o->buf.len < n) {
		out_flush(o);
		if (o->buf.cap < n) {
			put_or_pack(o, data, n);
			return;
		}
	}
	memcpy(o->buf.data + o->buf.len, data, n);
	o->buf.len += n;
}

void out_str(struct out *o, const char *s)
{
	out_add(o, s, strlen(s));
}

const char out_pairs[201] = "00010203040506070809101112131415161718192021222324"
			    "25262728293031323334353637383940414243444546474849"
			    "50515253545556575859606162636465666768697071727374"
			    "75767778798081828384858687888990919293949596979899";

void out_u64(struct out *o, uint64_t v)
{
	if (out_room(o, OUT_DIGITS))
		o->buf.len = (size_t)(out_put_u64(o->buf.data + o->buf.len, v) - o->buf.data);
}

void out_i64(struct out *o, int64_t v)
{
	if (v < 0)
		out_char(o, '-');
	out_u64(o, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void out_hex(struct out *o, uint64_t v)
{
	char tmp[16];
	size_t n = sizeof tmp;
	do {
		tmp[--n] = "0123456789abcdef"[v & 15];
		v >>= 4;
	} while (v);
	out_add(o, tmp + n, sizeof tmp - n);
}

void out_printf(struct out *o, const char *fmt, ...)
{
	char tmp[512];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(tmp, sizeof tmp, fmt, ap);
	va_end(ap);
	if (n > 0)
		out_add(o, tmp, (size_t)n < sizeof tmp ? (size_t)n : sizeof tmp - 1);
}
