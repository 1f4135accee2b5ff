#define _GNU_SOURCE
#include "limit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cli.h"
#include "base/file.h"

#define LOOK_NS UINT64_C(100000000)
#define MOST_FREE ((uint64_t)512 << 20)

uint64_t cap_limit_min_free(uint64_t size_bytes)
{
	uint64_t part = size_bytes / 100;
	return part < MOST_FREE ? part : MOST_FREE;
}

static bool has_disk(const struct cap_limit *l)
{
	return l->dir || l->on_disk;
}

static bool look_at_room(struct cap_limit *l)
{
	uint64_t size_bytes;
	if (!sp_disk_room(l->dir, l->fd, &l->free_bytes, &size_bytes))
		return false;
	l->min_free_bytes =
		l->o->has_min_free ? l->o->min_free_bytes : cap_limit_min_free(size_bytes);
	return true;
}

static bool is_low(struct cap_limit *l)
{
	return has_disk(l) && look_at_room(l) && l->free_bytes < l->min_free_bytes;
}

static struct cap_limit_old identity(const struct stat *st)
{
	return (struct cap_limit_old){.dev = st->st_dev,
				      .ino = st->st_ino,
				      .size = st->st_size,
				      .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 +
						  st->st_mtim.tv_nsec};
}

static bool is_old(const struct cap_limit *l, const struct stat *st)
{
	struct cap_limit_old now = identity(st);
	return now.dev == l->old.dev && now.ino == l->old.ino && now.size == l->old.size &&
	       now.mtime_ns == l->old.mtime_ns;
}

/* A spool takes its name with its first data. */
static uint64_t spool_bytes(const struct cap_limit *l)
{
	struct stat st;
	bool there = stat(l->o->output, &st) == 0 && S_ISREG(st.st_mode) && !is_old(l, &st);
	return there ? (uint64_t)st.st_size : 0;
}

static int set_dir(struct cap_limit *l, struct sp_err *err)
{
	const char *slash = strrchr(l->o->output, '/');
	struct stat st;
	l->dir = slash ? strndup(l->o->output, (size_t)(slash - l->o->output) + 1) : strdup(".");
	if (!l->dir)
		return sp_err_nomem(err);
	if (stat(l->o->output, &st) == 0)
		l->old = identity(&st);
	return 0;
}

int cap_limit_init(struct cap_limit *l, const struct cap_options *o, int fd, char cure[200],
		   struct sp_err *err)
{
	struct stat st;
	*l = (struct cap_limit){.o = o, .fd = fd};
	l->on_disk = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	int rc = o->output_kind == CAP_TO_SPOOL ? set_dir(l, err) : 0;
	if (rc < 0 || !is_low(l))
		return rc;
	strcpy(cure, "make room there, write elsewhere, or leave less of it free with --min-free=SIZE");
	return sp_err_set(err, SP_ERR_LIMIT, 0,
			  "cannot record to %s: its file system has %llu MiB left, and %llu are to "
			  "stay free",
			  o->output ? o->output : "standard output",
			  (unsigned long long)(l->free_bytes >> 20),
			  (unsigned long long)(l->min_free_bytes >> 20));
}

bool cap_limit_is_due(const struct cap_limit *l, uint64_t stream_bytes, uint64_t now_ns)
{
	uint64_t room = l->free_bytes > l->min_free_bytes ? l->free_bytes - l->min_free_bytes : 0;
	return now_ns - l->looked_ns >= LOOK_NS ||
	       (has_disk(l) && stream_bytes - l->looked_bytes > room / 2);
}

bool cap_limit_reached(struct cap_limit *l, uint64_t stream_bytes, uint64_t now_ns)
{
	if (!cap_limit_is_due(l, stream_bytes, now_ns))
		return false;
	l->looked_ns = now_ns;
	l->looked_bytes = stream_bytes;
	if (l->o->max_bytes && (l->dir ? spool_bytes(l) : stream_bytes) >= l->o->max_bytes)
		l->state = CAP_MAX_SIZE;
	else if (is_low(l))
		l->state = CAP_LOW;
	return l->state != CAP_WITHIN;
}

void cap_limit_say(const struct cap_limit *l)
{
	const char *name = l->o->output ? l->o->output : "the stream";
	if (l->state == CAP_MAX_SIZE)
		sp_note("ended: %s has reached --max-size", name);
	else if (l->state == CAP_LOW)
		sp_warn("ended: the file system of %s has %llu MiB left, and %llu are to stay free "
			"(--min-free)",
			name, (unsigned long long)(l->free_bytes >> 20),
			(unsigned long long)(l->min_free_bytes >> 20));
}

void cap_limit_deinit(struct cap_limit *l)
{
	free(l->dir);
	*l = (struct cap_limit){0};
}
