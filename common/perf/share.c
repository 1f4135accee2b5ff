#define _GNU_SOURCE
#include "perf/share.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "perf/chunk.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3; without it that kernel logs a warning */
#define MFD_NOEXEC_SEAL 8u
#endif

/* Where the locks lie, one byte for each descriptor that the memory may have. */
#define LOCK_BASE 0x53504b0000
#define LOCK_RANGE 0x10000

#define HEAD_BYTES 4096u
#define AREA_BYTES (HEAD_BYTES + (size_t)SP_SHARE_SLOTS * SP_SHARE_SLOT_BYTES)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The first bytes of the memory; of one machine, so in its own byte order. */
struct area {
	char magic[8];     /* the last one is the version */
	uint64_t dev, ino; /* of the pipe that it belongs to */
	_Atomic uint32_t refs[SP_SHARE_SLOTS];
};
_Static_assert(sizeof(struct area) <= HEAD_BYTES, "the head holds it");

static const char magic[8] = {'S', 'P', 'S', 'H', 'A', 'R', 'E', 1};

struct sp_share {
	struct area *area; /* owned, mapped: AREA_BYTES */
	int fd, pipe_fd;   /* the reader's; the writer needs none */
	_Atomic uint32_t refs; /* of this: its owner, and the pieces that are out */
};

/* A part of a slot that the reader has in hand. */
struct piece {
	struct sp_chunk chunk; /* first: a release casts back */
	struct sp_share *share;
	uint32_t slot;
};

static struct sp_share *share_new(int fd)
{
	struct sp_share *s = calloc(1, sizeof *s);
	void *p = s ? mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
		    : MAP_FAILED;
	if (p == MAP_FAILED) {
		free(s);
		return NULL;
	}
	s->area = p;
	s->fd = s->pipe_fd = -1;
	atomic_store(&s->refs, 1);
	return s;
}

static void share_put(struct sp_share *s)
{
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	munmap(s->area, AREA_BYTES);
	free(s);
}

/* --- the reader's end --- */

static int make_memory(void)
{
	int fd = memfd_create("stackpulse", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0)
		fd = memfd_create("stackpulse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 &&
	    (ftruncate(fd, (off_t)AREA_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int set_lock(const struct sp_share *s, short type)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = LOCK_BASE + s->fd,
			  .l_len = 1};
	return fcntl(s->pipe_fd, F_SETLK, &l);
}

struct sp_share *sp_share_offer(int pipe_fd)
{
	struct stat st;
	if (fstat(pipe_fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return NULL;
	int fd = make_memory();
	struct sp_share *s = fd >= 0 && fd < LOCK_RANGE ? share_new(fd) : NULL;
	if (!s) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	s->fd = fd;
	s->pipe_fd = pipe_fd;
	s->area->dev = st.st_dev;
	s->area->ino = st.st_ino;
	memcpy(s->area->magic, magic, sizeof magic);
	if (set_lock(s, F_RDLCK) < 0) {
		sp_share_withdraw(s);
		return NULL;
	}
	return s;
}

void sp_share_withdraw(struct sp_share *s)
{
	if (!s)
		return;
	set_lock(s, F_UNLCK);
	close(s->fd);
	share_put(s);
}

static void piece_gone(struct sp_chunk *c)
{
	struct piece *p = (struct piece *)c;
	sp_share_drop(p->share, (int)p->slot);
	share_put(p->share);
	free(p);
}

struct sp_chunk *sp_share_piece(struct sp_share *s, uint32_t slot, uint32_t offset, uint32_t bytes,
				const uint8_t **data)
{
	if (slot >= SP_SHARE_SLOTS || offset > SP_SHARE_SLOT_BYTES ||
	    bytes > SP_SHARE_SLOT_BYTES - offset || offset % 8)
		return NULL;
	struct piece *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->share = s;
	p->slot = slot;
	p->chunk.gone = piece_gone;
	p->chunk.data = sp_share_slot(s, (int)slot);
	atomic_store(&p->chunk.refs, 1);
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	*data = p->chunk.data + offset;
	return &p->chunk;
}

/* --- the writer's end --- */

/* Another process's descriptor: what it is is looked at before it is opened, which of a fifo or a
 * device might wait or have effects. */
static int open_memory(pid_t pid, int number)
{
	char path[64];
	struct statfs fs;
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, number);
	int look = open(path, O_PATH | O_CLOEXEC), fd = -1;
	if (look < 0)
		return -1;
	if (fstat(look, &st) == 0 && S_ISREG(st.st_mode) && fstatfs(look, &fs) == 0 &&
	    fs.f_type == TMPFS_MAGIC) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", look);
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	}
	close(look);
	return fd;
}

static bool is_ours(int fd, const struct stat *pipe)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 ||
	    st.st_size != (off_t)AREA_BYTES)
		return false;
	struct area a;
	return pread(fd, &a, sizeof a, 0) == (ssize_t)sizeof a &&
	       !memcmp(a.magic, magic, sizeof magic) && a.dev == pipe->st_dev &&
	       a.ino == pipe->st_ino;
}

struct sp_share *sp_share_find(int pipe_fd)
{
	struct stat st;
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_BASE,
			  .l_len = LOCK_RANGE};
	if (fcntl(pipe_fd, F_GETLK, &l) < 0 || l.l_type != F_RDLCK || l.l_pid <= 0 ||
	    l.l_start < LOCK_BASE || fstat(pipe_fd, &st) < 0)
		return NULL;
	int fd = open_memory(l.l_pid, (int)(l.l_start - LOCK_BASE));
	struct sp_share *s = fd >= 0 && is_ours(fd, &st) ? share_new(fd) : NULL;
	if (fd >= 0)
		close(fd);
	return s;
}

void sp_share_leave(struct sp_share *s)
{
	if (s)
		share_put(s);
}

int sp_share_take(struct sp_share *s)
{
	/* The first free one: the last used ones are in the caches. */
	for (uint32_t i = 0; i < SP_SHARE_SLOTS; i++) {
		if (atomic_load_explicit(&s->area->refs[i], memory_order_acquire) == 0) {
			atomic_store_explicit(&s->area->refs[i], 1, memory_order_relaxed);
			return (int)i;
		}
	}
	return -1;
}

uint8_t *sp_share_slot(const struct sp_share *s, int slot)
{
	return (uint8_t *)s->area + HEAD_BYTES + (size_t)slot * SP_SHARE_SLOT_BYTES;
}

void sp_share_hold(struct sp_share *s, int slot)
{
	atomic_fetch_add_explicit(&s->area->refs[slot], 1, memory_order_relaxed);
}

void sp_share_drop(struct sp_share *s, int slot)
{
	atomic_fetch_sub_explicit(&s->area->refs[slot], 1, memory_order_release);
}
