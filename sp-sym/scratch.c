#define _GNU_SOURCE
#include "scratch.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

static int open_in(const char *dir)
{
	return open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int scratch_open(const char *beside)
{
	const char *env = getenv("TMPDIR");
	char *path = beside && strcmp(beside, "-") != 0 ? strdup(beside) : NULL;
	int fd = path ? open_in(dirname(path)) : -1;
	free(path);
	if (fd < 0 && env && *env)
		fd = open_in(env);
	return fd < 0 ? open_in("/var/tmp") : fd;
}

void scratch_deinit(struct scratch *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->blocks[i]);
	free(s->blocks);
	*s = (struct scratch){.fd = -1};
}

static bool put_in_file(const struct scratch *s, const uint8_t *block)
{
	return s->fd >= 0 && s->n >= SCRATCH_IN_MEMORY &&
	       pwrite(s->fd, block, SCRATCH_BLOCK, (off_t)s->n * SCRATCH_BLOCK) == SCRATCH_BLOCK;
}

int scratch_add(struct scratch *s, const uint8_t *block, uint32_t *id, struct sp_err *err)
{
	bool in_file = put_in_file(s, block);
	uint8_t *copy = in_file ? NULL : malloc(SCRATCH_BLOCK);
	uint8_t **slot =
		s->n < UINT32_MAX && (in_file || copy) ? SP_PUSH(&s->blocks, &s->n, &s->cap) : NULL;
	if (!slot) {
		free(copy);
		return sp_err_nomem(err);
	}
	if (copy)
		memcpy(copy, block, SCRATCH_BLOCK);
	*slot = copy;
	*id = (uint32_t)s->n - 1;
	return 0;
}

const uint8_t *scratch_get(const struct scratch *s, uint32_t id, uint8_t buf[SCRATCH_BLOCK],
			   struct sp_err *err)
{
	if (s->blocks[id])
		return s->blocks[id];
	if (pread(s->fd, buf, SCRATCH_BLOCK, (off_t)id * SCRATCH_BLOCK) == SCRATCH_BLOCK)
		return buf;
	sp_err_errno(err, "cannot read what was put aside");
	return NULL;
}
