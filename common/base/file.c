#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/stop.h"

int sp_file_open(const char *path, int flags, struct sp_err *err)
{
	int how = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
		  (flags & SP_OPEN_NOFOLLOW ? O_NOFOLLOW : 0);
	int fd = sp_opener_wants(path) ? sp_opener_open(path, how) : open(path, how);
	if (fd < 0)
		return sp_err_errno(err, "cannot open %s", path);
	struct stat st;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot read %s: not a regular file",
				  path);
	}
	return fd;
}

/* Set by sp_map_guard, before there are threads: a library has no say in its program's signals. */
static bool may_guard;

/* The maps that the SIGBUS handler may repair. Slots are claimed and freed with atomics because
 * the handler reads them at any instant. */
#define N_GUARDS 16384
#define READ_MAX ((size_t)8 << 30)
static struct guard {
	_Atomic uintptr_t start;
	_Atomic size_t size;
} guards[N_GUARDS];
static _Atomic unsigned n_guards_used;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t page_mask;

static void on_sigbus(int sig, siginfo_t *info, void *ctx)
{
	(void)ctx;
	uintptr_t at = (uintptr_t)info->si_addr;
	unsigned n = atomic_load(&n_guards_used);
	for (unsigned i = 0; i < n; i++) {
		uintptr_t start = atomic_load(&guards[i].start);
		if (!start || at < start || at - start >= atomic_load(&guards[i].size))
			continue;
		void *page = (void *)(at & ~page_mask); /* NOLINT: an address from the kernel */
		if (mmap(page, page_mask + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			 -1, 0) != MAP_FAILED)
			return;
	}
	signal(sig, SIG_DFL); /* not ours: the fault repeats and kills as it should */
}

static void guard_init(void)
{
	page_mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
	sigaction(SIGBUS, &sa, NULL);
}

static bool guard_add(const void *start, size_t size)
{
	static unsigned next; /* where the last free slot was found */
	pthread_once(&guard_once, guard_init);
	pthread_mutex_lock(&guard_lock);
	unsigned tried = 0;
	while (tried < N_GUARDS && atomic_load(&guards[next].start)) {
		next = (next + 1) % N_GUARDS;
		tried++;
	}
	bool ok = tried < N_GUARDS;
	if (ok) {
		atomic_store(&guards[next].size, size);
		atomic_store(&guards[next].start, (uintptr_t)start);
		if (next >= atomic_load(&n_guards_used))
			atomic_store(&n_guards_used, next + 1);
	}
	pthread_mutex_unlock(&guard_lock);
	return ok;
}

static void guard_drop(const void *start)
{
	pthread_mutex_lock(&guard_lock);
	for (unsigned i = 0; i < atomic_load(&n_guards_used); i++)
		if (atomic_load(&guards[i].start) == (uintptr_t)start)
			atomic_store(&guards[i].start, 0);
	pthread_mutex_unlock(&guard_lock);
}

void sp_map_guard(void)
{
	may_guard = true;
}

