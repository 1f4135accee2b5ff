#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define LOCK_MS 3000 /* how long an append waits for another writer's lock */

static int open_stdout(struct spool_output *o, struct sp_err *err)
{
	struct stat st;
	o->fd = dup(STDOUT_FILENO);
	if (o->fd < 0 || fstat(o->fd, &st) < 0)
		return sp_err_errno(err, "cannot use standard output");
	/* A shell's `>` gives a file that began empty; with `>>` nothing may be cut off. */
	o->regular = S_ISREG(st.st_mode) && lseek(o->fd, 0, SEEK_CUR) == 0 && st.st_size == 0 &&
		     !(fcntl(o->fd, F_GETFL) & O_APPEND);
	o->emptied = true;
	o->in_place = true;
	sp_pipe_enlarge(o->fd);
	return 0;
}

/* An existing file whose folder refuses a second one is written in place. */
static int open_in_place(struct spool_output *o, bool regular, struct sp_err *err)
{
	o->fd = open(o->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (o->fd < 0)
		return sp_err_errno(err, "cannot open %s", o->path);
	o->in_place = true;
	o->regular = regular;
	o->emptied = !regular;
	return 0;
}

static void proc_path(const struct spool_output *o, char out[32])
{
	snprintf(out, 32, "/proc/self/fd/%d", o->fd);
}

/* A file without a name, which vanishes with its writer whatever ends that: O_TMPFILE (Linux 3.11),
 * where the file system has it. */
static bool open_unnamed(struct spool_output *o)
{
	char proc[32];
	o->fd = open(o->dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (o->fd < 0)
		return false;
	proc_path(o, proc);
	struct stat st;
	if (stat(proc, &st) == 0) { /* else it could never get a name */
		o->unnamed = true;
		return true;
	}
	close(o->fd);
	o->fd = -1;
	return false;
}

static int open_new(struct spool_output *o, const struct stat *old, struct sp_err *err)
{
	const char *name = strrchr(o->path, '/');
	int dir_len = name ? (int)(name - o->path) + 1 : 0;
	name = name ? name + 1 : o->path;
	if (asprintf(&o->tmp, "%.*s.%s.XXXXXX", dir_len, o->path, name) < 0) {
		o->tmp = NULL;
		return sp_err_nomem(err);
	}
	if (open_unnamed(o)) {
		free(o->tmp);
		o->tmp = NULL;
	} else {
		o->fd = mkostemp(o->tmp, O_CLOEXEC);
	}
	if (o->fd < 0) {
		int os = errno;
		free(o->tmp);
		o->tmp = NULL;
		if (old && (os == EACCES || os == EPERM || os == EROFS))
			return open_in_place(o, true, err);
		errno = os;
		return sp_err_errno(err, "cannot create %s", o->path);
	}
	mode_t mask = umask(0);
	umask(mask);
	/* A failure leaves the file private, which harms nobody. */
	if (fchmod(o->fd, old ? old->st_mode & 0777 : 0666 & ~mask) < 0)
		errno = 0;
	o->regular = true;
	return 0;
}

/*
 * The lock of a writer that was killed can stay for an instant: the helper of its sandbox has the
 * file until it first runs, and so has whoever looks at its /proc/PID/fd just then.
 */
static int lock_soon(int fd)
{
	int rc = flock(fd, LOCK_EX | LOCK_NB);
	for (int ms = 0; rc < 0 && errno == EWOULDBLOCK && ms < LOCK_MS; ms += 10) {
		poll(NULL, 0, 10);
		rc = flock(fd, LOCK_EX | LOCK_NB);
	}
	return rc;
}

static int open_append(struct spool_output *o, struct sp_err *err)
{
	o->fd = open(o->path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (o->fd < 0)
		return sp_err_errno(err, "cannot open %s", o->path);
	if (lock_soon(o->fd) < 0)
		return sp_err_errno(err, "cannot append to %s: another writer has it", o->path);
	o->in_place = o->regular = o->emptied = true;
	return 0;
}

int spool_output_cut(struct spool_output *o, uint64_t end, struct sp_err *err)
{
	if (ftruncate(o->fd, (off_t)end) < 0 || lseek(o->fd, (off_t)end, SEEK_SET) < 0)
		return sp_err_errno(err, "cannot append to %s", o->path);
	o->whole = end;
	return 0;
}

static int open_file(struct spool_output *o, const char *path, bool append, struct sp_err *err)
{
	struct stat st;
	bool exists = stat(path, &st) == 0;
	/* A link keeps standing; the file that it names is replaced. */
	o->path = exists ? realpath(path, NULL) : strdup(path);
	if (!o->path)
		return sp_err_errno(err, "cannot use %s", path);
	const char *slash = strrchr(o->path, '/');
	o->dir = slash ? strndup(o->path, (size_t)(slash - o->path) + 1) : strdup(".");
	if (!o->dir)
		return sp_err_nomem(err);
	if (exists && S_ISDIR(st.st_mode))
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot write %s: it is a folder", path);
	if (append)
		return open_append(o, err);
	if (exists && !S_ISREG(st.st_mode))
		return open_in_place(o, false, err);
	return open_new(o, exists ? &st : NULL, err);
}

int spool_output_open(struct spool_output *o, const char *path, bool append, bool sync,
		      struct sp_err *err)
{
	*o = (struct spool_output){.fd = -1, .sync = sync};
	int rc = strcmp(path, "-") ? open_file(o, path, append, err) : open_stdout(o, err);
	if (rc < 0)
		spool_output_close(o);
	else if (o->regular && !append && flock(o->fd, LOCK_EX | LOCK_NB) < 0)
		errno = 0; /* a file system without locks: nobody else is kept out */
	return rc;
}

static const char *name_of(const struct spool_output *o)
{
	return o->path ? o->path : "standard output";
}

static int to_disk(struct spool_output *o, struct sp_err *err)
{
	if (fdatasync(o->fd) < 0 && errno != EINVAL && errno != EROFS && errno != ENOSYS)
		return sp_err_errno(err, "cannot write %s", name_of(o));
	return 0;
}

/* Give the unnamed file its name, or, when a file has that, a hidden one that can take its place. */
static int give_name(struct spool_output *o, struct sp_err *err)
{
	char proc[32];
	proc_path(o, proc);
	int rc = linkat(AT_FDCWD, proc, AT_FDCWD, o->path, AT_SYMLINK_FOLLOW);
	const char *name = strrchr(o->path, '/');
	name = name ? name + 1 : o->path;
	for (unsigned i = 0; rc < 0 && errno == EEXIST && i < 100; i++) {
		free(o->tmp);
		if (asprintf(&o->tmp, "%.*s.%s.%d-%u", (int)(name - o->path), o->path, name,
			     (int)getpid(), i) < 0) {
			o->tmp = NULL;
			return sp_err_nomem(err);
		}
		rc = linkat(AT_FDCWD, proc, AT_FDCWD, o->tmp, AT_SYMLINK_FOLLOW);
	}
	if (rc < 0) {
		rc = sp_err_errno(err, "cannot create %s", o->path);
		free(o->tmp); /* not ours */
		o->tmp = NULL;
		return rc;
	}
	o->unnamed = false;
	return 0;
}

/* The file takes its name. */
static int commit(struct spool_output *o, struct sp_err *err)
{
	if (!o->tmp && !o->unnamed)
		return 0;
	int rc = to_disk(o, err);
	if (rc == 0 && o->unnamed)
		rc = give_name(o, err);
	if (rc < 0 || !o->tmp)
		return rc;
	if (rename(o->tmp, o->path) < 0)
		return sp_err_errno(err, "cannot replace %s", o->path);
	free(o->tmp);
	o->tmp = NULL;
	return 0;
}

int spool_output_sink(void *ctx, const void *bytes, size_t n, struct sp_err *err)
{
	struct spool_output *o = ctx;
	if (!o->emptied && o->in_place && ftruncate(o->fd, 0) < 0)
		return sp_err_errno(err, "cannot write %s", name_of(o));
	o->emptied = true;
	int rc = sp_fd_write(o->fd, bytes, n, name_of(o), err);
	if (rc < 0) {
		/* Half a block is of no use, and its space may be needed. */
		if (o->regular && ftruncate(o->fd, (off_t)o->whole) < 0)
			errno = 0;
		o->failed = true;
		return rc;
	}
	o->whole += n;
	if (o->sync)
		rc = to_disk(o, err);
	/* The first write is the header and the facts, the second holds data. */
	if (rc == 0 && ++o->n_writes >= 2)
		rc = commit(o, err);
	return rc;
}

/* The lock goes by itself only with the last descriptor, and the sandbox's helper has one until it
 * first runs: on a busy machine that may be after our end. */
static int let_go(struct spool_output *o)
{
	if (o->regular)
		flock(o->fd, LOCK_UN);
	int rc = close(o->fd);
	o->fd = -1;
	return rc;
}

int spool_output_finish(struct spool_output *o, struct sp_err *err)
{
	int rc = commit(o, err);
	if (rc == 0 && o->regular)
		rc = to_disk(o, err);
	if (rc == 0 && let_go(o) < 0)
		rc = sp_err_errno(err, "cannot write %s", name_of(o));
	spool_output_close(o);
	return rc;
}

void spool_output_close(struct spool_output *o)
{
	if (o->tmp)
		unlink(o->tmp);
	if (o->fd >= 0)
		let_go(o);
	free(o->path);
	free(o->tmp);
	free(o->dir);
	*o = (struct spool_output){.fd = -1};
}
