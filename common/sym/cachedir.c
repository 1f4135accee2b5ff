#define _GNU_SOURCE
#include "sym/cachedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TMP_TAIL ".tmp"     /* NAME.PID.N.tmp while it is written */
#define TMP_AGE_S (60 * 60) /* then its writer is dead */
#define USED_AGE_S (24 * 60 * 60)

/* Where the XDG base directory specification puts a program's cache: a relative path there is to be
 * ignored. */
static bool find_path(char *out, size_t size)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n = -1;
	if (xdg && xdg[0] == '/')
		n = snprintf(out, size, "%s/stackpulse/symbols", xdg);
	else if (home && home[0] == '/')
		n = snprintf(out, size, "%s/.cache/stackpulse/symbols", home);
	return n > 0 && (size_t)n < size;
}

/* Whether folders may be made there: sudo may keep a user's HOME, and root's folders in it would be
 * in that user's way. */
static bool is_own_place(char *path)
{
	struct stat st;
	size_t len = strlen(path);
	bool found = false, own = false;
	while (len > 1 && !found) {
		char was = path[len];
		path[len] = 0;
		found = stat(path, &st) == 0;
		own = found && (st.st_uid == geteuid() || st.st_uid == 0);
		path[len] = was;
		while (len > 1 && path[--len] != '/')
			;
	}
	return own;
}

static bool is_own(const struct stat *st)
{
	return st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

int sp_cachedir_open(struct sp_cachedir *d)
{
	struct stat st;
	d->fd = -1;
	if (!find_path(d->path, sizeof d->path))
		return 0;
	const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(d->path, how);
	if (fd < 0 && errno == ENOENT && is_own_place(d->path)) {
		sp_folders_make(d->path);
		fd = open(d->path, how);
	}
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0 || !is_own(&st)) {
		close(fd);
		return 0;
	}
	d->fd = fd;
	return 1;
}

void sp_cachedir_close(struct sp_cachedir *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

int sp_cachedir_map(const struct sp_cachedir *d, const char *name, struct sp_map_file *out)
{
	struct stat st;
	if (!d || d->fd < 0)
		return 0;
	int fd = openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	int ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && is_own(&st) && st.st_size > 0 &&
		 sp_map_file_fd(out, fd, name, NULL) >= 0;
	/* The oldest go first when there is too much: what is used is not old. */
	struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
	if (ok && time(NULL) - st.st_mtime > USED_AGE_S)
		(void)futimens(fd, now);
	close(fd);
	return ok;
}

struct entry {
	char *name; /* owned */
	time_t used;
	uint64_t size;
};

static int by_age(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	if (x->used != y->used)
		return x->used < y->used ? -1 : 1;
	return strcmp(x->name, y->name);
}

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);
	return n >= m && !strcmp(s + n - m, tail);
}

/* Deletes the oldest until three quarters of what is allowed are left. */
static void drop_oldest(const struct sp_cachedir *d, struct entry *v, size_t n, uint64_t total)
{
	size_t left = n;
	if (total <= SP_CACHEDIR_BYTES && n <= SP_CACHEDIR_FILES)
		return;
	qsort(v, n, sizeof *v, by_age);
	for (size_t i = 0; i < n && (total > SP_CACHEDIR_BYTES / 4 * 3 ||
				     left > SP_CACHEDIR_FILES / 4 * 3);
	     i++) {
		if (unlinkat(d->fd, v[i].name, 0) < 0)
			continue;
		total -= v[i].size;
		left--;
	}
}

static void prune(const struct sp_cachedir *d)
{
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	struct entry *v = NULL;
	size_t n = 0, cap = 0;
	uint64_t total = 0;
	time_t now = time(NULL);
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st;
		if (fstatat(d->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (ends_with(e->d_name, TMP_TAIL)) {
			if (now - st.st_mtime > TMP_AGE_S)
				unlinkat(d->fd, e->d_name, 0);
			continue;
		}
		char *name = strdup(e->d_name);
		struct entry *slot = name ? SP_PUSH(&v, &n, &cap) : NULL;
		if (!slot) {
			free(name);
			break;
		}
		*slot = (struct entry){name, st.st_mtime, (uint64_t)st.st_size};
		total += slot->size;
	}
	drop_oldest(d, v, n, total);
	for (size_t i = 0; i < n; i++)
		free(v[i].name);
	free(v);
	closedir(dir);
}

bool sp_cachedir_write(const struct sp_cachedir *d, const char *name, const void *data, size_t size)
{
	static atomic_uint turn;
	static atomic_flag pruned = ATOMIC_FLAG_INIT;
	char tmp[300];
	if (!d || d->fd < 0)
		return false;
	int n = snprintf(tmp, sizeof tmp, "%s.%ld.%u" TMP_TAIL, name, (long)getpid(),
			 atomic_fetch_add(&turn, 1));
	if (n < 0 || (size_t)n >= sizeof tmp)
		return false;
	/* One of that name was left by a dead process that had this one's number. */
	unlinkat(d->fd, tmp, 0);
	int fd = openat(d->fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	bool ok = sp_fd_write(fd, data, size, name, NULL) >= 0;
	ok = close(fd) == 0 && ok;
	ok = ok && renameat(d->fd, tmp, d->fd, name) == 0;
	if (!ok)
		unlinkat(d->fd, tmp, 0);
	else if (!atomic_flag_test_and_set(&pruned))
		prune(d); /* once is enough for a process */
	return ok;
}