/* How much of [at, end) could be read: less where the file ends. */
static ssize_t read_range(int fd, uint8_t *to, off_t at, off_t end)
{
	size_t done = 0, want = (size_t)(end - at);
	while (done < want) {
		ssize_t n = pread(fd, to + done, want - done, at + (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* The file's bytes in memory of our own: holes stay unread, and what it lost meanwhile is zero. */
static void *read_whole(int fd, size_t size, const char *name, struct sp_err *err)
{
	uint8_t *p = size <= READ_MAX ? mmap(NULL, size, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
				      : MAP_FAILED;
	if (p == MAP_FAILED) {
		sp_err_set(err, SP_ERR_LIMIT, 0, "cannot read %s: %zu bytes", name, size);
		return NULL;
	}
	off_t was = lseek(fd, 0, SEEK_CUR); /* the caller may read on from there */
	ssize_t n = 0;
	for (off_t at = 0, end; n >= 0 && (size_t)at < size; at = end) {
		off_t data = lseek(fd, at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break; /* only a hole is left */
		at = data < 0 ? at : data;
		end = data < 0 ? (off_t)size : lseek(fd, at, SEEK_HOLE);
		end = end < 0 || (size_t)end > size ? (off_t)size : end;
		n = read_range(fd, p + at, at, end);
		if (n >= 0 && n < end - at)
			break; /* it has shrunk */
	}
	if (n < 0) {
		sp_err_errno(err, "cannot read %s", name);
		munmap(p, size);
		p = NULL;
	}
	lseek(fd, was, SEEK_SET);
	return p;
}

static void *map_whole(int fd, size_t size, const char *name, struct sp_err *err)
{
	void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		sp_err_errno(err, "cannot map %s", name);
		return NULL;
	}
	if (!guard_add(p, size)) {
		munmap(p, size);
		sp_err_set(err, SP_ERR_LIMIT, 0, "cannot map %s: %d files are mapped", name,
			   N_GUARDS);
		return NULL;
	}
	return p;
}

int sp_map_file_fd(struct sp_map_file *m, int fd, const char *name, struct sp_err *err)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return sp_err_errno(err, "cannot stat %s", name);
	if (!S_ISREG(st.st_mode))
		return sp_err_set(err, SP_ERR_INVALID, 0, "cannot read %s: not a regular file",
				  name);
	struct sp_map_file out = {
		.size = (size_t)st.st_size,
		.dev = st.st_dev,
		.ino = st.st_ino,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.ctime_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
	};
	if (out.size) {
		struct sp_err why = {.code = SP_ERR_IO};
		out.data = may_guard ? map_whole(fd, out.size, name, &why)
				     : read_whole(fd, out.size, name, &why);
		if (!out.data) {
			if (err)
				*err = why;
			return why.code;
		}
	}
	*m = out;
	return 0;
}

int sp_map_file_open(struct sp_map_file *m, const char *path, struct sp_err *err)
{
	int fd = sp_file_open(path, 0, err);
	if (fd < 0)
		return fd;
	int rc = sp_map_file_fd(m, fd, path, err);
	close(fd);
	return rc;
}

void sp_map_file_close(struct sp_map_file *m)
{
	if (m->data) {
		if (may_guard)
			guard_drop(m->data);
		munmap((void *)(uintptr_t)m->data, m->size);
	}
	*m = (struct sp_map_file){0};
}

void sp_map_file_release(const struct sp_map_file *m, const void *from, size_t n)
{
	uintptr_t start = (uintptr_t)m->data, at = (uintptr_t)from;
	if (!may_guard || !m->data || at < start || at - start > m->size ||
	    n > m->size - (at - start))
		return;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t first = (at - start + page - 1) / page * page, end = (at - start + n) / page * page;
	if (first < end)
		(void)madvise((uint8_t *)(uintptr_t)m->data + first, end - first, MADV_DONTNEED);
}

int sp_fd_read_all(int fd, size_t max, struct sp_buf *b, const char *name, struct sp_err *err)
{
	size_t before = b->len;
	for (;;) {
		if (!sp_buf_reserve(b, 65536))
			return sp_err_nomem(err);
		ssize_t n = sp_fd_read(fd, b->data + b->len, 65536, name, err);
		if (n < 0)
			return (int)n;
		b->len += (size_t)n;
		if (b->len - before > max)
			return sp_err_set(err, SP_ERR_LIMIT, 0,
					  "cannot read %s: larger than %zu bytes", name, max);
		if (n == 0)
			return 0;
	}
}

int sp_file_read(const char *path, size_t max, struct sp_buf *b, struct sp_err *err)
{
	int fd = sp_file_open(path, 0, err);
	if (fd < 0)
		return fd;
	int rc = sp_fd_read_all(fd, max, b, path, err);
	close(fd);
	return rc;
}

ssize_t sp_fd_read(int fd, void *data, size_t n, const char *name, struct sp_err *err)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = read(fd, (uint8_t *)data + done, n - done);
		if (got == 0)
			break;
		if (got > 0) {
			done += (size_t)got;
			continue;
		}
		if (errno == EINTR && sp_stop_level() > 1)
			break;
		if (errno != EINTR)
			return sp_err_errno(err, "cannot read %s", name);
	}
	return (ssize_t)done;
}

int sp_fd_write(int fd, const void *data, size_t n, const char *name, struct sp_err *err)
{
	const uint8_t *p = data;
	while (n) {
		ssize_t put = write(fd, p, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return sp_err_errno(err, "cannot write %s", name);
		p += put;
		n -= (size_t)put;
	}
	return 0;
}

void sp_pipe_enlarge(int fd)
{
	for (int size = 1 << 20; size >= 1 << 17 && fcntl(fd, F_SETPIPE_SZ, size) < 0; size /= 2)
		;
}

void sp_folders_make(char *path)
{
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		mkdir(path, 0700);
		*p = '/';
	}
	mkdir(path, 0700);
}

bool sp_disk_room(const char *dir, int fd, uint64_t *free_bytes, uint64_t *size_bytes)
{
	struct statvfs v;
	int rc = dir ? statvfs(dir, &v) : fstatvfs(fd, &v);
	if (rc < 0 || !v.f_blocks)
		return false;
	*free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	*size_bytes = (uint64_t)v.f_blocks * v.f_frsize;
	return true;
}
